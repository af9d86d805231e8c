//! Resumes an interrupted export.
//!
//! The writer gets the same rows again, in the same order, and compares each chunk that it would write with the one in
//! the part file. At the first that differs, is torn or is missing, it cuts the file and writes on. So the file becomes
//! what it would have been without the interruption. Full chunks whose rows are known to be the same are skipped.

use super::{About, Chunk, ChunkReader, ChunkWriter, END, FileKind};
use crate::TransferError;
use niwaki_primitives::Fault;
use niwaki_storage::Segment;
use std::path::Path;

/// The part file of an interrupted export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartFile {
    /// There is none.
    Missing,
    /// Of the same kind and head, with so many bytes.
    Resumable(u64),
    /// Of something else, for this reason.
    Unusable(String),
}

/// A chunk of the part file that stays.
pub(crate) struct SkippedChunk {
    pub(crate) rows: u64,
    pub(crate) last_key: Vec<u8>,
}

impl ChunkWriter {
    /// Begins the file `to`, with the part file if that is `about` the same head, else over it.
    pub(crate) fn resume(
        to: &Path,
        kind: FileKind,
        about: &About,
    ) -> Result<(Self, PartFile), TransferError> {
        let mut writer = Self::open(to)?;
        let reason = match ChunkReader::open(&writer.part, kind) {
            Ok((reader, found)) if found == *about => {
                let bytes = reader.length;
                writer.part_reader = Some(reader);
                return Ok((writer, PartFile::Resumable(bytes)));
            }
            Ok((_, found)) => format!("it is of block {} {}", found.number, found.hash),
            Err(TransferError::NotOurs { what, .. }) => format!("it is not {what}"),
            Err(TransferError::Damaged { reason, .. }) => format!("it is damaged: {reason}"),
            Err(error) => return Err(error),
        };
        let metadata = writer.out.get_ref().metadata();
        let bytes = metadata.map_err(|error| Fault::io("read", &writer.part, error))?;
        writer.begin(kind, about)?;
        let part = match bytes.len() {
            0 => PartFile::Missing,
            _ => PartFile::Unusable(reason),
        };
        Ok((writer, part))
    }

    /// Ends the current chunk. If the part file has a next one that is full and has rows of `segment` with keys above
    /// `after`, skips it: the caller says that its rows are those it would add.
    pub(crate) fn skip_chunk(
        &mut self,
        segment: Segment,
        after: &[u8],
    ) -> Result<Option<SkippedChunk>, TransferError> {
        self.flush()?;
        let chunk_bytes = self.chunk_bytes;
        let Some(reader) = &mut self.part_reader else {
            return Ok(None);
        };
        let place = reader.place();
        let skipped = match reader.next() {
            Ok(Some(chunk)) if chunk.segment == segment => full(&chunk, after, chunk_bytes)?,
            Err(TransferError::Fault(fault)) => return Err(fault.into()),
            _ => None,
        };
        if skipped.is_none() {
            reader.seek(place)?;
        }
        Ok(skipped)
    }

    /// Whether the part file has the chunk that is to be written; if not, cuts the file there.
    pub(super) fn is_in_part_file(&mut self, tag: u8, plain: &[u8]) -> Result<bool, Fault> {
        let Some(reader) = &mut self.part_reader else {
            return Ok(false);
        };
        let place = reader.place();
        match reader.chunk() {
            // The end is always written: something may follow the one in the part file.
            Ok((found, rows)) if tag != END && found == tag && rows == plain => Ok(true),
            Err(TransferError::Fault(fault)) => Err(fault),
            _ => self.truncate_to(place).map(|()| false),
        }
    }
}

/// The chunk, if a writer of chunks of `chunk_bytes` has ended it because it was full.
fn full(
    chunk: &Chunk,
    after: &[u8],
    chunk_bytes: usize,
) -> Result<Option<SkippedChunk>, TransferError> {
    let mut skipped = SkippedChunk {
        rows: 0,
        last_key: after.to_vec(),
    };
    let (mut is_ascending, mut last_row) = (true, 0);
    let is_whole = chunk.each(|key, value| {
        is_ascending &= skipped.last_key[..] < *key;
        skipped.rows += 1;
        skipped.last_key.clear();
        skipped.last_key.extend_from_slice(key);
        last_row = 1 + key.len() + 4 + value.len();
        Ok(())
    })?;
    let bytes = chunk.rows.len();
    let is_full = bytes >= chunk_bytes && bytes - last_row < chunk_bytes;
    Ok((is_whole && is_ascending && is_full).then_some(skipped))
}
