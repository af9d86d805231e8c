//! What happened in the pool, told in order to whoever listens.
//!
//! Events are written down while the pool is locked and handed over afterwards, by whichever
//! thread comes first, so that listeners see them in order and may ask the pool things.

use crate::transaction::PooledTransaction;
use niwaki_primitives::B256;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Most events that wait for a slow listener; beyond, the oldest are counted and dropped.
const MAX_WAITING_EVENTS: usize = 1 << 16;

/// Why a transaction left the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// A block took it.
    Included,
    /// A block took another with its nonce.
    Stale,
    /// Another with its nonce pays more.
    Replaced,
    /// The pool is full of better ones.
    Evicted,
    /// It was here for longer than the operator allows.
    Expired,
    /// It can't be in any block any more, or whoever builds blocks said so.
    Invalid,
    /// Its score fell below the least.
    Penalized,
}

impl DropReason {
    /// The label of the metric that counts it.
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

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum PoolEvent {
    /// A transaction came in.
    Added {
        /// It.
        tx: Arc<PooledTransaction>,
        /// Whether a block could take it now; if not, it waits.
        pending: bool,
    },
    /// A transaction that waited can be taken by a block now.
    Promoted {
        /// It.
        tx: Arc<PooledTransaction>,
    },
    /// A transaction left.
    Dropped {
        /// It.
        tx: Arc<PooledTransaction>,
        /// Why.
        reason: DropReason,
        /// The one that replaced it.
        replaced_by: Option<B256>,
    },
    /// Listeners were too slow for this many events.
    Missed {
        /// How many.
        count: u64,
    },
}

type Listener = Box<dyn Fn(&PoolEvent) + Send + Sync>;

/// Events on their way, and who hears them.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    listeners: Mutex<Vec<Listener>>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<PoolEvent>,
    missed: u64,
}

impl Outbox {
    pub(crate) fn listen(&self, listener: Listener) {
        let mut listeners = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        listeners.push(listener);
    }

    /// Writes events down, in the order in which they happened.
    pub(crate) fn push(&self, events: Vec<PoolEvent>) {
        let mut waiting = self.waiting();
        for event in events {
            if waiting.events.len() >= MAX_WAITING_EVENTS {
                waiting.events.pop_front();
                waiting.missed = waiting.missed.saturating_add(1);
            }
            waiting.events.push_back(event);
        }
    }

    /// Hands over what waits, unless another thread, or a listener further up on this one, is at
    /// it; that one then hands over these too.
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
        let waiting = self.waiting();
        waiting.events.is_empty() && waiting.missed == 0
    }

    fn next(&self) -> Option<PoolEvent> {
        let mut waiting = self.waiting();
        if waiting.missed > 0 {
            let count = std::mem::take(&mut waiting.missed);
            return Some(PoolEvent::Missed { count });
        }
        waiting.events.pop_front()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_nobody_fetched_in_time_is_counted() {
        let outbox = Outbox::default();
        let one = || PoolEvent::Missed { count: 1 };
        outbox.push((0..MAX_WAITING_EVENTS + 3).map(|_| one()).collect());
        let seen = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&seen);
        outbox.listen(Box::new(move |event| {
            let PoolEvent::Missed { count } = event else {
                panic!("only such events were pushed")
            };
            sum.fetch_add(*count, Ordering::Relaxed);
        }));
        outbox.deliver();
        let all = MAX_WAITING_EVENTS as u64 + 3;
        assert_eq!(seen.load(Ordering::Relaxed), all);
    }
}
