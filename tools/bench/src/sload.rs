//! `niwaki-bench sload`: random reads of slots through a view of the state, beside bare point reads
//! of RocksDB and of MDBX.
//!
//! Every contender is asked for the same slots by address and slot number, and hashes both inside
//! the clock. RocksDB reads the files of our own database, opened a second time for reading with
//! filters and cache as ours; MDBX has a copy of the same rows in a folder beside. Three
//! cases, each with the engine just opened: `hit` (slots that were asked for just before), `file`
//! (slots that were not, after all files were read through and other slots asked for), `cold` (slots
//! that were not, the files dropped from the system's cache).

mod engines;

use crate::big_state::{self, BigState, Budget};
use crate::disk;
use crate::machine::Machine;
use crate::stats::{Spread, median};
use engines::{Engine, Kind};
use eyre::{Result, ensure};
use niwaki_primitives::{Address, U256};
use serde::Serialize;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

/// Options of `niwaki-bench sload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// Folder of MDBX's copy, made if it is empty or of another state [default: that of ours with
    /// `.mdbx` at its end].
    #[arg(long)]
    mdbx_path: Option<PathBuf>,
    /// Reads of a case by each thread, but for the cold one.
    #[arg(long, default_value_t = 100_000, value_parser = crate::at_least_one)]
    reads: usize,
    /// Cold reads by each thread.
    #[arg(long, default_value_t = 2000, value_parser = crate::at_least_one)]
    cold_reads: usize,
    /// Rounds; in each, every contender goes through all cases, another one first each time.
    #[arg(long, default_value_t = 6, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Slots that the hits go over again and again.
const HIT_SLOTS: usize = 10_000;
/// Threads that read at once.
const THREADS: [usize; 2] = [1, 2];

/// What is between a read and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Case {
    Hit,
    File,
    Cold,
}

impl Case {
    const ALL: [Self; 3] = [Self::Cold, Self::File, Self::Hit];

    fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::File => "file",
            Self::Cold => "cold",
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    cache_bytes: usize,
    storage_bytes: usize,
    rounds: usize,
    /// What the clock itself takes; subtracted from every read.
    timer_ns: f64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    case: Case,
    threads: usize,
    contender: &'static str,
    /// Over the rounds: ns of a round's reads.
    p50_ns: Spread,
    p99_ns: Spread,
    max_ns: f64,
    /// Its median over ours in the same round; none for ourselves.
    p50_ratio: Option<Spread>,
}

/// The reads of one contender in one case of one round, as ns.
struct Sample {
    p50: f64,
    p99: f64,
    max: f64,
    /// All values that were read, folded: the same for every contender.
    fold: U256,
}

/// Makes state and copy if need be, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let total = options.state.accounts * options.state.slots_each();
    ensure!(
        total >= (options.slots_a_round() * options.rounds) as u64,
        "{total} slots are too few to ask for each once; give fewer --reads or --rounds"
    );
    // Made and brought to the disk, then closed.
    let world = options.state.open(&options.budget)?;
    engines::make_mdbx(&world, &options.mdbx_folder())?;
    world.database().sync()?;
    drop(world);

    let timer_ns = timer_ns();
    let slots = Slots::new(options);
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
    crate::write_json(options.json.as_deref(), &report)
}

impl Options {
    /// Slots that a round may ask for.
    fn slots_a_round(&self) -> usize {
        let most = THREADS.into_iter().max().unwrap_or(1);
        most * (self.reads.max(self.cold_reads).max(HIT_SLOTS) + HIT_SLOTS)
    }

    fn mdbx_folder(&self) -> PathBuf {
        self.mdbx_path.clone().unwrap_or_else(|| {
            let mut folder = self.state.data_path.clone().into_os_string();
            folder.push(".mdbx");
            folder.into()
        })
    }
}

/// Every slot of the state, scattered, each once.
struct Slots {
    accounts: u64,
    each: u64,
    step: u64,
}

