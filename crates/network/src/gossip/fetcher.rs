//! Announced transactions, until they are here: which peer is asked for them, and when.
//!
//! ```text
//! announced -> waits 500 ms for a broadcast -> gathers 100 ms -> queued -> asked of one announcer -> here
//!              (a blob transaction: see below)                     ^                 | 5 s, or not in the answer
//!                                                                  \-----------------/ the next announcer
//! ```
//!
//! A blob transaction does not wait, or if it is sampled until two peers have announced it, 2 s at most.
//!
//! A peer has one open request at most. The announcers that are free take the queued hashes in turn, the oldest first, so the load
//! is even. A peer that let a request time out is asked nothing more until it answers, or 15 s have passed.
//!
//! A transaction is remembered once for each peer that announced it: at most 4,096 of a peer, and 32,768 in all. Beyond that the
//! peer with the most loses its newest. So a flood of announcements costs the peer that sends it, not the others.
//!
//! What holds at any time: no hash is in two requests that have not timed out; a hash is dropped only when it is here, or when no
//! announcer of it is left.

mod taker;

use super::sampling::{PROVIDERS, Sampling};
use super::{BLOB_TYPE, GossipBreach, KnownSet};
use crate::peers::ConnId;
use crate::wire::{Announced, CellMask};
use niwaki_primitives::B256;
use niwaki_primitives::map::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};
use taker::Taker;

/// A hash waits so long for the transaction to come unasked.
const WAIT_MS: u64 = 500;
/// A sampled blob transaction waits so long for a second peer that has its blobs.
const AVAILABLE_MS: u64 = 2_000;
/// So long more hashes are gathered once one has waited.
const GATHER_MS: u64 = 100;
/// An answer takes less.
const ANSWER_MS: u64 = 5_000;
/// A late answer takes less, or the peer may be asked again without it.
const LATE_MS: u64 = 15_000;
/// Announcements that are remembered of a peer.
const MAX_OF_PEER: usize = 4096;
/// Announcements that are remembered in all.
const MAX_IN_ALL: usize = 32_768;
/// A transaction may differ so much from its announced size: clients count the envelope in different ways.
const SIZE_SLACK_BYTES: u32 = 8;
/// Underpriced transactions are forgotten after once or twice this time.
const AGE_MS: u64 = 150_000;

/// What the fetcher orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchAction {
    /// Ask a peer for transactions.
    Request {
        /// The peer.
        conn: ConnId,
        /// The fetcher's number of the request.
        request: u64,
        /// Which.
        hashes: Vec<B256>,
    },
    /// A peer did not answer in time.
    Timeout {
        /// The peer.
        conn: ConnId,
    },
}

/// A transaction of an answer. Its hash is computed from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its hash.
    pub hash: B256,
    /// Its EIP-2718 type.
    pub tx_type: u8,
    /// Bytes of its encoding, counted as the peer's version of `eth` announces it.
    pub size: u32,
}

/// What a peer announced of a transaction.
#[derive(Clone, Copy, Debug)]
struct Meta {
    /// The age of the announcement: lower is older.
    seq: u64,
    tx_type: u8,
    size: u32,
}

#[derive(Debug)]
struct Open {
    request: u64,
    asked: Vec<(B256, Meta)>,
    deadline_ms: u64,
    /// It timed out; what comes is welcome, but others are asked.
    is_late: bool,
}

#[derive(Debug, Default)]
struct Peer {
    announced: HashMap<B256, Meta>,
    by_age: BTreeMap<u64, B256>,
    open: Option<Open>,
    paused_until_ms: u64,
}

impl Peer {
    fn forget(&mut self, hash: &B256) -> bool {
        let meta = self.announced.remove(hash);
        if let Some(meta) = meta {
            self.by_age.remove(&meta.seq);
        }
        meta.is_some()
    }

