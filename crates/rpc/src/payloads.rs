//! Payload building: blocks for the consensus client, built at once and improved until they are fetched.
//!
//! `engine_forkchoiceUpdated` with payload attributes starts a job; `engine_getPayload` fetches its best block.
//! Each job has a thread of its own, which
//!
//! 1. builds an empty block, so that there is always something to return;
//! 2. fills a block with the best transactions of the pool;
//! 3. fills another one every 500 ms, if the pool has changed, and keeps the block with the higher value.
//!
//! ```text
//! forkchoiceUpdated                                getPayload (waits up to 0.8 s for the first filled block)
//!   |                                                 |
//!   empty | fill ------- | pause | fill ------- | fill|-- closed with what is in it
//! ```
//!
//! Fetching a payload ends its job, and so do 12 s, or a newer job: a consensus client wants one payload at a time.
//! What must hold: a block is built on the parent of the attributes, and every blob transaction in it has its sidecar,
//! since without it the block could not be published.

use crate::builder_settings::{PriceFloor, SharedBuilderSettings};
use crate::{RpcError, lock};
use niwaki_chain::{
    BlockTemplate, BuildError, BuiltBlock, Candidate, Chain, JudgedBlock, NextCandidate,
};
use niwaki_primitives::map::HashSet;
use niwaki_primitives::{B256, Transaction, TxEnvelope};
use niwaki_rules::InvalidTransaction;
use niwaki_txpool::{Pool, Sidecar};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Payloads that can be fetched; the oldest go.
const MAX_PAYLOADS: usize = 8;

/// The least time between the starts of two attempts to improve a payload.
const REBUILD_INTERVAL: Duration = Duration::from_millis(500);

/// How long a payload is improved at most: a slot of mainnet.
const MAX_BUILD_TIME: Duration = Duration::from_secs(12);

/// How long a block may be filled even if it is fetched at once. Less than [`MAX_GET_WAIT`].
const MIN_FILL_TIME: Duration = Duration::from_millis(200);

/// How long `engine_getPayload` waits for the first block with transactions.
const MAX_GET_WAIT: Duration = Duration::from_millis(800);

/// A block is full after this many transactions in a row that do not fit.
const MAX_MISFITS: usize = 256;

/// How often the pool is looked at again for a block that is filled while transactions come,
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// and whether that ends.
const LOOK_FOR_END: Duration = Duration::from_millis(5);

/// A payload, with the blobs of its transactions.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) built: BuiltBlock,
    /// In the order of the transactions.
    pub(crate) sidecars: Vec<Arc<Sidecar>>,
    /// How long it took to build.
    pub(crate) took: Duration,
}

impl Payload {
    /// A payload whose building began at `began`.
    pub(crate) fn new(built: BuiltBlock, sidecars: Vec<Arc<Sidecar>>, began: Instant) -> Self {
        Self {
            built,
            sidecars,
            took: began.elapsed(),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload")
            .field("hash", &self.built.hash)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Progress {
    best: Option<Arc<Payload>>,
    /// Whether a block was filled from the pool, so that `best` is more than the first empty block.
    is_filled: bool,
    error: Option<BuildError>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Job {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Whether the consensus client has fetched the payload: building ends.
    is_requested: AtomicBool,
    /// Whether a newer job has started: this payload is not improved any more once it is filled.
    is_superseded: AtomicBool,
}

impl Job {
    fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
    }

    fn publish(&self, payload: Payload, is_filled: bool) {
        let mut progress = lock(&self.progress);
        let is_better = progress.best.as_ref().is_none_or(|best| {
            let (new, old) = (&payload.built, &best.built);
            let worth = |built: &BuiltBlock| (built.value, built.block.body.transactions.len());
            worth(new) > worth(old)
        });
        if is_better {
            progress.best = Some(Arc::new(payload));
        }
        progress.is_filled |= is_filled;
        self.changed.notify_all();
    }

    fn end(&self, error: Option<BuildError>) {
        let mut progress = lock(&self.progress);
        progress.error = error;
        progress.is_over = true;
        self.changed.notify_all();
    }
}

/// The payloads that are being built, and the last ones that were.
#[derive(Debug)]
pub(crate) struct Payloads {
    builder: Builder,
    jobs: Mutex<VecDeque<([u8; 8], Arc<Job>)>>,
}

/// The operator's limits on the blocks that are built here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildLimits {
    /// How long one block may take to be filled.
    pub(crate) fill_time: Duration,
    pub(crate) blobs_per_transaction: usize,
    pub(crate) blobs_per_block: usize,
}

/// Builds blocks from the transactions of the pool.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    pub(crate) chain: Arc<Chain>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) settings: Arc<SharedBuilderSettings>,
    pub(crate) limits: BuildLimits,
}

impl Payloads {
    pub(crate) fn new(builder: Builder) -> Self {
        let jobs = Mutex::default();
        Self { builder, jobs }
    }

