//! The transactions of a block on several threads, with the result of running them one by one.
//!
//! The thread that calls commits the transactions in order. Others run those that are still to come
//! ahead of their turn, each upon the state as it is at that moment, and leave what it has read and
//! changed ([`Effects`]). When it is a transaction's turn, its effects count if everything it has read
//! still has the same value; otherwise it is run again, once, then and there. A transaction that
//! nobody has begun when its turn comes is run in its place at once; while another is still at it, the
//! committing thread runs one ahead itself.
//!
//! A block that brings its access list (EIP-7928) tells the values before each transaction. Then a
//! transaction runs upon the parent state and those, and what it has read holds, unless the list lies:
//! as soon as one thing does not hold, nothing runs ahead any more. The list decides nothing.
//!
//! What a block's order decides, gas and nonce and what the sender can pay, is checked in that order.
//! Everything else that goes wrong ahead of its turn is no error: the transaction is run again.

mod before;
mod committed;
mod dependences;
mod help;
mod listed;
mod log;
mod places;
mod run;
mod sync;
mod timeline;

use crate::body::{Executed, at_index};
use crate::executor::{ExecuteError, Executor};
use crate::meanwhile::{Meanwhile, PostState};
use crate::transaction::TransactionResult;
use before::Before;
use committed::Committed;
pub use dependences::{Dependences, dependences_of};
use help::Call;
use listed::Listed;
use niwaki_evm::Effects;
use niwaki_primitives::{
    AccountChanges, Address, B256, Block, Bytes, Fault, Fork, Receipt, RecoveredBlock, StateDiff,
    StateView, Transaction, TxEnvelope, Typed2718,
};
use niwaki_rules::{
    ChainSpec, GasRoom, blob_gas_of, check_transaction, effective_gas_price, upfront_cost,
};
use niwaki_threads::WorkerPool;
use places::Places;
use run::{Ahead, Run};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, RwLock};
use timeline::Timeline;
pub use timeline::{Span, Step};

/// The figures that decide what runs ahead, and when.
pub mod figures {
    pub use super::help::{ALONE, LEAST_REST, LOOK_GAS};
    pub use super::run::{HEAVY_GAS, LEAST_WASTE, PLAIN_GAS};
    pub use super::sync::{LEAP, WINDOW};
}

/// On how many threads transactions run.
#[derive(Clone, Copy, Debug)]
pub struct Parallelism {
    /// Threads, the one that calls included.
    pub threads: usize,
    /// A clock that never goes back, nanoseconds: then others help once what is left of a block is
    /// expected to take long enough. Without it they help from the first transaction on.
    pub clock: Option<fn() -> u64>,
    /// Whether every transaction runs ahead before the first one counts, as if there were more threads
    /// than transactions: for tests.
    pub all_ahead: bool,
    /// Whether it is noted what each thread does, and when, if there is a clock; then every block is run
    /// this way.
    pub notes_spans: bool,
}

impl Parallelism {
    /// So many threads for every block that is worth it.
    pub const fn of(threads: usize) -> Self {
        Self {
            threads,
            clock: None,
            all_ahead: false,
            notes_spans: false,
        }
    }

    /// This, if the transactions of a block may run on several threads.
    fn for_block(self, spec: &ChainSpec, block: &Block) -> Option<Self> {
        // Receipts before Byzantium want the state root after each transaction.
        let is_for = spec.fork_of(&block.header) >= Fork::Byzantium
            && block.body.transactions.len() > 1
            && (self.threads > 1 || self.all_ahead || self.notes_spans);
        is_for.then_some(self)
    }
}

/// How the transactions of a block were run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Run ahead of their turn, and kept.
    pub kept: usize,
    /// Run ahead of their turn, and again.
    pub repeated: usize,
    /// Run when it was their turn.
    pub in_turn: usize,
    /// Run ahead and panicked: a defect, whose transaction was run again.
    pub failed: usize,
    /// What each thread did, if that was noted.
    pub spans: Vec<Span>,
    /// What the clock said when the transactions of a whole block had ended, if there is a clock.
    pub ended: Option<u64>,
}

impl Shares {
    const fn in_turn(transactions: usize) -> Self {
        Self {
            kept: 0,
            repeated: 0,
            in_turn: transactions,
            failed: 0,
            spans: Vec::new(),
            ended: None,
        }
    }
}

/// The threads that run transactions ahead, and recover senders before that.
pub(crate) fn crew(threads: usize) -> Option<Arc<WorkerPool>> {
    WorkerPool::named("ahead", threads)
}

/// Ends what runs ahead when the committing thread is done, or panics.
struct Over<'r>(&'r Run<'r>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.places.end();
        // Those who recover senders may be before those who run ahead.
        self.0.block.senders.stop();
    }
}

