//! What gossip decides: messages of peers, results of the pool and new transactions in, orders out.
//!
//! ```text
//! announcement --> Fetcher --Ask--> answer --> [eth/72, blobs: CellFetcher --AskCells--> cells] --> HandOver --> pool
//! Transactions ------------------------------------------------------------------------------> HandOver --> pool
//!                                                                                                            | report
//! pool's new transactions --> Send in full to some, Announce to the others  <--------------------------------/
//! ```
//!
//! What holds: a peer gets nothing that it sent, announced or got before, as far as its set of known hashes remembers; a transaction is
//! handed over once until its result has come; a peer that breaks the rules of gossip is ordered to go, and what it was asked for is asked
//! of others.

mod outgoing;

use super::cells::{Blobless, CellFetcher, Cells, has_data};
use super::fetcher::{FetchAction, Fetcher, Received};
use super::pool::{Announceable, ReceivedTransaction, Verdict};
use super::recent::Recent;
use super::sampling::PROVIDERS;
use super::send::SendSecret;
use super::transaction::FromPeer;
use super::{BLOB_TYPE, GossipBreach, KnownSet};
use crate::key::NodeId;
use crate::peers::{Conduct, ConnId};
use crate::stats::{GossipMessage, SeenCounts};
use crate::wire::{Announced, Announcement, CellMask, EthVersion};
use niwaki_primitives::map::HashSet;
use niwaki_primitives::{B256, Bytes};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Transactions in a batch for the pool, and their bytes unless one has more.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 1 << 20;
/// A peer of whose batch more than a quarter was refused is asked nothing for this time.
const PAUSE_MS: u64 = 200;
/// The highest type of transactions that is known.
const LAST_TYPE: u8 = 4;

/// What gossip orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask a peer for transactions.
    Ask {
        conn: ConnId,
        request: u64,
        hashes: Vec<B256>,
    },
    /// Ask a peer for the cells of blob transactions.
    AskCells {
        conn: ConnId,
        request: u64,
        hashes: Vec<B256>,
        columns: CellMask,
    },
    /// Announce transactions to a peer.
    Announce {
        conn: ConnId,
        announcement: Announcement,
    },
    /// Send a peer transactions in full.
    Send {
        conn: ConnId,
        transactions: Vec<Bytes>,
    },
    /// Give the pool transactions of a peer.
    HandOver {
        conn: ConnId,
        transactions: Vec<ReceivedTransaction>,
    },
    /// End the connection to a peer.
    Disconnect { conn: ConnId, breach: GossipBreach },
    /// Tell the roster what a peer did.
    Conduct { conn: ConnId, conduct: Conduct },
}

#[derive(Debug)]
struct Peer {
    node: NodeId,
    version: EthVersion,
    known: KnownSet,
    announcing: VecDeque<Announceable>,
    /// When the first of them came.
    since_ms: u64,
}

/// Whether the pool has a transaction.
pub(super) type IsHere = Arc<dyn Fn(&B256) -> bool + Send + Sync>;

/// The machine.
pub(super) struct Gossip {
    is_here: IsHere,
    fetcher: Fetcher,
    cells: CellFetcher,
    peers: BTreeMap<ConnId, Peer>,
    /// Transactions that the pool has got and not reported on, with the peer that announced or sent each first.
    handed: Recent<ConnId>,
    /// The same of those that it accepted, until they are mined.
    accepted: Recent<ConnId>,
    secret: SendSecret,
    key: u64,
    is_syncing: bool,
    is_pool_full: bool,
    seen: SeenCounts,
}

impl Gossip {
    /// A machine without peers, as if syncing. `secret` and `key` are random; `whole_percent` of the transactions with blobs are taken with
    /// all of them.
    pub(super) fn new(secret: SendSecret, key: u64, whole_percent: u8, is_here: IsHere) -> Self {
        let mut fetcher = Fetcher::new(key, whole_percent);
        fetcher.hold(true);
        Self {
            is_here,
            fetcher,
            cells: CellFetcher::default(),
            peers: BTreeMap::new(),
            handed: Recent::default(),
            accepted: Recent::default(),
            secret,
            key,
            is_syncing: true,
            is_pool_full: false,
            seen: SeenCounts::default(),
        }
    }

    /// How many transactions came that this node had already, whole and announced.
    pub(super) fn seen(&self) -> SeenCounts {
        self.seen
    }

