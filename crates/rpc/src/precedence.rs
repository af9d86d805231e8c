//! A block before everything else.
//!
//! What a consensus client waits for comes first: threads that serve others run at a lower priority,
//! and where there are few processors they begin nothing while a block or a fork choice is handled or
//! waits for the worker that handles it. Without that, readers and their clients take every processor but
//! one, or that one too, from a block that is late already; a priority alone does not help a thread that was
//! just woken, which may have to wait for the end of another's slice.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    pub(crate) static YIELDS: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of the calling thread, which serves what no block waits for.
pub fn yield_to_blocks() {
    YIELDS.set(true);
    // Of the calling thread only, on Linux; elsewhere it is refused or harmless.
    let _ = rustix::process::nice(NICE);
}

/// Whether the calling thread serves what no block waits for.
pub(crate) fn yields() -> bool {
    YIELDS.get()
}

/// Whether blocks or fork choices are at hand.
#[derive(Debug)]
pub(crate) struct Precedence {
    is_for_blocks: bool,
    longest_wait: Duration,
    /// Whether there is a time in `at_hand`: most requests ask no more.
    is_taken: AtomicBool,
    at_hand: Mutex<AtHand>,
    is_over: Notify,
}

#[derive(Debug, Default)]
struct AtHand {
    count: usize,
    /// When the last of them came, if there are any.
    since: Option<Instant>,
}

/// A block or a fork choice. While it lives, others wait.
#[derive(Debug)]
pub(crate) struct First(Arc<Precedence>);

impl Drop for First {
    fn drop(&mut self) {
        let mut at_hand = self.0.at_hand();
        at_hand.count -= 1;
        if at_hand.count == 0 {
            at_hand.since = None;
            self.0.is_taken.store(false, Ordering::Relaxed);
            self.0.is_over.notify_waiters();
        }
    }
}

impl Precedence {
    /// On so many processors; no request waits longer for one block than `longest_wait`.
    pub(crate) fn new(cores: usize, longest_wait: Duration) -> Self {
        Self {
            is_for_blocks: cores <= FEW_CORES,
            longest_wait,
            is_taken: AtomicBool::new(false),
            at_hand: Mutex::default(),
            is_over: Notify::new(),
        }
    }

    fn at_hand(&self) -> MutexGuard<'_, AtHand> {
        self.at_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has others wait until what this gives is dropped.
    pub(crate) fn go_first(self: &Arc<Self>) -> Option<First> {
        if !self.is_for_blocks {
            return None;
        }
        let mut at_hand = self.at_hand();
        at_hand.count += 1;
        at_hand.since = Some(Instant::now());
        self.is_taken.store(true, Ordering::Relaxed);
        Some(First(Arc::clone(self)))
    }

    #[cfg(test)]
    pub(crate) fn is_at_hand(&self) -> bool {
        self.at_hand().count > 0
    }

    /// Waits until no block is at hand, on a thread that serves what no block waits for. It does not wait for
    /// one that comes after that, nor too long: a stream of blocks must not keep a request for ever.
    pub(crate) async fn give_way(&self) {
        if !self.is_taken.load(Ordering::Relaxed) || !yields() {
            return;
        }
        // Whoever ends after this is seen here or tells it.
        let is_over = self.is_over.notified();
        let since = self.at_hand().since;
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

    fn precedence(cores: usize, longest_wait: Duration) -> Arc<Precedence> {
        Arc::new(Precedence::new(cores, longest_wait))
    }

    #[test]
    fn a_request_waits_for_the_block_at_hand_and_not_for_the_next() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let precedence = precedence(2, FOR_EVER);
        YIELDS.set(true);
        let block = precedence.go_first();
        let mut request = pin!(precedence.give_way());
        assert!(waits(request.as_mut()));
        assert!(waits(request.as_mut()));
        drop(block);
        let next = precedence.go_first();
        assert!(!waits(request.as_mut()));
        assert!(waits(pin!(precedence.give_way())));
        drop(next);
        assert!(!waits(pin!(precedence.give_way())));
    }

    #[test]
    fn a_request_waits_until_the_last_of_those_at_hand_is_over() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let precedence = precedence(2, FOR_EVER);
        YIELDS.set(true);
        let (block, choice) = (precedence.go_first(), precedence.go_first());
        let mut request = pin!(precedence.give_way());
        assert!(waits(request.as_mut()));
        drop(block);
        assert!(waits(request.as_mut()));
        drop(choice);
        assert!(!waits(request.as_mut()));
    }

    #[test]
    fn a_request_that_sees_the_end_of_a_block_late_does_not_wait() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let precedence = precedence(2, FOR_EVER);
        YIELDS.set(true);
        drop(precedence.go_first());
        precedence.is_taken.store(true, Ordering::Relaxed);
        assert!(!waits(pin!(precedence.give_way())));
    }

    #[test]
    fn no_request_waits_longer_than_the_longest_wait() {
        let runtime = runtime();
        let _inside = runtime.enter();
        YIELDS.set(true);
        let none = precedence(2, Duration::ZERO);
        let _block = none.go_first();
        assert!(!waits(pin!(none.give_way())));
        let short = precedence(2, Duration::from_millis(1));
        let _block = short.go_first();
        // Never returns if it waits for the end of that.
        runtime.block_on(short.give_way());
    }

    #[test]
    fn a_thread_that_blocks_wait_for_never_waits_nor_does_any_on_many_cores() {
        let runtime = runtime();
        let _inside = runtime.enter();
        let few = precedence(2, FOR_EVER);
        let _block = few.go_first();
        YIELDS.set(false);
        assert!(!waits(pin!(few.give_way())));
        YIELDS.set(true);
        assert!(waits(pin!(few.give_way())));
        let many = precedence(FEW_CORES + 1, FOR_EVER);
        assert!(many.go_first().is_none());
        assert!(!waits(pin!(many.give_way())));
    }
}
