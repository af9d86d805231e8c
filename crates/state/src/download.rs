//! A state that comes from peers, in ranges and in any order, each with the trie nodes between its ends; the others are made in the end.
//!
//! ```text
//! begin: head given up --> [ StatePart, written as tables, then what remains of the key space ]*  --> complete the tries
//!                            ^ a kill loses the parts in memory; rows beyond the marks are           --> changes of the lists
//!                              removed at the start                                                  --> heal --> finish: head
//!                            ^ between two parts the pivot may move: what block access lists
//!                              change of the rows that are here is kept until the end
//! ```
//!
//! Trie rows and flat rows come together and fit each other, of whichever pivot a range is. So if the root is the pivot's, the state is.
//! If it is not, since parts are of several pivots, healing finds what differs. Rows of `meta` say which state it is and what of it has
//! not come; there is no row of a head meanwhile.

mod changes;
pub(crate) mod complete;
pub(crate) mod heal;
pub(crate) mod part;
mod pivot;
pub(crate) mod remaining;
pub(crate) mod verify;

use crate::commit::flat::account_of_row;
use crate::{BlockId, Remaining, StateHead, StatePart, WorldState};
use alloy_rlp::{Decodable, RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Database, Segment, corrupt};
use niwaki_threads::lock;
use niwaki_trie::TrieAccount;
use std::sync::Mutex;

/// The row of `meta` that exists while a state is being downloaded; the keys of the others begin with it.
const DOWNLOAD: &[u8] = b"download";
/// The first byte of that row; raised with any change of it or of the others.
const VERSION: u8 = 4;
/// With the hashed address of an account: its storage came in ranges.
const IN_RANGES: &[u8] = b"download/ranges/";

/// Bounds of what is collected before it is written.
const MIN_PART_BYTES: usize = 4 << 20;
const MAX_PART_BYTES: usize = 16 << 20;

/// The storage root of an account whose storage is coming while the pivot moves.
pub const UNKNOWN_STORAGE_ROOT: B256 = B256::ZERO;

/// The segments of a state, but for codes, which are of no state.
const STATE_SEGMENTS: [Segment; 5] = [
    Segment::Accounts,
    Segment::Slots,
    Segment::AccountTrie,
    Segment::StorageTrie,
    Segment::TrieLogs,
];

/// How much has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub struct DownloadProgress {
    /// Accounts.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Codes.
    pub codes: u64,
    /// Bytes of their rows, without trie nodes.
    pub bytes: u64,
}

impl DownloadProgress {
    fn add(&mut self, other: &Self) {
        self.accounts += other.accounts;
        self.slots += other.slots;
        self.codes += other.codes;
        self.bytes += other.bytes;
    }
}

/// What the row says.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
struct Saved {
    number: u64,
    hash: B256,
    root: B256,
    remaining: Remaining,
    progress: DownloadProgress,
    /// The root of the tries, or zero while they are not whole.
    own_root: B256,
}

impl Saved {
    fn set_pivot(&mut self, pivot: StateHead) {
        (self.number, self.hash, self.root) = (pivot.block.number, pivot.block.hash, pivot.root);
    }

    fn to_row(&self) -> Vec<u8> {
        let mut row = vec![VERSION];
        alloy_rlp::Encodable::encode(self, &mut row);
        row
    }

    fn read(database: &Database) -> Result<Option<Self>, Fault> {
        let Some(row) = database.get(Segment::Meta, DOWNLOAD)? else {
            return Ok(None);
        };
        let decoded = match row.split_first() {
            Some((&VERSION, mut rest)) => Self::decode(&mut rest).ok().filter(|_| rest.is_empty()),
            _ => None,
        };
        let reason = "it is not of this version; begin the sync again with an empty data path";
        decoded
            .map(Some)
            .ok_or_else(|| corrupt(Segment::Meta, DOWNLOAD, reason))
    }
}

/// A download in progress. Any thread may write parts.
#[derive(Debug)]
pub struct StateDownload<'w> {
    world: &'w WorldState,
    saved: Mutex<Saved>,
}

impl WorldState {
    /// Gives the present state up for that of `pivot`, of which nothing is here yet. There is no head until
    /// [`StateDownload::finish`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If this is an archive, which keeps the state of each block.
    pub fn begin_download(&self, pivot: StateHead) -> Result<StateDownload<'_>, Fault> {
        assert!(
            !self.is_archive(),
            "an archive keeps the state of each block"
        );
        let saved = Saved {
            number: pivot.block.number,
            hash: pivot.block.hash,
            root: pivot.root,
            remaining: Remaining::whole(),
            progress: DownloadProgress::default(),
            own_root: B256::ZERO,
        };
        let mut batch = rows_removed(self.database())?;
        batch.put(Segment::Meta, DOWNLOAD, &saved.to_row());
        self.drop_head(batch)?;
        self.download_of(saved)
    }

    /// The download that an earlier process has left, without what it had not marked as done.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn resume_download(&self) -> Result<Option<StateDownload<'_>>, Fault> {
        match Saved::read(self.database())? {
            Some(saved) => self.download_of(saved).map(Some),
            None => Ok(None),
        }
    }

    /// Whether there is a download that was begun and not finished.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn has_download(&self) -> Result<bool, Fault> {
        Ok(self.database().get(Segment::Meta, DOWNLOAD)?.is_some())
    }

    fn download_of(&self, saved: Saved) -> Result<StateDownload<'_>, Fault> {
        let database = self.database();
        database.remove_staging_dir()?;
        if saved.remaining == Remaining::whole() {
            let mut segments = STATE_SEGMENTS.into_iter();
            segments.try_for_each(|segment| database.clear(segment))?;
        }
        remove_remaining(database, &saved.remaining)?;
        Ok(StateDownload {
            world: self,
            saved: Mutex::new(saved),
        })
    }
}

