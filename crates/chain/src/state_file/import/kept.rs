//! Going on with an import that was cut short.
//!
//! Beside the runs that hold what was read stands how far in which file that reaches. A file is taken
//! for the same if its length, its first chunk and the last one that was read are: each checksum rests
//! on all before it. If it is not, or anything else does not fit, the import begins anew.

use super::Rows;
use crate::TransferError;
use crate::chunks::{ChunkReader, Place};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{Bytes, Fault};
use niwaki_state::{GenesisLoad, WorldState};
use std::io::ErrorKind;

/// How far a load has come in which file.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(super) struct Note {
    file_bytes: u64,
    /// Behind the chunk that says what the file is of.
    first: Place,
    /// Behind the last chunk whose rows are in the load.
    place: Place,
    /// The segment of the last row, and its key.
    order: u8,
    last: Bytes,
}

impl Note {
    /// Goes where the load has come to in the file.
    pub(super) fn go_on(self, file: &mut ChunkReader) -> Result<Rows, Fault> {
        file.go_to(self.place)?;
        let last = Some((self.order, self.last.to_vec()));
        Ok(Rows { last })
    }
}

/// Begins a load, with what an earlier one of this file has kept if there is any. The file was opened,
/// and nothing else was read.
pub(super) fn begin<'a>(
    world: &'a WorldState,
    file: &mut ChunkReader,
) -> Result<(GenesisLoad<'a>, Option<Note>), Fault> {
    if let Some(kept) = world.resumable_load()?
        && let Ok(note) = alloy_rlp::decode_exact::<Note>(&kept.note)
        && (note.file_bytes, note.first) == (file.done().1, file.place())
        && file.has(&note.place)?
    {
        return Ok((world.resume_genesis(&kept)?, Some(note)));
    }
    Ok((world.begin_genesis()?, None))
}

/// Keeps what is in the load, which is all rows up to where the file is read.
pub(super) fn checkpoint(
    load: &mut GenesisLoad<'_>,
    file: &ChunkReader,
    first: Place,
    rows: &Rows,
) -> Result<(), Fault> {
    let Some((order, last)) = &rows.last else {
        return Ok(());
    };
    let note = Note {
        file_bytes: file.done().1,
        first,
        place: file.place(),
        order: *order,
        last: last.clone().into(),
    };
    load.checkpoint(alloy_rlp::encode(note).into())
}

/// Whether what was kept may be right although the import has ended with `error`.
pub(super) fn may_go_on(error: &TransferError) -> bool {
    match error {
        TransferError::Stopped | TransferError::Fault(Fault::Engine { .. }) => true,
        // A run ends in the middle of a record.
        TransferError::Fault(Fault::Io { error, .. }) => error.kind() != ErrorKind::UnexpectedEof,
        _ => false,
    }
}
