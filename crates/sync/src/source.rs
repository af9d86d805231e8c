//! Where blocks come from, as this crate sees it: jobs of items, answers, and a clock. The node gives it the network's router; tests
//! give it scripted peers and their own time.

use niwaki_network::Peer;
use niwaki_network::peers::ConnId;
use niwaki_network::router::{
    self, Ask, Delivery, DeliveryId, GivenUp, JobError, Outcome, RouterHandle,
};
use niwaki_network::wire::{Answer, Request, RequestKind, SnapKind};
use niwaki_primitives::B256;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The blocks that a peer says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) conn: ConnId,
    pub(crate) latest: u64,
    pub(crate) latest_hash: B256,
    /// Whether it gives parts of states.
    pub(crate) has_snap: bool,
    /// Whether it gives nodes of tries.
    pub(crate) has_nodes: bool,
}

/// What comes of a job.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// An answer to be checked; [`Download::outcome`] must follow.
    Answer {
        id: u64,
        items: Range<u32>,
        answer: Answer,
    },
    /// It has ended: the items are there, but for these.
    Done(Vec<GivenUp>),
}

/// Makes the request for some items of a job.
pub(crate) type MakeRequest = Box<dyn Fn(Range<u32>) -> Request + Send + Sync>;

/// The peers, and the time.
pub(crate) trait Peers: Send + Sync {
    /// What each of them has.
    fn offers(&self) -> Vec<Offer>;

    /// Starts a job.
    fn start(&self, ask: Ask, request: MakeRequest) -> Result<Box<dyn Download>, JobError>;

    /// Milliseconds since some moment.
    fn now_ms(&self) -> u64;

    /// Returns after this time.
    fn wait(&self, time: Duration);
}

/// A job. Dropping it ends it.
pub(crate) trait Download {
    /// What comes next, if anything does within this time.
    fn next(&mut self, timeout: Duration) -> Option<JobEvent>;

    /// Says how an answer turned out.
    fn outcome(&mut self, id: u64, outcome: Outcome);
}

/// The peers of the running network.
pub(crate) struct NetworkPeers {
    router: RouterHandle,
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    start: Instant,
}

impl NetworkPeers {
    pub(crate) fn new(router: RouterHandle, peers: watch::Receiver<Arc<[Arc<Peer>]>>) -> Self {
        Self {
            router,
            peers,
            start: Instant::now(),
        }
    }
}

impl Peers for NetworkPeers {
    fn offers(&self) -> Vec<Offer> {
        let peers = self.peers.borrow();
        let offers = peers.iter().map(|peer| {
            let range = peer.range();
            Offer {
                conn: peer.info.origin.conn,
                latest: range.latest,
                latest_hash: range.latest_hash,
                has_snap: peer.info.snap.is_some(),
                has_nodes: peer.speaks_kind(RequestKind::Snap(SnapKind::TrieNodes)),
            }
        });
        offers.collect()
    }

    fn start(&self, ask: Ask, request: MakeRequest) -> Result<Box<dyn Download>, JobError> {
        let job = self.router.start(ask, request)?;
        Ok(Box::new(NetworkJob {
            job,
            unchecked: HashMap::new(),
            answers: 0,
        }))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

struct NetworkJob {
    job: router::Job,
    /// Answers that are being checked: at most 16, which the router sees to.
    unchecked: HashMap<u64, DeliveryId>,
    answers: u64,
}

impl Download for NetworkJob {
    fn next(&mut self, timeout: Duration) -> Option<JobEvent> {
        Some(match self.job.next(timeout)? {
            router::JobEvent::Done(given_up) => JobEvent::Done(given_up),
            router::JobEvent::Answer(delivery) => {
                let Delivery {
                    id, items, answer, ..
                } = delivery;
                self.answers += 1;
                self.unchecked.insert(self.answers, id);
                JobEvent::Answer {
                    id: self.answers,
                    items,
                    answer,
                }
            }
        })
    }

    fn outcome(&mut self, id: u64, outcome: Outcome) {
        if let Some(delivery) = self.unchecked.remove(&id) {
            self.job.outcome(&delivery, outcome);
        }
    }
}
