//! What an opcode costs in full, told before it runs: traces show it of an opcode that fails.
//!
//! An opcode body stops charging where gas runs out, so what it has taken by then is no price.
//! go-ethereum computes the whole dynamic price first and compares it with what is left; its
//! structLogs and EIP-3155 lines show that sum. The figure here is the same one, and so are the cases
//! in which go-ethereum gives up earlier and shows the constant part only: the stack is too short,
//! the constant part can't be paid, memory beyond 2^37 bytes, a write in a static call, SSTORE at or
//! below its sentry, a call that can't pay before it knows what its callee gets.
//!
//! Besu gives up elsewhere: see [`CostOrder`].
//!
//! The loop form of the interpreter asks for it when a tracer is told of opcodes. Nothing here
//! changes the machine.

use crate::{
    frame::Frame,
    gas::{Sstore as Rule, WARM_ACCESS},
    ops::storage::{legacy_price, net_price},
    table::Table,
    word::Word,
    world::World,
};
use niwaki_primitives::{Address, Fork, U256};

const EXP: u8 = 0x0a;
const KECCAK256: u8 = 0x20;
const EXTCODESIZE: u8 = 0x3b;
const EXTCODECOPY: u8 = 0x3c;
const MLOAD: u8 = 0x51;
const MSTORE: u8 = 0x52;
const MSTORE8: u8 = 0x53;
const SLOAD: u8 = 0x54;
const SSTORE: u8 = 0x55;
const MCOPY: u8 = 0x5e;
const LOG0: u8 = 0xa0;
const LOG4: u8 = 0xa4;
const CREATE: u8 = 0xf0;
const CALL: u8 = 0xf1;
const CALLCODE: u8 = 0xf2;
const RETURN: u8 = 0xf3;
const CREATE2: u8 = 0xf5;
const STATICCALL: u8 = 0xfa;
const REVERT: u8 = 0xfd;
const SELFDESTRUCT: u8 = 0xff;

/// Per word that is copied, and per word that is hashed.
const COPY_WORD: i64 = 3;
const HASH_WORD: i64 = 6;
/// Per byte of a log.
const LOG_BYTE: i64 = 8;
/// The longest memory whose price go-ethereum computes, bytes.
const MOST_MEMORY: u64 = 0x1f_ffff_ffe0;

/// In whose order the price of an opcode is added up, which shows where gas runs out on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostOrder {
    /// go-ethereum's: the constant part; then all of the rest, or none of it where a part of it that comes
    /// before a look at the state can't be paid.
    #[default]
    Geth,
    /// Besu's: what needs no look at the state, the constant part and the price of the cold account
    /// included; then what it finds there.
    Besu,
}

/// An opcode that is about to run.
struct Priced<'f> {
    frame: &'f Frame,
    table: &'f Table,
    world: &'f World<'static>,
    opcode: u8,
    order: CostOrder,
    /// The part that does not depend on operands, as go-ethereum divides it.
    constant: i64,
}

/// What the opcode at which `frame` stands costs; `None` for an opcode of a host's own.
///
/// # Safety
/// The frame, its code, stack and shared state must be alive, and nothing may write to them meanwhile.
pub(crate) unsafe fn full_cost(frame: &Frame, table: &Table, order: CostOrder) -> Option<i64> {
    // SAFETY: `ip` points into padded code.
    let opcode = unsafe { *frame.ip };
    if table.is_overridden(opcode) {
        return None;
    }
    if !is_dynamic(opcode) {
        return Some(table.static_gas(opcode));
    }
    let meta = table.meta(opcode)?;
    let priced = Priced {
        frame,
        table,
        // SAFETY: as the caller promises.
        world: unsafe { &(*frame.shared).world },
        opcode,
        order,
        constant: constant_part(opcode, table),
    };
    let goes_on = order == CostOrder::Besu || frame.gas >= priced.constant;
    let is_priced = frame.stack_len() >= meta.input && goes_on;
    let dynamic = is_priced.then(|| priced.dynamic()).flatten();
    Some(priced.constant.saturating_add(dynamic.unwrap_or(0)))
}

/// Whether the price depends on more than the opcode.
const fn is_dynamic(opcode: u8) -> bool {
    matches!(
        opcode,
        EXP | KECCAK256
            | 0x31
            | 0x37
            | 0x39
            | EXTCODESIZE..=0x3c
            | 0x3e
            | 0x3f
            | MLOAD..=SSTORE
            | MCOPY
            | LOG0..=LOG4
            | CREATE..=CREATE2
            | STATICCALL
            | REVERT
            | SELFDESTRUCT
    )
}

/// The part of the price that go-ethereum takes first: all of the static gas, but for opcodes whose
/// static gas it counts to the dynamic part.
fn constant_part(opcode: u8, table: &Table) -> i64 {
    let fork = table.fork();
    match opcode {
        EXP | LOG0..=LOG4 => 0,
        SLOAD if fork >= Fork::Berlin => 0,
        SELFDESTRUCT if fork < Fork::Berlin => 0,
        EXTCODESIZE | EXTCODECOPY if fork >= Fork::Amsterdam => WARM_ACCESS,
        _ => table.static_gas(opcode),
    }
}