    fn is_free(&self, now_ms: u64) -> bool {
        self.open.is_none() && self.paused_until_ms <= now_ms && !self.announced.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Until this time a broadcast may come.
    Waiting(u64),
    Queued,
    Asked(ConnId),
}

#[derive(Debug)]
struct Wanted {
    announcers: Vec<ConnId>,
    stage: Stage,
}

/// The fetcher.
#[derive(Debug)]
pub struct Fetcher {
    peers: BTreeMap<ConnId, Peer>,
    wanted: HashMap<B256, Wanted>,
    waiting: BTreeSet<(u64, B256)>,
    /// Hashes that no peer was asked for yet, or not with success.
    queued: usize,
    /// Announcements of all peers.
    announcements: usize,
    last_seq: u64,
    last_request: u64,
    underpriced: KnownSet,
    aged_ms: u64,
    mined: KnownSet,
    is_held: bool,
    sampling: Sampling,
}

impl Fetcher {
    /// A fetcher that wants nothing. `key` is random, and secret; `whole_percent` of the transactions with blobs are taken with all of
    /// them.
    pub fn new(key: u64, whole_percent: u8) -> Self {
        Self {
            peers: BTreeMap::new(),
            wanted: HashMap::default(),
            waiting: BTreeSet::new(),
            queued: 0,
            announcements: 0,
            last_seq: 0,
            last_request: 0,
            underpriced: KnownSet::new(key),
            aged_ms: 0,
            mined: KnownSet::new(key),
            is_held: false,
            sampling: Sampling::new(key, whole_percent),
        }
    }

    /// Which blobs are taken whole.
    pub(super) fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The columns of the other blobs that are asked for from now on.
    pub fn set_custody(&mut self, columns: CellMask) {
        self.sampling.set_custody(columns);
    }

    /// While it is held nothing is asked.
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Whether a transaction is not to be fetched: mined, or refused for its price lately.
    pub fn is_unwanted(&self, hash: &B256) -> bool {
        self.underpriced.contains(hash) || self.mined.contains(hash)
    }

    /// The peers that announced a transaction that is not here, the first one first, and what each said of it.
    pub fn announcements(&self, hash: &B256) -> Vec<(ConnId, Announced)> {
        let wanted = self.wanted.get(hash);
        let all = wanted.into_iter().flat_map(|wanted| &wanted.announcers);
        let of = |conn: &ConnId| {
            let meta = self.peers.get(conn)?.announced.get(hash)?;
            let announced = Announced {
                hash: *hash,
                tx_type: meta.tx_type,
                size: meta.size,
            };
            Some((*conn, announced))
        };
        all.filter_map(of).collect()
    }

    /// Whether a request still counts: if not, nothing in its answer is looked at.
    pub fn is_open(&self, conn: ConnId, request: u64) -> bool {
        let peer = self.peers.get(&conn);
        peer.is_some_and(|peer| is_open(peer, request))
    }

    /// A peer announces transactions. `is_here` says whether the pool has one.
    ///
    /// # Errors
    /// [`GossipBreach::Twice`]; then the peer is forgotten.
    pub fn announce(
        &mut self,
        conn: ConnId,
        announced: &[Announced],
        is_here: impl Fn(&B256) -> bool,
        now_ms: u64,
    ) -> Result<(), GossipBreach> {
        let mut seen: HashSet<B256> = HashSet::default();
        seen.reserve(announced.len());
        if let Some(twice) = announced.iter().find(|tx| !seen.insert(tx.hash)) {
            self.gone(conn);
            return Err(GossipBreach::Twice(twice.hash));
        }
        for tx in announced {
            if !self.is_unwanted(&tx.hash) && !is_here(&tx.hash) && self.make_room(conn, &tx.hash) {
                self.note(conn, tx, now_ms);
            }
        }
        Ok(())
    }

