//! What is done beside a block by who runs its transactions ahead, where they run on all processors: threads of
//! their own would take a processor from the executing thread as often as from them.

use super::parts::Parts;
use crate::receipts::{By, Making};
use niwaki_execution::{Errands, SoFar};
use niwaki_state::TriePrefetcher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A part of what has changed goes into the tries when this share of the gas is used that was left at the part
/// before. All on the way to a value is hashed again with each part, so a few large ones cost less than many; the
/// root waits for the last, so they get smaller.
const SHARE_OF_REST: u32 = 8;

/// The same while there are senders to recover too, of whom each costs as much whoever does it.
const SHARE_BESIDE_SENDERS: u32 = 4;

/// No part is less, in [`SoFar::PARTS`].
const LEAST_PART: u32 = 2;

/// See the module.
pub(super) struct BesideBlock<'b> {
    parts: &'b Parts<'b>,
    receipts: Arc<Making>,
    reading: &'b TriePrefetcher<'b>,
    /// Whether somebody comes by, and stays to the end.
    is_visited: AtomicBool,
    /// Whoever stays has it.
    staying: Mutex<()>,
    /// When the last part was taken, in [`SoFar::PARTS`].
    last_part: AtomicU32,
}

impl<'b> BesideBlock<'b> {
    pub(super) fn new(
        parts: &'b Parts<'b>,
        receipts: Arc<Making>,
        reading: &'b TriePrefetcher<'b>,
    ) -> Self {
        Self {
            parts,
            receipts,
            reading,
            is_visited: AtomicBool::new(false),
            staying: Mutex::default(),
            last_part: AtomicU32::new(0),
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

    /// Whether what was written is to be listed for the tries. Then it is asked again for the next part only.
    pub(super) fn wants_part(
        &self,
        so_far: &SoFar<'_>,
        are_senders_known: impl FnOnce() -> bool,
    ) -> bool {
        if self.parts.is_over() {
            return false;
        }
        if so_far.is_all() {
            return self.parts.count() > 0;
        }
        let last = self.last_part.load(Ordering::Relaxed);
        let is_due = |share: u32| {
            let rest = SoFar::PARTS.saturating_sub(last);
            so_far.part >= last + LEAST_PART.max(rest / share)
        };
        if !is_due(SHARE_OF_REST) || self.parts.are_waiting() {
            return false;
        }
        // A thread of their own would take the processor from who recovers senders.
        let is_wanted = are_senders_known() || self.is_visited() && is_due(SHARE_BESIDE_SENDERS);
        if is_wanted {
            self.last_part.store(so_far.part, Ordering::Relaxed);
        }
        is_wanted
    }
}

impl Errands for BesideBlock<'_> {
    /// Receipts, which are few, then the tries, then ways through them: the root waits for what is read too late, and
    /// for no sender.
    fn run(&self) -> bool {
        if !self.is_visited() {
            self.is_visited.store(true, Ordering::Relaxed);
            self.reading.hand_over();
        }
        self.receipts.go_on() || self.parts.go_on() || self.reading.load_some()
    }

    fn run_lesser(&self) -> bool {
        false
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

/// Who runs transactions ahead looks again so soon whether the block is over.
const LOOK: Duration = Duration::from_micros(200);

/// Keeps whoever runs the transactions of a block ahead from that until the root is made that the block's list leads
/// to, once nobody reads values for it, which is to wait for the disk. The block waits for that root, and a
/// transaction that nobody has begun costs no more in its turn.
#[derive(Default)]
pub(super) struct AfterRoot {
    is_awaited: Mutex<bool>,
    made: Condvar,
}

/// When it is dropped, the root is there, or there will be none.
pub(super) struct MakingRoot<'b>(&'b AfterRoot);

impl AfterRoot {
    pub(super) fn making(&self) -> MakingRoot<'_> {
        MakingRoot(self)
    }

    /// From here on the root comes first.
    pub(super) fn await_it(&self) {
        self.set(true);
    }

    fn set(&self, is_awaited: bool) {
        *self
            .is_awaited
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = is_awaited;
        self.made.notify_all();
    }
}

impl Drop for MakingRoot<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Errands for AfterRoot {
    fn run(&self) -> bool {
        false
    }

    fn run_lesser(&self) -> bool {
        let is_awaited = self
            .is_awaited
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waits = *is_awaited;
        if waits {
            drop(self.made.wait_timeout(is_awaited, LOOK));
        }
        waits
    }

    fn run_rest(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn nobody_runs_ahead_until_the_root_is_made_or_its_maker_has_failed() {
        let after_root = AfterRoot::default();
        let fails = || {
            let _making = after_root.making();
            assert!(!after_root.run_lesser());
            after_root.await_it();
            assert!(after_root.run_lesser() && after_root.run_lesser());
            panic!("as it should")
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        assert!(!after_root.run_lesser() && !after_root.run());
    }
}
