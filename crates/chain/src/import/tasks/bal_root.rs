//! The state root that a block access list claims, computed in parallel with the execution (EIP-7928).
//!
//! The list holds every value after the block, so the root can be computed as soon as the block comes. It counts only if the
//! execution changes exactly those values, which the caller compares: then it is the root that would be computed anyway.

use niwaki_execution::{BlockProgress, IdleWork, bal_state_diff};
use niwaki_primitives::{AccountChanges, Address, Fault, StateDiff, U256};
use niwaki_state::{ComputedRoot, View, WorldState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads that read the list's values into the caches. They wait for the disk more than they work, so they may be more than
/// there are processors.
const READERS: usize = 6;

/// From this part of the block's gas on the block will wait for the root soon, in [`BlockProgress::PARTS`].
const LATE_PART: u32 = BlockProgress::PARTS * 3 / 8;

/// The diff of an access list, and its root.
pub(crate) struct BalRoot {
    pub(crate) diff: StateDiff,
    pub(crate) root: ComputedRoot,
}

/// The task of one block.
pub(crate) struct BalRootTask<'b> {
    pub(crate) world: &'b WorldState,
    pub(crate) view: &'b View,
    pub(crate) bal: &'b [AccountChanges],
    /// Whether the block has been executed: then its values need no reading ahead any more.
    pub(crate) is_executed: &'b AtomicBool,
    /// The block's progress, if its transactions run on all processors.
    pub(crate) gas_part: Option<&'b AtomicU32>,
    pub(crate) gate: &'b RootGate,
}

impl BalRootTask<'_> {
    /// Computes the root. `None` if `is_useless`: called with the diff, once that is known, it tells whether the execution
    /// has failed or changed something else.
    pub(crate) fn run(
        &self,
        is_useless: &(dyn Fn(Option<&StateDiff>) -> bool + Sync),
    ) -> Result<Option<BalRoot>, Fault> {
        let _guard = self.gate.guard();
        let Some(diff) = self.read_diff(&|| is_useless(None))? else {
            return Ok(None);
        };
        if is_useless(Some(&diff)) {
            return Ok(None);
        }
        // A second thread would take the processor from the commit thread.
        let is_early = |part: &AtomicU32| part.load(Ordering::Relaxed) < LATE_PART;
        let root = match self.gas_part.is_some_and(is_early) {
            true => self.world.compute_root_single_threaded(self.view, &diff)?,
            false => self.world.compute_root(self.view, &diff)?,
        };
        Ok(Some(BalRoot { diff, root }))
    }

    /// The diff of the list. Meanwhile other threads load the trie paths of its changes, and read its other values into the caches
    /// until the block is executed. Once all is read, the gate closes.
    fn read_diff(&self, is_cancelled: &dyn Fn() -> bool) -> Result<Option<StateDiff>, Fault> {
        let readers = &AtomicUsize::new(READERS);
        std::thread::scope(|scope| {
            // Once the block is executed, the root loads what is left on more threads.
            scope.spawn(|| {
                self.world
                    .prefetch_trie_paths(self.view, changed(self.bal), self.is_executed)
            });
            for first in 0..READERS {
                let values = all_values(self.bal).skip(first).step_by(READERS);
                scope.spawn(move || {
                    self.view.prefetch_values(values, self.is_executed);
                    if readers.fetch_sub(1, Ordering::Relaxed) == 1 {
                        self.gate.close();
                    }
                });
            }
            bal_state_diff(self.bal, self.view, is_cancelled)
        })
    }
}

/// Accounts of the list that change, each before its changed slots.
pub(crate) fn changed(bal: &[AccountChanges]) -> impl Iterator<Item = (Address, Option<U256>)> {
    let changed = bal.iter().filter(|account| account.has_changes());
    changed.flat_map(|account| {
        let slots = account.storage_changes.iter();
        let slots = slots.map(|changes| Some(changes.slot));
        let both = std::iter::once(None).chain(slots);
        both.map(|slot| (account.address, slot))
    })
}

/// Accounts of the list, each before its slots.
fn all_values(bal: &[AccountChanges]) -> impl Iterator<Item = (Address, Option<U256>)> {
    bal.iter().flat_map(|account| {
        let both = std::iter::once(None).chain(account.storage_slots().map(Some));
        both.map(|slot| (account.address, slot))
    })
}

/// How often a worker at the gate looks whether the block is over.
const POLL: Duration = Duration::from_micros(200);

/// Keeps workers from speculating while the root of the access list is computed, once all values are read, which is mostly
/// waiting for the disk. The block waits for that root, and a transaction that no worker has executed costs no more on the
/// commit thread.
#[derive(Default)]
pub(crate) struct RootGate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

/// Opens the gate when dropped: the root is there, or there will be none.
pub(crate) struct RootGateGuard<'b>(&'b RootGate);

impl RootGate {
    pub(crate) fn guard(&self) -> RootGateGuard<'_> {
        RootGateGuard(self)
    }

    fn close(&self) {
        self.set(true);
    }

    fn set(&self, is_closed: bool) {
        *self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = is_closed;
        self.opened.notify_all();
    }
}

impl Drop for RootGateGuard<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl IdleWork for RootGate {
    fn run(&self) -> bool {
        false
    }

    fn run_low_priority(&self) -> bool {
        let is_closed = self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waits = *is_closed;
        if waits {
            drop(self.opened.wait_timeout(is_closed, POLL));
        }
        waits
    }

    fn drain(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn workers_wait_at_a_closed_gate_until_the_root_is_there_or_its_thread_panics() {
        let gate = RootGate::default();
        let panics = || {
            let _guard = gate.guard();
            assert!(!gate.run_low_priority());
            gate.close();
            assert!(gate.run_low_priority() && gate.run_low_priority());
            panic!("as it should")
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(!gate.run_low_priority() && !gate.run());
    }
}
