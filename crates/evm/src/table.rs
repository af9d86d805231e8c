//! The opcode tables: one row per opcode, one line per repricing, one table per fork.
//!
//! A table is plain data: for each byte a threaded handler, a loop step, a static gas price, and what the opcode does
//! to the stack. A new opcode is a row here and a body in `ops`; a new price is a line in [`REPRICED`]. A host's
//! changes are in `overrides`.

#[cfg(target_arch = "x86_64")]
use crate::interpreter::{Handler, threaded};
use crate::{
    gas::GasSchedule,
    interpreter::{Op, StepFn, stepped},
    ops::{arithmetic::*, bitwise::*, block::*, control::*, environment::*},
    ops::{memory::*, stack::*, storage::*, system::*},
    overrides::{Overrides, Precompiles},
};
use niwaki_crypto::PrecompileSet;
use niwaki_primitives::Fork;
use std::sync::LazyLock;

/// Mnemonic, stack effect and operand length of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The mnemonic.
    pub mnemonic: &'static str,
    /// Words popped.
    pub input: usize,
    /// Words pushed.
    pub output: usize,
    /// Operand bytes after the opcode.
    pub immediate: usize,
}

/// The opcodes and prices of one fork; a host changes a clone.
#[derive(Clone)]
#[repr(C)]
pub struct Table {
    #[cfg(target_arch = "x86_64")]
    pub(crate) threaded: [Handler; 256],
    /// Static gas.
    pub(crate) gas: [i64; 256],
    pub(crate) schedule: GasSchedule,
    pub(crate) stepped: [StepFn; 256],
    pub(crate) info: [Option<OpcodeInfo>; 256],
    fork: Fork,
    pub(crate) precompiles: Precompiles,
    pub(crate) overrides: Overrides,
    /// The table of fused code.
    pub(crate) fused: Option<Box<Table>>,
}

/// An opcode: its first fork, its static gas there, and its two forms.
#[derive(Clone, Copy)]
struct Row {
    since: Fork,
    gas: i64,
    code: u8,
    info: OpcodeInfo,
    #[cfg(target_arch = "x86_64")]
    threaded: Handler,
    stepped: StepFn,
}

const fn row<O: Op>(since: Fork, gas: i64, mnemonic: &'static str) -> Row {
    let immediate = O::SIZE.saturating_sub(1);
    Row {
        since,
        gas,
        code: O::CODE,
        info: OpcodeInfo {
            mnemonic,
            input: O::IN,
            output: O::OUT,
            immediate,
        },
        #[cfg(target_arch = "x86_64")]
        threaded: threaded::<O>,
        stepped: stepped::<O>,
    }
}

/// Rows of a family of opcodes, one per number of words or bytes.
macro_rules! family {
    ($since:expr, $gas:expr, $op:ident: $($n:literal $mnemonic:literal),+ $(,)?) => {
        [$(row::<$op<$n>>($since, $gas, $mnemonic)),+]
    };
}

use Fork::{
    Amsterdam, Byzantium, Cancun, Constantinople, Frontier, Homestead, Istanbul, London, Osaka,
    Shanghai,
};

