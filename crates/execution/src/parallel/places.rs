//! The places of a block's transactions: who is at which, and what has come of it.
//!
//! One thread counts the places in their order, and takes each that nobody has. Others take places ahead of
//! it, put something there and tell it. What a transaction is, nobody here knows: `tests/interleavings.rs`
//! runs this file in the orders in which two and three threads can meet, with `sync` of its own.

use super::sync::{
    AtomicBool, AtomicU8, AtomicUsize, LEAP, LookAgain, Mutex, Ordering, Thread, WINDOW, park,
    yield_now,
};
use std::ops::Range;
use std::sync::PoisonError;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const DONE: u8 = 2;

/// One place: whether somebody is at it, and what was put there.
struct Place<T> {
    state: AtomicU8,
    content: Mutex<Option<T>>,
}

impl<T> Place<T> {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            content: Mutex::new(None),
        }
    }

    /// Whether nobody has it. That may change the next moment.
    fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn take(&self) -> bool {
        let taken = self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }
}

/// The places of a block, and how far the counting thread is.
pub(super) struct Places<T> {
    places: Vec<Place<T>>,
    /// Behind all that were taken ahead.
    next: AtomicUsize,
    /// How many count already.
    counted: AtomicUsize,
    is_over: AtomicBool,
    counting: Thread,
    /// Whether all may be taken before the first one counts.
    all_ahead: bool,
}

impl<T> Places<T> {
    /// So many places, which the thread `counting` will count.
    pub(super) fn new(places: usize, counting: Thread, all_ahead: bool) -> Self {
        Self {
            places: (0..places).map(|_| Place::new()).collect(),
            next: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            counting,
            all_ahead,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    /// How many do not count yet.
    pub(super) fn left(&self) -> usize {
        let counted = self.counted.load(Ordering::Relaxed);
        self.places.len().saturating_sub(counted)
    }

    /// Takes the place whose turn it is; whether nobody had it.
    pub(super) fn take(&self, index: usize) -> bool {
        self.places[index].take()
    }

    /// The place at `index` counts, and all before it.
    pub(super) fn count(&self, index: usize) {
        self.counted
            .store(index.saturating_add(1), Ordering::Relaxed);
    }

    /// From here on nobody takes a place ahead.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Takes the next place that nobody has and that is wanted, if it is not too far ahead: one behind those
    /// that others are at, else one that they have leapt over.
    fn take_next(&self, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.load(Ordering::Relaxed);
        if self.all_ahead {
            return self.take_first(next..self.places.len(), &is_wanted);
        }
        let counted = self.counted.load(Ordering::Relaxed);
        let end = counted.saturating_add(WINDOW).min(self.places.len());
        let from = next.max(counted.saturating_add(LEAP));
        let first = counted.saturating_add(1);
        self.take_first(from..end, &is_wanted)
            .or_else(|| self.take_first(first..from.min(end), &is_wanted))
    }

    fn take_first(
        &self,
        mut range: Range<usize>,
        is_wanted: &impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let index = range.find(|index| {
            let place = &self.places[*index];
            place.is_free() && is_wanted(*index) && place.take()
        })?;
        self.next
            .fetch_max(index.saturating_add(1), Ordering::Relaxed);
        Some(index)
    }

    /// Takes a place ahead and puts there what `work` gives; whether there was one to take.
    fn do_next(&self, is_wanted: impl Fn(usize) -> bool, work: impl FnOnce(usize) -> T) -> bool {
        let Some(index) = self.take_next(is_wanted) else {
            return false;
        };
        let done = work(index);
        let place = &self.places[index];
        *place.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        place.state.store(DONE, Ordering::Release);
        self.counting.unpark();
        true
    }

    /// Takes places ahead until there is none left, as long as nothing else is to be done between them: what
    /// `run_errand` does, and tells whether it was anything.
    pub(super) fn work(
        &self,
        is_wanted: impl Fn(usize) -> bool,
        mut work: impl FnMut(usize) -> T,
        mut run_errand: impl FnMut() -> bool,
    ) {
        while !self.is_over.load(Ordering::Relaxed) {
            if run_errand() || self.do_next(&is_wanted, &mut work) {
                continue;
            }
            if self.all_ahead || self.left() == 0 {
                return;
            }
            yield_now();
        }
    }

    /// Waits until whoever has a place has put something there, and takes others ahead meanwhile. For the
    /// counting thread alone.
    pub(super) fn wait_for(
        &self,
        index: usize,
        is_wanted: impl Fn(usize) -> bool,
        mut work: impl FnMut(usize) -> T,
    ) -> Option<T> {
        let place = &self.places[index];
        let mut again = LookAgain::default();
        while place.state.load(Ordering::Acquire) != DONE {
            if !again.soon() && !self.do_next(&is_wanted, &mut work) {
                park();
            }
        }
        let mut content = place.content.lock().unwrap_or_else(PoisonError::into_inner);
        content.take()
    }
}
