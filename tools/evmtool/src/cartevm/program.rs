//! Programs that repeat one opcode, or two alternating ones.
//!
//! A program pushes operands once and then repeats a unit up to the requested size: copies of the operands, the opcode,
//! and POPs of its result. At its end it loops while there is gas for one more iteration. For an opcode that ends its
//! frame, the unit calls a contract that contains it.
//!
//! ```text
//! setup: PUSH a, PUSH b      unit of MULMOD: DUP3 DUP3 DUP3 MULMOD POP      end: loop while GAS > margin
//! ```

use niwaki_evm::Table;
use niwaki_primitives::{Address, Bytes, U256, address};

/// A contract that does nothing, with more bytes than a copy takes.
pub(super) const NOTHING: Address = address!("00000000000000000000000000000000000000a0");
/// Returns 64 bytes.
const RETURNING: Address = address!("00000000000000000000000000000000000000a2");

/// Address of the contract with an opcode that ends its frame, far from precompiled contracts.
const fn ending(opcode: u8) -> Address {
    let mut bytes = RETURNING.0.0;
    bytes[10] = 1;
    bytes[19] = opcode;
    Address::new(bytes)
}

pub(super) const STOP: u8 = 0x00;
pub(super) const GT: u8 = 0x11;
pub(super) const POP: u8 = 0x50;
pub(super) const JUMPI: u8 = 0x57;
pub(super) const GAS: u8 = 0x5a;
pub(super) const JUMPDEST: u8 = 0x5b;
const PUSH1: u8 = 0x60;
const DUP1: u8 = 0x80;
const RETURN: u8 = 0xf3;
pub(super) const STATICCALL: u8 = 0xfa;

/// Maximum gas of a call in a unit; before EIP-150 this much must be left.
pub(super) const MAX_CALL_GAS: u64 = 40_000;

/// Words below the operands for opcodes that reach deep.
const DEEP: usize = 20;

/// How an opcode is repeated.
#[derive(Clone, Debug)]
struct Unit {
    /// Its operands, the top of the stack first, pushed once.
    operands: Vec<U256>,
    repetition: Repetition,
}

#[derive(Clone, Debug)]
enum Repetition {
    /// Copies of all operands, the opcode with its immediate, and one POP per result.
    Copies { opcode: Vec<u8>, results: usize },
    /// Copies of all operands but the first, which the result replaces.
    Chain { opcode: u8 },
    /// The opcode alone.
    Bare { opcode: Vec<u8> },
    /// The opcode alone, which moves so many words; in a pair, on words of its own.
    Moves { opcode: Vec<u8>, words: usize },
    /// A jump to the byte after it, on a condition or without.
    Jump { opcode: u8 },
}

/// A program and its contracts.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    /// Code before the units.
    prologue: Vec<u8>,
    units: Vec<Unit>,
    /// Copies of the units in the program.
    pub(super) count: usize,
    /// Contracts that it calls, with their code.
    pub(super) contracts: Vec<(Address, Bytes)>,
}

pub(super) fn word(value: u64) -> U256 {
    U256::from(value)
}

pub(super) fn push(out: &mut Vec<u8>, value: U256) {
    let bytes = value.to_be_bytes_trimmed_vec();
    let bytes = if bytes.is_empty() { vec![0] } else { bytes };
    out.push(PUSH1 + u8::try_from(bytes.len() - 1).expect("32 bytes at most"));
    out.extend_from_slice(&bytes);
}

pub(super) fn address_word(address: Address) -> U256 {
    address.into_word().into()
}

/// Pseudo-random numbers of 256 bits.
fn wide(seed: u8) -> U256 {
    let bytes: [u8; 32] = std::array::from_fn(|at| {
        let at = u8::try_from(at).expect("below 32");
        at.wrapping_mul(67).wrapping_add(seed) ^ 0xa5
    });
    U256::from_be_bytes(bytes)
}

