//! The router as it runs: peers join and leave it as the list of peers changes, its orders become messages, their answers go to
//! the callers of jobs.
//!
//! ```text
//! caller: start --> Router --> Peer::ask ~~> answer --> the job's mailbox --> caller checks --> outcome --> Router
//! ```
//!
//! The router is behind a lock, which callers and the tasks that wait for answers hold for one step, and never while they wait. A
//! task does what is due ten times a second. When answers come too late is decided by the router alone: the task that waits for one
//! is then ended, and the peer's session ignores what comes.

use super::ask::{Abilities, Ask, AskAction, JobError, JobId, Outcome, Router};
use super::job::{Delivery, DeliveryId, Job, JobEvent, Mailbox};
use crate::peer::{AskError, Peer, PeerAnswer};
use crate::peers::{Conduct, ConnId, Event};
use crate::stats::Stats;
use crate::wire::{Request, RequestKind};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};

/// How often the router does what is due.
const TICK: Duration = Duration::from_millis(100);

/// What the router tells the roster.
type Report = Box<dyn Fn(Event) + Send + Sync>;
type MakeRequest = Box<dyn Fn(Range<u32>) -> Request + Send + Sync>;

/// Begins jobs. Clones are the same router.
#[derive(Clone, Debug)]
pub struct RouterHandle(Arc<Shared>);

impl RouterHandle {
    /// Begins a job. `request` makes the request for a range of the job's items: it must be quick, and not call the router.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn start(
        &self,
        ask: Ask,
        request: impl Fn(Range<u32>) -> Request + Send + Sync + 'static,
    ) -> Result<Job, JobError> {
        self.0.start(ask, Box::new(request))
    }
}

/// Starts the router of a network on the calling runtime. It ends when `peers` does.
pub(crate) fn start(
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    report: impl Fn(Event) + Send + Sync + 'static,
    stats: Arc<Stats>,
) -> RouterHandle {
    let state = State {
        router: Router::new(SmallRng::from_os_rng()),
        peers: HashMap::new(),
        jobs: HashMap::new(),
        waiting: HashMap::new(),
        is_stopped: false,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        report: Box::new(report),
        stats,
        runtime: Handle::current(),
        start: Instant::now(),
    });
    tokio::spawn(run(Arc::clone(&shared), peers));
    RouterHandle(shared)
}

async fn run(shared: Arc<Shared>, mut peers: watch::Receiver<Arc<[Arc<Peer>]>>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    peers.mark_changed();
    loop {
        tokio::select! {
            _ = ticks.tick() => shared.tick(),
            changed = peers.changed() => {
                if changed.is_err() {
                    shared.stop();
                    return;
                }
                let list = Arc::clone(&peers.borrow_and_update());
                shared.update_peers(&list);
            }
        }
    }
}

struct RunningJob {
    make_request: MakeRequest,
    mailbox: Arc<Mailbox>,
}

struct State {
    router: Router,
    peers: HashMap<ConnId, Arc<Peer>>,
    jobs: HashMap<JobId, RunningJob>,
    /// The tasks that wait for answers, and of what.
    waiting: HashMap<(ConnId, u64), (AbortHandle, RequestKind)>,
    is_stopped: bool,
}

/// The router and what it needs to act.
pub(super) struct Shared {
    state: Mutex<State>,
    report: Report,
    stats: Arc<Stats>,
    runtime: Handle,
    start: Instant,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn start(self: &Arc<Self>, ask: Ask, make_request: MakeRequest) -> Result<Job, JobError> {
        let mailbox = Arc::new(Mailbox::default());
        let mut state = self.state();
        if state.is_stopped {
            return Err(JobError::Stopped);
        }
        let (id, actions) = state.router.ask(ask, self.now_ms())?;
        let job = RunningJob {
            make_request,
            mailbox: Arc::clone(&mailbox),
        };
        state.jobs.insert(id, job);
        self.act(&mut state, actions);
        drop(state);
        Ok(Job::new(id, Arc::clone(self), mailbox))
    }

    pub(super) fn cancel(&self, id: JobId) {
        let mut state = self.state();
        state.router.cancel(id);
        state.jobs.remove(&id);
    }

