//! The accounts and slots that code accesses, whose state prestateTracer shows.

use crate::tracer::{CallEnd, CallStart, Step, Tracer};
use niwaki_primitives::{Address, U256};
use std::collections::{BTreeMap, BTreeSet};

/// Records which accounts and slots code accesses. The caller adds those that a transaction accesses before any code
/// runs (sender, target, coinbase, signers) by [`PrestateTracer::account`].
#[derive(Debug, Default)]
pub struct PrestateTracer {
    /// The accounts with their slots.
    pub accounts: BTreeMap<Address, BTreeSet<U256>>,
    /// Those that code has called; the accounts that they delegate to are accessed too (EIP-7702).
    pub called: BTreeSet<Address>,
    /// The access of the running opcode, which counts only if the opcode does not fail.
    pending: Option<Access>,
}

/// The access of one opcode.
#[derive(Clone, Copy, Debug)]
enum Access {
    Slot(Address, U256),
    Account(Address),
    Callee(Address),
}

impl PrestateTracer {
    /// Adds an account.
    pub fn account(&mut self, address: Address) {
        self.accounts.entry(address).or_default();
    }

    /// Records the pending access: the opcode has not failed.
    fn settle(&mut self) {
        match self.pending.take() {
            None => {}
            Some(Access::Slot(address, slot)) => {
                self.accounts.entry(address).or_default().insert(slot);
            }
            Some(Access::Account(address)) => self.account(address),
            Some(Access::Callee(address)) => {
                self.account(address);
                self.called.insert(address);
            }
        }
    }
}

impl Tracer for PrestateTracer {
    fn step(&mut self, step: &Step<'_>) {
        self.settle();
        self.pending = access_of(step);
    }

    /// A call, creation or SELFDESTRUCT that begins has been paid for.
    fn enter(&mut self, _: &CallStart<'_>) {
        self.settle();
    }

    /// An opcode with a pending access ends a frame only by failing.
    fn exit(&mut self, _: &CallEnd<'_>) {
        self.pending = None;
    }
}

/// The access of the opcode that is about to run.
fn access_of(step: &Step<'_>) -> Option<Access> {
    let word = |word: U256| Address::from_word(word.into());
    match (step.opcode(), step.peek(0), step.peek(1)) {
        // SLOAD, SSTORE.
        (0x54 | 0x55, Some(slot), _) => Some(Access::Slot(step.address(), slot)),
        // BALANCE, EXTCODESIZE, EXTCODECOPY, EXTCODEHASH, SELFDESTRUCT.
        (0x31 | 0x3b | 0x3c | 0x3f | 0xff, Some(address), _) => {
            Some(Access::Account(word(address)))
        }
        // CALL, CALLCODE, DELEGATECALL, STATICCALL.
        (0xf1 | 0xf2 | 0xf4 | 0xfa, _, Some(address)) if step.stack_len() >= 5 => {
            Some(Access::Callee(word(address)))
        }
        (0xf0, Some(_), Some(_)) => Some(Access::Account(step.address().create(step.nonce()))),
        (0xf5, Some(_), Some(offset)) if step.stack_len() >= 4 => {
            let words = (step.peek(2), step.peek(3));
            let init_code = init_code(step, offset, words.0)?;
            let salt = words.1.unwrap_or_default().to_be_bytes::<32>();
            let created = step.address().create2_from_code(salt, init_code);
            Some(Access::Account(created))
        }
        _ => None,
    }
}

/// The init code of CREATE2, zero-extended as memory will be.
fn init_code(step: &Step<'_>, offset: U256, length: Option<U256>) -> Option<Vec<u8>> {
    /// Above any fork's limit, bytes.
    const LIMIT: usize = 1 << 20;
    let length = usize::try_from(length?)
        .ok()
        .filter(|length| *length <= LIMIT)?;
    let mut code = vec![0; length];
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let there = step.memory().get(offset..).unwrap_or_default();
    let there = there.get(..length).unwrap_or(there);
    code[..there.len()].copy_from_slice(there);
    Some(code)
}
