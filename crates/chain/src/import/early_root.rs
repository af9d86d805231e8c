//! What is done for a block's state root while the block is executed.
//!
//! A list that the block has brought tells what every account and slot is after it, so the trie's work can
//! begin when the block comes. It counts only if the block has changed exactly that, which is compared value
//! by value: then it is what the ordinary way would have made. Without a list, what has changed by then goes
//! into the tries, and the root is made from there. Whatever comes of a block that is refused stays in
//! memory, and the next one begins at it.

use super::{PREFETCH_GAS, Refusal, fault};
use crate::Chain;
use niwaki_execution::{Executed, OnTheWay, PARTS, Shares, diff_of_access_list};
use niwaki_primitives::{AccountChanges, Address, Fault, Fork, RecoveredBlock, StateDiff, U256};
use niwaki_state::{Prepared, View};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Threads that read what the list names while the caches do not hold it. They wait for the disk more than
/// they work, so they may be more than processors.
const READERS: usize = 6;

/// What a list leads to.
pub(super) struct EarlyRoot {
    diff: StateDiff,
    prepared: Prepared,
}

/// How fast the changes of a block go into the tries.
#[derive(Default)]
struct Pace {
    /// Parts of the gas up to which a root was begun last, and before that.
    parts: [u32; 2],
    /// How long that took, if it has ended.
    took: Option<Duration>,
    root_begun: u32,
}

/// The first root of a block is begun when so many parts of its gas are used at most: it takes as long as a
/// quarter of them.
const FIRST_BY: u32 = PARTS * 5 / 8;

impl Pace {
    /// Whether a root that is begun now, with so many parts of the gas used in the time that has `passed`, can
    /// be done when the block has been executed; then it is begun.
    fn leaves_time(&mut self, part: u32, passed: Duration) -> bool {
        let [last, before] = self.parts;
        let has_time = match self.took {
            None => part <= FIRST_BY,
            Some(took) => {
                let expected = took * (part - last) / (last - before).max(1);
                expected <= passed * (PARTS - part) / part
            }
        };
        if has_time {
            self.parts = [part, last];
        }
        has_time
    }
}

type Outcome = Result<(Executed, Shares), Refusal>;

/// What executing a block gave, and what was done for its root beside that.
pub(super) struct Ran {
    pub(super) executed: Executed,
    pub(super) shares: Shares,
    /// The root that its list leads to, if it has brought one.
    pub(super) early: Option<EarlyRoot>,
    /// How often its changes so far went into the tries.
    pub(super) root_begun: u32,
    /// How long the root was waited for when the block had been executed.
    pub(super) waited: Duration,
}

/// Whether executing the block gave these changes.
fn gives(outcome: &Outcome, diff: &StateDiff) -> bool {
    let executed = outcome.as_ref().ok();
    executed.is_some_and(|(executed, _)| executed.diff == *diff)
}

/// Accounts of the list that change, each before its changed slots.
fn changed(list: &[AccountChanges]) -> impl Iterator<Item = (Address, Option<U256>)> {
    let changed = list.iter().filter(|account| account.has_changes());
    changed.flat_map(|account| {
        let slots = account.storage_changes.iter();
        let slots = slots.map(|changes| Some(changes.slot));
        let both = std::iter::once(None).chain(slots);
        both.map(|slot| (account.address, slot))
    })
}

/// Accounts of the list, each before its slots.
fn listed(list: &[AccountChanges]) -> impl Iterator<Item = (Address, Option<U256>)> {
    list.iter().flat_map(|account| {
        let both = std::iter::once(None).chain(account.storage_slots().map(Some));
        both.map(|slot| (account.address, slot))
    })
}

impl Chain {
    /// Executes a block, with the access list that it has brought, and where that takes long enough, does
    /// beside it what its root needs.
    pub(super) fn execute_ahead(
        &self,
        block: &RecoveredBlock,
        list: Option<&[AccountChanges]>,
        view: &mut View,
    ) -> Result<Ran, Refusal> {
        let is_long = block.block.header.gas_used >= PREFETCH_GAS;
        match list {
            Some(list) if is_long => self.execute_beside_root((block, list), view),
            None if is_long => {
                let is_executed = AtomicBool::new(false);
                let work = |view: &View| self.execute_beside_tries(block, (view, &is_executed));
                self.world().with_prefetch(view, &is_executed, work)
            }
            _ => {
                let (executed, shares) = self.execute((block, list), view, None)?;
                Ok(Ran {
                    executed,
                    shares,
                    early: None,
                    root_begun: 0,
                    waited: Duration::ZERO,
                })
            }
        }
    }

