//! The database: opened, read, written, synced.

use crate::engine::{family, write_now};
use crate::fault::engine_fault;
use crate::format_file::{claim, engine_dir};
use crate::ingest::staging_dir;
use crate::options::EngineOptions;
use crate::pending::PendingBatches;
use crate::queue::Queue;
use crate::read::Reader;
use crate::snapshot::EngineSnapshot;
use crate::{Batch, DeferredRows, Options, RowIter, SCHEMA_VERSION, Segment, Snapshot, SyncPolicy};
use niwaki_primitives::Fault;
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Env};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a database did not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "the data path {path} is in use by another process; stop that process or choose \
         another --data-path"
    )]
    InUse {
        /// The data path.
        path: String,
    },
    /// It was written by another version.
    #[error(
        "the data path {path} has schema {found}, this program knows schema {SCHEMA_VERSION}; \
         use the version of niwaki that wrote it, or an empty data path"
    )]
    OtherSchema {
        /// The data path.
        path: String,
        /// The schema it has.
        found: u32,
    },
    /// The path holds something else.
    #[error("the data path {path} is not a niwaki data path: {reason}; choose an empty one")]
    NotOurs {
        /// The data path.
        path: String,
        /// What is there instead.
        reason: &'static str,
    },
    /// The disk or the engine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// An open database. Dropping it writes what is pending to the disk and closes it; call [`Database::sync`]
/// first to learn of a failure. Its files stay open, and the data path in use, until the last [`Snapshot`]
/// of it is dropped too.
pub struct Database {
    /// `None` for a database in memory, which is written at once. Declared before the engine, so that it is
    /// dropped first, which writes what is pending.
    queue: Option<Queue>,
    pub(crate) engine: Arc<DB>,
    sync: SyncPolicy,
    memory_budget_bytes: usize,
    pub(crate) options: EngineOptions,
    /// The folder for files that are not part of the database yet; `None` for a database in memory.
    pub(crate) staging: Option<PathBuf>,
}

impl Database {
    /// Opens the database in `data_path`, or creates it if the path is empty or absent.
    ///
    /// # Errors
    /// [`OpenError`]: in use, of another schema, not ours, or a failing disk.
    pub fn open(data_path: &Path, options: &Options) -> Result<Self, OpenError> {
        claim(data_path)?;
        let engine_options = EngineOptions::on_disk(options);
        let engine = Self::engine(&engine_dir(data_path), &engine_options).map_err(|error| {
            let message = error.to_string();
            // The message of a disk that can't be written names the LOCK file too.
            let is_held = message.contains("hold") || message.contains("temporarily unavailable");
            if message.contains("LOCK") && is_held {
                let path = data_path.display().to_string();
                return OpenError::InUse { path };
            }
            OpenError::Fault(engine_fault("open", "all", &message))
        })?;
        let engine = Arc::new(engine);
        Ok(Self {
            queue: Some(Queue::new(
                Arc::clone(&engine),
                options.max_pending_bytes(),
            )?),
            engine,
            sync: options.sync,
            memory_budget_bytes: options.memory_budget_bytes,
            options: engine_options,
            staging: Some(staging_dir(data_path)),
        })
    }

