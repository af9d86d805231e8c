//! What can be made anew of a damaged state: tries and storage roots from flat values.
//!
//! Leaves are stored once, as flat values, so these must be right: nothing is written unless the
//! accounts and slots have the state root of the head. What is written then is only what differs,
//! row by row from the values, so that a repair that is cut short has made nothing worse and the
//! next one goes on.

use crate::WorldState;
use crate::check::stored::Stored;
use crate::check::{Problem, problem};
use crate::disk_trie::row_key;
use crate::flat::{decode_account, decode_value, encode_account};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_storage::{Batch, Database, Row, Rows, Segment, Snapshot};
use niwaki_trie::{Path, TrieAccount, TrieBuilder, encode_slot};
use std::iter::Peekable;

/// Batches are written when they have grown to this.
const BATCH_BYTES: usize = 16 << 20;

/// Most problems that a refusal lists.
const LISTED: usize = 100;

/// What was made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateRepair {
    /// Accounts whose storage root was not that of their slots.
    pub accounts: u64,
    /// Slots of no account, removed.
    pub slots: u64,
    /// Rows of tries that were written or removed.
    pub trie_rows: u64,
}

/// Why a state was not repaired. Nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// The flat values are not those of the head.
    #[error(
        "the accounts and slots have state root {got}, the head says {expected}; flat values can't \
         be made anew from a trie, whose leaves they are"
    )]
    Flat {
        /// Computed.
        got: B256,
        /// By the head.
        expected: B256,
        /// What is known to be damaged; empty if it can't be told.
        damaged: Vec<Problem>,
    },
    /// Whoever was told of the progress asked to stop. What was written is right by itself.
    #[error("stopped on request")]
    Stopped,
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Told how many of how many parts are done; `false` stops.
pub type RepairReport<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Parts of a pass, by the first two bytes of its keys.
const PARTS: u64 = 1 << 16;
const PASSES: u64 = 2;

/// How far a pass over the state is.
struct Pace<'a, 'b> {
    pass: u64,
    rows: u64,
    report: &'a mut RepairReport<'b>,
}

impl Pace<'_, '_> {
    /// Counts the row of `key`.
    fn row(&mut self, key: &[u8]) -> Result<(), RepairError> {
        let is_due = self.rows.is_multiple_of(1024);
        self.rows += 1;
        if !is_due {
            return Ok(());
        }
        let part = key
            .first_chunk()
            .map_or(0, |part| u64::from(u16::from_be_bytes(*part)));
        match (self.report)(self.pass * PARTS + part, PASSES * PARTS) {
            true => Ok(()),
            false => Err(RepairError::Stopped),
        }
    }
}

impl WorldState {
    /// Makes the tries, and the storage roots of accounts, anew from the flat values if these have
    /// the head's state root. Reads all of the state twice. Caches do not follow: nothing may have
    /// been read from this state before, and it is opened anew afterwards.
    ///
    /// # Errors
    /// [`RepairError`].
    pub fn repair(&self, report: &mut RepairReport<'_>) -> Result<StateRepair, RepairError> {
        let view = self.view_at_head()?;
        let (snapshot, expected) = (view.snapshot(), view.head().root);
        let mut pace = Pace {
            pass: 0,
            rows: 0,
            report,
        };
        judge((snapshot, &mut pace), expected)?;
        pace.pass += 1;
        let mut mend = Mend {
            database: self.database(),
            batch: Batch::new(),
            repair: StateRepair::default(),
            fault: None,
        };
        mend.run(snapshot, &mut pace)?;
        Ok(mend.repair)
    }
}

/// An account as it is stored, with what its slots say.
struct Walked {
    key: B256,
    account: TrieAccount,
    /// Of its slots.
    root: B256,
}

