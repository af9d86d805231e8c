//! Blob transactions that came without their blobs (eth/72), until their cells are here.
//!
//! ```text
//! transaction of a peer -> its cells are asked of the same peer -> put together -> the pool, which verifies the proofs
//!                                  | 5 s, not all of them, gone
//!                                  \-> fetched again, as a whole, from another announcer
//! ```
//!
//! This node takes the 64 data columns of every blob, which are the blob: it is a provider of all (EIP-8070 lets a node choose to be one
//! for each transaction). Proofs are not bound by the transaction's hash. So transaction and cells come from one peer: if the proofs are
//! wrong, it is known who sent them.

use super::GossipBreach;
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
/// Blobs asked for at a time, unless one transaction has more: the answer has 2 MiB.
const MAX_ASKED_BLOBS: usize = 16;
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
}

/// A request for the data columns of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellRequest {
    pub(super) conn: ConnId,
    pub(super) request: u64,
    pub(super) transactions: Vec<B256>,
}

/// What an answer or the lack of one leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Cells {
    /// With their blobs, whose proofs are not verified.
    pub(super) whole: Vec<(Blobless, Bytes)>,
    /// Those of which the peer did not deliver the cells.
    pub(super) lost: Vec<Blobless>,
}

#[derive(Debug)]
struct Open {
    request: u64,
    asked: Vec<B256>,
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

/// All columns that are asked for.
pub(super) fn data_columns() -> CellMask {
    let mut columns = CellMask::default();
    (0..DATA_COLUMNS).for_each(|column| columns.set(column));
    columns
}

/// Whether a peer with these columns can deliver whole blobs.
pub(super) fn has_data(columns: Option<CellMask>) -> bool {
    columns.is_some_and(|columns| (0..DATA_COLUMNS).all(|column| columns.has(column)))
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
        let mut left = open.asked;
        for (hash, cells) in cells {
            match self.take_cells(&mut left, hash, &cells, columns) {
                Ok(whole) => result.whole.extend(whole),
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
        cells: &[Bytes],
        columns: CellMask,
    ) -> Result<Option<(Blobless, Bytes)>, GossipBreach> {
        let at = left.iter().position(|asked| *asked == hash);
        let at = at.ok_or(GossipBreach::NotAsked(hash))?;
        let wanted = self.wanted.get(&hash);
        // Some of the columns are no use: others are asked for all.
        let Some(wanted) = wanted.filter(|_| columns == data_columns()) else {
            return Ok(None);
        };
        let whole = with_blobs(&wanted.transaction, cells);
        let whole = whole.map_err(|_| GossipBreach::Cells(hash))?;
        left.swap_remove(at);
        Ok(self.wanted.remove(&hash).map(|wanted| (wanted, whole)))
    }

    fn take_open(&mut self, conn: ConnId, request: u64) -> Option<Open> {
        let peer = self.peers.get_mut(&conn)?;
        peer.open.take_if(|open| open.request == request)
    }

    /// Does what is due: gives up what takes too long, and asks the peers that are free. Returns the requests, what was given up, and of
    /// which peers.
    pub(super) fn tick(&mut self, now_ms: u64) -> (Vec<CellRequest>, Vec<(ConnId, Vec<Blobless>)>) {
        let (mut requests, mut late) = (Vec::new(), Vec::new());
        for (conn, peer) in &mut self.peers {
            if let Some(open) = peer.open.take_if(|open| open.deadline_ms <= now_ms) {
                let lost = open.asked.iter();
                let lost = lost.filter_map(|hash| self.wanted.remove(hash)).collect();
                late.push((*conn, lost));
            }
            if peer.open.is_some() {
                continue;
            }
            let (mut asked, mut blobs) = (Vec::new(), 0);
            while let Some(hash) = peer.queue.front() {
                let wanted = self.wanted.get(hash).filter(|wanted| wanted.conn == *conn);
                let own = wanted.map_or(0, |wanted| wanted.transaction.missing_blobs);
                if !asked.is_empty() && blobs + own > MAX_ASKED_BLOBS {
                    break;
                }
                if own > 0 {
                    asked.push(*hash);
                    blobs += own;
                }
                peer.queue.pop_front();
            }
            if asked.is_empty() {
                continue;
            }
            self.last_request += 1;
            peer.open = Some(Open {
                request: self.last_request,
                asked: asked.clone(),
                deadline_ms: now_ms.saturating_add(ANSWER_MS),
            });
            requests.push(CellRequest {
                conn: *conn,
                request: self.last_request,
                transactions: asked,
            });
        }
        (requests, late)
    }
}

#[cfg(test)]
mod tests;
