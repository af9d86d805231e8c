//! The pool among peers: what they send goes into it, what is new in it goes out to them, and they are served from it.
//!
//! ```text
//! network --ReceivedBatch--> thread peers-to-pool: Pool::add --> verdicts --> gossip
//! Pool --events--> queue --> thread pool-to-peers: broadcast, mined, whether this node syncs --> gossip
//! ```

use eyre::{Result, WrapErr};
use niwaki_network::gossip::{
    Announceable, GossipHandle, NewTransaction, PoolView, ReceivedBatch, ReceivedTransaction,
    Spread, Verdict,
};
use niwaki_network::wire::{CellMask, EthVersion};
use niwaki_primitives::{B256, Bytes, Encodable2718, Typed2718};
use niwaki_rpc::{Backend, SyncStatus, yield_to_blocks};
use niwaki_txpool::{
    DropReason, Incoming, Origin, Pool, PoolError, PoolEvent, PooledTransaction, Sidecar,
    check_proofs, encode_network, encode_without_blobs,
};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Events that wait for the thread that tells peers; beyond, the oldest are dropped: new peers get to know what the pool has.
const MAX_WAITING: usize = 65_536;
/// What this node's own callers sent, and no block has after this time, is announced once more: all others may have had no room for it.
const REMIND_AFTER: Duration = Duration::from_secs(10);
/// Of these so many in [`REMIND_EVERY`] while the pool is nearly full, as others will be: each that they ask for in vain costs them time.
const REMIND_WHEN_FULL: usize = 64;
/// How often they are announced.
const REMIND_EVERY: Duration = Duration::from_secs(1);
/// Such transactions that are remembered; beyond, the oldest are not.
const MAX_REMINDERS: usize = 65_536;
/// Transactions that enter the pool at a time, but for the last batch of them.
const MOST_AT_ONCE: usize = 128;
/// Transactions that are sent at a time.
const BATCH: usize = 512;
/// How long the thread waits for an event before it looks whether this node syncs.
const IDLE: Duration = Duration::from_millis(500);
/// The same while it syncs: until then what peers send is ignored, and they send a transaction once.
const IDLE_SYNCING: Duration = Duration::from_millis(20);
/// A node that was current this time ago is not syncing yet.
const SHORT_GAP: Duration = Duration::from_secs(10);
/// What comes so soon after other news waits for more: a message of many transactions costs each a part of its own.
const GATHER: Duration = Duration::from_millis(20);
/// Larger transactions are announced, not sent.
const MAX_SENT_BYTES: usize = 4096;
const BLOB_TYPE: u8 = 3;
/// A blob in RLP: its bytes with their head.
const BLOB_RLP_BYTES: usize = (128 << 10) + 4;
/// What the heads of lists with blobs are longer than those without.
const BLOB_HEADS_BYTES: usize = 4;

/// What gossip asks of the pool.
pub(super) fn view(pool: &Arc<Pool>) -> PoolView {
    let (first, second) = (Arc::clone(pool), Arc::clone(pool));
    PoolView {
        whole_percent: pool.config().whole_blobs_percent,
        is_here: Arc::new(move |hash| first.contains(hash)),
        pending: Arc::new(move |most| {
            let content = second.content();
            let pending = content.values().flat_map(|sender| &sender.pending);
            let pending = pending.take(most);
            pending.map(|tx| announceable(&second, tx).0).collect()
        }),
    }
}

/// A transaction in the form in which peers of this version get it.
pub(super) fn transaction(pool: &Pool, hash: &B256, version: EthVersion) -> Option<Bytes> {
    let tx = pool.get(hash)?;
    if tx.tx.ty() != BLOB_TYPE {
        return Some(tx.tx.encoded_2718().into());
    }
    let sidecar = pool.sidecar(hash)?;
    let encoded = match version >= EthVersion::Eth72 {
        true => encode_without_blobs(&tx.tx, &sidecar)?,
        false if !sidecar.is_whole() => return None,
        false => encode_network(&tx.tx, Some(&sidecar)),
    };
    Some(encoded.into())
}

