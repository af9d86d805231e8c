//! The database: opened, read, written, synced.

use crate::format_file::{claim, engine_dir};
use crate::ingest::aside_dir;
use crate::options::EngineOptions;
use crate::pending::Stack;
use crate::queue::{Queue, write_now};
use crate::read::Reader;
use crate::snapshot::Moment;
use crate::{Batch, Later, Options, Rows, SCHEMA_VERSION, Segment, Snapshot, SyncPolicy};
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
    /// Something else lies there.
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

/// An open database. Dropping it closes it, after everything written is brought to the disk as far
/// as the disk allows; call [`Database::sync`] first to learn of a failure. Its files stay open, and
/// the data path in use, until the last [`Snapshot`] of it is dropped too.
pub struct Database {
    /// `None` for a database in memory, which is written at once. Dropped, and with it emptied,
    /// before the engine.
    queue: Option<Queue>,
    engine: Arc<DB>,
    sync: SyncPolicy,
    pub(crate) options: EngineOptions,
    /// The folder for files that are no part of the database yet.
    pub(crate) aside: Option<PathBuf>,
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
            // On a disk that can't be written the file of that name is in the message too.
            let is_held = message.contains("hold") || message.contains("temporarily unavailable");
            if message.contains("LOCK") && is_held {
                let path = data_path.display().to_string();
                return OpenError::InUse { path };
            }
            OpenError::Fault(engine_fault("open", "all", &message))
        })?;
        let engine = Arc::new(engine);
        Ok(Self {
            queue: Some(Queue::new(Arc::clone(&engine), options.waiting_bytes())?),
            engine,
            sync: options.sync,
            options: engine_options,
            aside: Some(aside_dir(data_path)),
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
            options,
            aside: None,
        })
    }

    fn engine(path: &Path, options: &EngineOptions) -> Result<DB, rocksdb::Error> {
        let families = Segment::ALL
            .map(|segment| ColumnFamilyDescriptor::new(segment.name(), options.segment(segment)));
        DB::open_cf_descriptors(&options.database, path, families)
    }

    /// The value of `key`, if there is one.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.reader(&self.waiting()).get(segment, key)
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
        self.reader(&self.waiting()).multi_get(segment, keys)
    }

    /// The rows with keys from `from` on, in key order, up to and without `to`.
    pub fn range(&self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> Rows<'_> {
        self.reader(&self.waiting()).range(segment, from, to)
    }

    /// The rows whose keys begin with `prefix`, in key order.
    pub fn prefix(&self, segment: Segment, prefix: &[u8]) -> Rows<'_> {
        self.reader(&self.waiting()).prefix(segment, prefix)
    }

    /// The present state of all segments, which later writes do not change and which outlives this
    /// handle.
    ///
    /// It keeps the batches that wait now in memory. What living snapshots keep of batches that
    /// have reached the engine since is at most about twice what may wait: while it is more than
    /// that once, this waits until the engine has everything, and then keeps nothing.
    pub fn snapshot(&self) -> Snapshot {
        let (waiting, moment) = match &self.queue {
            Some(queue) => queue.snapshot(),
            None => (Stack::default(), Moment::of(&self.engine)),
        };
        Snapshot::new(waiting, moment)
    }

    /// How many snapshots live, clones counted as one.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn snapshots(&self) -> Result<u64, Fault> {
        let count = self.engine.property_int_value("rocksdb.num-snapshots");
        let count = count.map_err(|e| engine_fault("count snapshots", "all", e.as_ref()))?;
        Ok(count.unwrap_or(0))
    }

    /// Writes all of `batch` or nothing, after all that was written before. Returns when everybody
    /// reads it; a thread of its own brings it to the engine soon after, together with others, so
    /// a killed process loses at most the last second (and what a failing disk kept back). With
    /// `durable`, or with [`SyncPolicy::EachCommit`], it survives a power cut before this returns.
    /// Waits while too much is on its way.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine, perhaps of an earlier batch: then neither this one
    /// nor any later one is written.
    pub fn write(&self, batch: Batch, durable: bool) -> Result<(), Fault> {
        self.write_completed(batch, Later::default(), durable)
    }

    /// As [`Database::write`], of `batch` completed by `later`, so that whoever writes need not
    /// encode rows that nobody reads for now.
    ///
    /// # Errors
    /// As [`Database::write`].
    pub fn write_completed(
        &self,
        mut batch: Batch,
        mut later: Later,
        durable: bool,
    ) -> Result<(), Fault> {
        let durable = durable || self.sync == SyncPolicy::EachCommit;
        match &self.queue {
            Some(queue) => queue.push(batch, later, durable),
            None => {
                let then = later.then.take();
                later.complete(&mut batch);
                write_now(&self.engine, &batch)?;
                then.into_iter().for_each(|then| then());
                Ok(())
            }
        }
    }

    /// Returns when the next write does not have to wait, for whoever holds locks while it writes.
    ///
    /// # Errors
    /// A [`Fault`] of an earlier batch.
    pub fn wait_for_room(&self) -> Result<(), Fault> {
        self.queue.as_ref().map_or(Ok(()), Queue::wait_for_room)
    }

    /// Returns when everything written so far has reached the engine, which no kill of the process
    /// undoes.
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

    /// Batches that are not in the engine yet.
    pub fn waiting_batches(&self) -> usize {
        self.waiting().len()
    }

    /// Bytes of the keys and values of batches that are not in the engine yet.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting().iter().map(|batch| batch.bytes()).sum()
    }

    /// Bytes of the keys and values of batches that are in the engine and that snapshots still keep
    /// in memory.
    pub fn pinned_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::pinned_bytes)
    }

    fn waiting(&self) -> Stack {
        self.queue.as_ref().map(Queue::stack).unwrap_or_default()
    }

    /// Bytes of the keys and values of all batches that reached the engine since it was opened,
    /// files taken in whole left out.
    pub fn batched_bytes(&self) -> u64 {
        self.queue.as_ref().map_or(0, Queue::batched_bytes)
    }

    pub(crate) fn engine_shared(&self) -> &Arc<DB> {
        &self.engine
    }

    pub(crate) fn engine_ref(&self) -> &DB {
        &self.engine
    }

    pub(crate) fn family(&self, segment: Segment) -> &ColumnFamily {
        family(&self.engine, segment)
    }

    fn reader<'b>(&self, waiting: &'b Stack) -> Reader<'_, 'b> {
        Reader {
            engine: &self.engine,
            waiting,
            moment: None,
        }
    }
}

