//! What threads share, how they wait and the figures of that, by the names that `places` and `log` use: their
//! tests put those of a model in their place.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(super) use std::thread::{Thread, park, yield_now};

/// So many places may be taken ahead of the one whose turn it is: what waits is held in memory.
pub const WINDOW: usize = 64;

/// Places that are left to the counting thread, when it has caught up with those ahead: a transaction that
/// runs in its turn costs less, and meanwhile others get ahead of it again.
pub const LEAP: usize = 6;

/// So many items of a log are copied while others can't add to it.
pub(super) const AT_A_TIME: usize = 256;

/// So often a thread looks whether another is done before it does something else.
const SPINS: u32 = 200;

/// How often a thread has looked.
#[derive(Default)]
pub(super) struct LookAgain(u32);

impl LookAgain {
    /// Whether it should do nothing but look again.
    pub(super) fn soon(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        std::hint::spin_loop();
        self.0 < SPINS
    }
}