/// The cells of a blob transaction in these columns, column by column, of every blob.
pub(super) fn cells(pool: &Pool, hash: &B256, columns: CellMask) -> Option<Vec<Bytes>> {
    pool.cells(hash, columns.bits()).ok()?
}

/// How a transaction is announced, and its encoding if that is what peers may get in full.
fn announceable(pool: &Pool, tx: &PooledTransaction) -> (Announceable, Option<Bytes>) {
    let tx_type = tx.tx.ty();
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut announceable = Announceable {
        hash: tx.hash,
        tx_type,
        size_with_blobs: size(tx.tx.encode_2718_len()),
        size_without_blobs: size(tx.tx.encode_2718_len()),
        columns: CellMask::ALL,
    };
    if tx_type != BLOB_TYPE {
        let is_sent = tx.tx.encode_2718_len() <= MAX_SENT_BYTES;
        return (announceable, is_sent.then(|| tx.tx.encoded_2718().into()));
    }
    if let Some(sidecar) = pool.sidecar(&tx.hash)
        && let Some(without) = encode_without_blobs(&tx.tx, &sidecar)
    {
        let blobs = sidecar.blobs().len().saturating_mul(BLOB_RLP_BYTES);
        announceable.size_without_blobs = size(without.len());
        announceable.size_with_blobs = size(without.len() + blobs + BLOB_HEADS_BYTES);
        if !sidecar.is_whole() {
            // Not the one more that was asked for: each transaction may have another.
            let columns = sidecar.columns() & pool.custody_columns();
            announceable.columns = CellMask::from_bits(columns);
        }
    }
    (announceable, None)
}

/// What became of a transaction of a peer. Only what can be told without the state cuts the peer.
fn verdict(added: Result<(), PoolError>, is_mesh: bool) -> Verdict {
    match added {
        // It will have room when there are fewer: who sent it announces it again, and then it must be asked for.
        Err(PoolError::Underpriced) if is_mesh => Verdict::Refused,
        Ok(()) => Verdict::Accepted,
        Err(PoolError::AlreadyKnown) => Verdict::Known,
        Err(
            PoolError::GasPriceTooLow { .. }
            | PoolError::BlobFeeTooLow { .. }
            | PoolError::ReplacementUnderpriced
            | PoolError::Underpriced,
        ) => Verdict::Underpriced,
        Err(
            PoolError::Malformed { .. }
            | PoolError::MissingSidecar
            | PoolError::SidecarCounts { .. }
            | PoolError::BlobHash { .. }
            | PoolError::Kzg(_),
        ) => Verdict::Invalid,
        Err(_) => Verdict::Refused,
    }
}

/// The pool verifies the proofs of what it would take, last of all. A peer that sends wrong ones is cut whatever else is wrong.
fn has_valid_proofs(sidecar: &Sidecar) -> bool {
    check_proofs(sidecar).is_ok()
}

/// Adds what peers send, until the network stops. What waits is added together.
fn take(
    pool: &Pool,
    is_mesh: bool,
    gossip: &GossipHandle,
    mut batches: mpsc::Receiver<ReceivedBatch>,
) {
    while let Some(first) = batches.blocking_recv() {
        let mut waiting = vec![first];
        let mut count = waiting[0].transactions.len();
        while count < MOST_AT_ONCE
            && let Ok(batch) = batches.try_recv()
        {
            count += batch.transactions.len();
            waiting.push(batch);
        }
        let all: Vec<&ReceivedTransaction> = waiting
            .iter()
            .flat_map(|batch| &batch.transactions)
            .collect();
        let mut verdicts = add_all(pool, is_mesh, &all).into_iter();
        for batch in &waiting {
            let hashes = batch.transactions.iter().map(|received| received.hash);
            let verdicts: Vec<(B256, Verdict)> = hashes.zip(&mut verdicts).collect();
            gossip.report(batch.peer, &verdicts);
        }
    }
}