    /// Whether an announcement of a peer has room. If there are too many, the noisiest peer loses its newest.
    fn make_room(&mut self, conn: ConnId, hash: &B256) -> bool {
        let peer = self.peers.entry(conn).or_default();
        let own = peer.announced.len();
        if own >= MAX_OF_PEER || peer.announced.contains_key(hash) {
            return false;
        }
        if self.announcements < MAX_IN_ALL {
            return true;
        }
        let peers = self.peers.iter();
        let noisiest = peers.max_by_key(|(_, peer)| peer.announced.len());
        let Some((noisiest, peer)) = noisiest.filter(|(_, peer)| peer.announced.len() > own) else {
            return false;
        };
        let noisiest = *noisiest;
        let is_asked = |hash: &B256| {
            let wanted = self.wanted.get(hash);
            wanted.is_some_and(|wanted| wanted.stage == Stage::Asked(noisiest))
        };
        let newest = peer.by_age.values().rev().find(|hash| !is_asked(hash));
        let Some(newest) = newest.copied() else {
            return false;
        };
        self.drop_announcement(noisiest, &newest);
        true
    }

    fn note(&mut self, conn: ConnId, tx: &Announced, now_ms: u64) {
        self.last_seq += 1;
        let meta = Meta {
            seq: self.last_seq,
            tx_type: tx.tx_type,
            size: tx.size,
        };
        let peer = self.peers.entry(conn).or_default();
        peer.announced.insert(tx.hash, meta);
        peer.by_age.insert(meta.seq, tx.hash);
        self.announcements += 1;
        let is_sampled = tx.tx_type == BLOB_TYPE && !self.sampling.is_whole(&tx.hash);
        let wait_ms = match tx.tx_type {
            BLOB_TYPE if is_sampled => AVAILABLE_MS,
            BLOB_TYPE => 0,
            _ => WAIT_MS,
        };
        let waiting = &mut self.waiting;
        let wanted = self.wanted.entry(tx.hash).or_insert_with(|| {
            let ready_ms = now_ms.saturating_add(wait_ms);
            waiting.insert((ready_ms, tx.hash));
            Wanted {
                announcers: Vec::new(),
                stage: Stage::Waiting(ready_ms),
            }
        });
        wanted.announcers.push(conn);
        if is_sampled
            && wanted.announcers.len() >= PROVIDERS
            && let Stage::Waiting(ready_ms) = wanted.stage
            && ready_ms > now_ms
        {
            self.waiting.remove(&(ready_ms, tx.hash));
            self.waiting.insert((now_ms, tx.hash));
            wanted.stage = Stage::Waiting(now_ms);
        }
    }

    /// A peer does not count as an announcer of a hash any more. Without any the hash is dropped.
    fn drop_announcement(&mut self, conn: ConnId, hash: &B256) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        self.announcements -= usize::from(peer.forget(hash));
        let Some(wanted) = self.wanted.get_mut(hash) else {
            return;
        };
        wanted.announcers.retain(|announcer| *announcer != conn);
        if wanted.announcers.is_empty() {
            let stage = wanted.stage;
            self.leave(stage, hash);
            self.wanted.remove(hash);
        } else {
            self.requeue(conn, hash);
        }
    }

    /// A hash goes from the stage that it had.
    fn leave(&mut self, stage: Stage, hash: &B256) {
        match stage {
            Stage::Waiting(ready_ms) => {
                self.waiting.remove(&(ready_ms, *hash));
            }
            Stage::Queued => self.queued -= 1,
            Stage::Asked(_) => (),
        }
    }

    /// A transaction is here, from wherever, or is not wanted any more.
    pub fn received(&mut self, hash: &B256) {
        let Some(wanted) = self.wanted.remove(hash) else {
            return;
        };
        self.leave(wanted.stage, hash);
        for conn in wanted.announcers {
            if let Some(peer) = self.peers.get_mut(&conn) {
                self.announcements -= usize::from(peer.forget(hash));
            }
        }
    }

