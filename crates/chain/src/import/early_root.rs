//! What is done for a block's state root while the block is executed.
//!
//! A list that the block has brought tells what every account and slot is after it, so the trie's work can
//! begin when the block comes. It counts only if the block has changed exactly that, which is compared value
//! by value: then it is what the ordinary way would have made. Without a list, what has changed by then goes
//! into the tries, and the root is made from there. Whatever comes of a block that is refused stays in
//! memory, and the next one begins at it.

use super::errands::{AfterRoot, BesideBlock};
use super::parts::Parts;
use super::{Note, PREFETCH_GAS, Refusal, fault};
use crate::Chain;
use crate::receipts::{By, EarlyReceipts, Receipts};
use niwaki_execution::{Errands, Executed, OnTheWay, Shares, SoFar, diff_of_access_list};
use niwaki_primitives::{AccountChanges, Address, Fault, Fork, RecoveredBlock, StateDiff, U256};
use niwaki_state::{ComputedRoot, TriePrefetcher, View};
use niwaki_threads::WorkerPool;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Threads that read what the list names while the caches do not hold it. They wait for the disk more than
/// they work, so they may be more than processors.
const READERS: usize = 6;

/// From so many [`SoFar::PARTS`] of a block on its root is waited for soon.
const LATE: u32 = SoFar::PARTS * 3 / 8;

/// What a list leads to.
struct EarlyRoot {
    diff: StateDiff,
    prepared: ComputedRoot,
}

type Outcome = Result<(Executed, Shares), Refusal>;

/// What executing a block gave, and its roots.
pub(super) struct Ran {
    pub(super) executed: Executed,
    pub(super) shares: Shares,
    pub(super) receipts: Receipts,
    pub(super) prepared: ComputedRoot,
    /// Whether that is what its list led to.
    pub(super) early_root: bool,
    /// How often its changes so far went into the tries.
    pub(super) root_begun: u32,
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

/// Does `work`, and notes the block on another thread meanwhile.
fn noting<T>(block: &RecoveredBlock, note: Option<Note<'_>>, work: impl FnOnce() -> T) -> T {
    let note = note.and_then(|note| Some((note, WorkerPool::named("journal", 1)?)));
    match note {
        Some((note, crew)) => crew.join(|| note(&block.block), work).1,
        None => work(),
    }
}

impl Chain {
    /// Executes a block, with the access list that it has brought, and makes its roots; where that takes long
    /// enough, it does what they need beside the execution, and notes the block beside them.
    pub(super) fn run(
        &self,
        block: &RecoveredBlock,
        list: Option<&[AccountChanges]>,
        view: &mut View,
        note: Option<Note<'_>>,
    ) -> Result<Ran, Refusal> {
        let is_long = block.block.header.gas_used >= PREFETCH_GAS;
        match list {
            Some(list) if is_long => self.run_beside_root((block, list), view, note),
            None if is_long => {
                let is_executed = AtomicBool::new(false);
                let work = |view: &View, reading: &TriePrefetcher<'_>| {
                    self.run_beside_tries(block, (view, reading), &is_executed, note)
                };
                self.world().with_trie_prefetch(view, &is_executed, work)
            }
            _ => self.run_alone((block, list), view),
        }
    }

