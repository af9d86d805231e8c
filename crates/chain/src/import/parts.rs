//! What a block has changed so far, in parts, on its way into the tries.

use niwaki_primitives::{Fault, StateDiff};
use niwaki_state::{BegunRoot, View, WorldState};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. One thread puts parts here, and whoever has time puts them into the tries, one at a time.
pub(super) struct Parts<'b> {
    world: &'b WorldState,
    view: &'b View,
    waiting: Mutex<VecDeque<Part>>,
    /// Whoever is at work has it.
    turn: Mutex<()>,
    /// Whether nothing more is to be done: the root is being made, or something has failed, which it does in
    /// the ordinary way too if it matters.
    is_over: AtomicBool,
    /// How many parts were begun.
    count: AtomicU32,
    /// Whether the last one is there.
    are_all: AtomicBool,
}

enum Part {
    Changed(StateDiff),
    Begun(BegunRoot),
}

impl<'b> Parts<'b> {
    pub(super) fn new(world: &'b WorldState, view: &'b View) -> Self {
        Self {
            world,
            view,
            waiting: Mutex::default(),
            turn: Mutex::default(),
            is_over: AtomicBool::new(false),
            count: AtomicU32::new(0),
            are_all: AtomicBool::new(false),
        }
    }

    pub(super) fn put(&self, part: StateDiff, is_last: bool) {
        self.waiting().push_back(Part::Changed(part));
        self.are_all.store(is_last, Ordering::Relaxed);
    }

    /// Whether something waits.
    pub(super) fn are_waiting(&self) -> bool {
        !self.is_over() && !self.waiting().is_empty()
    }

    /// Whether all that came is in the tries, as far as it will be.
    pub(super) fn are_done(&self) -> bool {
        !self.are_waiting() && self.turn.try_lock().is_ok()
    }

    /// Puts some of what waits into the tries, if nobody else is at it; whether there was anything.
    pub(super) fn go_on(&self) -> bool {
        let turn = self.turn.try_lock();
        turn.is_ok_and(|_turn| self.do_some())
    }

    /// Puts all that waits into the tries.
    pub(super) fn go_to_the_end(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        while self.do_some() {}
    }

    fn do_some(&self) -> bool {
        if self.is_over() {
            return false;
        }
        let Some(part) = self.waiting().pop_front() else {
            return false;
        };
        match catch_unwind(AssertUnwindSafe(|| self.move_on(part))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(left))) => self.waiting().push_front(Part::Begun(left)),
            Ok(Err(_)) | Err(_) => drop(self.ending()),
        }
        true
    }

    /// What is left of `part` when a lot of it is in the tries.
    fn move_on(&self, part: Part) -> Result<Option<BegunRoot>, Fault> {
        let mut begun = match part {
            Part::Begun(begun) => begun,
            Part::Changed(part) => {
                self.count.fetch_add(1, Ordering::Relaxed);
                self.world.begin_root(self.view, &part)?
            }
        };
        let is_over = || self.is_over();
        let is_last = self.are_all.load(Ordering::Relaxed);
        let is_left = self
            .world
            .go_on_with_root(self.view, &mut begun, is_last, &is_over)?;
        Ok(is_left.then_some(begun))
    }

    /// How many were begun.
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// When it is dropped, nobody begins with anything more.
    pub(super) fn ending(&self) -> Ending<'_> {
        Ending(&self.is_over)
    }

    /// Whether nobody begins with anything more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Part>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Parts::ending`].
pub(super) struct Ending<'p>(&'p AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
