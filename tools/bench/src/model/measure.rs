//! The input of the model: times and dependencies of each transaction of a block; and the measured times of the block
//! on one thread and on two, to compare the model with.

use super::schedule::{BlockLoad, Job};
use crate::recorded::{Entry, PreState};
use crate::replay::{bal_of, warm::ReadRecorder};
use crate::stats::median;
use eyre::{ContextCompat, Result, ensure};
use niwaki_chain::nanoseconds;
use niwaki_crypto::forget_precompile_results;
use niwaki_execution::{
    BlockExecution, Parallelism, RecoveringBlock, Span, Step, TxDependencies, recover_block,
    tx_dependencies,
};
use niwaki_primitives::{AccountChanges, Address, RecoveredBlock, StateView, Transaction};
use niwaki_rules::{ChainSpec, Network};
use std::collections::HashMap;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A block with everything needed to run its transactions.
struct BlockInput<'s> {
    spec: &'s ChainSpec,
    block: &'s RecoveringBlock,
    view: &'s (dyn StateView + Sync),
    bal: &'s [AccountChanges],
}

/// The measurements of a block.
pub(super) struct Measured {
    pub(super) transactions: usize,
    pub(super) gas: u64,
    /// On one thread.
    pub(super) alone: BlockLoad,
    /// On several threads, without its block access list.
    pub(super) without_bal: BlockLoad,
    /// On several threads, with its block access list.
    pub(super) with_bal: BlockLoad,
    /// Median nanoseconds of the transactions on one thread; on two; on two with the BAL.
    pub(super) real: [f64; 3],
    /// Time of speculative executions in parallel with the commit thread, without a BAL, over sequential ones.
    pub(super) ahead_factor: f64,
}

/// Measures a recorded block, `repeat` times.
pub(super) fn measure(entry: Entry, repeat: usize, wake: u64) -> Result<Measured> {
    let network = Network::from_name(&entry.chain)
        .wrap_err_with(|| format!("{}: no chain is called {}", entry.name, entry.chain))?;
    let spec = network.genesis().spec;
    let hash = entry.block.header.hash_slow();
    let block = recover_block(entry.block, hash)?;
    match entry.pre_state {
        PreState::Witness(state) => {
            // A node has caches and does not walk a witness: a first run reads the values.
            let recorder = ReadRecorder::new(&state);
            let execution = block.clone().into();
            BlockExecution::new(&spec, &execution, &recorder).run_transactions()?;
            measure_block(&spec, &block, &recorder.into_warm(), repeat, wake)
        }
        PreState::Values { state, .. } => measure_block(&spec, &block, &*state, repeat, wake),
    }
}

fn measure_block(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    view: &(dyn StateView + Sync),
    repeat: usize,
    wake: u64,
) -> Result<Measured> {
    let bal = bal_of(spec, block, view, false)?;
    let recovering = block.clone().into();
    let input = BlockInput {
        spec,
        block: &recovering,
        view,
        bal: &bal,
    };
    let dependencies = tx_dependencies(spec, block, &bal, view)?;
    let mut real = [Vec::new(), Vec::new(), Vec::new()];
    let [mut sequential, mut speculative, mut with_bal] = [(); 3].map(|()| Samples::default());
    let [mut two_threads, mut two_with_bal] = [(); 2].map(|()| Samples::default());
    let recording = |threads, speculate_all| Parallelism {
        speculate_all,
        record_spans: true,
        clock: Some(nanoseconds),
        ..Parallelism::of(threads)
    };
    for _ in 0..repeat {
        for (at, (threads, has_bal)) in [(1, false), (2, false), (2, true)].iter().enumerate() {
            let parallelism = Parallelism {
                clock: Some(nanoseconds),
                ..Parallelism::of(*threads)
            };
            real[at].push(input.run(parallelism, *has_bal)?.0);
        }
        sequential.add(&input.run(recording(1, false), false)?.1);
        speculative.add(&input.run(recording(1, true), false)?.1);
        with_bal.add(&input.run(recording(1, true), true)?.1);
        two_threads.add(&input.run(recording(2, false), false)?.1);
        two_with_bal.add(&input.run(recording(2, false), true)?.1);
    }
    let real = real.map(|times| median(&times));
    let (_, _, gas) = input.run(Parallelism::of(1), false)?;
    let samples = [&sequential, &speculative, &with_bal];
    let mut alone = block_load(&input, &dependencies, samples, real[0]);
    alone.wake = wake;
    for (job, gas) in alone.jobs.iter_mut().zip(gas) {
        job.gas_used = gas;
    }
    let mut with_bal = load_with_bal(&alone, &with_bal);
    let mut without_bal = alone.clone();
    let ahead_factor = factor(&alone, &two_threads, Step::Speculate, |job| job.sequential);
    slow_down(&mut without_bal, &two_threads);
    slow_down(&mut with_bal, &two_with_bal);
    Ok(Measured {
        transactions: block.block.body.transactions.len(),
        gas: block.block.header.gas_used,
        alone,
        without_bal,
        with_bal,
        real,
        ahead_factor: ahead_factor.unwrap_or_default(),
    })
}

