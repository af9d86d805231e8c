//! What the model is fed with: the times of each transaction of a block and what it waits for, and the
//! times of the block itself on one thread and on two, to hold the model against.

use super::schedule::{Job, Load};
use crate::recorded::{Entry, Recorded};
use crate::replay::{list_of, warm::Reading};
use crate::stats::median;
use eyre::{ContextCompat, Result, ensure};
use niwaki_chain::nanoseconds;
use niwaki_crypto::forget_precompile_results;
use niwaki_execution::{
    BlockExecution, Parallelism, Span, Step, TxDependencies, recover_block, tx_dependencies,
};
use niwaki_primitives::{
    AccountChanges, Address, Block, BlockBody, RecoveredBlock, StateView, Transaction,
};
use niwaki_rules::{ChainSpec, Network};
use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A block with everything it needs to run, its transactions alone.
struct Scene<'s> {
    spec: &'s ChainSpec,
    block: &'s RecoveredBlock,
    view: &'s (dyn StateView + Sync),
    list: &'s [AccountChanges],
}

/// What was measured of a block.
pub(super) struct Measured {
    pub(super) transactions: usize,
    pub(super) gas: u64,
    /// On one thread.
    pub(super) alone: Load,
    /// On several, as if it had come without its access list.
    pub(super) plain: Load,
    /// As if it had come with it.
    pub(super) listed: Load,
    /// Nanoseconds of the transactions on one thread; on two; on two with the list: medians.
    pub(super) real: [f64; 3],
    /// Runs ahead beside the committing thread, without a list: their time over that of the same in turn.
    pub(super) ahead_factor: f64,
}

/// Measures a recorded block, `repeat` times.
pub(super) fn measure(entry: Entry, repeat: usize, wake: u64) -> Result<Measured> {
    let network = Network::from_name(&entry.chain)
        .wrap_err_with(|| format!("{}: no chain is called {}", entry.name, entry.chain))?;
    let spec = network.genesis().spec;
    match entry.block {
        Recorded::Witness { block, state } => {
            let hash = block.header.hash_slow();
            let block = recover_block(*block, hash)?;
            // Walking the tries of a witness is no node's work: the first run reads.
            let reading = Reading::new(&state);
            BlockExecution::new(&spec, &block, &reading).run_transactions()?;
            of_block(&spec, &block, &reading.into_warm(), (repeat, wake))
        }
        Recorded::Transactions {
            header,
            transactions,
            state,
            ..
        } => {
            let body = BlockBody {
                transactions,
                ommers: vec![],
                withdrawals: None,
            };
            let hash = header.hash_slow();
            let block = recover_block(Block::new(*header, body), hash)?;
            of_block(&spec, &block, &*state, (repeat, wake))
        }
    }
}

fn of_block(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    view: &(dyn StateView + Sync),
    (repeat, wake): (usize, u64),
) -> Result<Measured> {
    let list = list_of(spec, block, view, false)?;
    let scene = Scene {
        spec,
        block,
        view,
        list: &list,
    };
    let dependencies = tx_dependencies(spec, block, &list, view)?;
    let mut real = [Vec::new(), Vec::new(), Vec::new()];
    let [mut in_turn, mut ahead, mut listed] = [(); 3].map(|()| Samples::default());
    let [mut beside, mut beside_listed] = [(); 2].map(|()| Samples::default());
    let noted = |threads, speculate_all| Parallelism {
        speculate_all,
        record_spans: true,
        clock: Some(nanoseconds),
        ..Parallelism::of(threads)
    };
    for _ in 0..repeat {
        for (at, (threads, has_list)) in [(1, false), (2, false), (2, true)].iter().enumerate() {
            let parallelism = Parallelism {
                clock: Some(nanoseconds),
                ..Parallelism::of(*threads)
            };
            real[at].push(scene.run(parallelism, *has_list)?.0);
        }
        in_turn.add(&scene.run(noted(1, false), false)?.1);
        ahead.add(&scene.run(noted(1, true), false)?.1);
        listed.add(&scene.run(noted(1, true), true)?.1);
        beside.add(&scene.run(noted(2, false), false)?.1);
        beside_listed.add(&scene.run(noted(2, false), true)?.1);
    }
    let real = real.map(|times| median(&times));
    let (_, _, gas) = scene.run(Parallelism::of(1), false)?;
    let samples = [&in_turn, &ahead, &listed];
    let mut alone = load(&scene, &dependencies, samples, real[0]);
    alone.wake = wake;
    for (job, gas) in alone.jobs.iter_mut().zip(gas) {
        job.gas_used = gas;
    }
    let mut listed = with_list(&alone, &listed);
    let mut plain = alone.clone();
    let fresh = ahead_over_in_turn(&alone, &beside);
    as_slow_as(&mut plain, &beside);
    as_slow_as(&mut listed, &beside_listed);
    Ok(Measured {
        transactions: block.block.body.transactions.len(),
        gas: block.block.header.gas_used,
        alone,
        plain,
        listed,
        real,
        ahead_factor: fresh,
    })
}