impl Unit {
    /// The unit of an opcode of `table`, and the contract that it calls.
    fn of(table: &Table, opcode: u8) -> Option<(Self, Option<(Address, Bytes)>)> {
        let info = table.info(opcode)?;
        let one = vec![opcode];
        let copies = |operands: Vec<U256>| Self {
            operands,
            repetition: Repetition::Copies {
                opcode: one.clone(),
                results: info.output,
            },
        };
        let bare = |bytes: Vec<u8>| Self {
            operands: Vec::new(),
            repetition: Repetition::Bare { opcode: bytes },
        };
        let moves = |opcode: Vec<u8>, words: usize| Self {
            operands: Vec::new(),
            repetition: Repetition::Moves { opcode, words },
        };
        let unit = match opcode {
            // Opcodes that end the frame: STOP, RETURN, REVERT, INVALID, SELFDESTRUCT.
            0x00 | 0xf3 | 0xfd | 0xfe | 0xff => {
                let zeros = [PUSH1, 0].repeat(info.input);
                let code = [zeros.as_slice(), &one].concat();
                // INVALID takes all gas given; of the others SELFDESTRUCT costs most.
                let gas = if opcode == 0xfe { 10 } else { MAX_CALL_GAS };
                let at = ending(opcode);
                return Some((Self::call(0xf1, word(gas), at), Some((at, code.into()))));
            }
            0x56 | 0x57 => Self {
                operands: Vec::new(),
                repetition: Repetition::Jump { opcode },
            },
            0x5b => bare(one),
            0x60..=0x7f => {
                let operand = vec![0xa5; info.immediate];
                bare([one, operand, vec![POP]].concat())
            }
            0x80..=0x8f => bare(vec![opcode, POP]),
            0x90..=0x9f => moves(one, usize::from(opcode - 0x90) + 2),
            // DUPN, SWAPN and EXCHANGE, with operands of depth 17 or less.
            0xe6 => bare(vec![opcode, 0x80, POP]),
            0xe7 => moves(vec![opcode, 0x80], 18),
            0xe8 => moves(vec![opcode, 0x9d], 4),
            0xf1 | 0xf2 | 0xf4 | 0xfa => Self::call(opcode, word(20_000), NOTHING),
            // A salt that is not repeated.
            0xf5 => bare(vec![GAS, PUSH1, 0, PUSH1, 0, PUSH1, 0, opcode, POP]),
            _ if info.input == 0 => bare([one, vec![POP; info.output]].concat()),
            _ => match operands(opcode, info.input) {
                Operands::Chained(operands) => Self {
                    operands,
                    repetition: Repetition::Chain { opcode },
                },
                Operands::Copied(operands) => copies(operands),
            },
        };
        Some((unit, None))
    }

    /// A call of `to` by `opcode`, with no value and no data.
    fn call(opcode: u8, gas: U256, to: Address) -> Self {
        let value = matches!(opcode, 0xf1 | 0xf2).then_some(U256::ZERO);
        let operands = [gas, address_word(to)].into_iter().chain(value);
        Self {
            operands: operands.chain([U256::ZERO; 4]).collect(),
            repetition: Repetition::Copies {
                opcode: vec![opcode],
                results: 1,
            },
        }
    }

    /// Appends the unit to the program. `above` operands of other units are above its own; `alone` if there is no other
    /// unit.
    fn write(&self, out: &mut Vec<u8>, above: usize, alone: bool) {
        let copies = |out: &mut Vec<u8>, count: usize, depth: usize| {
            let depth = u8::try_from(depth - 1).expect("within reach of DUP16");
            out.extend(std::iter::repeat_n(DUP1 + depth, count));
        };
        let count = self.operands.len();
        match &self.repetition {
            Repetition::Copies { opcode, results } => {
                if count > 0 {
                    copies(out, count, count + above);
                }
                out.extend_from_slice(opcode);
                out.extend(std::iter::repeat_n(POP, *results));
            }
            Repetition::Chain { opcode } if above == 0 => {
                if count > 1 {
                    copies(out, count - 1, count);
                }
                out.push(*opcode);
            }
            Repetition::Chain { opcode } => {
                copies(out, count, count + above);
                out.extend_from_slice(&[*opcode, POP]);
            }
            Repetition::Bare { opcode } => out.extend_from_slice(opcode),
            Repetition::Moves { opcode, .. } if alone => out.extend_from_slice(opcode),
            Repetition::Moves { opcode, words } => {
                out.extend([PUSH1, 1].repeat(*words));
                out.extend_from_slice(opcode);
                out.extend(std::iter::repeat_n(POP, *words));
            }
            Repetition::Jump { opcode } => {
                if *opcode == JUMPI {
                    out.extend_from_slice(&[PUSH1, 1]);
                }
                let target = u16::try_from(out.len() + 4).expect("within a contract");
                out.push(PUSH1 + 1);
                out.extend_from_slice(&target.to_be_bytes());
                out.extend_from_slice(&[*opcode, JUMPDEST]);
            }
        }
    }
}

enum Operands {
    Chained(Vec<U256>),
    Copied(Vec<U256>),
}

