//! What is done beside a block by who runs its transactions ahead, where they run on all processors: threads of
//! their own would take a processor from the executing thread as often as from them.

use super::parts::Parts;
use crate::receipts::{By, Making};
use niwaki_execution::Errands;
use niwaki_state::ReadingAhead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What has changed goes into the tries after so many looks: a few values at a time would cost twice as much,
/// since all on the way to them is hashed again.
const LOOKS_PER_PART: u32 = 4;

/// See the module.
pub(super) struct BesideBlock<'b> {
    parts: &'b Parts<'b>,
    receipts: Arc<Making>,
    reading: &'b ReadingAhead<'b>,
    /// Whether somebody comes by, and stays to the end.
    is_visited: AtomicBool,
    /// Whoever stays has it.
    staying: Mutex<()>,
}

impl<'b> BesideBlock<'b> {
    pub(super) fn new(
        parts: &'b Parts<'b>,
        receipts: Arc<Making>,
        reading: &'b ReadingAhead<'b>,
    ) -> Self {
        Self {
            parts,
            receipts,
            reading,
            is_visited: AtomicBool::new(false),
            staying: Mutex::default(),
        }
    }

    pub(super) fn is_visited(&self) -> bool {
        self.is_visited.load(Ordering::Relaxed)
    }

    /// Whoever comes by has the tries to do first, and the executing thread is not to end long before that is done.
    pub(super) fn who_adds_receipts(&self) -> By {
        match self.is_visited() {
            true if self.parts.are_waiting() => By::Caller,
            true => By::Visitor,
            false => By::Crew,
        }
    }

    /// Whether what was written is to be listed, after so many looks, for the tries.
    pub(super) fn wants_part(
        &self,
        (looks, is_all): (u32, bool),
        are_senders_known: impl FnOnce() -> bool,
    ) -> bool {
        let is_due = match is_all {
            true => self.parts.count() > 0,
            // A thread of their own would take the processor from who recovers senders.
            false => {
                looks.is_multiple_of(LOOKS_PER_PART)
                    && !self.parts.are_waiting()
                    && (self.is_visited() || are_senders_known())
            }
        };
        is_due && !self.parts.is_over()
    }
}

impl Errands for BesideBlock<'_> {
    /// Receipts, which are few, then the tries.
    fn run(&self) -> bool {
        if !self.is_visited() {
            self.is_visited.store(true, Ordering::Relaxed);
            self.reading.leave_to_others();
        }
        self.receipts.go_on() || self.parts.go_on()
    }

    fn run_lesser(&self) -> bool {
        self.reading.go_on()
    }

    /// One thread stays until the root is being made.
    fn run_rest(&self) {
        let Ok(_staying) = self.staying.try_lock() else {
            return;
        };
        while !self.parts.is_over() {
            if !self.receipts.go_on() && !self.parts.go_on() {
                std::thread::yield_now();
            }
        }
        while self.receipts.go_on() {}
    }
}
