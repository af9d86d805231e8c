//! Rows on their way to the disk, and what they make of the rest.

use super::DownloadProgress;
use super::remaining::{KeyRange, LargeStorage, Remaining};
use crate::commit::flat::{encode_account, encode_value};
use niwaki_primitives::{B256, U256};
use niwaki_storage::{Batch, Segment};
use niwaki_trie::TrieAccount;

/// Accounts, slots and codes that are verified, as rows; and the ranges that have come with them.
#[derive(Debug, Default)]
pub struct StatePart {
    rows: Batch,
    accounts: Vec<KeyRange>,
    slots: Vec<(B256, KeyRange)>,
    large: Vec<LargeStorage>,
    progress: DownloadProgress,
}

impl StatePart {
    /// Adds accounts.
    pub fn add_accounts(&mut self, accounts: &[(B256, TrieAccount)]) {
        for (key, account) in accounts {
            let slim = encode_account(account);
            self.rows.put(Segment::Accounts, key.as_slice(), &slim);
        }
        self.progress.accounts += accounts.len() as u64;
    }

    /// Adds slots of an account, none of them zero.
    pub fn add_slots(&mut self, account: &B256, slots: &[(B256, U256)]) {
        for (slot, value) in slots {
            let key = [account.as_slice(), slot.as_slice()];
            let value = encode_value(value);
            self.rows.put_parts(Segment::Slots, &key, &[&value]);
        }
        self.progress.slots += slots.len() as u64;
    }

    /// Adds a code.
    pub fn add_code(&mut self, hash: &B256, code: &[u8]) {
        self.rows.put(Segment::Code, hash.as_slice(), code);
        self.progress.codes += 1;
    }

    /// All accounts of this range are here or were before, with their storage, but for what is [added as
    /// large](StatePart::add_large).
    pub fn accounts_came(&mut self, range: KeyRange) {
        self.accounts.push(range);
    }

    /// The storage of an account comes in parts: these ranges have not come.
    pub fn add_large(&mut self, storage: LargeStorage) {
        self.large.push(storage);
    }

    /// All slots of this range of a large storage are here or were before.
    pub fn slots_came(&mut self, account: B256, range: KeyRange) {
        self.slots.push((account, range));
    }

    /// Bytes of its rows.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.accounts.is_empty() && self.slots.is_empty()
    }

    /// Takes what has come out of what remains.
    pub(super) fn mark(&self, remaining: &mut Remaining, progress: &mut DownloadProgress) {
        for range in &self.accounts {
            remaining.remove_accounts(range);
        }
        remaining.storages.extend(self.large.iter().cloned());
        for (account, range) in &self.slots {
            remaining.remove_slots(account, range);
        }
        progress.accounts += self.progress.accounts;
        progress.slots += self.progress.slots;
        progress.codes += self.progress.codes;
        progress.bytes += self.rows.bytes() as u64;
    }

    /// Its rows, and the keys before which a table of them ends: between its ranges lie rows that come with other parts.
    pub(crate) fn into_tables(self) -> (Batch, Vec<(Segment, Vec<u8>)>) {
        let mut cuts = Vec::new();
        for first in self.accounts.iter().enumerate().filter_map(|(at, range)| {
            let follows = at > 0 && self.accounts[at - 1].is_before(range);
            (!follows).then_some(range.first)
        }) {
            cuts.push((Segment::Accounts, first.to_vec()));
            cuts.push((Segment::Slots, first.to_vec()));
        }
        let of_slot = |account: &B256, slot: &B256| [account.0, slot.0].concat();
        for storage in &self.large {
            if let Some(rest) = storage.ranges.first() {
                cuts.push((Segment::Slots, of_slot(&storage.account, &rest.first)));
            }
        }
        for (at, (account, range)) in self.slots.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &self.slots[at]);
            if !before.is_some_and(|(owner, before)| owner == account && before.is_before(range)) {
                cuts.push((Segment::Slots, of_slot(account, &range.first)));
            }
            let after = self.slots.get(at + 1);
            if !after.is_some_and(|(owner, after)| owner == account && range.is_before(after)) {
                // The first key that is longer than the last of the range.
                let end = [&of_slot(account, &range.last)[..], &[0]].concat();
                cuts.push((Segment::Slots, end));
            }
        }
        (self.rows, cuts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> B256 {
        let mut key = B256::ZERO;
        key[0] = first;
        key
    }

    fn range(first: u8, last: u8) -> KeyRange {
        KeyRange {
            first: key(first),
            last: B256::from(U256::from_be_bytes(key(last).0) - U256::ONE),
        }
    }

    #[test]
    fn tables_end_where_rows_of_other_parts_lie_between() {
        let mut part = StatePart::default();
        let slot = |account: u8, slot: u8| [key(account).0, key(slot).0].concat();
        // Answers that follow on each other, then a range from elsewhere.
        part.accounts_came(range(1, 2));
        part.accounts_came(range(2, 3));
        part.accounts_came(range(7, 8));
        part.add_large(LargeStorage {
            account: key(2),
            root: B256::ZERO,
            ranges: vec![range(0x30, 0x50), range(0x50, 0x70)],
        });
        part.slots_came(key(5), range(0x10, 0x20));
        part.slots_came(key(5), range(0x20, 0x30));
        part.slots_came(key(5), range(0x60, 0x70));
        part.slots_came(key(6), range(0x70, 0x80));
        let (_, cuts) = part.into_tables();
        let of = |segment| {
            let cuts = cuts.iter().filter(|(of, _)| *of == segment);
            let mut keys: Vec<Vec<u8>> = cuts.map(|(_, key)| key.clone()).collect();
            keys.sort();
            keys
        };
        let accounts = [key(1), key(7)].map(|key| key.to_vec());
        assert_eq!(of(Segment::Accounts), accounts);
        let end = |account, next| {
            let last = B256::from(U256::from_be_bytes(key(next).0) - U256::ONE);
            [key(account).0.as_slice(), last.as_slice(), &[0]].concat()
        };
        let slots = [
            key(1).to_vec(),
            slot(2, 0x30),
            slot(5, 0x10),
            end(5, 0x30),
            slot(5, 0x60),
            end(5, 0x70),
            slot(6, 0x70),
            end(6, 0x80),
            key(7).to_vec(),
        ];
        assert_eq!(of(Segment::Slots), slots);
    }
}
