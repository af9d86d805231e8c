//! The state of the head as a file that any node can import and verify against a header.
//!
//! Out goes what a node needs to go on from the head: flat accounts and slots in the order of their
//! keys, codes, the genesis block, and the last 256 canonical blocks, whose hashes a block may ask
//! for. No trie: the import computes it again, and so learns whether the state is that of the head's
//! header.

mod import;

use crate::chunks::{CHUNK_BYTES, ChunkWriter, FileKind, Left, Written};
use crate::rows::{block_key, missing};
use crate::{BlockId, Chain, TransferError};
use niwaki_primitives::Fault;
use niwaki_storage::{Segment, Snapshot};
use std::path::Path;

pub use import::{GenesisSource, StateImport};

/// As many hashes of blocks before it can a block ask for.
///
/// Spec: Yellow Paper, BLOCKHASH.
pub(crate) const BLOCKS: u64 = 256;

/// How far an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exporting {
    /// An interrupted export of the same state has left this many bytes. What is whole of them stays.
    Resuming(u64),
    /// What an interrupted export has left can't be used, for this reason, and is written over.
    Anew(String),
    /// So many of how many parts are written.
    Writing(u64, u64),
}

/// Told how far the export is; `false` stops it.
pub type StateReport<'a> = dyn FnMut(Exporting) -> bool + 'a;

/// What an export wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateExported {
    /// The block whose state it is.
    pub head: BlockId,
    /// Accounts.
    pub accounts: u64,
    /// Slots.
    pub slots: u64,
    /// Codes.
    pub codes: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// As many of them were left by an interrupted export.
    pub kept: u64,
}

/// The segments whose rows are all written, in this order. Their keys are hashes, so the first bytes
/// of a key say how far the segment is gone through.
const SEGMENTS: [Segment; 3] = [Segment::Code, Segment::Accounts, Segment::Slots];

/// Parts of a segment, by the first two bytes of its keys.
const PARTS: u64 = 1 << 16;

impl Chain {
    /// Writes the state of the head to the file `to`, which must not exist. The file appears under its
    /// name when it is whole; until then `.part` stands behind that. If an interrupted export of the
    /// same state has left such a file, this one goes on with it; the result is the same, byte for
    /// byte, as without the interruption. Blocks may be imported meanwhile: they are not in it.
    ///
    /// # Errors
    /// [`TransferError`]; then there is no file. What was written stays for the same call to go on
    /// with if it was stopped or could not be written further.
    pub fn export_state(
        &self,
        to: &Path,
        report: &mut StateReport<'_>,
    ) -> Result<StateExported, TransferError> {
        self.export_state_with(BLOCKS, CHUNK_BYTES, to, report)
    }

    /// With the last `blocks` blocks, in chunks of `chunk_bytes`.
    pub(crate) fn export_state_with(
        &self,
        blocks: u64,
        chunk_bytes: usize,
        to: &Path,
        report: &mut StateReport<'_>,
    ) -> Result<StateExported, TransferError> {
        let (snapshot, about) = {
            // Head and snapshot belong together.
            let _writer = self.writer();
            (self.database().snapshot(), self.about())
        };
        let (out, left) = ChunkWriter::resume(to, FileKind::State, &about)?;
        let mut out = out.with_chunk_bytes(chunk_bytes);
        let mut exported = StateExported {
            head: BlockId {
                number: about.number,
                hash: about.hash,
            },
            accounts: 0,
            slots: 0,
            codes: 0,
            bytes: 0,
            kept: 0,
        };
        let written = tell(left, report)
            .and_then(|()| self.write_blocks(&snapshot, exported.head, blocks, &mut out))
            .and_then(|()| write_rows(&snapshot, &mut exported, &mut out, report));
        match written {
            Ok(()) => {
                let Written { bytes, kept } = out.finish()?;
                Ok(StateExported {
                    bytes,
                    kept,
                    ..exported
                })
            }
            Err(error @ (TransferError::Stopped | TransferError::Fault(Fault::Io { .. }))) => {
                out.leave()?;
                Err(error)
            }
            // What is wrong with the database may be in what was written.
            Err(error) => {
                out.discard()?;
                Err(error)
            }
        }
    }

