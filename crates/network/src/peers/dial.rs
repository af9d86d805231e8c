//! The dial plan: which node to dial next, and when a node may be dialled again.
//!
//! Candidates come from eight sources and are tried in their order. Those that the operator named, and the boot nodes, stay in the
//! plan for ever; those that were found wait in a queue of their source and leave it when they are dialled. No source has more than
//! half of the dials in flight, so that none decides alone who this node's peers are.
//!
//! | after | again |
//! |---|---|
//! | any dial | 35 s after it began, at the earliest |
//! | a failure | 30 s, doubling to 1 h; a static or trusted node to 5 min |
//! | a static or trusted node was not reached | 1 s, doubling to 5 min: it saw nothing of the dial |
//! | `too many peers` | 3 min, no fault |
//! | another chain | a day |
//! | this node cut it | 10 min |

use crate::key::NodeId;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// The same node is not dialled twice within this time.
pub(crate) const REDIAL_MS: u64 = 35_000;
/// Back-off after the first failure.
const FIRST_BACKOFF_MS: u64 = 30_000;
/// Back-off after a node of the operator's was not reached, at first: it may be about to start.
const FIRST_UNREACHED_MS: u64 = 1_000;
/// Longest back-off of a node that was found.
const MAX_BACKOFF_MS: u64 = 3_600_000;
/// Longest back-off of a node that the operator named.
const MAX_NAMED_BACKOFF_MS: u64 = 300_000;
/// After `too many peers`.
const FULL_MS: u64 = 180_000;
/// After this node cut the connection.
const CUT_MS: u64 = 600_000;
/// After a Status of another chain.
const OTHER_CHAIN_MS: u64 = 86_400_000;
/// Waiting times are shortened at random by up to this share, and the shortest one is lengthened by it.
const JITTER_PERCENT: u64 = 20;
/// Most candidates that wait, of each source.
const MAX_QUEUED: usize = 256;
/// Most saved peers that wait.
const MAX_QUEUED_SAVED: usize = super::MAX_SAVED;
/// Most nodes that the operator names, and boot nodes.
pub(crate) const MAX_NAMED: usize = 1024;
/// Most nodes of which it is known when they may be dialled again.
const MAX_TRIED: usize = 16_384;
/// Most candidates looked at of one source at a time.
const MAX_LOOKED_AT: usize = 64;
/// A saved peer is tried so often without success.
const SAVED_TRIES: u32 = 4;

/// A node that may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub id: NodeId,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its port of discovery; 0 if that is not known.
    pub udp_port: u16,
}

/// Where a candidate comes from, in the order in which they are dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The operator's static nodes.
    Static,
    /// The operator's trusted nodes.
    Trusted,
    /// The file of saved peers.
    Saved,
    /// A DNS list.
    Dns,
    /// The discv5 table.
    V5,
    /// The discv4 table.
    V4,
    /// The boot nodes.
    Boot,
    /// Found nodes that don't say which chain they are of.
    Unchecked,
}

impl Source {
    /// All, in the order in which they are dialled.
    pub const ALL: [Self; 8] = [
        Self::Static,
        Self::Trusted,
        Self::Saved,
        Self::Dns,
        Self::V5,
        Self::V4,
        Self::Boot,
        Self::Unchecked,
    ];

    /// Whether its nodes stay in the plan.
    fn is_named(self) -> bool {
        matches!(self, Self::Static | Self::Trusted | Self::Boot)
    }

    /// Whether the operator named it.
    fn is_operators(self) -> bool {
        matches!(self, Self::Static | Self::Trusted)
    }

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Trusted => "trusted",
            Self::Saved => "saved",
            Self::Dns => "dns",
            Self::V5 => "discv5",
            Self::V4 => "discv4",
            Self::Boot => "boot",
            Self::Unchecked => "unchecked",
        }
    }
}

/// How a dial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It became a peer.
    Connected,
    /// It was a peer for some time and left.
    Parted,
    /// No connection.
    Unreached,
    /// No handshake, or no common protocol.
    Failed,
    /// It has no slot.
    Full,
    /// Both sides dialled, and this connection is the second.
    Twice,
    /// It is of another chain.
    OtherChain,
    /// This node did not want it, or cut it.
    Cut,
}

impl Outcome {
    fn is_failure(self) -> bool {
        matches!(self, Self::Unreached | Self::Failed)
    }
}

