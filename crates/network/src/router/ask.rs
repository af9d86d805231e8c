//! Jobs in, requests out; the answers of peers in, the end of jobs out.
//!
//! ```text
//! ask(job of n items) -> pieces -> Send to a peer -> answer -> the items are there -> Done
//!                          ^                 | time-out, nothing, wrong, gone
//!                          \-- another peer -/ three times: given up, with the reasons
//! ```
//!
//! The router knows items by their index in the job only: the caller makes the requests, checks the answers and keeps the items. Of
//! the peers that may have a piece, the one with the most free capacity gets it; one time in ten a random one, so that newcomers are
//! measured. Towards the end of a job, peers without work repeat the pieces that take long.
//!
//! What holds: a piece is never asked twice of a peer that failed with it; a peer has at most 2 requests of a kind and 5 in all; a
//! job ends, within a minute after the last progress, with its items or the reasons.

mod deal;
mod types;

use super::rates::Rates;
use crate::peers::{Conduct, ConnId};
use crate::wire::RequestKind;
use niwaki_primitives::B256;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
pub use types::{
    Abilities, Ask, AskAction, GivenUp, JobError, JobId, Need, OpenRequest, Outcome, Try, TryEnd,
};

/// Most jobs at a time.
const MAX_JOBS: usize = 256;
/// Most items of a job.
const MAX_ITEMS: u32 = 16_384;
/// Most open requests of a peer, of one kind and of all.
const MAX_OPEN_OF_KIND: usize = 3;
const MAX_OPEN: usize = 5;
/// So many peers may fail with a piece.
const MAX_TRIES: usize = 3;
/// One piece in so many goes to a random peer.
const RANDOM_ONE_IN: u32 = 10;
/// A job without progress for this time ends.
const NO_PROGRESS_MS: u64 = 60_000;
/// A job that no peer can serve ends after this time.
const NO_PEER_MS: u64 = 10_000;
/// A peer without the state of a root is not asked for it during this time.
const STATELESS_MS: u64 = 120_000;
/// Most roots of which that is remembered, of each peer.
const MAX_STATELESS: usize = 16;
/// How long the caller may take to check an answer.
const CHECK_MS: u64 = 30_000;
/// A job with so many answers that the caller has not checked gets no further requests.
const MAX_UNCHECKED: usize = 16;

#[derive(Clone, Debug)]
struct Piece {
    items: Range<u32>,
    tries: Vec<Try>,
}

#[derive(Clone, Debug)]
struct Open {
    job: JobId,
    kind: RequestKind,
    piece: Piece,
    /// A piece and its repetition have the same number.
    number: u64,
    sent_ms: u64,
    /// When the answer came, which the caller is checking.
    arrived_ms: Option<u64>,
    deadline_ms: u64,
}

#[derive(Debug)]
struct Peer {
    info: Abilities,
    rates: Rates,
    open: BTreeMap<u64, Open>,
    stateless: VecDeque<(u64, B256)>,
}

impl Peer {
    /// Whether it can ever be asked for this.
    fn serves(&self, ask: &Ask, now_ms: u64) -> bool {
        let range = self.info.earliest..=self.info.latest;
        let mut stateless = self.stateless.iter();
        self.info.kinds.contains(&ask.kind)
            && ask.need.block.is_none_or(|block| range.contains(&block))
            && !stateless.any(|(until_ms, root)| *until_ms > now_ms && Some(*root) == ask.need.root)
    }

    fn open_of(&self, kind: RequestKind) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.kind == kind)
    }

    fn is_free(&self, kind: RequestKind) -> bool {
        self.open.len() < MAX_OPEN && self.open_of(kind).count() < MAX_OPEN_OF_KIND
    }

    fn free_capacity(&self, kind: RequestKind) -> u32 {
        let open: u32 = self
            .open_of(kind)
            .map(|open| open.piece.items.end - open.piece.items.start)
            .sum();
        self.rates.capacity(kind).saturating_sub(open)
    }
}

#[derive(Debug)]
struct Job {
    ask: Ask,
    queue: VecDeque<Piece>,
    is_there: Vec<bool>,
    progress_ms: u64,
    given_up: Vec<GivenUp>,
}

