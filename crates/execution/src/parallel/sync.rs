//! What the commit thread and the workers share, how they wait, and the constants of that, by the names that `tx_slots`
//! and `append_log` use: `tests/interleavings.rs` replaces this module by loom's types and small constants.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(super) use std::thread::{Thread, park, yield_now};

/// Workers claim slots at most this far ahead of the commit thread: results that wait are held in memory.
pub const SPECULATION_WINDOW: usize = 64;

/// Workers that were overtaken start this far ahead of the commit thread: executing a transaction sequentially costs
/// less, and meanwhile the workers get ahead again.
pub const HEAD_START: usize = 6;

/// Items of an append log that are copied while its writer is locked out.
pub(super) const COPY_BATCH: usize = 256;

/// How often a thread polls for another's result before it does something else.
const SPINS: u32 = 200;

/// Counts polls.
#[derive(Default)]
pub(super) struct SpinCounter(u32);

impl SpinCounter {
    /// Whether the thread should poll again at once.
    pub(super) fn should_spin(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        std::hint::spin_loop();
        self.0 < SPINS
    }
}
