//! Blocks that are being made for the consensus client: built at once, improved until asked for.
//!
//! Each has a thread of its own: first an empty block, so that there is always something to give;
//! then one of the best that the pool has; then again and again, for as long as the pool may have
//! something better. Asking for a payload ends that: a block that is being filled is closed with
//! what is in it.

use crate::RpcError;
use crate::choices::{Chosen, Floor};
use niwaki_chain::{BlockTemplate, BuildError, BuiltBlock, Candidate, Chain};
use niwaki_primitives::{B256, Transaction, TxEnvelope};
use niwaki_rules::InvalidTransaction;
use niwaki_txpool::{Pool, Sidecar};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many payloads are kept.
const KEPT: usize = 8;

/// The least time between two improvements of a payload.
const REPEAT: Duration = Duration::from_millis(500);

/// How long a payload is improved at most: a slot of mainnet.
const IMPROVED_FOR: Duration = Duration::from_secs(12);

/// How long it may be filled in any case, even if it is asked for at once: less than is waited.
const FILLED_AT_LEAST: Duration = Duration::from_millis(200);

/// How long whoever asks is kept waiting for a first block with transactions.
const WAIT: Duration = Duration::from_millis(800);

/// After so many transactions in a row that do not fit, a block is full.
const MISFITS: usize = 256;

/// A payload, with the blobs of its transactions.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) built: BuiltBlock,
    /// In the order of the transactions.
    pub(crate) sidecars: Vec<Arc<Sidecar>>,
    /// How long it took to build.
    pub(crate) took: Duration,
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
    /// Whether the pool has been asked, so that `best` is not the empty block of the beginning.
    is_filled: bool,
    error: Option<BuildError>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Job {
    progress: Mutex<Progress>,
    moved: Condvar,
    /// Whether somebody has asked, so that building is to end.
    is_asked: AtomicBool,
    /// Whether another payload is wanted by now: this one stays as it is once it has been filled.
    is_superseded: AtomicBool,
}

impl Job {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    fn publish(&self, payload: Payload, is_filled: bool) {
        let mut progress = self.progress();
        let is_better = progress.best.as_ref().is_none_or(|best| {
            let (new, old) = (&payload.built, &best.built);
            let worth = |built: &BuiltBlock| (built.value, built.block.body.transactions.len());
            worth(new) > worth(old)
        });
        if is_better {
            progress.best = Some(Arc::new(payload));
        }
        progress.is_filled |= is_filled;
        self.moved.notify_all();
    }

    fn end(&self, error: Option<BuildError>) {
        let mut progress = self.progress();
        progress.error = error;
        progress.is_over = true;
        self.moved.notify_all();
    }
}

/// The payloads that are being made, and those that were made last.
#[derive(Debug)]
pub(crate) struct Payloads {
    builder: Builder,
    jobs: Mutex<VecDeque<([u8; 8], Arc<Job>)>>,
}

/// What an operator bounds of the building of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuildLimits {
    /// How long one block may take to be filled.
    pub(crate) fill_time: Duration,
    pub(crate) blobs_per_transaction: usize,
    pub(crate) blobs_per_block: usize,
}

#[derive(Clone, Debug)]
struct Builder {
    chain: Arc<Chain>,
    pool: Arc<Pool>,
    chosen: Arc<Chosen>,
    limits: BuildLimits,
}

impl Payloads {
    pub(crate) fn new(
        chain: Arc<Chain>,
        pool: Arc<Pool>,
        chosen: Arc<Chosen>,
        limits: BuildLimits,
    ) -> Self {
        Self {
            builder: Builder {
                chain,
                pool,
                chosen,
                limits,
            },
            jobs: Mutex::default(),
        }
    }

