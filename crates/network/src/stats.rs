//! What the network counts, for metrics: fixed tables of counters that its tasks add to and a scrape reads.
//!
//! ```text
//! connections --Traffic--> messages and bytes, by protocol and message      \
//! connections, actor ----> peers, ends by side and reason, dials by source   > Stats --(scrape)--> the operator
//! router, gossip --Timing> requests in flight, times, time-outs, wrong ones /
//! ```
//!
//! No label is made of what a peer says. Counters are independent of each other, so all orderings are relaxed.
//!
//! | file | what it is |
//! |---|---|
//! | `gossip` | transactions and announcements that came to nothing |
//! | `requests` | requests of ours, by what they ask for |
//! | `traffic` | messages and bytes, by protocol and message |

mod gossip;
mod requests;
mod traffic;

pub use gossip::GossipStats;
pub(crate) use gossip::{GossipMessage, SeenCounts, ServingSnap};
pub use requests::{RequestStats, Timed};
pub(crate) use traffic::Traffic;
pub use traffic::{Direction, MessageCount};

use crate::peers::{DialFigures, Source};
use crate::rlpx::{DisconnectReason, Protocol};
use crate::wire::RequestKind;
use gossip::GossipTable;
use requests::{Requests, Timer};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use traffic::Channel;

/// A counter or gauge.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn take(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Which side ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// This node.
    Local,
    /// The peer.
    Remote,
}

impl Initiator {
    const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// What a network has counted since its start.
pub struct Stats {
    channels: Box<[Channel]>,
    connected: Count,
    greeted: Count,
    panics: Count,
    ends: [[Count; DisconnectReason::ALL.len()]; Initiator::ALL.len()],
    dials: [Count; Source::ALL.len()],
    outcomes: [Count; DialFigures::RESULTS],
    requests: Requests,
    waiting_requests: Count,
    gossip: GossipTable,
    serving_snap: Count,
    timer: OnceLock<Timer>,
}

impl std::fmt::Debug for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stats").finish_non_exhaustive()
    }
}

impl Default for Stats {
    /// Without protocols but the base protocol.
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Stats {
    /// Tables for these protocols, and the base protocol.
    pub(crate) fn new(protocols: &[Protocol]) -> Self {
        Self {
            channels: Channel::of(protocols),
            connected: Count::default(),
            greeted: Count::default(),
            panics: Count::default(),
            ends: Default::default(),
            dials: Default::default(),
            outcomes: Default::default(),
            requests: Requests::default(),
            waiting_requests: Count::default(),
            gossip: GossipTable::default(),
            serving_snap: Count::default(),
            timer: OnceLock::new(),
        }
    }

    /// Sets what gets the times that are measured. It is called by the network's tasks and must be quick. The first one stays.
    pub fn set_timer(&self, timer: impl Fn(Timed, std::time::Duration) + Send + Sync + 'static) {
        let _ = self.timer.set(Box::new(timer));
    }

    /// How many connections became peers.
    pub fn connected(&self) -> u64 {
        self.connected.get()
    }

    /// How many connections have had their Hellos and are no peers yet.
    pub fn incomplete(&self) -> u64 {
        self.greeted.get()
    }

    /// How many tasks of connections ended in a panic.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// How connections ended that had a reason: who ended them, why, how many.
    pub fn ends(&self) -> impl Iterator<Item = (Initiator, DisconnectReason, u64)> {
        let sides = Initiator::ALL.into_iter().zip(&self.ends);
        sides.flat_map(|(initiator, counts)| {
            let reasons = DisconnectReason::ALL.into_iter().zip(counts);
            reasons.map(move |(reason, count)| (initiator, reason, count.get()))
        })
    }

    /// Dials by where the node was found.
    pub fn dials(&self) -> impl Iterator<Item = (Source, u64)> {
        let sources = Source::ALL.into_iter().zip(&self.dials);
        sources.map(|(source, count)| (source, count.get()))
    }

    /// How dials ended, each result by its name.
    pub fn dial_results(&self) -> [(&'static str, u64); DialFigures::RESULTS] {
        let mut counts = self.outcomes.iter().map(Count::get);
        DialFigures::NAMES.map(|name| (name, counts.next().unwrap_or_default()))
    }

    /// Messages and bytes that came and went, by protocol and message; only those that did.
    pub fn messages(&self) -> impl Iterator<Item = MessageCount<'_>> {
        self.channels.iter().flat_map(Channel::counts)
    }

    /// Requests of ours for this.
    pub fn requests(&self, kind: RequestKind) -> RequestStats {
        self.requests.of(kind)
    }

    /// Parts of jobs that wait for a peer to be free.
    pub fn waiting_requests(&self) -> u64 {
        self.waiting_requests.get()
    }

    pub(crate) fn count_connected(&self) {
        self.connected.add(1);
    }

    /// Both Hellos have come: the connection counts as incomplete until the guard is dropped.
    pub(crate) fn count_greeted(&self) -> Greeted<'_> {
        self.greeted.add(1);
        Greeted(&self.greeted)
    }

    pub(crate) fn count_panic(&self) {
        self.panics.add(1);
    }

    pub(crate) fn count_end(&self, initiator: Initiator, reason: DisconnectReason) {
        let reasons = &self.ends[initiator as usize];
        let at = DisconnectReason::ALL.iter().position(|one| *one == reason);
        if let Some(count) = at.and_then(|at| reasons.get(at)) {
            count.add(1);
        }
    }

    pub(crate) fn count_dial(&self, source: Source) {
        if let Some(count) = self.dials.get(source as usize) {
            count.add(1);
        }
    }

    pub(crate) fn set_dial_results(&self, figures: &DialFigures) {
        for (count, value) in self.outcomes.iter().zip(figures.results()) {
            count.set(value);
        }
    }

    pub(crate) fn set_waiting_requests(&self, pieces: usize) {
        self.waiting_requests.set(pieces as u64);
    }

    pub(crate) fn time(&self, what: Timed, took: std::time::Duration) {
        if let Some(timer) = self.timer.get() {
            timer(what, took);
        }
    }
}

/// A connection between its Hellos and its Status.
#[derive(Debug)]
pub(crate) struct Greeted<'s>(&'s Count);

impl Drop for Greeted<'_> {
    fn drop(&mut self) {
        self.0.take(1);
    }
}

#[cfg(test)]
mod tests;
