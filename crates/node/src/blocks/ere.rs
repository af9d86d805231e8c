//! Ere files as a source of blocks, the lowest first.

use super::source::{FilePosition, RawBlock, RawBytes};
use eyre::Result;
use niwaki_chain::{EreFile, ErePart};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads the blocks of a file.
pub(crate) struct Reader {
    file: EreFile,
    path: Arc<PathBuf>,
    left: Range<u64>,
    read_bytes: Arc<AtomicU64>,
}

impl Reader {
    /// Opens a file; what is read of it is added to `read_bytes`.
    pub(crate) fn open(path: &Path, read_bytes: &Arc<AtomicU64>) -> Result<Self> {
        let file = EreFile::open(path)?;
        Ok(Self {
            left: file.numbers(),
            file,
            path: Arc::new(path.to_owned()),
            read_bytes: Arc::clone(read_bytes),
        })
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<RawBlock>> {
        let Some(number) = self.left.next() else {
            return Ok(None);
        };
        let header = self.file.frames(number, ErePart::Header)?;
        let body = self.file.frames(number, ErePart::Body)?;
        let bytes = (header.len() + body.len()) as u64;
        // A progress counter: no other memory depends on it.
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        let position = FilePosition {
            file: Arc::clone(&self.path),
            offset_bytes: self.file.place(number, ErePart::Header)?,
        };
        let bytes = RawBytes::Compressed { header, body };
        Ok(Some(RawBlock { position, bytes }))
    }
}