/// Adds transactions of peers in order. Returns what became of each.
fn add_all(pool: &Pool, is_mesh: bool, all: &[&ReceivedTransaction]) -> Vec<Verdict> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let (mut decoded, mut outcomes) = (Vec::new(), Vec::new());
    for received in all {
        let incoming = match &received.cells {
            Some(own) => Incoming::decode_sampled(&received.bytes, own.columns.bits(), &own.cells),
            None => Incoming::decode(&received.bytes),
        };
        let incoming = incoming.map(|incoming| {
            let sidecar = incoming.sidecar.clone();
            decoded.push(incoming);
            sidecar
        });
        outcomes.push(incoming);
    }
    let mut added = pool.add_many(decoded, Origin::Remote, now).into_iter();
    let outcomes = outcomes.into_iter().map(|outcome| {
        let (sidecar, added) = match outcome {
            Ok(sidecar) => (sidecar, added.next().expect("a result for each")),
            Err(reason) => (None, Err(reason)),
        };
        let verdict = verdict(added.map(drop), is_mesh);
        let is_refused = matches!(verdict, Verdict::Underpriced | Verdict::Refused);
        match sidecar.filter(|_| is_refused) {
            Some(sidecar) if !has_valid_proofs(&sidecar) => Verdict::Invalid,
            _ => verdict,
        }
    });
    outcomes.collect()
}

/// What peers are to be told.
enum News {
    New(Arc<PooledTransaction>),
    Mined(B256),
}

impl News {
    /// The transaction, if it is new and came from this node's own callers.
    fn own(&self) -> Option<B256> {
        match self {
            Self::New(tx) if tx.origin == Origin::Local => Some(tx.hash),
            _ => None,
        }
    }
}

/// Events of the pool on their way to the thread that tells peers.
#[derive(Default)]
struct Waiting {
    news: Mutex<(VecDeque<News>, bool)>,
    came: Condvar,
}

impl Waiting {
    fn push(&self, event: &PoolEvent) {
        let news = match event {
            PoolEvent::Added { tx, pending: true } | PoolEvent::Promoted { tx } => {
                News::New(Arc::clone(tx))
            }
            PoolEvent::Dropped {
                tx,
                reason: DropReason::Included,
                ..
            } => News::Mined(tx.hash),
            _ => return,
        };
        let mut waiting = self.news.lock().expect("no panic while it is held");
        if waiting.0.len() >= MAX_WAITING {
            waiting.0.pop_front();
        }
        waiting.0.push_back(news);
        self.came.notify_one();
    }

    /// What has come within this time, at most a batch; `None` once it is over.
    fn take(&self, timeout: Duration) -> Option<Vec<News>> {
        let waiting = self.news.lock().expect("no panic while it is held");
        let waiting = self.came.wait_timeout_while(waiting, timeout, |waiting| {
            waiting.0.is_empty() && !waiting.1
        });
        let mut waiting = waiting.expect("no panic while it is held").0;
        let count = waiting.0.len().min(BATCH);
        match waiting.1 {
            true => None,
            false => Some(waiting.0.drain(..count).collect()),
        }
    }

    fn stop(&self) {
        self.news.lock().expect("no panic while it is held").1 = true;
        self.came.notify_one();
    }
}

/// Own transactions that peers were told of.
#[derive(Default)]
struct Reminders {
    /// By when each is announced once more.
    hashes: VecDeque<(Instant, B256)>,
    /// When some were announced.
    last: Option<Instant>,
}

impl Reminders {
    fn add(&mut self, hash: B256, now: Instant) {
        if self.hashes.len() >= MAX_REMINDERS {
            self.hashes.pop_front();
        }
        self.hashes.push_back((now + REMIND_AFTER, hash));
    }

    /// Those that are due and still here, at most a batch, or few while the pool is nearly full; each comes again after the same time.
    fn due<T>(&mut self, is_roomy: bool, now: Instant, get: impl Fn(&B256) -> Option<T>) -> Vec<T> {
        let mut due = Vec::new();
        let most = match is_roomy {
            true => BATCH,
            false if self.last.is_some_and(|last| now - last < REMIND_EVERY) => return due,
            false => REMIND_WHEN_FULL,
        };
        while due.len() < most
            && let Some((_, hash)) = self.hashes.pop_front_if(|(at, _)| *at <= now)
        {
            if let Some(tx) = get(&hash) {
                due.push(tx);
                self.add(hash, now);
            }
        }
        if !due.is_empty() {
            self.last = Some(now);
        }
        due
    }
}

