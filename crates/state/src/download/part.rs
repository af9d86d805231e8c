//! Rows on their way to the disk, and what they make of the rest.

use super::DownloadProgress;
use super::remaining::{KeyRange, LargeStorage, Remaining};
use super::verify::TrieRows;
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
    /// Accounts whose storage tries lack nodes.
    in_ranges: Vec<B256>,
    progress: DownloadProgress,
}

impl StatePart {
    /// Adds accounts.
    pub fn add_accounts(&mut self, accounts: &[(B256, TrieAccount)]) {
        for (key, account) in accounts {
            let slim = encode_account(account);
            self.progress.bytes += (key.len() + slim.len()) as u64;
            self.rows.put(Segment::Accounts, key.as_slice(), &slim);
        }
        self.progress.accounts += accounts.len() as u64;
    }

    /// Adds slots of an account, none of them zero.
    pub fn add_slots(&mut self, account: &B256, slots: &[(B256, U256)]) {
        for (slot, value) in slots {
            let key = [account.as_slice(), slot.as_slice()];
            let value = encode_value(value);
            self.progress.bytes += (account.len() + slot.len() + value.len()) as u64;
            self.rows.put_parts(Segment::Slots, &key, &[&value]);
        }
        self.progress.slots += slots.len() as u64;
    }

    /// Adds the trie rows of what is added.
    pub fn add_trie_rows(&mut self, rows: &TrieRows) {
        // Copied: a batch of its own for each of many storages would take far more memory than its rows.
        for (segment, key, row) in rows.0.changes() {
            self.rows.put(segment, key, row.unwrap_or_default());
        }
    }

    /// The storage of an account came in ranges, each verified by a proof: their trie rows are not the whole trie.
    pub fn came_in_ranges(&mut self, account: B256) {
        self.in_ranges.push(account);
    }

    /// Adds a code.
    pub fn add_code(&mut self, hash: &B256, code: &[u8]) {
        self.rows.put(Segment::Code, hash.as_slice(), code);
        self.progress.bytes += (hash.len() + code.len()) as u64;
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

    /// Adds all of another part, behind what is here.
    pub fn append(&mut self, other: Self) {
        self.rows.append(other.rows);
        self.accounts.extend(other.accounts);
        self.slots.extend(other.slots);
        self.large.extend(other.large);
        self.in_ranges.extend(other.in_ranges);
        self.progress.add(&other.progress);
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
        progress.add(&self.progress);
    }

    /// Accounts whose storage tries lack nodes.
    pub(super) fn in_ranges(&self) -> &[B256] {
        &self.in_ranges
    }

    /// Its rows, and the keys before which a table of them ends: between its ranges lie rows that come with other parts.
    pub(crate) fn into_tables(self) -> (Batch, Vec<(Segment, Vec<u8>)>) {
        let mut cuts = Cuts::default();
        for (at, range) in self.accounts.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &self.accounts[at]);
            if !before.is_some_and(|before| before.is_before(range)) {
                cuts.before_accounts(range);
            }
        }
        for storage in &self.large {
            if let Some(rest) = storage.ranges.first() {
                cuts.before_slots(&storage.account, rest);
            }
        }
        for (at, (account, range)) in self.slots.iter().enumerate() {
            let before = at.checked_sub(1).map(|at| &self.slots[at]);
            if !before.is_some_and(|(owner, before)| owner == account && before.is_before(range)) {
                cuts.before_slots(account, range);
            }
            let after = self.slots.get(at + 1);
            if !after.is_some_and(|(owner, after)| owner == account && range.is_before(after)) {
                cuts.after_slots(account, range);
            }
        }
        (self.rows, cuts.0)
    }
}

/// Keys before which a table ends.
#[derive(Default)]
struct Cuts(Vec<(Segment, Vec<u8>)>);

impl Cuts {
    fn before_accounts(&mut self, range: &KeyRange) {
        let path = range.paths().0;
        self.0
            .push((Segment::AccountTrie, path.as_slice().to_vec()));
        for segment in [Segment::Accounts, Segment::Slots, Segment::StorageTrie] {
            self.0.push((segment, range.first.to_vec()));
        }
    }

    fn before_slots(&mut self, account: &B256, range: &KeyRange) {
        let (slot, path) = (range.first, range.paths().0);
        let of_account = |key: &[u8]| [account.as_slice(), key].concat();
        self.0.push((Segment::Slots, of_account(slot.as_slice())));
        self.0
            .push((Segment::StorageTrie, of_account(path.as_slice())));
    }

    /// Before the first keys that are longer than the last of the range.
    fn after_slots(&mut self, account: &B256, range: &KeyRange) {
        let (slot, path) = (range.last, range.paths().1);
        let end = |key: &[u8]| [account.as_slice(), key, &[0]].concat();
        self.0.push((Segment::Slots, end(slot.as_slice())));
        self.0.push((Segment::StorageTrie, end(path.as_slice())));
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
        // Of the tries too: by nibbles, without the zeros in which a first key ends.
        assert_eq!(of(Segment::AccountTrie), [vec![0, 1], vec![0, 7]]);
        let path = |account: u8, nibbles: &[u8]| [key(account).as_slice(), nibbles].concat();
        let path_end = |account: u8, nibble: u8| {
            let mut nibbles = [0x0f; 65];
            (nibbles[0], nibbles[64]) = (nibble, 0);
            path(account, &nibbles)
        };
        let paths = [
            key(1).to_vec(),
            path(2, &[3]),
            path(5, &[1]),
            path_end(5, 2),
            path(5, &[6]),
            path_end(5, 6),
            path(6, &[7]),
            path_end(6, 7),
            key(7).to_vec(),
        ];
        assert_eq!(of(Segment::StorageTrie), paths);
    }
}