#[rustfmt::skip]
const SINGLES: [Row; 83] = [
    row::<Stop>(Frontier, 0, "STOP"),
    row::<Add>(Frontier, 3, "ADD"),
    row::<Mul>(Frontier, 5, "MUL"),
    row::<Sub>(Frontier, 3, "SUB"),
    row::<Div>(Frontier, 5, "DIV"),
    row::<Sdiv>(Frontier, 5, "SDIV"),
    row::<Mod>(Frontier, 5, "MOD"),
    row::<Smod>(Frontier, 5, "SMOD"),
    row::<Addmod>(Frontier, 8, "ADDMOD"),
    row::<Mulmod>(Frontier, 8, "MULMOD"),
    row::<Exp>(Frontier, 10, "EXP"),
    row::<Signextend>(Frontier, 5, "SIGNEXTEND"),
    row::<Lt>(Frontier, 3, "LT"),
    row::<Gt>(Frontier, 3, "GT"),
    row::<Slt>(Frontier, 3, "SLT"),
    row::<Sgt>(Frontier, 3, "SGT"),
    row::<Eq>(Frontier, 3, "EQ"),
    row::<Iszero>(Frontier, 3, "ISZERO"),
    row::<And>(Frontier, 3, "AND"),
    row::<Or>(Frontier, 3, "OR"),
    row::<Xor>(Frontier, 3, "XOR"),
    row::<Not>(Frontier, 3, "NOT"),
    row::<Byte>(Frontier, 3, "BYTE"),
    row::<Shl>(Constantinople, 3, "SHL"),
    row::<Shr>(Constantinople, 3, "SHR"),
    row::<Sar>(Constantinople, 3, "SAR"),
    row::<Clz>(Osaka, 5, "CLZ"),
    row::<Keccak256>(Frontier, 30, "KECCAK256"),
    row::<Address>(Frontier, 2, "ADDRESS"),
    row::<Balance>(Frontier, 20, "BALANCE"),
    row::<Origin>(Frontier, 2, "ORIGIN"),
    row::<Caller>(Frontier, 2, "CALLER"),
    row::<CallValue>(Frontier, 2, "CALLVALUE"),
    row::<CallDataLoad>(Frontier, 3, "CALLDATALOAD"),
    row::<CallDataSize>(Frontier, 2, "CALLDATASIZE"),
    row::<CallDataCopy>(Frontier, 3, "CALLDATACOPY"),
    row::<CodeSize>(Frontier, 2, "CODESIZE"),
    row::<CodeCopy>(Frontier, 3, "CODECOPY"),
    row::<GasPrice>(Frontier, 2, "GASPRICE"),
    row::<ExtCodeSize>(Frontier, 20, "EXTCODESIZE"),
    row::<ExtCodeCopy>(Frontier, 20, "EXTCODECOPY"),
    row::<ReturnDataSize>(Byzantium, 2, "RETURNDATASIZE"),
    row::<ReturnDataCopy>(Byzantium, 3, "RETURNDATACOPY"),
    row::<ExtCodeHash>(Constantinople, 400, "EXTCODEHASH"),
    row::<Blockhash>(Frontier, 20, "BLOCKHASH"),
    row::<Coinbase>(Frontier, 2, "COINBASE"),
    row::<Timestamp>(Frontier, 2, "TIMESTAMP"),
    row::<Number>(Frontier, 2, "NUMBER"),
    row::<PrevRandao>(Frontier, 2, "PREVRANDAO"),
    row::<GasLimit>(Frontier, 2, "GASLIMIT"),
    row::<ChainId>(Istanbul, 2, "CHAINID"),
    row::<SelfBalance>(Istanbul, 5, "SELFBALANCE"),
    row::<BaseFee>(London, 2, "BASEFEE"),
    row::<BlobHash>(Cancun, 3, "BLOBHASH"),
    row::<BlobBaseFee>(Cancun, 2, "BLOBBASEFEE"),
    row::<Pop>(Frontier, 2, "POP"),
    row::<Mload>(Frontier, 3, "MLOAD"),
    row::<Mstore>(Frontier, 3, "MSTORE"),
    row::<Mstore8>(Frontier, 3, "MSTORE8"),
    row::<Sload>(Frontier, 50, "SLOAD"),
    row::<Sstore>(Frontier, 0, "SSTORE"),
    row::<Jump>(Frontier, 8, "JUMP"),
    row::<Jumpi>(Frontier, 10, "JUMPI"),
    row::<Pc>(Frontier, 2, "PC"),
    row::<Msize>(Frontier, 2, "MSIZE"),
    row::<Gas>(Frontier, 2, "GAS"),
    row::<Jumpdest>(Frontier, 1, "JUMPDEST"),
    row::<Tload>(Cancun, 100, "TLOAD"),
    row::<Tstore>(Cancun, 100, "TSTORE"),
    row::<Mcopy>(Cancun, 3, "MCOPY"),
    row::<Push0>(Shanghai, 2, "PUSH0"),
    row::<Create>(Frontier, 32_000, "CREATE"),
    row::<CallOp>(Frontier, 40, "CALL"),
    row::<CallCode>(Frontier, 40, "CALLCODE"),
    row::<Return>(Frontier, 0, "RETURN"),
    row::<DelegateCall>(Homestead, 40, "DELEGATECALL"),
    row::<Create2>(Constantinople, 32_000, "CREATE2"),
    row::<StaticCall>(Byzantium, 700, "STATICCALL"),
    row::<Revert>(Byzantium, 0, "REVERT"),
    row::<SlotNum>(Amsterdam, 2, "SLOTNUM"),
    row::<DupN>(Amsterdam, 3, "DUPN"),
    row::<SwapN>(Amsterdam, 3, "SWAPN"),
    row::<Exchange>(Amsterdam, 3, "EXCHANGE"),
];

const DESTRUCT: Row = row::<SelfDestruct>(Frontier, 0, "SELFDESTRUCT");

