//! What a caller does with a block while it is executed.
//!
//! [`BlockExecution`](crate::BlockExecution) calls the observer on the commit thread, in the order of the block, and
//! hands its idle work to the workers that execute transactions speculatively. Both exist so that the state root and
//! the receipts' root can be computed in parallel with the execution; neither may change what the block gives.
//!
//! ```text
//! commit thread   tx 0  tx 1 .. | progress(4/64) | tx n .. | progress(64/64), nothing changes any more | then
//! worker          idle work, else sender recovery, else idle work of low priority, else speculation    | drain
//! ```

use crate::executor::Executor;
use niwaki_primitives::{B256, DirtyState, Fault, Header, Receipt, StateDiff};

/// How far the commit thread has come with a block.
#[expect(missing_debug_implementations, reason = "a function")]
pub struct BlockProgress<'a> {
    /// Receipts of the committed transactions.
    pub receipts: &'a [Receipt],
    /// Drains the values written since the last call, which takes time; see [`Executor::drain_dirty`].
    pub drain_dirty: &'a mut dyn FnMut() -> DirtyState,
    /// Gas used, in [`BlockProgress::PARTS`] of what the header says; all of them once the block changes nothing any
    /// more.
    pub part: u32,
}

impl BlockProgress<'_> {
    /// Into how many parts the gas of a block is divided.
    pub const PARTS: u32 = 64;

    /// Whether the block changes nothing any more.
    pub const fn is_complete(&self) -> bool {
        self.part == Self::PARTS
    }
}

/// Called by the commit thread while it executes a block.
///
/// A closure from a diff to a state root is an observer that does nothing else.
pub trait BlockObserver {
    /// The state root after `diff`: receipts before Byzantium hold one per transaction. Not called for later forks.
    ///
    /// # Errors
    /// A [`Fault`] of the state, which ends the execution.
    fn intermediate_root(&mut self, diff: &StateDiff) -> Result<B256, Fault>;

    /// Called when a sixteenth of the header's gas is used, after each further part but the last, and once more when
    /// nothing changes any more.
    fn progress(&mut self, progress: BlockProgress<'_>) {
        let _ = progress;
    }
}

impl<F: FnMut(&StateDiff) -> Result<B256, Fault>> BlockObserver for F {
    fn intermediate_root(&mut self, diff: &StateDiff) -> Result<B256, Fault> {
        self(diff)
    }
}

/// What workers do between two speculative transactions, for callers that leave no processor to threads of their own.
/// Must not panic.
pub trait IdleWork: Sync {
    /// Does a piece of work that the end of the block waits for. Returns whether there was one.
    fn run(&self) -> bool;

    /// Does a piece of work that is worth more than speculation and less than sender recovery. Returns whether
    /// there was one.
    fn run_low_priority(&self) -> bool;

    /// Does what is left once nothing is executed any more; returns at the latest when the caller is done with the
    /// block.
    fn drain(&self);
}

/// The first part of the gas after which an observer is called.
const FIRST_PART: u32 = BlockProgress::PARTS / 16;

/// An observer, and when it is called next.
pub(crate) struct Observed<'a> {
    pub(crate) observer: &'a mut dyn BlockObserver,
    next_part: u32,
}

impl<'a> Observed<'a> {
    pub(crate) fn new(observer: &'a mut dyn BlockObserver) -> Self {
        Self {
            observer,
            next_part: FIRST_PART,
        }
    }

    /// A transaction was committed, whose receipt is the last of `receipts`.
    pub(crate) fn committed(
        &mut self,
        executor: &mut Executor<'_>,
        header: &Header,
        receipts: &[Receipt],
    ) {
        const PARTS: u32 = BlockProgress::PARTS;
        let used = executor.used().header_gas(executor.rules().fork);
        let used = used.saturating_mul(u64::from(PARTS));
        let part = used.checked_div(header.gas_used).unwrap_or_default();
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        if (self.next_part..PARTS).contains(&part) {
            self.next_part = part.saturating_add(1);
            self.call(executor, receipts, part);
        }
    }

    /// The block changes nothing any more.
    pub(crate) fn completed(&mut self, executor: &mut Executor<'_>, receipts: &[Receipt]) {
        self.call(executor, receipts, BlockProgress::PARTS);
    }

    fn call(&mut self, executor: &mut Executor<'_>, receipts: &[Receipt], part: u32) {
        self.observer.progress(BlockProgress {
            receipts,
            drain_dirty: &mut || executor.drain_dirty(),
            part,
        });
    }
}
