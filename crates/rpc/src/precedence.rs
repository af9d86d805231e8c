//! A block before everything else.
//!
//! What a consensus client waits for comes first: threads that serve others run at a lower priority,
//! and where there are few processors they begin nothing while a block or a fork choice is handled.
//! Without that, readers and their clients take every processor but one, or that one too, from a block
//! that is late already.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Added to the niceness of threads that serve what no block waits for.
const NICE: i32 = 5;

/// With more processors than these a block leaves enough of them to others.
const FEW_CORES: usize = 4;

/// So long a request waits for one block at most; then it shares the processors by its priority.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(100);

thread_local! {
    static YIELDS: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of the calling thread, which serves what no block waits for.
pub fn yield_to_blocks() {
    YIELDS.set(true);
    // Of the calling thread only, on Linux; elsewhere it is refused or harmless.
    let _ = rustix::process::nice(NICE);
}

/// Whether a block is handled.
#[derive(Debug)]
pub(crate) struct Precedence {
    is_for_blocks: bool,
    longest_wait: Duration,
    /// Whether there is a time in `since`: most requests ask no more.
    is_taken: AtomicBool,
    since: Mutex<Option<Instant>>,
    is_over: Notify,
}

impl Precedence {
    /// On so many processors; no request waits longer for one block than `longest_wait`.
    pub(crate) fn new(cores: usize, longest_wait: Duration) -> Self {
        Self {
            is_for_blocks: cores <= FEW_CORES,
            longest_wait,
            is_taken: AtomicBool::new(false),
            since: Mutex::new(None),
            is_over: Notify::new(),
        }
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, since: Option<Instant>) {
        *self.since() = since;
        self.is_taken.store(since.is_some(), Ordering::Relaxed);
    }

    /// Does `job`, and has others wait until it is done.
    pub(crate) fn over_others(&self, job: impl FnOnce()) {
        if !self.is_for_blocks {
            return job();
        }
        self.set(Some(Instant::now()));
        job();
        self.set(None);
        self.is_over.notify_waiters();
    }

    /// Waits until the block that is handled is done, on a thread that serves what no block waits for.
    /// It does not wait for the next one: a stream of blocks must not keep a request for ever.
    pub(crate) async fn give_way(&self) {
        if !self.is_taken.load(Ordering::Relaxed) || !YIELDS.get() {
            return;
        }
        let is_over = self.is_over.notified();
        let since = *self.since();
        let left = since.and_then(|since| self.longest_wait.checked_sub(since.elapsed()));
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

    /// Timers need one.
    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_time().build().unwrap()
    }

    fn waits(request: Pin<&mut impl Future>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        request.poll(&mut context).is_pending()
    }

    /// Whether a request waits that comes while a block is handled, to a thread that yields or does not.
    fn waits_within_block(precedence: &Precedence, yields: bool) -> bool {
        YIELDS.set(yields);
        let mut has_waited = false;
        precedence.over_others(|| has_waited = waits(pin!(precedence.give_way())));
        has_waited
    }

    #[test]
    fn a_request_waits_for_the_block_that_is_handled_and_not_for_the_next() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let precedence = Precedence::new(2, FOR_EVER);
        YIELDS.set(true);
        let mut request = pin!(precedence.give_way());
        precedence.over_others(|| {
            assert!(waits(request.as_mut()));
            assert!(waits(request.as_mut()));
        });
        precedence.over_others(|| assert!(!waits(request.as_mut())));
        assert!(!waits(pin!(precedence.give_way())));
    }

    #[test]
    fn no_request_waits_longer_than_the_longest_wait() {
        let runtime = runtime();
        let _inside = runtime.enter();
        assert!(waits_within_block(&Precedence::new(2, FOR_EVER), true));
        assert!(!waits_within_block(
            &Precedence::new(2, Duration::ZERO),
            true
        ));
        let precedence = Precedence::new(2, Duration::from_millis(1));
        YIELDS.set(true);
        // Never returns if it waits for the end of what it is within.
        precedence.over_others(|| runtime.block_on(precedence.give_way()));
    }

    #[test]
    fn a_thread_that_blocks_wait_for_never_waits_nor_does_any_on_many_cores() {
        let runtime = runtime();
        let _inside = runtime.enter();
        assert!(!waits_within_block(&Precedence::new(2, FOR_EVER), false));
        let many = Precedence::new(FEW_CORES + 1, FOR_EVER);
        assert!(!waits_within_block(&many, true));
    }
}