#[rustfmt::skip]
const PUSHES: [Row; 32] = family!(Frontier, 3, Push:
    1 "PUSH1", 2 "PUSH2", 3 "PUSH3", 4 "PUSH4", 5 "PUSH5", 6 "PUSH6", 7 "PUSH7", 8 "PUSH8",
    9 "PUSH9", 10 "PUSH10", 11 "PUSH11", 12 "PUSH12", 13 "PUSH13", 14 "PUSH14", 15 "PUSH15",
    16 "PUSH16", 17 "PUSH17", 18 "PUSH18", 19 "PUSH19", 20 "PUSH20", 21 "PUSH21", 22 "PUSH22",
    23 "PUSH23", 24 "PUSH24", 25 "PUSH25", 26 "PUSH26", 27 "PUSH27", 28 "PUSH28", 29 "PUSH29",
    30 "PUSH30", 31 "PUSH31", 32 "PUSH32",
);

#[rustfmt::skip]
const DUPS: [Row; 16] = family!(Frontier, 3, Dup:
    1 "DUP1", 2 "DUP2", 3 "DUP3", 4 "DUP4", 5 "DUP5", 6 "DUP6", 7 "DUP7", 8 "DUP8", 9 "DUP9",
    10 "DUP10", 11 "DUP11", 12 "DUP12", 13 "DUP13", 14 "DUP14", 15 "DUP15", 16 "DUP16",
);

#[rustfmt::skip]
const SWAPS: [Row; 16] = family!(Frontier, 3, Swap:
    1 "SWAP1", 2 "SWAP2", 3 "SWAP3", 4 "SWAP4", 5 "SWAP5", 6 "SWAP6", 7 "SWAP7", 8 "SWAP8",
    9 "SWAP9", 10 "SWAP10", 11 "SWAP11", 12 "SWAP12", 13 "SWAP13", 14 "SWAP14", 15 "SWAP15",
    16 "SWAP16",
);

const LOGS: [Row; 5] = [
    row::<LogOp<0>>(Frontier, 375, "LOG0"),
    row::<LogOp<1>>(Frontier, 750, "LOG1"),
    row::<LogOp<2>>(Frontier, 1125, "LOG2"),
    row::<LogOp<3>>(Frontier, 1500, "LOG3"),
    row::<LogOp<4>>(Frontier, 1875, "LOG4"),
];

/// Static prices that a fork changed: fork, opcode, gas.
#[rustfmt::skip]
const REPRICED: [(Fork, u8, i64); 24] = [
    // EIP-150
    (Fork::TangerineWhistle, Balance::CODE, 400),
    (Fork::TangerineWhistle, ExtCodeSize::CODE, 700),
    (Fork::TangerineWhistle, ExtCodeCopy::CODE, 700),
    (Fork::TangerineWhistle, Sload::CODE, 200),
    (Fork::TangerineWhistle, CallOp::CODE, 700),
    (Fork::TangerineWhistle, CallCode::CODE, 700),
    (Fork::TangerineWhistle, DelegateCall::CODE, 700),
    (Fork::TangerineWhistle, SelfDestruct::CODE, 5_000),
    // EIP-1884
    (Istanbul, Sload::CODE, 800),
    (Istanbul, Balance::CODE, 700),
    (Istanbul, ExtCodeHash::CODE, 700),
    // EIP-2929: the warm price; the body adds the cold price
    (Fork::Berlin, Balance::CODE, 100),
    (Fork::Berlin, ExtCodeSize::CODE, 100),
    (Fork::Berlin, ExtCodeCopy::CODE, 100),
    (Fork::Berlin, ExtCodeHash::CODE, 100),
    (Fork::Berlin, Sload::CODE, 100),
    (Fork::Berlin, CallOp::CODE, 100),
    (Fork::Berlin, CallCode::CODE, 100),
    (Fork::Berlin, DelegateCall::CODE, 100),
    (Fork::Berlin, StaticCall::CODE, 100),
    // EIP-8038
    (Amsterdam, ExtCodeSize::CODE, 200),
    (Amsterdam, ExtCodeCopy::CODE, 200),
    (Amsterdam, Create::CODE, 12_000),
    (Amsterdam, Create2::CODE, 12_000),
];

