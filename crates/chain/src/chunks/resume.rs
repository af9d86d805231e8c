//! Going on with a file that an interrupted export has left.
//!
//! The writer is given the same rows again, in the same order, and holds each chunk that it would
//! write against the one that is there. Up to the first that differs, is torn or is absent, nothing
//! is written; there the file is cut and written on. So it becomes what it would have been without the
//! interruption, wherever that was. Full chunks of rows that the caller knows to be the same may be
//! passed over instead.

use super::{About, Chunk, ChunkReader, ChunkWriter, END, FileKind};
use crate::TransferError;
use niwaki_primitives::Fault;
use niwaki_storage::Segment;
use std::path::Path;

/// What an interrupted export has left where a file is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// A file of the same kind about the same, of so many bytes.
    Part(u64),
    /// Something else; what is wrong with it.
    Other(String),
}

/// A chunk that stays as it is there.
pub(crate) struct Passed {
    pub(crate) rows: u64,
    pub(crate) last_key: Vec<u8>,
}

impl ChunkWriter {
    /// Begins a file that will be called `to`, with what an interrupted export has left if that is
    /// `about` the same, else over it.
    pub(crate) fn resume(
        to: &Path,
        kind: FileKind,
        about: &About,
    ) -> Result<(Self, Left), TransferError> {
        let mut writer = Self::open(to)?;
        let reason = match ChunkReader::open(&writer.part, kind) {
            Ok((left, found)) if found == *about => {
                let bytes = left.length;
                writer.left = Some(left);
                return Ok((writer, Left::Part(bytes)));
            }
            Ok((_, found)) => format!("it is of block {} {}", found.number, found.hash),
            Err(TransferError::NotOurs { what, .. }) => format!("it is not {what}"),
            Err(TransferError::Damaged { reason, .. }) => format!("it is damaged: {reason}"),
            Err(error) => return Err(error),
        };
        let metadata = writer.out.get_ref().metadata();
        let bytes = metadata.map_err(|error| Fault::io("read", &writer.part, error))?;
        writer.begin(kind, about)?;
        let left = match bytes.len() {
            0 => Left::Nothing,
            _ => Left::Other(reason),
        };
        Ok((writer, left))
    }

    /// Ends the chunk at hand. If the next one is there, is full and has rows of `segment` with keys
    /// above `after`, goes to its end: the caller says that they are those it would add.
    pub(crate) fn pass(
        &mut self,
        segment: Segment,
        after: &[u8],
    ) -> Result<Option<Passed>, TransferError> {
        self.flush()?;
        let chunk_bytes = self.chunk_bytes;
        let Some(left) = &mut self.left else {
            return Ok(None);
        };
        let place = left.place();
        let passed = match left.next() {
            Ok(Some(chunk)) if chunk.segment == segment => full(&chunk, after, chunk_bytes)?,
            Err(TransferError::Fault(fault)) => return Err(fault.into()),
            _ => None,
        };
        if passed.is_none() {
            left.go_to(place)?;
        }
        Ok(passed)
    }

    /// Whether the chunk that is to be written is there; if not, nothing behind it is either.
    pub(super) fn is_left(&mut self, tag: u8, plain: &[u8]) -> Result<bool, Fault> {
        let Some(left) = &mut self.left else {
            return Ok(false);
        };
        let place = left.place();
        match left.chunk() {
            // The end is always written: something may follow the one that is there.
            Ok((found, rows)) if tag != END && found == tag && rows == plain => Ok(true),
            Err(TransferError::Fault(fault)) => Err(fault),
            _ => self.cut(place).map(|()| false),
        }
    }
}

/// The chunk as one that a writer of chunks of `chunk_bytes` has ended because it had grown to that.
fn full(chunk: &Chunk, after: &[u8], chunk_bytes: usize) -> Result<Option<Passed>, TransferError> {
    let mut passed = Passed {
        rows: 0,
        last_key: after.to_vec(),
    };
    let (mut is_ascending, mut last_row) = (true, 0);
    let is_whole = chunk.each(|key, value| {
        is_ascending &= passed.last_key[..] < *key;
        passed.rows += 1;
        passed.last_key.clear();
        passed.last_key.extend_from_slice(key);
        last_row = 1 + key.len() + 4 + value.len();
        Ok(())
    })?;
    let bytes = chunk.rows.len();
    let is_full = bytes >= chunk_bytes && bytes - last_row < chunk_bytes;
    Ok((is_whole && is_ascending && is_full).then_some(passed))
}
