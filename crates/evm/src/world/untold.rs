//! What has changed since somebody was told last.

use super::accounts::AccountRecord;
use super::slots::SlotRecord;
use super::{AccountId, SlotId, World, journal::Change};
use niwaki_primitives::{AccountDiff, SlotDiff, StateDiff, U256};

/// Accounts and slots that transactions have written since, each once.
#[derive(Default)]
pub(super) struct Untold {
    accounts: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl Untold {
    fn note_account(&mut self, id: AccountId, records: &mut [AccountRecord]) {
        let record = &mut records[id.0 as usize];
        if !std::mem::replace(&mut record.is_untold, true) {
            self.accounts.push(id);
        }
    }

    fn note_slot(&mut self, id: SlotId, records: &mut [SlotRecord]) {
        let record = &mut records[id.0 as usize];
        if !std::mem::replace(&mut record.is_untold, true) {
            self.slots.push(id);
        }
    }
}

impl World<'_> {
    /// What transactions have written since this was called last, as it is now beside the parent state; at
    /// first [all that differs](Self::diff) from that. From then on values may be listed that are what they were
    /// in the parent state, and no codes. Linear in what was written; to be called between transactions.
    pub fn take_untold(&mut self) -> StateDiff {
        match self.untold.take() {
            None => {
                self.untold = Some(Untold::default());
                self.diff()
            }
            Some(mut untold) => {
                let diff = self.tell(&mut untold);
                self.untold = Some(untold);
                diff
            }
        }
    }

    /// The transaction has ended, whose changes are in the journal.
    pub(super) fn note_untold(&mut self) {
        let Some(mut untold) = self.untold.take() else {
            return;
        };
        for change in &self.journal {
            match *change {
                // Comes before each change of balance, nonce or code.
                Change::Touch { account } | Change::Wiped { account } => {
                    untold.note_account(account, &mut self.accounts);
                }
                Change::Slot { slot, .. } => untold.note_slot(slot, &mut self.slots),
                _ => {}
            }
        }
        self.untold = Some(untold);
    }

    /// The same of an account that goes with its storage, past the journal.
    pub(super) fn note_end_untold(&mut self, id: AccountId) {
        let Some(mut untold) = self.untold.take() else {
            return;
        };
        untold.note_account(id, &mut self.accounts);
        let mut next = self.record(id).first_slot;
        while let Some(slot) = next {
            untold.note_slot(slot, &mut self.slots);
            next = self.slot_record(slot).next;
        }
        self.untold = Some(untold);
    }

    /// Empties the lists.
    fn tell(&mut self, untold: &mut Untold) -> StateDiff {
        for at in 0..untold.slots.len() {
            let slot = &mut self.slots[untold.slots[at].0 as usize];
            slot.is_untold = false;
            untold.note_account(slot.account, &mut self.accounts);
        }
        let place = |slot: &SlotId| {
            let slot = self.slot_record(*slot);
            (slot.account.0, slot.key)
        };
        untold.slots.sort_unstable_by_key(place);
        let address = |id: &AccountId| self.record(*id).address;
        untold.accounts.sort_unstable_by_key(address);
        let change = |id: &AccountId| {
            let record = self.record(*id);
            let first = untold.slots.partition_point(|slot| place(slot).0 < id.0);
            let rest = untold.slots[first..].iter();
            let slots = rest.take_while(|slot| place(slot).0 == id.0);
            let change = AccountDiff {
                prior: record.parent,
                new: record.exists.then_some(record.current),
                storage_wiped: record.wiped,
                slots: match record.wiped {
                    // Whoever is told of that takes all others for gone.
                    true => self.all_slots(*id),
                    false => slots.map(|slot| self.slot_diff(*slot)).collect(),
                },
            };
            (record.address, change)
        };
        let accounts = untold.accounts.iter().map(change).collect();
        for id in untold.accounts.drain(..) {
            self.record_mut(id).is_untold = false;
        }
        untold.slots.clear();
        StateDiff {
            accounts,
            ..StateDiff::default()
        }
    }

    fn slot_diff(&self, id: SlotId) -> (U256, SlotDiff) {
        let slot = self.slot_record(id);
        let (prior, new) = (slot.parent, slot.current);
        (slot.key, SlotDiff { prior, new })
    }

    /// Every slot of an account that the block knows, ascending.
    fn all_slots(&self, id: AccountId) -> Vec<(U256, SlotDiff)> {
        let (mut slots, mut next) = (Vec::new(), self.record(id).first_slot);
        while let Some(slot) = next {
            slots.push(self.slot_diff(slot));
            next = self.slot_record(slot).next;
        }
        slots.sort_unstable_by_key(|(key, _)| *key);
        slots
    }
}
