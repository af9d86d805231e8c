//! The state of the head as a file that any node can take in and hold against a header.
//!
//! Out goes what a node needs to go on from the head: flat accounts and slots in the order of their
//! keys, codes, the genesis block, and the last 256 canonical blocks, whose hashes a block may ask
//! for. No trie: whoever takes the file in makes it anew, and so learns whether the state is that of
//! the head's header.

mod import;

use crate::chunks::{ChunkWriter, FileKind};
use crate::rows::{block_key, missing};
use crate::{BlockId, Chain, TransferError};
use niwaki_storage::{Segment, Snapshot};
use std::path::Path;

pub use import::{GenesisSource, StateImport};

/// As many hashes of blocks before it can a block ask for.
///
/// Spec: Yellow Paper, BLOCKHASH.
pub(crate) const BLOCKS: u64 = 256;

/// Told how many of how many parts are written; `false` stops.
pub type StateReport<'a> = dyn FnMut(u64, u64) -> bool + 'a;

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
}

/// The segments whose rows are all written, in this order. Their keys are hashes, so the first bytes
/// of a key say how far the segment is gone through.
const SEGMENTS: [Segment; 3] = [Segment::Code, Segment::Accounts, Segment::Slots];

/// Parts of a segment, by the first two bytes of its keys.
const PARTS: u64 = 1 << 16;

impl Chain {
    /// Writes the state of the head to the file `to`, which must not exist. The file appears under its
    /// name when it is whole; what an export that was cut short has left is written over. Blocks may
    /// be imported meanwhile: they are not in it.
    ///
    /// # Errors
    /// [`TransferError`]; then there is no file.
    pub fn export_state(
        &self,
        to: &Path,
        report: &mut StateReport<'_>,
    ) -> Result<StateExported, TransferError> {
        self.export_state_with(BLOCKS, to, report)
    }

    /// With the last `blocks` blocks.
    pub(crate) fn export_state_with(
        &self,
        blocks: u64,
        to: &Path,
        report: &mut StateReport<'_>,
    ) -> Result<StateExported, TransferError> {
        let (snapshot, about) = {
            // Head and snapshot belong together.
            let _writer = self.writer();
            (self.database().snapshot(), self.about())
        };
        let mut out = ChunkWriter::create(to, FileKind::State, &about)?;
        let mut exported = StateExported {
            head: BlockId {
                number: about.number,
                hash: about.hash,
            },
            accounts: 0,
            slots: 0,
            codes: 0,
            bytes: 0,
        };
        let written = self
            .write_blocks(&snapshot, (exported.head, blocks), &mut out)
            .and_then(|()| write_rows(&snapshot, &mut exported, &mut out, report));
        match written {
            Ok(()) => {
                exported.bytes = out.finish()?;
                Ok(exported)
            }
            Err(error) => {
                out.abandon()?;
                Err(error)
            }
        }
    }

    /// The genesis block and those up to the head, lowest first.
    fn write_blocks(
        &self,
        snapshot: &Snapshot,
        (head, blocks): (BlockId, u64),
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

fn write_rows(
    snapshot: &Snapshot,
    exported: &mut StateExported,
    out: &mut ChunkWriter,
    report: &mut StateReport<'_>,
) -> Result<(), TransferError> {
    let of = SEGMENTS.len() as u64 * PARTS;
    for (at, segment) in (0_u64..).zip(SEGMENTS) {
        let mut count = 0_u64;
        for row in snapshot.prefix(segment, &[]) {
            let (key, value) = row?;
            out.row(segment, &key, &value)?;
            count += 1;
            if count.is_multiple_of(1024) {
                let first = key
                    .first_chunk()
                    .map_or(0, |first| u16::from_be_bytes(*first));
                if !report(at * PARTS + u64::from(first), of) {
                    return Err(TransferError::Stopped);
                }
            }
        }
        match segment {
            Segment::Code => exported.codes = count,
            Segment::Accounts => exported.accounts = count,
            _ => exported.slots = count,
        }
        // Of a small segment nothing was told yet.
        if !report((at + 1) * PARTS, of) {
            return Err(TransferError::Stopped);
        }
    }
    Ok(())
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