    /// A block has this transaction: it is not fetched any more.
    pub fn mined(&mut self, hash: &B256) {
        self.mined.insert(hash);
        self.received(hash);
    }

    /// The pool refused a transaction for its price: it is not fetched for up to five minutes.
    pub fn underpriced(&mut self, hash: &B256) {
        self.underpriced.insert(hash);
        self.received(hash);
    }

    /// A peer has left.
    pub fn gone(&mut self, conn: ConnId) {
        let Some(peer) = self.peers.get(&conn) else {
            return;
        };
        let hashes: Vec<B256> = peer.announced.keys().copied().collect();
        for hash in hashes {
            self.drop_announcement(conn, &hash);
        }
        self.peers.remove(&conn);
    }

    /// A peer is not asked before this time: the pool refused much of what came from it.
    pub fn pause(&mut self, conn: ConnId, until_ms: u64) {
        if let Some(peer) = self.peers.get_mut(&conn) {
            peer.paused_until_ms = peer.paused_until_ms.max(until_ms);
        }
    }

    /// A peer answers a request, in time or late. What it did not deliver is asked of others; what comes after its last one may have
    /// been cut for size and is asked of it again.
    ///
    /// # Errors
    /// [`GossipBreach`]; then nothing counts as here, and the peer is forgotten.
    pub fn answer(
        &mut self,
        conn: ConnId,
        request: u64,
        received: &[Received],
    ) -> Result<(), GossipBreach> {
        let open = match self.peers.get_mut(&conn) {
            Some(peer) if is_open(peer, request) => peer.open.take(),
            _ => None,
        };
        let Some(open) = open else {
            // The session knows which requests it sent; this one was forgotten here.
            return Ok(());
        };
        let delivered = match check(&open, received) {
            Ok(delivered) => delivered,
            Err(breach) => {
                self.gone(conn);
                return Err(breach);
            }
        };
        let is_delivered = |(hash, _): &(B256, Meta)| delivered.contains(hash);
        let end = open.asked.iter().rposition(is_delivered);
        let end = end.map_or(open.asked.len(), |last| last + 1);
        for (index, (hash, _)) in open.asked.iter().enumerate() {
            if delivered.contains(hash) {
                self.received(hash);
            } else if index < end {
                self.drop_asked(conn, hash);
            } else {
                self.requeue(conn, hash);
            }
        }
        Ok(())
    }

    fn drop_asked(&mut self, conn: ConnId, hash: &B256) {
        let wanted = self.wanted.get(hash);
        if wanted.is_some_and(|wanted| wanted.stage == Stage::Asked(conn)) {
            self.drop_announcement(conn, hash);
        }
    }

    fn requeue(&mut self, conn: ConnId, hash: &B256) {
        if let Some(wanted) = self.wanted.get_mut(hash)
            && wanted.stage == Stage::Asked(conn)
        {
            wanted.stage = Stage::Queued;
            self.queued += 1;
        }
    }

    /// Does what is due: time-outs, and requests to the peers that are free. Called at [`Self::wake_ms`] and after anything that may
    /// free a peer.
    pub fn tick(&mut self, now_ms: u64) -> Vec<FetchAction> {
        if now_ms.saturating_sub(self.aged_ms) >= AGE_MS {
            self.underpriced.age();
            self.aged_ms = now_ms;
        }
        let mut actions = self.time_out(now_ms);
        let first = self.waiting.first().map(|(ready_ms, _)| *ready_ms);
        if first.is_some_and(|ready_ms| ready_ms.saturating_add(GATHER_MS) <= now_ms) {
            while let Some((ready_ms, hash)) = self.waiting.first().copied()
                && ready_ms <= now_ms
            {
                self.waiting.pop_first();
                if let Some(wanted) = self.wanted.get_mut(&hash) {
                    wanted.stage = Stage::Queued;
                    self.queued += 1;
                }
            }
        }
        self.ask(now_ms, &mut actions);
        actions
    }