    /// Starts to build a payload, unless there is one with this id already.
    ///
    /// # Errors
    /// -32603 if the system can't start a thread.
    pub(crate) fn start(&self, id: [u8; 8], template: BlockTemplate) -> Result<(), RpcError> {
        let mut jobs = lock(&self.jobs);
        if jobs.iter().any(|(known, _)| *known == id) {
            return Ok(());
        }
        let job = Arc::new(Job::default());
        let (builder, worker) = (self.builder.clone(), Arc::clone(&job));
        thread::Builder::new()
            .name("payload".to_owned())
            .spawn(move || worker.end(builder.improve(&template, &worker).err()))
            .map_err(|error| RpcError::internal(format!("no thread to build with: {error}")))?;
        // A consensus client wants one payload at a time; improving the others would only take processor time
        // from blocks.
        for (_, other) in jobs.iter() {
            other.is_superseded.store(true, Ordering::Relaxed);
            other.changed.notify_all();
        }
        jobs.push_back((id, job));
        while jobs.len() > MAX_PAYLOADS {
            if let Some((_, old)) = jobs.pop_front() {
                old.is_requested.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The best block of a payload so far. Ends its job.
    ///
    /// # Errors
    /// -38001 if there is none with this id; -32000 if it could not be built.
    pub(crate) fn get(&self, id: [u8; 8]) -> Result<Arc<Payload>, RpcError> {
        let job = {
            let jobs = lock(&self.jobs);
            let job = jobs.iter().find(|(known, _)| *known == id);
            let job = job.map(|(_, job)| Arc::clone(job));
            job.ok_or_else(|| RpcError::new(-38001, "Unknown payload"))?
        };
        job.is_requested.store(true, Ordering::Relaxed);
        job.changed.notify_all();
        let progress = lock(&job.progress);
        let waits = |progress: &mut Progress| !progress.is_filled && !progress.is_over;
        let (progress, _) = job
            .changed
            .wait_timeout_while(progress, MAX_GET_WAIT, waits)
            .unwrap_or_else(PoisonError::into_inner);
        match (&progress.best, &progress.error) {
            (Some(best), _) => Ok(Arc::clone(best)),
            (None, Some(error)) => Err(RpcError::server(error.to_string())),
            (None, None) => Err(RpcError::server("the payload is not ready yet")),
        }
    }

    /// Builds one block from the pool on the calling thread.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) fn build_now(&self, template: BlockTemplate) -> Result<Payload, BuildError> {
        self.builder.fill(template, &|| false)
    }

    /// Builds one block that validators are to agree on, on the calling thread, until it is full or `should_end` holds.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) fn build_judged(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
        filling: Filling,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        let chain = &self.builder.chain;
        let build = |template, next: &mut NextCandidate<'_>| chain.build_judged(template, next);
        let (built, _) = (self.builder).fill_with(template, should_end, filling, build)?;
        Ok(built)
    }
}

impl Builder {
    /// The body of a job's thread: builds an empty block, then better ones.
    fn improve(&self, template: &BlockTemplate, job: &Job) -> Result<(), BuildError> {
        let began = Instant::now();
        let empty = self.chain.build(template.clone(), Vec::new())?;
        job.publish(Payload::new(empty, Vec::new(), began), false);
        let mut last_version = None;
        while began.elapsed() < MAX_BUILD_TIME {
            let round = Instant::now();
            let should_end = || {
                let most = match job.is_requested() {
                    true => MIN_FILL_TIME,
                    false => self.limits.fill_time,
                };
                round.elapsed() > most
            };
            // The same transactions would give the same block.
            let version = self.pool_version();
            if last_version.replace(version) != Some(version) {
                job.publish(self.fill(template.clone(), &should_end)?, true);
            }
            // Woken when the payload is fetched or superseded, else when it is time to look at the pool again.
            let pause = REBUILD_INTERVAL.saturating_sub(round.elapsed());
            let is_improved = || !job.is_requested() && !job.is_superseded.load(Ordering::Relaxed);
            let progress = lock(&job.progress);
            drop((job.changed).wait_timeout_while(progress, pause, |_| is_improved()));
            if !is_improved() {
                break;
            }
        }
        Ok(())
    }

