//! The full price of an opcode, computed before it runs: traces show it for an opcode that fails.
//!
//! An opcode body stops charging when gas runs out, so what it has charged by then is not its price. go-ethereum
//! computes the whole dynamic price before it compares it with the gas left, and its structLogs and EIP-3155 lines show
//! that sum. This module gives the same sum. It also stops where go-ethereum stops earlier and shows only the constant
//! part: the stack is too short, the gas does not cover the constant part, memory beyond 2^37 bytes, a write in a
//! static call, SSTORE at or below its sentry, a call whose gas ends before the callee's share is known. Besu stops
//! elsewhere: see [`CostOrder`].
//!
//! Only the traced loop of the interpreter calls it. It changes nothing in the world.

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
/// The largest memory whose price go-ethereum computes, bytes.
const MAX_MEMORY: u64 = 0x1f_ffff_ffe0;

/// The client in whose order the price of an opcode is added up, which shows if gas runs out between the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CostOrder {
    /// go-ethereum's: the constant part; then all of the rest, or none of it if the gas does not cover a part that is
    /// charged before a state access.
    #[default]
    Geth,
    /// Besu's: all that needs no state access, including the constant part and the price of a cold account; then what
    /// depends on the state.
    Besu,
}

/// An opcode that is about to run.
struct PricedOpcode<'f> {
    frame: &'f Frame,
    table: &'f Table,
    world: &'f World<'static>,
    opcode: u8,
    order: CostOrder,
    /// The part that go-ethereum counts as constant.
    constant: i64,
}

/// The full price of the opcode at `ip`; `None` for a host opcode.
///
/// # Safety
/// The frame, its code, stack and shared state must be alive, and nothing may write to them during the call.
pub(crate) unsafe fn full_cost(frame: &Frame, table: &Table, order: CostOrder) -> Option<i64> {
    // SAFETY: `ip` points into padded code.
    let opcode = unsafe { *frame.ip };
    if table.overrides.contains(opcode) {
        return None;
    }
    if !is_dynamic(opcode) {
        return Some(table.static_gas(opcode));
    }
    let info = table.info(opcode)?;
    let priced = PricedOpcode {
        frame,
        table,
        // SAFETY: as the caller promises.
        world: unsafe { &(*frame.shared).world },
        opcode,
        order,
        constant: constant_part(opcode, table),
    };
    let covers_constant = order == CostOrder::Besu || frame.gas >= priced.constant;
    let is_priced = frame.stack_len() >= info.input && covers_constant;
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

/// The part of the price that go-ethereum charges first: the static gas, except of opcodes whose static gas it counts
/// as dynamic.
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

impl PricedOpcode<'_> {
    /// The word `depth` below the top; the stack holds the opcode's operands.
    fn word(&self, depth: usize) -> Word {
        // SAFETY: the stack holds the opcode's operands.
        unsafe { *self.frame.sp.sub(depth + 1) }
    }

    fn number(&self, depth: usize) -> U256 {
        self.word(depth).to_u256()
    }

    /// The dynamic part; `None` where go-ethereum fails before it has computed one.
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

    /// Words for as many bytes as the word at `depth` says.
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
        if end > MAX_MEMORY {
            return None;
        }
        // Less than 2^32 of them: their square has at most 64 bits.
        let words = end.div_ceil(32);
        let price = i64::try_from(3 * words + words * words / 512).ok()?;
        Some(price - self.frame.memory_cost)
    }

    /// The price of memory that holds all ranges, given by the depths of their offsets and lengths.
    fn memory(&self, ranges: &[(usize, usize)]) -> Option<i64> {
        let mut price = 0;
        for (offset, length) in ranges {
            if self.number(*length).is_zero() {
                continue;
            }
            let length = u64::try_from(self.number(*length)).ok()?;
            let offset = u64::try_from(self.number(*offset)).ok()?;
            price = price.max(self.expansion(offset, length)?);
        }
        Some(price)
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
        let moves = !self.world.has_zero_balance(self.frame.account);
        Some(match self.creates(&beneficiary, moves)? {
            true => cold + prices.selfdestruct_new_account,
            false => cold,
        })
    }

    /// Whether a CALL creates the account at `address`; `moves` says whether it transfers ether.
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
        let mut extra = self.memory(&[(at, at + 1), (at + 2, at + 3)])?;
        if moves {
            extra += self.table.schedule().call_value;
        }
        let cold = self.cold_account(address);
        match self.order {
            CostOrder::Geth => self.call_as_geth(&address, moves, cold, extra),
            CostOrder::Besu => self.call_as_besu(&address, moves, cold + extra),
        }
    }

    /// From EIP-150 on, a call that covers what is charged before the callee's share can't fail, since the callee gets
    /// at most what is left; from EIP-7702 on, a call that does not cover it has no price.
    fn call_as_geth(
        &self,
        address: &Address,
        moves: bool,
        cold: i64,
        mut extra: i64,
    ) -> Option<i64> {
        let prices = self.table.schedule();
        let left = self.frame.gas - self.constant - cold;
        if prices.delegates || left < 0 || self.opcode == CALL && left < extra {
            return None;
        }
        if self.opcode == CALL && self.creates(address, moves)? {
            extra += prices.call_new_account;
        }
        let requested = i64::try_from(self.number(0));
        let available = left.saturating_sub(extra);
        let given = match (requested, prices.all_but_one_64th && available >= 0) {
            (Ok(requested), true) => requested.min(available - available / 64),
            (Err(_), true) => available - available / 64,
            (Ok(requested), false) => requested,
            (Err(_), false) => return None,
        };
        Some(cold.saturating_add(extra).saturating_add(given))
    }

    /// From EIP-150 on, the callee's gas is not part of the price.
    fn call_as_besu(&self, address: &Address, moves: bool, extra: i64) -> Option<i64> {
        let prices = self.table.schedule();
        let given = match prices.all_but_one_64th {
            true => 0,
            false => i64::try_from(self.number(0)).unwrap_or(i64::MAX),
        };
        let mut extra = extra.saturating_add(given);
        let left = self.frame.gas - self.constant;
        if left < extra {
            return Some(extra);
        }
        if self.opcode == CALL && self.creates(address, moves)? {
            extra = extra.saturating_add(prices.call_new_account);
        }
        if left < extra || !prices.delegates {
            return Some(extra);
        }
        let delegate = self.world.peek_delegate(address).ok()?;
        Some(match delegate {
            Some(delegate) => extra + WARM_ACCESS + self.cold_account(delegate),
            None => extra,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_whose_body_charges_are_the_29_dynamic_ones() {
        let table = Table::of(Fork::Amsterdam);
        let dynamic: Vec<&str> = (0..=u8::MAX)
            .filter(|opcode| is_dynamic(*opcode))
            .map(|opcode| table.mnemonic(opcode).expect("an opcode of the fork"))
            .collect();
        let expected = "EXP KECCAK256 BALANCE CALLDATACOPY CODECOPY EXTCODESIZE EXTCODECOPY \
                      RETURNDATACOPY EXTCODEHASH MLOAD MSTORE MSTORE8 SLOAD SSTORE MCOPY LOG0 LOG1 \
                      LOG2 LOG3 LOG4 CREATE CALL CALLCODE RETURN DELEGATECALL CREATE2 STATICCALL \
                      REVERT SELFDESTRUCT";
        assert_eq!(dynamic.join(" "), expected);
    }
}
