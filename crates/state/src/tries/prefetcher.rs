//! Trie nodes loaded while a block is still executed.
//!
//! What execution reads from the storage is likely to change, and then the root needs the trie path to it. The
//! view that the block is executed on sends every account and slot that it does not find in the value caches
//! through a bounded channel, and a thread loads the paths:
//!
//! ```text
//! View::account, View::storage --PrefetchTarget--> [channel, 4096] --32 at a time--> TrieCache::load_paths
//!   commit thread and workers                                        prefetch thread, or workers
//! ```
//!
//! Once workers have time between transactions, they take the work over ([`TriePrefetcher::hand_over`]) and the
//! prefetch thread ends, so that it does not take a CPU from them. Prefetching decides nothing: the root
//! reads what was missed, dropped from a full channel, or failed to load.

use crate::tries::disk_trie::{DiskTrie, RowSource};
use crate::tries::trie_cache::TrieCache;
use crate::{View, WorldState};
use niwaki_primitives::{Address, B256, U256};
use niwaki_threads::WorkerPool;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// An account, or one of its slots, that was read from the storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchTarget {
    /// Hashed address.
    pub(crate) account: B256,
    /// Hashed slot, and the storage root of its account.
    pub(crate) slot: Option<(B256, B256)>,
    /// Whether it is known that there is no such account, or that the slot is zero.
    pub(crate) is_absent: bool,
}

/// Where a view sends what it reads.
pub(crate) type PrefetchSender = SyncSender<PrefetchTarget>;

/// Targets that may be queued; while it is full, new ones are dropped.
const QUEUE: usize = 1 << 12;

/// Paths that are loaded at once; then other threads may have the tries.
const BATCH: usize = 32;

/// How often the prefetch thread looks into an empty queue. It is not woken, because that would cost the commit
/// thread a system call for each value that it reads.
const POLL_INTERVAL: Duration = Duration::from_micros(300);

/// Loads the trie paths to what a view reads; see the module.
#[expect(missing_debug_implementations, reason = "a function")]
pub struct TriePrefetcher<'a> {
    world: &'a WorldState,
    queue: Mutex<PrefetchQueue>,
    stop: StopCondition<'a>,
    /// Whether the prefetch thread leaves the queue to workers.
    is_handed_over: AtomicBool,
}

/// Nothing more is loaded once the flag is set or the function says so.
#[derive(Clone, Copy)]
struct StopCondition<'a> {
    ended: &'a AtomicBool,
    is_over: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl StopCondition<'_> {
    fn is_met(&self, tries: &TrieCache) -> bool {
        let is_over = |is_over: &(dyn Fn() -> bool + Sync)| is_over() || tries.is_over_budget();
        self.ended.load(Ordering::Relaxed) || self.is_over.is_some_and(is_over)
    }
}

/// Targets that are not loaded yet.
#[derive(Debug)]
struct PrefetchQueue {
    receiver: Receiver<PrefetchTarget>,
    batch: Vec<PrefetchTarget>,
}

impl PrefetchQueue {
    /// The next batch, if it has at least `min` targets, else nothing.
    fn take_batch(&mut self, min: usize) -> Vec<PrefetchTarget> {
        let room = BATCH.saturating_sub(self.batch.len());
        self.batch.extend(self.receiver.try_iter().take(room));
        match self.batch.len() >= min {
            true => std::mem::take(&mut self.batch),
            false => Vec::new(),
        }
    }
}

