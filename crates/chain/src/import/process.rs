//! A block executed, and its roots computed in parallel with the execution.
//!
//! Which way a block goes:
//!
//! | block | state root |
//! |---|---|
//! | little gas, or one processor | after the execution (`execute_then_root`) |
//! | with its access list | from the list, in parallel with the execution (`execute_with_bal_root`) |
//! | without | changed values go to the tries in parts while it is executed (`execute_with_incremental_root`) |
//!
//! All give the same [`ProcessedBlock`]. What a task has done for a block that turns out to be invalid stays in memory, in
//! caches and tries that the next block starts from.
//!
//! ```text
//! commit thread   | execute transactions                 | withdrawals, requests | receipts' root, final root |
//! worker          | speculate, flush 1 .. flush n, receipts                      | drain                      |
//! ```

use super::error::{ImportFailure, execute_error, fault};
use super::tasks::bal_root::{BalRoot, BalRootTask, RootGate};
use super::tasks::idle::ImportIdleWork;
use super::tasks::journal::{WriteAhead, write_ahead_while};
use super::tasks::receipt_root::{ReceiptRootBuilder, Receipts, Runner};
use crate::Chain;
use niwaki_execution::{
    BlockExecution, BlockObserver, BlockProgress, ExecuteError, ExecutedBlock, IdleWork,
    RecoveringBlock, TxStats,
};
use niwaki_primitives::{AccountChanges, B256, Fault, Fork, StateDiff, StateView};
use niwaki_state::{ComputedRoot, TriePrefetcher, View};
use niwaki_threads::WorkerPool;
use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Gas from which on the execution takes long enough for tasks in parallel with it.
const MIN_TASK_GAS: u64 = 2_000_000;

/// What executing a block gave, and its roots.
pub(super) struct ProcessedBlock {
    pub(super) executed: ExecutedBlock,
    pub(super) tx_stats: TxStats,
    pub(super) receipts: Receipts,
    pub(super) root: ComputedRoot,
    /// Whether the state root is the one that its access list led to.
    pub(super) has_bal_root: bool,
    /// How often changed values were flushed into the tries during the execution.
    pub(super) root_flushes: u32,
}

/// Gives intermediate roots from the state, and passes progress on.
pub(super) struct TaskObserver<'b, P> {
    chain: &'b Chain,
    view: &'b View,
    on_progress: P,
}

