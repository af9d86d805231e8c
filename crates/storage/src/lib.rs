//! The key-value engine: named segments, atomic batches, snapshots.
//!
//! RocksDB behind a narrow concrete interface, one column family per [`Segment`]. A write is pending in memory
//! until the storage writer's thread has brought it to RocksDB; readers see it at once:
//!
//! ```text
//! Database::write --> queue: pending batches --storage writer--> RocksDB
//!                           ^                                      ^
//! Database::get ------------+--------------------------------------+
//! ```
//!
//! This crate knows keys and values as bytes, and nothing of tries, blocks or accounts; FORMAT.md says what each
//! segment holds, byte for byte.
//!
//! | file | what it is |
//! |---|---|
//! | `database` | [`Database`]: open, read, write, sync |
//! | `segment` | [`Segment`]: the kinds of rows |
//! | `batch` | [`Batch`]: changes that are written together; [`DeferredRows`] |
//! | `queue` | write-behind: the pending batches and the storage writer's thread |
//! | `pending` | how pending batches are read |
//! | `key_filter` | which pending batches may have a key |
//! | `read` | point and range reads over pending batches and engine |
//! | `snapshot` | [`Snapshot`]: all segments at one moment |
//! | `engine` | RocksDB's column families and writes |
//! | `fault` | faults of files, rows and the engine |
//! | `options` | [`Options`], and the options of RocksDB that follow from them |
//! | `ingest` | many rows at once, as tables |
//! | `backup` | backups of an open database, and [`restore`] |
//! | `format_file` | the file that says what a data path holds |
//! | `foreign` | [`ForeignDatabase`]: another client's, read only |
//! | `log_guard` | cuts logs that RocksDB would read for ever |
#![deny(unsafe_code)]

mod backup;
mod batch;
mod database;
mod engine;
mod fault;
mod foreign;
mod format_file;
mod ingest;
mod key_filter;
mod log_guard;
mod options;
mod pending;
mod queue;
mod read;
mod segment;
mod snapshot;

pub use backup::{Backup, BackupError, BackupProgress, NewBackup, restore};
pub use batch::{Batch, ChangeRef, DeferredRows};
pub use database::{Database, OpenError};
pub use fault::{corrupt, missing};
pub use foreign::{ForeignDatabase, ForeignFamily, ForeignOpenError, ForeignRows};
pub use format_file::is_data_path;
pub use key_filter::MAX_PENDING_BATCHES;
pub use options::{Options, SyncPolicy};
pub use read::{Row, RowIter};
pub use segment::Segment;
pub use snapshot::Snapshot;

/// The version of the layout that FORMAT.md describes, kept in the format file. A change of any
/// byte layout raises it.
pub const SCHEMA_VERSION: u32 = 2;

#[cfg(test)]
mod tests;
