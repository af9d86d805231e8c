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
mod listed;
mod threads;
mod timeline;

use crate::body::{Executed, PostState, at_index};
use crate::executor::{ExecuteError, Executor};
use crate::transaction::TransactionResult;
use before::{AheadView, Before};
use committed::Committed;
use listed::{Listed, Told};
use niwaki_evm::Effects;
use niwaki_primitives::{
    AccountChanges, Address, B256, Block, Bytes, Fault, Fork, Receipt, RecoveredBlock, StateDiff,
    StateView, Transaction, TxEnvelope, Typed2718, map::HashMap,
};
use niwaki_rules::{
    BlockRules, ChainSpec, GasRoom, blob_gas_of, check_transaction, effective_gas_price,
    upfront_cost,
};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use timeline::Timeline;
pub use timeline::{Span, Step};

/// On how many threads transactions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// Threads, the one that calls included.
    pub threads: usize,
    /// What is left of a block must be expected to take so long for a second thread to help; zero for
    /// help from the first transaction on.
    pub least_rest: Duration,
    /// Whether every transaction runs ahead before the first one counts, as if there were more threads
    /// than transactions: for tests.
    pub all_ahead: bool,
    /// Whether it is noted what each thread does, and when; then every block is run this way.
    pub notes_spans: bool,
}

impl Parallelism {
    /// So many threads for every block that is worth it.
    pub const fn of(threads: usize) -> Self {
        Self {
            threads,
            least_rest: Duration::from_micros(1_200),
            all_ahead: false,
            notes_spans: false,
        }
    }

    /// Whether the transactions of a block may run on several threads.
    fn is_for(&self, rules: &BlockRules, block: &Block) -> bool {
        // Receipts before Byzantium want the state root after each transaction.
        rules.fork >= Fork::Byzantium
            && block.body.transactions.len() > 1
            && (self.threads > 1 || self.all_ahead || self.notes_spans)
    }
}

/// Gas of a transaction that runs no code, and takes less time than it takes to hand it over; as most
/// that have no input do, whatever their limit.
const PLAIN_GAS: u64 = 21_000;

/// So many transactions may run ahead of the one whose turn it is: what waits is held in memory.
const WINDOW: usize = 64;

/// Transactions that are left to the committing thread, when it has caught up with those that run
/// ahead: run in their turn they cost less, and meanwhile others get ahead of it again.
const LEAP: usize = 6;

/// A transaction of so much gas runs ahead whomever it calls: what it has read and the results of
/// precompiled contracts are at hand when it runs again.
const HEAVY_GAS: u64 = 500_000;

/// So much gas is used between two looks at the clock before others help.
const LOOK_GAS: u64 = 250_000;

/// So long a block runs on one thread, before it is known whether it is worth others.
const ALONE: Duration = Duration::from_micros(150);

/// So much gas may be used for nothing in any block.
const LEAST_WASTE: u64 = 4_000_000;

/// So often a thread looks whether another is done before it does something else.
const SPINS: u32 = 200;

/// How the transactions of a block were run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Run ahead of their turn, and kept.
    pub kept: usize,
    /// Run ahead of their turn, and again.
    pub repeated: usize,
    /// Run when it was their turn.
    pub in_turn: usize,
    /// What each thread did, if that was noted.
    pub spans: Vec<Span>,
}

impl Shares {
    const fn in_turn(transactions: usize) -> Self {
        Self {
            kept: 0,
            repeated: 0,
            in_turn: transactions,
            spans: Vec::new(),
        }
    }
}

/// A transaction that ran ahead of its turn.
struct Ahead {
    result: TransactionResult,
    effects: Effects,
    told: Told,
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const DONE: u8 = 2;

/// A transaction's place: who runs it, and what came of it.
#[derive(Default)]
struct Place {
    state: AtomicU8,
    ahead: Mutex<Option<Ahead>>,
}

impl Place {
    fn take(&self) -> bool {
        let taken = self
            .state
            .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok()
    }

    fn is_free(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FREE
    }

    fn put(&self, ahead: Option<Ahead>) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
        self.state.store(DONE, Ordering::Release);
    }

    fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    fn get(&self) -> Option<Ahead> {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.take()
    }
}

