//! Events of the pool, delivered to listeners in order.
//!
//! Events are queued while the pool is locked and delivered after it is unlocked, by whichever thread gets to it first:
//! so listeners see them in order, and may call the pool. At most 65,536 events wait for a slow listener.

use crate::transaction::PooledTransaction;
use niwaki_primitives::B256;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Events that may wait for a slow listener; beyond, the oldest are dropped and counted.
const MAX_UNDELIVERED: usize = 1 << 16;

/// Why a transaction left the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// A block included it.
    Included,
    /// A block used its nonce for another transaction.
    Stale,
    /// A transaction with the same nonce bids more.
    Replaced,
    /// The pool is full of transactions that bid more.
    Evicted,
    /// It was in the pool for longer than the operator allows.
    Expired,
    /// It can't be in any block, by the rules of a new fork or by the block builder's attempt.
    Invalid,
    /// Its score fell below the minimum.
    Penalized,
}

impl DropReason {
    /// Its label in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Included => "confirmed",
            Self::Stale => "stale",
            Self::Replaced => "replaced",
            Self::Evicted => "dropped",
            Self::Expired => "expired",
            Self::Invalid => "invalidated",
            Self::Penalized => "below_min_score",
        }
    }
}

/// An event.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the texts above name the fields")]
pub enum PoolEvent {
    /// A transaction was added.
    Added {
        tx: Arc<PooledTransaction>,
        /// Whether the next block could include it; if not, it is queued.
        pending: bool,
    },
    /// A queued transaction became pending: the next block could include it.
    Promoted { tx: Arc<PooledTransaction> },
    /// A transaction was removed.
    Dropped {
        tx: Arc<PooledTransaction>,
        reason: DropReason,
        /// Whether the next block could have included it.
        pending: bool,
        /// The transaction that replaced it.
        replaced_by: Option<B256>,
    },
    /// Listeners were too slow for this many events.
    Missed { count: u64 },
}

type Listener = Box<dyn Fn(&PoolEvent) + Send + Sync>;

/// Undelivered events, and the listeners.
#[derive(Default)]
pub(crate) struct EventQueue {
    undelivered: Mutex<Undelivered>,
    listeners: Mutex<Vec<Listener>>,
}

#[derive(Default)]
struct Undelivered {
    events: VecDeque<PoolEvent>,
    missed: u64,
}

impl EventQueue {
    pub(crate) fn listen(&self, listener: Listener) {
        lock(&self.listeners).push(listener);
    }

    /// Queues events, in the order in which they happened.
    pub(crate) fn push(&self, events: Vec<PoolEvent>) {
        let mut undelivered = lock(&self.undelivered);
        for event in events {
            if undelivered.events.len() >= MAX_UNDELIVERED {
                undelivered.events.pop_front();
                undelivered.missed = undelivered.missed.saturating_add(1);
            }
            undelivered.events.push_back(event);
        }
    }

    /// Delivers the queued events, unless another thread, or a listener further up the stack of this one, is
    /// delivering: then that one delivers these too.
    pub(crate) fn deliver(&self) {
        while !self.is_empty() {
            let listeners = match self.listeners.try_lock() {
                Ok(listeners) => listeners,
                Err(TryLockError::Poisoned(listeners)) => listeners.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            while let Some(event) = self.next() {
                for listener in listeners.iter() {
                    listener(&event);
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        let undelivered = lock(&self.undelivered);
        undelivered.events.is_empty() && undelivered.missed == 0
    }

    fn next(&self) -> Option<PoolEvent> {
        let mut undelivered = lock(&self.undelivered);
        if undelivered.missed > 0 {
            let count = std::mem::take(&mut undelivered.missed);
            return Some(PoolEvent::Missed { count });
        }
        undelivered.events.pop_front()
    }
}

/// Locks, whether or not a thread has panicked with the lock held: no change of ours is left halfway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventQueue").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn events_beyond_65536_are_dropped_and_counted() {
        let queue = EventQueue::default();
        let one = || PoolEvent::Missed { count: 1 };
        queue.push((0..MAX_UNDELIVERED + 3).map(|_| one()).collect());
        let seen = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&seen);
        queue.listen(Box::new(move |event| {
            let PoolEvent::Missed { count } = event else {
                panic!("only such events were pushed")
            };
            sum.fetch_add(*count, Ordering::Relaxed);
        }));
        queue.deliver();
        let all = MAX_UNDELIVERED as u64 + 3;
        assert_eq!(seen.load(Ordering::Relaxed), all);
    }
}
