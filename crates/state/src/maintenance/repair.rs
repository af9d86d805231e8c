//! Repair of a damaged state: tries and storage roots are built again from the flat values.
//!
//! Leaves are stored once, as flat values, so these must be correct. The first pass over the state computes the root
//! that accounts and slots have; if it is not the head's, the state is refused and nothing is written. The second pass
//! builds all tries again and writes the rows that differ. Every row that is written is correct by itself, so a
//! repair that is interrupted has made nothing worse, and the next one continues.
//!
//! ```text
//! pass 1  accounts, slots --TrieBuilder--> root == head's?   no: RepairError::Flat, with what is damaged
//! pass 2  accounts, slots --TrieBuilder--> rows, merged with the stored rows --> puts and deletes
//! ```

use super::check::stored::StoredRows;
use super::check::{Problem, differing_root};
use super::scan::{ScanVisitor, ScannedAccount, scan_accounts};
use crate::WorldState;
use crate::commit::flat::encode_account;
use crate::tries::disk_trie::row_key;
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Database, Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, TrieBuilder};
use std::cell::RefCell;

/// Problems that a refusal lists at most.
const MAX_PROBLEMS: usize = 100;

/// What a repair has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairSummary {
    /// Accounts whose storage root was not that of their slots.
    pub accounts: u64,
    /// Slots of no account, removed.
    pub slots: u64,
    /// Trie rows that were written or removed.
    pub trie_rows: u64,
}

/// Why a state was not repaired.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// The flat values are not those of the head. Nothing was written.
    #[error(
        "the accounts and slots have state root {got}, the head says {expected}; flat values can't \
         be rebuilt from a trie, whose leaves they are"
    )]
    Flat {
        /// Computed.
        got: B256,
        /// By the head.
        expected: B256,
        /// What is known to be damaged; empty if that is unknown.
        damaged: Vec<Problem>,
    },
    /// The progress callback returned `false`. What was written is correct by itself.
    #[error("stopped on request")]
    Stopped,
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Called with how many of how many parts are done; `false` stops.
pub type RepairProgress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Parts of a pass, by the first two bytes of its keys.
const PARTS: u64 = 1 << 16;
const PASSES: u64 = 2;

/// How far a pass over the state is.
struct ScanProgress<'a, 'b> {
    pass: u64,
    rows: u64,
    report: &'a mut RepairProgress<'b>,
}

impl ScanProgress<'_, '_> {
    /// Counts the row of `key`, and reports every 1024th; `false` if the callback stops the repair.
    fn count_row(&mut self, key: &[u8]) -> bool {
        let is_due = self.rows.is_multiple_of(1024);
        self.rows += 1;
        let part = key
            .first_chunk()
            .map_or(0, |part| u64::from(u16::from_be_bytes(*part)));
        !is_due || (self.report)(self.pass * PARTS + part, PASSES * PARTS)
    }
}

impl WorldState {
    /// Builds the tries and the storage roots of accounts again from the flat values, if these have the head's state
    /// root. Reads the whole state twice. Caches do not follow: nothing may have been read from this state
    /// before, and it must be opened again afterwards.
    ///
    /// # Errors
    /// [`RepairError`].
    pub fn repair(&self, report: &mut RepairProgress<'_>) -> Result<RepairSummary, RepairError> {
        let view = self.view_at_head()?;
        let (snapshot, expected) = (&view.snapshot, view.head.root);
        let mut progress = ScanProgress {
            pass: 0,
            rows: 0,
            report,
        };
        verify_flat_values(snapshot, &mut progress, expected)?;
        progress.pass += 1;
        let writer = RefCell::new(RepairWriter {
            database: self.database(),
            batch: Batch::new(),
            summary: RepairSummary::default(),
            fault: None,
        });
        rebuild_tries(snapshot, &mut progress, &writer)?;
        writer.into_inner().finish()
    }
}

/// The first pass: computes the state root twice, with the storage roots that the slots have and with those that the
/// accounts say.
struct Verification<'a, 'p, 'r> {
    progress: &'a mut ScanProgress<'p, 'r>,
    by_slots: TrieBuilder<'a>,
    as_stored: TrieBuilder<'a>,
    damaged: Vec<Problem>,
    /// Accounts whose storage root is not that of their slots.
    differing: Vec<Problem>,
}

impl ScanVisitor for Verification<'_, '_, '_> {
    fn row(&mut self, _: Segment, key: &[u8]) -> bool {
        self.progress.count_row(key)
    }

    fn trie_row(&mut self, _: &B256, _: &Path, _: &[u8]) {}

    fn stray_slot(&mut self, _: &[u8]) {}

    fn damaged(&mut self, problem: Problem) {
        if self.damaged.len() < MAX_PROBLEMS {
            self.damaged.push(problem);
        }
    }

    fn account(&mut self, scanned: ScannedAccount) -> Result<(), Fault> {
        let ScannedAccount { key, account, root } = scanned;
        let path = Path::of_hash(&key);
        if root != account.storage_root && self.differing.len() < MAX_PROBLEMS {
            let what = differing_root(&account, &root);
            self.differing
                .push(Problem::new(Segment::Slots, key.as_slice(), what));
        }
        self.as_stored.add(path, account.to_leaf());
        let storage_root = root;
        let by_slots = TrieAccount {
            storage_root,
            ..account
        };
        self.by_slots.add(path, by_slots.to_leaf());
        Ok(())
    }
}

