//! Notifies a listener of the values that each transaction has written, when it ends. Workers that run later
//! transactions speculatively read them as the latest state.

use super::{AccountId, SlotId, World, journal::JournalEntry};
use niwaki_primitives::{Account, Address, B256, Bytes, U256};

/// Listens to the values that a transaction has written.
///
/// Balance and nonce of an account that has no code and existed before the block are left out: a speculative execution
/// assumes the nonce and writes the balance as a difference.
pub trait StateListener: Sync {
    /// The new value of an account.
    fn on_account(&self, address: Address, account: Option<Account>);

    /// The new value of a slot.
    fn on_slot(&self, address: Address, key: U256, value: U256);

    /// A code that an account has got.
    fn on_code(&self, hash: B256, code: Bytes);
}

/// Ids of the accounts and slots that a transaction has written.
#[derive(Default)]
pub(super) struct Changed {
    accounts: Vec<AccountId>,
    /// Accounts that got another code, or were destroyed.
    recoded: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl<'v> World<'v> {
    /// Notifies `listener` of all differences from the parent state now, and of the writes of each later transaction
    /// when it ends.
    pub fn subscribe(&mut self, listener: &'v dyn StateListener) {
        self.listener = Some(listener);
        let mut changed = Changed::default();
        for (id, record) in (0..).map(AccountId).zip(&self.accounts) {
            if record.parent != record.exists.then_some(record.current) {
                changed.accounts.push(id);
                let before = record.parent.unwrap_or_default();
                if record.is_wiped || record.current.code_hash != before.code_hash {
                    changed.recoded.push(id);
                }
            }
        }
        let slots = (0..).map(SlotId).zip(&self.slots);
        let of_slots = slots.filter(|(_, slot)| slot.current != slot.parent);
        changed.slots.extend(of_slots.map(|(id, _)| id));
        self.notify(changed);
    }

    /// What the transaction has written so far; nothing without a listener.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = Changed::default();
        if self.listener.is_none() {
            return changed;
        }
        changed.accounts.reserve(self.journal.len());
        changed.slots.reserve(self.journal.len());
        for change in &self.journal {
            match *change {
                JournalEntry::Balance { account, .. }
                | JournalEntry::Nonce { account, .. }
                | JournalEntry::Touch { account } => changed.accounts.push(account),
                JournalEntry::Code { account, .. } | JournalEntry::Destroyed { account, .. } => {
                    changed.accounts.push(account);
                    changed.recoded.push(account);
                }
                JournalEntry::Slot { slot, .. } => changed.slots.push(slot),
                _ => {}
            }
        }
        changed.accounts.sort_unstable_by_key(|id| id.0);
        changed.accounts.dedup();
        changed.slots.sort_unstable_by_key(|id| id.0);
        changed.slots.dedup();
        changed
    }

    /// Notifies the listener of the values at the end of the transaction.
    pub(super) fn notify(&self, changed: Changed) {
        let Some(listener) = self.listener else {
            return;
        };
        for id in changed.accounts {
            let record = self.record(id);
            let before = record.parent.unwrap_or_default();
            let is_plain = !record.current.has_code() && !before.has_code() && !before.is_empty();
            let is_recoded = changed.recoded.contains(&id);
            if is_plain && !is_recoded {
                // See `StateListener`.
                continue;
            }
            let account = record.exists.then_some(record.current);
            // Once, not each time that the account changes.
            if is_recoded && record.exists && record.current.has_code() {
                let code = self.code_at(record.code);
                listener.on_code(code.hash(), code.to_bytes());
            }
            listener.on_account(record.address, account);
        }
        for id in changed.slots {
            let slot = self.slot_record(id);
            listener.on_slot(self.address(slot.account), slot.key, slot.current);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use niwaki_primitives::Fork;
    use niwaki_testkit::MemoryState;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Counts {
        accounts: AtomicUsize,
        codes: AtomicUsize,
    }

    impl StateListener for Counts {
        fn on_account(&self, _: Address, _: Option<Account>) {
            self.accounts.fetch_add(1, Ordering::Relaxed);
        }

        fn on_slot(&self, _: Address, _: U256, _: U256) {}

        fn on_code(&self, _: B256, _: Bytes) {
            self.codes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A listener that stores what it gets must not store a code for each transaction that pays a contract.
    #[test]
    fn new_code_is_drained_once_however_often_its_account_changes() {
        let (state, counts) = (MemoryState::default(), Counts::default());
        let mut world = World::new(&state, Table::of(Fork::London));
        world.subscribe(&counts);
        for number in 0..4 {
            world.begin_transaction();
            let id = world.load(&Address::repeat_byte(7)).unwrap();
            if number == 0 {
                world.set_code(id, &Bytes::from_static(&[1, 2, 3]));
            }
            world.add_balance(id, U256::ONE);
            world.end_transaction();
        }
        assert_eq!(counts.accounts.into_inner(), 4);
        assert_eq!(counts.codes.into_inner(), 1);
        // A listener that subscribes later gets it too.
        let late = Counts::default();
        let mut world = World::new(&state, Table::of(Fork::London));
        world.begin_transaction();
        let id = world.load(&Address::repeat_byte(7)).unwrap();
        world.set_code(id, &Bytes::from_static(&[1, 2, 3]));
        world.end_transaction();
        world.subscribe(&late);
        assert_eq!(late.codes.into_inner(), 1);
    }
}
