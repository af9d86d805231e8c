//! RocksDB as the rest of this crate uses it: column families and one write.

use crate::batch::ChangeRef;
use crate::fault::engine_fault;
use crate::{Batch, Segment};
use niwaki_primitives::Fault;
use rocksdb::{ColumnFamily, DB, WriteBatch, WriteOptions};

/// The column family of each segment, by `segment as usize`.
type Families<'a> = [&'a ColumnFamily; Segment::ALL.len()];

/// The column family of one segment.
pub(crate) fn family(engine: &DB, segment: Segment) -> &ColumnFamily {
    engine
        .cf_handle(segment.name())
        .expect("every segment is opened with the database")
}

/// One write to the engine, collected change by change.
pub(crate) struct EngineWrite<'a> {
    engine: &'a DB,
    families: Families<'a>,
    writes: WriteBatch,
}

impl<'a> EngineWrite<'a> {
    /// An empty write with room for all changes of `batches`.
    pub(crate) fn with_room_for<'b>(
        engine: &'a DB,
        batches: impl Iterator<Item = &'b Batch>,
    ) -> Self {
        // The engine's own lengths and tags fit in 16 B a row.
        let bytes = batches.map(|batch| batch.bytes() + 16 * batch.len() + 16);
        Self {
            engine,
            families: Segment::ALL.map(|segment| family(engine, segment)),
            writes: WriteBatch::with_capacity_bytes(bytes.sum()),
        }
    }

    pub(crate) fn add(&mut self, change: ChangeRef<'_>) {
        let (segment, key, value) = change;
        let family = self.families[segment as usize];
        match value {
            Some(value) => self.writes.put_cf(family, key, value),
            None => self.writes.delete_cf(family, key),
        }
    }

    /// Writes all changes as one; with `sync` they survive a power cut when this returns.
    pub(crate) fn write(self, sync: bool) -> Result<(), Fault> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        let written = self.engine.write_opt(self.writes, &options);
        written.map_err(|error| engine_fault("write batch", "all", error.as_ref()))
    }
}

/// Writes `batch` at once, bypassing the queue.
pub(crate) fn write_now(engine: &DB, batch: &Batch) -> Result<(), Fault> {
    let mut write = EngineWrite::with_room_for(engine, std::iter::once(batch));
    batch.changes().for_each(|change| write.add(change));
    write.write(false)
}