/// Operands for an opcode that pops `count` words, such that it does its full work.
fn operands(opcode: u8, count: usize) -> Operands {
    let contract = address_word(NOTHING);
    let numbers = |values: &[u64]| values.iter().copied().map(word).collect();
    Operands::Copied(match opcode {
        // ADD, MUL, SUB, comparisons, bitwise opcodes: the result can be the next operand.
        0x01..=0x03 | 0x10..=0x19 => {
            return Operands::Chained([1, 3].into_iter().take(count).map(wide).collect());
        }
        // A power of an odd number by a number of 32 bytes.
        0x0a => return Operands::Chained(vec![wide(2), wide(9)]),
        // DIV, SDIV, MOD, SMOD: 256 bits by 192.
        0x04..=0x07 => vec![wide(1), wide(5) >> 64],
        0x08 | 0x09 => vec![wide(1), wide(5), wide(9) >> 1],
        0x0b | 0x1a => vec![word(3), wide(1)],
        // Shifts, and CLZ.
        0x1b..=0x1d => vec![word(67), wide(1)],
        0x1e => vec![wide(1) >> 70],
        0x31 | 0x3b | 0x3f => vec![contract],
        0x3c => vec![contract, U256::ZERO, U256::ZERO, word(32)],
        // Copies of 32 bytes.
        0x37 | 0x39 | 0x3e | 0x5e => numbers(&[0, 0, 32]),
        // BLOCKHASH of the block before.
        0x40 => numbers(&[super::NUMBER - 1]),
        0x20 => numbers(&[0, 32]),
        0x51 | 0x35 => numbers(&[32]),
        0x52 | 0x53 => vec![word(32), wide(1)],
        0x54 | 0x5c => numbers(&[1]),
        0x55 | 0x5d => numbers(&[1, 2]),
        0xa0..=0xa4 => [word(0), word(32)]
            .into_iter()
            .chain((0..4).map(wide))
            .take(count)
            .collect(),
        0xf0 => numbers(&[0, 0, 0]),
        _ => vec![U256::ZERO; count],
    })
}

impl Program {
    /// The program of alternating `opcodes`, of about `size` bytes; `None` if `table` lacks one of them.
    pub(super) fn of(table: &Table, opcodes: &[u8], size: usize) -> Option<Self> {
        let mut units = Vec::new();
        let mut contracts = vec![
            (NOTHING, Bytes::from_static(&[STOP; 64])),
            (
                RETURNING,
                Bytes::from_static(&[PUSH1, 64, PUSH1, 0, RETURN]),
            ),
        ];
        let mut names = Vec::new();
        for opcode in opcodes {
            let (unit, contract) = Unit::of(table, *opcode)?;
            units.push(unit);
            contracts.extend(contract);
            names.push(table.mnemonic(*opcode)?);
        }
        let mut prologue = Vec::new();
        if table.info(STATICCALL).is_some() {
            // Return data for RETURNDATACOPY.
            (0..4).for_each(|_| push(&mut prologue, U256::ZERO));
            push(&mut prologue, address_word(RETURNING));
            prologue.extend_from_slice(&[GAS, STATICCALL, POP]);
        }
        for at in 0..DEEP {
            push(&mut prologue, word(at as u64));
        }
        for unit in &units {
            for operand in unit.operands.iter().rev() {
                push(&mut prologue, *operand);
            }
        }
        let mut program = Self {
            name: names.join(" "),
            prologue,
            units,
            count: 1,
            contracts,
        };
        let (one, two) = (program.body(1).len(), program.body(2).len());
        let left = size.saturating_sub(one + MAX_TAIL);
        program.count = 1 + left / (two - one).max(1);
        Some(program)
    }

    /// The program without its end, with `count` copies of the units.
    fn body(&self, count: usize) -> Vec<u8> {
        let mut out = self.prologue.clone();
        out.push(JUMPDEST);
        for _ in 0..count {
            let mut above: usize = self.units.iter().map(|unit| unit.operands.len()).sum();
            for unit in &self.units {
                above -= unit.operands.len();
                unit.write(&mut out, above, self.units.len() == 1);
            }
        }
        out
    }

    /// The code that runs the units `count` times and ends.
    pub(super) fn straight(&self, count: usize) -> Bytes {
        [self.body(count).as_slice(), &[STOP]].concat().into()
    }

    /// The code that loops over the units while there is more gas than `margin`.
    pub(super) fn looped(&self, margin: u64) -> Bytes {
        let mut out = self.body(self.count);
        push(&mut out, word(margin));
        out.extend_from_slice(&[GAS, GT]);
        push(&mut out, word(self.prologue.len() as u64));
        out.extend_from_slice(&[JUMPI, STOP]);
        out.into()
    }
}

/// Maximum bytes after the units.
const MAX_TAIL: usize = 24;