impl Table {
    /// The table of `fork`.
    pub fn of(fork: Fork) -> &'static Self {
        static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
            let build = |fork| {
                let mut table = Table::build(fork);
                table.rebuild_fused();
                table
            };
            Fork::ALL.into_iter().map(build).collect()
        });
        &TABLES[fork as usize]
    }

    fn build(fork: Fork) -> Self {
        let undefined = row::<Undefined>(Frontier, 0, "INVALID");
        let mut table = Self {
            #[cfg(target_arch = "x86_64")]
            threaded: [undefined.threaded; 256],
            gas: [0; 256],
            schedule: GasSchedule::of(fork),
            stepped: [undefined.stepped; 256],
            info: [None; 256],
            fork,
            precompiles: Precompiles::of(precompiles_of(fork)),
            overrides: Overrides::NONE,
            fused: None,
        };
        table.info[usize::from(undefined.code)] = Some(undefined.info);
        let rows: [&[Row]; 6] = [&SINGLES, &[DESTRUCT], &PUSHES, &DUPS, &SWAPS, &LOGS];
        for row in rows.into_iter().flatten().filter(|row| row.since <= fork) {
            let at = usize::from(row.code);
            #[cfg(target_arch = "x86_64")]
            {
                table.threaded[at] = row.threaded;
            }
            table.stepped[at] = row.stepped;
            table.gas[at] = row.gas;
            table.info[at] = Some(row.info);
        }
        for (_, code, gas) in REPRICED.into_iter().filter(|(since, ..)| *since <= fork) {
            let at = usize::from(code);
            if table.info[at].is_some() {
                table.gas[at] = gas;
            }
        }
        table
    }

    /// Rebuilds the table of fused code, if code may be fused with this table.
    pub(crate) fn rebuild_fused(&mut self) {
        self.fused = None;
        #[cfg(target_arch = "x86_64")]
        if crate::fused::may_fuse(self) {
            let mut fused = self.clone();
            crate::fused::fuse_table(&mut fused);
            self.fused = Some(Box::new(fused));
        }
    }

    /// The row of an opcode; `None` if it is undefined.
    pub fn info(&self, opcode: u8) -> Option<OpcodeInfo> {
        self.info[usize::from(opcode)]
    }

    /// The mnemonic of an opcode.
    pub fn mnemonic(&self, opcode: u8) -> Option<&'static str> {
        self.info(opcode).map(|info| info.mnemonic)
    }

    /// Static gas of an opcode.
    pub fn static_gas(&self, opcode: u8) -> i64 {
        self.gas[usize::from(opcode)]
    }

    /// The fork.
    pub fn fork(&self) -> Fork {
        self.fork
    }

    /// The prices that bodies compute with.
    pub fn schedule(&self) -> &GasSchedule {
        &self.schedule
    }

    /// The precompiled contracts of the fork.
    pub fn precompiles(&self) -> PrecompileSet {
        self.precompiles.set
    }
}

fn precompiles_of(fork: Fork) -> PrecompileSet {
    match fork {
        f if f >= Osaka => PrecompileSet::Osaka,
        f if f >= Fork::Prague => PrecompileSet::Prague,
        f if f >= Cancun => PrecompileSet::Cancun,
        f if f >= Fork::Berlin => PrecompileSet::Berlin,
        f if f >= Istanbul => PrecompileSet::Istanbul,
        f if f >= Byzantium => PrecompileSet::Byzantium,
        _ => PrecompileSet::Frontier,
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.fork)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frontier_has_130_opcodes_and_amsterdam_154() {
        let count = |fork| {
            (0..=u8::MAX)
                .filter(|op| Table::of(fork).info(*op).is_some())
                .count()
        };
        // The Yellow Paper's Frontier set is 129 opcodes with INVALID; later forks only add.
        assert_eq!(count(Fork::Frontier), 130);
        assert_eq!(count(Fork::Homestead), 131);
        assert_eq!(count(Fork::Byzantium), 135);
        assert_eq!(count(Fork::Constantinople), 140);
        assert_eq!(count(Fork::Istanbul), 142);
        assert_eq!(count(Fork::London), 143);
        assert_eq!(count(Fork::Shanghai), 144);
        assert_eq!(count(Fork::Cancun), 149);
        assert_eq!(count(Fork::Osaka), 150);
        assert_eq!(count(Fork::Amsterdam), 154);
    }

    #[test]
    fn sload_costs_50_then_200_then_800_then_100() {
        let sload = |fork| Table::of(fork).static_gas(0x54);
        assert_eq!(sload(Fork::Homestead), 50);
        assert_eq!(sload(Fork::TangerineWhistle), 200);
        assert_eq!(sload(Fork::Petersburg), 200);
        assert_eq!(sload(Fork::MuirGlacier), 800);
        assert_eq!(sload(Fork::Berlin), 100);
    }
}
