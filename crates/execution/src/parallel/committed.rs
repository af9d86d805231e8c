//! The state after those transactions of a block that are done, for those that run ahead.

use super::log::Log;
use niwaki_evm::{Publisher, World};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256, map::HashMap};
use std::cell::RefCell;

/// A parent state, and what has been published since, in its order.
pub(super) struct Committed<'v> {
    parent: &'v (dyn StateView + Sync),
    changes: Log<Change>,
}

#[derive(Clone)]
enum Change {
    Account(Address, Option<Account>),
    Slot(Address, U256, U256),
    Code(B256, Bytes),
}

impl<'v> Committed<'v> {
    /// Of so many `transactions`.
    pub(super) fn new(parent: &'v (dyn StateView + Sync), transactions: usize) -> Self {
        const CHANGES: usize = 4;
        Self {
            parent,
            changes: Log::with_capacity(transactions.saturating_mul(CHANGES)),
        }
    }
}

impl Publisher for Committed<'_> {
    fn account(&self, address: Address, account: Option<Account>) {
        self.changes.add(Change::Account(address, account));
    }

    fn slot(&self, address: Address, key: U256, value: U256) {
        self.changes.add(Change::Slot(address, key, value));
    }

    fn code(&self, hash: B256, code: Bytes) {
        self.changes.add(Change::Code(hash, code));
    }
}

/// The state as one thread knows it: that of a moment between two transactions, or within one. Whoever
/// reads it compares the values again when it is its turn.
pub(super) struct Following<'r> {
    committed: &'r Committed<'r>,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    changes: usize,
    accounts: HashMap<Address, Option<Account>>,
    slots: HashMap<(Address, U256), U256>,
    codes: HashMap<B256, Bytes>,
}

impl Known {
    fn take_in(&mut self, change: Change, world: &mut World<'_>) {
        match change {
            Change::Account(address, account) => {
                self.accounts.insert(address, account);
                world.learn_account(&address, account);
            }
            Change::Slot(address, key, value) => {
                self.slots.insert((address, key), value);
                world.learn_slot(&address, key, value);
            }
            Change::Code(hash, code) => {
                self.codes.insert(hash, code);
            }
        }
    }
}

impl<'r> Following<'r> {
    pub(super) fn new(committed: &'r Committed<'r>) -> Self {
        Self {
            committed,
            known: RefCell::default(),
        }
    }

    /// Takes in what has been published since it was asked last, and tells `world` of it, whose view this
    /// is.
    pub(super) fn catch_up(&self, world: &mut World<'_>) {
        let mut known = self.known.borrow_mut();
        loop {
            let changes = self.committed.changes.since(known.changes);
            if changes.is_empty() {
                return;
            }
            known.changes = known.changes.saturating_add(changes.len());
            for change in changes {
                known.take_in(change, world);
            }
        }
    }
}

impl StateView for Following<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        match self.known.borrow().accounts.get(address) {
            Some(account) => Ok(*account),
            None => self.committed.parent.account(address),
        }
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        match self.known.borrow().slots.get(&(*address, *slot)) {
            Some(value) => Ok(*value),
            None => self.committed.parent.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.committed.parent.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.known.borrow().codes.get(code_hash) {
            Some(code) => Ok(code.clone()),
            None => self.committed.parent.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.committed.parent.block_hash(number)
    }
}
