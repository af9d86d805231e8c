//! The loop of the commit thread.

use super::scheduler::{Scheduler, SpeculativeResult};
use super::threshold::ParallelThreshold;
use super::timeline::{Step, Timeline};
use super::tx_slots::TxSlots;
use super::{Parallelism, SpeculativeBase, TxStats, worker_pool};
use crate::body::at_index;
use crate::executor::{ExecuteError, Executor};
use crate::observer::{IdleWork, Observed};
use crate::senders::RecoveringBlock;
use crate::transaction::TransactionResult;
use niwaki_evm::ReadWriteSet;
use niwaki_primitives::{Address, Bytes, Fault, Receipt, Transaction, TxEnvelope, Typed2718};
use niwaki_rules::{
    ChainSpec, GasAvailable, blob_gas_of, check_transaction, effective_gas_price, upfront_cost,
};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Ends speculation and sender recovery when the commit thread is done, or panics.
struct CloseOnDrop<'s, 'r>(&'s Scheduler<'r>);

impl Drop for CloseOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.0.slots.close();
        self.0.block.senders.stop();
    }
}

impl<'r> Scheduler<'r> {
    /// A scheduler whose commit thread is the calling one.
    pub(crate) fn new(
        parallelism: Parallelism,
        spec: &'r ChainSpec,
        block: &'r RecoveringBlock,
        base: SpeculativeBase<'r>,
        idle_work: Option<&'r dyn IdleWork>,
    ) -> Self {
        let transactions = block.block.body.transactions.len();
        let commit_thread = std::thread::current();
        let clock = parallelism.clock.filter(|_| parallelism.record_spans);
        Self {
            spec,
            block,
            base,
            slots: TxSlots::new(transactions, commit_thread, parallelism.speculate_all),
            calls: RwLock::default(),
            wasted_gas: AtomicU64::new(0),
            panicked: AtomicUsize::new(0),
            is_speculating: AtomicBool::new(false),
            speculate_all: parallelism.speculate_all,
            idle_work,
            timeline: clock.map(Timeline::new),
        }
    }

    /// What was counted of a block that has ended.
    pub(crate) fn finish(self, stats: TxStats) -> TxStats {
        TxStats {
            panicked: self.panicked.into_inner(),
            spans: self.timeline.map(Timeline::into_spans).unwrap_or_default(),
            ..stats
        }
    }
}

impl<'v> Executor<'v> {
    /// Executes a transaction as if the transactions before it left it gas and funds. `None` if it can't be known what
    /// it would do.
    pub(super) fn speculate(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
    ) -> Option<(TransactionResult, ReadWriteSet)> {
        let room = GasAvailable::both(self.evm.block().gas_limit);
        let gas = check_transaction(tx, sender, &self.rules, room, self.rules.max_blob_gas());
        let (gas, cost) = (gas.ok()?, upfront_cost(tx)?);
        let world = self.evm.world();
        let payer = world.load(&sender).ok()?;
        world.assume_nonce(payer, tx.nonce());
        if !world.can_pay(payer, cost) {
            return None;
        }
        let price = effective_gas_price(tx, self.rules.base_fee);
        let mut result = self.run_and_pay(tx, sender, gas, price, None).ok()?;
        // The receipt does not hold it.
        result.output = Bytes::new();
        let read_write_set = self.evm.world().take_read_write_set()?;
        Some((result, read_write_set))
    }

    /// Applies a speculative result of the next transaction, which has been checked. `None` if a value that it read has
    /// changed.
    fn validate_and_apply(
        &mut self,
        tx: &TxEnvelope,
        speculative: SpeculativeResult,
    ) -> Result<Option<TransactionResult>, Fault> {
        let world = self.evm.world();
        if !speculative.bal_reads.are_loaded_in(world) {
            return Ok(None);
        }
        let Some(ids) = world.validate(&speculative.read_write_set)? else {
            return Ok(None);
        };
        world.apply(speculative.read_write_set, &ids);
        let mut result = speculative.result;
        result.logs = self.end_transaction(&result, blob_gas_of(tx));
        Ok(Some(result))
    }