    /// Begins to make a payload, unless that with this identity is made already.
    ///
    /// # Errors
    /// -32603 if the system gives no thread.
    pub(crate) fn begin(&self, id: [u8; 8], template: BlockTemplate) -> Result<(), RpcError> {
        let mut jobs = self.jobs();
        if jobs.iter().any(|(known, _)| *known == id) {
            return Ok(());
        }
        let job = Arc::new(Job::default());
        let (builder, worker) = (self.builder.clone(), Arc::clone(&job));
        thread::Builder::new()
            .name("payload".to_owned())
            .spawn(move || worker.end(builder.improve(&template, &worker).err()))
            .map_err(|error| RpcError::internal(format!("no thread to build with: {error}")))?;
        // A consensus client wants one payload at a time; improving the others would only take the
        // processor from blocks.
        for (_, other) in jobs.iter() {
            other.is_superseded.store(true, Ordering::Relaxed);
            other.moved.notify_all();
        }
        jobs.push_back((id, job));
        while jobs.len() > KEPT {
            if let Some((_, old)) = jobs.pop_front() {
                old.is_asked.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The best of the payload so far; ends its building.
    ///
    /// # Errors
    /// -38001 if there is none with this identity; -32000 if it could not be built.
    pub(crate) fn get(&self, id: [u8; 8]) -> Result<Arc<Payload>, RpcError> {
        let job = {
            let jobs = self.jobs();
            let job = jobs.iter().find(|(known, _)| *known == id);
            let job = job.map(|(_, job)| Arc::clone(job));
            job.ok_or_else(|| RpcError::new(-38001, "Unknown payload"))?
        };
        job.is_asked.store(true, Ordering::Relaxed);
        job.moved.notify_all();
        let progress = job.progress();
        let waits = |progress: &mut Progress| !progress.is_filled && !progress.is_over;
        let (progress, _) = job
            .moved
            .wait_timeout_while(progress, WAIT, waits)
            .unwrap_or_else(PoisonError::into_inner);
        match (&progress.best, &progress.error) {
            (Some(best), _) => Ok(Arc::clone(best)),
            (None, Some(error)) => Err(RpcError::server(error.to_string())),
            (None, None) => Err(RpcError::server("the payload is not ready yet")),
        }
    }

    /// Makes one block of what the pool has, here and now.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(crate) fn build_now(&self, template: BlockTemplate) -> Result<Payload, BuildError> {
        self.builder.fill(template, &|| false)
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<([u8; 8], Arc<Job>)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Builder {
    fn improve(&self, template: &BlockTemplate, job: &Job) -> Result<(), BuildError> {
        let began = Instant::now();
        let empty = self.chain.build(template.clone(), Vec::new())?;
        let sidecars = Vec::new();
        job.publish(
            Payload {
                built: empty,
                sidecars,
                took: began.elapsed(),
            },
            false,
        );
        let mut seen = None;
        while began.elapsed() < IMPROVED_FOR {
            let round = Instant::now();
            let ends = || {
                let most = match job.is_asked() {
                    true => FILLED_AT_LEAST,
                    false => self.limits.fill_time,
                };
                round.elapsed() > most
            };
            // Of the same transactions the same block would come.
            let moved = self.moved();
            if seen.replace(moved) != Some(moved) {
                job.publish(self.fill(template.clone(), &ends)?, true);
            }
            // Asked for, or time for another look at the pool.
            let rest = REPEAT.saturating_sub(round.elapsed());
            let is_wanted = || !job.is_asked() && !job.is_superseded.load(Ordering::Relaxed);
            let progress = job.progress();
            let waited = job
                .moved
                .wait_timeout_while(progress, rest, |_| is_wanted());
            drop(waited);
            if !is_wanted() {
                break;
            }
        }
        Ok(())
    }

    /// How many transactions have come into the pool and left it so far, how many blocks could take
    /// now, and what they must pay: the same while nothing happens to it.
    fn moved(&self) -> (u64, u64, usize, Floor) {
        let figures = self.pool.figures();
        let added = figures.added_local.saturating_add(figures.added_remote);
        let removed = figures.removed.values().sum();
        (added, removed, figures.pending, self.floor())
    }

    /// What the operator asks of transactions without priority.
    fn floor(&self) -> Floor {
        Floor {
            gas_price: self.pool.min_gas_price(),
            priority_fee: self.chosen.read().min_priority_fee,
        }
    }

    /// One block of the best that the pool has, until it is full or `ends`.
    fn fill(
        &self,
        template: BlockTemplate,
        ends: &dyn Fn() -> bool,
    ) -> Result<Payload, BuildError> {
        let began = Instant::now();
        let header = self.chain.next_header(template.clone())?;
        let rules = niwaki_rules::BlockRules::new(self.chain.spec(), &header);
        let base_fee = header.base_fee_per_gas.unwrap_or(0);
        // What the pool says of its transactions holds upon the head only.
        let is_upon_head = self.chain.head().id.hash == template.parent;
        let mut best = self.pool.best(base_fee, rules.blob_base_fee);
        let floor = self.floor();
        let mut sidecars: HashMap<B256, Arc<Sidecar>> = HashMap::new();
        let mut last = None;
        let mut misfits = 0;
        let mut blobs = Blobs::new(self.limits);
        let mut next = |refused: Option<&InvalidTransaction>| {
            blobs.was_taken(refused.is_none());
            match (refused, last) {
                // The pool has not heard of the head yet; the next nonce may be right.
                (Some(InvalidTransaction::NonceTooLow { .. }), _) | (None, _) => misfits = 0,
                (Some(reason), Some(hash)) => {
                    best.skip_sender_of(&hash);
                    misfits += 1;
                    if is_upon_head && is_final(reason) {
                        self.pool.remove_invalid(&hash);
                    }
                }
                (Some(_), None) => {}
            }
            if misfits > MISFITS || ends() {
                return None;
            }
            let pooled = loop {
                let pooled = best.next()?;
                let pays = pooled.priority || floor.takes(&pooled.tx, base_fee);
                if !pays || !blobs.offer(&pooled.tx) {
                    best.skip_sender_of(&pooled.hash);
                    continue;
                }
                if !matches!(pooled.tx, TxEnvelope::Eip4844(_)) {
                    break pooled;
                }
                // Without its blobs a transaction can't be published.
                if let Some(sidecar) = self.pool.sidecar(&pooled.hash) {
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
        let built = self.chain.build_best(template, &mut next)?;
        let hashes = built
            .block
            .body
            .transactions
            .iter()
            .map(TxEnvelope::tx_hash);
        let sidecars = hashes.filter_map(|hash| sidecars.remove(hash)).collect();
        Ok(Payload {
            built,
            sidecars,
            took: began.elapsed(),
        })
    }
}

/// The blobs of a block that is being filled, within what the operator allows.
struct Blobs {
    limits: BuildLimits,
    taken: usize,
    offered: usize,
}

impl Blobs {
    fn new(limits: BuildLimits) -> Self {
        Self {
            limits,
            taken: 0,
            offered: 0,
        }
    }

    /// Whether the transaction that was offered last is in the block.
    fn was_taken(&mut self, is_taken: bool) {
        let offered = std::mem::take(&mut self.offered);
        if is_taken {
            self.taken = self.taken.saturating_add(offered);
        }
    }

    /// Whether `tx` may be offered to the block.
    fn offer(&mut self, tx: &TxEnvelope) -> bool {
        let blobs = tx.blob_versioned_hashes().map_or(0, <[B256]>::len);
        let fits = blobs <= self.limits.blobs_per_transaction
            && self.taken.saturating_add(blobs) <= self.limits.blobs_per_block;
        let may = blobs == 0 || fits;
        self.offered = if may { blobs } else { 0 };
        may
    }
}

/// Whether a transaction was refused for what it is, not for the room that was left or for what came
/// before it in the block.
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
    fn a_block_takes_no_more_blobs_than_its_operator_allows() {
        let mut blobs = Blobs::new(BuildLimits {
            fill_time: Duration::from_secs(1),
            blobs_per_transaction: 4,
            blobs_per_block: 6,
        });
        assert!(!blobs.offer(&with_blobs(5)));
        assert!(blobs.offer(&with_blobs(4)));
        // One that did not get in leaves the room to others.
        blobs.was_taken(false);
        assert!(blobs.offer(&with_blobs(4)));
        blobs.was_taken(true);
        assert!(!blobs.offer(&with_blobs(3)));
        assert!(blobs.offer(&with_blobs(2)));
        blobs.was_taken(true);
        assert!(!blobs.offer(&with_blobs(1)));
        let signature = Signature::new(U256::from(1), U256::from(1), false);
        let plain = Signed::new_unhashed(TxLegacy::default(), signature);
        assert!(blobs.offer(&plain.into()));
    }
}
