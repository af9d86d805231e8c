//! A database of another client, which is read and never changed.

use crate::read::Row;
use niwaki_primitives::Fault;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBIteratorWithThreadMode, Direction, IteratorMode,
    Options, ReadOptions, WriteBatch,
};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Files that are open at once at most.
const MAX_OPEN_FILES: i32 = 256;
/// A scan reads so far ahead.
const READAHEAD_BYTES: usize = 4 << 20;

/// A family of rows of another client's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignFamily {
    /// The name in the database, often a single byte.
    pub id: &'static str,
    /// What messages call it.
    pub name: &'static str,
}

/// Why a database of another client did not open.
#[derive(Debug, thiserror::Error)]
pub enum ForeignOpenError {
    /// Another process has it open.
    #[error("the database {0} is in use by another process; stop that process first")]
    InUse(String),
    /// The disk or the engine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// An open database of another client. Its folder is not changed; what is in the client's log only is read into memory.
pub struct ForeignDatabase {
    engine: DB,
    /// Held, so that the other client can't start while its files are read.
    _lock: Option<File>,
}

impl ForeignDatabase {
    /// Opens the RocksDB database in `folder`, with all families that it has.
    ///
    /// # Errors
    /// [`ForeignOpenError`].
    pub fn open(folder: &Path) -> Result<Self, ForeignOpenError> {
        let lock = hold(folder)?;
        let mut options = Options::default();
        options.set_max_open_files(MAX_OPEN_FILES);
        let opened = DB::list_cf(&options, folder).and_then(|families| {
            let families = families
                .into_iter()
                .map(|family| ColumnFamilyDescriptor::new(family, Options::default()));
            DB::open_cf_descriptors_read_only(&options, folder, families, false)
        });
        let engine = opened.map_err(|error| foreign_fault("open", "all", error))?;
        Ok(Self {
            engine,
            _lock: lock,
        })
    }

    /// Makes a database as another client would, for tests and measurements.
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn create(folder: &Path, families: &[ForeignFamily]) -> Result<Self, Fault> {
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let families = families.iter().map(|family| family.id);
        let engine = DB::open_cf(&options, folder, families)
            .map_err(|error| foreign_fault("create", "all", error))?;
        Ok(Self {
            engine,
            _lock: None,
        })
    }

    /// Writes rows of one family into a database from [`ForeignDatabase::create`].
    ///
    /// # Errors
    /// A [`Fault`] of the engine.
    pub fn put<'r>(
        &self,
        family: ForeignFamily,
        rows: impl IntoIterator<Item = (&'r [u8], &'r [u8])>,
    ) -> Result<(), Fault> {
        let handle = self.family(family)?;
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            batch.put_cf(handle, key, value);
        }
        let written = self.engine.write(batch);
        written.map_err(|error| foreign_fault("write", family.name, error))
    }

    /// Whether the database has this family.
    pub fn has(&self, family: ForeignFamily) -> bool {
        self.engine.cf_handle(family.id).is_some()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// A [`Fault`] of the engine, or if there is no such family.
    pub fn get(&self, family: ForeignFamily, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        self.engine
            .get_cf(self.family(family)?, key)
            .map_err(|error| foreign_fault("read", family.name, error))
    }

    /// The rows of a family from a key on, in the order of their keys.
    ///
    /// # Errors
    /// A [`Fault`] if there is no such family.
    pub fn range(&self, family: ForeignFamily, from: &[u8]) -> Result<ForeignRows<'_>, Fault> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
        let mode = IteratorMode::From(from, Direction::Forward);
        Ok(ForeignRows {
            rows: self
                .engine
                .iterator_cf_opt(self.family(family)?, options, mode),
            family,
        })
    }

    fn family(&self, family: ForeignFamily) -> Result<&ColumnFamily, Fault> {
        self.engine
            .cf_handle(family.id)
            .ok_or_else(|| foreign_fault("read", family.name, "there are no such rows"))
    }
}

impl fmt::Debug for ForeignDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignDatabase")
            .field("path", &self.engine.path())
            .finish_non_exhaustive()
    }
}

/// Rows of a family in the order of their keys; it ends after a fault.
pub struct ForeignRows<'d> {
    rows: DBIteratorWithThreadMode<'d, DB>,
    family: ForeignFamily,
}

impl Iterator for ForeignRows<'_> {
    type Item = Result<Row, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        Some(row.map_err(|error| foreign_fault("scan", self.family.name, error)))
    }
}

/// Takes the lock by which RocksDB keeps other processes off; without a lock file there is none to take.
fn hold(folder: &Path) -> Result<Option<File>, ForeignOpenError> {
    let path = folder.join("LOCK");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Fault::io("open", &path, error).into()),
    };
    // A lock of a file that is open for reading only can't be exclusive; RocksDB's own is, so they exclude each other.
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::ACCESS | Errno::AGAIN) => {
            Err(ForeignOpenError::InUse(folder.display().to_string()))
        }
        Err(error) => Err(Fault::io("lock", &path, error.into()).into()),
    }
}

fn foreign_fault(operation: &'static str, name: &'static str, error: impl fmt::Display) -> Fault {
    Fault::Engine {
        operation,
        segment: name,
        message: format!("in the other client's database: {error}"),
    }
}
