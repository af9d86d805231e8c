//! `niwaki-bench sload`: random reads of storage slots through a view of the state.
//!
//! A read is timed from address and slot number to value, hashing included. Three cases, each with the database
//! just opened:
//!
//! | case | slots | files |
//! |---|---|---|
//! | `hit` | read just before | in the page cache |
//! | `file` | not read before, but others were | in the page cache |
//! | `cold` | not read before | dropped from the page cache |
//!
//! Bare RocksDB and MDBX were measured the same way when the engine was chosen; docs/storage.md has the figures.

use crate::big_state::{self, BigState, Budget};
use crate::disk;
use crate::harness::{JsonFile, join};
use crate::machine::Machine;
use crate::stats::{Spread, median};
use eyre::{Result, ensure};
use niwaki_primitives::{Address, StateView, U256};
use niwaki_state::WorldState;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// Options of `niwaki-bench sload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// Reads of each thread in a case, except for the cold one.
    #[arg(long, default_value_t = 100_000, value_parser = crate::harness::at_least_one)]
    reads: usize,
    /// Cold reads of each thread.
    #[arg(long, default_value_t = 2000, value_parser = crate::harness::at_least_one)]
    cold_reads: usize,
    /// Rounds; each goes through all cases.
    #[arg(long, default_value_t = 6, value_parser = crate::harness::at_least_one)]
    rounds: usize,
    #[command(flatten)]
    json: JsonFile,
}

/// Slots that the hits read again and again.
const HIT_SLOTS: usize = 10_000;
/// Threads that read at the same time.
const THREADS: [usize; 2] = [1, 2];

/// What is cached before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Case {
    Hit,
    File,
    Cold,
}

impl Case {
    const ALL: [Self; 3] = [Self::Cold, Self::File, Self::Hit];
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    cache_bytes: usize,
    storage_bytes: usize,
    rounds: usize,
    /// Time of reading the clock; subtracted from every read.
    timer_ns: f64,
    rows: Vec<CaseTimes>,
}

#[derive(Debug, Serialize)]
struct CaseTimes {
    case: Case,
    threads: usize,
    /// Over the rounds.
    p50_ns: Spread,
    p99_ns: Spread,
    max_ns: f64,
}

/// The reads of one case in one round, ns.
struct Sample {
    p50: f64,
    p99: f64,
    max: f64,
}

/// Makes the state if it does not exist, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let total = options.state.accounts * options.state.slots_each();
    ensure!(
        total >= (options.slots_per_round() * options.rounds) as u64,
        "{total} slots are too few to read each once; give fewer --reads or --rounds"
    );
    let world = options.state.open(&options.budget)?;
    world.database().sync()?;
    drop(world);

    let timer_ns = timer_ns();
    let slots = ScatteredSlots::new(options);
    let mut rows = Vec::new();
    for threads in THREADS {
        rows.extend(measure(options, &slots, threads, timer_ns)?);
    }
    let report = Report {
        machine: Machine::here(),
        accounts: options.state.accounts,
        slots: options.state.slots,
        cache_bytes: options.budget.cache_bytes,
        storage_bytes: options.budget.storage_bytes,
        rounds: options.rounds,
        timer_ns,
        rows,
    };
    print(&report);
    options.json.write(&report)
}

impl Options {
    /// Slots that a round may read.
    fn slots_per_round(&self) -> usize {
        THREADS.into_iter().max().unwrap_or(1) * self.slots_per_thread()
    }

    fn slots_per_thread(&self) -> usize {
        self.reads.max(self.cold_reads).max(HIT_SLOTS) + HIT_SLOTS
    }
}

/// Every slot of the state, each once, in scattered order.
struct ScatteredSlots {
    accounts: u64,
    each: u64,
    step: u64,
}

impl ScatteredSlots {
    fn new(options: &Options) -> Self {
        let (accounts, each) = (options.state.accounts, options.state.slots_each());
        let total = accounts * each;
        // About the golden ratio of the total, and coprime to it.
        let mut step = total * 618 / 1000 + 1;
        while gcd(step, total) > 1 {
            step += 1;
        }
        Self {
            accounts,
            each,
            step,
        }
    }

