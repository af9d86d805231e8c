//! All segments as they were at one moment, for as long as the snapshot lives.
//!
//! A snapshot keeps the engine open, not the database: closing the database writes what is pending and
//! stops the storage writer, and the engine closes with the last snapshot.

use crate::pending::PendingBatches;
use crate::read::Reader;
use crate::{RowIter, Segment};
use niwaki_primitives::Fault;
use rocksdb::DB;
use std::fmt;
use std::sync::Arc;

/// All segments as they were at one moment. Clones are cheap and share one engine snapshot, which is
/// released when the last of them is dropped.
///
/// Until then the engine keeps rows that were overwritten since, on disk. In memory a snapshot keeps the
/// batches that were pending; for all snapshots together their bytes are bounded, see
/// [`Database::snapshot`](crate::Database::snapshot). When the database is closed first, its files stay open
/// and the data path in use.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
}

struct Shared {
    pending: PendingBatches,
    engine: EngineSnapshot,
}

impl Snapshot {
    pub(crate) fn new(pending: PendingBatches, engine: EngineSnapshot) -> Self {
        let shared = Arc::new(Shared { pending, engine });
        Self { shared }
    }

    /// The value of `key`, if there was one.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.reader().get(segment, key)
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn multi_get(
        &self,
        segment: Segment,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        self.reader().multi_get(segment, keys)
    }

    /// The rows with keys from `from` on, in key order, up to and without `to`.
    pub fn range(&self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> RowIter<'_> {
        self.reader().range(segment, from, to)
    }

    /// The rows whose keys begin with `prefix`, in key order.
    pub fn prefix(&self, segment: Segment, prefix: &[u8]) -> RowIter<'_> {
        self.reader().prefix(segment, prefix)
    }

    fn reader(&self) -> Reader<'_, '_> {
        let Shared { pending, engine } = &*self.shared;
        Reader {
            engine: &engine.engine,
            pending,
            snapshot: Some(&engine.snapshot),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("path", &self.shared.engine.engine.path())
            .field("pending", &self.shared.pending.len())
            .finish_non_exhaustive()
    }
}

/// A snapshot of the engine, which stays open while this lives.
pub(crate) struct EngineSnapshot {
    /// Released to the engine when it is dropped, so it is declared before the engine: fields are dropped
    /// in order of declaration.
    snapshot: rocksdb::Snapshot<'static>,
    engine: Arc<DB>,
}

impl EngineSnapshot {
    /// The present state of `engine`.
    #[expect(
        unsafe_code,
        reason = "the crate's snapshot borrows its engine; here one struct owns both"
    )]
    pub(crate) fn new(engine: &Arc<DB>) -> Self {
        let engine = Arc::clone(engine);
        // SAFETY: the reference is used by `snapshot` only, which never leaves this struct but behind a
        // borrow of it. The `Arc` next to it keeps the engine at its address, is never moved out, and is
        // dropped after `snapshot`; no `&mut` to the target of a shared `Arc` exists.
        let lasting: &'static DB = unsafe { &*Arc::as_ptr(&engine) };
        let snapshot = lasting.snapshot();
        Self { snapshot, engine }
    }
}