impl Priced<'_> {
    /// The word `depth` below the top, of which there are enough.
    fn word(&self, depth: usize) -> Word {
        // SAFETY: the stack holds the opcode's operands.
        unsafe { *self.frame.sp.sub(depth + 1) }
    }

    fn number(&self, depth: usize) -> U256 {
        self.word(depth).to_u256()
    }

    /// The dynamic part; `None` where go-ethereum gives up before it has one.
    fn dynamic(&self) -> Option<i64> {
        let rest = self.table.static_gas(self.opcode) - self.constant;
        Some(rest.saturating_add(match self.opcode {
            EXP => self.exp(),
            KECCAK256 => self.memory(&[(0, 1)])? + HASH_WORD * self.words(1)?,
            0x37 | 0x39 | 0x3e => self.memory(&[(0, 2)])? + COPY_WORD * self.words(2)?,
            EXTCODECOPY => {
                let copy = self.memory(&[(1, 3)])? + COPY_WORD * self.words(3)?;
                copy + self.cold_account(self.word(0).to_address())
            }
            0x31 | EXTCODESIZE | 0x3f => self.cold_account(self.word(0).to_address()),
            MLOAD | MSTORE => self.expansion(u64::try_from(self.number(0)).ok()?, 32)?,
            MSTORE8 => self.expansion(u64::try_from(self.number(0)).ok()?, 1)?,
            SLOAD => self.cold_slot(self.table.schedule().cold_slot),
            SSTORE => self.store()?,
            MCOPY => self.mcopy()?,
            LOG0..=LOG4 => {
                let bytes = i64::try_from(self.number(1)).ok()?;
                self.memory(&[(0, 1)])? + LOG_BYTE.checked_mul(bytes)?
            }
            CREATE | CREATE2 => self.creation()?,
            RETURN | REVERT => self.memory(&[(0, 1)])?,
            SELFDESTRUCT => self.destruction()?,
            _ => self.call()?,
        }))
    }

    fn exp(&self) -> i64 {
        let bytes = self.number(1).bit_len().div_ceil(8);
        self.table.schedule().exp_byte * i64::try_from(bytes).unwrap_or(0)
    }

    /// Words that the bytes at `depth` take.
    fn words(&self, depth: usize) -> Option<i64> {
        let bytes = u64::try_from(self.number(depth)).ok()?;
        i64::try_from(bytes.div_ceil(32)).ok()
    }

    /// The price of memory that holds `length` bytes from `offset`.
    fn expansion(&self, offset: u64, length: u64) -> Option<i64> {
        let end = offset.checked_add(length)?;
        if length == 0 || end <= self.frame.memory_len as u64 {
            return Some(0);
        }
        if end > MOST_MEMORY {
            return None;
        }
        let words = i64::try_from(end.div_ceil(32)).ok()?;
        Some(3 * words + words * words / 512 - self.frame.memory_cost)
    }

    /// The price of memory that holds all ranges, whose offsets and lengths lie at these depths.
    fn memory(&self, ranges: &[(usize, usize)]) -> Option<i64> {
        let mut most = 0;
        for (offset, length) in ranges {
            if self.number(*length).is_zero() {
                continue;
            }
            let length = u64::try_from(self.number(*length)).ok()?;
            let offset = u64::try_from(self.number(*offset)).ok()?;
            most = most.max(self.expansion(offset, length)?);
        }
        Some(most)
    }

    fn mcopy(&self) -> Option<i64> {
        let farther = usize::from(self.number(1) > self.number(0));
        Some(self.memory(&[(farther, 2)])? + COPY_WORD * self.words(2)?)
    }

    fn cold_account(&self, address: Address) -> i64 {
        match self.world.is_cold(&address) {
            true => self.table.schedule().cold_account,
            false => 0,
        }
    }

    fn cold_slot(&self, price: i64) -> i64 {
        match self.world.is_slot_cold(self.frame.account, &self.number(0)) {
            true => price,
            false => 0,
        }
    }

    fn store(&self) -> Option<i64> {
        let prices = self.table.schedule();
        if self.frame.is_static {
            return None;
        }
        if self.frame.gas <= prices.sstore_sentry {
            return (self.order == CostOrder::Besu).then_some(prices.sstore_sentry);
        }
        let cold = self.cold_slot(prices.sstore_cold);
        if prices.has_state_gas() && self.frame.gas < cold + prices.sstore_noop {
            return None;
        }
        let (key, new) = (self.number(0), self.number(1));
        let (original, current) = self.world.peek_slot(self.frame.account, &key).ok()?;
        let (price, _) = match prices.sstore {
            Rule::Legacy => legacy_price(prices, current, new),
            Rule::Net => net_price(prices, original, current, new),
        };
        Some(cold + price)
    }

    fn creation(&self) -> Option<i64> {
        let prices = self.table.schedule();
        let memory = self.memory(&[(1, 2)])?;
        let length = u64::try_from(self.number(2)).ok()?;
        if self.frame.is_static || length > prices.max_init_code_bytes as u64 {
            return None;
        }
        let hash = match self.opcode {
            CREATE2 => HASH_WORD,
            _ => 0,
        };
        Some(memory + (prices.init_code_word + hash) * self.words(2)?)
    }

    fn destruction(&self) -> Option<i64> {
        let prices = self.table.schedule();
        if self.frame.is_static {
            return None;
        }
        let beneficiary = self.word(0).to_address();
        let cold = match self.world.is_cold(&beneficiary) {
            true => prices.selfdestruct_cold,
            false => 0,
        };
        let left = self.frame.gas - self.constant;
        match self.order {
            CostOrder::Geth if left < cold => return prices.has_state_gas().then_some(cold),
            CostOrder::Besu if self.frame.gas < self.table.static_gas(self.opcode) + cold => {
                return Some(cold);
            }
            _ => {}
        }
        let moves = !self.world.has_nothing(self.frame.account);
        Some(match self.creates(&beneficiary, moves)? {
            true => cold + prices.selfdestruct_new_account,
            false => cold,
        })
    }

    /// Whether the account at `address` comes into being by a CALL that moves ether or not.
    fn creates(&self, address: &Address, moves: bool) -> Option<bool> {
        let (exists, is_empty) = self.world.peek_account(address).ok()?;
        Some(match self.table.schedule().clears_empty {
            true => moves && is_empty,
            false => !exists,
        })
    }

    /// The dynamic part of a call.
    fn call(&self) -> Option<i64> {
        let has_value = matches!(self.opcode, CALL | CALLCODE);
        let moves = has_value && !self.number(2).is_zero();
        if self.opcode == CALL && moves && self.frame.is_static {
            return None;
        }
        let address = self.word(1).to_address();
        let at = if has_value { 3 } else { 2 };
        let mut asked = self.memory(&[(at, at + 1), (at + 2, at + 3)])?;
        if moves {
            asked += self.table.schedule().call_value;
        }
        let cold = self.cold_account(address);
        match self.order {
            CostOrder::Geth => self.call_as_geth(&address, moves, (cold, asked)),
            CostOrder::Besu => self.call_as_besu(&address, moves, cold + asked),
        }
    }

    /// A call that can pay what is asked before its callee's gas is known fails no more from EIP-150 on,
    /// since the callee gets what is left at most; and from EIP-7702 on one that can't has no price.
    fn call_as_geth(
        &self,
        address: &Address,
        moves: bool,
        (cold, mut asked): (i64, i64),
    ) -> Option<i64> {
        let prices = self.table.schedule();
        let left = self.frame.gas - self.constant - cold;
        if prices.delegates || left < 0 || self.opcode == CALL && left < asked {
            return None;
        }
        if self.opcode == CALL && self.creates(address, moves)? {
            asked += prices.call_new_account;
        }
        let wanted = i64::try_from(self.number(0));
        let most = left.saturating_sub(asked);
        let given = match (wanted, prices.all_but_one_64th && most >= 0) {
            (Ok(wanted), true) => wanted.min(most - most / 64),
            (Err(_), true) => most - most / 64,
            (Ok(wanted), false) => wanted,
            (Err(_), false) => return None,
        };
        Some(cold.saturating_add(asked).saturating_add(given))
    }

    /// The gas of the callee is no cost from EIP-150 on.
    fn call_as_besu(&self, address: &Address, moves: bool, asked: i64) -> Option<i64> {
        let prices = self.table.schedule();
        let given = match prices.all_but_one_64th {
            true => 0,
            false => i64::try_from(self.number(0)).unwrap_or(i64::MAX),
        };
        let mut asked = asked.saturating_add(given);
        let left = self.frame.gas - self.constant;
        if left < asked {
            return Some(asked);
        }
        if self.opcode == CALL && self.creates(address, moves)? {
            asked = asked.saturating_add(prices.call_new_account);
        }
        if left < asked || !prices.delegates {
            return Some(asked);
        }
        let delegate = self.world.peek_delegate(address).ok()?;
        Some(match delegate {
            Some(delegate) => asked + WARM_ACCESS + self.cold_account(delegate),
            None => asked,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_with_a_body_that_charges_are_dynamic() {
        let table = Table::of(Fork::Amsterdam);
        let dynamic: Vec<&str> = (0..=u8::MAX)
            .filter(|opcode| is_dynamic(*opcode))
            .map(|opcode| table.mnemonic(opcode).expect("an opcode of the fork"))
            .collect();
        let wanted = "EXP KECCAK256 BALANCE CALLDATACOPY CODECOPY EXTCODESIZE EXTCODECOPY \
                      RETURNDATACOPY EXTCODEHASH MLOAD MSTORE MSTORE8 SLOAD SSTORE MCOPY LOG0 LOG1 \
                      LOG2 LOG3 LOG4 CREATE CALL CALLCODE RETURN DELEGATECALL CREATE2 STATICCALL \
                      REVERT SELFDESTRUCT";
        assert_eq!(dynamic.join(" "), wanted);
    }
}
