//! The diff: all that the block has changed.

use super::{AccountId, World};
use niwaki_primitives::{AccountDiff, SlotDiff, StateDiff, U256};

impl World<'_> {
    /// Every difference between the parent state and now. Linear in what the block has accessed; to be called between
    /// transactions.
    pub fn diff(&self) -> StateDiff {
        let mut diff = StateDiff::default();
        let mut order = Vec::with_capacity(self.accounts.len());
        for at in 0..self.accounts.len() {
            let id = AccountId(u32::try_from(at).expect("handles are 32 bits"));
            order.push((self.record(id).address, id));
        }
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
        let mut next = record.first_slot;
        while let Some(slot) = next {
            let slot = self.slot_record(slot);
            let before = if record.is_wiped {
                U256::ZERO
            } else {
                slot.parent
            };
            if slot.current != before {
                changed.push((
                    slot.key,
                    SlotDiff {
                        prior: slot.parent,
                        new: slot.current,
                    },
                ));
            }
            next = slot.next;
        }
        changed.sort_unstable_by_key(|(key, _)| *key);
    }

    fn deployed_codes(
        &self,
        diff: &StateDiff,
    ) -> Vec<(niwaki_primitives::B256, niwaki_primitives::Bytes)> {
        let mut codes: Vec<_> = self.new_codes.iter().map(|id| self.code_at(*id)).collect();
        codes.sort_unstable_by_key(|code| code.hash());
        codes.dedup_by_key(|code| code.hash());
        // Only where the code changed: an account that had it before has it from the parent state.
        let used: niwaki_primitives::map::HashSet<_> = diff
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