/// What all threads share.
struct Run<'r> {
    spec: &'r ChainSpec,
    block: &'r RecoveredBlock,
    before: Before<'r>,
    places: Vec<Place>,
    /// Behind all that were taken to run ahead.
    next: AtomicUsize,
    /// How many count already.
    counted: AtomicUsize,
    /// Of who was called by those that ran ahead: how many were kept, and how many run again.
    called: RwLock<HashMap<Address, (u32, u32)>>,
    /// Gas of runs that were thrown away.
    wasted_gas: AtomicU64,
    is_over: AtomicBool,
    all_ahead: bool,
    committer: Thread,
    timeline: Option<Timeline>,
}

/// A thread's own state to run transactions ahead upon, and the machine it did that with before.
type Spare<'e> = (&'e AheadView<'e>, Option<Executor<'e>>);

impl Run<'_> {
    /// Does what `step` is, and notes how long that took if anybody wants to know.
    fn noted<T>(&self, index: usize, step: Step, work: impl FnOnce() -> T) -> T {
        let Some(timeline) = &self.timeline else {
            return work();
        };
        let began = Instant::now();
        let done = work();
        timeline.note(index, step, began);
        done
    }

    /// Waits until whoever has a transaction is done with it, and runs others ahead meanwhile.
    fn wait_for<'e>(&'e self, place: &Place, spare: &mut Spare<'e>) -> Option<Ahead> {
        let mut spins = 0_u32;
        while !place.is_done() {
            spins = spins.saturating_add(1);
            if spins < SPINS {
                std::hint::spin_loop();
            } else if let Some(next) = self.take_next() {
                let ahead = self.run_ahead(spare, next);
                self.places[next].put(ahead);
            } else {
                std::thread::park();
            }
        }
        place.get()
    }

    fn transaction(&self, index: usize) -> (&TxEnvelope, Address) {
        let tx = &self.block.block.body.transactions[index];
        (tx, self.block.senders[index])
    }

    /// Takes the next transaction that nobody has and that is worth it, if it is not too far ahead: one
    /// behind those that others are at, else one that they have leapt over.
    fn take_next(&self) -> Option<usize> {
        if self.is_over.load(Ordering::Relaxed) {
            return None;
        }
        let next = self.next.load(Ordering::Relaxed);
        if self.all_ahead {
            return self.take_first(next..self.places.len());
        }
        let counted = self.counted.load(Ordering::Relaxed);
        let end = counted.saturating_add(WINDOW).min(self.places.len());
        let from = next.max(counted.saturating_add(LEAP));
        let first = counted.saturating_add(1);
        self.take_first(from..end)
            .or_else(|| self.take_first(first..from.min(end)))
    }

    fn take_first(&self, mut range: Range<usize>) -> Option<usize> {
        let index = range.find(|index| self.is_worth_it(*index) && self.places[*index].take())?;
        self.next
            .fetch_max(index.saturating_add(1), Ordering::Relaxed);
        Some(index)
    }

    /// Whether a transaction should run ahead of its turn, if nobody has it.
    fn is_worth_it(&self, index: usize) -> bool {
        let tx = self.transaction(index).0;
        let is_heavy = tx.gas_limit() >= HEAVY_GAS;
        let is_plain = tx.gas_limit() <= PLAIN_GAS || tx.input().is_empty() && tx.to().is_some();
        self.all_ahead
            || self.places[index].is_free()
                && (is_heavy || !is_plain && !self.is_disturbed(tx.to()))
    }

    /// Runs a transaction ahead of its turn. What goes wrong leaves nothing: it is run again.
    fn run_ahead<'e>(&'e self, spare: &mut Spare<'e>, index: usize) -> Option<Ahead> {
        let (tx, sender) = self.transaction(index);
        let (view, executor) = spare;
        let view = *view;
        view.begin(index);
        let run = || {
            let header = &self.block.block.header;
            let own = executor.take();
            let mut own = own.unwrap_or_else(|| Executor::new(self.spec, header, view.state()));
            let ran = own.run_ahead(tx, sender);
            (own, ran)
        };
        let ran = self.noted(index, Step::Ahead, || catch_unwind(AssertUnwindSafe(run)));
        let (own, ran) = ran.ok()?;
        *executor = Some(own);
        let (result, effects) = ran?;
        let told = view.take_told();
        Some(Ahead {
            result,
            effects,
            told,
        })
    }

    /// Whether most of those that called the same contract were run again: it has something that each
    /// call changes, so they are left to their turn.
    fn is_disturbed(&self, to: Option<Address>) -> bool {
        let called = self.called.read().unwrap_or_else(PoisonError::into_inner);
        let shares = to.and_then(|to| called.get(&to));
        shares.is_some_and(|(kept, repeated)| repeated > kept)
    }

    fn note_call(&self, to: Option<Address>, is_kept: bool) {
        let Some(to) = to else {
            return;
        };
        let mut called = self.called.write().unwrap_or_else(PoisonError::into_inner);
        let (kept, repeated) = called.entry(to).or_default();
        let count = if is_kept { kept } else { repeated };
        *count = count.saturating_add(1);
    }

    /// Notes gas that was used for nothing. When that is more than the block is worth, nothing runs ahead
    /// any more: transactions may have been made to disturb each other.
    fn note_waste(&self, gas: u64) {
        let before = self.wasted_gas.fetch_add(gas, Ordering::Relaxed);
        let bound = self.block.block.header.gas_used.max(LEAST_WASTE);
        if before.saturating_add(gas) > bound {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Notes whether a run of so much gas was kept. A list that was wrong once is not asked again.
    fn note(&self, to: Option<Address>, gas: u64, is_kept: bool) {
        if !self.before.is_listed() {
            self.note_call(to, is_kept);
            self.note_waste(if is_kept { 0 } else { gas });
        } else if !is_kept {
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs transactions ahead until there is none left.
    fn work(&self) {
        let view = self.before.view();
        let mut spare = (&view, None);
        while !self.is_over.load(Ordering::Relaxed) {
            let Some(index) = self.take_next() else {
                if self.all_ahead || self.counted.load(Ordering::Relaxed) >= self.places.len() {
                    return;
                }
                std::thread::yield_now();
                continue;
            };
            let ahead = self.run_ahead(&mut spare, index);
            self.places[index].put(ahead);
            self.committer.unpark();
        }
    }
}

/// When others are called for help.
struct Call {
    /// When the first transaction was begun.
    began: Instant,
    least_rest: Duration,
    /// The gas that was used when the clock was read last.
    gas_looked_at: u64,
}

impl Call {
    /// Whether what is left of a block that has used so much gas must be expected to take long enough,
    /// by the gas that it says it uses beyond that of its transactions' own.
    fn is_due(&mut self, gas: u64, run: &Run<'_>) -> bool {
        if self.least_rest.is_zero() {
            return true;
        }
        if gas.saturating_sub(self.gas_looked_at) < LOOK_GAS {
            return false;
        }
        self.gas_looked_at = gas;
        let took = self.began.elapsed();
        let counted = run.counted.load(Ordering::Relaxed);
        let left = run.places.len().saturating_sub(counted) as u64;
        let gas_used = run.block.block.header.gas_used;
        let rest = gas_used.saturating_sub(gas.saturating_add(left.saturating_mul(PLAIN_GAS)));
        let expected = took.as_nanos().saturating_mul(rest.into());
        let least = self.least_rest.as_nanos().saturating_mul(gas.into());
        took >= ALONE && expected >= least
    }
}

impl Executor<'_> {
    /// Runs a transaction ahead of its turn, as if the transactions before it left it room and funds.
    /// `None` if it can't be known what it would do.
    fn run_ahead(
        &mut self,
        tx: &TxEnvelope,
        sender: Address,
    ) -> Option<(TransactionResult, Effects)> {
        let room = GasRoom::both(self.evm.block().gas_limit);
        let gas = check_transaction(tx, sender, &self.rules, room, self.rules.max_blob_gas());
        let (gas, cost) = (gas.ok()?, upfront_cost(tx)?);
        let world = self.evm.world();
        world.start_over();
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
    apply_body_with(parallelism, spec, (block, None), view, post_state)
}

/// As [`apply_body_on`], of a block that has brought its access list, maybe. Whether that is the
/// block's is for the caller to see: what comes of the block is the same whatever the list says.
///
/// # Errors
/// As [`apply_body`](crate::apply_body).
pub fn apply_body_with(
    parallelism: Parallelism,
    spec: &ChainSpec,
    (block, list): (&RecoveredBlock, Option<&[AccountChanges]>),
    view: &(dyn StateView + Sync),
    post_state: PostState<'_>,
) -> Result<(Executed, Shares), ExecuteError> {
    let Block { header, body } = &block.block;
    let rules = BlockRules::new(spec, header);
    if !parallelism.is_for(&rules, &block.block) {
        let executed = Executor::new(spec, header, view).apply_body(spec, block, post_state)?;
        return Ok((executed, Shares::in_turn(body.transactions.len())));
    }
    let committed = Committed::new(view);
    let listed = list.map(|list| Listed::new(view, list));
    let mut executor = Executor::new(spec, header, view);
    let before = Before::of(&committed, listed.as_ref());
    executor.begin_block(spec, header)?;
    let (receipts, shares) = executor.process_ahead(parallelism, spec, block, before)?;
    let executed = executor.finish_block(spec, header, body, receipts)?;
    Ok((executed, shares))
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
    let committed = Committed::new(view);
    let listed = list.map(|list| Listed::new(view, list));
    let mut executor = Executor::new(spec, &block.block.header, view);
    let transactions = block.block.body.transactions.len();
    let (receipts, shares) = if parallelism.is_for(executor.rules(), &block.block) {
        let before = Before::of(&committed, listed.as_ref());
        executor.process_ahead(parallelism, spec, block, before)?
    } else {
        let receipts = executor.process_transactions(block, &mut |_| Ok(B256::ZERO))?;
        (receipts, Shares::in_turn(transactions))
    };
    Ok((receipts, shares, executor.diff()))
}

impl<'v> Executor<'v> {
    /// Processes the transactions of a block, whose beginning has been run, some of them ahead of their
    /// turn, upon what is `before` them.
    fn process_ahead(
        &mut self,
        parallelism: Parallelism,
        spec: &ChainSpec,
        block: &RecoveredBlock,
        before: Before<'v>,
    ) -> Result<(Vec<Receipt>, Shares), ExecuteError> {
        let transactions = &block.block.body.transactions;
        let run = Run {
            spec,
            block,
            before,
            places: transactions.iter().map(|_| Place::default()).collect(),
            next: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            called: RwLock::default(),
            wasted_gas: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            all_ahead: parallelism.all_ahead,
            committer: std::thread::current(),
            timeline: parallelism.notes_spans.then(Timeline::new),
        };
        let (receipts, mut shares) = self.process_on(parallelism, &run, before)?;
        shares.spans = run.timeline.map(Timeline::into_spans).unwrap_or_default();
        Ok((receipts, shares))
    }

    fn process_on(
        &mut self,
        parallelism: Parallelism,
        run: &Run<'_>,
        before: Before<'v>,
    ) -> Result<(Vec<Receipt>, Shares), ExecuteError> {
        if parallelism.all_ahead {
            before.hear(self.evm.world());
            run.work();
        }
        let helpers = parallelism.threads.saturating_sub(1);
        let Some(pool) = threads::pool(helpers) else {
            return self.commit_all(run, |_| true);
        };
        let mut call = Call {
            began: Instant::now(),
            least_rest: parallelism.least_rest,
            gas_looked_at: 0,
        };
        pool.in_place_scope(|scope| {
            let done = self.commit_all(run, |executor| {
                let is_due = call.is_due(executor.used.gas, run);
                if is_due {
                    before.hear(executor.evm.world());
                    for _ in 0..helpers {
                        scope.spawn(|_| run.work());
                    }
                }
                is_due
            });
            run.is_over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Counts the transactions in their order. Before each it calls for help, until that has come.
    fn commit_all(
        &mut self,
        run: &Run<'_>,
        mut call_for_help: impl FnMut(&mut Self) -> bool,
    ) -> Result<(Vec<Receipt>, Shares), ExecuteError> {
        let mut receipts = Vec::with_capacity(run.places.len());
        let mut shares = Shares::default();
        let view = run.before.view();
        let (mut spare, mut has_help) = ((&view, None), false);
        for (index, place) in run.places.iter().enumerate() {
            has_help = has_help || call_for_help(self);
            let (tx, sender) = run.transaction(index);
            let is_free = place.take();
            let mut adopted = None;
            if !is_free {
                // Nobody waits for what can't be in the block.
                self.check(tx, sender)
                    .map_err(|error| at_index(index, error))?;
                let ahead = run.noted(index, Step::Wait, || run.wait_for(place, &mut spare));
                if let Some(ahead) = ahead {
                    let gas = ahead.result.gas_before_refund;
                    adopted = run.noted(index, Step::Adopt, || self.adopt(tx, ahead))?;
                    run.note(tx.to(), gas, adopted.is_some());
                }
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
            run.counted
                .store(index.saturating_add(1), Ordering::Relaxed);
        }
        Ok((receipts, shares))
    }
}