/// How dials ended, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DialFigures {
    /// Dials begun.
    pub dialled: u64,
    /// Ended as peers.
    pub connected: u64,
    /// No connection, no handshake, or no common protocol.
    pub failed: u64,
    /// Had no slot.
    pub full: u64,
    /// Were of another chain.
    pub other_chain: u64,
    /// Any other end.
    pub other: u64,
}

impl DialFigures {
    /// How many results there are.
    pub(crate) const RESULTS: usize = 5;
    /// Their names in metrics.
    pub(crate) const NAMES: [&str; Self::RESULTS] = [
        "connected",
        "failed",
        "too_many_peers",
        "other_chain",
        "other",
    ];

    /// The results, in the order of their names.
    pub(crate) fn results(&self) -> [u64; Self::RESULTS] {
        [
            self.connected,
            self.failed,
            self.full,
            self.other_chain,
            self.other,
        ]
    }

    fn count(&mut self, outcome: Outcome) {
        let figure = match outcome {
            Outcome::Connected | Outcome::Parted => &mut self.connected,
            Outcome::Unreached | Outcome::Failed => &mut self.failed,
            Outcome::Full => &mut self.full,
            Outcome::OtherChain => &mut self.other_chain,
            Outcome::Twice | Outcome::Cut => &mut self.other,
        };
        *figure += 1;
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    source: Source,
    candidate: Candidate,
    began_ms: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    failures: u32,
    next_ms: u64,
    /// When its last dial began.
    dialled_ms: Option<u64>,
}

/// The dial plan.
#[derive(Debug, Default)]
pub(crate) struct DialPlan {
    named: BTreeMap<(Source, NodeId), Candidate>,
    found: BTreeMap<Source, VecDeque<Candidate>>,
    queued: HashSet<NodeId>,
    pub(super) in_flight: HashMap<NodeId, InFlight>,
    tried: HashMap<NodeId, Tried>,
    by_time: BTreeSet<(u64, NodeId)>,
    figures: DialFigures,
    total: DialFigures,
}

impl DialPlan {
    /// Adds a node of the operator's, or a boot node; a known one gets the new address. What went wrong before the operator named
    /// it is forgotten. Returns whether there was room.
    pub(crate) fn name(&mut self, source: Source, candidate: Candidate) -> bool {
        let key = (source, candidate.id);
        let is_known = self.named.contains_key(&key);
        if !source.is_named() || self.named.len() >= MAX_NAMED && !is_known {
            return false;
        }
        self.named.insert(key, candidate);
        if source.is_operators() && !is_known {
            self.forgive(&candidate.id);
        }
        true
    }

    /// A node may be dialled 35 s after its last dial, whatever came of it.
    fn forgive(&mut self, id: &NodeId) {
        if let Some(tried) = self.tried.get_mut(id) {
            tried.failures = 0;
            let dialled_ms = tried.dialled_ms;
            let next_ms = dialled_ms.map_or(0, |ms| ms.saturating_add(REDIAL_MS));
            self.set_next(id, next_ms);
        }
    }

    /// A node that was tried may be dialled at this time.
    fn set_next(&mut self, id: &NodeId, next_ms: u64) {
        if let Some(tried) = self.tried.get_mut(id) {
            self.by_time.remove(&(tried.next_ms, *id));
            tried.next_ms = next_ms;
            self.by_time.insert((next_ms, *id));
        }
    }

    /// The name of a node's host was resolved.
    pub(crate) fn resolved(&mut self, source: Source, id: NodeId, address: SocketAddr) {
        if let Some(candidate) = self.named.get_mut(&(source, id)) {
            candidate.address = address;
        }
    }

    /// Takes a named node out. Returns whether it was there.
    pub(crate) fn unname(&mut self, source: Source, id: NodeId) -> bool {
        self.named.remove(&(source, id)).is_some()
    }

    /// Whether a node is one of those named so.
    pub(crate) fn is_named(&self, source: Source, id: &NodeId) -> bool {
        self.named.contains_key(&(source, *id))
    }

    /// Whether one of the operator's nodes has this address.
    pub(crate) fn has_operators_ip(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let mut all = self.named.iter();
        all.any(|((source, _), c)| source.is_operators() && c.address.ip().to_canonical() == ip)
    }

    /// How many candidates of a source there is room for.
    pub(crate) fn room(&self, source: Source) -> usize {
        let max = match source {
            Source::Saved => MAX_QUEUED_SAVED,
            _ => MAX_QUEUED,
        };
        let waiting = self.found.get(&source).map_or(0, VecDeque::len);
        match source.is_named() {
            true => MAX_NAMED.saturating_sub(self.named.len()),
            false => max.saturating_sub(waiting),
        }
    }