/// Removes the rows of what has not come: they may be of another state by the time they come again.
fn remove_remaining(database: &Database, remaining: &Remaining) -> Result<(), Fault> {
    for range in &remaining.accounts {
        let (first, last) = (range.first.as_slice(), range.last.as_slice());
        database.remove_range(Segment::Accounts, first, last)?;
        let last = [last, &[0xff; 32]].concat();
        database.remove_range(Segment::Slots, first, &last)?;
        database.remove_range(Segment::StorageTrie, first, &last)?;
        let (first, last) = range.paths();
        database.remove_range(Segment::AccountTrie, first.as_slice(), last.as_slice())?;
    }
    for storage in &remaining.storages {
        let of_account = |key: &[u8]| [storage.account.as_slice(), key].concat();
        for range in &storage.ranges {
            let (first, last) = (of_account(&range.first[..]), of_account(&range.last[..]));
            database.remove_range(Segment::Slots, &first, &last)?;
            let (first, last) = range.paths();
            let (first, last) = (of_account(first.as_slice()), of_account(last.as_slice()));
            database.remove_range(Segment::StorageTrie, &first, &last)?;
        }
    }
    Ok(())
}

/// The removal of all rows of a download that say something of it.
fn rows_removed(database: &Database) -> Result<Batch, Fault> {
    let mut batch = Batch::new();
    for row in database.prefix(Segment::Meta, DOWNLOAD) {
        batch.delete(Segment::Meta, &row?.0);
    }
    Ok(batch)
}

impl StateDownload<'_> {
    /// The block whose state it is.
    pub fn pivot(&self) -> StateHead {
        let saved = lock(&self.saved);
        StateHead {
            block: BlockId {
                number: saved.number,
                hash: saved.hash,
            },
            root: saved.root,
        }
    }

    /// What has not come.
    pub fn remaining(&self) -> Remaining {
        lock(&self.saved).remaining.clone()
    }

    /// Bytes from which on a part should be written where so many are collected at the same time: together half of the storage's budget,
    /// but each large enough for tables that are worth their files.
    pub fn part_bytes(&self, parts: usize) -> usize {
        let all = self.database().memory_budget_bytes() / 2;
        (all / parts.max(1)).clamp(MIN_PART_BYTES, MAX_PART_BYTES)
    }

    /// How much has come.
    pub fn progress(&self) -> DownloadProgress {
        lock(&self.saved).progress
    }

    /// Of these codes those that are not here.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn missing_codes(&self, hashes: &[B256]) -> Result<Vec<B256>, Fault> {
        let mut missing = Vec::new();
        for hash in hashes {
            let row = self.database().get(Segment::Code, hash.as_slice())?;
            if row.is_none() {
                missing.push(*hash);
            }
        }
        Ok(missing)
    }

    /// Writes a part: its rows first, then what remains without it. Both are durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn write(&self, part: StatePart) -> Result<(), Fault> {
        // The lock is held: tables are ingested one at a time, and the marks follow their rows.
        let mut saved = lock(&self.saved);
        let mut next = saved.clone();
        part.mark(&mut next.remaining, &mut next.progress);
        let mut batch = Batch::new();
        for account in part.in_ranges() {
            batch.put_parts(Segment::Meta, &[IN_RANGES, account.as_slice()], &[]);
        }
        let (rows, cuts) = part.into_tables();
        self.database().ingest_cut(rows, &cuts)?;
        batch.put(Segment::Meta, DOWNLOAD, &next.to_row());
        self.database().write(batch, true)?;
        *saved = next;
        Ok(())
    }

    /// Goes on with the state of another block, whichever, as it is: what has come is healed in the end.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then the pivot is the old one.
    pub fn replace_pivot(&self, pivot: StateHead) -> Result<(), Fault> {
        self.change(Batch::new(), |saved| {
            saved.set_pivot(pivot);
            let storages = saved.remaining.storages.iter_mut();
            storages.for_each(|storage| storage.root = UNKNOWN_STORAGE_ROOT);
        })
    }

    /// The root of the tries; `None` before they are whole.
    pub fn own_root(&self) -> Option<B256> {
        let root = lock(&self.saved).own_root;
        (!root.is_zero()).then_some(root)
    }

    /// The tries have this root and fit the flat rows once `rows` are written, or before.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    fn set_own_root(&self, root: B256, rows: Batch) -> Result<(), Fault> {
        self.change(rows, |saved| saved.own_root = root)
    }

    /// Writes rows with what changes of the download's own row.
    fn change(&self, mut rows: Batch, change: impl FnOnce(&mut Saved)) -> Result<(), Fault> {
        let mut saved = lock(&self.saved);
        let mut next = saved.clone();
        change(&mut next);
        rows.put(Segment::Meta, DOWNLOAD, &next.to_row());
        self.database().write(rows, true)?;
        *saved = next;
        Ok(())
    }

    /// The account that is here.
    fn account(&self, key: &B256) -> Result<Option<TrieAccount>, Fault> {
        let row = self.database().get(Segment::Accounts, key.as_slice())?;
        let account = row.map(|slim| account_of_row(key.as_slice(), &slim));
        account.transpose()
    }

    /// Makes the pivot the head, together with `batch`; durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    ///
    /// # Panics
    /// If the tries do not have the pivot's root.
    pub fn finish(self, mut batch: Batch) -> Result<(), Fault> {
        let pivot = self.pivot();
        assert_eq!(
            self.own_root(),
            Some(pivot.root),
            "the tries are the pivot's"
        );
        batch.append(rows_removed(self.database())?);
        self.world.set_first_head(pivot, batch)
    }

    fn database(&self) -> &Database {
        self.world.database()
    }
}
