//! This node's own record, and the file beside its key in which the record outlives the process.
//!
//! The number of a record must rise with each change over the whole life of a key: other nodes ignore a changed record with an old
//! number. So that it rises even when the file is lost, the first number is the time in milliseconds.

use super::{Record, RecordEntries, RecordError};
use crate::key::NodeKey;
use std::path::{Path, PathBuf};

/// The record of this node.
#[derive(Debug)]
pub struct LocalRecord {
    key: NodeKey,
    path: Option<PathBuf>,
    record: Record,
}

/// Why the record can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum RecordFileError {
    /// The file can't be written.
    #[error("can't write the node record {}: {error}; check that the folder exists and may be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It can't be signed.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl LocalRecord {
    /// A record that no file keeps.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn in_memory(key: NodeKey, entries: &RecordEntries, seq: u64) -> Result<Self, RecordError> {
        let record = Record::sign(&key, seq, entries)?;
        let path = None;
        Ok(Self { key, path, record })
    }

    /// The record in a file, with `entries`. If the file has another one of this key, the number rises by one; if it has none, or is
    /// broken, the number is `unix_ms`.
    ///
    /// # Errors
    /// [`RecordFileError`].
    pub fn load_or_create(
        path: &Path,
        key: NodeKey,
        entries: &RecordEntries,
        unix_ms: u64,
    ) -> Result<Self, RecordFileError> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let saved = text.parse::<Record>().ok();
        let path = Some(path.to_owned());
        match saved.filter(|record| record.id() == key.id()) {
            Some(record) => {
                let mut local = Self { key, path, record };
                local.update(entries)?;
                Ok(local)
            }
            None => {
                let record = Record::sign(&key, unix_ms, entries)?;
                let local = Self { key, path, record };
                local.save(&local.record)?;
                Ok(local)
            }
        }
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Makes the record say `entries`. Returns whether it did not yet; then its number is one higher, and the file has it.
    ///
    /// # Errors
    /// [`RecordFileError`]; the record stays as it was.
    pub fn update(&mut self, entries: &RecordEntries) -> Result<bool, RecordFileError> {
        if self.record.entries() == *entries {
            return Ok(false);
        }
        let seq = self.record.seq().saturating_add(1);
        let record = Record::sign(&self.key, seq, entries)?;
        self.save(&record)?;
        self.record = record;
        Ok(true)
    }

    fn save(&self, record: &Record) -> Result<(), RecordFileError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let written = crate::file::replace(path, &format!("{record}\n"));
        written.map_err(|error| RecordFileError::Io {
            path: path.clone(),
            error,
        })
    }
}