    fn time_out(&mut self, now_ms: u64) -> Vec<FetchAction> {
        let mut lost = Vec::new();
        let mut actions = Vec::new();
        for (conn, peer) in &mut self.peers {
            if peer.paused_until_ms <= now_ms {
                peer.paused_until_ms = 0;
            }
            let Some(open) = peer.open.as_mut().filter(|open| open.deadline_ms <= now_ms) else {
                continue;
            };
            if open.is_late {
                peer.open = None;
                continue;
            }
            open.is_late = true;
            open.deadline_ms = now_ms.saturating_add(LATE_MS);
            lost.extend(open.asked.iter().map(|(hash, _)| (*conn, *hash)));
            actions.push(FetchAction::Timeout { conn: *conn });
        }
        for (conn, hash) in lost {
            self.drop_asked(conn, &hash);
        }
        actions
    }

    /// The free peers take queued hashes in turn, each the oldest that it announced.
    fn ask(&mut self, now_ms: u64, actions: &mut Vec<FetchAction>) {
        if self.queued == 0 || self.is_held {
            return;
        }
        let free = self.peers.iter().filter(|(_, peer)| peer.is_free(now_ms));
        let mut takers: Vec<_> = free.map(|(conn, peer)| Taker::new(*conn, peer)).collect();
        while takers.iter().any(|taker| !taker.is_done) {
            for taker in takers.iter_mut().filter(|taker| !taker.is_done) {
                taker.take_one(&mut self.wanted);
            }
        }
        let takers = takers.into_iter().filter(|taker| !taker.asked.is_empty());
        let asked: Vec<_> = takers.map(|taker| (taker.conn, taker.asked)).collect();
        for (conn, asked) in asked {
            self.queued -= asked.len();
            self.last_request += 1;
            let request = self.last_request;
            let hashes = asked.iter().map(|(hash, _)| *hash).collect();
            if let Some(peer) = self.peers.get_mut(&conn) {
                peer.open = Some(Open {
                    request,
                    asked,
                    deadline_ms: now_ms.saturating_add(ANSWER_MS),
                    is_late: false,
                });
            }
            actions.push(FetchAction::Request {
                conn,
                request,
                hashes,
            });
        }
    }

    /// When [`Self::tick`] has something to do next, unless something else happens before.
    pub fn wake_ms(&self) -> Option<u64> {
        let gathered = self.waiting.first();
        let gathered = gathered.map(|(ready_ms, _)| ready_ms.saturating_add(GATHER_MS));
        let peers = self.peers.values();
        let due = peers.filter_map(|peer| match &peer.open {
            Some(open) => Some(open.deadline_ms),
            None => (!peer.announced.is_empty() && peer.paused_until_ms > 0)
                .then_some(peer.paused_until_ms),
        });
        gathered.into_iter().chain(due).min()
    }

    /// How many transactions are wanted.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }
}

fn is_open(peer: &Peer, request: u64) -> bool {
    peer.open
        .as_ref()
        .is_some_and(|open| open.request == request)
}

/// The hashes of an answer, each of which was asked for and is as announced.
fn check(open: &Open, received: &[Received]) -> Result<HashSet<B256>, GossipBreach> {
    let asked: HashMap<B256, Meta> = open.asked.iter().copied().collect();
    let mut delivered = HashSet::default();
    for Received {
        hash,
        tx_type,
        size,
    } in received.iter().copied()
    {
        let meta = asked.get(&hash).ok_or(GossipBreach::NotAsked(hash))?;
        let announced = (meta.tx_type, meta.size);
        if !Announced::fits(announced, tx_type, size, SIZE_SLACK_BYTES) {
            return Err(GossipBreach::NotAsAnnounced {
                hash,
                tx_type,
                size,
            });
        }
        if !delivered.insert(hash) {
            return Err(GossipBreach::Twice(hash));
        }
    }
    Ok(delivered)
}

#[cfg(test)]
mod tests;
