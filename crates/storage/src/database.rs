//! The database: opened, read, written, synced.

use crate::format_file::{claim, engine_dir};
use crate::ingest::aside_dir;
use crate::options::EngineOptions;
use crate::read::Reader;
use crate::{Batch, Options, Row, Rows, SCHEMA_VERSION, Segment, Snapshot, SyncPolicy};
use niwaki_primitives::Fault;
use rocksdb::{ColumnFamily, ColumnFamilyDescriptor, DB, Env, WriteBatch, WriteOptions};
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
/// as the disk allows; call [`Database::sync`] first to learn of a failure.
pub struct Database {
    engine: DB,
    sync: SyncPolicy,
    pub(crate) options: EngineOptions,
    /// The folder for files that are no part of the database yet.
    pub(crate) aside: Option<PathBuf>,
    /// Holds the files of a database in memory; dropped after the engine.
    memory: Option<Env>,
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
            if message.contains("LOCK") {
                let path = data_path.display().to_string();
                return OpenError::InUse { path };
            }
            OpenError::Fault(engine_fault("open", "all", &message))
        })?;
        Ok(Self {
            engine,
            sync: options.sync,
            options: engine_options,
            aside: Some(aside_dir(data_path)),
            memory: None,
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
            engine: Self::engine(Path::new("/memory"), &options).map_err(fault)?,
            sync: SyncPolicy::System,
            options,
            aside: None,
            memory: Some(env),
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

    /// The row with the greatest key, if there is any row.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn last(&self, segment: Segment) -> Result<Option<Row>, Fault> {
        self.reader().last(segment)
    }

    /// The present state of all segments, which later writes do not change.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }

    /// Writes all of `batch` or nothing. A killed process never loses a written batch; `durable`
    /// makes it survive a power cut too before this returns (as do all with
    /// [`SyncPolicy::EachCommit`]).
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine; then nothing was written.
    pub fn write(&self, batch: &Batch, durable: bool) -> Result<(), Fault> {
        let families = Segment::ALL.map(|segment| self.family(segment));
        // 16 bytes a row cover the engine's own lengths and tags.
        let mut writes = WriteBatch::with_capacity_bytes(batch.bytes() + 16 * batch.len() + 16);
        for (segment, key, value) in batch.changes() {
            let family = families[segment as usize];
            match value {
                Some(value) => writes.put_cf(family, key, value),
                None => writes.delete_cf(family, key),
            }
        }
        let mut options = WriteOptions::default();
        options.set_sync(durable || self.sync == SyncPolicy::EachCommit);
        self.engine
            .write_opt(writes, &options)
            .map_err(|error| engine_fault("write batch", "all", error.as_ref()))
    }

    /// Returns when everything written so far survives a power cut.
    ///
    /// # Errors
    /// A [`Fault`] of the disk or the engine.
    pub fn sync(&self) -> Result<(), Fault> {
        let synced = self.engine.flush_wal(true);
        synced.map_err(|error| engine_fault("sync", "all", error.as_ref()))
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

    pub(crate) fn engine_ref(&self) -> &DB {
        &self.engine
    }

    pub(crate) fn family(&self, segment: Segment) -> &ColumnFamily {
        self.engine
            .cf_handle(segment.name())
            .expect("every segment is opened with the database")
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(self, None)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if self.memory.is_none() {
            // Nobody is left to tell; whoever wants to know has called `sync`.
            let _ = self.engine.flush_wal(true);
        }
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
    } else {
        text.to_owned()
    };
    Fault::Engine {
        operation,
        segment,
        message,
    }
}
