//! The senders of a block's transactions, which come one by one.
//!
//! One place for each transaction. Any thread may fill any of them, none waits for another. How a sender is
//! recovered is not known here.

use alloy_primitives::Address;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The senders of a block's transactions, in order, as far as they are known.
#[derive(Debug, Default)]
pub struct Senders {
    places: Vec<OnceLock<Address>>,
    /// Whoever looks for work begins here: all before it are known, or somebody is at them.
    next: AtomicUsize,
    /// A clock that never goes back, nanoseconds, if it is to be noted what senders cost in turn.
    clock: Option<fn() -> u64>,
    in_turn_ns: AtomicU64,
    is_handed_over: AtomicBool,
}

impl Senders {
    /// Those of so many transactions; `known` has one place for each, or fewer.
    pub fn new(transactions: usize, known: impl IntoIterator<Item = Option<Address>>) -> Self {
        let known = known.into_iter().chain(std::iter::repeat(None));
        let place = |sender| match sender {
            Some(sender) => OnceLock::from(sender),
            None => OnceLock::new(),
        };
        Self {
            places: known.take(transactions).map(place).collect(),
            ..Self::default()
        }
    }

    /// The same, and what [`Senders::in_turn`] does is timed.
    pub fn timed(self, clock: fn() -> u64) -> Self {
        Self {
            clock: Some(clock),
            ..self
        }
    }

    /// The sender of a transaction, if it is known; `None` too if there is no such transaction.
    pub fn get(&self, index: usize) -> Option<Address> {
        self.places.get(index)?.get().copied()
    }

    /// Makes a sender known. What is known already stays.
    pub fn put(&self, index: usize, sender: Address) {
        if let Some(place) = self.places.get(index) {
            let _ = place.set(sender);
        }
    }

    /// The senders that are known, in order.
    pub fn known(&self) -> impl Iterator<Item = Address> {
        self.places.iter().filter_map(OnceLock::get).copied()
    }

    /// How many are not known.
    pub fn missing(&self) -> usize {
        let places = self.places.iter();
        places.filter(|place| place.get().is_none()).count()
    }

    /// Takes the next transaction whose sender is unknown and that nobody has taken.
    pub fn take_next(&self) -> Option<usize> {
        loop {
            // Only who takes which hangs on the counter.
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            if self.places.get(next)?.get().is_none() {
                return Some(next);
            }
        }
    }

    /// From here on others take what is left, among other work: whoever does nothing else is to leave it to them.
    pub fn hand_over(&self) {
        self.is_handed_over.store(true, Ordering::Relaxed);
    }

    /// Whether others take what is left.
    pub fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Ordering::Relaxed)
    }

    /// From here on nobody finds anything to take.
    pub fn stop(&self) {
        self.next.store(self.places.len(), Ordering::Relaxed);
    }

    /// Does what a thread must do for a sender before it can go on with the block.
    pub fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(now) = self.clock else {
            return work();
        };
        let began = now();
        let done = work();
        let took = now().saturating_sub(began);
        self.in_turn_ns.fetch_add(took, Ordering::Relaxed);
        done
    }

    /// How long [`Senders::in_turn`] took in all, nanoseconds; zero without a clock.
    pub fn in_turn_ns(&self) -> u64 {
        self.in_turn_ns.load(Ordering::Relaxed)
    }
}

impl From<Vec<Address>> for Senders {
    fn from(senders: Vec<Address>) -> Self {
        Self::new(senders.len(), senders.into_iter().map(Some))
    }
}

impl FromIterator<Address> for Senders {
    fn from_iter<I: IntoIterator<Item = Address>>(senders: I) -> Self {
        Vec::from_iter(senders).into()
    }
}

impl Clone for Senders {
    fn clone(&self) -> Self {
        Self {
            places: self.places.clone(),
            clock: self.clock,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> Address {
        Address::repeat_byte(number)
    }

    #[test]
    fn what_is_known_is_not_taken_and_stays() {
        let senders = Senders::new(5, [None, Some(address(1))]);
        senders.put(3, address(3));
        senders.put(1, address(9));
        senders.put(5, address(9));
        assert_eq!(senders.missing(), 3);
        let taken: Vec<_> = std::iter::from_fn(|| senders.take_next()).collect();
        assert_eq!(taken, [0, 2, 4]);
        assert_eq!(senders.get(1), Some(address(1)));
        assert_eq!(senders.get(5), None);
        let known: Vec<_> = senders.known().collect();
        assert_eq!(known, [address(1), address(3)]);
        // A copy begins anew.
        assert_eq!(senders.clone().take_next(), Some(0));
    }

    #[test]
    fn nothing_is_taken_after_a_stop() {
        let senders = Senders::new(3, []);
        assert_eq!(senders.take_next(), Some(0));
        senders.stop();
        assert_eq!(senders.take_next(), None);
    }

    #[test]
    fn what_is_done_in_turn_is_timed_if_there_is_a_clock() {
        static TICKS: AtomicU64 = AtomicU64::new(0);
        let senders = Senders::new(1, []).timed(|| TICKS.fetch_add(7, Ordering::Relaxed));
        assert_eq!(senders.in_turn(|| 5), 5);
        senders.in_turn(|| ());
        assert_eq!(senders.in_turn_ns(), 14);
    }
}