    fn run_alone(
        &self,
        (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
        view: &View,
    ) -> Result<Ran, Refusal> {
        let (executed, shares) = self.execute((block, list), view)?;
        let ran = self.end((view, executed), EarlyReceipts::default(), None, || ())?;
        Ok(Ran { shares, ..ran })
    }

    /// Makes the roots of a block that has been executed, from what was begun. Of that of the state nothing more
    /// can be begun once it `is_due`. How its transactions were run stays open.
    fn end(
        &self,
        (view, executed): (&View, Executed),
        receipts: EarlyReceipts,
        early: Option<EarlyRoot>,
        is_due: impl FnOnce(),
    ) -> Result<Ran, Refusal> {
        let early = early.filter(|early| early.diff == executed.diff);
        let early_root = early.is_some();
        let root = || match early {
            Some(early) => Ok(early.prepared),
            None => self.world().compute_root_when(view, &executed.diff, is_due),
        };
        let (receipts, prepared) = receipts.end_beside(&executed.receipts, root);
        Ok(Ran {
            prepared: prepared.map_err(fault)?,
            executed,
            shares: Shares::default(),
            receipts,
            early_root,
            root_begun: 0,
        })
    }

    /// Executes a block. What it has changed by then goes into the tries meanwhile, now and then, if there is a
    /// processor for it: the root, which begins at the tries as they are, has less to do.
    fn run_beside_tries(
        &self,
        block: &RecoveredBlock,
        (view, reading): (&View, &TriePrefetcher<'_>),
        is_executed: &AtomicBool,
        note: Option<Note<'_>>,
    ) -> Result<Ran, Refusal> {
        let crew = self
            .begins_root_early(block)
            .then(|| WorkerPool::named("root", 1));
        let Some(crew) = crew.flatten() else {
            return self.run_alone((block, None), view);
        };
        let receipts = RefCell::new(EarlyReceipts::new());
        let making = receipts.borrow().making();
        let parts = Parts::new(self.world(), view);
        let errands = BesideBlock::new(&parts, making, reading);
        let ran = crew.scope(|scope| {
            let on_the_way = |so_far: SoFar<'_>| {
                if so_far.is_all() {
                    // Nothing is read ahead any more.
                    is_executed.store(true, Ordering::Relaxed);
                }
                let mut receipts = receipts.borrow_mut();
                receipts.go_on(so_far.receipts, errands.who_adds_receipts());
                let are_senders_known = || block.senders.missing() == 0;
                if errands.wants_part(&so_far, are_senders_known) {
                    parts.put((so_far.changed)(), so_far.is_all());
                }
                if parts.are_waiting() && !errands.is_visited() {
                    scope.spawn(|| parts.go_to_the_end());
                }
                // The blocks of tests are over before it begins.
                while cfg!(test) && !parts.are_done() {
                    std::thread::yield_now();
                }
            };
            let on_the_way: OnTheWay<'_> = Box::new(on_the_way);
            let shared = self.shares_all_processors();
            let errands = shared.then_some(&errands as &dyn Errands);
            // Whoever stays does so until this is dropped, which it is with `then` where a block is refused.
            let ending = parts.ending();
            let then = |executed| {
                let receipts = receipts.take();
                let end = || self.end((view, executed), receipts, None, || drop(ending));
                noting(block, note, end)
            };
            self.execute_then((block, None), view, (Some(on_the_way), errands), then)
        });
        let (ran, shares) = ran?;
        Ok(Ran {
            shares,
            root_begun: parts.count(),
            ..ran?
        })
    }

    /// Whether transactions run on as many threads as there are processors.
    fn shares_all_processors(&self) -> bool {
        let threads = self.parallelism().threads;
        threads > 1 && (threads >= self.sender_threads() || cfg!(test))
    }

    /// Whether there is a processor beside that of the executing thread.
    fn has_processor_beside(&self) -> bool {
        // Tests do all there is on any machine, and whatever runs beside.
        self.sender_threads() > 1 || cfg!(test)
    }

    /// Whether there is a processor for it. Before Byzantium each transaction has its root made in its turn.
    fn begins_root_early(&self, block: &RecoveredBlock) -> bool {
        self.has_processor_beside() && self.spec().fork_of(&block.block.header) >= Fork::Byzantium
    }

    /// Executes a block, and makes the root that its list leads to beside that.
    fn run_beside_root(
        &self,
        (block, list): (&RecoveredBlock, &[AccountChanges]),
        view: &View,
        note: Option<Note<'_>>,
    ) -> Result<Ran, Refusal> {
        let (is_executed, outcome) = (AtomicBool::new(false), OnceLock::new());
        let has_processor = self.has_processor_beside();
        let mut receipts = has_processor.then(EarlyReceipts::new).unwrap_or_default();
        let part = AtomicU32::new(0);
        let on_the_way = |so_far: SoFar<'_>| {
            part.store(so_far.part, Ordering::Relaxed);
            receipts.go_on(so_far.receipts, By::Crew);
        };
        let on_the_way: OnTheWay<'_> = Box::new(on_the_way);
        let after_root = AfterRoot::default();
        let shared = self.shares_all_processors();
        let errands = shared.then_some(&after_root as &dyn Errands);
        let early = std::thread::scope(|scope| {
            let early = scope.spawn(|| {
                let _making = after_root.making();
                let is_refused = || outcome.get().is_some_and(Outcome::is_err);
                let until = (&is_executed, &is_refused as &dyn Fn() -> bool);
                let diff = self.read_listed(list, view, until, &after_root)?;
                let Some(diff) = diff else {
                    return Ok(None);
                };
                // Of a block that has come to something else already, nobody wants that root.
                let is_vain = outcome.get().is_some_and(|outcome| !gives(outcome, &diff));
                // A second thread would take the processor from the executing one.
                let is_alone = shared && part.load(Ordering::Relaxed) < LATE;
                let root = (!is_vain).then(|| self.early_root(diff, view, is_alone));
                root.transpose()
            });
            let with = (Some(on_the_way), errands);
            let executed = self.execute_then((block, Some(list)), view, with, |executed| executed);
            is_executed.store(true, Ordering::Relaxed);
            outcome.get_or_init(|| executed);
            early.join()
        });
        let outcome = outcome.into_inner();
        let (executed, shares) = outcome.expect("it was executed")?;
        // What fails or panics here does so in the ordinary way too, or does not matter.
        let early = early.unwrap_or(Ok(None)).unwrap_or_else(|_: Fault| None);
        let end = || self.end((view, executed), receipts, early, || ());
        let note = note.filter(|_| has_processor);
        Ok(Ran {
            shares,
            ..noting(block, note, end)?
        })
    }

    /// The changes that the list leads to. Meanwhile the ways to them are loaded, and what else the list
    /// names is read, until the block `is_executed`. Once nothing more is read, the root comes before running ahead.
    fn read_listed(
        &self,
        list: &[AccountChanges],
        view: &View,
        (is_executed, is_refused): (&AtomicBool, &dyn Fn() -> bool),
        after_root: &AfterRoot,
    ) -> Result<Option<StateDiff>, Fault> {
        let reading = &AtomicUsize::new(READERS);
        std::thread::scope(|scope| {
            // Once the block is executed, more threads load what is left.
            scope.spawn(|| {
                self.world()
                    .prefetch_trie_paths(view, changed(list), is_executed)
            });
            for first in 0..READERS {
                let wanted = listed(list).skip(first).step_by(READERS);
                scope.spawn(move || {
                    view.prefetch_values(wanted, is_executed);
                    if reading.fetch_sub(1, Ordering::Relaxed) == 1 {
                        after_root.await_it();
                    }
                });
            }
            diff_of_access_list(list, view, is_refused)
        })
    }

    fn early_root(&self, diff: StateDiff, view: &View, is_alone: bool) -> Result<EarlyRoot, Fault> {
        let prepared = match is_alone {
            true => self.world().compute_root_single_threaded(view, &diff)?,
            false => self.world().compute_root(view, &diff)?,
        };
        Ok(EarlyRoot { diff, prepared })
    }
}
