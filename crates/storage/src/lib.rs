//! The key-value engine: named segments, atomic batches, snapshots.
//!
//! RocksDB behind a narrow concrete interface, one column family a [`Segment`]. It knows keys and
//! values as bytes and nothing of tries, blocks or accounts; FORMAT.md in this crate says what
//! each segment holds, byte for byte.
#![deny(unsafe_code)]

mod backup;
mod batch;
mod database;
mod format_file;
mod ingest;
mod log_guard;
mod marks;
mod options;
mod pending;
mod queue;
mod read;
mod segment;
mod snapshot;

pub use backup::{Backup, BackupError, BackupMade, BackupReport, restore};
pub use batch::{Batch, ChangeRef, Later};
pub use database::{Database, OpenError};
pub use format_file::is_data_path;
pub use marks::MOST_BATCHES as MOST_WAITING_BATCHES;
pub use options::{Options, SyncPolicy};
pub use read::{Row, Rows};
pub use segment::Segment;
pub use snapshot::Snapshot;

/// The version of the layout that FORMAT.md describes, kept in the format file. A change of any
/// byte layout raises it.
pub const SCHEMA_VERSION: u32 = 2;

#[cfg(test)]
mod tests;