    /// Executes a block. What it has changed by then goes into the tries meanwhile, now and then, if there is a
    /// processor for it: the root, which begins at the tries as they are, has less to do.
    fn execute_beside_tries(
        &self,
        block: &RecoveredBlock,
        (view, is_executed): (&View, &AtomicBool),
    ) -> Result<Ran, Refusal> {
        let has_processor = self.has_processor_for_root(block);
        std::thread::scope(|scope| {
            let (mut pace, start) = (Pace::default(), Instant::now());
            // What fails or panics here does so in the ordinary way too, or does not matter.
            let end = |beginning: &mut Option<ScopedJoinHandle<'_, _>>, pace: &mut Pace| {
                if let Some(Ok((Ok(true), took))) = beginning.take().map(ScopedJoinHandle::join) {
                    pace.root_begun += 1;
                    pace.took = Some(took);
                }
            };
            let mut beginning = None;
            let begin = |part, changed: &mut dyn FnMut() -> StateDiff| {
                let is_free = beginning.as_ref().is_none_or(ScopedJoinHandle::is_finished);
                if is_free && block.senders.missing() == 0 {
                    end(&mut beginning, &mut pace);
                    if !pace.leaves_time(part, start.elapsed()) {
                        return;
                    }
                    let diff = changed();
                    beginning = Some(scope.spawn(move || {
                        let start = Instant::now();
                        let begun = self.world().begin_root(view, &diff, is_executed);
                        (begun, start.elapsed())
                    }));
                    if cfg!(test) {
                        // The blocks of tests are over before it begins.
                        end(&mut beginning, &mut pace);
                    }
                }
            };
            let begin: Option<OnTheWay<'_>> = has_processor.then(|| Box::new(begin) as _);
            let executed = self.execute((block, None), view, begin);
            let ended = Instant::now();
            is_executed.store(true, Ordering::Relaxed);
            end(&mut beginning, &mut pace);
            let (executed, shares) = executed?;
            Ok(Ran {
                executed,
                shares,
                early: None,
                root_begun: pace.root_begun,
                waited: ended.elapsed(),
            })
        })
    }

    /// Whether more threads work on a block than run its transactions: those that recover senders are done
    /// when a root is begun. Before Byzantium each transaction has its root made in its turn.
    fn has_processor_for_root(&self, block: &RecoveredBlock) -> bool {
        // Tests begin roots on any machine, and whatever runs beside.
        let is_free = self.sender_threads() > self.parallelism().threads || cfg!(test);
        is_free && self.spec().fork_of(&block.block.header) >= Fork::Byzantium
    }

    /// Executes a block, and makes the root that its list leads to beside that; `None` if that could not
    /// be made.
    fn execute_beside_root(
        &self,
        (block, list): (&RecoveredBlock, &[AccountChanges]),
        view: &View,
    ) -> Result<Ran, Refusal> {
        let (is_executed, outcome) = (AtomicBool::new(false), OnceLock::new());
        let (early, ended) = std::thread::scope(|scope| {
            let early = scope.spawn(|| {
                let is_refused = || outcome.get().is_some_and(Outcome::is_err);
                let diff = self.read_listed(list, view, &is_executed, &is_refused)?;
                let Some(diff) = diff else {
                    return Ok(None);
                };
                // Of a block that has come to something else already, nobody wants that root.
                let is_vain = outcome.get().is_some_and(|outcome| !gives(outcome, &diff));
                let root = (!is_vain).then(|| self.early_root(diff, view));
                root.transpose()
            });
            let executed = self.execute((block, Some(list)), view, None);
            let ended = Instant::now();
            is_executed.store(true, Ordering::Relaxed);
            outcome.get_or_init(|| executed);
            (early.join(), ended)
        });
        let outcome = outcome.into_inner();
        let (executed, shares) = outcome.expect("it was executed")?;
        // What fails or panics here does so in the ordinary way too, or does not matter.
        let early = early.unwrap_or(Ok(None)).unwrap_or_else(|_: Fault| None);
        Ok(Ran {
            executed,
            shares,
            early,
            root_begun: 0,
            waited: ended.elapsed(),
        })
    }

    /// The changes that the list leads to. Meanwhile the ways to them are loaded, and what else the list
    /// names is read, until the block `is_executed`.
    fn read_listed(
        &self,
        list: &[AccountChanges],
        view: &View,
        is_executed: &AtomicBool,
        is_refused: &dyn Fn() -> bool,
    ) -> Result<Option<StateDiff>, Fault> {
        std::thread::scope(|scope| {
            // Once the block is executed, more threads load what is left.
            scope.spawn(|| self.world().load_ways(view, changed(list), is_executed));
            for first in 0..READERS {
                let wanted = listed(list).skip(first).step_by(READERS);
                scope.spawn(move || view.read_ahead(wanted, is_executed));
            }
            diff_of_access_list(list, view, is_refused)
        })
    }

    fn early_root(&self, diff: StateDiff, view: &View) -> Result<EarlyRoot, Fault> {
        let prepared = self.world().prepare(view, &diff)?;
        Ok(EarlyRoot { diff, prepared })
    }

    /// The root after a block that has been executed; whether it is the early one.
    pub(super) fn root_of(
        &self,
        view: &View,
        executed: &Executed,
        early: Option<EarlyRoot>,
    ) -> Result<(Prepared, bool), Refusal> {
        match early {
            Some(early) if early.diff == executed.diff => Ok((early.prepared, true)),
            _ => {
                let prepared = self.world().prepare(view, &executed.diff).map_err(fault)?;
                Ok((prepared, false))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_begun_if_it_can_be_done_in_time() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        // Nobody knows yet how long one takes: not when most of the block is over.
        assert!(!pace.leaves_time(FIRST_BY + 1, ms(10)));
        assert!(pace.leaves_time(8, ms(8)));
        pace.took = Some(ms(4));
        // Two parts more take 1 ms, as long as two parts are executed: six are left, or none and a half.
        assert!(pace.leaves_time(10, ms(10)));
        pace.took = Some(ms(1));
        assert!(
            !pace.leaves_time(15, ms(15)),
            "2.5 ms for the one that is left"
        );
        assert!(pace.leaves_time(15, ms(38)), "as much is left");
    }
}