impl Scene<'_> {
    /// Nanoseconds, what was done meanwhile, and the gas of each transaction.
    fn run(&self, parallelism: Parallelism, has_list: bool) -> Result<(f64, Vec<Span>, Vec<u64>)> {
        forget_precompile_results();
        let start = Instant::now();
        let list = has_list.then_some(self.list);
        let execution = BlockExecution {
            bal: list,
            parallelism,
            ..BlockExecution::new(self.spec, self.block, self.view)
        };
        let (receipts, _, stats) = execution.run_transactions()?;
        let took = start.elapsed().as_nanos() as f64;
        let used = receipts.last().map_or(0, |last| last.cumulative_gas_used);
        let gas_used = self.block.block.header.gas_used;
        ensure!(
            used == gas_used,
            "gas used: got {used}, the chain has {gas_used}"
        );
        let mut before = 0;
        let gas = receipts.iter().map(|receipt| {
            let total = receipt.cumulative_gas_used;
            total.saturating_sub(std::mem::replace(&mut before, total))
        });
        Ok((took, stats.spans, gas.collect()))
    }
}

/// Nanoseconds of each step of each transaction, in several runs.
#[derive(Default)]
struct Samples(HashMap<(usize, Step), Vec<f64>>);

impl Samples {
    fn add(&mut self, spans: &[Span]) {
        for span in spans {
            let samples = self.0.entry((span.transaction, span.step)).or_default();
            samples.push(span.ended.saturating_sub(span.began) as f64);
        }
    }

    fn median(&self, index: usize, step: Step) -> Option<f64> {
        self.0.get(&(index, step)).map(|samples| median(samples))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are below a minute, and not negative"
)]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds.round() as u64
}