/// Refuses flat values that are not those of the head. Slots of no account do not count, and where an account says
/// another storage root than its slots have, the account is taken to be wrong.
fn verify_flat_values(
    snapshot: &Snapshot,
    progress: &mut ScanProgress<'_, '_>,
    expected: B256,
) -> Result<(), RepairError> {
    let (mut no_rows, mut no_rows_either) = (|_: &Path, _: &[u8]| {}, |_: &Path, _: &[u8]| {});
    let mut verification = Verification {
        progress,
        by_slots: TrieBuilder::new(&mut no_rows),
        as_stored: TrieBuilder::new(&mut no_rows_either),
        damaged: Vec::new(),
        differing: Vec::new(),
    };
    if !scan_accounts(snapshot, &mut verification)? {
        return Err(RepairError::Stopped);
    }
    let Verification {
        by_slots,
        as_stored,
        mut damaged,
        differing,
        ..
    } = verification;
    let got = by_slots.finish();
    if got == expected && damaged.is_empty() {
        return Ok(());
    }
    // If the accounts are correct as they are stored, then it is their slots that are damaged.
    if as_stored.finish() == expected {
        damaged.extend(differing);
    }
    Err(RepairError::Flat {
        got,
        expected,
        damaged,
    })
}

/// The second pass: merges the rows of the tries that are built again with the stored ones.
struct Rebuild<'a, 'p, 'r, 'w> {
    progress: &'a mut ScanProgress<'p, 'r>,
    writer: &'a RefCell<RepairWriter<'w>>,
    storage_rows: StoredRows<'a>,
    /// Builds the account trie, whose rows are merged in its sink.
    accounts: TrieBuilder<'a>,
}

impl ScanVisitor for Rebuild<'_, '_, '_, '_> {
    fn row(&mut self, _: Segment, key: &[u8]) -> bool {
        self.progress.count_row(key)
    }

    fn trie_row(&mut self, owner: &B256, path: &Path, row: &[u8]) {
        let owner = Some(*owner);
        let (segment, key) = row_key(&owner, path);
        self.storage_rows
            .expect(&key.concat(), row, &mut |key, row, _| {
                self.writer.borrow_mut().trie_row(segment, key, row);
            });
    }

    fn stray_slot(&mut self, key: &[u8]) {
        self.writer.borrow_mut().remove_slot(key);
    }

    fn damaged(&mut self, _: Problem) {}

    fn account(&mut self, scanned: ScannedAccount) -> Result<(), Fault> {
        let ScannedAccount { key, account, root } = scanned;
        let storage_root = root;
        let correct = TrieAccount {
            storage_root,
            ..account
        };
        if correct != account {
            self.writer.borrow_mut().account(&key, &correct);
        }
        self.accounts.add(Path::of_hash(&key), correct.to_leaf());
        Ok(())
    }
}

fn rebuild_tries(
    snapshot: &Snapshot,
    progress: &mut ScanProgress<'_, '_>,
    writer: &RefCell<RepairWriter<'_>>,
) -> Result<(), RepairError> {
    let mut account_rows = StoredRows::new(snapshot, Segment::AccountTrie);
    let mut sink = |path: &Path, row: &[u8]| {
        account_rows.expect(path.as_slice(), row, &mut |key, row, _| {
            writer.borrow_mut().trie_row(Segment::AccountTrie, key, row);
        });
    };
    let storage_rows = {
        let mut rebuild = Rebuild {
            progress,
            writer,
            storage_rows: StoredRows::new(snapshot, Segment::StorageTrie),
            accounts: TrieBuilder::new(&mut sink),
        };
        if !scan_accounts(snapshot, &mut rebuild)? {
            return Err(RepairError::Stopped);
        }
        rebuild.accounts.finish();
        rebuild.storage_rows
    };
    let mut writer = writer.borrow_mut();
    storage_rows.rest(&mut |key, row, _| writer.trie_row(Segment::StorageTrie, key, row))?;
    account_rows.rest(&mut |key, row, _| writer.trie_row(Segment::AccountTrie, key, row))?;
    Ok(())
}

/// Writes what differs.
struct RepairWriter<'a> {
    database: &'a Database,
    batch: Batch,
    summary: RepairSummary,
    /// The first failure of a write.
    fault: Option<Fault>,
}

impl RepairWriter<'_> {
    /// `None` removes the row.
    fn trie_row(&mut self, segment: Segment, key: &[u8], row: Option<&[u8]>) {
        self.summary.trie_rows += 1;
        match row {
            Some(row) => self.batch.put(segment, key, row),
            None => self.batch.delete(segment, key),
        }
        self.write_if_large();
    }

    fn remove_slot(&mut self, key: &[u8]) {
        self.summary.slots += 1;
        self.batch.delete(Segment::Slots, key);
        self.write_if_large();
    }

    fn account(&mut self, key: &B256, correct: &TrieAccount) {
        self.summary.accounts += 1;
        let slim = encode_account(correct);
        self.batch.put(Segment::Accounts, key.as_slice(), &slim);
        self.write_if_large();
    }

    /// Batches may be written one by one, because each row is correct by itself.
    fn write_if_large(&mut self) {
        match self.fault {
            None => self.fault = self.database.write_if_large(&mut self.batch).err(),
            Some(_) => self.batch.clear(),
        }
    }

    fn finish(self) -> Result<RepairSummary, RepairError> {
        self.fault.map_or(Ok(()), Err)?;
        self.database.write(self.batch, true)?;
        Ok(self.summary)
    }
}
