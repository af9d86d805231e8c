//! Blob transactions that came without their blobs (eth/72), until their cells are here.
//!
//! ```text
//! transaction of a peer -> its cells are asked of the same peer -> put together -> the pool, which verifies the proofs
//!                                  | 5 s, not all of them, gone
//!                                  \-> fetched again, as a whole, from another announcer
//! ```
//!
//! Of a transaction that is taken whole these are the 64 data columns of every blob, which are the blob; of one that is sampled those that
//! the consensus client keeps, and one more. Proofs are not bound by the transaction's hash. So transaction and cells come from one peer:
//! if the proofs are wrong, it is known who sent them.

use super::GossipBreach;
use super::pool::{ReceivedCells, ReceivedTransaction};
use super::sampling::Sampling;
use super::transaction::{DATA_COLUMNS, FromPeer, with_blobs};
use crate::peers::ConnId;
use crate::wire::{Announced, CellMask};
use niwaki_primitives::map::HashMap;
use niwaki_primitives::{B256, Bytes};
use std::collections::{BTreeMap, VecDeque};

/// A peer takes less for its answer.
const ANSWER_MS: u64 = 5_000;
/// Transactions that wait for cells, of all peers; each has at most 128 KiB of its own.
const MAX_WANTED: usize = 1024;
/// Cells asked for at a time, unless one transaction has more: the answer has 2 MiB.
const MAX_ASKED_CELLS: usize = 1024;
/// Announcers that are remembered of a transaction.
const MAX_OTHERS: usize = 16;

/// A blob transaction that waits for its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blobless {
    pub(super) transaction: FromPeer,
    /// Who sent it, and is asked for its cells.
    pub(super) conn: ConnId,
    /// Who announced it first.
    pub(super) first: ConnId,
    /// Who else announced it with all columns.
    pub(super) others: Vec<(ConnId, Announced)>,
    /// Whether cells are enough.
    pub(super) is_sampled: bool,
}

/// A request for columns of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellRequest {
    pub(super) conn: ConnId,
    pub(super) request: u64,
    pub(super) transactions: Vec<B256>,
    pub(super) columns: CellMask,
}

/// What an answer or the lack of one leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cells {
    /// With their blobs or cells, whose proofs are not verified.
    pub(super) complete: Vec<(Blobless, ReceivedTransaction)>,
    /// Those of which the peer did not deliver the cells.
    pub(super) lost: Vec<Blobless>,
}

#[derive(Debug)]
struct Open {
    request: u64,
    asked: Vec<B256>,
    columns: CellMask,
    deadline_ms: u64,
}

#[derive(Debug, Default)]
struct Peer {
    queue: VecDeque<B256>,
    open: Option<Open>,
}

/// The transactions that wait for cells.
#[derive(Debug, Default)]
pub(super) struct CellFetcher {
    wanted: HashMap<B256, Blobless>,
    peers: BTreeMap<ConnId, Peer>,
    last_request: u64,
}

/// The columns that are the blobs.
const DATA: CellMask = CellMask::from_bits(u128::MAX >> (128 - DATA_COLUMNS));

/// Whether a peer with these columns can deliver whole blobs.
pub(super) fn has_data(columns: Option<CellMask>) -> bool {
    columns.is_some_and(|columns| columns.bits() & DATA.bits() == DATA.bits())
}

impl CellFetcher {
    /// Whether the cells of a transaction are on their way.
    pub(super) fn contains(&self, hash: &B256) -> bool {
        self.wanted.contains_key(hash)
    }

    /// A transaction came without its blobs. Returns whether there is room for it.
    pub(super) fn add(&mut self, blobless: Blobless) -> bool {
        let hash = blobless.transaction.hash;
        if self.wanted.len() >= MAX_WANTED || self.contains(&hash) {
            return false;
        }
        let peer = self.peers.entry(blobless.conn).or_default();
        peer.queue.push_back(hash);
        self.wanted.insert(hash, blobless);
        true
    }

    /// Another peer announces a transaction whose cells are on their way.
    pub(super) fn announce(&mut self, conn: ConnId, announced: &Announced) {
        let Some(wanted) = self.wanted.get_mut(&announced.hash) else {
            return;
        };
        let is_known = wanted.conn == conn || wanted.others.iter().any(|other| other.0 == conn);
        if !is_known && wanted.others.len() < MAX_OTHERS {
            wanted.others.push((conn, *announced));
        }
    }

    /// A transaction is here, from wherever, or in a block: its cells are not wanted any more.
    pub(super) fn forget(&mut self, hash: &B256) {
        self.wanted.remove(hash);
    }

    /// A peer has left. Returns the transactions whose cells it has not sent.
    pub(super) fn gone(&mut self, conn: ConnId) -> Vec<Blobless> {
        let Some(peer) = self.peers.remove(&conn) else {
            return Vec::new();
        };
        let asked = peer.open.map(|open| open.asked).unwrap_or_default();
        let all = asked.into_iter().chain(peer.queue);
        all.filter_map(|hash| self.wanted.remove(&hash)).collect()
    }

