//! Faults of files, rows and the engine.

use crate::Segment;
use niwaki_primitives::{Fault, hex};
use std::fmt;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::Path;

/// The fault of a row whose bytes are not what was written.
pub fn corrupt(segment: Segment, key: &[u8], reason: impl fmt::Display) -> Fault {
    Fault::Corrupt {
        segment: segment.name(),
        key: hex::encode(key),
        reason: reason.to_string(),
    }
}

/// The fault of a row that must exist.
pub fn missing(segment: Segment, key: &[u8]) -> Fault {
    Fault::Missing {
        segment: segment.name(),
        key: hex::encode(key),
    }
}

/// What is in `folder`; nothing if it is absent.
pub(crate) fn entries(folder: &Path) -> Result<Vec<DirEntry>, Fault> {
    let found = fs::read_dir(folder).and_then(Iterator::collect);
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|error| Fault::io("read", folder, error)),
    }
}

/// A fault of the engine, with advice where the cause is known.
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
