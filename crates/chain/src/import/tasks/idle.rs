//! The tasks of a block as idle work of its workers, for blocks whose transactions run on all processors: there, a thread of their
//! own would take a processor from the commit thread as often as from a worker.

use super::receipt_root::{ReceiptRootTask, Runner};
use niwaki_execution::{BlockProgress, IdleWork};
use niwaki_state::{IncrementalRoot, TriePrefetcher};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Flushes changed values into the tries once 1/8 of the gas that was left at the previous flush is used. Each flush rehashes the
/// paths to the root, so few are better; the final root waits for the last, so they shrink.
const FLUSH_SHARE: u32 = 8;

/// The same while senders are missing: recovering one costs the same on every thread, so it is left for later less readily.
const FLUSH_SHARE_WITH_SENDERS: u32 = 4;

/// The smallest flush, in [`BlockProgress::PARTS`].
const MIN_FLUSH: u32 = 2;

/// The tasks of a block without an access list.
pub(crate) struct ImportIdleWork<'b> {
    root: &'b IncrementalRoot<'b>,
    receipts: Arc<ReceiptRootTask>,
    reading: &'b TriePrefetcher<'b>,
    /// Whether a worker does idle work, and so stays to the end of the block.
    has_worker: AtomicBool,
    /// Held by the worker that drains.
    draining: Mutex<()>,
    /// When the last flush was, in [`BlockProgress::PARTS`].
    last_flush: AtomicU32,
}

impl<'b> ImportIdleWork<'b> {
    pub(crate) fn new(
        root: &'b IncrementalRoot<'b>,
        receipts: Arc<ReceiptRootTask>,
        reading: &'b TriePrefetcher<'b>,
    ) -> Self {
        Self {
            root,
            receipts,
            reading,
            has_worker: AtomicBool::new(false),
            draining: Mutex::default(),
            last_flush: AtomicU32::new(0),
        }
    }

    pub(crate) fn has_worker(&self) -> bool {
        self.has_worker.load(Ordering::Relaxed)
    }

    /// Which thread adds receipts. A worker has the tries to do first, and the commit thread must not end long before those are
    /// done, so it adds receipts itself meanwhile.
    pub(crate) fn receipts_runner(&self) -> Runner {
        match self.has_worker() {
            true if self.root.is_pending() => Runner::CommitThread,
            true => Runner::Worker,
            false => Runner::Pool,
        }
    }

    /// Whether the commit thread should flush now. If so, the next flush is counted from here.
    pub(crate) fn should_flush(
        &self,
        progress: &BlockProgress<'_>,
        are_senders_known: impl FnOnce() -> bool,
    ) -> bool {
        if self.root.is_closed() {
            return false;
        }
        if progress.is_complete() {
            return self.root.parts() > 0;
        }
        let last = self.last_flush.load(Ordering::Relaxed);
        let is_due = |share: u32| {
            let rest = BlockProgress::PARTS.saturating_sub(last);
            progress.part >= last + MIN_FLUSH.max(rest / share)
        };
        if !is_due(FLUSH_SHARE) || self.root.is_pending() {
            return false;
        }
        // Without a worker, a thread of the pool would take the processor from the thread that recovers senders.
        let should_flush =
            are_senders_known() || self.has_worker() && is_due(FLUSH_SHARE_WITH_SENDERS);
        if should_flush {
            self.last_flush.store(progress.part, Ordering::Relaxed);
        }
        should_flush
    }
}

impl IdleWork for ImportIdleWork<'_> {
    /// Receipts, which are few; then the tries; then trie paths of the block: the root waits for what is read too late, and for no
    /// sender.
    fn run(&self) -> bool {
        if !self.has_worker() {
            self.has_worker.store(true, Ordering::Relaxed);
            self.reading.hand_over();
        }
        self.receipts.add_pending() || self.root.apply_some() || self.reading.load_some()
    }

    fn run_low_priority(&self) -> bool {
        false
    }

    /// One worker stays until the final root is being made.
    fn drain(&self) {
        let Ok(_draining) = self.draining.try_lock() else {
            return;
        };
        while !self.root.is_closed() {
            if !self.receipts.add_pending() && !self.root.apply_some() {
                std::thread::yield_now();
            }
        }
        while self.receipts.add_pending() {}
    }
}