/// The threads between pool and network.
pub(super) struct PoolGossip {
    waiting: Arc<Waiting>,
    threads: Vec<JoinHandle<()>>,
}

impl PoolGossip {
    pub(super) fn start(
        pool: &Arc<Pool>,
        backend: &Arc<Backend>,
        gossip: &GossipHandle,
        batches: mpsc::Receiver<ReceivedBatch>,
    ) -> Result<Self> {
        let is_mesh = !backend.chain().spec().bft_rules.is_empty();
        let mut last_current = LastCurrent::default();
        let mut is_syncing = last_current.is_syncing(&backend.sync_status(), Instant::now());
        gossip.set_syncing(is_syncing);
        let waiting = Arc::new(Waiting::default());
        let queue = Arc::clone(&waiting);
        pool.listen(move |event| queue.push(event));
        let (own_pool, own_gossip) = (Arc::clone(pool), gossip.clone());
        let taking = Builder::new()
            .name("peers-to-pool".to_owned())
            .spawn(move || {
                yield_to_blocks();
                take(&own_pool, is_mesh, &own_gossip, batches);
            });
        let (pool, backend, gossip) = (Arc::clone(pool), Arc::clone(backend), gossip.clone());
        let queue = Arc::clone(&waiting);
        let telling = Builder::new()
            .name("pool-to-peers".to_owned())
            .spawn(move || {
                yield_to_blocks();
                let mut told: Option<Instant> = None;
                let mut reminders = Reminders::default();
                while let Some(mut news) = queue.take(if is_syncing { IDLE_SYNCING } else { IDLE })
                {
                    let since = told.map_or(GATHER, |told| told.elapsed());
                    if !news.is_empty() && since < GATHER {
                        sleep(GATHER.saturating_sub(since));
                        news.extend(queue.take(Duration::ZERO).into_iter().flatten());
                    }
                    let now = Instant::now();
                    told = Some(now);
                    let status = backend.sync_status();
                    is_syncing = last_current.is_syncing(&status, Instant::now());
                    gossip.set_syncing(is_syncing);
                    gossip.set_custody(CellMask::from_bits(pool.custody_columns()));
                    for own in news.iter().filter(|_| is_mesh).filter_map(News::own) {
                        reminders.add(own, now);
                    }
                    tell(&pool, is_mesh, &gossip, news);
                    // Where all get all, other pools have room when this one has. On public networks it would say whose transactions these are.
                    if is_mesh {
                        let due = reminders.due(pool.is_roomy(), now, |hash| pool.get(hash));
                        let due = due.iter().map(|tx| announceable(&pool, tx).0);
                        let due: Vec<Announceable> = due.collect();
                        if !due.is_empty() {
                            gossip.remind(&due);
                        }
                    }
                }
            });
        let threads = taking.and_then(|taking| Ok(vec![taking, telling?]));
        let threads = threads.wrap_err("can't start the threads between the pool and peers")?;
        Ok(Self { waiting, threads })
    }

