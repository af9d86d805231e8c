//! Gossip as it runs: what peers send goes into the machine, and what it orders becomes messages and batches for the pool.
//!
//! ```text
//! sessions --events--> [lock: Gossip] --Ask, Announce, Send--> peers
//!                        ^        \----HandOver--> queue --4 MiB on the way--> the node's threads
//!                        \---- report, broadcast, mined (from any thread) ---------/
//! ```
//!
//! The machine is behind a lock that is held for one step. While the queue for the pool is too long, no gossip is taken from the
//! sessions and nothing is asked: the sessions drop what comes, and requests and answers go on.

use super::machine::{Action, Gossip};
use super::pool::{
    Announceable, NewTransaction, PoolView, ReceivedBatch, ReceivedTransaction, Verdict,
};
use super::send::SendSecret;
use crate::peer::{AskError, GossipContent, GossipEvent, Peer, PeerAnswer, Room};
use crate::peers::{ConnId, Event};
use crate::rlpx::DisconnectReason;
use crate::stats::Stats;
use crate::wire::limits::MAX_ANNOUNCED;
use crate::wire::{Answer, CellMask, Request, encode_transactions};
use niwaki_primitives::B256;
use rand::Rng;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tracing::debug;

/// How often the machine does what is due.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of batches that the node's threads have, or that wait for them in the channel.
const HANDED_BYTES: usize = 4 << 20;
/// Batches that wait in the channel.
const HANDED_BATCHES: usize = 256;
/// With so many bytes in the queue before the channel, no gossip is taken.
const QUEUE_BYTES: usize = 4 << 20;
/// After so long an answer is waited for no more: the machine gave it up before.
const FORGET_AFTER: Duration = Duration::from_secs(25);

/// What gossip tells the roster.
type Report = Box<dyn Fn(Event) + Send + Sync>;

/// Speaks to gossip, from any thread. Clones are the same gossip.
#[derive(Clone, Debug)]
pub struct GossipHandle(Arc<Shared>);

impl GossipHandle {
    /// What became of the transactions of a [`ReceivedBatch`] from this peer.
    pub fn report(&self, peer: ConnId, results: &[(B256, Verdict)]) {
        self.0
            .step(None, |gossip, now_ms| gossip.report(peer, results, now_ms));
    }

    /// Sends new transactions to the square root of the peers, and announces them to the others. Those of a sender come in the order of
    /// their nonces.
    pub fn broadcast(&self, transactions: &[NewTransaction]) {
        self.0.step(None, |gossip, now_ms| {
            gossip.broadcast(transactions, now_ms)
        });
    }

    /// Announces transactions that are still in the pool once more, at most 4,096, also to peers that have heard of them: they may have had
    /// no room for them.
    pub fn remind(&self, transactions: &[Announceable]) {
        self.0.step(None, |gossip, _| gossip.remind(transactions));
    }

    /// The columns of cells that the consensus client keeps: of sampled blobs these are asked for from now on. All at the start.
    pub fn set_custody(&self, columns: CellMask) {
        self.0.state().gossip.set_custody(columns);
    }

    /// A block has these transactions.
    pub fn mined(&self, hashes: &[B256]) {
        self.0.step(None, |gossip, _| gossip.mined(hashes));
    }

    /// While this node syncs it neither asks for transactions nor sends any, and drops what comes. So it begins. When it ends, all peers
    /// get the hashes of what the pool has.
    pub fn set_syncing(&self, is_syncing: bool) {
        let mut state = self.0.state();
        let was_syncing = state.gossip.set_syncing(is_syncing);
        let peers: Vec<ConnId> = state.peers.keys().copied().collect();
        drop(state);
        if was_syncing && !is_syncing {
            self.0.announce_pending(peers);
        }
    }
}

/// What gossip needs.
pub(crate) struct Links {
    pub(crate) peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    pub(crate) events: mpsc::Receiver<GossipEvent>,
    pub(crate) pool: PoolView,
    pub(crate) report: Report,
    pub(crate) stats: Arc<Stats>,
}

/// Starts gossip on the calling runtime. It ends when the list of peers does.
pub(crate) fn start(links: Links) -> (GossipHandle, mpsc::Receiver<ReceivedBatch>) {
    let mut rng = rand::rng();
    let (secret, key) = (SendSecret(rng.random()), rng.random());
    let state = State {
        gossip: Gossip::new(secret, key, links.pool.whole_percent, links.pool.is_here),
        peers: HashMap::new(),
        queue: VecDeque::new(),
        queue_bytes: 0,
        is_stopped: false,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        queued: Notify::new(),
        drained: Notify::new(),
        pending: links.pool.pending,
        report: links.report,
        stats: links.stats,
        runtime: Handle::current(),
        start: Instant::now(),
    });
    let (sender, batches) = mpsc::channel(HANDED_BATCHES);
    tokio::spawn(hand_over(Arc::clone(&shared), sender));
    tokio::spawn(run(Arc::clone(&shared), links.peers, links.events));
    (GossipHandle(shared), batches)
}

