//! The places of a block's transactions, and what a thread does that runs them ahead.

use super::before::{AheadView, Before};
use super::listed::Told;
use super::timeline::{Step, Timeline};
use crate::executor::Executor;
use crate::senders::sender_ahead;
use crate::transaction::TransactionResult;
use niwaki_evm::Effects;
use niwaki_primitives::{Address, RecoveredBlock, Transaction, TxEnvelope, map::HashMap};
use niwaki_rules::ChainSpec;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::Thread;

/// Gas of a transaction that runs no code, and takes less time than it takes to hand it over; as most
/// that have no input do, whatever their limit.
pub const PLAIN_GAS: u64 = 21_000;

/// So many transactions may run ahead of the one whose turn it is: what waits is held in memory.
pub const WINDOW: usize = 64;

/// Transactions that are left to the committing thread, when it has caught up with those that run
/// ahead: run in their turn they cost less, and meanwhile others get ahead of it again.
pub const LEAP: usize = 6;

/// A transaction of so much gas runs ahead whomever it calls: what it has read and the results of
/// precompiled contracts are at hand when it runs again.
pub const HEAVY_GAS: u64 = 500_000;

/// So much gas may be used for nothing in any block.
pub const LEAST_WASTE: u64 = 4_000_000;

/// So often a thread looks whether another is done before it does something else.
const SPINS: u32 = 200;

/// A transaction that ran ahead of its turn.
pub(super) struct Ahead {
    pub(super) result: TransactionResult,
    pub(super) effects: Effects,
    pub(super) told: Told,
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const DONE: u8 = 2;

/// A transaction's place: who runs it, and what came of it.
#[derive(Default)]
pub(super) struct Place {
    state: AtomicU8,
    ahead: Mutex<Option<Ahead>>,
}

impl Place {
    pub(super) fn take(&self) -> bool {
        let taken = self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }

    fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn put(&self, ahead: Option<Ahead>) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
        self.state.store(DONE, Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    fn get(&self) -> Option<Ahead> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.take()
    }
}

/// What all threads share.
pub(super) struct Run<'r> {
    pub(super) spec: &'r ChainSpec,
    pub(super) block: &'r RecoveredBlock,
    pub(super) before: Before<'r>,
    pub(super) places: Vec<Place>,
    /// Behind all that were taken to run ahead.
    pub(super) next: AtomicUsize,
    /// How many count already.
    pub(super) counted: AtomicUsize,
    /// Of who was called by those that ran ahead: how many were kept, and how many run again.
    pub(super) called: RwLock<HashMap<Address, (u32, u32)>>,
    /// Gas of runs that were thrown away.
    pub(super) wasted_gas: AtomicU64,
    /// Runs ahead that panicked.
    pub(super) failed: AtomicUsize,
    pub(super) is_over: AtomicBool,
    pub(super) all_ahead: bool,
    pub(super) committer: Thread,
    pub(super) timeline: Option<Timeline>,
}

/// A thread's own state to run transactions ahead upon, and the machine it did that with before.
pub(super) type Spare<'e> = (&'e AheadView<'e>, Option<Executor<'e>>);

