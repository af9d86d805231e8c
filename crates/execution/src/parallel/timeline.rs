//! What each thread did with each transaction, and when: for measurements.

use niwaki_threads::lock;
use std::sync::{Mutex, PoisonError};

/// One step of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the transaction in its block.
    pub transaction: usize,
    /// 0 is the commit thread, the others are workers.
    pub thread: usize,
    /// What the thread did.
    pub step: Step,
    /// Begin, ns since the first transaction began.
    pub began: u64,
    /// End, ns since the first transaction began.
    pub ended: u64,
}

/// What is done with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A worker executes it speculatively.
    Speculate,
    /// The commit thread waits for a worker that executes it.
    Wait,
    /// The commit thread validates what it read, and applies what it wrote if that is valid.
    Validate,
    /// The commit thread executes it; no worker has claimed it.
    Sequential,
    /// The commit thread executes it again, because the speculative result is not valid.
    Reexecute,
}

/// The spans of all threads.
pub(super) struct Timeline {
    clock: fn() -> u64,
    start: u64,
    spans: Mutex<Vec<Span>>,
}

impl Timeline {
    pub(super) fn new(clock: fn() -> u64) -> Self {
        Self {
            clock,
            start: clock(),
            spans: Mutex::default(),
        }
    }

    /// Nanoseconds since the first transaction began.
    pub(super) fn now(&self) -> u64 {
        (self.clock)().saturating_sub(self.start)
    }

    /// Records what the calling thread has done since `began`.
    pub(super) fn record(&self, transaction: usize, step: Step, began: u64) {
        let span = Span {
            transaction,
            thread: niwaki_threads::worker_index().map_or(0, |index| index.saturating_add(1)),
            step,
            began,
            ended: self.now(),
        };
        lock(&self.spans).push(span);
    }

    /// All spans, by their begin.
    pub(super) fn into_spans(self) -> Vec<Span> {
        let spans = self.spans.into_inner();
        let mut spans = spans.unwrap_or_else(PoisonError::into_inner);
        spans.sort_unstable_by_key(|span| span.began);
        spans
    }
}