    fn at(&self, index: usize) -> (Address, U256) {
        // Both factors are below 2^32, the most slots that a state may have.
        let position = self.step * index as u64 % (self.accounts * self.each);
        let slot = U256::from(position / self.accounts);
        (big_state::address(position % self.accounts), slot)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn measure(
    options: &Options,
    slots: &ScatteredSlots,
    threads: usize,
    timer_ns: f64,
) -> Result<Vec<CaseTimes>> {
    let mut samples: [Vec<Sample>; 3] = Default::default();
    for round in 0..options.rounds {
        let first = round * options.slots_per_round();
        for (case, samples) in Case::ALL.into_iter().zip(&mut samples) {
            let folder = &options.state.data_path;
            match case {
                Case::Cold => disk::drop_cached(folder)?,
                Case::File | Case::Hit => disk::read_through(folder)?,
            }
            let world = options.state.open_unread(&options.budget)?;
            let times = std::thread::scope(|scope| {
                let read = |thread| {
                    let first = first + thread * options.slots_per_thread();
                    let world = &world;
                    scope.spawn(move || read_slots(world, case, options, slots, first))
                };
                let readers: Vec<_> = (0..threads).map(read).collect();
                readers.into_iter().map(join).collect::<Result<Vec<_>>>()
            })?;
            samples.push(Sample::of(times.concat(), timer_ns));
        }
    }
    let rows = Case::ALL.into_iter().zip(&samples);
    Ok(rows
        .map(|(case, samples)| CaseTimes {
            case,
            threads,
            p50_ns: Spread::of(samples.iter().map(|sample| sample.p50)),
            p99_ns: Spread::of(samples.iter().map(|sample| sample.p99)),
            max_ns: samples.iter().map(|sample| sample.max).fold(0.0, f64::max),
        })
        .collect())
}

/// Reads the slots of one thread, from number `first` on; returns the time of each read, ns.
fn read_slots(
    world: &WorldState,
    case: Case,
    options: &Options,
    slots: &ScatteredSlots,
    first: usize,
) -> Result<Vec<f64>> {
    let (reads, distinct) = match case {
        Case::Cold => (options.cold_reads, options.cold_reads),
        Case::File => (options.reads, options.reads),
        Case::Hit => (options.reads, HIT_SLOTS),
    };
    let view = world.view_at_head()?;
    let timed: Vec<_> = (first..first + distinct).map(|at| slots.at(at)).collect();
    let others: Vec<_> = (first + distinct..first + distinct + HIT_SLOTS)
        .map(|at| slots.at(at))
        .collect();
    // Other slots bring the engine's indices and filters into memory.
    let before = match case {
        Case::Hit => &timed[..],
        Case::File => &others,
        Case::Cold => &[],
    };
    for (address, slot) in before {
        black_box(view.storage(address, slot)?);
    }
    let mut times = Vec::with_capacity(reads);
    for (address, slot) in timed.iter().cycle().take(reads) {
        let clock = Instant::now();
        let value = view.storage(address, slot)?;
        times.push(clock.elapsed().as_nanos() as f64);
        ensure!(!value.is_zero(), "slot {slot} of {address} is not there");
    }
    Ok(times)
}

impl Sample {
    fn of(mut times: Vec<f64>, timer_ns: f64) -> Self {
        times.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let time = times[(times.len() - 1) * percent / 100];
            (time - timer_ns).max(0.0)
        };
        Self {
            p50: rank(50),
            p99: rank(99),
            max: rank(100),
        }
    }
}

/// The median time of two clock readings, ns.
fn timer_ns() -> f64 {
    let reading = |_| {
        let clock = Instant::now();
        clock.elapsed().as_nanos() as f64
    };
    let readings: Vec<f64> = (0..100_000).map(reading).collect();
    median(&readings)
}

fn print(report: &Report) {
    println!(
        "{:<5} {:>7} {:>9} {:>17} {:>10} {:>10}",
        "case", "threads", "P50 ns", "min..max", "P99 ns", "max ns"
    );
    for row in &report.rows {
        println!(
            "{:<5} {:>7} {:>9.0} {:>17} {:>10.0} {:>10.0}",
            format!("{:?}", row.case).to_lowercase(),
            row.threads,
            row.p50_ns.median,
            row.p50_ns.range(0),
            row.p99_ns.median,
            row.max_ns
        );
    }
    println!(
        "{} rounds; {:.0} ns for the clock itself are subtracted",
        report.rounds, report.timer_ns
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tests::parse;

    #[test]
    fn zero_reads_or_rounds_and_too_few_slots_are_refused() {
        for flag in ["--reads", "--cold-reads", "--rounds"] {
            assert!(
                parse::<Options>(&["--data-path", "x", flag, "0"]).is_err(),
                "{flag}"
            );
        }
        let few = parse(&["--data-path", "/nonexistent/x", "--slots", "1000"]).unwrap();
        assert!(run(&few).unwrap_err().to_string().contains("too few"));
    }

    #[test]
    fn every_slot_comes_once() {
        let mut options: Options = parse(&["--data-path", "x"]).unwrap();
        (options.state.accounts, options.state.slots) = (7, 7 * 11);
        let slots = ScatteredSlots::new(&options);
        let all: std::collections::BTreeSet<_> = (0..77).map(|at| slots.at(at)).collect();
        assert_eq!(all.len(), 77);
        assert!(all.iter().all(|(_, slot)| *slot < U256::from(11)));
    }

    #[test]
    fn a_run_over_a_small_state_reports_3_cases_on_1_and_2_threads() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let json = folder.path().join("report.json");
        let mut options: Options = parse(&["--data-path", "x", "--rounds", "1"]).unwrap();
        options.state.data_path = folder.path().join("state");
        (options.state.accounts, options.state.slots) = (5, 50_000);
        (options.reads, options.cold_reads) = (500, 20);
        options.budget = Budget::of(32 << 20);
        options.json = crate::harness::tests::json_file(json.clone());
        run(&options).unwrap();
        let report = std::fs::read(json).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["rows"].as_array().unwrap().len(), 2 * 3);
    }
}