    /// A value that changes whenever the pool, or what its transactions must pay, changes: transactions added,
    /// removed, pending, and the price floor.
    fn pool_version(&self) -> (u64, u64, usize, PriceFloor) {
        let stats = self.pool.stats();
        let removed = stats.flows.removed.values().sum();
        (stats.flows.added(), removed, stats.pending, self.floor())
    }

    /// What a transaction without priority must pay.
    fn floor(&self) -> PriceFloor {
        PriceFloor {
            gas_price: self.pool.min_gas_price(),
            priority_fee: self.settings.read().min_priority_fee,
        }
    }

    /// Builds one block from the best transactions of the pool, until it is full or `should_end` holds.
    fn fill(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
    ) -> Result<Payload, BuildError> {
        let began = Instant::now();
        let build = |template, next: &mut NextCandidate<'_>| self.chain.build_best(template, next);
        let (built, mut sidecars) = self.fill_with(template, should_end, Filling::AtOnce, build)?;
        let transactions = built.block.body.transactions.iter();
        let hashes = transactions.map(TxEnvelope::tx_hash);
        let sidecars = hashes.filter_map(|hash| sidecars.remove(hash)).collect();
        Ok(Payload::new(built, sidecars, began))
    }

    /// The same with the chain's own way to build; also gives the blobs of the transactions that were offered.
    fn fill_with<B>(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
        filling: Filling,
        build: impl FnOnce(BlockTemplate, &mut NextCandidate<'_>) -> Result<B, BuildError>,
    ) -> Result<(B, HashMap<B256, Arc<Sidecar>>), BuildError> {
        let header = self.chain.next_header(template.clone())?;
        let rules = niwaki_rules::BlockRules::new(self.chain.spec(), &header);
        let base_fee = header.base_fee_per_gas.unwrap_or(0);
        // The pool has checked its transactions on top of the head only.
        let is_on_head = self.chain.head().id.hash == template.parent;
        let mut best = self.pool.best(base_fee, rules.blob_base_fee);
        let floor = self.floor();
        let mut sidecars: HashMap<B256, Arc<Sidecar>> = HashMap::new();
        let mut last = None;
        let mut misfits = 0;
        let mut blobs = BlobBudget::new(self.limits);
        let mut more = More::new(filling, &self.pool);
        let mut next = |refused: Option<&InvalidTransaction>| {
            blobs.settle(refused.is_none());
            match (refused, last) {
                // The pool does not know the new head yet; the sender's next nonce may be right.
                (Some(InvalidTransaction::NonceTooLow { .. }), _) | (None, _) => misfits = 0,
                (Some(reason), Some(hash)) => {
                    best.skip_sender_of(&hash);
                    misfits += 1;
                    if is_on_head && is_final(reason) {
                        self.pool.remove_invalid(&hash);
                    }
                }
                (Some(_), None) => {}
            }
            if misfits > MAX_MISFITS || should_end() {
                return None;
            }
            let pooled = loop {
                let Some(pooled) = best.next() else {
                    more.wait(should_end)?;
                    best = self.pool.best(base_fee, rules.blob_base_fee);
                    continue;
                };
                if !more.is_new(&pooled.hash) {
                    continue;
                }
                if !self.pool.permits(&pooled.sender, &pooled.tx) {
                    best.skip_sender_of(&pooled.hash);
                    if is_on_head {
                        self.pool.remove_invalid(&pooled.hash);
                    }
                    continue;
                }
                let pays = pooled.priority || floor.is_met_by(&pooled.tx, base_fee);
                if !pays || !blobs.offer(&pooled.tx) {
                    best.skip_sender_of(&pooled.hash);
                    continue;
                }
                if !matches!(pooled.tx, TxEnvelope::Eip4844(_)) {
                    break pooled;
                }
                // A block with a blob transaction can't be published without its blobs.
                let sidecar = self.pool.sidecar(&pooled.hash);
                if let Some(sidecar) = sidecar.filter(|sidecar| sidecar.is_whole()) {
                    sidecars.insert(pooled.hash, sidecar);
                    break pooled;
                }
                best.skip_sender_of(&pooled.hash);
            };
            last = Some(pooled.hash);
            Some(Candidate {
                tx: pooled.tx.clone(),
                sender: pooled.sender,
            })
        };
        let built = build(template, &mut next)?;
        Ok((built, sidecars))
    }
}

/// Where the transactions of a block come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// From what the pool has.
    AtOnce,
    /// Also from what it gets while the block is filled.
    AsTheyCome,
}

/// What the pool gets while a block is filled.
struct More<'p> {
    pool: &'p Pool,
    /// The pool's count when it was looked at last; `None` if what it gets is not waited for.
    seen: Option<u64>,
    /// Those that were offered already.
    offered: HashSet<B256>,
}

impl<'p> More<'p> {
    fn new(filling: Filling, pool: &'p Pool) -> Self {
        let waits = filling == Filling::AsTheyCome;
        Self {
            pool,
            seen: waits.then(|| pool.added()),
            offered: HashSet::default(),
        }
    }