    /// Whether candidates of a source are wanted: half of its queue is empty.
    pub(crate) fn is_wanting(&self, source: Source) -> bool {
        self.room(source) >= MAX_QUEUED / 2
    }

    /// Queues a candidate that was found. Returns whether it was taken: it must be new, and there must be room.
    pub(crate) fn find(&mut self, source: Source, candidate: Candidate, now_ms: u64) -> bool {
        if source.is_named() {
            return self.name(source, candidate);
        }
        let is_useless = self.room(source) == 0
            || candidate.address.port() == 0
            || candidate.address.ip().is_unspecified()
            || candidate.address.ip().is_multicast()
            || self.next_ms(&candidate.id) > now_ms
            || self.in_flight.contains_key(&candidate.id);
        if is_useless || !self.queued.insert(candidate.id) {
            return false;
        }
        self.found.entry(source).or_default().push_back(candidate);
        true
    }

    fn next_ms(&self, id: &NodeId) -> u64 {
        self.tried.get(id).map_or(0, |tried| tried.next_ms)
    }

    /// The next node to dial: of the first source that has one which may be dialled now, is not in flight and is allowed. At most
    /// `max_in_flight` are dialled at once, and half of them of one source. The caller dials it.
    pub(crate) fn next(
        &mut self,
        max_in_flight: usize,
        now_ms: u64,
        is_allowed: impl Fn(Source, &Candidate) -> bool,
    ) -> Option<(Source, Candidate)> {
        if self.in_flight.len() >= max_in_flight || !self.has_room_for_a_trial(now_ms) {
            return None;
        }
        let share = max_in_flight.div_ceil(2);
        for source in Source::ALL {
            let in_flight = self.in_flight.values();
            if in_flight.filter(|dial| dial.source == source).count() >= share {
                continue;
            }
            let is_allowed = |candidate: &Candidate| is_allowed(source, candidate);
            let next = match source.is_named() {
                true => self.next_named(source, now_ms, is_allowed),
                false => self.next_found(source, now_ms, is_allowed),
            };
            if let Some(candidate) = next {
                self.begin(source, candidate, now_ms);
                return Some((source, candidate));
            }
        }
        None
    }

    /// Of the named nodes that may be dialled, the one that could have been dialled first.
    fn next_named(
        &self,
        source: Source,
        now_ms: u64,
        is_allowed: impl Fn(&Candidate) -> bool,
    ) -> Option<Candidate> {
        let named = self.named.iter();
        let named = named.filter(|((of, id), _)| *of == source && self.next_ms(id) <= now_ms);
        let named = named.map(|(_, candidate)| *candidate);
        let named = named.filter(|c| !self.in_flight.contains_key(&c.id) && is_allowed(c));
        named.min_by_key(|candidate| self.next_ms(&candidate.id))
    }

    /// The first of a queue that may be dialled. Those in front of it leave the queue: their source finds them again. Saved peers
    /// go to its end.
    fn next_found(
        &mut self,
        source: Source,
        now_ms: u64,
        is_allowed: impl Fn(&Candidate) -> bool,
    ) -> Option<Candidate> {
        for _ in 0..MAX_LOOKED_AT {
            let candidate = self.found.get_mut(&source)?.pop_front()?;
            let may_be_dialled = self.next_ms(&candidate.id) <= now_ms;
            let is_free = !self.in_flight.contains_key(&candidate.id);
            if may_be_dialled && is_free && is_allowed(&candidate) {
                self.queued.remove(&candidate.id);
                return Some(candidate);
            }
            match source {
                Source::Saved => self.found.entry(source).or_default().push_back(candidate),
                _ => {
                    self.queued.remove(&candidate.id);
                }
            }
        }
        None
    }

    /// Whether another node can be remembered: the oldest memory goes that forbids no dial.
    fn has_room_for_a_trial(&mut self, now_ms: u64) -> bool {
        if self.tried.len() < MAX_TRIED {
            return true;
        }
        let Some((next_ms, id)) = self.by_time.first().copied() else {
            return false;
        };
        let is_over = next_ms <= now_ms;
        if is_over {
            self.by_time.pop_first();
            self.tried.remove(&id);
        }
        is_over
    }

    fn begin(&mut self, source: Source, candidate: Candidate, began_ms: u64) {
        self.figures.dialled += 1;
        self.total.dialled += 1;
        let dial = InFlight {
            source,
            candidate,
            began_ms,
        };
        self.in_flight.insert(candidate.id, dial);
        self.not_before(candidate.id, began_ms.saturating_add(REDIAL_MS));
        if let Some(tried) = self.tried.get_mut(&candidate.id) {
            tried.dialled_ms = Some(began_ms);
        }
    }

