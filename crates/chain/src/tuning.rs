//! Sizes from which on parts of an import run on other threads. Tests lower them, so that small blocks run all code
//! paths.

use crate::nanoseconds;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    /// The clock that measures whether a block is worth waking workers; without it, they are woken at once.
    pub(crate) clock: Option<fn() -> u64>,
    /// Receipts that are handed to another thread together.
    pub(crate) receipt_batch: usize,
    /// Fewer transactions of a payload are decoded before another thread would be awake.
    pub(crate) min_payload_txs: usize,
    /// Runs every task however many processors there are, and has the commit thread wait for each.
    pub(crate) waits_for_tasks: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            clock: Some(nanoseconds),
            receipt_batch: 64,
            min_payload_txs: 128,
            waits_for_tasks: false,
        }
    }
}
