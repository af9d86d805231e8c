//! One slot per transaction of a block: which thread executes it, and the speculative result.
//!
//! The commit thread goes through the slots in the order of the block and claims each that is still free. Workers claim
//! slots ahead of it, store a result there and unpark it. A slot only moves forward: free, claimed, done.
//!
//! ```text
//! slot     0      1      2       3     4        5        6 ..         SPECULATION_WINDOW
//!          committed     waiting free  claimed  done     free
//!                        ^ commit thread        ^ a worker's result
//! ```
//!
//! The file knows nothing of transactions: `tests/interleavings.rs` runs it in every order in which two and three
//! threads can meet, with a `sync` module of its own.

use super::sync::{
    AtomicBool, AtomicU8, AtomicUsize, HEAD_START, Mutex, Ordering, SPECULATION_WINDOW,
    SpinCounter, Thread, park, yield_now,
};
use std::ops::Range;
use std::sync::PoisonError;

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const DONE: u8 = 2;

/// Whether a thread has claimed the transaction, and the worker's result.
struct TxSlot<T> {
    state: AtomicU8,
    result: Mutex<Option<T>>,
}

impl<T> TxSlot<T> {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            result: Mutex::new(None),
        }
    }

    /// Whether no thread has claimed it. That may change the next moment.
    fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn claim(&self) -> bool {
        let claimed =
            self.state
                .compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        claimed.is_ok()
    }
}

/// The slots of a block, and how far the commit thread is.
pub(super) struct TxSlots<T> {
    slots: Vec<TxSlot<T>>,
    /// One past the last slot that a worker claimed.
    next: AtomicUsize,
    /// How many transactions are committed.
    committed: AtomicUsize,
    is_closed: AtomicBool,
    commit_thread: Thread,
    /// Whether all slots may be claimed before the first transaction is committed.
    speculate_all: bool,
}

impl<T> TxSlots<T> {
    /// `slots` free slots, for `commit_thread` to commit.
    pub(super) fn new(slots: usize, commit_thread: Thread, speculate_all: bool) -> Self {
        Self {
            slots: (0..slots).map(|_| TxSlot::new()).collect(),
            next: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            commit_thread,
            speculate_all,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many transactions are not committed yet.
    pub(super) fn remaining(&self) -> usize {
        let committed = self.committed.load(Ordering::Relaxed);
        self.slots.len().saturating_sub(committed)
    }

    /// Claims the slot for the commit thread. Returns whether it was free.
    pub(super) fn claim(&self, index: usize) -> bool {
        self.slots[index].claim()
    }

    /// The transaction at `index` is committed, as all before it are.
    pub(super) fn commit(&self, index: usize) {
        self.committed
            .store(index.saturating_add(1), Ordering::Relaxed);
    }

    /// From here on workers claim nothing.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Claims a free slot that is worth it, at most [`SPECULATION_WINDOW`] ahead: behind those that workers have
    /// claimed, else one that they have skipped.
    fn claim_next(&self, is_worth_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.load(Ordering::Relaxed);
        if self.speculate_all {
            return self.claim_first(next..self.slots.len(), &is_worth_it);
        }
        let committed = self.committed.load(Ordering::Relaxed);
        let end = committed
            .saturating_add(SPECULATION_WINDOW)
            .min(self.slots.len());
        let from = next.max(committed.saturating_add(HEAD_START));
        let first = committed.saturating_add(1);
        self.claim_first(from..end, &is_worth_it)
            .or_else(|| self.claim_first(first..from.min(end), &is_worth_it))
    }

    fn claim_first(
        &self,
        mut range: Range<usize>,
        is_worth_it: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let index = range.find(|index| {
            let slot = &self.slots[*index];
            slot.is_free() && is_worth_it(*index) && slot.claim()
        })?;
        self.next
            .fetch_max(index.saturating_add(1), Ordering::Relaxed);
        Some(index)
    }

    /// Claims a slot and stores the result of `execute` there. Returns whether there was one to claim.
    fn speculate_next(
        &self,
        is_worth_it: impl Fn(usize) -> bool,
        execute: impl FnOnce(usize) -> T,
    ) -> bool {
        let Some(index) = self.claim_next(is_worth_it) else {
            return false;
        };
        let result = execute(index);
        let slot = &self.slots[index];
        *slot.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        slot.state.store(DONE, Ordering::Release);
        self.commit_thread.unpark();
        true
    }

    /// The loop of a worker: claims and executes slots until there is none left. `idle_work` comes first each time, and
    /// returns whether it did anything.
    pub(super) fn work(
        &self,
        is_worth_it: impl Fn(usize) -> bool,
        mut execute: impl FnMut(usize) -> T,
        mut idle_work: impl FnMut() -> bool,
    ) {
        while !self.is_closed.load(Ordering::Relaxed) {
            if idle_work() || self.speculate_next(&is_worth_it, &mut execute) {
                continue;
            }
            if self.speculate_all || self.remaining() == 0 {
                return;
            }
            yield_now();
        }
    }

    /// Waits for the result of the worker that has claimed `index`, and executes other slots meanwhile. For the commit
    /// thread alone.
    pub(super) fn wait_for(
        &self,
        index: usize,
        is_worth_it: impl Fn(usize) -> bool,
        mut execute: impl FnMut(usize) -> T,
    ) -> Option<T> {
        let slot = &self.slots[index];
        let mut spins = SpinCounter::default();
        while slot.state.load(Ordering::Acquire) != DONE {
            if !spins.should_spin() && !self.speculate_next(&is_worth_it, &mut execute) {
                park();
            }
        }
        let mut result = slot.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take()
    }
}