    /// Stops; the network has stopped before.
    pub(super) fn stop(self) {
        self.waiting.stop();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// When this node was last known to be at its consensus client's head.
#[derive(Default)]
struct LastCurrent(Option<Instant>);

impl LastCurrent {
    /// Whether transactions of peers are of no use: the state is unknown or old. A block that is missing for a moment does not count:
    /// peers send a transaction once, and what is ignored then is lost.
    fn is_syncing(&mut self, status: &SyncStatus, now: Instant) -> bool {
        match status {
            SyncStatus::Current => self.0 = Some(now),
            SyncStatus::Unknown => self.0 = None,
            SyncStatus::Behind(_) => {}
        }
        self.0.is_none_or(|last| now - last >= SHORT_GAP)
    }
}

/// In the mesh of a network of validators each node gets a transaction from the one that got it first.
fn spread(tx: &PooledTransaction, is_mesh: bool) -> Spread {
    match (is_mesh, tx.origin) {
        (false, _) => Spread::SquareRoot,
        (true, Origin::Local) => Spread::All,
        (true, _) => Spread::Hash,
    }
}

fn tell(pool: &Pool, is_mesh: bool, gossip: &GossipHandle, all: Vec<News>) {
    let (mut new, mut mined) = (Vec::new(), Vec::new());
    for news in all {
        match news {
            News::New(tx) => {
                let (announceable, encoded) = announceable(pool, &tx);
                new.push(NewTransaction {
                    announceable,
                    sender: tx.sender,
                    encoded,
                    spread: spread(&tx, is_mesh),
                });
            }
            News::Mined(hash) => mined.push(hash),
        }
    }
    if !new.is_empty() {
        gossip.broadcast(&new);
    }
    gossip.mined(&mined);
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::MissingHead;
    use niwaki_primitives::U256;

    #[test]
    fn an_own_transaction_is_announced_again_every_ten_seconds_while_it_waits() {
        let (start, hash) = (Instant::now(), B256::repeat_byte(1));
        let mut reminders = Reminders::default();
        reminders.add(hash, start);
        reminders.add(B256::ZERO, start);
        let mut due = |second| {
            let now = start + Duration::from_secs(second);
            reminders.due(true, now, |hash| (!hash.is_zero()).then_some(*hash))
        };
        assert_eq!(due(9), [] as [B256; 0]);
        assert_eq!(due(10), [hash]);
        assert_eq!(due(19), [] as [B256; 0]);
        assert_eq!(due(20), [hash]);
        let mut many = Reminders::default();
        let hashes = (0..70_000_u64).map(|number| B256::from(U256::from(number)));
        hashes.for_each(|hash| many.add(hash, start));
        assert_eq!(many.hashes.len(), MAX_REMINDERS);
        let due = start + REMIND_AFTER;
        for _ in 0..MAX_REMINDERS / BATCH {
            assert_eq!(many.due(true, due, |hash| Some(*hash)).len(), BATCH);
        }
        assert_eq!(many.due(true, due, |hash| Some(*hash)), [] as [B256; 0]);
    }

    #[test]
    fn in_a_mesh_what_a_full_pool_refused_may_be_asked_for_again() {
        let full = || Err(PoolError::Underpriced);
        assert_eq!(verdict(full(), true), Verdict::Refused);
        assert_eq!(verdict(full(), false), Verdict::Underpriced);
        let replacement = Err(PoolError::ReplacementUnderpriced);
        assert_eq!(verdict(replacement, true), Verdict::Underpriced);
    }

    #[test]
    fn while_the_pool_is_nearly_full_few_are_announced_each_second() {
        let start = Instant::now();
        let mut reminders = Reminders::default();
        for number in 0..200_u64 {
            reminders.add(B256::from(U256::from(number)), start);
        }
        let mut due = |ms| {
            let now = start + Duration::from_millis(ms);
            reminders.due(false, now, |hash| Some(*hash)).len()
        };
        let counts = [10_000, 10_999, 11_000, 12_000, 13_000].map(&mut due);
        assert_eq!(counts, [64, 0, 64, 64, 8]);
    }

    #[test]
    fn gossip_goes_on_in_a_gap_of_less_than_ten_seconds() {
        let behind = SyncStatus::Behind(MissingHead {
            hash: B256::ZERO,
            number: None,
        });
        let start = Instant::now();
        let mut last = LastCurrent::default();
        let mut at = |status: &SyncStatus, second| {
            last.is_syncing(status, start + Duration::from_secs(second))
        };
        // A node that has just started knows nothing.
        assert!(at(&SyncStatus::Unknown, 0));
        assert!(at(&behind, 1));
        assert!(!at(&SyncStatus::Current, 2));
        assert!(!at(&behind, 11));
        assert!(at(&behind, 12));
        assert!(!at(&SyncStatus::Current, 13));
    }
}