/// The block without its list, each transaction by itself.
fn load(
    scene: &Scene<'_>,
    dependencies: &[TxDependencies],
    [in_turn, ahead, listed]: [&Samples; 3],
    real: f64,
) -> Load {
    let in_turn = |index| in_turn.median(index, Step::Sequential).unwrap_or_default();
    // Ahead of what it must wait for, a transaction may do something else: its time then is that of the
    // run upon the list, as much longer as those that hold take without it.
    let (mut ahead_sum, mut listed_sum) = (0.0, 0.0);
    for (index, own) in dependencies.iter().enumerate() {
        if own.after == Some(0) {
            ahead_sum += ahead.median(index, Step::Speculate).unwrap_or_default();
            listed_sum += listed.median(index, Step::Speculate).unwrap_or_default();
        }
    }
    let over_listed = match listed_sum > 0.0 {
        true => ahead_sum / listed_sum,
        false => 1.0,
    };
    let mut numbers: HashMap<Address, usize> = HashMap::new();
    let transactions = &scene.block.block.body.transactions;
    let jobs = transactions.iter().zip(dependencies).enumerate();
    let jobs: Vec<Job> = jobs
        .map(|(index, (tx, own))| {
            let run = match own.after {
                Some(0) => ahead.median(index, Step::Speculate),
                _ => listed
                    .median(index, Step::Speculate)
                    .map(|time| time * over_listed),
            };
            let fresh = in_turn(index);
            let again = ahead.median(index, Step::Reexecute);
            let next = numbers.len();
            Job {
                in_turn: whole(fresh),
                ahead: whole(run.unwrap_or(fresh)),
                adopt: whole(ahead.median(index, Step::Validate).unwrap_or_default()),
                again: whole(again.unwrap_or(fresh)),
                after: own.after,
                upon: own.writers.clone(),
                to: tx.to().map(|to| *numbers.entry(to).or_insert(next)),
                is_plain: tx.input().is_empty() && tx.to().is_some(),
                gas_limit: tx.gas_limit(),
                ..Job::default()
            }
        })
        .collect();
    let spent: u64 = jobs.iter().map(|job| job.in_turn).sum();
    Load {
        each: whole(real).saturating_sub(spent) / (jobs.len().max(1) as u64),
        jobs,
        ..Load::default()
    }
}

/// How many times as long what was done beside another thread took as the model has it; nothing if there
/// was none.
fn factor(load: &Load, beside: &Samples, step: Step, of: fn(&Job) -> u64) -> Option<f64> {
    let (mut real, mut model) = (0.0, 0.0);
    for (index, job) in load.jobs.iter().enumerate() {
        if let Some(time) = beside.median(index, step) {
            real += time;
            model += of(job) as f64;
        }
    }
    (real > 0.0 && model > 0.0).then(|| real / model)
}

fn ahead_over_in_turn(alone: &Load, beside: &Samples) -> f64 {
    factor(alone, beside, Step::Speculate, |job| job.in_turn).unwrap_or_default()
}

/// Threads beside each other are slower than one by itself: values go from core to core, what counts is told
/// to the others, and they share memory. Makes each kind of work so much slower as it was on two threads.
fn as_slow_as(load: &mut Load, beside: &Samples) {
    let ahead = factor(load, beside, Step::Speculate, |job| job.ahead);
    // A block that nobody helped with runs as on one thread.
    let Some(ahead) = ahead else { return };
    let of = |step, time| factor(load, beside, step, time).unwrap_or(1.0);
    let in_turn = of(Step::Sequential, |job| job.in_turn);
    let adopt = of(Step::Validate, |job| job.adopt);
    let again = of(Step::Reexecute, |job| job.again);
    for job in &mut load.jobs {
        for (time, factor) in [
            (&mut job.ahead, ahead),
            (&mut job.in_turn, in_turn),
            (&mut job.adopt, adopt),
            (&mut job.again, again),
        ] {
            *time = whole(*time as f64 * factor);
        }
    }
}

/// The same block with its list.
fn with_list(plain: &Load, listed: &Samples) -> Load {
    let mut load = plain.clone();
    load.has_list = true;
    for (index, job) in load.jobs.iter_mut().enumerate() {
        let time = |step, other: u64| listed.median(index, step).map_or(other, whole);
        job.ahead = time(Step::Speculate, job.ahead);
        job.adopt = time(Step::Validate, job.adopt);
        job.again = time(Step::Reexecute, job.again);
    }
    load
}

/// From calling a thread that sleeps until it runs: nanoseconds, the median of 101.
pub(super) fn wake_time() -> Result<u64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let sleeper: JoinHandle<Instant> = std::thread::spawn(|| {
            std::thread::park();
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(1));
        let called = Instant::now();
        sleeper.thread().unpark();
        let came = sleeper
            .join()
            .ok()
            .wrap_err("a thread that only slept has failed")?;
        times.push(came.saturating_duration_since(called).as_nanos() as f64);
    }
    Ok(whole(median(&times)))
}