impl WorldState {
    /// Runs `work` with `view` while a thread loads the trie paths to what `work` reads, until `work` returns or
    /// sets `ended`. Worth it for work of a millisecond or more. One at a time in a process: others in the
    /// meantime run without a prefetch thread and wait for it at the end, so never within `work` of another.
    pub fn with_trie_prefetch<T>(
        &self,
        view: &mut View,
        ended: &AtomicBool,
        work: impl FnOnce(&View, &TriePrefetcher<'_>) -> T,
    ) -> T {
        let is_over = None;
        self.run_with_prefetcher("prefetch", view, StopCondition { ended, is_over }, work)
    }

    /// The same for work that belongs to no block. A block may be waiting for the tries, so nothing more is loaded
    /// once `is_over()`, nor while the tries are over their budget.
    pub fn with_trie_prefetch_until<T>(
        &self,
        view: &mut View,
        is_over: &(dyn Fn() -> bool + Sync),
        work: impl FnOnce(&View) -> T,
    ) -> T {
        let (ended, is_over) = (&AtomicBool::new(false), Some(is_over));
        let work = |view: &View, _: &TriePrefetcher<'_>| work(view);
        self.run_with_prefetcher("warming", view, StopCondition { ended, is_over }, work)
    }

    fn run_with_prefetcher<T>(
        &self,
        purpose: &'static str,
        view: &mut View,
        stop: StopCondition<'_>,
        work: impl FnOnce(&View, &TriePrefetcher<'_>) -> T,
    ) -> T {
        let (sender, receiver) = sync_channel(QUEUE);
        let prefetcher = TriePrefetcher {
            world: self,
            queue: Mutex::new(PrefetchQueue {
                receiver,
                batch: Vec::new(),
            }),
            stop,
            is_handed_over: AtomicBool::new(false),
        };
        let Some(pool) = WorkerPool::named(purpose, 1) else {
            return work(view, &prefetcher);
        };
        let thread = &OnceLock::new();
        pool.scope(|scope| {
            scope.spawn(|| {
                let _ = thread.set(thread::current());
                prefetcher.run();
            });
            view.prefetch_sender = Some(sender);
            let ended = stop.ended;
            let sending = SendingView {
                view,
                thread,
                ended,
            };
            work(sending.view, &prefetcher)
        })
    }

    /// Loads the trie paths to accounts and slots that are going to change, as far as they are in the head's
    /// state, until `ended`. A target that can't be read is left out: the root reads it and returns the
    /// fault.
    pub fn prefetch_trie_paths(
        &self,
        view: &View,
        changed: impl Iterator<Item = (Address, Option<U256>)>,
        ended: &AtomicBool,
    ) {
        let mut changed = changed.peekable();
        while changed.peek().is_some() && !ended.load(Ordering::Relaxed) {
            let batch: Vec<_> = changed.by_ref().take(BATCH).collect();
            let targets = view.prefetch_targets(&batch);
            let mut tries = self.tries();
            let source = DiskTrie::new(RowSource::Latest(self.database()), &[]);
            let _ = tries.load_paths(&source, &targets);
            tries.count_reads(&source);
        }
    }
}

impl TriePrefetcher<'_> {
    /// From here on the prefetch thread loads nothing, and workers call [`TriePrefetcher::load_some`] when they
    /// have time.
    pub fn hand_over(&self) {
        self.is_handed_over.store(true, Ordering::Relaxed);
    }

    /// Loads one full batch; `false` if fewer targets are queued, or another thread takes them right now.
    pub fn load_some(&self) -> bool {
        self.load_batch(BATCH)
    }

    fn load_batch(&self, min: usize) -> bool {
        let Ok(mut queue) = self.queue.try_lock() else {
            return false;
        };
        let batch = queue.take_batch(min);
        drop(queue);
        if batch.is_empty() {
            return false;
        }
        let mut tries = self.world.tries();
        if self.stop.is_met(&tries) {
            return true;
        }
        let source = DiskTrie::new(RowSource::Latest(self.world.database()), &[]);
        // What can't be read is read again by the root, which returns the fault.
        let _ = tries.load_paths(&source, &batch);
        tries.count_reads(&source);
        true
    }

    /// The prefetch thread: loads what is queued until the work has ended or is handed over.
    fn run(&self) {
        while !self.stop.ended.load(Ordering::Relaxed)
            && !self.is_handed_over.load(Ordering::Relaxed)
        {
            if !self.load_batch(1) {
                thread::park_timeout(POLL_INTERVAL);
            }
        }
    }
}

/// A view with a prefetch sender, which it loses when this is dropped.
struct SendingView<'a> {
    view: &'a mut View,
    /// The prefetch thread, once it has begun.
    thread: &'a OnceLock<Thread>,
    ended: &'a AtomicBool,
}

impl Drop for SendingView<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.view.prefetch_sender = None;
        // A thread that begins later finds `ended` set.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