    /// A peer has come.
    pub(super) fn join(&mut self, conn: ConnId, node: NodeId, version: EthVersion) {
        let peer = Peer {
            node,
            version,
            known: KnownSet::new(self.key),
            announcing: VecDeque::new(),
            since_ms: 0,
        };
        self.peers.insert(conn, peer);
    }

    /// A peer has left.
    pub(super) fn leave(&mut self, conn: ConnId, now_ms: u64) -> Vec<Action> {
        if self.peers.remove(&conn).is_none() {
            return Vec::new();
        }
        self.fetcher.gone(conn);
        let lost = self.cells.gone(conn);
        self.fetch_again(lost, now_ms);
        self.fetch(now_ms)
    }

    /// While this node syncs it neither asks nor sends, and drops what comes. Returns whether it was syncing.
    pub(super) fn set_syncing(&mut self, is_syncing: bool) -> bool {
        let was_syncing = std::mem::replace(&mut self.is_syncing, is_syncing);
        self.hold();
        was_syncing
    }

    /// The columns that the consensus client keeps.
    pub(super) fn set_custody(&mut self, columns: CellMask) {
        self.fetcher.set_custody(columns);
    }

    /// While the pool has enough to do nothing is asked.
    pub(super) fn set_pool_full(&mut self, is_full: bool) {
        self.is_pool_full = is_full;
        self.hold();
    }

    fn hold(&mut self) {
        self.fetcher.hold(self.is_syncing || self.is_pool_full);
    }

    /// A peer breaks the rules.
    fn cut(&mut self, conn: ConnId, breach: GossipBreach, now_ms: u64) -> Vec<Action> {
        let conduct = match breach {
            GossipBreach::Invalid(_) => Conduct::Lie,
            _ => Conduct::BadMessage,
        };
        let mut actions = vec![
            Action::Disconnect { conn, breach },
            Action::Conduct { conn, conduct },
        ];
        actions.extend(self.leave(conn, now_ms));
        actions
    }

