//! A state that comes from peers: flat rows first, in ranges and in any order; then all tries, once.
//!
//! ```text
//! begin: head given up --> [ StatePart, written as tables, then what remains of the key space ]* --> build --> finish: head
//!                            ^ a kill loses the parts in memory; rows beyond the marks are removed at the start
//! ```
//!
//! The flat rows are what the tries are built from, so a trie can't lack or have what they have not: if the root is the pivot's, the state
//! is. A row of `meta` says which state it is and what of it has not come; there is no row of a head meanwhile.

pub(crate) mod build;
pub(crate) mod part;
pub(crate) mod remaining;
pub(crate) mod verify;

use crate::commit::flat::account_of_row;
use crate::{BlockId, KeyRange, LargeStorage, Remaining, StateHead, StatePart, WorldState};
use alloy_rlp::{Decodable, RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Database, Segment, corrupt};
use niwaki_threads::lock;
use std::sync::Mutex;

/// The row of `meta` that exists while a state is being downloaded.
const DOWNLOAD: &[u8] = b"download";
/// The first byte of that row; raised with any change of it.
const VERSION: u8 = 1;

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
    /// Bytes of their rows.
    pub bytes: u64,
}

/// What the row says.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
struct Saved {
    number: u64,
    hash: B256,
    root: B256,
    remaining: Remaining,
    progress: DownloadProgress,
}

impl Saved {
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
        };
        let mut batch = Batch::new();
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
    for KeyRange { first, last } in &remaining.accounts {
        database.remove_range(Segment::Accounts, first.as_slice(), last.as_slice())?;
        let last = [last.as_slice(), &[0xff; 32]].concat();
        database.remove_range(Segment::Slots, first.as_slice(), &last)?;
    }
    for storage in &remaining.storages {
        for range in &storage.ranges {
            let key = |slot: &B256| [storage.account.as_slice(), slot.as_slice()].concat();
            let (first, last) = (key(&range.first), key(&range.last));
            database.remove_range(Segment::Slots, &first, &last)?;
        }
    }
    Ok(())
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
        self.database().ingest(part.into_rows())?;
        let mut batch = Batch::new();
        batch.put(Segment::Meta, DOWNLOAD, &next.to_row());
        self.database().write(batch, true)?;
        *saved = next;
        Ok(())
    }

    /// The storage of these accounts, by hashed address, comes again: it does not fit them.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn forget_storages(&self, accounts: &[B256]) -> Result<(), Fault> {
        let mut next = lock(&self.saved).clone();
        for account in accounts {
            let row = self.database().get(Segment::Accounts, account.as_slice())?;
            let Some(slim) = row else { continue };
            next.remaining.storages.push(LargeStorage {
                account: *account,
                root: account_of_row(account.as_slice(), &slim)?.storage_root,
                ranges: vec![KeyRange::WHOLE],
            });
        }
        self.forget(next)
    }

    /// Everything but the codes comes again.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn forget_all(&self) -> Result<(), Fault> {
        let mut next = lock(&self.saved).clone();
        next.remaining = Remaining::whole();
        self.forget(next)
    }

    /// First the marks: rows beyond them are removed, also at the next start.
    fn forget(&self, next: Saved) -> Result<(), Fault> {
        let mut saved = lock(&self.saved);
        let mut batch = Batch::new();
        batch.put(Segment::Meta, DOWNLOAD, &next.to_row());
        self.database().write(batch, true)?;
        remove_remaining(self.database(), &next.remaining)?;
        *saved = next;
        Ok(())
    }

    /// Makes the pivot the head, together with `batch`; durable when this returns. [`StateDownload::build`] must have ended with
    /// [`BuildEnd::Whole`](crate::BuildEnd::Whole).
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    pub fn finish(self, mut batch: Batch) -> Result<(), Fault> {
        batch.delete(Segment::Meta, DOWNLOAD);
        self.world.set_first_head(self.pivot(), batch)
    }

    fn database(&self) -> &Database {
        self.world.database()
    }
}
