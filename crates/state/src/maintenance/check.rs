//! The whole state compared with itself: flat values, tries, code, head.
//!
//! Every trie is built again from the flat values and its rows are merged with the stored ones. So a row is found that
//! differs, is missing, or is not reachable, in memory proportional to the depth of a trie.

mod history;
mod sample;
pub(crate) mod stored;

use super::scan::{ScanVisitor, ScannedAccount, scan_accounts};
use crate::WorldState;
use crate::commit::flat::{account_of_row, decode_account};
use alloy_primitives::{hex, keccak256};
use niwaki_primitives::{B256, EMPTY_CODE_HASH, Fault};
use niwaki_storage::{Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, TrieBuilder};
use std::fmt;
use stored::StoredRows;

/// A row that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The segment.
    pub segment: &'static str,
    /// The key, hex; empty for the segment as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
}

impl Problem {
    /// A problem with the row of `key`.
    pub fn new(segment: Segment, key: &[u8], what: impl Into<String>) -> Self {
        Self {
            segment: segment.name(),
            key: hex::encode(key),
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "segment {}, key '{}': {}",
            self.segment, self.key, self.what
        )
    }
}

/// What a check has read and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Accounts.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Rows of all tries.
    pub trie_rows: u64,
    /// Rows of the history of an archive.
    pub history_rows: u64,
    /// Problems found.
    pub problems: u64,
}

impl WorldState {
    /// Compares the head's state root with the root of the account trie, in one read; a trie without
    /// rows is built from its accounts, of which there is one at most.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read.
    pub fn check_root(&self) -> Result<Option<Problem>, Fault> {
        let view = self.view_at_head()?;
        let (snapshot, expected) = (&view.snapshot, view.head.root);
        let row = snapshot.get(Segment::AccountTrie, &[])?;
        let root = match &row {
            Some(row) => keccak256(row.get(2..).unwrap_or_default()),
            None => {
                let mut no_rows = |_: &Path, _: &[u8]| {};
                let mut builder = TrieBuilder::new(&mut no_rows);
                // Two accounts would have made a row: their root differs from any stored one.
                for row in snapshot.prefix(Segment::Accounts, &[]).take(2) {
                    let (key, slim) = row?;
                    if let (Ok(key), Ok(account)) =
                        (B256::try_from(&key[..]), decode_account(&slim))
                    {
                        builder.add(Path::of_hash(&key), account.to_leaf());
                    }
                }
                builder.finish()
            }
        };
        let what = format!("the trie has root {root}, the head says {expected}");
        Ok((root != expected).then(|| Problem::new(Segment::AccountTrie, &[], what)))
    }

    /// Checks everything and calls `report` with each problem as it is found.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read; wrong contents are problems, not faults.
    pub fn check(&self, report: &mut dyn FnMut(Problem)) -> Result<CheckSummary, Fault> {
        let view = self.view_at_head()?;
        let mut check = Check {
            snapshot: &view.snapshot,
            report,
            summary: CheckSummary::default(),
        };
        check.storage_tries()?;
        check.account_trie(view.head.root)?;
        check.history(view.head.block.number)?;
        Ok(check.summary)
    }

    /// The hash of a code that an account refers to and that is not stored, if there is one. Reads all accounts.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn missing_code(&self) -> Result<Option<B256>, Fault> {
        let mut found = EMPTY_CODE_HASH;
        for row in self.database().prefix(Segment::Accounts, &[]) {
            let (key, slim) = row?;
            let hash = account_of_row(&key, &slim)?.code_hash;
            if hash == EMPTY_CODE_HASH || hash == found {
                continue;
            }
            if self
                .database()
                .get(Segment::Code, hash.as_slice())?
                .is_none()
            {
                return Ok(Some(hash));
            }
            found = hash;
        }
        Ok(None)
    }
}

/// A path to an inner node has fewer nibbles than a hash.
const PARTS_OF_PATH: usize = 64;

struct Check<'a> {
    snapshot: &'a Snapshot,
    report: &'a mut dyn FnMut(Problem),
    summary: CheckSummary,
}

