//! Resumes an interrupted import.
//!
//! A checkpoint is the runs of the load and the position in the file up to which they have been read. The file counts
//! as the same if its length, its first chunk and the last one that was read are the same: each checksum covers all
//! before it. If it is another one, or anything else does not fit, the import begins again.

use super::Rows;
use crate::TransferError;
use crate::chunks::{ChunkReader, Place};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{Bytes, Fault};
use niwaki_state::{GenesisLoad, WorldState};
use std::io::ErrorKind;

/// How far a load has come in which file.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(super) struct LoadPosition {
    file_bytes: u64,
    /// After the chunk that says what the file is of.
    first: Place,
    /// After the last chunk whose rows are in the load.
    place: Place,
    /// The segment of the last row, and its key.
    order: u8,
    last: Bytes,
}

impl LoadPosition {
    /// Seeks to the position in the file.
    pub(super) fn seek(self, file: &mut ChunkReader) -> Result<Rows, Fault> {
        file.seek(self.place)?;
        let last = Some((self.order, self.last.to_vec()));
        Ok(Rows { last })
    }
}

/// Begins a load, from the checkpoint of an earlier one of this file if there is any. Of the file only the first chunk
/// has been read.
pub(super) fn begin<'a>(
    world: &'a WorldState,
    file: &mut ChunkReader,
) -> Result<(GenesisLoad<'a>, Option<LoadPosition>), Fault> {
    if let Some(checkpoint) = world.resumable_load()?
        && let Ok(position) = alloy_rlp::decode_exact::<LoadPosition>(&checkpoint.note)
        && (position.file_bytes, position.first) == (file.done().1, file.place())
        && file.has(&position.place)?
    {
        return Ok((world.resume_genesis(&checkpoint)?, Some(position)));
    }
    Ok((world.begin_genesis()?, None))
}

/// Writes a checkpoint of the load, which has all rows up to the position of the file.
pub(super) fn checkpoint(
    load: &mut GenesisLoad<'_>,
    file: &ChunkReader,
    first: Place,
    rows: &Rows,
) -> Result<(), Fault> {
    let Some((order, last)) = &rows.last else {
        return Ok(());
    };
    let position = LoadPosition {
        file_bytes: file.done().1,
        first,
        place: file.place(),
        order: *order,
        last: last.clone().into(),
    };
    load.checkpoint(alloy_rlp::encode(position).into())
}

/// Whether the checkpoint may be right although the import has ended with `error`.
pub(super) fn is_resumable(error: &TransferError) -> bool {
    match error {
        TransferError::Stopped => true,
        TransferError::Fault(fault) => is_resumable_fault(fault),
        _ => false,
    }
}

/// The same of a fault.
pub(crate) fn is_resumable_fault(fault: &Fault) -> bool {
    match fault {
        Fault::Engine { .. } => true,
        // A run ends in the middle of a record.
        Fault::Io { error, .. } => error.kind() != ErrorKind::UnexpectedEof,
        _ => false,
    }
}