    /// A peer announces transactions.
    pub(super) fn announced(
        &mut self,
        conn: ConnId,
        announcement: &Announcement,
        now_ms: u64,
    ) -> Vec<Action> {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return Vec::new();
        };
        let all = &announcement.transactions;
        all.iter().for_each(|tx| _ = peer.known.insert(&tx.hash));
        if self.is_syncing {
            return Vec::new();
        }
        // Of peers that have only some columns of its blobs a transaction is of no use.
        let has_blobs = peer.version < EthVersion::Eth72 || has_data(announcement.columns);
        let is_useful = |tx: &&Announced| match tx.tx_type {
            BLOB_TYPE => has_blobs,
            Announced::UNTYPED => !peer.version.has_typed_announcements(),
            tx_type => tx_type <= LAST_TYPE,
        };
        let useful: Vec<Announced> = all.iter().filter(is_useful).copied().collect();
        for tx in useful.iter().filter(|tx| tx.tx_type == BLOB_TYPE) {
            self.cells.announce(conn, tx);
        }
        let (handed, cells) = (&self.handed, &self.cells);
        let pool_has = &*self.is_here;
        let seen = Cell::new(0);
        let is_here = |hash: &B256| {
            let is_here = handed.contains(hash) || pool_has(hash);
            seen.update(|seen| seen + u64::from(is_here));
            is_here || cells.contains(hash)
        };
        let announced = self.fetcher.announce(conn, &useful, is_here, now_ms);
        self.seen[GossipMessage::Announcement as usize] += seen.get();
        match announced {
            Ok(()) => self.fetch(now_ms),
            Err(breach) => self.cut(conn, breach, now_ms),
        }
    }

    /// A peer sends transactions unasked.
    pub(super) fn sent(
        &mut self,
        conn: ConnId,
        transactions: Vec<Bytes>,
        now_ms: u64,
    ) -> Vec<Action> {
        if self.is_syncing || !self.peers.contains_key(&conn) {
            return Vec::new();
        }
        let read = match self.read_sent(conn, transactions) {
            Ok(read) => read,
            Err(breach) => return self.cut(conn, breach, now_ms),
        };
        let mut new = Vec::new();
        for transaction in read {
            let hash = transaction.hash;
            // Of a type that is not known here a newer node may know more.
            if self.fetcher.is_unwanted(&hash) || transaction.tx_type > LAST_TYPE {
                continue;
            }
            if self.handed.contains(&hash) || (self.is_here)(&hash) {
                self.seen[GossipMessage::Transactions as usize] += 1;
                continue;
            }
            let first = self
                .fetcher
                .announcements(&hash)
                .first()
                .map(|(conn, _)| *conn);
            self.fetcher.received(&hash);
            self.handed.insert(hash, first.unwrap_or(conn));
            new.push(ReceivedTransaction {
                hash,
                bytes: transaction.bytes,
                cells: None,
            });
        }
        hand_over(conn, new)
    }

    fn read_sent(
        &mut self,
        conn: ConnId,
        transactions: Vec<Bytes>,
    ) -> Result<Vec<FromPeer>, GossipBreach> {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return Ok(Vec::new());
        };
        let mut seen: HashSet<B256> = HashSet::default();
        let mut read = Vec::new();
        for bytes in transactions {
            let transaction = FromPeer::read(bytes, peer.version)?;
            if transaction.tx_type == BLOB_TYPE {
                return Err(GossipBreach::Blobs(transaction.hash));
            }
            if !seen.insert(transaction.hash) {
                return Err(GossipBreach::Twice(transaction.hash));
            }
            peer.known.insert(&transaction.hash);
            read.push(transaction);
        }
        Ok(read)
    }

    /// A peer answers a request for transactions.
    pub(super) fn answered(
        &mut self,
        conn: ConnId,
        request: u64,
        transactions: Vec<Bytes>,
        now_ms: u64,
    ) -> Vec<Action> {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return Vec::new();
        };
        if !self.fetcher.is_open(conn, request) {
            return Vec::new();
        }
        let version = peer.version;
        let read = transactions
            .into_iter()
            .map(|bytes| FromPeer::read(bytes, version));
        let read: Vec<FromPeer> = match read.collect() {
            Ok(read) => read,
            Err(breach) => return self.cut(conn, breach, now_ms),
        };
        read.iter().for_each(|tx| _ = peer.known.insert(&tx.hash));
        let received = read.iter().map(|tx| Received {
            hash: tx.hash,
            tx_type: tx.tx_type,
            size: tx.size(),
        });
        let received: Vec<Received> = received.collect();
        let announcers: Vec<_> = read
            .iter()
            .map(|tx| self.fetcher.announcements(&tx.hash))
            .collect();
        if let Err(breach) = self.fetcher.answer(conn, request, &received) {
            return self.cut(conn, breach, now_ms);
        }
        let mut new = Vec::new();
        for (transaction, announcers) in read.into_iter().zip(announcers) {
            let hash = transaction.hash;
            // It came unasked, or of another peer.
            let is_on_the_way = self.handed.contains(&hash) || self.cells.contains(&hash);
            if is_on_the_way || (self.is_here)(&hash) {
                continue;
            }
            let first = announcers.first().map_or(conn, |(conn, _)| *conn);
            if transaction.missing_blobs > 0 {
                let is_whole = self.fetcher.sampling().is_whole(&hash);
                let is_sampled = !is_whole && announcers.len() >= PROVIDERS;
                let others = announcers.into_iter().filter(|(other, _)| *other != conn);
                self.cells.add(Blobless {
                    transaction,
                    conn,
                    first,
                    others: others.collect(),
                    is_sampled,
                });
                continue;
            }
            self.handed.insert(hash, first);
            new.push(ReceivedTransaction {
                hash,
                bytes: transaction.bytes,
                cells: None,
            });
        }
        let mut actions = hand_over(conn, new);
        actions.extend(self.fetch(now_ms));
        actions
    }

    /// A peer answers a request for cells.
    pub(super) fn answered_cells(
        &mut self,
        conn: ConnId,
        request: u64,
        cells: Vec<(B256, Vec<Bytes>)>,
        columns: CellMask,
        now_ms: u64,
    ) -> Vec<Action> {
        let Cells { complete, lost } = match self.cells.answer(conn, request, cells, columns) {
            Ok(cells) => cells,
            Err(breach) => return self.cut(conn, breach, now_ms),
        };
        let mut new = Vec::new();
        for (blobless, received) in complete {
            self.handed.insert(received.hash, blobless.first);
            new.push(received);
        }
        let mut actions = hand_over(conn, new);
        self.fetch_again(lost, now_ms);
        actions.extend(self.fetch(now_ms));
        actions
    }

    /// What a peer did not deliver whole is fetched from its other announcers.
    fn fetch_again(&mut self, lost: Vec<Blobless>, now_ms: u64) {
        for (conn, announced) in lost.into_iter().flat_map(|lost| lost.others) {
            if self.peers.contains_key(&conn) {
                // One hash is never a hash twice.
                let _ = self.fetcher.announce(conn, &[announced], |_| false, now_ms);
            }
        }
    }

    /// What became of transactions of a peer.
    pub(super) fn report(
        &mut self,
        conn: ConnId,
        results: &[(B256, Verdict)],
        now_ms: u64,
    ) -> Vec<Action> {
        let (mut refused, mut invalid) = (0, None);
        for (hash, verdict) in results {
            let first = self.handed.remove(hash);
            match verdict {
                Verdict::Accepted => self.accepted.insert(*hash, first.unwrap_or(conn)),
                Verdict::Known => (),
                Verdict::Underpriced => self.fetcher.underpriced(hash),
                Verdict::Refused => refused += 1,
                Verdict::Invalid => invalid = Some(*hash),
            }
        }
        if refused * 4 > results.len() {
            self.fetcher.pause(conn, now_ms.saturating_add(PAUSE_MS));
        }
        match invalid {
            Some(hash) if self.peers.contains_key(&conn) => {
                self.cut(conn, GossipBreach::Invalid(hash), now_ms)
            }
            _ => Vec::new(),
        }
    }

    /// A block has these transactions: their first announcers have earned it.
    pub(super) fn mined(&mut self, hashes: &[B256]) -> Vec<Action> {
        let mut actions = Vec::new();
        for hash in hashes {
            self.fetcher.mined(hash);
            self.cells.forget(hash);
            let first = self.accepted.remove(hash);
            let first = first.filter(|conn| self.peers.contains_key(conn));
            actions.extend(first.map(|conn| Action::Conduct {
                conn,
                conduct: Conduct::FirstAnnouncer,
            }));
        }
        actions
    }

    /// Does what is due: time-outs, requests, announcements. Called twenty times a second.
    pub(super) fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = self.fetch(now_ms);
        self.flush(now_ms, &mut actions);
        actions
    }

    /// Asks the peers that are free.
    fn fetch(&mut self, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        let (requests, late) = self.cells.tick(self.fetcher.sampling(), now_ms);
        for (conn, lost) in late {
            let conduct = Conduct::Timeout;
            actions.push(Action::Conduct { conn, conduct });
            self.fetch_again(lost, now_ms);
        }
        actions.extend(requests.into_iter().map(|request| Action::AskCells {
            conn: request.conn,
            request: request.request,
            hashes: request.transactions,
            columns: request.columns,
        }));
        let fetch = self.fetcher.tick(now_ms).into_iter();
        actions.extend(fetch.map(|action| match action {
            FetchAction::Request {
                conn,
                request,
                hashes,
            } => Action::Ask {
                conn,
                request,
                hashes,
            },
            FetchAction::Timeout { conn } => Action::Conduct {
                conn,
                conduct: Conduct::Timeout,
            },
        }));
        actions
    }
}

/// Orders to hand transactions over, in batches.
fn hand_over(conn: ConnId, transactions: Vec<ReceivedTransaction>) -> Vec<Action> {
    let batches = cut_by_bytes(transactions, BATCH, BATCH_BYTES, ReceivedTransaction::bytes);
    let batches = batches.into_iter();
    batches
        .map(|transactions| Action::HandOver { conn, transactions })
        .collect()
}

/// Cuts a list into parts of at most so many items, and of so many bytes unless a single item has more.
fn cut_by_bytes<T>(
    items: Vec<T>,
    most: usize,
    most_bytes: usize,
    bytes_of: impl Fn(&T) -> usize,
) -> Vec<Vec<T>> {
    let (mut parts, mut bytes): (Vec<Vec<T>>, usize) = (Vec::new(), 0);
    for item in items {
        let own = bytes_of(&item);
        match parts.last_mut() {
            Some(part) if part.len() < most && bytes + own <= most_bytes => {
                bytes += own;
                part.push(item);
            }
            _ => {
                bytes = own;
                parts.push(vec![item]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests;