/// The router.
#[derive(Debug)]
pub struct Router {
    peers: BTreeMap<ConnId, Peer>,
    jobs: BTreeMap<JobId, Job>,
    last_job: u64,
    last_request: u64,
    rng: SmallRng,
}

impl Router {
    /// A router without peers and jobs. `rng` chooses the peers that are measured.
    pub fn new(rng: SmallRng) -> Self {
        Self {
            peers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            last_job: 0,
            last_request: 0,
            rng,
        }
    }

    /// A peer has come, or has other blocks than before.
    pub fn join(&mut self, conn: ConnId, info: Abilities, now_ms: u64) -> Vec<AskAction> {
        match self.peers.get_mut(&conn) {
            Some(peer) => peer.info = info,
            None => {
                let peer = Peer {
                    info,
                    rates: Rates::default(),
                    open: BTreeMap::new(),
                    stateless: VecDeque::new(),
                };
                self.peers.insert(conn, peer);
            }
        }
        let mut actions = Vec::new();
        self.deal(now_ms, &mut actions);
        actions
    }

    /// A peer has left: others are asked at once.
    pub fn leave(&mut self, conn: ConnId, now_ms: u64) -> Vec<AskAction> {
        let mut actions = Vec::new();
        if let Some(peer) = self.peers.remove(&conn) {
            for open in peer.open.into_values() {
                self.fail(conn, open, TryEnd::Gone, &mut actions);
            }
        }
        self.deal(now_ms, &mut actions);
        actions
    }

