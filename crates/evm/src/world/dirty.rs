//! The dirty set: which accounts and slots transactions have written since the last drain.
//!
//! While a block runs, the incremental state root takes its changes in a few batches instead of one at the end. A
//! full [`World::diff`] for each batch would be linear in all that the block has touched; a drain is linear in what was
//! written since the previous one. Transactions add to the set when they end, from the journal: an id once, guarded by
//! the record's `is_dirty`.
//!
//! ```text
//! drain_dirty()   -> the whole diff; from now on transactions add to the set
//! tx 7 writes A.x: 1 -> 2      dirty {A.x}
//! tx 8 writes A.x: 2 -> 1      dirty {A.x}
//! drain_dirty()   -> A.x = 1, although 1 is the parent's value
//! ```

use super::accounts::AccountRecord;
use super::slots::SlotRecord;
use super::{AccountId, SlotId, World, journal::JournalEntry};
use niwaki_primitives::{AccountDiff, DirtyState, SlotDiff, U256};

/// Written accounts and slots, each once.
#[derive(Default)]
pub(super) struct DirtySet {
    accounts: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl DirtySet {
    fn add_account(&mut self, id: AccountId, records: &mut [AccountRecord]) {
        let record = &mut records[id.0 as usize];
        if !std::mem::replace(&mut record.is_dirty, true) {
            self.accounts.push(id);
        }
    }

    fn add_slot(&mut self, id: SlotId, records: &mut [SlotRecord]) {
        let record = &mut records[id.0 as usize];
        if !std::mem::replace(&mut record.is_dirty, true) {
            self.slots.push(id);
        }
    }
}

impl World<'_> {
    /// Drains what transactions have written since the last call, with the values of now; the first call gives the
    /// whole [diff](Self::diff). Linear in what was written; to be called between transactions.
    pub fn drain_dirty(&mut self) -> DirtyState {
        match self.dirty.take() {
            None => {
                self.dirty = Some(DirtySet::default());
                self.diff().into()
            }
            Some(mut dirty) => {
                let state = self.drain(&mut dirty);
                self.dirty = Some(dirty);
                state
            }
        }
    }

    /// Adds what the journal of the transaction that ends has changed.
    pub(super) fn mark_dirty(&mut self) {
        let Some(mut dirty) = self.dirty.take() else {
            return;
        };
        for change in &self.journal {
            match *change {
                // A touch precedes each change of balance, nonce or code.
                JournalEntry::Touch { account } | JournalEntry::Wiped { account } => {
                    dirty.add_account(account, &mut self.accounts);
                }
                JournalEntry::Slot { slot, .. } => dirty.add_slot(slot, &mut self.slots),
                _ => {}
            }
        }
        self.dirty = Some(dirty);
    }

    /// Adds an account that is erased with its storage, which the journal does not record.
    pub(super) fn mark_erased_dirty(&mut self, id: AccountId) {
        let Some(mut dirty) = self.dirty.take() else {
            return;
        };
        dirty.add_account(id, &mut self.accounts);
        let mut next = self.record(id).first_slot;
        while let Some(slot) = next {
            dirty.add_slot(slot, &mut self.slots);
            next = self.slot_record(slot).next;
        }
        self.dirty = Some(dirty);
    }

    /// Empties `dirty`.
    fn drain(&mut self, dirty: &mut DirtySet) -> DirtyState {
        for at in 0..dirty.slots.len() {
            let slot = &mut self.slots[dirty.slots[at].0 as usize];
            slot.is_dirty = false;
            dirty.add_account(slot.account, &mut self.accounts);
        }
        let order = |slot: &SlotId| {
            let slot = self.slot_record(*slot);
            (slot.account.0, slot.key)
        };
        dirty.slots.sort_unstable_by_key(order);
        let address = |id: &AccountId| self.record(*id).address;
        dirty.accounts.sort_unstable_by_key(address);
        let change = |id: &AccountId| {
            let record = self.record(*id);
            let first = dirty.slots.partition_point(|slot| order(slot).0 < id.0);
            let rest = dirty.slots[first..].iter();
            let slots = rest.take_while(|slot| order(slot).0 == id.0);
            let change = AccountDiff {
                prior: record.parent,
                new: record.exists.then_some(record.current),
                storage_wiped: record.is_wiped,
                slots: match record.is_wiped {
                    // The reader takes all slots that are not listed for zero.
                    true => self.all_slots(*id),
                    false => slots.map(|slot| self.slot_diff(*slot)).collect(),
                },
            };
            (record.address, change)
        };
        let accounts = dirty.accounts.iter().map(change).collect();
        for id in dirty.accounts.drain(..) {
            self.record_mut(id).is_dirty = false;
        }
        dirty.slots.clear();
        DirtyState { accounts }
    }

    pub(super) fn slot_diff(&self, id: SlotId) -> (U256, SlotDiff) {
        let slot = self.slot_record(id);
        let (prior, new) = (slot.parent, slot.current);
        (slot.key, SlotDiff { prior, new })
    }

    /// Every slot of an account that the block has seen, ascending.
    fn all_slots(&self, id: AccountId) -> Vec<(U256, SlotDiff)> {
        let slots = self.slots_of(id).map(|slot| self.slot_diff(slot));
        let mut slots: Vec<_> = slots.collect();
        slots.sort_unstable_by_key(|(key, _)| *key);
        slots
    }
}
