//! Values that a block has changed so far, applied to the tries while the block is executed.
//!
//! The commit thread pushes what was written since the last time; a worker, or a thread of the pool, applies it to the tries in
//! memory, one part at a time. The final root starts from tries that hold most of the changes already. Its result does not
//! depend on what was applied, so failures here are ignored: they show again in the final root, if they matter.

use niwaki_primitives::{Fault, StateDiff};
use niwaki_state::{BegunRoot, View, WorldState};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The changes that wait for the tries, and the thread that applies them.
pub(crate) struct IncrementalRoot<'b> {
    world: &'b WorldState,
    view: &'b View,
    pending: Mutex<VecDeque<Part>>,
    /// Held by the thread that applies a part.
    applying: Mutex<()>,
    /// Whether nothing more is to be applied: the final root is being made, or a part has failed.
    is_closed: AtomicBool,
    /// How many parts were begun.
    parts: AtomicU32,
    /// Whether the last part has been pushed.
    is_complete: AtomicBool,
}

enum Part {
    Changed(StateDiff),
    Begun(BegunRoot),
}

impl<'b> IncrementalRoot<'b> {
    pub(crate) fn new(world: &'b WorldState, view: &'b View) -> Self {
        Self {
            world,
            view,
            pending: Mutex::default(),
            applying: Mutex::default(),
            is_closed: AtomicBool::new(false),
            parts: AtomicU32::new(0),
            is_complete: AtomicBool::new(false),
        }
    }

    pub(crate) fn push(&self, changed: StateDiff, is_last: bool) {
        self.pending().push_back(Part::Changed(changed));
        self.is_complete.store(is_last, Ordering::Relaxed);
    }

    /// Whether a part waits for a thread.
    pub(crate) fn is_pending(&self) -> bool {
        !self.is_closed() && !self.pending().is_empty()
    }

    /// Whether all that was pushed is applied, as far as it will be.
    pub(crate) fn is_applied(&self) -> bool {
        !self.is_pending() && self.applying.try_lock().is_ok()
    }

    /// Applies some of what waits, unless another thread does. Returns whether there was anything.
    pub(crate) fn apply_some(&self) -> bool {
        let applying = self.applying.try_lock();
        applying.is_ok_and(|_applying| self.apply_next())
    }

    /// Applies all that waits.
    pub(crate) fn apply_all(&self) {
        let applying = self.applying.lock();
        let _applying = applying.unwrap_or_else(PoisonError::into_inner);
        while self.apply_next() {}
    }

    fn apply_next(&self) -> bool {
        if self.is_closed() {
            return false;
        }
        let Some(part) = self.pending().pop_front() else {
            return false;
        };
        match catch_unwind(AssertUnwindSafe(|| self.apply_batch(part))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(rest))) => self.pending().push_front(Part::Begun(rest)),
            Ok(Err(_)) | Err(_) => drop(self.close_on_drop()),
        }
        true
    }

    /// Applies a batch of `part`. Returns what is left of it.
    fn apply_batch(&self, part: Part) -> Result<Option<BegunRoot>, Fault> {
        let mut begun = match part {
            Part::Begun(begun) => begun,
            Part::Changed(changed) => {
                self.parts.fetch_add(1, Ordering::Relaxed);
                self.world.begin_root(self.view, &changed)?
            }
        };
        let is_closed = || self.is_closed();
        let is_last = self.is_complete.load(Ordering::Relaxed);
        let is_left = self
            .world
            .go_on_with_root(self.view, &mut begun, is_last, &is_closed)?;
        Ok(is_left.then_some(begun))
    }

    /// How many parts were begun.
    pub(crate) fn parts(&self) -> u32 {
        self.parts.load(Ordering::Relaxed)
    }

    /// When the guard is dropped, no thread begins with anything more.
    pub(crate) fn close_on_drop(&self) -> CloseOnDrop<'_> {
        CloseOnDrop(&self.is_closed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn pending(&self) -> MutexGuard<'_, VecDeque<Part>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`IncrementalRoot::close_on_drop`].
pub(crate) struct CloseOnDrop<'p>(&'p AtomicBool);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
