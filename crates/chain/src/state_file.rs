//! The state of the head as a file that any node can import and verify against a header.
//!
//! The file has what a node needs to continue from the head: flat accounts and slots in the order of their keys, codes,
//! the genesis block, and the last 256 canonical blocks, whose hashes BLOCKHASH returns. It has no trie: the import
//! computes it, and thereby verifies the state against the head's header.

mod import;

use crate::chunks::{CHUNK_BYTES, ChunkWriter, FileKind, PartFile};
use crate::{BlockId, Chain, TransferError};
use niwaki_primitives::Fault;
use niwaki_storage::{Segment, Snapshot, missing};
use std::path::Path;

pub use import::{GenesisSource, StateImport};
pub(crate) use import::{is_resumable_fault, verify_genesis};

/// Ancestors whose hashes a block can read.
///
/// Spec: Yellow Paper, BLOCKHASH.
pub(crate) const BLOCKS: u64 = 256;

/// How far an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exporting {
    /// An interrupted export of the same state has left this many bytes, of which the whole chunks stay.
    Resuming(u64),
    /// The part file of an interrupted export can't be used, for this reason, and is overwritten.
    Overwriting(String),
    /// Parts written, of how many.
    Writing(u64, u64),
}

/// Called with how far the export is; `false` stops it.
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
    /// Bytes of it that an interrupted export has written.
    pub resumed_bytes: u64,
}

/// The segments that are written whole, in this order. Their keys are hashes, so the first bytes of a key say how far
/// the export is.
const SEGMENTS: [Segment; 3] = [Segment::Code, Segment::Accounts, Segment::Slots];

/// Parts of a segment, by the first two bytes of its keys.
const PARTS: u64 = 1 << 16;

impl Chain {
    /// Writes the state of the head to the file `to`, which must not exist. Until the file is whole, its name ends in
    /// `.part`. If an interrupted export of the same state has left such a file, this one resumes it; the result is the
    /// same, byte for byte, as without the interruption. Blocks that are imported during the export are not in it.
    ///
    /// # Errors
    /// [`TransferError`]; then there is no file. If the export was stopped or could not write, the part file stays and
    /// the same call resumes.
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
        let (snapshot, about, head) = {
            // Head and snapshot belong together.
            let _writer = self.writer();
            (self.database().snapshot(), self.about(), self.head())
        };
        let lowest = head.id.number.saturating_add(1).saturating_sub(blocks);
        if let Some(first) = self.votes_since(&head)?.filter(|first| *first < lowest) {
            return Err(TransferError::Votes { first, blocks });
        }
        let (mut out, part) = ChunkWriter::resume(to, FileKind::State, &about)?;
        out.chunk_bytes = chunk_bytes;
        let mut exported = StateExported {
            head: BlockId {
                number: about.number,
                hash: about.hash,
            },
            accounts: 0,
            slots: 0,
            codes: 0,
            bytes: 0,
            resumed_bytes: 0,
        };
        let written = report_part_file(part, report)
            .and_then(|()| self.write_blocks(&snapshot, exported.head, blocks, &mut out))
            .and_then(|()| write_rows(&snapshot, &mut exported, &mut out, report));
        match written {
            Ok(()) => {
                (exported.bytes, exported.resumed_bytes) = out.finish()?;
                Ok(exported)
            }
            Err(error @ (TransferError::Stopped | TransferError::Fault(Fault::Io { .. }))) => {
                out.keep_part()?;
                Err(error)
            }
            // Damage of the database may be in the part file.
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
        // Blocks may have been imported since.
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

fn report_part_file(part: PartFile, report: &mut StateReport<'_>) -> Result<(), TransferError> {
    let continues = match part {
        PartFile::Missing => true,
        PartFile::Resumable(bytes) => report(Exporting::Resuming(bytes)),
        PartFile::Unusable(reason) => report(Exporting::Overwriting(reason)),
    };
    continues.then_some(()).ok_or(TransferError::Stopped)
}

fn write_rows(
    snapshot: &Snapshot,
    exported: &mut StateExported,
    out: &mut ChunkWriter,
    report: &mut StateReport<'_>,
) -> Result<(), TransferError> {
    for (at, segment) in (0_u64..).zip(SEGMENTS) {
        let mut report_parts = |parts: u64| {
            let continues = report(Exporting::Writing(
                at * PARTS + parts,
                SEGMENTS.len() as u64 * PARTS,
            ));
            continues.then_some(()).ok_or(TransferError::Stopped)
        };
        let (mut count, mut from) = (0_u64, Vec::new());
        // The head determines accounts and slots, but side blocks may have added codes since.
        while segment != Segment::Code
            && let Some(skipped) = out.skip_chunk(segment, &from)?
        {
            count += skipped.rows;
            from = skipped.last_key;
            report_parts(part_of(&from))?;
        }
        if count > 0 {
            from.push(0);
        }
        for row in snapshot.range(segment, &from, None) {
            let (key, value) = row?;
            let has_ended_chunk = out.row(segment, &key, &value)?;
            count += 1;
            if has_ended_chunk || count.is_multiple_of(1024) {
                report_parts(part_of(&key))?;
            }
        }
        match segment {
            Segment::Code => exported.codes = count,
            Segment::Accounts => exported.accounts = count,
            _ => exported.slots = count,
        }
        // Of a small segment nothing was reported yet.
        report_parts(PARTS)?;
    }
    Ok(())
}

/// In which part of a segment a key is.
fn part_of(key: &[u8]) -> u64 {
    key.first_chunk()
        .map_or(0, |first| u64::from(u16::from_be_bytes(*first)))
}
