//! What the commit thread and the workers share of a block, and what a worker does.

use super::bal_view::BalReads;
use super::speculative_base::{SpeculativeBase, SpeculativeView};
use super::timeline::{Step, Timeline};
use super::tx_slots::TxSlots;
use crate::executor::Executor;
use crate::observer::IdleWork;
use crate::senders::RecoveringBlock;
use crate::senders::{recover_next_batch, sender_of};
use crate::transaction::TransactionResult;
use niwaki_evm::ReadWriteSet;
use niwaki_primitives::{Address, Transaction, TxEnvelope, map::HashMap};
use niwaki_rules::ChainSpec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Gas of a plain transfer. A transaction that runs no code takes less time than handing it to a worker; most without
/// input are such, whatever their gas limit.
pub const TRANSFER_GAS: u64 = 21_000;

/// A transaction with this gas limit is speculated on whatever contract it calls: even if it is executed again, its
/// values are in the cache and its precompile results are at hand.
pub const HEAVY_GAS: u64 = 500_000;

/// Gas that may be wasted by invalid speculation in any block, however little the block uses.
pub const MIN_WASTE_GAS: u64 = 4_000_000;

/// What a worker got from executing a transaction speculatively.
pub(super) struct SpeculativeResult {
    pub(super) result: TransactionResult,
    pub(super) read_write_set: ReadWriteSet,
    pub(super) bal_reads: BalReads,
}

/// What all threads share of a block.
pub(crate) struct Scheduler<'r> {
    pub(super) spec: &'r ChainSpec,
    pub(super) block: &'r RecoveringBlock,
    pub(super) base: SpeculativeBase<'r>,
    /// `None` as a result: the speculation failed.
    pub(super) slots: TxSlots<Option<SpeculativeResult>>,
    /// Per called contract: how many speculative results were valid, and how many were not.
    pub(super) calls: RwLock<HashMap<Address, (u32, u32)>>,
    /// Gas of results that were not valid.
    pub(super) wasted_gas: AtomicU64,
    /// Workers that panicked in a transaction.
    pub(super) panicked: AtomicUsize,
    /// Whether a worker executes transactions, or will at once, and so needs what is committed.
    pub(super) is_speculating: AtomicBool,
    pub(super) speculate_all: bool,
    pub(super) idle_work: Option<&'r dyn IdleWork>,
    pub(super) timeline: Option<Timeline>,
}

/// A thread's view for speculation, and the executor that it used before.
pub(super) type WorkerState<'e> = (&'e SpeculativeView<'e>, Option<Executor<'e>>);

