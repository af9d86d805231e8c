//! Headers of blocks that are not executed yet, as a sync gets them from peers: kept, so that it goes on after a restart.
//!
//! A run is a sequence of headers, each the parent of the one above it. It is known by its head, and grows downwards. Rows of a run
//! and the list of all runs are written as one batch, so the list never names a header that is not there. The rows are in `meta`,
//! not among the blocks: each header there is of a block that was executed, and a repair relies on that.
//!
//! The sync decides which runs there are; this file only keeps them.

use crate::{BlockId, Chain};
use alloy_rlp::Encodable;
use niwaki_primitives::{B256, Fault, Header};
use niwaki_storage::{Batch, Segment, corrupt};
use std::ops::Range;

/// The row of `meta` with all runs.
const RUNS: &[u8] = b"skeleton";
/// How the key of a header begins; then the number of the run, 4 bytes, and the block's number, 8 bytes.
const HEADER: &[u8] = b"skeleton header ";
/// The format of the rows.
const VERSION: u8 = 1;
/// Bytes of a run in its row.
const RUN_BYTES: usize = 84;

/// Headers that are linked by their parents' hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderRun {
    /// Which run it is.
    pub run: u32,
    /// The highest block.
    pub head: BlockId,
    /// The number of the lowest block.
    pub tail: u64,
    /// The parent of the lowest block.
    pub parent: B256,
}

impl HeaderRun {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.run.to_be_bytes());
        out.extend_from_slice(&self.head.to_key());
        out.extend_from_slice(&self.tail.to_be_bytes());
        out.extend_from_slice(self.parent.as_slice());
    }

    fn decode(row: &[u8; RUN_BYTES]) -> Option<Self> {
        let (run, rest) = row.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (hash, rest) = rest.split_first_chunk::<32>()?;
        let (tail, parent) = rest.split_first_chunk::<8>()?;
        Some(Self {
            run: u32::from_be_bytes(*run),
            head: BlockId {
                number: u64::from_be_bytes(*number),
                hash: B256::from(*hash),
            },
            tail: u64::from_be_bytes(*tail),
            parent: B256::try_from(parent).ok()?,
        })
    }
}

fn header_key(run: u32, number: u64) -> Vec<u8> {
    let mut key = HEADER.to_vec();
    key.extend_from_slice(&run.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn put_runs(runs: &[HeaderRun], batch: &mut Batch) {
    let mut row = vec![VERSION];
    runs.iter().for_each(|run| run.encode(&mut row));
    match runs.is_empty() {
        true => batch.delete(Segment::Meta, RUNS),
        false => batch.put(Segment::Meta, RUNS, &row),
    }
}

impl Chain {
    /// All runs of headers whose blocks are not executed.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn header_runs(&self) -> Result<Vec<HeaderRun>, Fault> {
        let Some(row) = self.database().get(Segment::Meta, RUNS)? else {
            return Ok(Vec::new());
        };
        let damaged = || corrupt(Segment::Meta, RUNS, "a version and runs of 84 bytes");
        let Some((&VERSION, rest)) = row.split_first() else {
            return Err(damaged());
        };
        let (runs, []) = rest.as_chunks::<RUN_BYTES>() else {
            return Err(damaged());
        };
        let runs = runs.iter().map(HeaderRun::decode);
        runs.collect::<Option<_>>().ok_or_else(damaged)
    }

    /// Adds headers with their hashes to a run. `runs` are all runs as they are with these headers.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn add_run_headers<'h>(
        &self,
        run: u32,
        headers: impl Iterator<Item = (B256, &'h Header)>,
        runs: &[HeaderRun],
    ) -> Result<(), Fault> {
        let mut batch = Batch::new();
        for (hash, header) in headers {
            let key = header_key(run, header.number);
            batch.put_with(Segment::Meta, &key, |out| {
                out.extend_from_slice(hash.as_slice());
                header.encode(out);
            });
        }
        put_runs(runs, &mut batch);
        self.database().write(batch, false)
    }

    /// The header of a run at a height, with its hash.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn run_header(&self, run: u32, number: u64) -> Result<Option<(B256, Header)>, Fault> {
        let key = header_key(run, number);
        let Some(row) = self.database().get(Segment::Meta, &key)? else {
            return Ok(None);
        };
        let damaged = || corrupt(Segment::Meta, &key, "a hash and the RLP of a header");
        let (hash, rlp) = row.split_first_chunk::<32>().ok_or_else(damaged)?;
        let header = alloy_rlp::decode_exact(rlp).map_err(|_| damaged())?;
        Ok(Some((B256::from(*hash), header)))
    }

    /// Removes headers of a run. `runs` are all runs as they are without these headers.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn remove_run_headers(
        &self,
        run: u32,
        numbers: Range<u64>,
        runs: &[HeaderRun],
    ) -> Result<(), Fault> {
        // First the list: it may not name what is not there.
        let mut batch = Batch::new();
        put_runs(runs, &mut batch);
        let (from, to) = (header_key(run, numbers.start), header_key(run, numbers.end));
        for row in self.database().range(Segment::Meta, &from, Some(&to)) {
            batch.delete(Segment::Meta, &row?.0);
            self.database().write_if_large(&mut batch)?;
        }
        self.database().write(batch, false)
    }
}
