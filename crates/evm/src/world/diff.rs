//! The diff: all that the block has changed.

use super::{AccountId, World};
use niwaki_primitives::{AccountDiff, B256, Bytes, SlotDiff, StateDiff, U256, map::HashSet};

impl World<'_> {
    /// Every difference between the parent state and now. Linear in what the block has accessed; to be called between
    /// transactions.
    pub fn diff(&self) -> StateDiff {
        let mut diff = StateDiff::default();
        let ids = (0..).map(AccountId).zip(&self.accounts);
        let mut order: Vec<_> = ids.map(|(id, record)| (record.address, id)).collect();
        // Sorted before the diffs are made, while entries are 24 bytes.
        order.sort_unstable_by_key(|(address, _)| *address);
        let mut slots = Vec::new();
        diff.accounts.reserve(order.len());
        for (address, id) in order {
            let record = self.record(id);
            self.changed_slots(id, &mut slots);
            let new = record.exists.then_some(record.current);
            if record.parent != new || !slots.is_empty() || record.is_wiped {
                let change = AccountDiff {
                    prior: record.parent,
                    new,
                    storage_wiped: record.is_wiped,
                    slots: slots.to_vec(),
                };
                diff.accounts.push((address, change));
            }
        }
        diff.codes = self.deployed_codes(&diff);
        diff
    }

    /// Replaces `changed` by the changed slots of an account, ascending.
    fn changed_slots(&self, id: AccountId, changed: &mut Vec<(U256, SlotDiff)>) {
        changed.clear();
        let record = self.record(id);
        for id in self.slots_of(id) {
            let slot = self.slot_record(id);
            let before = if record.is_wiped {
                U256::ZERO
            } else {
                slot.parent
            };
            if slot.current != before {
                changed.push(self.slot_diff(id));
            }
        }
        changed.sort_unstable_by_key(|(key, _)| *key);
    }

    fn deployed_codes(&self, diff: &StateDiff) -> Vec<(B256, Bytes)> {
        let mut codes: Vec<_> = self.new_codes.iter().map(|id| self.code_at(*id)).collect();
        codes.sort_unstable_by_key(|code| code.hash());
        codes.dedup_by_key(|code| code.hash());
        // Only where the code changed: an account that had it before has it from the parent state.
        let used: HashSet<_> = diff
            .accounts
            .iter()
            .filter_map(|(_, change)| {
                let before = change.prior.map(|prior| prior.code_hash);
                let new = change.new.filter(|new| new.has_code())?;
                (before != Some(new.code_hash)).then_some(new.code_hash)
            })
            .collect();
        codes
            .into_iter()
            .filter(|code| used.contains(&code.hash()))
            .map(|code| (code.hash(), code.to_bytes()))
            .collect()
    }
}