impl Executor<'_> {
    /// Runs a transaction ahead of its turn, as if the transactions before it left it room and funds.
    /// `None` if it can't be known what it would do.
    pub(super) fn run_ahead(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
    ) -> Option<(TransactionResult, Effects)> {
        let room = GasRoom::both(self.evm.block().gas_limit);
        let gas = check_transaction(tx, sender, &self.rules, room, self.rules.max_blob_gas());
        let (gas, cost) = (gas.ok()?, upfront_cost(tx)?);
        let world = self.evm.world();
        let payer = world.load(&sender).ok()?;
        world.assume_nonce(payer, tx.nonce());
        if !world.can_pay(payer, cost) {
            return None;
        }
        let price = effective_gas_price(tx, self.rules.base_fee);
        let mut result = self.run_and_pay(tx, sender, (gas, price), None).ok()?;
        // No receipt holds it.
        result.output = Bytes::new();
        let effects = self.evm.world().take_effects()?;
        Some((result, effects))
    }

    /// Counts a transaction that ran ahead, and that may be the next one, if what it has read still
    /// holds.
    fn adopt(&mut self, tx: &TxEnvelope, ahead: Ahead) -> Result<Option<TransactionResult>, Fault> {
        let world = self.evm.world();
        if !ahead.told.is_known_to(world) {
            return Ok(None);
        }
        let Some(holding) = world.holds(&ahead.effects)? else {
            return Ok(None);
        };
        world.adopt(ahead.effects, &holding);
        let mut result = ahead.result;
        result.logs = self.end_transaction(&result, blob_gas_of(tx));
        Ok(Some(result))
    }
}

/// As [`apply_body`](crate::apply_body), with the transactions on several threads where the block is
/// worth it.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn apply_body_on(
    parallelism: Parallelism,
    spec: &ChainSpec,
    block: &RecoveredBlock,
    view: &(dyn StateView + Sync),
    post_state: PostState<'_>,
) -> Result<(Executed, Shares), ExecuteError> {
    let meanwhile = Meanwhile::new(post_state);
    apply_body_with(parallelism, spec, (block, None), view, meanwhile)
}

/// As [`apply_body_on`], of a block that has brought its access list, maybe. The caller must compare the
/// list that the block has with the one that it brought, and refuse it if they differ: what comes of
/// a block whose list lies need not be what comes of it without.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn apply_body_with(
    parallelism: Parallelism,
    spec: &ChainSpec,
    (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
    view: &(dyn StateView + Sync),
    meanwhile: Meanwhile<'_>,
) -> Result<(Executed, Shares), ExecuteError> {
    let then = |executed| executed;
    apply_body_then(parallelism, spec, (block, list), (view, meanwhile), then)
}

