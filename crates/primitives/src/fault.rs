//! Failures of the machine, never of the input.

use std::{path::Path, sync::Arc};

/// The machine failed: a disk, a file or a stored value. A fault says nothing about whether a
/// block is valid and must never be turned into such a verdict.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    /// An operation on a file or directory failed.
    #[error("{operation} failed on {path}: {error}")]
    Io {
        /// What was tried, such as `open`.
        operation: &'static str,
        /// The file or directory.
        path: String,
        /// What the system said. Not named `source`: the message has it already.
        error: Arc<std::io::Error>,
    },
    /// The key-value engine failed.
    #[error("{operation} failed in segment {segment}: {message}")]
    Engine {
        /// What was tried, such as `write batch`.
        operation: &'static str,
        /// The segment.
        segment: &'static str,
        /// What the engine said.
        message: String,
    },
    /// A stored value can't be what was written.
    #[error("corrupt value in segment {segment} at key {key}: {reason}")]
    Corrupt {
        /// The segment.
        segment: &'static str,
        /// The key, hex.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value that must be there is not.
    #[error("missing value in segment {segment} at key {key}")]
    Missing {
        /// The segment.
        segment: &'static str,
        /// The key, hex.
        key: String,
    },
}

impl Fault {
    /// `operation` failed on the file or directory `path`.
    #[must_use]
    pub fn io(operation: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Io {
            operation,
            path: path.display().to_string(),
            error: Arc::new(error),
        }
    }
}
