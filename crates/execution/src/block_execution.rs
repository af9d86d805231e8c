//! One block, executed the way the caller asks for: sequentially or on several threads, with or without its access
//! list, observed or not. The result is always that of [`apply_body`](crate::apply_body).

use crate::body::ExecutedBlock;
use crate::executor::{ExecuteError, Executor};
use crate::observer::{BlockObserver, IdleWork, Observed};
use crate::parallel::{Bal, CommittedState, Parallelism, Scheduler, SpeculativeBase, TxStats};
use crate::senders::RecoveringBlock;
use niwaki_primitives::{AccountChanges, B256, Block, Fault, Receipt, StateDiff, StateView};
use niwaki_rules::ChainSpec;

/// A block to execute.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "views and idle work have none"
)]
pub struct BlockExecution<'b> {
    /// The rules of its chain.
    pub spec: &'b ChainSpec,
    /// The block. Missing senders are recovered on the way.
    pub block: &'b RecoveringBlock,
    /// The state after its parent.
    pub view: &'b (dyn StateView + Sync),
    /// The block access list that came with it (EIP-7928). The caller must compare it with the list that the execution
    /// produces, and refuse the block if they differ: with a wrong list, the result need not be that of the block
    /// without.
    pub bal: Option<&'b [AccountChanges]>,
    /// On how many threads.
    pub parallelism: Parallelism,
    /// What workers do between two transactions.
    pub idle_work: Option<&'b dyn IdleWork>,
}

impl<'b> BlockExecution<'b> {
    /// Sequential, without access list and idle work.
    pub fn new(
        spec: &'b ChainSpec,
        block: &'b RecoveringBlock,
        view: &'b (dyn StateView + Sync),
    ) -> Self {
        Self {
            spec,
            block,
            view,
            bal: None,
            parallelism: Parallelism::SEQUENTIAL,
            idle_work: None,
        }
    }

    /// Executes the block.
    ///
    /// # Errors
    /// As [`apply_body`](crate::apply_body).
    pub fn run(
        &self,
        observer: &mut dyn BlockObserver,
    ) -> Result<(ExecutedBlock, TxStats), ExecuteError> {
        self.run_then(observer, |executed| executed)
    }

    /// Executes the block, then calls `then` with the result while the workers end what they are doing: they drain the
    /// idle work until `then` returns.
    ///
    /// # Errors
    /// As [`apply_body`](crate::apply_body).
    pub fn run_then<T>(
        &self,
        observer: &mut dyn BlockObserver,
        then: impl FnOnce(ExecutedBlock) -> T,
    ) -> Result<(T, TxStats), ExecuteError> {
        let Block { header, body } = &*self.block.block;
        let mut ended = None;
        let begin = |executor: &mut Executor<'_>| executor.begin_block(self.spec, header);
        let end =
            |executor: &mut Executor<'_>, receipts: Vec<Receipt>, observed: &mut Observed<'_>| {
                ended = self.parallelism.clock.map(|now| now());
                let requests = executor.end_block(self.spec, header, body, &receipts)?;
                observed.completed(executor, &receipts);
                Ok(then(executor.executed(receipts, requests)))
            };
        let (done, stats) = self.process(observer, begin, end)?;
        Ok((done, TxStats { ended, ..stats }))
    }

    /// Executes the transactions alone, without what a block does before and after them. Gives their receipts, without
    /// state roots before Byzantium, and what they changed.
    ///
    /// # Errors
    /// As [`apply_body`](crate::apply_body).
    pub fn run_transactions(&self) -> Result<(Vec<Receipt>, StateDiff, TxStats), ExecuteError> {
        let mut no_root = |_: &StateDiff| Ok(B256::ZERO);
        let end = |executor: &mut Executor<'_>, receipts, _: &mut Observed<'_>| {
            Ok((receipts, executor.diff()))
        };
        let ((receipts, diff), stats) = self.process(&mut no_root, |_| Ok(()), end)?;
        Ok((receipts, diff, stats))
    }

    /// Executes `begin`, the transactions, and `end`.
    fn process<T>(
        &self,
        observer: &mut dyn BlockObserver,
        begin: impl FnOnce(&mut Executor<'_>) -> Result<(), Fault>,
        end: impl FnOnce(&mut Executor<'_>, Vec<Receipt>, &mut Observed<'_>) -> Result<T, ExecuteError>,
    ) -> Result<(T, TxStats), ExecuteError> {
        let block = &self.block.block;
        let parallelism = self.parallelism.for_block(self.spec, block);
        let committed = CommittedState::new(self.view, block.body.transactions.len());
        let bal = self.bal.filter(|_| parallelism.is_some());
        let bal = bal.map(|bal| Bal::new(self.view, bal));
        let base = SpeculativeBase::of(&committed, bal.as_ref());
        let mut executor = Executor::new(self.spec, &block.header, self.view);
        begin(&mut executor)?;
        let mut observed = Observed::new(observer);
        let Some(parallelism) = parallelism else {
            let receipts = executor.process_transactions(self.block, &mut observed)?;
            let stats = TxStats {
                sequential: receipts.len(),
                ..TxStats::default()
            };
            return Ok((end(&mut executor, receipts, &mut observed)?, stats));
        };
        let scheduler = Scheduler::new(parallelism, self.spec, self.block, base, self.idle_work);
        let (done, stats) =
            executor.commit_in_parallel(parallelism, &scheduler, &mut observed, end)?;
        Ok((done, scheduler.finish(stats)))
    }
}
