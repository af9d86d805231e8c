//! The accounts and slots that code looks at: what prestateTracer shows the state of.

use crate::tracer::{Entered, Left, Step, Tracer};
use niwaki_primitives::{Address, U256};
use std::collections::{BTreeMap, BTreeSet};

/// Keeps which accounts and slots code looks at. What a transaction looks at before any code runs (sender,
/// target, coinbase, signers) is added by [`Touched::account`].
#[derive(Debug, Default)]
pub struct Touched {
    /// The accounts with their slots.
    pub accounts: BTreeMap<Address, BTreeSet<U256>>,
    /// Those that code has called; whose code runs for them is looked at too (EIP-7702).
    pub called: BTreeSet<Address>,
    /// What the opcode that runs looks at. One that fails has looked at nothing.
    pending: Option<Look>,
}

/// What one opcode looks at.
#[derive(Clone, Copy, Debug)]
enum Look {
    Slot(Address, U256),
    Account(Address),
    Callee(Address),
}

impl Touched {
    /// Adds an account.
    pub fn account(&mut self, address: Address) {
        self.accounts.entry(address).or_default();
    }
}

impl Touched {
    /// The opcode at hand has not failed.
    fn settle(&mut self) {
        match self.pending.take() {
            None => {}
            Some(Look::Slot(address, slot)) => {
                self.accounts.entry(address).or_default().insert(slot);
            }
            Some(Look::Account(address)) => self.account(address),
            Some(Look::Callee(address)) => {
                self.account(address);
                self.called.insert(address);
            }
        }
    }
}

impl Tracer for Touched {
    fn step(&mut self, step: &Step<'_>) {
        self.settle();
        self.pending = look(step);
    }

    /// A call, a creation or the end of a contract that begins has been paid for.
    fn enter(&mut self, _: &Entered<'_>) {
        self.settle();
    }

    /// An opcode that looks at something ends a frame only by failing.
    fn leave(&mut self, _: &Left<'_>) {
        self.pending = None;
    }
}

/// What the opcode that is about to run looks at.
fn look(step: &Step<'_>) -> Option<Look> {
    let word = |word: U256| Address::from_word(word.into());
    match (step.opcode(), step.peek(0), step.peek(1)) {
        // SLOAD, SSTORE.
        (0x54 | 0x55, Some(slot), _) => Some(Look::Slot(step.address(), slot)),
        // BALANCE, EXTCODESIZE, EXTCODECOPY, EXTCODEHASH, SELFDESTRUCT.
        (0x31 | 0x3b | 0x3c | 0x3f | 0xff, Some(address), _) => Some(Look::Account(word(address))),
        // CALL, CALLCODE, DELEGATECALL, STATICCALL.
        (0xf1 | 0xf2 | 0xf4 | 0xfa, _, Some(address)) if step.stack_len() >= 5 => {
            Some(Look::Callee(word(address)))
        }
        (0xf0, Some(_), Some(_)) => Some(Look::Account(step.address().create(step.nonce()))),
        (0xf5, Some(_), Some(offset)) if step.stack_len() >= 4 => {
            let words = (step.peek(2), step.peek(3));
            let init_code = init_code(step, offset, words.0)?;
            let salt = words.1.unwrap_or_default().to_be_bytes::<32>();
            let created = step.address().create2_from_code(salt, init_code);
            Some(Look::Account(created))
        }
        _ => None,
    }
}

/// The init code of CREATE2, with the zeros that memory will be extended by.
fn init_code(step: &Step<'_>, offset: U256, length: Option<U256>) -> Option<Vec<u8>> {
    /// Beyond it the opcode fails.
    const MOST: usize = 1 << 20;
    let length = usize::try_from(length?)
        .ok()
        .filter(|length| *length <= MOST)?;
    let mut code = vec![0; length];
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let there = step.memory().get(offset..).unwrap_or_default();
    let there = there.get(..length).unwrap_or(there);
    code[..there.len()].copy_from_slice(there);
    Some(code)
}