/// Goes through all accounts with their slots. Each trie row that the slots make goes to `rows`, each
/// slot of no account to `stray`, each flat row that can't be read to `bad`.
fn walk(
    (snapshot, pace): (&Snapshot, &mut Pace<'_, '_>),
    rows: &mut dyn FnMut(&B256, &Path, &[u8]),
    stray: &mut dyn FnMut(&[u8]),
    bad: &mut dyn FnMut(Problem),
    each: &mut dyn FnMut(Walked),
) -> Result<(), RepairError> {
    let mut slots = snapshot.prefix(Segment::Slots, &[]).peekable();
    for row in snapshot.prefix(Segment::Accounts, &[]) {
        let (key, slim) = row?;
        let Ok(owner) = B256::try_from(&key[..]) else {
            bad(problem(Segment::Accounts, &key, "the key is not 32 bytes"));
            continue;
        };
        pace.row(&key)?;
        pass_over(&mut slots, |slot| slot < owner.as_slice(), stray)?;
        let root = storage_root(&owner, (&mut slots, pace), rows, bad)?;
        match decode_account(&slim) {
            Ok(account) => each(Walked {
                key: owner,
                account,
                root,
            }),
            Err(error) => {
                let what = format!("not an account: {error}");
                bad(problem(Segment::Accounts, &key, &what));
            }
        }
    }
    Ok(pass_over(&mut slots, |_| true, stray)?)
}

fn pass_over(
    slots: &mut Peekable<Rows<'_>>,
    is_stray: impl Fn(&[u8]) -> bool,
    stray: &mut dyn FnMut(&[u8]),
) -> Result<(), Fault> {
    let is_stray = |row: &Result<Row, Fault>| row.as_ref().map_or(true, |(key, _)| is_stray(key));
    while let Some(row) = slots.next_if(is_stray) {
        stray(&row?.0);
    }
    Ok(())
}

fn storage_root(
    owner: &B256,
    (slots, pace): (&mut Peekable<Rows<'_>>, &mut Pace<'_, '_>),
    rows: &mut dyn FnMut(&B256, &Path, &[u8]),
    bad: &mut dyn FnMut(Problem),
) -> Result<B256, RepairError> {
    let is_own = |row: &Result<Row, Fault>| match row {
        Ok((key, _)) => key.starts_with(owner.as_slice()),
        Err(_) => true,
    };
    if slots.peek().is_none_or(|row| !is_own(row)) {
        return Ok(EMPTY_ROOT_HASH);
    }
    let mut sink = |path: &Path, row: &[u8]| rows(owner, path, row);
    let mut builder = TrieBuilder::new(&mut sink);
    while let Some(row) = slots.next_if(is_own) {
        let (key, bytes) = row?;
        pace.row(&key)?;
        let slot = key.get(32..).filter(|slot| slot.len() == 32);
        match (slot.and_then(Path::of_key), decode_value(&bytes)) {
            (Some(path), Ok(value)) => builder.add(path, encode_slot(&value)),
            (None, _) => bad(problem(Segment::Slots, &key, "the key is not 64 bytes")),
            (_, Err(reason)) => bad(problem(Segment::Slots, &key, reason)),
        }
    }
    Ok(builder.finish())
}

/// Whether the flat values are those of the head. Slots of no account do not count, and the storage
/// roots that accounts give are held to be wrong where the slots give others.
fn judge(
    (snapshot, pace): (&Snapshot, &mut Pace<'_, '_>),
    expected: B256,
) -> Result<(), RepairError> {
    let (mut damaged, mut differing) = (Vec::new(), Vec::new());
    let (mut no_rows, mut no_rows_either) = (|_: &Path, _: &[u8]| {}, |_: &Path, _: &[u8]| {});
    let mut by_slots = TrieBuilder::new(&mut no_rows);
    let mut as_stored = TrieBuilder::new(&mut no_rows_either);
    walk(
        (snapshot, pace),
        &mut |_, _, _| {},
        &mut |_| {},
        &mut |problem| {
            if damaged.len() < LISTED {
                damaged.push(problem);
            }
        },
        &mut |Walked { key, account, root }| {
            let path = Path::of_hash(&key);
            if root != account.storage_root && differing.len() < LISTED {
                let what = format!(
                    "its slots have root {root}, the account says {}",
                    account.storage_root
                );
                differing.push(problem(Segment::Slots, key.as_slice(), &what));
            }
            as_stored.add(path, account.to_leaf());
            let storage_root = root;
            by_slots.add(
                path,
                TrieAccount {
                    storage_root,
                    ..account
                }
                .to_leaf(),
            );
        },
    )?;
    let got = by_slots.finish();
    if got == expected && damaged.is_empty() {
        return Ok(());
    }
    // The accounts are right as they stand: then it is their slots that are not.
    if as_stored.finish() == expected {
        damaged.extend(differing);
    }
    Err(RepairError::Flat {
        got,
        expected,
        damaged,
    })
}

/// The second pass, which writes.
struct Mend<'a> {
    database: &'a Database,
    batch: Batch,
    repair: StateRepair,
    fault: Option<Fault>,
}

