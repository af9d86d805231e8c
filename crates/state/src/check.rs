//! The whole state checked against itself: flat values, tries, code, head.
//!
//! Every trie is built anew from the flat values and its rows are merged with the stored ones, so
//! that a row that differs, is missing, or that nothing leads to is found, in memory proportional
//! to the depth of a trie.

use crate::WorldState;
use crate::flat::{decode_account, decode_value};
use alloy_primitives::{hex, keccak256};
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Row, Rows, Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, TrieBuilder, encode_slot};
use std::cmp::Ordering;
use std::fmt;
use std::iter::Peekable;

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The segment.
    pub segment: &'static str,
    /// The key, hex; empty for the segment as a whole.
    pub key: String,
    /// What is wrong.
    pub what: String,
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

/// What a check went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Accounts.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Rows of all tries.
    pub trie_rows: u64,
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
        let (snapshot, expected) = (view.snapshot(), view.head().root);
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
        Ok((root != expected).then(|| problem(Segment::AccountTrie, &[], &what)))
    }

    /// Checks everything and hands each problem to `report` as it is found.
    ///
    /// # Errors
    /// A [`Fault`] if the storage can't be read; what it holds is never a fault here.
    pub fn check(&self, report: &mut dyn FnMut(Problem)) -> Result<CheckSummary, Fault> {
        let view = self.view_at_head()?;
        let mut check = Check {
            snapshot: view.snapshot(),
            report,
            summary: CheckSummary::default(),
        };
        check.storage_tries()?;
        check.account_trie(view.head().root)?;
        Ok(check.summary)
    }
}

struct Check<'a> {
    snapshot: &'a Snapshot<'a>,
    report: &'a mut dyn FnMut(Problem),
    summary: CheckSummary,
}

impl Check<'_> {
    /// Every account on its own: its value, its code, its slots, its storage trie.
    fn storage_tries(&mut self) -> Result<(), Fault> {
        let mut slots = self.snapshot.prefix(Segment::Slots, &[]).peekable();
        let mut stored = Stored::new(self.snapshot, Segment::StorageTrie);
        for row in self.snapshot.prefix(Segment::Accounts, &[]) {
            let (key, slim) = row?;
            self.summary.accounts += 1;
            let Ok(owner) = B256::try_from(&key[..]) else {
                self.problem(Segment::Accounts, &key, "the key is not 32 bytes");
                continue;
            };
            self.stray_slots(&mut slots, Some(&owner))?;
            let root = self.storage_root(&owner, &mut slots, &mut stored)?;
            let account = match decode_account(&slim) {
                Ok(account) => account,
                Err(error) => {
                    self.problem(Segment::Accounts, &key, &format!("not an account: {error}"));
                    continue;
                }
            };
            if account.storage_root != root {
                let what = format!(
                    "its slots have root {root}, the account says {}",
                    account.storage_root
                );
                self.problem(Segment::Accounts, &key, &what);
            }
            self.code(&key, &account)?;
        }
        self.stray_slots(&mut slots, None)?;
        self.rest(stored)
    }

    /// The account trie, and the head's root.
    fn account_trie(&mut self, head_root: B256) -> Result<(), Fault> {
        let mut stored = Stored::new(self.snapshot, Segment::AccountTrie);
        let mut sink = |path: &Path, row: &[u8]| stored.expect(path.as_slice(), row, self.report);
        let mut builder = TrieBuilder::new(&mut sink);
        for row in self.snapshot.prefix(Segment::Accounts, &[]) {
            let (key, slim) = row?;
            // What can't be read was reported with the accounts.
            if let (Ok(key), Ok(account)) = (B256::try_from(&key[..]), decode_account(&slim)) {
                builder.add(Path::of_hash(&key), account.to_leaf());
            }
        }
        let root = builder.finish();
        if root != head_root {
            let what = format!("the accounts have state root {root}, the head says {head_root}");
            self.problem(Segment::Accounts, &[], &what);
        }
        self.rest(stored)
    }

    fn storage_root(
        &mut self,
        owner: &B256,
        slots: &mut Peekable<Rows<'_>>,
        stored: &mut Stored<'_>,
    ) -> Result<B256, Fault> {
        let is_own = |row: &Result<Row, Fault>| match row {
            Ok((key, _)) => key.starts_with(owner.as_slice()),
            Err(_) => true,
        };
        if slots.peek().is_none_or(|row| !is_own(row)) {
            return Ok(EMPTY_ROOT_HASH);
        }
        let mut problems = Vec::new();
        let mut found = Vec::new();
        let mut sink = |path: &Path, row: &[u8]| {
            let key = [owner.as_slice(), path.as_slice()].concat();
            stored.expect(&key, row, &mut |problem| found.push(problem));
        };
        let mut builder = TrieBuilder::new(&mut sink);
        while let Some(row) = slots.next_if(is_own) {
            let (key, bytes) = row?;
            self.summary.slots += 1;
            let path = key
                .get(32..)
                .filter(|slot| slot.len() == 32)
                .and_then(Path::of_key);
            match (path, decode_value(&bytes)) {
                (Some(path), Ok(value)) => builder.add(path, encode_slot(&value)),
                (None, _) => problems.push((key, "the key is not 64 bytes")),
                (_, Err(reason)) => problems.push((key, reason)),
            }
        }
        let root = builder.finish();
        for (key, what) in problems {
            self.problem(Segment::Slots, &key, what);
        }
        for problem in found {
            self.tell(problem);
        }
        Ok(root)
    }

    /// Passes over the slots before `owner`'s: they belong to no account.
    fn stray_slots(
        &mut self,
        slots: &mut Peekable<Rows<'_>>,
        owner: Option<&B256>,
    ) -> Result<(), Fault> {
        let is_stray = |row: &Result<Row, Fault>| match (row, owner) {
            (Ok((key, _)), Some(owner)) => key[..] < owner[..],
            _ => true,
        };
        while let Some(row) = slots.next_if(is_stray) {
            let (key, _) = row?;
            self.summary.slots += 1;
            self.problem(Segment::Slots, &key, "a slot of no account");
        }
        Ok(())
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

    /// The stored rows that are left when all expected ones have come.
    fn rest(&mut self, mut stored: Stored<'_>) -> Result<(), Fault> {
        while let Some((key, _)) = stored.next() {
            self.problem(stored.segment, &key, STRAY_ROW);
        }
        self.summary.trie_rows += stored.seen;
        self.summary.problems += stored.problems;
        stored.fault.map_or(Ok(()), Err)
    }

    fn problem(&mut self, segment: Segment, key: &[u8], what: &str) {
        self.summary.problems += 1;
        self.tell(problem(segment, key, what));
    }

    fn tell(&mut self, problem: Problem) {
        (self.report)(problem);
    }
}