    /// Waits until the pool has got more. `None` if that ends before.
    fn wait(&mut self, should_end: &dyn Fn() -> bool) -> Option<()> {
        let seen = self.seen.as_mut()?;
        let began = Instant::now();
        // All that is in the pool is looked at again, so not for each transaction.
        while began.elapsed() < LOOK_AGAIN || self.pool.added() == *seen {
            if should_end() {
                return None;
            }
            std::thread::sleep(LOOK_FOR_END);
        }
        *seen = self.pool.added();
        Some(())
    }

    fn is_new(&mut self, hash: &B256) -> bool {
        self.seen.is_none() || self.offered.insert(*hash)
    }
}

/// The blobs of a block that is being filled, and the operator's limits on them.
struct BlobBudget {
    limits: BuildLimits,
    included: usize,
    offered: usize,
}

impl BlobBudget {
    fn new(limits: BuildLimits) -> Self {
        Self {
            limits,
            included: 0,
            offered: 0,
        }
    }

    /// Records whether the transaction that was offered last was included.
    fn settle(&mut self, is_included: bool) {
        let offered = std::mem::take(&mut self.offered);
        if is_included {
            self.included = self.included.saturating_add(offered);
        }
    }

    /// Whether the limits allow `tx`; if so, it is the one offered last.
    fn offer(&mut self, tx: &TxEnvelope) -> bool {
        let blobs = tx.blob_versioned_hashes().map_or(0, <[B256]>::len);
        let fits = blobs <= self.limits.blobs_per_transaction
            && self.included.saturating_add(blobs) <= self.limits.blobs_per_block;
        let may = blobs == 0 || fits;
        self.offered = if may { blobs } else { 0 };
        may
    }
}

/// Whether a transaction was refused for a reason that no later block removes, rather than for the gas that was left or
/// for the transactions before it.
fn is_final(reason: &InvalidTransaction) -> bool {
    matches!(
        reason,
        InvalidTransaction::SenderNotEoa { .. }
            | InvalidTransaction::TypeNotSupported { .. }
            | InvalidTransaction::IntrinsicGasTooLow { .. }
            | InvalidTransaction::GasBelowFloor { .. }
            | InvalidTransaction::NonceIsMax
            | InvalidTransaction::InitCodeTooLarge { .. }
            | InvalidTransaction::GasLimitAboveCap { .. }
            | InvalidTransaction::ChainId { .. }
            | InvalidTransaction::SignatureRange { .. }
            | InvalidTransaction::SignatureRecovery
            | InvalidTransaction::PriorityAboveMaxFee { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{Signature, Signed, TxEip4844, TxLegacy, U256};

    fn with_blobs(blobs: usize) -> TxEnvelope {
        let tx = TxEip4844 {
            blob_versioned_hashes: vec![B256::ZERO; blobs],
            ..TxEip4844::default()
        };
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        Signed::new_unhashed(tx, signature).into()
    }

    #[test]
    fn limits_of_4_blobs_per_transaction_and_6_per_block_are_kept() {
        let mut blobs = BlobBudget::new(BuildLimits {
            fill_time: Duration::from_secs(1),
            blobs_per_transaction: 4,
            blobs_per_block: 6,
        });
        assert!(!blobs.offer(&with_blobs(5)));
        assert!(blobs.offer(&with_blobs(4)));
        // One that was not included leaves its blobs to others.
        blobs.settle(false);
        assert!(blobs.offer(&with_blobs(4)));
        blobs.settle(true);
        assert!(!blobs.offer(&with_blobs(3)));
        assert!(blobs.offer(&with_blobs(2)));
        blobs.settle(true);
        assert!(!blobs.offer(&with_blobs(1)));
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        let plain = Signed::new_unhashed(TxLegacy::default(), signature);
        assert!(blobs.offer(&plain.into()));
    }
}
