//! The state after the transactions committed so far, for the workers.
//!
//! The commit thread appends each changed value to a log; each worker copies what is new before it executes a
//! transaction. So a worker's view is the state at some moment between two commits, or within one. Whatever it reads is
//! compared with the true value when its transaction is committed.

use super::append_log::AppendLog;
use niwaki_evm::{StateListener, World};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256, map::HashMap};
use std::cell::RefCell;

/// The parent state, and the log of what was committed on top of it.
pub(crate) struct CommittedState<'v> {
    parent: &'v (dyn StateView + Sync),
    changes: AppendLog<Change>,
}

#[derive(Clone)]
enum Change {
    Account(Address, Option<Account>),
    Slot(Address, U256, U256),
    Code(B256, Bytes),
}

impl<'v> CommittedState<'v> {
    /// For a block of so many `transactions`.
    pub(crate) fn new(parent: &'v (dyn StateView + Sync), transactions: usize) -> Self {
        const CHANGES_PER_TX: usize = 4;
        Self {
            parent,
            changes: AppendLog::with_capacity(transactions.saturating_mul(CHANGES_PER_TX)),
        }
    }
}

impl StateListener for CommittedState<'_> {
    fn on_account(&self, address: Address, account: Option<Account>) {
        self.changes.append(Change::Account(address, account));
    }

    fn on_slot(&self, address: Address, key: U256, value: U256) {
        self.changes.append(Change::Slot(address, key, value));
    }

    fn on_code(&self, hash: B256, code: Bytes) {
        self.changes.append(Change::Code(hash, code));
    }
}

/// One worker's copy of the committed state.
pub(super) struct LatestView<'r> {
    committed: &'r CommittedState<'r>,
    overlay: RefCell<Overlay>,
}

/// The changes that the worker has copied.
#[derive(Default)]
struct Overlay {
    changes: usize,
    accounts: HashMap<Address, Option<Account>>,
    slots: HashMap<(Address, U256), U256>,
    codes: HashMap<B256, Bytes>,
}

impl Overlay {
    fn apply(&mut self, change: Change, world: &mut World<'_>) {
        match change {
            Change::Account(address, account) => {
                self.accounts.insert(address, account);
                world.refresh_account(&address, account);
            }
            Change::Slot(address, key, value) => {
                self.slots.insert((address, key), value);
                world.refresh_slot(&address, key, value);
            }
            Change::Code(hash, code) => {
                self.codes.insert(hash, code);
            }
        }
    }
}

impl<'r> LatestView<'r> {
    pub(super) fn new(committed: &'r CommittedState<'r>) -> Self {
        Self {
            committed,
            overlay: RefCell::default(),
        }
    }

    /// Copies what was committed since the last call, and refreshes it in the worker's `world`, which reads this view.
    pub(super) fn catch_up(&self, world: &mut World<'_>) {
        let mut overlay = self.overlay.borrow_mut();
        loop {
            let changes = self.committed.changes.since(overlay.changes);
            if changes.is_empty() {
                return;
            }
            overlay.changes = overlay.changes.saturating_add(changes.len());
            for change in changes {
                overlay.apply(change, world);
            }
        }
    }
}

impl StateView for LatestView<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        match self.overlay.borrow().accounts.get(address) {
            Some(account) => Ok(*account),
            None => self.committed.parent.account(address),
        }
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        match self.overlay.borrow().slots.get(&(*address, *slot)) {
            Some(value) => Ok(*value),
            None => self.committed.parent.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.committed.parent.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.overlay.borrow().codes.get(code_hash) {
            Some(code) => Ok(code.clone()),
            None => self.committed.parent.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.committed.parent.block_hash(number)
    }
}
