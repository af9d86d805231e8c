//! The senders of a block's transactions while they are being recovered.
//!
//! One slot per transaction. Any thread may fill any slot, and none waits for another: a worker claims the next
//! unknown sender ([`SenderQueue::claim_next`]), the commit thread recovers the one that it needs at once.
//!
//! ```text
//! slots:  [ 0xa1 | 0xb2 |  -   |  -   | 0xc3 |  -  ]      next = 3: slot 2 is claimed, 3 and 5 are to be claimed
//! ```

use niwaki_primitives::Address;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The senders of a block's transactions, in order, as far as they are known.
#[derive(Debug, Default)]
pub struct SenderQueue {
    slots: Vec<OnceLock<Address>>,
    /// Workers claim from here on: all senders before it are known or claimed.
    next: AtomicUsize,
    /// A monotonic clock in nanoseconds, if [`SenderQueue::blocking`] is to be timed.
    clock: Option<fn() -> u64>,
    blocking_ns: AtomicU64,
    is_left_to_workers: AtomicBool,
}

impl SenderQueue {
    /// The senders of this many transactions; `known` has one entry for each, or fewer.
    pub(crate) fn new(
        transactions: usize,
        known: impl IntoIterator<Item = Option<Address>>,
    ) -> Self {
        let known = known.into_iter().chain(std::iter::repeat(None));
        let slot = |sender| match sender {
            Some(sender) => OnceLock::from(sender),
            None => OnceLock::new(),
        };
        Self {
            slots: known.take(transactions).map(slot).collect(),
            ..Self::default()
        }
    }

    /// The same, with [`SenderQueue::blocking`] timed by `clock`.
    pub(crate) fn timed(self, clock: fn() -> u64) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// The sender of a transaction, if it is known; `None` too if there is no such transaction.
    pub(crate) fn get(&self, index: usize) -> Option<Address> {
        self.slots.get(index)?.get().copied()
    }

    /// Sets a sender. One that is known already stays.
    pub(crate) fn put(&self, index: usize, sender: Address) {
        if let Some(slot) = self.slots.get(index) {
            let _ = slot.set(sender);
        }
    }

    /// The senders that are known, in order.
    pub fn known(&self) -> impl Iterator<Item = Address> {
        self.slots.iter().filter_map(OnceLock::get).copied()
    }

    /// How many are not known.
    pub fn missing(&self) -> usize {
        let slots = self.slots.iter();
        slots.filter(|slot| slot.get().is_none()).count()
    }

    /// Claims the next transaction whose sender is unknown and that no thread has claimed.
    pub(crate) fn claim_next(&self) -> Option<usize> {
        loop {
            // The counter only decides which thread claims which transaction.
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            if self.slots.get(next)?.get().is_none() {
                return Some(next);
            }
        }
    }

    /// From here on workers claim what is left, among other work, and threads that only recover senders stop.
    pub(crate) fn leave_to_workers(&self) {
        self.is_left_to_workers.store(true, Ordering::Relaxed);
    }

    /// Whether workers claim what is left.
    pub(crate) fn is_left_to_workers(&self) -> bool {
        self.is_left_to_workers.load(Ordering::Relaxed)
    }

    /// From here on nothing can be claimed.
    pub(crate) fn stop(&self) {
        self.next.store(self.slots.len(), Ordering::Relaxed);
    }

    /// Runs what a thread must do for a sender before it can continue with the block.
    pub(crate) fn blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(now) = self.clock else {
            return work();
        };
        let began = now();
        let done = work();
        let took = now().saturating_sub(began);
        self.blocking_ns.fetch_add(took, Ordering::Relaxed);
        done
    }

    /// How long [`SenderQueue::blocking`] took in all, nanoseconds; zero without a clock.
    pub fn blocking_ns(&self) -> u64 {
        self.blocking_ns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> Address {
        Address::repeat_byte(number)
    }

    #[test]
    fn known_senders_are_not_claimed_and_not_overwritten() {
        let senders = SenderQueue::new(5, [None, Some(address(1))]);
        senders.put(3, address(3));
        senders.put(1, address(9));
        senders.put(5, address(9));
        assert_eq!(senders.missing(), 3);
        let claimed: Vec<_> = std::iter::from_fn(|| senders.claim_next()).collect();
        assert_eq!(claimed, [0, 2, 4]);
        assert_eq!(senders.get(1), Some(address(1)));
        assert_eq!(senders.get(5), None);
        let known: Vec<_> = senders.known().collect();
        assert_eq!(known, [address(1), address(3)]);
    }

    #[test]
    fn no_sender_is_claimed_after_a_stop() {
        let senders = SenderQueue::new(3, []);
        assert_eq!(senders.claim_next(), Some(0));
        senders.stop();
        assert_eq!(senders.claim_next(), None);
    }

    #[test]
    fn blocking_work_is_timed_if_there_is_a_clock() {
        static TICKS: AtomicU64 = AtomicU64::new(0);
        let senders = SenderQueue::new(1, []).timed(|| TICKS.fetch_add(7, Ordering::Relaxed));
        assert_eq!(senders.blocking(|| 5), 5);
        senders.blocking(|| ());
        assert_eq!(senders.blocking_ns(), 14);
    }
}