    /// The genesis block and those up to the head, lowest first.
    fn write_blocks(
        &self,
        snapshot: &Snapshot,
        head: BlockId,
        blocks: u64,
        out: &mut ChunkWriter,
    ) -> Result<(), TransferError> {
        // Blocks may have come since.
        let numbers = self.stored_numbers()?;
        let mut numbers: Vec<_> = numbers.take_while(|n| *n <= head.number).collect();
        let lowest = head.number.saturating_add(1).saturating_sub(blocks);
        let genesis = numbers.first().copied();
        numbers.retain(|number| *number >= lowest || Some(*number) == genesis);
        for segment in [Segment::Headers, Segment::Bodies, Segment::Receipts] {
            for number in &numbers {
                let key = number.to_be_bytes();
                let hash = snapshot.get(Segment::Canonical, &key)?;
                let hash = hash.ok_or_else(|| missing(Segment::Canonical, &key))?;
                let key = [&key[..], &hash].concat();
                let row = snapshot.get(segment, &key)?;
                out.row(segment, &key, &row.ok_or_else(|| missing(segment, &key))?)?;
            }
        }
        Ok(())
    }
}

fn tell(left: Left, report: &mut StateReport<'_>) -> Result<(), TransferError> {
    let goes_on = match left {
        Left::Nothing => true,
        Left::Part(bytes) => report(Exporting::Resuming(bytes)),
        Left::Other(reason) => report(Exporting::Anew(reason)),
    };
    goes_on.then_some(()).ok_or(TransferError::Stopped)
}

fn write_rows(
    snapshot: &Snapshot,
    exported: &mut StateExported,
    out: &mut ChunkWriter,
    report: &mut StateReport<'_>,
) -> Result<(), TransferError> {
    for (at, segment) in (0_u64..).zip(SEGMENTS) {
        let mut tell = |parts: u64| {
            let goes_on = report(Exporting::Writing(
                at * PARTS + parts,
                SEGMENTS.len() as u64 * PARTS,
            ));
            goes_on.then_some(()).ok_or(TransferError::Stopped)
        };
        let (mut count, mut from) = (0_u64, Vec::new());
        // The head says which accounts and slots there are. Codes that blocks beside it bring may
        // have come since.
        while segment != Segment::Code
            && let Some(passed) = out.pass(segment, &from)?
        {
            count += passed.rows;
            from = passed.last_key;
            tell(part_of(&from))?;
        }
        if count > 0 {
            from.push(0);
        }
        for row in snapshot.range(segment, &from, None) {
            let (key, value) = row?;
            let has_ended = out.row(segment, &key, &value)?;
            count += 1;
            if has_ended || count.is_multiple_of(1024) {
                tell(part_of(&key))?;
            }
        }
        match segment {
            Segment::Code => exported.codes = count,
            Segment::Accounts => exported.accounts = count,
            _ => exported.slots = count,
        }
        // Of a small segment nothing was told yet.
        tell(PARTS)?;
    }
    Ok(())
}

/// In which part of a segment a key is.
fn part_of(key: &[u8]) -> u64 {
    key.first_chunk()
        .map_or(0, |first| u64::from(u16::from_be_bytes(*first)))
}

/// The key of a block's rows, as a block.
fn block_of(key: &[u8]) -> Option<BlockId> {
    let (number, hash) = key.split_first_chunk::<8>()?;
    let block = BlockId {
        number: u64::from_be_bytes(*number),
        hash: hash.try_into().ok()?,
    };
    debug_assert_eq!(block_key(&block), key);
    Some(block)
}