impl<P: FnMut(BlockProgress<'_>)> BlockObserver for TaskObserver<'_, P> {
    fn intermediate_root(&mut self, diff: &StateDiff) -> Result<B256, Fault> {
        Ok(self.chain.world().compute_root(self.view, diff)?.root())
    }

    fn progress(&mut self, progress: BlockProgress<'_>) {
        (self.on_progress)(progress);
    }
}

impl Chain {
    /// Executes a block, with the access list that came with it, and computes its roots; runs the write-ahead hook meanwhile where
    /// there is a processor for it.
    pub(super) fn process(
        &self,
        block: &RecoveringBlock,
        bal: Option<&[AccountChanges]>,
        view: &mut View,
        write_ahead: Option<WriteAhead<'_>>,
    ) -> Result<ProcessedBlock, ImportFailure> {
        let is_long = block.block.header.gas_used >= MIN_TASK_GAS;
        match bal {
            Some(bal) if is_long => self.execute_with_bal_root(block, bal, view, write_ahead),
            None if is_long => {
                let is_executed = AtomicBool::new(false);
                let execute = |view: &View, reading: &TriePrefetcher<'_>| {
                    self.execute_with_incremental_root(
                        block,
                        view,
                        reading,
                        &is_executed,
                        write_ahead,
                    )
                };
                self.world().with_trie_prefetch(view, &is_executed, execute)
            }
            _ => self.execute_then_root(block, bal, view),
        }
    }

    pub(super) fn execution<'b>(
        &'b self,
        block: &'b RecoveringBlock,
        bal: Option<&'b [AccountChanges]>,
        view: &'b (dyn StateView + Sync),
    ) -> BlockExecution<'b> {
        BlockExecution {
            bal,
            parallelism: self.parallelism(),
            ..BlockExecution::new(self.spec(), block, view)
        }
    }

    pub(super) fn observer<'b, P: FnMut(BlockProgress<'_>)>(
        &'b self,
        view: &'b View,
        on_progress: P,
    ) -> TaskObserver<'b, P> {
        TaskObserver {
            chain: self,
            view,
            on_progress,
        }
    }

    /// Executes a block without any task in parallel.
    pub(super) fn execute(
        &self,
        block: &RecoveringBlock,
        bal: Option<&[AccountChanges]>,
        view: &View,
    ) -> Result<(ExecutedBlock, TxStats), ImportFailure> {
        let mut observer = self.observer(view, |_| ());
        let execution = self.execution(block, bal, view);
        execution.run(&mut observer).map_err(execute_error)
    }

    fn execute_then_root(
        &self,
        block: &RecoveringBlock,
        bal: Option<&[AccountChanges]>,
        view: &View,
    ) -> Result<ProcessedBlock, ImportFailure> {
        let (executed, tx_stats) = self.execute(block, bal, view)?;
        let receipts = ReceiptRootBuilder::default();
        let root = |executed: &ExecutedBlock| self.world().compute_root(view, &executed.diff);
        let processed = self.finish(executed, receipts, root)?;
        Ok(ProcessedBlock {
            tx_stats,
            ..processed
        })
    }

    /// Computes the roots of a block that has been executed: that of its receipts while `root` computes that of the state.
    /// Statistics stay open.
    fn finish(
        &self,
        executed: ExecutedBlock,
        receipts: ReceiptRootBuilder,
        root: impl FnOnce(&ExecutedBlock) -> Result<ComputedRoot, Fault>,
    ) -> Result<ProcessedBlock, ImportFailure> {
        let (receipts, root) = receipts.finish_while(&executed.receipts, || root(&executed));
        Ok(ProcessedBlock {
            root: root.map_err(fault)?,
            executed,
            tx_stats: TxStats::default(),
            receipts,
            has_bal_root: false,
            root_flushes: 0,
        })
    }

    /// Executes a block and flushes changed values into the tries now and then, if there is a processor for it: the final root,
    /// which starts from the tries as they are, has less to do.
    fn execute_with_incremental_root(
        &self,
        block: &RecoveringBlock,
        view: &View,
        reading: &TriePrefetcher<'_>,
        is_executed: &AtomicBool,
        write_ahead: Option<WriteAhead<'_>>,
    ) -> Result<ProcessedBlock, ImportFailure> {
        let pool = self
            .has_incremental_root(block)
            .then(|| WorkerPool::named("root", 1));
        let Some(pool) = pool.flatten() else {
            return self.execute_then_root(block, None, view);
        };
        let receipts = RefCell::new(ReceiptRootBuilder::new(self.tuning().receipt_batch));
        let root = self.world().begin_root(view);
        // A worker drains until this is used or, where the block is invalid, dropped.
        let finisher = root.finisher();
        let idle = ImportIdleWork::new(&root, receipts.borrow().task(), reading);
        let processed = pool.scope(|scope| {
            let on_progress = |progress: BlockProgress<'_>| {
                if progress.is_complete() {
                    // Ends the prefetch.
                    is_executed.store(true, Ordering::Relaxed);
                }
                let mut receipts = receipts.borrow_mut();
                receipts.progress(progress.receipts, idle.receipts_runner());
                let are_senders_known = || block.senders.missing() == 0;
                if idle.should_flush(&progress, are_senders_known) {
                    root.push((progress.drain_dirty)(), progress.is_complete());
                }
                if root.is_pending() && !idle.has_worker() {
                    scope.spawn(|| root.apply_all());
                }
                while self.tuning().waits_for_tasks && !root.is_applied() {
                    std::thread::yield_now();
                }
            };
            let execution = BlockExecution {
                idle_work: self.fills_processors().then_some(&idle as &dyn IdleWork),
                ..self.execution(block, None, view)
            };
            let finish = |executed| {
                let receipts = receipts.take();
                let root = |executed: &ExecutedBlock| finisher.finish(&executed.diff);
                write_ahead_while(&block.block, write_ahead, || {
                    self.finish(executed, receipts, root)
                })
            };
            execution.run_then(&mut self.observer(view, on_progress), finish)
        });
        let (processed, tx_stats) = processed.map_err(execute_error)?;
        Ok(ProcessedBlock {
            tx_stats,
            root_flushes: root.parts(),
            ..processed?
        })
    }

    /// Whether transactions run on as many threads as there are processors.
    fn fills_processors(&self) -> bool {
        let threads = self.parallelism().threads;
        threads > 1 && (threads >= self.sender_threads() || self.tuning().waits_for_tasks)
    }

    /// Whether there is a processor besides the commit thread's.
    fn has_second_processor(&self) -> bool {
        self.sender_threads() > 1 || self.tuning().waits_for_tasks
    }

    /// Before Byzantium each transaction has its root computed when it is committed.
    fn has_incremental_root(&self, block: &RecoveringBlock) -> bool {
        self.has_second_processor() && self.spec().fork_of(&block.block.header) >= Fork::Byzantium
    }

    /// Executes a block, and computes the root that its access list leads to in parallel.
    fn execute_with_bal_root(
        &self,
        block: &RecoveringBlock,
        bal: &[AccountChanges],
        view: &View,
        write_ahead: Option<WriteAhead<'_>>,
    ) -> Result<ProcessedBlock, ImportFailure> {
        type Outcome = Result<(ExecutedBlock, TxStats), ExecuteError>;
        let is_executed = AtomicBool::new(false);
        let outcome = OnceLock::<Outcome>::new();
        let has_second_processor = self.has_second_processor();
        let batch = self.tuning().receipt_batch;
        let mut receipts = match has_second_processor {
            true => ReceiptRootBuilder::new(batch),
            false => ReceiptRootBuilder::default(),
        };
        let gas_part = AtomicU32::new(0);
        let gate = RootGate::default();
        let fills_processors = self.fills_processors();
        let task = BalRootTask {
            world: self.world(),
            view,
            bal,
            is_executed: &is_executed,
            gas_part: fills_processors.then_some(&gas_part),
            gate: &gate,
        };
        let bal_root = std::thread::scope(|scope| {
            let bal_root = scope.spawn(|| {
                task.run(&|diff| match outcome.get() {
                    Some(Ok((executed, _))) => diff.is_some_and(|diff| executed.diff != *diff),
                    Some(Err(_)) => true,
                    None => false,
                })
            });
            let on_progress = |progress: BlockProgress<'_>| {
                gas_part.store(progress.part, Ordering::Relaxed);
                receipts.progress(progress.receipts, Runner::Pool);
            };
            let execution = BlockExecution {
                idle_work: fills_processors.then_some(&gate as &dyn IdleWork),
                ..self.execution(block, Some(bal), view)
            };
            let executed = execution.run(&mut self.observer(view, on_progress));
            is_executed.store(true, Ordering::Relaxed);
            outcome.get_or_init(|| executed);
            bal_root.join()
        });
        let outcome = outcome.into_inner();
        let (executed, tx_stats) = outcome.expect("it was executed").map_err(execute_error)?;
        // What fails or panics there fails in the final root too, or does not matter.
        let bal_root = bal_root.unwrap_or(Ok(None)).unwrap_or_else(|_: Fault| None);
        let bal_root = bal_root.filter(|bal_root| bal_root.diff == executed.diff);
        let has_bal_root = bal_root.is_some();
        let root = |executed: &ExecutedBlock| match bal_root {
            Some(BalRoot { root, .. }) => Ok(root),
            None => self.world().compute_root(view, &executed.diff),
        };
        let write_ahead = write_ahead.filter(|_| has_second_processor);
        Ok(ProcessedBlock {
            tx_stats,
            has_bal_root,
            ..write_ahead_while(&block.block, write_ahead, || {
                self.finish(executed, receipts, root)
            })?
        })
    }
}