async fn run(
    shared: Arc<Shared>,
    mut peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    mut events: mpsc::Receiver<GossipEvent>,
) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    peers.mark_changed();
    loop {
        tokio::select! {
            _ = ticks.tick() => shared.step(None, Gossip::tick),
            changed = peers.changed() => {
                if changed.is_err() {
                    shared.stop();
                    return;
                }
                let list = Arc::clone(&peers.borrow_and_update());
                shared.update_peers(&list);
            }
            event = next_event(&shared, &mut events) => match event {
                Some(event) => shared.take(event),
                None => {
                    shared.stop();
                    return;
                }
            },
        }
    }
}

/// The next message of a peer, once the pool is not behind.
async fn next_event(
    shared: &Shared,
    events: &mut mpsc::Receiver<GossipEvent>,
) -> Option<GossipEvent> {
    loop {
        let drained = shared.drained.notified();
        if shared.state().queue_bytes <= QUEUE_BYTES {
            return events.recv().await;
        }
        drained.await;
    }
}

/// Gives the node the batches of the queue, one after the other, so that it never has more than it may.
async fn hand_over(shared: Arc<Shared>, sender: mpsc::Sender<ReceivedBatch>) {
    let room = Arc::new(Semaphore::new(HANDED_BYTES));
    loop {
        let queued = shared.queued.notified();
        let Some((mut batch, bytes)) = shared.next_batch() else {
            if shared.state().is_stopped {
                return;
            }
            queued.await;
            continue;
        };
        // A batch that is larger than all may be is alone.
        let permits = u32::try_from(bytes.min(HANDED_BYTES)).unwrap_or(u32::MAX);
        let permit: Option<OwnedSemaphorePermit> =
            Arc::clone(&room).acquire_many_owned(permits).await.ok();
        batch._permit = permit;
        if sender.send(batch).await.is_err() {
            return;
        }
    }
}

struct State {
    gossip: Gossip,
    peers: HashMap<ConnId, Arc<Peer>>,
    /// Batches for the node, with their bytes.
    queue: VecDeque<(ReceivedBatch, usize)>,
    queue_bytes: usize,
    is_stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    /// A batch came into the queue, or gossip has stopped.
    queued: Notify,
    /// A batch went out of the queue.
    drained: Notify,
    pending: Arc<dyn Fn(usize) -> Vec<Announceable> + Send + Sync>,
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

/// What is asked of a peer, by the machine's number.
#[derive(Clone, Copy)]
struct Asked {
    conn: ConnId,
    request: u64,
    is_cells: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One step of the machine, and what follows. What it hands over takes `room` with it.
    fn step(
        self: &Arc<Self>,
        room: Option<Room>,
        step: impl FnOnce(&mut Gossip, u64) -> Vec<Action>,
    ) {
        let (mut state, room) = (self.state(), room.map(Arc::new));
        let actions = step(&mut state.gossip, self.now_ms());
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            actions.extend(self.act(&mut state, action, room.as_ref()));
        }
        self.stats.set_seen_gossip(state.gossip.seen());
    }

    /// Carries out an order. Returns what the machine orders thereupon.
    fn act(
        self: &Arc<Self>,
        state: &mut State,
        action: Action,
        room: Option<&Arc<Room>>,
    ) -> Vec<Action> {
        match action {
            Action::Ask {
                conn,
                request,
                hashes,
            } => {
                let asked = Asked {
                    conn,
                    request,
                    is_cells: false,
                };
                return self.ask(state, asked, &Request::PooledTransactions(hashes));
            }
            Action::AskCells {
                conn,
                request,
                hashes: transactions,
                columns,
            } => {
                let asked = Asked {
                    conn,
                    request,
                    is_cells: true,
                };
                let request = Request::Cells {
                    transactions,
                    columns,
                };
                return self.ask(state, asked, &request);
            }
            Action::Announce { conn, announcement } => {
                if let Some(peer) = state.peers.get(&conn) {
                    peer.announce(&announcement);
                }
            }
            Action::Send { conn, transactions } => {
                if let Some(peer) = state.peers.get(&conn) {
                    peer.send_transactions(encode_transactions(&transactions));
                }
            }
            Action::HandOver { conn, transactions } => {
                let bytes = transactions.iter().map(ReceivedTransaction::bytes).sum();
                let batch = ReceivedBatch {
                    peer: conn,
                    transactions,
                    _room: room.cloned(),
                    _permit: None,
                };
                state.queue.push_back((batch, bytes));
                state.queue_bytes += bytes;
                state.gossip.set_pool_full(state.queue_bytes > QUEUE_BYTES);
                self.queued.notify_one();
            }
            Action::Disconnect { conn, breach } => {
                if let Some(peer) = state.peers.remove(&conn) {
                    debug!(node = ?peer.info.origin.node, %breach, "Peer cut");
                    peer.disconnect(DisconnectReason::ProtocolBreach);
                }
            }
            Action::Conduct { conn, conduct } => (self.report)(Event::Conduct { conn, conduct }),
        }
        Vec::new()
    }

