//! All segments as they were at one moment, for as long as anybody wants.
//!
//! A snapshot holds on to the engine, not to the database: closing the database writes what waits
//! and stops its writer, and the engine goes with the last snapshot.

use crate::pending::Stack;
use crate::read::Reader;
use crate::{Rows, Segment};
use niwaki_primitives::Fault;
use rocksdb::DB;
use std::fmt;
use std::sync::Arc;

/// All segments as they were at one moment. Cheap to clone: the clones share the moment, which is
/// given back when the last of them is dropped.
///
/// While it lives the engine keeps the rows of that moment, so what is overwritten takes room on
/// the disk until then. In memory it keeps the batches that had not reached the engine, and of all
/// snapshots together they are bounded; see [`Database::snapshot`](crate::Database::snapshot). When
/// the database is closed before it, the files stay open and the data path in use.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
}

struct Shared {
    /// What waited above the engine's moment.
    waiting: Stack,
    moment: Moment,
}

impl Snapshot {
    pub(crate) fn new(waiting: Stack, moment: Moment) -> Self {
        let shared = Arc::new(Shared { waiting, moment });
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
    pub fn range(&self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> Rows<'_> {
        self.reader().range(segment, from, to)
    }

    /// The rows whose keys begin with `prefix`, in key order.
    pub fn prefix(&self, segment: Segment, prefix: &[u8]) -> Rows<'_> {
        self.reader().prefix(segment, prefix)
    }

    fn reader(&self) -> Reader<'_, '_> {
        let Shared { waiting, moment } = &*self.shared;
        Reader {
            engine: &moment.engine,
            waiting,
            moment: Some(&moment.taken),
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("path", &self.shared.moment.engine.path())
            .field("waiting", &self.shared.waiting.len())
            .finish_non_exhaustive()
    }
}

/// A moment of the engine, which is not closed while this lives.
pub(crate) struct Moment {
    /// Given back to the engine when it is dropped, so it stands before the engine: fields are
    /// dropped in their order.
    taken: rocksdb::Snapshot<'static>,
    engine: Arc<DB>,
}

impl Moment {
    /// The present one of `engine`.
    #[expect(
        unsafe_code,
        reason = "the crate's snapshot borrows its engine; here it stands beside it"
    )]
    pub(crate) fn of(engine: &Arc<DB>) -> Self {
        let engine = Arc::clone(engine);
        // SAFETY: the reference is used by `taken` only, which never leaves this struct but behind a
        // borrow of it. The `Arc` beside keeps the engine where it is, is never taken out, and is
        // dropped after `taken`; nobody has a `&mut` to what an `Arc` that is shared points to.
        let lasting: &'static DB = unsafe { &*Arc::as_ptr(&engine) };
        let taken = lasting.snapshot();
        Self { taken, engine }
    }
}
