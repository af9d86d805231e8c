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

    pub(crate) fn into_rows(self) -> Batch {
        self.rows
    }
}