    /// Commits the transactions of a block, wakes workers once the block is worth it, and does what `end` is while the
    /// workers end what they are doing.
    pub(crate) fn commit_in_parallel<T>(
        &mut self,
        parallelism: Parallelism,
        scheduler: &Scheduler<'v>,
        observed: &mut Observed<'_>,
        end: impl FnOnce(&mut Self, Vec<Receipt>, &mut Observed<'_>) -> Result<T, ExecuteError>,
    ) -> Result<(T, TxStats), ExecuteError> {
        if parallelism.speculate_all {
            scheduler.base.subscribe(self.evm.world());
            scheduler.work(|| false);
        }
        let workers = parallelism.threads.saturating_sub(1);
        let Some(pool) = worker_pool(workers) else {
            let (receipts, stats) = self.commit_all(scheduler, observed, |_| ())?;
            return Ok((end(self, receipts, observed)?, stats));
        };
        let mut threshold = ParallelThreshold::new(parallelism.clock);
        let (mut are_awake, mut is_subscribed) = (false, false);
        pool.scope(|scope| {
            let close = CloseOnDrop(scheduler);
            let committed = self.commit_all(scheduler, observed, |executor| {
                let should_wake = !are_awake && threshold.is_reached(executor.used.gas, scheduler);
                if should_wake {
                    scheduler.before_workers_wake();
                }
                if !is_subscribed && scheduler.is_speculating() {
                    scheduler.base.subscribe(executor.evm.world());
                    is_subscribed = true;
                }
                if should_wake {
                    scope.spawn_many(workers, || scheduler.work_with_priorities());
                    are_awake = true;
                }
            });
            drop(close);
            let (receipts, stats) = committed?;
            Ok((end(self, receipts, observed)?, stats))
        })
    }

    /// Commits the transactions in their order; `before_each` is called before each.
    fn commit_all(
        &mut self,
        scheduler: &Scheduler<'_>,
        observed: &mut Observed<'_>,
        mut before_each: impl FnMut(&mut Self),
    ) -> Result<(Vec<Receipt>, TxStats), ExecuteError> {
        let mut receipts = Vec::with_capacity(scheduler.slots.len());
        let mut stats = TxStats::default();
        let view = scheduler.base.view();
        let mut state = (&view, None);
        for index in 0..scheduler.slots.len() {
            before_each(self);
            let tx = scheduler.transaction(index);
            let sender = self.sender(scheduler.block, index)?;
            let is_free = scheduler.slots.claim(index);
            let mut applied = None;
            if !is_free {
                // An invalid transaction is refused before waiting for its worker.
                self.check(tx, sender)
                    .map_err(|error| at_index(index, error))?;
                let speculative =
                    scheduler.timed(index, Step::Wait, || scheduler.wait_for(index, &mut state));
                let gas = speculative.as_ref().map(|own| own.result.gas_before_refund);
                if let Some(speculative) = speculative {
                    applied = scheduler.timed(index, Step::Validate, || {
                        self.validate_and_apply(tx, speculative)
                    })?;
                }
                scheduler.count_outcome(tx.to(), gas.unwrap_or(tx.gas_limit()), applied.is_some());
            }
            let count = match (&applied, is_free) {
                (Some(_), _) => &mut stats.validated,
                (None, true) => &mut stats.sequential,
                (None, false) => &mut stats.reexecuted,
            };
            *count = count.saturating_add(1);
            let result = match applied {
                Some(result) => result,
                None => {
                    let step = if is_free {
                        Step::Sequential
                    } else {
                        Step::Reexecute
                    };
                    scheduler
                        .timed(index, step, || self.process_transaction(tx, sender, None))
                        .map_err(|error| at_index(index, error))?
                }
            };
            receipts.push(self.receipt(tx.ty(), result, None));
            scheduler.slots.commit(index);
            observed.committed(self, &scheduler.block.block.header, &receipts);
        }
        Ok((receipts, stats))
    }
}