impl BlockInput<'_> {
    /// Runs the transactions; returns nanoseconds, the spans of the threads, and the gas of each transaction.
    fn run(&self, parallelism: Parallelism, has_bal: bool) -> Result<(f64, Vec<Span>, Vec<u64>)> {
        forget_precompile_results();
        let start = Instant::now();
        let bal = has_bal.then_some(self.bal);
        let execution = BlockExecution {
            bal,
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

/// Nanoseconds of each step of each transaction, over several runs.
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

/// The load of the block without BAL, from runs on one thread.
fn block_load(
    input: &BlockInput<'_>,
    dependencies: &[TxDependencies],
    [sequential, speculative, with_bal]: [&Samples; 3],
    real: f64,
) -> BlockLoad {
    // Without the changes it depends on, a transaction may take another path. Its speculative time is then that of the
    // run with the BAL, scaled by the ratio of the independent transactions.
    let (mut speculative_sum, mut with_bal_sum) = (0.0, 0.0);
    for (index, own) in dependencies.iter().enumerate() {
        if own.after == Some(0) {
            speculative_sum += speculative
                .median(index, Step::Speculate)
                .unwrap_or_default();
            with_bal_sum += with_bal.median(index, Step::Speculate).unwrap_or_default();
        }
    }
    let over_with_bal = match with_bal_sum > 0.0 {
        true => speculative_sum / with_bal_sum,
        false => 1.0,
    };
    let mut numbers: HashMap<Address, usize> = HashMap::new();
    let transactions = &input.block.block.body.transactions;
    let jobs = transactions.iter().zip(dependencies).enumerate();
    let jobs: Vec<Job> = jobs
        .map(|(index, (tx, own))| {
            let run = match own.after {
                Some(0) => speculative.median(index, Step::Speculate),
                _ => with_bal
                    .median(index, Step::Speculate)
                    .map(|time| time * over_with_bal),
            };
            let first = sequential
                .median(index, Step::Sequential)
                .unwrap_or_default();
            let validate = speculative.median(index, Step::Validate);
            let again = speculative.median(index, Step::Reexecute);
            let next = numbers.len();
            Job {
                sequential: whole(first),
                speculate: whole(run.unwrap_or(first)),
                validate: whole(validate.unwrap_or_default()),
                reexecute: whole(again.unwrap_or(first)),
                after: own.after,
                depends_on: own.writers.clone(),
                to: tx.to().map(|to| *numbers.entry(to).or_insert(next)),
                is_plain: tx.input().is_empty() && tx.to().is_some(),
                gas_limit: tx.gas_limit(),
                ..Job::default()
            }
        })
        .collect();
    let spent: u64 = jobs.iter().map(|job| job.sequential).sum();
    BlockLoad {
        overhead: whole(real).saturating_sub(spent) / (jobs.len().max(1) as u64),
        jobs,
        ..BlockLoad::default()
    }
}

/// Measured time of a step on two threads over its time in the model; `None` if it did not happen.
fn factor(load: &BlockLoad, two_threads: &Samples, step: Step, of: fn(&Job) -> u64) -> Option<f64> {
    let (mut real, mut model) = (0.0, 0.0);
    for (index, job) in load.jobs.iter().enumerate() {
        if let Some(time) = two_threads.median(index, step) {
            real += time;
            model += of(job) as f64;
        }
    }
    (real > 0.0 && model > 0.0).then(|| real / model)
}

/// Makes each kind of work as slow as it was on two threads: threads in parallel are slower than one alone, because
/// values move between cores, committed changes are published to the workers, and memory is shared.
fn slow_down(load: &mut BlockLoad, two_threads: &Samples) {
    let speculate = factor(load, two_threads, Step::Speculate, |job| job.speculate);
    // Without speculation the block ran as on one thread.
    let Some(speculate) = speculate else { return };
    let of = |step, time| factor(load, two_threads, step, time).unwrap_or(1.0);
    let sequential = of(Step::Sequential, |job| job.sequential);
    let validate = of(Step::Validate, |job| job.validate);
    let reexecute = of(Step::Reexecute, |job| job.reexecute);
    for job in &mut load.jobs {
        for (time, factor) in [
            (&mut job.speculate, speculate),
            (&mut job.sequential, sequential),
            (&mut job.validate, validate),
            (&mut job.reexecute, reexecute),
        ] {
            *time = whole(*time as f64 * factor);
        }
    }
}

/// The same block with its BAL.
fn load_with_bal(without_bal: &BlockLoad, with_bal: &Samples) -> BlockLoad {
    let mut load = without_bal.clone();
    load.has_bal = true;
    for (index, job) in load.jobs.iter_mut().enumerate() {
        let time = |step, other: u64| with_bal.median(index, step).map_or(other, whole);
        job.speculate = time(Step::Speculate, job.speculate);
        job.validate = time(Step::Validate, job.validate);
        job.reexecute = time(Step::Reexecute, job.reexecute);
    }
    load
}

/// From waking a parked thread until it runs: median of 101, nanoseconds.
pub(super) fn wake_time() -> Result<u64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let sleeper: JoinHandle<Instant> = std::thread::spawn(|| {
            std::thread::park();
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(1));
        let woken = Instant::now();
        sleeper.thread().unpark();
        let ran = sleeper
            .join()
            .ok()
            .wrap_err("a thread that only slept has failed")?;
        times.push(ran.saturating_duration_since(woken).as_nanos() as f64);
    }
    Ok(whole(median(&times)))
}