    /// Sends a request; a task waits for its answer.
    fn ask(self: &Arc<Self>, state: &mut State, asked: Asked, request: &Request) -> Vec<Action> {
        let sent = match state.peers.get(&asked.conn) {
            Some(peer) => peer.ask(request),
            None => Err(AskError::Gone),
        };
        let Ok(answer) = sent else {
            return self.no_answer(state, asked);
        };
        let (shared, kind) = (Arc::clone(self), request.kind());
        let timing = self.stats.begin_request(kind);
        self.runtime.spawn(async move {
            let answer = timeout(FORGET_AFTER, answer).await;
            if answer.is_err() {
                shared.stats.count_timeout(kind);
            }
            match answer {
                Ok(Ok(Ok(answer))) => {
                    timing.answered();
                    shared.answered(asked, answer);
                }
                _ => shared.step(None, |gossip, now_ms| failed(gossip, asked, now_ms)),
            }
        });
        Vec::new()
    }

    fn no_answer(&self, state: &mut State, asked: Asked) -> Vec<Action> {
        failed(&mut state.gossip, asked, self.now_ms())
    }

    fn answered(self: &Arc<Self>, asked: Asked, answer: PeerAnswer) {
        let Asked { conn, request, .. } = asked;
        self.step(Some(answer.room), |gossip, now_ms| match answer.answer {
            Answer::PooledTransactions(all) => gossip.answered(conn, request, all, now_ms),
            Answer::Cells {
                transactions,
                cells,
                columns,
            } => {
                let cells = transactions.into_iter().zip(cells).collect();
                gossip.answered_cells(conn, request, cells, columns, now_ms)
            }
            // The session compares the kinds.
            _ => Vec::new(),
        });
    }

    /// What a peer sent unasked. It may come before the list of peers has it.
    fn take(self: &Arc<Self>, event: GossipEvent) {
        if event.peer.is_closing() {
            return;
        }
        self.join(&event.peer);
        let conn = event.peer.info.origin.conn;
        self.step(Some(event.room), |gossip, now_ms| match event.content {
            GossipContent::Transactions(all) => gossip.sent(conn, all, now_ms),
            GossipContent::Announced(all) => gossip.announced(conn, &all, now_ms),
        });
    }

    /// The list of peers changed. Those that are not in it may be new; those that have gone are closing.
    fn update_peers(self: &Arc<Self>, list: &[Arc<Peer>]) {
        let gone: Vec<ConnId> = {
            let state = self.state();
            let gone = state.peers.iter().filter(|(_, peer)| peer.is_closing());
            gone.map(|(conn, _)| *conn).collect()
        };
        for conn in gone {
            self.state().peers.remove(&conn);
            self.step(None, |gossip, now_ms| gossip.leave(conn, now_ms));
        }
        list.iter()
            .filter(|peer| !peer.is_closing())
            .for_each(|peer| self.join(peer));
    }

    /// A peer that is new gets the hashes of what the pool has.
    fn join(self: &Arc<Self>, peer: &Arc<Peer>) {
        let (info, conn) = (&peer.info, peer.info.origin.conn);
        let mut state = self.state();
        if state.peers.insert(conn, Arc::clone(peer)).is_some() {
            return;
        }
        state.gossip.join(conn, info.origin.node, info.version);
        drop(state);
        self.announce_pending(vec![conn]);
    }

    /// Announces what the pool has to these peers, on a thread of its own.
    fn announce_pending(self: &Arc<Self>, peers: Vec<ConnId>) {
        let shared = Arc::clone(self);
        self.runtime.spawn_blocking(move || {
            let pending: Vec<Announceable> = (shared.pending)(MAX_ANNOUNCED);
            shared.step(None, |gossip, now_ms| {
                for conn in peers {
                    gossip.announce_pending(conn, &pending, now_ms);
                }
                Vec::new()
            });
        });
    }

    fn next_batch(&self) -> Option<(ReceivedBatch, usize)> {
        let mut state = self.state();
        let (batch, bytes) = state.queue.pop_front()?;
        state.queue_bytes -= bytes;
        let is_full = state.queue_bytes > QUEUE_BYTES;
        state.gossip.set_pool_full(is_full);
        drop(state);
        self.drained.notify_one();
        Some((batch, bytes))
    }

    fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        state.queue.clear();
        state.queue_bytes = 0;
        state.peers.clear();
        drop(state);
        self.queued.notify_one();
    }
}

fn failed(gossip: &mut Gossip, asked: Asked, now_ms: u64) -> Vec<Action> {
    match asked.is_cells {
        true => gossip.answered_cells(
            asked.conn,
            asked.request,
            Vec::new(),
            CellMask::default(),
            now_ms,
        ),
        false => gossip.answered(asked.conn, asked.request, Vec::new(), now_ms),
    }
}

#[cfg(test)]
mod tests;