/// As [`apply_body_with`], and what `then` makes of it, while those who have run transactions ahead, or been called
/// between two of them, end what they are at.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn apply_body_then<T>(
    parallelism: Parallelism,
    spec: &ChainSpec,
    (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
    (view, mut meanwhile): (&(dyn StateView + Sync), Meanwhile<'_>),
    then: impl FnOnce(Executed) -> T,
) -> Result<(T, Shares), ExecuteError> {
    let Block { header, body } = &block.block;
    let clock = parallelism.clock;
    let parallelism = parallelism.for_block(spec, &block.block);
    let committed = Committed::new(view, block.block.body.transactions.len());
    let list = list.filter(|_| parallelism.is_some());
    let listed = list.map(|list| Listed::new(view, list));
    let mut executor = Executor::new(spec, header, view);
    executor.begin_block(spec, header)?;
    let before = Before::of(&committed, listed.as_ref());
    let mut ended = None;
    let with = (before, &mut meanwhile);
    let end =
        |executor: &mut Executor<'_>, receipts: Vec<Receipt>, meanwhile: &mut Meanwhile<'_>| {
            ended = clock.map(|now| now());
            let requests = executor.end_block(spec, (header, body), &receipts)?;
            meanwhile.tell_all(executor, &receipts);
            Ok(then(executor.executed(receipts, requests)))
        };
    let (done, mut shares) = executor.process(parallelism, spec, block, with, end)?;
    shares.ended = ended;
    Ok((done, shares))
}

/// As [`apply_body_with`], the transactions alone, without what comes before and after them; receipts
/// before Byzantium are without a state root.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn process_transactions_with(
    parallelism: Parallelism,
    spec: &ChainSpec,
    (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
    view: &(dyn StateView + Sync),
) -> Result<(Vec<Receipt>, Shares, StateDiff), ExecuteError> {
    let parallelism = parallelism.for_block(spec, &block.block);
    let committed = Committed::new(view, block.block.body.transactions.len());
    let list = list.filter(|_| parallelism.is_some());
    let listed = list.map(|list| Listed::new(view, list));
    let mut executor = Executor::new(spec, &block.block.header, view);
    let before = Before::of(&committed, listed.as_ref());
    let mut no_root = |_: &_| Ok(B256::ZERO);
    let mut meanwhile = Meanwhile::new(&mut no_root);
    let with = (before, &mut meanwhile);
    let end = |_: &mut Executor<'_>, receipts, _: &mut Meanwhile<'_>| Ok(receipts);
    let (receipts, shares) = executor.process(parallelism, spec, block, with, end)?;
    Ok((receipts, shares, executor.diff()))
}

impl<'v> Executor<'v> {
    /// Processes the transactions of a block, whose beginning has been run: one after the other, or some of
    /// them ahead of their turn, upon what is `before` them. Then does what `end` is with their receipts, while
    /// others end what they are at.
    fn process<T>(
        &mut self,
        parallelism: Option<Parallelism>,
        spec: &ChainSpec,
        block: &RecoveredBlock,
        (before, meanwhile): (Before<'v>, &mut Meanwhile<'_>),
        end: impl FnOnce(&mut Self, Vec<Receipt>, &mut Meanwhile<'_>) -> Result<T, ExecuteError>,
    ) -> Result<(T, Shares), ExecuteError> {
        let Some(parallelism) = parallelism else {
            let receipts = self.process_transactions(block, meanwhile)?;
            let shares = Shares::in_turn(receipts.len());
            return Ok((end(self, receipts, meanwhile)?, shares));
        };
        let transactions = block.block.body.transactions.len();
        let clock = parallelism.clock.filter(|_| parallelism.notes_spans);
        let committer = std::thread::current();
        let run = Run {
            spec,
            block,
            before,
            places: Places::new(transactions, committer, parallelism.all_ahead),
            called: RwLock::default(),
            wasted_gas: AtomicU64::new(0),
            failed: AtomicUsize::new(0),
            has_followers: AtomicBool::new(false),
            all_ahead: parallelism.all_ahead,
            errands: meanwhile.errands,
            timeline: clock.map(Timeline::new),
        };
        let (done, mut shares) = self.process_on(parallelism, &run, (before, meanwhile), end)?;
        shares.failed = run.failed.into_inner();
        shares.spans = run.timeline.map(Timeline::into_spans).unwrap_or_default();
        Ok((done, shares))
    }

    /// Processes the transactions of a block, some of them ahead of their turn, and does what `end` is.
    fn process_on<T>(
        &mut self,
        parallelism: Parallelism,
        run: &Run<'_>,
        (before, meanwhile): (Before<'v>, &mut Meanwhile<'_>),
        end: impl FnOnce(&mut Self, Vec<Receipt>, &mut Meanwhile<'_>) -> Result<T, ExecuteError>,
    ) -> Result<(T, Shares), ExecuteError> {
        if parallelism.all_ahead {
            before.hear(self.evm.world());
            run.work(|| false);
        }
        let helpers = parallelism.threads.saturating_sub(1);
        let Some(crew) = crew(helpers) else {
            let (receipts, shares) = self.commit_all(run, meanwhile, |_| ())?;
            return Ok((end(self, receipts, meanwhile)?, shares));
        };
        let mut call = Call::new(parallelism.clock);
        let (mut has_help, mut is_heard) = (false, false);
        crew.scope(|scope| {
            let over = Over(run);
            let committed = self.commit_all(run, meanwhile, |executor| {
                let is_due = !has_help && call.is_due(executor.used.gas, run);
                if is_due {
                    run.call_for_help();
                }
                if !is_heard && run.has_followers() {
                    before.hear(executor.evm.world());
                    is_heard = true;
                }
                if is_due {
                    scope.spawn_many(helpers, || run.help());
                    has_help = true;
                }
            });
            drop(over);
            let (receipts, shares) = committed?;
            Ok((end(self, receipts, meanwhile)?, shares))
        })
    }

    /// Counts the transactions in their order, and does what is to be done `before_each`.
    fn commit_all(
        &mut self,
        run: &Run<'_>,
        meanwhile: &mut Meanwhile<'_>,
        mut before_each: impl FnMut(&mut Self),
    ) -> Result<(Vec<Receipt>, Shares), ExecuteError> {
        let mut receipts = Vec::with_capacity(run.places.len());
        let mut shares = Shares::default();
        let view = run.before.view();
        let mut spare = (&view, None);
        for index in 0..run.places.len() {
            before_each(self);
            let tx = run.transaction(index);
            let sender = self.sender(run.block, index)?;
            let is_free = run.places.take(index);
            let mut adopted = None;
            if !is_free {
                // Nobody waits for what can't be in the block.
                self.check(tx, sender)
                    .map_err(|error| at_index(index, error))?;
                let ahead = run.noted(index, Step::Wait, || run.wait_for(index, &mut spare));
                let gas = ahead.as_ref().map(|ahead| ahead.result.gas_before_refund);
                if let Some(ahead) = ahead {
                    adopted = run.noted(index, Step::Adopt, || self.adopt(tx, ahead))?;
                }
                run.note(tx.to(), gas.unwrap_or(tx.gas_limit()), adopted.is_some());
            }
            let count = match (&adopted, is_free) {
                (Some(_), _) => &mut shares.kept,
                (None, true) => &mut shares.in_turn,
                (None, false) => &mut shares.repeated,
            };
            *count = count.saturating_add(1);
            let result = match adopted {
                Some(result) => result,
                None => {
                    let step = if is_free { Step::InTurn } else { Step::Again };
                    run.noted(index, step, || self.process_transaction(tx, sender, None))
                        .map_err(|error| at_index(index, error))?
                }
            };
            receipts.push(self.receipt(tx.ty(), result, None));
            run.places.count(index);
            meanwhile.look(self, &run.block.block.header, &receipts);
        }
        Ok((receipts, shares))
    }
}
