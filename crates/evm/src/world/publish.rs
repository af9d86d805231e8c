//! What a transaction has changed, told to whoever runs others meanwhile.

use super::{AccountId, SlotId, World, journal::Change};
use niwaki_primitives::{Account, Address, B256, Bytes, U256};

/// Is told of the values that a transaction has left, but for balance and nonce of an account that had no
/// code and was there before the block.
pub trait Publisher: Sync {
    /// An account is this now.
    fn account(&self, address: Address, account: Option<Account>);

    /// A slot is this now.
    fn slot(&self, address: Address, key: U256, value: U256);

    /// There is a code with this hash now.
    fn code(&self, hash: B256, code: Bytes);
}

/// Accounts and slots that a transaction has changed, some of them more than once.
#[derive(Default)]
pub(super) struct Changed {
    accounts: Vec<AccountId>,
    /// With another code, or none any more.
    remade: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl<'v> World<'v> {
    /// Tells `publisher` of what has changed since the parent state, and from now on of what each
    /// transaction changes, when it ends.
    pub fn publish_to(&mut self, publisher: &'v dyn Publisher) {
        self.publisher = Some(publisher);
        let mut changed = Changed::default();
        for (id, record) in (0..).map(AccountId).zip(&self.accounts) {
            if record.parent != record.exists.then_some(record.current) {
                changed.accounts.push(id);
                let before = record.parent.unwrap_or_default();
                if record.wiped || record.current.code_hash != before.code_hash {
                    changed.remade.push(id);
                }
            }
        }
        let slots = (0..).map(SlotId).zip(&self.slots);
        let of_slots = slots.filter(|(_, slot)| slot.current != slot.parent);
        changed.slots.extend(of_slots.map(|(id, _)| id));
        self.publish(changed);
    }

    /// What the transaction has changed so far, if anybody wants to know.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = Changed::default();
        if self.publisher.is_none() {
            return changed;
        }
        changed.accounts.reserve(self.journal.len());
        changed.slots.reserve(self.journal.len());
        for change in &self.journal {
            match *change {
                Change::Balance { account, .. }
                | Change::Nonce { account, .. }
                | Change::Touch { account } => changed.accounts.push(account),
                Change::Code { account, .. } | Change::Destroyed { account, .. } => {
                    changed.accounts.push(account);
                    changed.remade.push(account);
                }
                Change::Slot { slot, .. } => changed.slots.push(slot),
                _ => {}
            }
        }
        changed.accounts.sort_unstable_by_key(|id| id.0);
        changed.accounts.dedup();
        changed.slots.sort_unstable_by_key(|id| id.0);
        changed.slots.dedup();
        changed
    }

    /// Tells of the values that are there at the end of the transaction.
    pub(super) fn publish(&self, changed: Changed) {
        let Some(publisher) = self.publisher else {
            return;
        };
        for id in changed.accounts {
            let record = self.record(id);
            let before = record.parent.unwrap_or_default();
            let is_plain = !record.current.has_code() && !before.has_code() && !before.is_empty();
            let is_remade = changed.remade.contains(&id);
            if is_plain && !is_remade {
                // Who runs ahead keeps differences of its balance, and takes its nonce as it comes.
                continue;
            }
            let account = record.exists.then_some(record.current);
            // Once, and not whenever the account changes.
            if is_remade && record.exists && record.current.has_code() {
                let code = self.code_at(record.code);
                publisher.code(code.hash(), code.to_bytes());
            }
            publisher.account(record.address, account);
        }
        for id in changed.slots {
            let slot = self.slot_record(id);
            publisher.slot(self.address(slot.account), slot.key, slot.current);
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
    struct Told {
        accounts: AtomicUsize,
        codes: AtomicUsize,
    }

    impl Publisher for Told {
        fn account(&self, _: Address, _: Option<Account>) {
            self.accounts.fetch_add(1, Ordering::Relaxed);
        }

        fn slot(&self, _: Address, _: U256, _: U256) {}

        fn code(&self, _: B256, _: Bytes) {
            self.codes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whoever keeps what is told must not be made to keep a code for each transaction that pays a contract.
    #[test]
    fn a_new_code_is_told_once_however_often_its_account_changes() {
        let (state, told) = (MemoryState::default(), Told::default());
        let mut world = World::new(&state, Table::of(Fork::London));
        world.publish_to(&told);
        for number in 0..4 {
            world.begin_transaction();
            let id = world.load(&Address::repeat_byte(7)).unwrap();
            if number == 0 {
                world.set_code(id, &Bytes::from_static(&[1, 2, 3]));
            }
            world.add_balance(id, U256::ONE);
            world.end_transaction();
        }
        assert_eq!(told.accounts.into_inner(), 4);
        assert_eq!(told.codes.into_inner(), 1);
        // Who begins to listen later hears of it too.
        let late = Told::default();
        let mut world = World::new(&state, Table::of(Fork::London));
        world.begin_transaction();
        let id = world.load(&Address::repeat_byte(7)).unwrap();
        world.set_code(id, &Bytes::from_static(&[1, 2, 3]));
        world.end_transaction();
        world.publish_to(&late);
        assert_eq!(late.codes.into_inner(), 1);
    }
}
