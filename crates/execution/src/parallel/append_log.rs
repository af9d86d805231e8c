//! A list that one thread appends to and others read from where they stopped. `tests/interleavings.rs` runs this file
//! too.

use super::sync::{AtomicUsize, COPY_BATCH, Mutex, Ordering};
use std::sync::PoisonError;

/// Items in the order in which they were appended.
pub(super) struct AppendLog<T> {
    items: Mutex<Vec<T>>,
    /// The number of items, read without the lock by readers that have them all.
    length: AtomicUsize,
}

impl<T: Clone> AppendLog<T> {
    /// An empty log with room for `items`.
    pub(super) fn with_capacity(items: usize) -> Self {
        Self {
            items: Mutex::new(Vec::with_capacity(items)),
            length: AtomicUsize::new(0),
        }
    }

    pub(super) fn append(&self, item: T) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push(item);
        self.length.store(items.len(), Ordering::Release);
    }

    /// Items from position `from` on, at most [`COPY_BATCH`] of them, so that the writer does not wait long.
    pub(super) fn since(&self, from: usize) -> Vec<T> {
        if self.length.load(Ordering::Acquire) <= from {
            return Vec::new();
        }
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.iter().skip(from).take(COPY_BATCH).cloned().collect()
    }
}
