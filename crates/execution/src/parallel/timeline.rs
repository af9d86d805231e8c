//! What each thread did, and when.

use std::sync::{Mutex, PoisonError};

/// What was done with a transaction for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index of the transaction in its block.
    pub transaction: usize,
    /// The thread: zero commits, the others run ahead.
    pub thread: usize,
    /// What the thread did.
    pub step: Step,
    /// Nanoseconds since the first transaction was begun.
    pub began: u64,
    /// The same.
    pub ended: u64,
}

/// What is done with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// It runs ahead of its turn.
    Ahead,
    /// It is its turn, and another thread is at it.
    Wait,
    /// It has run ahead: what it has read is compared, and it counts if that holds.
    Adopt,
    /// It runs when it is its turn.
    InTurn,
    /// It runs when it is its turn, and ran ahead for nothing.
    Again,
}

/// Spans of all threads.
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

    /// Nanoseconds since the first transaction was begun.
    pub(super) fn now(&self) -> u64 {
        (self.clock)().saturating_sub(self.start)
    }

    /// Notes what the calling thread has done since `began`.
    pub(super) fn note(&self, transaction: usize, step: Step, began: u64) {
        let span = Span {
            transaction,
            thread: niwaki_threads::worker_index().map_or(0, |index| index.saturating_add(1)),
            step,
            began,
            ended: self.now(),
        };
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push(span);
    }

    /// All spans, in the order in which they began.
    pub(super) fn into_spans(self) -> Vec<Span> {
        let spans = self.spans.into_inner();
        let mut spans = spans.unwrap_or_else(PoisonError::into_inner);
        spans.sort_unstable_by_key(|span| span.began);
        spans
    }
}