impl Mend<'_> {
    fn run(&mut self, snapshot: &Snapshot, pace: &mut Pace<'_, '_>) -> Result<(), RepairError> {
        let this = std::cell::RefCell::new(self);
        let storage = std::cell::RefCell::new(Stored::new(snapshot, Segment::StorageTrie));
        let mut accounts = Stored::new(snapshot, Segment::AccountTrie);
        let mut sink = |path: &Path, row: &[u8]| {
            accounts.expect(path.as_slice(), row, &mut |key, row, _| {
                this.borrow_mut().trie_row(Segment::AccountTrie, key, row);
            });
        };
        let mut builder = TrieBuilder::new(&mut sink);
        walk(
            (snapshot, pace),
            &mut |owner, path, row| {
                let owner = Some(*owner);
                let (segment, key) = row_key(&owner, path);
                let key = key.concat();
                storage.borrow_mut().expect(&key, row, &mut |key, row, _| {
                    this.borrow_mut().trie_row(segment, key, row);
                });
            },
            &mut |slot| this.borrow_mut().stray_slot(slot),
            &mut |_| {},
            &mut |Walked { key, account, root }| {
                let storage_root = root;
                let right = TrieAccount {
                    storage_root,
                    ..account
                };
                if right != account {
                    this.borrow_mut().account(&key, &right);
                }
                builder.add(Path::of_hash(&key), right.to_leaf());
            },
        )?;
        builder.finish();
        let this = this.into_inner();
        storage.into_inner().rest(&mut |key, row, _| {
            this.trie_row(Segment::StorageTrie, key, row);
        })?;
        accounts.rest(&mut |key, row, _| this.trie_row(Segment::AccountTrie, key, row))?;
        this.fault.take().map_or(Ok(()), Err)?;
        Ok(this.database.write(std::mem::take(&mut this.batch), true)?)
    }

    fn trie_row(&mut self, segment: Segment, key: &[u8], row: Option<&[u8]>) {
        self.repair.trie_rows += 1;
        match row {
            Some(row) => self.batch.put(segment, key, row),
            None => self.batch.delete(segment, key),
        }
        self.write_if_large();
    }

    fn stray_slot(&mut self, key: &[u8]) {
        self.repair.slots += 1;
        self.batch.delete(Segment::Slots, key);
        self.write_if_large();
    }

    fn account(&mut self, key: &B256, right: &TrieAccount) {
        self.repair.accounts += 1;
        let slim = encode_account(right);
        self.batch.put(Segment::Accounts, key.as_slice(), &slim);
        self.write_if_large();
    }

    /// Any part of what is to be written is right by itself.
    fn write_if_large(&mut self) {
        if self.batch.bytes() >= BATCH_BYTES {
            if self.fault.is_none() {
                self.fault = self
                    .database
                    .write(std::mem::take(&mut self.batch), false)
                    .err();
            }
            self.batch.clear();
        }
    }
}
