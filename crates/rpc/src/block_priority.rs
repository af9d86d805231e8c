//! Block priority: while a block or a fork choice is handled, the threads that serve other requests start nothing
//! new.
//!
//! On a machine with few processors the readers of the JSON-RPC API and their clients can take every processor from
//! a block that is late already. Two measures work together:
//!
//! - Threads that serve others call [`yield_to_blocks`] when they start: it lowers their priority.
//! - Before it starts a request, such a thread waits in [`BlockPriority::wait_for_block`] as long as a
//!   [`BlockGuard`] exists, but at most 100 ms per block. A priority alone is not enough: a thread that was just
//!   woken may still have to wait for the end of another thread's time slice.
//!
//! ```text
//! engine_newPayload   |--- queued --- executed ---| guard dropped: notify
//! eth_call                 arrives |... waits ....| runs
//! ```
//!
//! With more than four processors no guard is given out and no request waits: a block leaves enough of them free.

use crate::lock;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Added to the niceness of threads that serve requests no block waits for.
const NICE: i32 = 5;

/// On a machine with more processors, a block leaves enough of them to other requests.
const FEW_CORES: usize = 4;

/// How long a request waits for one block at most. After that it competes at its lower priority.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(100);

thread_local! {
    pub(crate) static YIELDS_TO_BLOCKS: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of the calling thread and has it wait for blocks: it serves requests no block waits for.
pub fn yield_to_blocks() {
    YIELDS_TO_BLOCKS.set(true);
    // On Linux this is the calling thread only; elsewhere it is refused or harmless.
    let _ = rustix::process::nice(NICE);
}

/// Whether the calling thread serves requests no block waits for.
pub(crate) fn yields_to_blocks() -> bool {
    YIELDS_TO_BLOCKS.get()
}

/// The blocks and fork choices that are queued or handled.
#[derive(Debug)]
pub(crate) struct BlockPriority {
    is_enabled: bool,
    max_wait: Duration,
    /// Whether `active` has any: most requests look no further.
    pub(crate) has_active: AtomicBool,
    active: Mutex<ActiveBlocks>,
    is_over: Notify,
}

#[derive(Debug, Default)]
struct ActiveBlocks {
    count: usize,
    /// When the newest of them arrived, if there are any.
    since: Option<Instant>,
}

/// A block or a fork choice. Other requests wait while it exists.
#[derive(Debug)]
pub(crate) struct BlockGuard(Arc<BlockPriority>);

impl Drop for BlockGuard {
    fn drop(&mut self) {
        let mut active = lock(&self.0.active);
        active.count -= 1;
        if active.count == 0 {
            active.since = None;
            self.0.has_active.store(false, Ordering::Relaxed);
            self.0.is_over.notify_waiters();
        }
    }
}

impl BlockPriority {
    /// For a machine with `cores` processors. No request waits longer than `max_wait` for one block.
    pub(crate) fn new(cores: usize, max_wait: Duration) -> Self {
        Self {
            is_enabled: cores <= FEW_CORES,
            max_wait,
            has_active: AtomicBool::new(false),
            active: Mutex::default(),
            is_over: Notify::new(),
        }
    }

    /// Has other requests wait until the guard is dropped. `None` on a machine with many processors.
    pub(crate) fn begin_block(self: &Arc<Self>) -> Option<BlockGuard> {
        if !self.is_enabled {
            return None;
        }
        let mut active = lock(&self.active);
        active.count += 1;
        active.since = Some(Instant::now());
        self.has_active.store(true, Ordering::Relaxed);
        Some(BlockGuard(Arc::clone(self)))
    }

    /// Waits until the active blocks are done, if the calling thread serves requests no block waits for. It does
    /// not wait for blocks that arrive later, and at most `max_wait`: a stream of blocks must not starve a request.
    pub(crate) async fn wait_for_block(&self) {
        if !self.has_active.load(Ordering::Relaxed) || !yields_to_blocks() {
            return;
        }
        // Registered first: a guard dropped from here on either shows below or notifies.
        let is_over = self.is_over.notified();
        let since = lock(&self.active).since;
        let left = since.and_then(|since| self.max_wait.checked_sub(since.elapsed()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            let _ = timeout(left, is_over).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Waker};
    use tokio::runtime::{Builder, Runtime};

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// Timers need a runtime.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    fn waits(request: Pin<&mut impl Future>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        request.poll(&mut context).is_pending()
    }

    fn block_priority(cores: usize, max_wait: Duration) -> Arc<BlockPriority> {
        Arc::new(BlockPriority::new(cores, max_wait))
    }

    #[test]
    fn a_request_waits_for_the_active_block_and_not_for_the_next() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let block_priority = block_priority(2, FOR_EVER);
        YIELDS_TO_BLOCKS.set(true);
        let block = block_priority.begin_block();
        let mut request = pin!(block_priority.wait_for_block());
        assert!(waits(request.as_mut()));
        assert!(waits(request.as_mut()));
        drop(block);
        let next = block_priority.begin_block();
        assert!(!waits(request.as_mut()));
        assert!(waits(pin!(block_priority.wait_for_block())));
        drop(next);
        assert!(!waits(pin!(block_priority.wait_for_block())));
    }

    #[test]
    fn a_request_waits_until_the_last_guard_is_dropped() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let block_priority = block_priority(2, FOR_EVER);
        YIELDS_TO_BLOCKS.set(true);
        let (block, choice) = (block_priority.begin_block(), block_priority.begin_block());
        let mut request = pin!(block_priority.wait_for_block());
        assert!(waits(request.as_mut()));
        drop(block);
        assert!(waits(request.as_mut()));
        drop(choice);
        assert!(!waits(request.as_mut()));
    }

    #[test]
    fn a_stale_flag_makes_no_request_wait() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let block_priority = block_priority(2, FOR_EVER);
        YIELDS_TO_BLOCKS.set(true);
        drop(block_priority.begin_block());
        block_priority.has_active.store(true, Ordering::Relaxed);
        assert!(!waits(pin!(block_priority.wait_for_block())));
    }

    #[test]
    fn no_request_waits_longer_than_the_max_wait() {
        let runtime = runtime();
        let _inside = runtime.enter();
        YIELDS_TO_BLOCKS.set(true);
        let none = block_priority(2, Duration::ZERO);
        let _block = none.begin_block();
        assert!(!waits(pin!(none.wait_for_block())));
        let short = block_priority(2, Duration::from_millis(1));
        let _block = short.begin_block();
        // Never returns if it waits for the end of that.
        runtime.block_on(short.wait_for_block());
    }

    #[test]
    fn engine_threads_never_wait_and_on_5_cores_no_thread_does() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let few = block_priority(2, FOR_EVER);
        let _block = few.begin_block();
        YIELDS_TO_BLOCKS.set(false);
        assert!(!waits(pin!(few.wait_for_block())));
        YIELDS_TO_BLOCKS.set(true);
        assert!(waits(pin!(few.wait_for_block())));
        let many = block_priority(FEW_CORES + 1, FOR_EVER);
        assert!(many.begin_block().is_none());
        assert!(!waits(pin!(many.wait_for_block())));
    }
}