impl Scheduler<'_> {
    /// Does `work`, and records it on the timeline if there is one.
    pub(super) fn timed<T>(&self, index: usize, step: Step, work: impl FnOnce() -> T) -> T {
        let Some(timeline) = &self.timeline else {
            return work();
        };
        let began = timeline.now();
        let done = work();
        timeline.record(index, step, began);
        done
    }

    /// The gas that the header says the block uses.
    pub(super) fn block_gas_used(&self) -> u64 {
        self.block.block.header.gas_used
    }

    /// Waits for the worker that has claimed a transaction, and speculates on others meanwhile.
    pub(super) fn wait_for<'e>(
        &'e self,
        index: usize,
        state: &mut WorkerState<'e>,
    ) -> Option<SpeculativeResult> {
        let speculate = |next| self.speculate(state, next);
        let result = self
            .slots
            .wait_for(index, |next| self.is_worth_it(next), speculate);
        result.flatten()
    }

    pub(super) fn transaction(&self, index: usize) -> &TxEnvelope {
        &self.block.block.body.transactions[index]
    }

    /// Whether a transaction should be speculated on.
    fn is_worth_it(&self, index: usize) -> bool {
        let tx = self.transaction(index);
        let is_heavy = tx.gas_limit() >= HEAVY_GAS;
        let is_transfer =
            tx.gas_limit() <= TRANSFER_GAS || tx.input().is_empty() && tx.to().is_some();
        self.speculate_all || is_heavy || !is_transfer && !self.is_contended(tx.to())
    }

    /// Executes a transaction speculatively. `None` if that failed or panicked: then the commit thread executes it.
    fn speculate<'e>(
        &'e self,
        state: &mut WorkerState<'e>,
        index: usize,
    ) -> Option<SpeculativeResult> {
        self.is_speculating.store(true, Ordering::Relaxed);
        let tx = self.transaction(index);
        let (view, executor) = state;
        let view = *view;
        let execute = || {
            let header = &self.block.block.header;
            let own = executor.take();
            let mut own = own.unwrap_or_else(|| Executor::new(self.spec, header, view.state()));
            view.begin(index, own.evm.world());
            let sender = sender_of(self.block, index);
            let result = sender.and_then(|sender| own.speculate(tx, sender));
            (own, result)
        };
        let result = self.timed(index, Step::Speculate, || {
            catch_unwind(AssertUnwindSafe(execute))
        });
        let Ok((own, result)) = result else {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        *executor = Some(own);
        let (result, read_write_set) = result?;
        Some(SpeculativeResult {
            result,
            read_write_set,
            bal_reads: view.take_bal_reads(),
        })
    }

    /// Whether most speculative calls of the contract were invalid: it has a value that each call changes, so its calls
    /// are left to the commit thread.
    fn is_contended(&self, to: Option<Address>) -> bool {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        let counts = to.and_then(|to| calls.get(&to));
        counts.is_some_and(|(valid, invalid)| invalid > valid)
    }

    fn count_call(&self, to: Option<Address>, is_valid: bool) {
        let Some(to) = to else {
            return;
        };
        let mut calls = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        let (valid, invalid) = calls.entry(to).or_default();
        let count = if is_valid { valid } else { invalid };
        *count = count.saturating_add(1);
    }

    /// Adds up wasted gas. Once that is more than the block uses, speculation ends: the transactions may have been made
    /// to conflict.
    fn count_waste(&self, gas: u64) {
        let before = self.wasted_gas.fetch_add(gas, Ordering::Relaxed);
        let bound = self.block_gas_used().max(MIN_WASTE_GAS);
        if before.saturating_add(gas) > bound {
            self.slots.close();
        }
    }

    /// Counts the outcome of a speculation that used `gas`; the gas limit if it failed. One invalid result from an
    /// access list ends speculation: the list is wrong.
    pub(super) fn count_outcome(&self, to: Option<Address>, gas: u64, is_valid: bool) {
        if !self.base.is_bal() {
            self.count_call(to, is_valid);
            self.count_waste(if is_valid { 0 } else { gas });
        } else if !is_valid {
            self.slots.close();
        }
    }

    /// Speculates until there is no transaction left; `idle_work` comes first each time.
    pub(super) fn work(&self, idle_work: impl FnMut() -> bool) {
        let view = self.base.view();
        let mut state = (&view, None);
        let speculate = |index| self.speculate(&mut state, index);
        self.slots
            .work(|index| self.is_worth_it(index), speculate, idle_work);
    }

    /// The commit thread is about to wake workers into [`work_with_priorities`](Self::work_with_priorities).
    pub(super) fn before_workers_wake(&self) {
        match self.idle_work {
            // The threads that recover senders shall come back, since senders are not all that there is to do.
            Some(_) => self.block.senders.leave_to_workers(),
            None => self.is_speculating.store(true, Ordering::Relaxed),
        }
    }

    /// Whether the commit thread should publish what it commits: with idle work, it may be that no worker ever
    /// speculates.
    pub(super) fn is_speculating(&self) -> bool {
        self.is_speculating.load(Ordering::Relaxed)
    }

    /// The loop of a worker, by priority: receipts and root (the block waits for them), sender recovery, speculation. A
    /// sender or a transaction that no worker has begun costs no more on the commit thread; a value that is in the
    /// tries already saves time after the last transaction.
    pub(super) fn work_with_priorities(&self) {
        let Some(idle) = self.idle_work else {
            return self.work(|| false);
        };
        self.work(|| idle.run() || recover_next_batch(self.block) || idle.run_low_priority());
        idle.drain();
    }
}
