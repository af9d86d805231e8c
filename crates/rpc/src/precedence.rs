//! A block before everything else.
//!
//! What a consensus client waits for comes first: threads that serve others run at a lower priority,
//! and where there are few processors they begin nothing while a block is judged. Without that,
//! readers and their clients take every processor but one, or that one too, from a block that is
//! late already.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Added to the niceness of threads that serve what no block waits for.
const NICE: i32 = 5;

/// With more processors than these a block leaves enough of them to others.
const FEW_CORES: usize = 4;

/// So long calls wait for one block at most; then they share the processors by their priorities.
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

/// Whether a block is judged.
#[derive(Debug)]
pub(crate) struct Precedence {
    is_for_blocks: bool,
    longest_wait: Duration,
    is_taken: AtomicBool,
    since: Mutex<Option<Instant>>,
    is_over: Condvar,
}

impl Precedence {
    /// On so many processors; nobody waits longer for one block than `longest_wait`.
    pub(crate) const fn new(cores: usize, longest_wait: Duration) -> Self {
        Self {
            is_for_blocks: cores <= FEW_CORES,
            longest_wait,
            is_taken: AtomicBool::new(false),
            since: Mutex::new(None),
            is_over: Condvar::new(),
        }
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a call still waits for the block that has been judged since then.
    fn left_of(&self, since: Option<Instant>) -> Option<Duration> {
        let left = self.longest_wait.checked_sub(since?.elapsed());
        left.filter(|left| !left.is_zero())
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
        self.is_over.notify_all();
    }

    /// Waits while a block is judged, if the calling thread serves what no block waits for.
    pub(crate) fn give_way(&self) {
        if !self.is_taken.load(Ordering::Relaxed) || !YIELDS.get() {
            return;
        }
        let mut since = self.since();
        while let Some(left) = self.left_of(*since) {
            let waited = self.is_over.wait_timeout(since, left);
            since = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// A thread that yields, or does not, gives way; to be joined.
    fn begin_call(precedence: &Precedence, yields: bool, then: impl FnOnce()) {
        YIELDS.set(yields);
        precedence.give_way();
        then();
    }

    #[test]
    fn what_no_block_waits_for_begins_when_the_block_is_done() {
        let precedence = Precedence::new(2, FOR_EVER);
        let order = Mutex::new(Vec::new());
        let (begun, has_begun) = channel();
        thread::scope(|scope| {
            precedence.over_others(|| {
                scope.spawn(|| {
                    begun.send(()).unwrap();
                    begin_call(&precedence, true, || order.lock().unwrap().push("call"));
                });
                has_begun.recv().unwrap();
                (0..1000).for_each(|_| thread::yield_now());
                order.lock().unwrap().push("block");
            });
        });
        assert_eq!(*order.lock().unwrap(), ["block", "call"]);
    }

    /// Never returns if the call waits for the block.
    fn call_within_block(precedence: &Precedence, yields: bool) {
        precedence.over_others(|| {
            thread::scope(|scope| {
                scope.spawn(|| begin_call(precedence, yields, || ()));
            });
        });
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_wait() {
        call_within_block(&Precedence::new(2, Duration::ZERO), true);
        call_within_block(&Precedence::new(2, Duration::from_millis(1)), true);
    }

    #[test]
    fn a_thread_that_blocks_wait_for_never_waits_nor_does_any_on_many_cores() {
        call_within_block(&Precedence::new(2, FOR_EVER), false);
        call_within_block(&Precedence::new(FEW_CORES + 1, FOR_EVER), true);
    }
}