const STRAY_ROW: &str = "a row that nothing leads to";

fn problem(segment: Segment, key: &[u8], what: &str) -> Problem {
    Problem {
        segment: segment.name(),
        key: hex::encode(key),
        what: what.to_owned(),
    }
}

/// The rows of a trie segment in the order in which a builder makes them: children before parents.
struct Stored<'a> {
    segment: Segment,
    rows: Rows<'a>,
    /// Rows whose descendants may not all have been passed, from the top.
    open: Vec<Row>,
    /// The row read last, if it is not open yet.
    ahead: Option<Row>,
    /// A row that was given out and put back.
    next: Option<Row>,
    fault: Option<Fault>,
    seen: u64,
    problems: u64,
}

impl<'a> Stored<'a> {
    fn new(snapshot: &'a Snapshot<'a>, segment: Segment) -> Self {
        Self {
            segment,
            rows: snapshot.prefix(segment, &[]),
            open: Vec::new(),
            ahead: None,
            next: None,
            fault: None,
            seen: 0,
            problems: 0,
        }
    }

    /// Merges an expected row with the stored ones.
    fn expect(&mut self, key: &[u8], row: &[u8], report: &mut dyn FnMut(Problem)) {
        let mut tell = |stored: &mut Self, key: &[u8], what: &str| {
            stored.problems += 1;
            report(problem(stored.segment, key, what));
        };
        loop {
            let Some((stored_key, stored_row)) = self.next() else {
                return tell(self, key, "missing row");
            };
            match post_order(&stored_key, key) {
                Ordering::Less => tell(self, &stored_key, STRAY_ROW),
                Ordering::Equal if *stored_row == *row => return,
                Ordering::Equal => return tell(self, key, "the row is not what the values make"),
                Ordering::Greater => {
                    self.next = Some((stored_key, stored_row));
                    return tell(self, key, "missing row");
                }
            }
        }
    }

    /// The next stored row, children before parents. After a fault there are none.
    fn next(&mut self) -> Option<Row> {
        if let Some(row) = self.next.take() {
            return Some(row);
        }
        while self.fault.is_none() {
            if self.ahead.is_none() {
                self.ahead = self.read();
            }
            let is_below = |top: &Row, row: &Row| row.0.starts_with(&top.0);
            match (self.open.last(), self.ahead.take()) {
                (None, None) => return None,
                (Some(top), Some(row)) if !is_below(top, &row) => {
                    self.ahead = Some(row);
                    return self.open.pop();
                }
                (_, Some(row)) => self.open.push(row),
                (Some(_), None) => return self.open.pop(),
            }
        }
        None
    }

    fn read(&mut self) -> Option<Row> {
        match self.rows.next()? {
            Ok(row) => {
                self.seen += 1;
                Some(row)
            }
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }
}

/// Children before parents, else by key.
fn post_order(a: &[u8], b: &[u8]) -> Ordering {
    if a.starts_with(b) || b.starts_with(a) {
        return b.len().cmp(&a.len());
    }
    a.cmp(b)
}