impl Run<'_> {
    /// Does what `step` is, and notes how long that took if anybody wants to know.
    pub(super) fn noted<T>(&self, index: usize, step: Step, work: impl FnOnce() -> T) -> T {
        let Some(timeline) = &self.timeline else {
            return work();
        };
        let began = timeline.now();
        let done = work();
        timeline.note(index, step, began);
        done
    }

    /// How many do not count yet.
    pub(super) fn left(&self) -> usize {
        let counted = self.counted.load(Ordering::Relaxed);
        self.places.len().saturating_sub(counted)
    }

    /// What the block says that it uses.
    pub(super) fn gas_used(&self) -> u64 {
        self.block.block.header.gas_used
    }

    /// Waits until whoever has a transaction is done with it, and runs others ahead meanwhile.
    pub(super) fn wait_for<'e>(&'e self, place: &Place, spare: &mut Spare<'e>) -> Option<Ahead> {
        let mut spins = 0_u32;
        while !place.is_done() {
            spins = spins.saturating_add(1);
            if spins < SPINS {
                std::hint::spin_loop();
            } else if let Some(next) = self.take_next() {
                let ahead = self.run_ahead(spare, next);
                self.places[next].put(ahead);
            } else {
                std::thread::park();
            }
        }
        place.get()
    }

    pub(super) fn transaction(&self, index: usize) -> &TxEnvelope {
        &self.block.block.body.transactions[index]
    }

    /// Takes the next transaction that nobody has and that is worth it, if it is not too far ahead: one
    /// behind those that others are at, else one that they have leapt over.
    fn take_next(&self) -> Option<usize> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.load(Ordering::Relaxed);
        if self.all_ahead {
            return self.take_first(next..self.places.len());
        }
        let counted = self.counted.load(Ordering::Relaxed);
        let end = counted.saturating_add(WINDOW).min(self.places.len());
        let from = next.max(counted.saturating_add(LEAP));
        let first = counted.saturating_add(1);
        self.take_first(from..end)
            .or_else(|| self.take_first(first..from.min(end)))
    }

    fn take_first(&self, mut range: Range<usize>) -> Option<usize> {
        let index = range.find(|index| self.is_worth_it(*index) && self.places[*index].take())?;
        self.next
            .fetch_max(index.saturating_add(1), Ordering::Relaxed);
        Some(index)
    }

    /// Whether a transaction should run ahead of its turn, if nobody has it.
    fn is_worth_it(&self, index: usize) -> bool {
        let tx = self.transaction(index);
        let is_heavy = tx.gas_limit() >= HEAVY_GAS;
        let is_plain = tx.gas_limit() <= PLAIN_GAS || tx.input().is_empty() && tx.to().is_some();
        self.all_ahead
            || self.places[index].is_free()
                && (is_heavy || !is_plain && !self.is_disturbed(tx.to()))
    }

    /// Runs a transaction ahead of its turn. What goes wrong leaves nothing: it is run again.
    fn run_ahead<'e>(&'e self, spare: &mut Spare<'e>, index: usize) -> Option<Ahead> {
        let tx = self.transaction(index);
        let (view, executor) = spare;
        let view = *view;
        let run = || {
            let header = &self.block.block.header;
            let own = executor.take();
            let mut own = own.unwrap_or_else(|| Executor::new(self.spec, header, view.state()));
            view.begin(index, own.evm.world());
            let sender = sender_ahead(self.block, index);
            let ran = sender.and_then(|sender| own.run_ahead(tx, sender));
            (own, ran)
        };
        let ran = self.noted(index, Step::Ahead, || catch_unwind(AssertUnwindSafe(run)));
        let Ok((own, ran)) = ran else {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        *executor = Some(own);
        let (result, effects) = ran?;
        let told = view.take_told();
        Some(Ahead {
            result,
            effects,
            told,
        })
    }

    /// Whether most of those that called the same contract were run again: it has something that each
    /// call changes, so they are left to their turn.
    fn is_disturbed(&self, to: Option<Address>) -> bool {
        let called = self.called.read().unwrap_or_else(PoisonError::into_inner);
        let shares = to.and_then(|to| called.get(&to));
        shares.is_some_and(|(kept, repeated)| repeated > kept)
    }

    fn note_call(&self, to: Option<Address>, is_kept: bool) {
        let Some(to) = to else {
            return;
        };
        let mut called = self.called.write().unwrap_or_else(PoisonError::into_inner);
        let (kept, repeated) = called.entry(to).or_default();
        let count = if is_kept { kept } else { repeated };
        *count = count.saturating_add(1);
    }

    /// Notes gas that was used for nothing. When that is more than the block is worth, nothing runs ahead
    /// any more: transactions may have been made to disturb each other.
    fn note_waste(&self, gas: u64) {
        let before = self.wasted_gas.fetch_add(gas, Ordering::Relaxed);
        let bound = self.block.block.header.gas_used.max(LEAST_WASTE);
        if before.saturating_add(gas) > bound {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Notes whether a run of so much gas was kept. A list that was wrong once is not asked again. A run
    /// that came to nothing may have used all gas that it had.
    pub(super) fn note(&self, to: Option<Address>, gas: u64, is_kept: bool) {
        if !self.before.is_listed() {
            self.note_call(to, is_kept);
            self.note_waste(if is_kept { 0 } else { gas });
        } else if !is_kept {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs transactions ahead until there is none left.
    pub(super) fn work(&self) {
        let view = self.before.view();
        let mut spare = (&view, None);
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(index) = self.take_next() else {
                if self.all_ahead || self.counted.load(Ordering::Relaxed) >= self.places.len() {
                    return;
                }
                std::thread::yield_now();
                continue;
            };
            let ahead = self.run_ahead(&mut spare, index);
            self.places[index].put(ahead);
            self.committer.unpark();
        }
    }
}