    /// Carries out what the router orders, and what it orders thereupon.
    fn act(self: &Arc<Self>, state: &mut State, actions: Vec<AskAction>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                AskAction::Send {
                    conn,
                    request,
                    job,
                    items,
                } => {
                    let open = (conn, request);
                    if let Err(error) = self.send(state, open, job, items) {
                        let now_ms = self.now_ms();
                        actions.extend(match error {
                            AskError::Gone => state.leave(conn, now_ms),
                            _ => state.router.unsent(conn, request, now_ms),
                        });
                    }
                }
                AskAction::Abandon { conn, request } => {
                    if let Some((task, kind)) = state.waiting.remove(&(conn, request)) {
                        task.abort();
                        self.stats.count_timeout(kind);
                    }
                }
                AskAction::Done { job, given_up } => {
                    if let Some(job) = state.jobs.remove(&job) {
                        job.mailbox.put(JobEvent::Done(given_up));
                    }
                }
                AskAction::Conduct { conn, conduct } => {
                    (self.report)(Event::Conduct { conn, conduct });
                }
            }
        }
    }

    /// Sends a request; a task waits for its answer.
    fn send(
        self: &Arc<Self>,
        state: &mut State,
        open: (ConnId, u64),
        job: JobId,
        items: Range<u32>,
    ) -> Result<(), AskError> {
        let peer = state.peers.get(&open.0).ok_or(AskError::Gone)?;
        let job = state.jobs.get(&job).ok_or(AskError::Busy)?;
        let request = (job.make_request)(items);
        let kind = request.kind();
        let answer = peer.ask(&request)?;
        let (shared, timing) = (Arc::clone(self), self.stats.begin_request(kind));
        let task = self.runtime.spawn(async move {
            let answer = answer.await.unwrap_or(Err(AskError::Gone));
            if answer.is_ok() {
                timing.answered();
            }
            shared.arrived(open, answer);
        });
        state.waiting.insert(open, (task.abort_handle(), kind));
        Ok(())
    }

    /// An answer came, or none will.
    fn arrived(self: &Arc<Self>, open: (ConnId, u64), answer: Result<PeerAnswer, AskError>) {
        let ((conn, request), now_ms) = (open, self.now_ms());
        let mut state = self.state();
        state.waiting.remove(&open);
        match answer {
            Ok(arrived) => {
                let Some(wanted) = state.router.arrived(conn, request, now_ms) else {
                    return;
                };
                let id = DeliveryId {
                    conn,
                    request,
                    bytes: arrived.bytes,
                };
                if let Some(job) = state.jobs.get(&wanted.job) {
                    let delivery = Delivery::new(id, wanted.items, arrived);
                    job.mailbox.put(JobEvent::Answer(delivery));
                }
            }
            Err(_) => {
                let actions = state.leave(conn, now_ms);
                self.act(&mut state, actions);
            }
        }
    }

    pub(super) fn outcome(self: &Arc<Self>, delivery: &DeliveryId, outcome: Outcome) {
        let (conn, request) = (delivery.conn, delivery.request);
        let mut state = self.state();
        if matches!(outcome, Outcome::Wrong(_))
            && let Some(open) = state.router.open_request(conn, request)
        {
            self.stats.count_wrong(open.kind);
        }
        let now_ms = self.now_ms();
        let actions = state.router.answer(conn, request, outcome, now_ms);
        let conduct = Conduct::Content;
        if actions.contains(&AskAction::Conduct { conn, conduct }) {
            let bytes = delivery.bytes as u64;
            (self.report)(Event::Delivered { conn, bytes });
        }
        self.act(&mut state, actions);
    }

    fn tick(self: &Arc<Self>) {
        let mut state = self.state();
        let actions = state.router.tick(self.now_ms());
        self.act(&mut state, actions);
        self.stats.set_waiting_requests(state.router.waiting());
    }

    /// The list of peers changed, or what they have.
    fn update_peers(self: &Arc<Self>, list: &[Arc<Peer>]) {
        let mut state = self.state();
        let now_ms = self.now_ms();
        let list = || list.iter().filter(|peer| !peer.is_closing());
        let here: HashSet<ConnId> = list().map(|peer| peer.info.origin.conn).collect();
        let gone: Vec<ConnId> = state.peers.keys().copied().collect();
        let gone = gone.into_iter().filter(|conn| !here.contains(conn));
        let mut actions: Vec<AskAction> = gone.flat_map(|conn| state.leave(conn, now_ms)).collect();
        for peer in list() {
            let conn = peer.info.origin.conn;
            state.peers.insert(conn, Arc::clone(peer));
            actions.extend(state.router.join(conn, abilities(peer), now_ms));
        }
        self.act(&mut state, actions);
    }

    fn stop(self: &Arc<Self>) {
        let mut state = self.state();
        state.is_stopped = true;
        let actions = state.router.stop();
        self.act(&mut state, actions);
        state.peers.clear();
    }
}

impl State {
    fn leave(&mut self, conn: ConnId, now_ms: u64) -> Vec<AskAction> {
        self.peers.remove(&conn);
        self.router.leave(conn, now_ms)
    }
}

/// What a peer can be asked for, by the protocols on the connection and the blocks that it says it has.
fn abilities(peer: &Peer) -> Abilities {
    let mut kinds = RequestKind::ALL.to_vec();
    kinds.retain(|kind| peer.speaks_kind(*kind));
    let range = peer.range();
    Abilities {
        kinds,
        earliest: range.earliest,
        latest: range.latest,
    }
}

#[cfg(test)]
mod tests;
