//! What all threads share of a block, and what one does that runs transactions ahead.

use super::before::{AheadView, Before};
use super::listed::Told;
use super::places::Places;
use super::timeline::{Step, Timeline};
use crate::executor::Executor;
use crate::meanwhile::Errands;
use crate::senders::{recover_next, sender_ahead};
use crate::transaction::TransactionResult;
use niwaki_evm::Effects;
use niwaki_primitives::{Address, RecoveredBlock, Transaction, TxEnvelope, map::HashMap};
use niwaki_rules::ChainSpec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// Gas of a transaction that runs no code, and takes less time than it takes to hand it over; as most
/// that have no input do, whatever their limit.
pub const PLAIN_GAS: u64 = 21_000;

/// A transaction of so much gas runs ahead whomever it calls: what it has read and the results of
/// precompiled contracts are at hand when it runs again.
pub const HEAVY_GAS: u64 = 500_000;

/// So much gas may be used for nothing in any block.
pub const LEAST_WASTE: u64 = 4_000_000;

/// A transaction that ran ahead of its turn.
pub(super) struct Ahead {
    pub(super) result: TransactionResult,
    pub(super) effects: Effects,
    pub(super) told: Told,
}

/// What all threads share.
pub(super) struct Run<'r> {
    pub(super) spec: &'r ChainSpec,
    pub(super) block: &'r RecoveredBlock,
    pub(super) before: Before<'r>,
    /// What a run ahead came to, if to anything.
    pub(super) places: Places<Option<Ahead>>,
    /// Of who was called by those that ran ahead: how many were kept, and how many run again.
    pub(super) called: RwLock<HashMap<Address, (u32, u32)>>,
    /// Gas of runs that were thrown away.
    pub(super) wasted_gas: AtomicU64,
    /// Runs ahead that panicked.
    pub(super) failed: AtomicUsize,
    /// Whether somebody runs transactions ahead, or will at once, to whom it matters what those before have left.
    pub(super) has_followers: AtomicBool,
    pub(super) all_ahead: bool,
    /// What whoever runs transactions ahead does between two of them.
    pub(super) errands: Option<&'r dyn Errands>,
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

    /// What the block says that it uses.
    pub(super) fn gas_used(&self) -> u64 {
        self.block.block.header.gas_used
    }

    /// Waits until whoever has a transaction is done with it, and runs others ahead meanwhile.
    pub(super) fn wait_for<'e>(&'e self, index: usize, spare: &mut Spare<'e>) -> Option<Ahead> {
        let run_ahead = |next| self.run_ahead(spare, next);
        let ahead = self
            .places
            .wait_for(index, |next| self.is_worth_it(next), run_ahead);
        ahead.flatten()
    }

    pub(super) fn transaction(&self, index: usize) -> &TxEnvelope {
        &self.block.block.body.transactions[index]
    }

    /// Whether a transaction should run ahead of its turn.
    fn is_worth_it(&self, index: usize) -> bool {
        let tx = self.transaction(index);
        let is_heavy = tx.gas_limit() >= HEAVY_GAS;
        let is_plain = tx.gas_limit() <= PLAIN_GAS || tx.input().is_empty() && tx.to().is_some();
        self.all_ahead || is_heavy || !is_plain && !self.is_disturbed(tx.to())
    }

    /// Runs a transaction ahead of its turn. What goes wrong leaves nothing: it is run again.
    fn run_ahead<'e>(&'e self, spare: &mut Spare<'e>, index: usize) -> Option<Ahead> {
        self.has_followers.store(true, Ordering::Relaxed);
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
            self.places.end();
        }
    }

    /// Notes whether a run of so much gas was kept. A list that was wrong once is not asked again. A run
    /// that came to nothing may have used all gas that it had.
    pub(super) fn note(&self, to: Option<Address>, gas: u64, is_kept: bool) {
        if !self.before.is_listed() {
            self.note_call(to, is_kept);
            self.note_waste(if is_kept { 0 } else { gas });
        } else if !is_kept {
            self.places.end();
        }
    }

    /// Runs transactions ahead until there is none left, if `run_errand` has nothing to do before.
    pub(super) fn work(&self, run_errand: impl FnMut() -> bool) {
        let view = self.before.view();
        let mut spare = (&view, None);
        let run_ahead = |index| self.run_ahead(&mut spare, index);
        self.places
            .work(|index| self.is_worth_it(index), run_ahead, run_errand);
    }

    /// The thread that counts is about to call others to [`help`](Self::help).
    pub(super) fn call_for_help(&self) {
        match self.errands {
            // They may be at senders, which are not all that there is to do.
            Some(_) => self.block.senders.leave_to_workers(),
            None => self.has_followers.store(true, Ordering::Relaxed),
        }
    }

    /// Whether to tell from here on what transactions have left: where whoever helps has other things to do, it may
    /// be that nobody ever wants to know.
    pub(super) fn has_followers(&self) -> bool {
        self.has_followers.load(Ordering::Relaxed)
    }

    /// Does what there is to do on a thread beside the one that counts. A value that has gone into the tries does
    /// not have to after the last transaction; a sender or a transaction that nobody has begun costs no more in its
    /// turn.
    pub(super) fn help(&self) {
        let Some(errands) = self.errands else {
            return self.work(|| false);
        };
        self.work(|| errands.run() || recover_next(self.block) || errands.run_lesser());
        errands.run_rest();
    }
}