impl Slots {
    fn new(options: &Options) -> Self {
        let (accounts, each) = (options.state.accounts, options.state.slots_each());
        let total = accounts * each;
        // About the golden ratio of the whole, and without a common factor with it.
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
        // Both factors are below 2^32, as many slots as a state may have.
        let place = self.step * index as u64 % (self.accounts * self.each);
        let slot = U256::from(place / self.accounts);
        (big_state::address(place % self.accounts), slot)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn measure(options: &Options, slots: &Slots, threads: usize, timer_ns: f64) -> Result<Vec<Row>> {
    let mut samples: Vec<Vec<Sample>> = Vec::new();
    samples.resize_with(Kind::ALL.len() * Case::ALL.len(), Vec::new);
    for round in 0..options.rounds {
        let from = round * options.slots_a_round();
        let mut kinds: Vec<usize> = (0..Kind::ALL.len()).collect();
        // Whoever reads first finds less in the caches below the system.
        kinds.rotate_left(round % Kind::ALL.len());
        for at in kinds {
            for (case_at, case) in Case::ALL.into_iter().enumerate() {
                let engine = prepare(Kind::ALL[at], case, options)?;
                let sample = sample(&engine, case, options, (slots, from, threads), timer_ns)?;
                samples[at * Case::ALL.len() + case_at].push(sample);
            }
        }
    }
    rows(&samples, threads)
}

/// Opens an engine as the case wants it.
fn prepare(kind: Kind, case: Case, options: &Options) -> Result<Engine> {
    let folder = match kind {
        Kind::Mdbx => options.mdbx_folder(),
        _ => options.state.data_path.clone(),
    };
    match case {
        Case::Cold => disk::drop_cached(&folder)?,
        Case::File | Case::Hit => disk::read_through(&folder)?,
    }
    Engine::open(kind, options, &folder)
}

fn sample(
    engine: &Engine,
    case: Case,
    options: &Options,
    (slots, from, threads): (&Slots, usize, usize),
    timer_ns: f64,
) -> Result<Sample> {
    let reads = match case {
        Case::Cold => options.cold_reads,
        Case::File | Case::Hit => options.reads,
    };
    let work = |thread: usize| -> Result<(Vec<f64>, U256)> {
        let reader = engine.reader()?;
        let distinct = if case == Case::Hit { HIT_SLOTS } else { reads };
        let first = from + thread * (distinct + HIT_SLOTS);
        let asked: Vec<_> = (0..distinct).map(|at| slots.at(first + at)).collect();
        let others: Vec<_> = (distinct..distinct + HIT_SLOTS)
            .map(|at| slots.at(first + at))
            .collect();
        // Other slots bring the engine's indices and filters into its memory.
        let before = match case {
            Case::Hit => &asked[..],
            Case::File => &others,
            Case::Cold => &[],
        };
        for (address, slot) in before {
            black_box(reader.read(address, slot)?);
        }
        let mut times = Vec::with_capacity(reads);
        let mut fold = U256::ZERO;
        for (address, slot) in asked.iter().cycle().take(reads) {
            let clock = Instant::now();
            let value = reader.read(address, slot)?;
            times.push((clock.elapsed().as_nanos() as f64 - timer_ns).max(0.0));
            ensure!(!value.is_zero(), "slot {slot} of {address} is not there");
            fold = fold.rotate_left(1) ^ value;
        }
        Ok((times, fold))
    };
    let done: Vec<Result<_>> = std::thread::scope(|scope| {
        let work = &work;
        let readers: Vec<_> = (0..threads)
            .map(|at| scope.spawn(move || work(at)))
            .collect();
        let join = |reader: std::thread::ScopedJoinHandle<'_, _>| {
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        readers.into_iter().map(join).collect()
    });
    let (mut times, mut fold) = (Vec::new(), U256::ZERO);
    for outcome in done {
        let (own, folded) = outcome?;
        times.extend(own);
        fold ^= folded;
    }
    times.sort_by(f64::total_cmp);
    let rank = |percent: usize| times[(times.len() - 1) * percent / 100];
    Ok(Sample {
        p50: rank(50),
        p99: rank(99),
        max: rank(100),
        fold,
    })
}

/// One row for each case and contender; the values they read are compared.
fn rows(samples: &[Vec<Sample>], threads: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (case_at, case) in Case::ALL.into_iter().enumerate() {
        let ours = &samples[case_at];
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            let own = &samples[at * Case::ALL.len() + case_at];
            let pairs = || own.iter().zip(ours);
            ensure!(
                pairs().all(|(own, ours)| own.fold == ours.fold),
                "{} has other values than niwaki; remove its folder and it is made again",
                kind.name()
            );
            let max_ns = own.iter().map(|sample| sample.max).fold(0.0, f64::max);
            let ratio = pairs().map(|(own, ours)| own.p50 / ours.p50.max(1.0));
            rows.push(Row {
                case,
                threads,
                contender: kind.name(),
                p50_ns: Spread::of(own.iter().map(|sample| sample.p50)),
                p99_ns: Spread::of(own.iter().map(|sample| sample.p99)),
                max_ns,
                p50_ratio: (at > 0).then(|| Spread::of(ratio)),
            });
        }
    }
    Ok(rows)
}

/// The median of what two looks at the clock take, ns.
fn timer_ns() -> f64 {
    let look = |_| {
        let clock = Instant::now();
        clock.elapsed().as_nanos() as f64
    };
    let looks: Vec<f64> = (0..100_000).map(look).collect();
    median(&looks)
}

fn print(report: &Report) {
    println!(
        "{:<5} {:>7} {:<8} {:>9} {:>17} {:>10} {:>10} {:>7} {:>12}",
        "case", "threads", "reader", "P50 ns", "min..max", "P99 ns", "max ns", "ratio", "min..max"
    );
    for row in &report.rows {
        let Spread { median, min, max } = row.p50_ns;
        let range = format!("{min:.0}..{max:.0}");
        print!(
            "{:<5} {:>7} {:<8} {median:>9.0} {range:>17} {:>10.0} {:>10.0}",
            row.case.name(),
            row.threads,
            row.contender,
            row.p99_ns.median,
            row.max_ns
        );
        match row.p50_ratio {
            Some(Spread { median, min, max }) => {
                println!(" {median:>7.2} {:>12}", format!("{min:.2}..{max:.2}"));
            }
            None => println!(),
        }
    }
    println!(
        "{} rounds; {:.0} ns for the clock itself are subtracted",
        report.rounds, report.timer_ns
    );
}

#[cfg(test)]
mod tests;