impl Check<'_> {
    /// Each account by itself: its value, its code, its slots, its storage trie.
    fn storage_tries(&mut self) -> Result<(), Fault> {
        let snapshot = self.snapshot;
        let mut check = StorageCheck {
            stored: StoredRows::new(snapshot, Segment::StorageTrie),
            check: self,
        };
        scan_accounts(snapshot, &mut check)?;
        let stored = check.stored;
        self.rest(stored)
    }

    /// The account trie, and the head's root.
    fn account_trie(&mut self, head_root: B256) -> Result<(), Fault> {
        let mut stored = StoredRows::new(self.snapshot, Segment::AccountTrie);
        let segment = stored.segment;
        let mut count = 0;
        let mut found = |key: &[u8], _: Option<&[u8]>, what: &str| {
            count += 1;
            (self.report)(Problem::new(segment, key, what));
        };
        let mut sink = |path: &Path, row: &[u8]| stored.expect(path.as_slice(), row, &mut found);
        let mut builder = TrieBuilder::new(&mut sink);
        for row in self.snapshot.prefix(Segment::Accounts, &[]) {
            let (key, slim) = row?;
            // A row that can't be read was reported with the accounts.
            if let (Ok(key), Ok(account)) = (B256::try_from(&key[..]), decode_account(&slim)) {
                builder.add(Path::of_hash(&key), account.to_leaf());
            }
        }
        let root = builder.finish();
        self.summary.problems += count;
        if root != head_root {
            let what = format!("the accounts have state root {root}, the head says {head_root}");
            self.problem(Segment::Accounts, &[], &what);
        }
        self.rest(stored)
    }

    fn code(&mut self, key: &[u8], account: &TrieAccount) -> Result<(), Fault> {
        let hash = account.code_hash;
        if hash == EMPTY_CODE_HASH {
            return Ok(());
        }
        match self.snapshot.get(Segment::Code, hash.as_slice())? {
            None => {
                let what = format!("missing; account {} has it", hex::encode(key));
                self.problem(Segment::Code, hash.as_slice(), &what);
            }
            Some(code) if keccak256(&code) != hash => {
                self.problem(
                    Segment::Code,
                    hash.as_slice(),
                    "it does not hash to its key",
                );
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Reports the stored rows that are left after all expected ones.
    fn rest(&mut self, stored: StoredRows<'_>) -> Result<(), Fault> {
        let segment = stored.segment;
        let seen = stored.rest(&mut |key, _, what| self.problem(segment, key, what))?;
        self.summary.trie_rows += seen;
        Ok(())
    }

    fn problem(&mut self, segment: Segment, key: &[u8], what: &str) {
        self.add(Problem::new(segment, key, what));
    }

    fn add(&mut self, problem: Problem) {
        self.summary.problems += 1;
        (self.report)(problem);
    }
}

/// The scan of [`Check::storage_tries`].
struct StorageCheck<'c, 'a> {
    check: &'c mut Check<'a>,
    stored: StoredRows<'a>,
}

impl ScanVisitor for StorageCheck<'_, '_> {
    fn row(&mut self, segment: Segment, _: &[u8]) -> bool {
        match segment {
            Segment::Accounts => self.check.summary.accounts += 1,
            _ => self.check.summary.slots += 1,
        }
        true
    }

    fn trie_row(&mut self, owner: &B256, path: &Path, row: &[u8]) {
        let (key, segment) = (
            [owner.as_slice(), path.as_slice()].concat(),
            self.stored.segment,
        );
        let found =
            &mut |key: &[u8], _: Option<&[u8]>, what| self.check.problem(segment, key, what);
        self.stored.expect(&key, row, found);
    }

    fn stray_slot(&mut self, key: &[u8]) {
        self.check.summary.slots += 1;
        self.check
            .problem(Segment::Slots, key, "a slot of no account");
    }

    fn damaged(&mut self, problem: Problem) {
        self.check.add(problem);
    }

    fn account(&mut self, scanned: ScannedAccount) -> Result<(), Fault> {
        let ScannedAccount { key, account, root } = scanned;
        if account.storage_root != root {
            let what = differing_root(&account, &root);
            self.check.problem(Segment::Accounts, key.as_slice(), &what);
        }
        self.check.code(key.as_slice(), &account)
    }
}

/// What is wrong with an account whose slots have another `root`.
pub(super) fn differing_root(account: &TrieAccount, root: &B256) -> String {
    let stored = account.storage_root;
    format!("its slots have root {root}, the account says {stored}")
}