pub(crate) fn family(engine: &DB, segment: Segment) -> &ColumnFamily {
    engine
        .cf_handle(segment.name())
        .expect("every segment is opened with the database")
}

impl Drop for Database {
    fn drop(&mut self) {
        // Nobody is left to tell; whoever wants to know has called `sync`.
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

pub(crate) fn io_fault(operation: &'static str, path: &Path, error: std::io::Error) -> Fault {
    Fault::Io {
        operation,
        path: path.display().to_string(),
        source: Arc::new(error),
    }
}

/// A fault of the engine, with a word on what to do where that is known.
pub(crate) fn engine_fault(operation: &'static str, segment: &'static str, text: &str) -> Fault {
    let message = if text.contains("No space left on device") {
        format!("the disk is full; free some space and start again ({text})")
    } else if text.contains("Too many open files") {
        format!("too many open files; raise the limit (ulimit -n) and start again ({text})")
    } else if text.contains("Corruption") || text.contains("MANIFEST-") {
        format!(
            "the files of the database are damaged; restore a backup with 'niwaki storage restore' \
             or import the chain into an empty data path ({text})"
        )
    } else if text.contains("Read-only file system") || text.contains("Permission denied") {
        format!("the data path can't be written; make it writable and start again ({text})")
    } else {
        text.to_owned()
    };
    Fault::Engine {
        operation,
        segment,
        message,
    }
}