    /// A node may not be dialled before this time.
    fn not_before(&mut self, id: NodeId, next_ms: u64) {
        let has_room = self.tried.len() < MAX_TRIED || self.tried.contains_key(&id);
        if !has_room {
            return;
        }
        let tried = self.tried.entry(id).or_default();
        if next_ms > tried.next_ms {
            self.by_time.remove(&(tried.next_ms, id));
            tried.next_ms = next_ms;
        }
        self.by_time.insert((tried.next_ms, id));
    }

    /// A dial has ended.
    pub(crate) fn end(&mut self, id: &NodeId, outcome: Outcome, now_ms: u64, rng: &mut SmallRng) {
        let Some(dial) = self.in_flight.remove(id) else {
            return;
        };
        self.figures.count(outcome);
        self.total.count(outcome);
        match outcome {
            Outcome::Unreached if self.is_operators(id) => self.set_next(id, now_ms),
            // Not even when both sides would dial again at the same moment.
            _ => {
                let soonest = dial.began_ms.saturating_add(lengthened(REDIAL_MS, rng));
                self.not_before(*id, soonest);
            }
        }
        self.rest(id, outcome, now_ms, rng);
        let tries = self.tried.get(id).map_or(0, |tried| tried.failures);
        let is_worth_another = outcome.is_failure() && tries < SAVED_TRIES;
        if dial.source == Source::Saved && is_worth_another && self.queued.insert(*id) {
            let queue = self.found.entry(Source::Saved).or_default();
            queue.push_back(dial.candidate);
            if queue.len() > MAX_QUEUED_SAVED
                && let Some(first) = queue.pop_front()
            {
                self.queued.remove(&first.id);
            }
        }
    }

    /// A node is left alone for as long as this outcome asks for, whether it was dialled or not.
    pub(crate) fn rest(&mut self, id: &NodeId, outcome: Outcome, now_ms: u64, rng: &mut SmallRng) {
        let failures = self.tried.get(id).map_or(0, |tried| tried.failures);
        let wait_ms = match outcome {
            Outcome::Connected | Outcome::Parted | Outcome::Twice => 0,
            Outcome::Unreached if self.is_operators(id) => shortened(
                FIRST_UNREACHED_MS.saturating_mul(1 << failures.min(16)),
                rng,
            ),
            Outcome::Unreached | Outcome::Failed => shortened(self.backoff_ms(id, failures), rng),
            Outcome::Full => lengthened(FULL_MS, rng),
            Outcome::OtherChain => OTHER_CHAIN_MS,
            Outcome::Cut if self.is_operators(id) => shortened(FIRST_BACKOFF_MS, rng),
            Outcome::Cut => lengthened(CUT_MS, rng),
        };
        let wait_ms = match self.is_operators(id) {
            true => wait_ms.min(MAX_NAMED_BACKOFF_MS),
            false => wait_ms,
        };
        self.not_before(*id, now_ms.saturating_add(wait_ms));
        if let Some(tried) = self.tried.get_mut(id) {
            tried.failures = match outcome {
                Outcome::Parted => 0,
                outcome if outcome.is_failure() => failures.saturating_add(1),
                _ => failures,
            };
        }
    }

    fn is_operators(&self, id: &NodeId) -> bool {
        self.is_named(Source::Static, id) || self.is_named(Source::Trusted, id)
    }

    fn backoff_ms(&self, id: &NodeId, failures: u32) -> u64 {
        let doubled = FIRST_BACKOFF_MS.saturating_mul(1 << failures.min(16));
        match self.is_operators(id) {
            true => doubled.min(MAX_NAMED_BACKOFF_MS),
            false => doubled.min(MAX_BACKOFF_MS),
        }
    }

    /// How all dials ended so far.
    pub(crate) fn total(&self) -> &DialFigures {
        &self.total
    }

    /// How dials ended since the last call.
    pub(crate) fn take_figures(&mut self) -> DialFigures {
        std::mem::take(&mut self.figures)
    }
}

fn jitter_ms(ms: u64, rng: &mut SmallRng) -> u64 {
    rng.random_range(0..=ms / 100 * JITTER_PERCENT)
}

fn shortened(ms: u64, rng: &mut SmallRng) -> u64 {
    ms - jitter_ms(ms, rng)
}

fn lengthened(ms: u64, rng: &mut SmallRng) -> u64 {
    ms + jitter_ms(ms, rng)
}

#[cfg(test)]
mod tests;