    /// A peer answers a request with cells of `columns`.
    ///
    /// # Errors
    /// [`GossipBreach`] if it has cells that were not asked for.
    pub(super) fn answer(
        &mut self,
        conn: ConnId,
        request: u64,
        cells: Vec<(B256, Vec<Bytes>)>,
        columns: CellMask,
    ) -> Result<Cells, GossipBreach> {
        let mut result = Cells::default();
        let Some(open) = self.take_open(conn, request) else {
            // It came after its time.
            return Ok(result);
        };
        // Fewer columns are no use: others are asked for all.
        let is_complete = columns == open.columns;
        let mut left = open.asked;
        for (hash, cells) in cells {
            let cells = ReceivedCells { columns, cells };
            match self.take_cells(&mut left, hash, cells, is_complete) {
                Ok(complete) => result.complete.extend(complete),
                Err(breach) => {
                    // It goes, and what it was asked for with it.
                    let peer = self.peers.entry(conn).or_default();
                    peer.queue.extend(left);
                    return Err(breach);
                }
            }
        }
        let lost = left.iter().filter_map(|hash| self.wanted.remove(hash));
        result.lost = lost.collect();
        Ok(result)
    }

    /// The cells of one transaction, of those that are left of a request.
    fn take_cells(
        &mut self,
        left: &mut Vec<B256>,
        hash: B256,
        cells: ReceivedCells,
        is_complete: bool,
    ) -> Result<Option<(Blobless, ReceivedTransaction)>, GossipBreach> {
        let at = left.iter().position(|asked| *asked == hash);
        let at = at.ok_or(GossipBreach::NotAsked(hash))?;
        let wanted = self.wanted.get(&hash);
        let Some(wanted) = wanted.filter(|_| is_complete) else {
            return Ok(None);
        };
        let transaction = &wanted.transaction;
        let received = if wanted.is_sampled {
            let count = transaction.missing_blobs * cells.columns.count();
            if cells.cells.len() != count {
                return Err(GossipBreach::Cells(hash));
            }
            ReceivedTransaction {
                hash,
                bytes: transaction.bytes.clone(),
                cells: Some(cells),
            }
        } else {
            let bytes = with_blobs(transaction, &cells.cells);
            ReceivedTransaction {
                hash,
                bytes: bytes.map_err(|_| GossipBreach::Cells(hash))?,
                cells: None,
            }
        };
        left.swap_remove(at);
        Ok(self.wanted.remove(&hash).map(|wanted| (wanted, received)))
    }

    fn take_open(&mut self, conn: ConnId, request: u64) -> Option<Open> {
        let peer = self.peers.get_mut(&conn)?;
        peer.open.take_if(|open| open.request == request)
    }

    /// Does what is due: gives up what takes too long, and asks the peers that are free. Returns the requests, what was given up, and of
    /// which peers.
    pub(super) fn tick(
        &mut self,
        sampling: &Sampling,
        now_ms: u64,
    ) -> (Vec<CellRequest>, Vec<(ConnId, Vec<Blobless>)>) {
        let (mut requests, mut late) = (Vec::new(), Vec::new());
        for (conn, peer) in &mut self.peers {
            if let Some(open) = peer.open.take_if(|open| open.deadline_ms <= now_ms) {
                let lost = open.asked.iter();
                let lost = lost.filter_map(|hash| self.wanted.remove(hash)).collect();
                late.push((*conn, lost));
            }
            if peer.open.is_some() || peer.queue.is_empty() {
                continue;
            }
            let request = self.last_request + 1;
            let sampled = sampling.columns(request);
            let Some((asked, columns)) = next_asked(*conn, &mut peer.queue, &self.wanted, sampled)
            else {
                continue;
            };
            self.last_request = request;
            peer.open = Some(Open {
                request,
                asked: asked.clone(),
                columns,
                deadline_ms: now_ms.saturating_add(ANSWER_MS),
            });
            requests.push(CellRequest {
                conn: *conn,
                request,
                transactions: asked,
                columns,
            });
        }
        (requests, late)
    }
}

/// Takes from a peer's queue what it is asked for next, and the columns: those of the first transaction in it, up to one that needs others.
fn next_asked(
    conn: ConnId,
    queue: &mut VecDeque<B256>,
    wanted: &HashMap<B256, Blobless>,
    sampled: CellMask,
) -> Option<(Vec<B256>, CellMask)> {
    let mut asked: Option<(Vec<B256>, CellMask)> = None;
    let mut cells = 0;
    while let Some(hash) = queue.front() {
        if let Some(wanted) = wanted.get(hash).filter(|wanted| wanted.conn == conn) {
            let columns = if wanted.is_sampled { sampled } else { DATA };
            let own = wanted.transaction.missing_blobs * columns.count();
            let (hashes, common) = asked.get_or_insert_with(|| (Vec::new(), columns));
            let is_first = hashes.is_empty();
            if !is_first && (*common != columns || cells + own > MAX_ASKED_CELLS) {
                break;
            }
            hashes.push(*hash);
            cells += own;
        }
        queue.pop_front();
    }
    asked
}

#[cfg(test)]
mod tests;
