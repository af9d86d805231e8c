//! `niwaki-bench soak`: blocks and random reads for minutes within a budget, memory watched.
//!
//! One thread imports blocks of random changes as fast as it can, others read random slots through
//! views of the head. Once a second the resident memory of the process is written down. What counts
//! is its peak against the budget, and whether it still grows in the second half.

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::machine::Machine;
use crate::process::proc_field;
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{StateView, U256};
use niwaki_state::WorldState;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `niwaki-bench soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    block: BlockSize,
    /// How long, in minutes.
    #[arg(long, default_value_t = 10.0, value_parser = positive)]
    minutes: f64,
    /// Bytes of memory, shared out as the node does: 45 % to the state, 35 % to the storage engine.
    #[arg(long, default_value_t = 1 << 30, value_parser = budget)]
    budget: usize,
    /// Threads that read.
    #[arg(long, default_value_t = 1)]
    readers: u64,
    /// Seed of changes and reads.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes all samples here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
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
    /// Of the line through the second half of the samples.
    slope_bytes_per_minute: f64,
    samples: Vec<Sample>,
}

/// One second.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    at_s: f64,
    rss_bytes: u64,
    /// Blocks imported and slots read since the beginning.
    blocks: u64,
    reads: u64,
    /// Of the tries in memory, and of batches on their way to the engine.
    trie_bytes: usize,
    waiting_bytes: usize,
}

/// What the threads have in common.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    blocks: AtomicU64,
    reads: AtomicU64,
}

/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Reads through one view, which holds back the engine while it lives.
const READS_A_VIEW: u64 = 1000;

/// Makes the state if need be, and watches.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    options.state.check(&options.block)?;
    let budget = Budget::of(options.budget);
    // Opened twice: what making it needed is given back.
    drop(options.state.open(&budget)?);
    let world = options.state.open(&budget)?;
    let rss_at_start_bytes = rss_bytes()?;
    let samples = watch(&world, options)?;
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
    crate::write_json(options.json.as_deref(), &report)
}

/// Runs all threads until the time is over; this one takes the samples.
fn watch(world: &WorldState, options: &Options) -> Result<Vec<Sample>> {
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
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        samples
    })
}

/// A sample a second, each printed as a line of JSON.
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
        // A thread that failed says why when it is joined.
        if began.elapsed() >= until || shared.is_over.load(Ordering::Relaxed) {
            return Ok(samples);
        }
    }
}

fn write(world: &WorldState, options: &Options, shared: &Shared) -> Result<()> {
    let mut random = SmallRng::seed_from_u64(options.seed);
    let mut one = || -> Result<()> {
        let view = world.view_at_head()?;
        let diff = options.state.changes(&view, &options.block, &mut random)?;
        let prepared = world.compute_root(&view, &diff)?;
        drop(view);
        big_state::commit(world, prepared)?;
        shared.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    while !shared.is_over.load(Ordering::Relaxed) {
        one().inspect_err(|_| shared.is_over.store(true, Ordering::Relaxed))?;
    }
    Ok(())
}

fn read(world: &WorldState, options: &Options, shared: &Shared, at: u64) -> Result<()> {
    let mut random = SmallRng::seed_from_u64(options.seed + 1 + at);
    let (accounts, slots) = (options.state.accounts, options.state.slots_each());
    let mut some = || -> Result<()> {
        let view = world.view_at_head()?;
        for _ in 0..READS_A_VIEW {
            let address = big_state::address(random.random_range(0..accounts));
            let slot = U256::from(random.random_range(0..slots));
            let value = view.storage(&address, &slot)?;
            ensure!(!value.is_zero(), "slot {slot} of {address} is not there");
        }
        shared.reads.fetch_add(READS_A_VIEW, Ordering::Relaxed);
        Ok(())
    };
    while !shared.is_over.load(Ordering::Relaxed) {
        some().inspect_err(|_| shared.is_over.store(true, Ordering::Relaxed))?;
    }
    Ok(())
}

fn rss_bytes() -> Result<u64> {
    let kib = proc_field(std::process::id(), "status", "VmRSS:");
    kib.map(|kib| kib << 10)
        .ok_or_else(|| eyre!("/proc/self/status does not tell the memory; use Linux"))
}

/// Bytes a second of the line with the least squares; 0 of fewer than two samples.
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
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        let words = [&["soak", "--data-path", "x"][..], words].concat();
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn times_and_budgets_that_make_no_sense_are_refused() {
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
    fn the_slope_is_that_of_the_line() {
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