    /// Begins a job.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn ask(&mut self, ask: Ask, now_ms: u64) -> Result<(JobId, Vec<AskAction>), JobError> {
        if !(1..=MAX_ITEMS).contains(&ask.items) {
            return Err(JobError::Items(ask.items));
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err(JobError::TooManyJobs);
        }
        self.last_job += 1;
        let id = JobId(self.last_job);
        let piece = Piece {
            items: 0..ask.items,
            tries: Vec::new(),
        };
        let job = Job {
            ask,
            queue: VecDeque::from([piece]),
            is_there: vec![false; ask.items as usize],
            progress_ms: now_ms,
            given_up: Vec::new(),
        };
        self.jobs.insert(id, job);
        let mut actions = Vec::new();
        self.deal(now_ms, &mut actions);
        Ok((id, actions))
    }

    /// Ends a job whose asker is gone. What is on its way is awaited, so that its peers are not asked for more than they can do.
    pub fn cancel(&mut self, job: JobId) {
        self.jobs.remove(&job);
        for peer in self.peers.values_mut() {
            peer.open
                .retain(|_, open| open.job != job || open.arrived_ms.is_none());
        }
    }

    /// Ends all jobs: the network stops.
    pub fn stop(&mut self) -> Vec<AskAction> {
        let mut actions = Vec::new();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in jobs {
            self.give_up_all(id, &mut actions);
        }
        actions
    }

    /// What an answer answers; `None` if it is late, and so not wanted any more.
    pub fn open_request(&self, conn: ConnId, request: u64) -> Option<OpenRequest> {
        let open = self.peers.get(&conn)?.open.get(&request)?;
        Some(OpenRequest {
            job: open.job,
            kind: open.kind,
            items: open.piece.items.clone(),
        })
    }

    /// The answer to a request has come, at which its round trip ends: from now on the caller has 30 s to check it. `None` if
    /// nothing in it is wanted any more.
    pub fn arrived(&mut self, conn: ConnId, request: u64, now_ms: u64) -> Option<OpenRequest> {
        let wanted = self.open_request(conn, request)?;
        let peer = self.peers.get_mut(&conn)?;
        let job = self.jobs.get(&wanted.job);
        if job.is_none_or(|job| missing(&job.is_there, &wanted.items).is_empty()) {
            peer.open.remove(&request);
            return None;
        }
        let open = peer.open.get_mut(&request)?;
        open.arrived_ms = Some(now_ms);
        open.deadline_ms = now_ms.saturating_add(CHECK_MS);
        Some(wanted)
    }

    /// A request could not be sent: another peer is asked.
    pub fn unsent(&mut self, conn: ConnId, request: u64, now_ms: u64) -> Vec<AskAction> {
        let mut actions = Vec::new();
        let peer = self.peers.get_mut(&conn);
        if let Some(open) = peer.and_then(|peer| peer.open.remove(&request)) {
            self.fail(conn, open, TryEnd::Busy, &mut actions);
        }
        self.deal(now_ms, &mut actions);
        actions
    }

    /// The answer to an open request has been checked.
    pub fn answer(
        &mut self,
        conn: ConnId,
        request: u64,
        outcome: Outcome,
        now_ms: u64,
    ) -> Vec<AskAction> {
        let mut actions = Vec::new();
        let peer = self.peers.get_mut(&conn);
        let Some((peer, open)) = peer.and_then(|peer| {
            let open = peer.open.remove(&request)?;
            Some((peer, open))
        }) else {
            return actions;
        };
        match outcome {
            Outcome::Items { missing } => {
                let arrived_ms = open.arrived_ms.unwrap_or(now_ms);
                let elapsed_ms = arrived_ms.saturating_sub(open.sent_ms);
                let got = delivered(&open.piece.items, &missing);
                let count = got.iter().map(|got| u32::from(*got)).sum();
                peer.rates.measure(open.kind, count, elapsed_ms);
                if count > 0 {
                    let conduct = Conduct::Content;
                    actions.push(AskAction::Conduct { conn, conduct });
                    self.take(open, &got, now_ms, &mut actions);
                } else {
                    self.blame_for_nothing(conn, &open, &mut actions);
                    self.fail(conn, open, TryEnd::Empty, &mut actions);
                }
            }
            Outcome::Stateless => {
                let root = self.jobs.get(&open.job).and_then(|job| job.ask.need.root);
                if let Some(root) = root {
                    let until_ms = now_ms.saturating_add(STATELESS_MS);
                    if peer.stateless.len() >= MAX_STATELESS {
                        peer.stateless.pop_front();
                    }
                    peer.stateless.push_back((until_ms, root));
                }
                self.fail(conn, open, TryEnd::Stateless, &mut actions);
            }
            Outcome::Wrong(conduct) => {
                actions.push(AskAction::Conduct { conn, conduct });
                self.fail(conn, open, TryEnd::Wrong, &mut actions);
            }
        }
        self.deal(now_ms, &mut actions);
        actions
    }

    /// Nothing of a block that the peer says it has.
    fn blame_for_nothing(&self, conn: ConnId, open: &Open, actions: &mut Vec<AskAction>) {
        let block = self.jobs.get(&open.job).and_then(|job| job.ask.need.block);
        if block.is_some() {
            let conduct = Conduct::Empty;
            actions.push(AskAction::Conduct { conn, conduct });
        }
    }

    /// Does what is due: time-outs, repetitions, the end of jobs without progress. Called ten times a second.
    pub fn tick(&mut self, now_ms: u64) -> Vec<AskAction> {
        let mut actions = Vec::new();
        let all = self.peers.iter();
        let open = all.flat_map(|(conn, peer)| peer.open.iter().map(|open| (*conn, open)));
        let due = open.filter(|(_, (_, open))| open.deadline_ms <= now_ms);
        let due: Vec<(ConnId, u64)> = due.map(|(conn, (request, _))| (conn, *request)).collect();
        // One after the other: a piece and its repetition may be due together.
        for (conn, request) in due {
            self.time_out(conn, request, now_ms, &mut actions);
        }
        self.deal(now_ms, &mut actions);
        self.repeat(now_ms, &mut actions);
        self.end_the_stuck(now_ms, &mut actions);
        actions
    }

    fn time_out(&mut self, conn: ConnId, request: u64, now_ms: u64, actions: &mut Vec<AskAction>) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        let Some(open) = peer.open.remove(&request) else {
            return;
        };
        if open.arrived_ms.is_some() {
            self.fail(conn, open, TryEnd::Unchecked, actions);
            return;
        }
        let elapsed_ms = now_ms.saturating_sub(open.sent_ms);
        peer.rates.time_out(open.kind, elapsed_ms);
        actions.push(AskAction::Abandon { conn, request });
        let conduct = Conduct::Timeout;
        actions.push(AskAction::Conduct { conn, conduct });
        self.fail(conn, open, TryEnd::Timeout, actions);
    }

    /// Items have come.
    fn take(&mut self, open: Open, got: &[bool], now_ms: u64, actions: &mut Vec<AskAction>) {
        let Some(job) = self.jobs.get_mut(&open.job) else {
            return;
        };
        job.progress_ms = now_ms;
        let first = open.piece.items.start as usize;
        let there = job.is_there.get_mut(first..).unwrap_or_default();
        for (there, got) in there.iter_mut().zip(got) {
            *there |= *got;
        }
        let (id, number) = (open.job, open.number);
        if !self.is_open(number) {
            self.requeue(id, open.piece);
        }
        self.finish(id, actions);
    }

    /// A peer failed with a piece: another is asked, unless the piece is open elsewhere, or has failed often enough.
    fn fail(&mut self, conn: ConnId, open: Open, end: TryEnd, actions: &mut Vec<AskAction>) {
        let (id, mut piece) = (open.job, open.piece);
        let this = Try { conn, end };
        let mut others = self.peers.values_mut().flat_map(|p| p.open.values_mut());
        if let Some(other) = others.find(|other| other.number == open.number) {
            other.piece.tries.push(this);
            return;
        }
        piece.tries.push(this);
        match piece.tries.len() < MAX_TRIES {
            true => self.requeue(id, piece),
            false => self.give_up(id, &piece),
        }
        self.finish(id, actions);
    }

    /// How many answers of a job its caller has not checked.
    fn unchecked(&self, id: JobId) -> usize {
        let open = self.peers.values().flat_map(|peer| peer.open.values());
        let arrived = open.filter(|open| open.job == id && open.arrived_ms.is_some());
        arrived.count()
    }

    fn is_open(&self, number: u64) -> bool {
        let mut all = self.peers.values().flat_map(|peer| peer.open.values());
        all.any(|open| open.number == number)
    }

    /// What is missing of a piece goes to the front of the queue.
    fn requeue(&mut self, id: JobId, piece: Piece) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for items in missing(&job.is_there, &piece.items).into_iter().rev() {
            let tries = piece.tries.clone();
            job.queue.push_front(Piece { items, tries });
        }
    }

    fn give_up(&mut self, id: JobId, piece: &Piece) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for items in missing(&job.is_there, &piece.items) {
            let tries = piece.tries.clone();
            job.given_up.push(GivenUp { items, tries });
        }
    }

    /// Ends a job of which nothing is queued or open that is still missing.
    fn finish(&mut self, id: JobId, actions: &mut Vec<AskAction>) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.queue.is_empty()) else {
            return;
        };
        let mut open = self.peers.values().flat_map(|peer| peer.open.values());
        let is_missing = |open: &Open| !missing(&job.is_there, &open.piece.items).is_empty();
        if open.any(|open| open.job == id && is_missing(open)) {
            return;
        }
        self.end(id, actions);
    }

    fn end(&mut self, id: JobId, actions: &mut Vec<AskAction>) {
        if let Some(job) = self.jobs.remove(&id) {
            let (job, given_up) = (id, job.given_up);
            actions.push(AskAction::Done { job, given_up });
        }
    }

    /// How many pieces wait for a peer.
    pub fn waiting(&self) -> usize {
        self.jobs.values().map(|job| job.queue.len()).sum()
    }

    /// How many jobs are open.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }
}

/// Of each item of a piece whether it came.
fn delivered(items: &Range<u32>, missing: &[Range<u32>]) -> Vec<bool> {
    let is_missing = |item: &u32| missing.iter().any(|range| range.contains(item));
    items.clone().map(|item| !is_missing(&item)).collect()
}

/// The ranges within `items` that are not there.
fn missing(is_there: &[bool], items: &Range<u32>) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for item in items.clone() {
        if is_there.get(item as usize).copied().unwrap_or(true) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == item => last.end += 1,
            _ => ranges.push(item..item + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests;