    /// A new empty database in memory, gone when dropped.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn in_memory() -> Result<Self, Fault> {
        let fault = |error: rocksdb::Error| engine_fault("open", "all", error.as_ref());
        let env = Env::mem_env().map_err(fault)?;
        let options = EngineOptions::in_memory(&env);
        Ok(Self {
            queue: None,
            engine: Arc::new(Self::engine(Path::new("/memory"), &options).map_err(fault)?),
            sync: SyncPolicy::System,
            memory_budget_bytes: Options::default().memory_budget_bytes,
            options,
            staging: None,
        })
    }

    fn engine(path: &Path, options: &EngineOptions) -> Result<DB, rocksdb::Error> {
        let families = Segment::ALL
            .map(|segment| ColumnFamilyDescriptor::new(segment.name(), options.segment(segment)));
        DB::open_cf_descriptors(&options.database, path, families)
    }

    /// Bytes for cached blocks and unwritten batches together, as it was opened with.
    pub fn memory_budget_bytes(&self) -> usize {
        self.memory_budget_bytes
    }

    /// The value of `key`, if there is one.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.reader(&self.pending()).get(segment, key)
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
        self.reader(&self.pending()).multi_get(segment, keys)
    }

    /// The rows with keys from `from` on, in key order, up to and without `to`.
    pub fn range(&self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> RowIter<'_> {
        self.reader(&self.pending()).range(segment, from, to)
    }

    /// The rows whose keys begin with `prefix`, in key order.
    pub fn prefix(&self, segment: Segment, prefix: &[u8]) -> RowIter<'_> {
        self.reader(&self.pending()).prefix(segment, prefix)
    }

    /// All segments as they are now. Later writes do not change the snapshot, and it outlives this handle.
    ///
    /// It keeps the batches that are pending now in memory. Of batches that have reached the engine since,
    /// living snapshots keep at most about twice what may be pending: while they keep more than that once,
    /// this call writes everything to the engine first and the snapshot keeps no batch.
    pub fn snapshot(&self) -> Snapshot {
        let (pending, engine) = match &self.queue {
            Some(queue) => queue.snapshot(),
            None => (PendingBatches::default(), EngineSnapshot::new(&self.engine)),
        };
        Snapshot::new(pending, engine)
    }

    /// How many snapshots are alive, clones counted as one.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn live_snapshots(&self) -> Result<u64, Fault> {
        let count = self.engine.property_int_value("rocksdb.num-snapshots");
        let count = count.map_err(|e| engine_fault("count snapshots", "all", e.as_ref()))?;
        Ok(count.unwrap_or(0))
    }

    /// Writes all of `batch` or nothing, after everything written before. Readers see it when this returns;
    /// the storage writer's thread brings it to the engine within a second, together with others, so a
    /// killed process loses at most the last second (and what a failing disk held up). With `durable`,
    /// or with [`SyncPolicy::EachCommit`], it survives a power cut when this returns. Blocks while too much is
    /// pending.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine, perhaps of an earlier batch: then neither this one
    /// nor any later one is written.
    pub fn write(&self, batch: Batch, durable: bool) -> Result<(), Fault> {
        self.write_deferred(batch, DeferredRows::default(), durable)
    }

    /// Writes and empties `batch` once it has 16 MiB: for rows that may be written one batch after another.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_if_large(&self, batch: &mut Batch) -> Result<(), Fault> {
        const BATCH_BYTES: usize = 16 << 20;
        if batch.bytes() >= BATCH_BYTES {
            self.write(std::mem::take(batch), false)?;
        }
        Ok(())
    }

    /// As [`Database::write`], of `batch` completed by `deferred` rows, which the caller need not encode.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_deferred(
        &self,
        mut batch: Batch,
        mut deferred: DeferredRows,
        durable: bool,
    ) -> Result<(), Fault> {
        let durable = durable || self.sync == SyncPolicy::EachCommit;
        match &self.queue {
            Some(queue) => queue.push(batch, deferred, durable),
            None => {
                let on_ready = deferred.on_ready.take();
                deferred.complete(&mut batch);
                write_now(&self.engine, &batch)?;
                on_ready.into_iter().for_each(|run| run());
                Ok(())
            }
        }
    }

    /// Returns when a write would not block. A caller that holds locks while it writes waits here first.
    ///
    /// # Errors
    /// A [`Fault`] of an earlier batch.
    pub fn wait_for_room(&self) -> Result<(), Fault> {
        self.queue.as_ref().map_or(Ok(()), Queue::wait_for_room)
    }

    /// Returns when everything written so far has reached the engine, where it survives a kill of the
    /// process.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn flush(&self) -> Result<(), Fault> {
        self.queue
            .as_ref()
            .map_or(Ok(()), |queue| queue.flush(false))
    }

    /// Returns when everything written so far survives a power cut.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn sync(&self) -> Result<(), Fault> {
        self.queue
            .as_ref()
            .map_or(Ok(()), |queue| queue.flush(true))
    }

    /// Bytes on disk (estimated) and in unwritten buffers of one segment.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn size_bytes(&self, segment: Segment) -> Result<u64, Fault> {
        let family = self.family(segment);
        let property = |name: &str| self.engine.property_int_value_cf(family, name);
        let sizes = property("rocksdb.total-sst-files-size")
            .and_then(|files| Ok((files, property("rocksdb.size-all-mem-tables")?)));
        let (files, buffers) =
            sizes.map_err(|error| engine_fault("read size", segment.name(), error.as_ref()))?;
        Ok(files.unwrap_or(0) + buffers.unwrap_or(0))
    }

    /// How many keys a segment has, as the engine estimates.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn estimated_keys(&self, segment: Segment) -> Result<u64, Fault> {
        let family = self.family(segment);
        let keys = self
            .engine
            .property_int_value_cf(family, "rocksdb.estimate-num-keys");
        let keys = keys.map_err(|error| engine_fault("count", segment.name(), error.as_ref()))?;
        Ok(keys.unwrap_or(0))
    }

    /// What the engine says of its levels and compactions, for each segment.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn engine_stats(&self) -> Result<String, Fault> {
        let mut text = String::new();
        for segment in Segment::ALL {
            let found = self
                .engine
                .property_value_cf(self.family(segment), "rocksdb.cfstats");
            let found = found
                .map_err(|error| engine_fault("read statistics", segment.name(), error.as_ref()))?;
            text.push_str(&found.unwrap_or_default());
        }
        Ok(text)
    }

    /// Bytes of memory that the engine uses: cached blocks of files, and unwritten buffers.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn memory_bytes(&self) -> Result<(u64, u64), Fault> {
        let fault = |error: rocksdb::Error| engine_fault("read memory", "all", error.as_ref());
        // All families share one cache.
        let cache = self.engine.property_int_value("rocksdb.block-cache-usage");
        let mut buffers = 0;
        for segment in Segment::ALL {
            let family = self.family(segment);
            let bytes = self
                .engine
                .property_int_value_cf(family, "rocksdb.cur-size-all-mem-tables");
            buffers += bytes.map_err(fault)?.unwrap_or(0);
        }
        Ok((cache.map_err(fault)?.unwrap_or(0), buffers))
    }

    /// How many batches are pending: written, but not in the engine yet.
    pub fn pending_batches(&self) -> usize {
        self.pending().len()
    }

    /// Bytes of the keys and values of pending batches.
    pub fn pending_bytes(&self) -> usize {
        self.pending().iter().map(|batch| batch.bytes()).sum()
    }

    /// Bytes of the keys and values of batches that have reached the engine but are kept in memory by
    /// snapshots.
    pub fn pinned_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::pinned_bytes)
    }

    fn pending(&self) -> PendingBatches {
        self.queue.as_ref().map(Queue::batches).unwrap_or_default()
    }

    /// Bytes of the keys and values of all batches that have reached the engine since it was opened. Ingested
    /// files are not counted.
    pub fn written_bytes(&self) -> u64 {
        self.queue.as_ref().map_or(0, Queue::written_bytes)
    }

    pub(crate) fn family(&self, segment: Segment) -> &ColumnFamily {
        family(&self.engine, segment)
    }

    fn reader<'b>(&self, pending: &'b PendingBatches) -> Reader<'_, 'b> {
        Reader {
            engine: &self.engine,
            pending,
            snapshot: None,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // There is no caller to return a failure to; one that needs to know has called `sync`.
        let _ = self.sync();
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.engine.path())
            .finish_non_exhaustive()
    }
}
