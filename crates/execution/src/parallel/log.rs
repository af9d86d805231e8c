//! A list that one thread adds to and others follow; `tests/interleavings.rs` runs this file too.

use super::sync::{AT_A_TIME, AtomicUsize, Mutex, Ordering};
use std::sync::PoisonError;

/// What has been added, in its order.
pub(super) struct Log<T> {
    items: Mutex<Vec<T>>,
    /// How many there are, for those who have them all.
    length: AtomicUsize,
}

impl<T: Clone> Log<T> {
    /// Empty, with room for so many.
    pub(super) fn with_capacity(items: usize) -> Self {
        Self {
            items: Mutex::new(Vec::with_capacity(items)),
            length: AtomicUsize::new(0),
        }
    }

    pub(super) fn add(&self, item: T) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push(item);
        self.length.store(items.len(), Ordering::Release);
    }

    /// Items behind the first `known`, not all of them if they are many: who adds some must not wait long.
    pub(super) fn since(&self, known: usize) -> Vec<T> {
        if self.length.load(Ordering::Acquire) <= known {
            return Vec::new();
        }
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let new = items.iter().skip(known).take(AT_A_TIME);
        new.cloned().collect()
    }
}
