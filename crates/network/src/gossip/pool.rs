//! What gossip and the pool say to each other. The network knows no pool: the node stands between them.

use super::sampling::MIN_WHOLE_PERCENT;
use super::send::Spread;
use crate::peer::Room;
use crate::peers::ConnId;
use crate::wire::CellMask;
use niwaki_primitives::{Address, B256, Bytes};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A transaction as it is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announceable {
    /// Its hash.
    pub hash: B256,
    /// Its EIP-2718 type.
    pub tx_type: u8,
    /// Bytes of its EIP-2718 form as peers up to eth/71 get it, with blobs.
    pub size_with_blobs: u32,
    /// Bytes of its EIP-2718 form as peers from eth/72 on get it, without blobs but with commitments and proofs.
    pub size_without_blobs: u32,
    /// The columns of its blobs that are here. Peers up to eth/71 hear of it only if that is all.
    pub columns: CellMask,
}

/// A transaction that is new in the pool, valid, and not private.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTransaction {
    /// How it is announced.
    pub announceable: Announceable,
    /// Who signed it.
    pub sender: Address,
    /// Its EIP-2718 form; `None` for blob transactions and those above 4 KiB, which are announced only.
    pub encoded: Option<Bytes>,
    /// To how many peers it goes in full.
    pub spread: Spread,
}

/// A transaction that came from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedTransaction {
    /// Its hash, computed from its content.
    pub hash: B256,
    /// Its EIP-2718 form, a blob transaction's with its blobs unless it was sampled.
    pub bytes: Bytes,
    /// The cells of its blobs that are here instead of them, if it was sampled.
    pub cells: Option<ReceivedCells>,
}

/// Some columns of the cells of a transaction's blobs. Their proofs are not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCells {
    /// Which.
    pub columns: CellMask,
    /// The cells of the first of these columns, of every blob in order, then those of the next.
    pub cells: Vec<Bytes>,
}

impl ReceivedTransaction {
    pub(super) fn bytes(&self) -> usize {
        let cells = self.cells.iter().flat_map(|own| &own.cells);
        self.bytes.len() + cells.map(|cell| cell.len()).sum::<usize>()
    }
}

/// Transactions of one peer for the pool, at most 128. What became of each is due by
/// [`GossipHandle::report`](super::GossipHandle::report). While a batch is held, its bytes count towards the 4 MiB that may be on the way.
#[derive(Debug)]
pub struct ReceivedBatch {
    /// The peer.
    pub peer: ConnId,
    /// What it sent.
    pub transactions: Vec<ReceivedTransaction>,
    pub(super) _room: Option<Arc<Room>>,
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// What became of a received transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is in the pool.
    Accepted,
    /// It was in the pool before.
    Known,
    /// It pays too little: it is not fetched again for up to 5 minutes.
    Underpriced,
    /// It can't be in the pool now, for a reason that an honest peer need not know, as its nonce.
    Refused,
    /// It can't be decoded, or its signature, blobs or proofs are wrong: an honest peer does not send it, and this one is cut.
    Invalid,
}

/// What gossip needs of the pool. Its functions are called on the threads of the network: they must be quick, and not call gossip.
#[derive(Clone)]
pub struct PoolView {
    /// Whether the pool has a transaction.
    pub is_here: Arc<dyn Fn(&B256) -> bool + Send + Sync>,
    /// At most so many pending transactions that are not private, for a peer that is new. Called on a thread of its own.
    pub pending: Arc<dyn Fn(usize) -> Vec<Announceable> + Send + Sync>,
    /// The share of transactions whose blobs are taken whole even if not all columns are kept: a provider's (EIP-8070), percent.
    pub whole_percent: u8,
}

impl Default for PoolView {
    /// An empty pool.
    fn default() -> Self {
        Self {
            is_here: Arc::new(|_| false),
            pending: Arc::new(|_| Vec::new()),
            whole_percent: MIN_WHOLE_PERCENT,
        }
    }
}

impl std::fmt::Debug for PoolView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolView").finish_non_exhaustive()
    }
}
