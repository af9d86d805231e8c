//! `niwaki-bench soak`: commits blocks and reads random slots for minutes within a memory budget.
//!
//! One thread commits blocks of random changes as fast as it can; others read random slots through views of the head.
//! Once a second the main thread samples the resident memory of the process. The results are its peak over the budget
//! and its slope in the second half.

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::harness::{JsonFile, Seed, join};
use crate::machine::Machine;
use crate::process::proc_field;
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{StateView, U256};
use niwaki_state::WorldState;
use rand::Rng;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `niwaki-bench soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    block: BlockSize,
    /// Minutes to run.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    minutes: f64,
    /// Memory budget in bytes, shared as in the node: 45 % for the state, 35 % for the storage engine.
    #[arg(long, default_value_t = 1 << 30, value_parser = budget)]
    budget: usize,
    /// Reader threads.
    #[arg(long, default_value_t = 1)]
    readers: u64,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: JsonFile,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes < 1e6 => Ok(minutes),
        _ => Err("use a number of minutes above 0, like 10 or 0.5".to_owned()),
    }
}

fn budget(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes) if bytes >= 32 << 20 => Ok(bytes),
        Ok(_) => Err("the storage engine alone needs more; use 33554432 or more".to_owned()),
        Err(error) => Err(format!("{error}; use a number of bytes")),
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    changed_accounts: u64,
    changed_slots: u64,
    budget_bytes: usize,
    readers: u64,
    rss_at_start_bytes: u64,
    max_rss_bytes: u64,
    /// Peak over budget.
    max_rss_over_budget: f64,
    /// Slope of the line through the second half of the samples.
    slope_bytes_per_minute: f64,
    samples: Vec<Sample>,
}

/// The state of the run after one second more.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    at_s: f64,
    rss_bytes: u64,
    /// Blocks imported and slots read since the beginning.
    blocks: u64,
    reads: u64,
    /// Bytes of the tries in memory.
    trie_bytes: usize,
    /// Bytes of batches that wait to be written.
    waiting_bytes: usize,
}

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    blocks: AtomicU64,
    reads: AtomicU64,
}

impl Shared {
    /// Repeats `work` until the run is over; an error ends the run for all threads.
    fn repeat(&self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            work().inspect_err(|_| self.is_over.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Reads through one view; a view keeps old data alive in the engine.
const READS_PER_VIEW: u64 = 1000;

/// Creates the state if it does not exist, and runs.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    options.state.check(&options.block)?;
    let budget = Budget::of(options.budget);
    // Opened twice, so that memory needed to create it is free again.
    drop(options.state.open(&budget)?);
    let world = options.state.open(&budget)?;
    let rss_at_start_bytes = rss_bytes()?;
    let samples = run_threads(&world, options)?;
    let max_rss_bytes = samples.iter().map(|sample| sample.rss_bytes).max();
    let report = Report {
        machine: Machine::here(),
        accounts: options.state.accounts,
        slots: options.state.slots,
        changed_accounts: options.block.changed_accounts,
        changed_slots: options.block.changed_slots,
        budget_bytes: options.budget,
        readers: options.readers,
        rss_at_start_bytes,
        max_rss_bytes: max_rss_bytes.unwrap_or_default(),
        max_rss_over_budget: max_rss_bytes.unwrap_or_default() as f64 / options.budget as f64,
        slope_bytes_per_minute: slope(&samples[samples.len() / 2..]) * 60.0,
        samples,
    };
    if let Some(last) = report.samples.last() {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        println!(
            "{:.0} s: {:.1} blocks/s, {:.0} reads/s; RSS at most {:.1} MiB, {:.2} of the budget, \
             {:+.2} MiB a minute at the end",
            last.at_s,
            last.blocks as f64 / last.at_s,
            last.reads as f64 / last.at_s,
            mib(report.max_rss_bytes as f64),
            report.max_rss_over_budget,
            mib(report.slope_bytes_per_minute)
        );
    }
    options.json.write(&report)
}

/// Runs all threads until the time is over; the calling thread takes the samples.
fn run_threads(world: &WorldState, options: &Options) -> Result<Vec<Sample>> {
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(world, options, &shared));
        let readers: Vec<_> = (0..options.readers)
            .map(|at| {
                let shared = &shared;
                scope.spawn(move || read(world, options, shared, at))
            })
            .collect();
        let samples = sample(world, options, &shared);
        shared.is_over.store(true, Ordering::Relaxed);
        for thread in readers.into_iter().chain([writer]) {
            join(thread)?;
        }
        samples
    })
}

/// Takes a sample every second and prints it as a line of JSON.
fn sample(world: &WorldState, options: &Options, shared: &Shared) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let until = Duration::from_secs_f64(options.minutes * 60.0);
    let mut samples = Vec::new();
    loop {
        let rest = until.saturating_sub(began.elapsed());
        std::thread::sleep(SAMPLE_EVERY.min(rest));
        let sample = Sample {
            at_s: began.elapsed().as_secs_f64(),
            rss_bytes: rss_bytes()?,
            blocks: shared.blocks.load(Ordering::Relaxed),
            reads: shared.reads.load(Ordering::Relaxed),
            trie_bytes: world.cache_stats().trie_bytes,
            waiting_bytes: world.database().pending_bytes(),
        };
        println!("{}", serde_json::to_string(&sample)?);
        samples.push(sample);
        // If a thread failed, joining it returns the error.
        if began.elapsed() >= until || shared.is_over.load(Ordering::Relaxed) {
            return Ok(samples);
        }
    }
}

fn write(world: &WorldState, options: &Options, shared: &Shared) -> Result<()> {
    let mut random = options.seed.rng();
    shared.repeat(|| {
        let (state, block) = (&options.state, &options.block);
        state.commit_random_block(world, block, &mut random)?;
        shared.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

fn read(world: &WorldState, options: &Options, shared: &Shared, at: u64) -> Result<()> {
    let mut random = options.seed.rng_of(1 + at);
    let (accounts, slots) = (options.state.accounts, options.state.slots_each());
    shared.repeat(|| {
        let view = world.view_at_head()?;
        for _ in 0..READS_PER_VIEW {
            let address = big_state::address(random.random_range(0..accounts));
            let slot = U256::from(random.random_range(0..slots));
            let value = view.storage(&address, &slot)?;
            ensure!(!value.is_zero(), "slot {slot} of {address} is not there");
        }
        shared.reads.fetch_add(READS_PER_VIEW, Ordering::Relaxed);
        Ok(())
    })
}

fn rss_bytes() -> Result<u64> {
    let kib = proc_field(std::process::id(), "status", "VmRSS:");
    kib.map(|kib| kib << 10)
        .ok_or_else(|| eyre!("/proc/self/status does not tell the memory; use Linux"))
}

/// Slope of the least-squares line, bytes per second; 0 for fewer than two samples.
fn slope(samples: &[Sample]) -> f64 {
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (at, rss) = (mean(|s| s.at_s), mean(|s| s.rss_bytes as f64));
    let (mut up, mut down) = (0.0, 0.0);
    for sample in samples {
        up += (sample.at_s - at) * (sample.rss_bytes as f64 - rss);
        down += (sample.at_s - at).powi(2);
    }
    if down > 0.0 { up / down } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        crate::harness::tests::parse(&[&["--data-path", "x"][..], words].concat())
    }

    #[test]
    fn times_of_0_and_budgets_below_32_mib_are_refused() {
        assert!(parse(&["--minutes", "0.5", "--budget", "67108864"]).is_ok());
        for words in [
            ["--minutes", "0"],
            ["--minutes", "-1"],
            ["--minutes", "nan"],
            ["--budget", "1000"],
            ["--budget", "1GB"],
        ] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_slope_of_a_line_is_found() {
        let sample = |at: u64, rss_bytes: u64| Sample {
            at_s: at as f64,
            rss_bytes,
            blocks: 0,
            reads: 0,
            trie_bytes: 0,
            waiting_bytes: 0,
        };
        let rising: Vec<_> = (0..10).map(|at| sample(at, 1000 + 50 * at)).collect();
        assert!((slope(&rising) - 50.0).abs() < 1e-9);
        assert_eq!(slope(&[sample(0, 7), sample(1, 7)]), 0.0);
        assert_eq!(slope(&[sample(0, 7)]), 0.0);
        assert_eq!(slope(&[]), 0.0);
    }
}
