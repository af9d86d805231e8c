//! `niwaki-bench engine`: options of the storage engine and ways to ask it, beside what was chosen.
//!
//! The rows of one segment of a large state are copied into databases of their own that differ in
//! one option of their tables each. Their making is timed. Then
//! every contender reads the same rows, in batches, with the engine just opened for each case, the
//! order turned around from round to round: rows as bytes, past everything of ours. Last, rows are
//! looked up while batches wait for the engine, through our own snapshots.

mod files;
mod reads;
mod waiting;

use crate::big_state::{BigState, Budget};
use crate::disk;
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure};
use files::{Made, Tables};
use niwaki_storage::Segment;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use reads::{Contender, Way};
use serde::Serialize;
use std::path::PathBuf;
use waiting::Waiting;

/// Options of `niwaki-bench engine`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// The rows that are copied and read.
    #[arg(long, value_enum, default_value_t = Rows::Slots)]
    rows: Rows,
    /// Folder of the copies, made anew each time [default: that of the state with `.copies` at its
    /// end].
    #[arg(long)]
    copies_path: Option<PathBuf>,
    /// Times that each copy is made.
    #[arg(long, default_value_t = 3, value_parser = crate::at_least_one)]
    loads: usize,
    /// Rows that are asked for in a case, but for the cold one.
    #[arg(long, default_value_t = 50_000, value_parser = crate::at_least_one)]
    reads: usize,
    /// Rows that are asked for in the cold case.
    #[arg(long, default_value_t = 10_000, value_parser = crate::at_least_one)]
    cold_reads: usize,
    /// Rows that belong together: one call where several go into one.
    #[arg(long, default_value_t = 128, value_parser = crate::at_least_one)]
    at_once: usize,
    /// Rows of each batch that waits for the engine while rows are looked up.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    waiting_rows: u16,
    /// Rounds; in each, every contender goes through all cases.
    #[arg(long, default_value_t = 5, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The rows that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Rows {
    /// Values of slots: keys of 64 B, short values.
    Slots,
    /// Inner nodes of storage tries: keys of 32 B and a path, values of up to 532 B.
    StorageTrie,
}

impl Rows {
    fn segment(self) -> Segment {
        match self {
            Self::Slots => Segment::Slots,
            Self::StorageTrie => Segment::StorageTrie,
        }
    }
}

/// What is between a read and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Case {
    /// Files dropped from the system's cache, the engine just opened.
    Cold,
    /// All files in the system's cache, the engine warmed by other rows.
    File,
    /// As `File`, of rows that are not there.
    Absent,
    /// Asked for just before.
    Hit,
}

impl Case {
    const ALL: [Self; 4] = [Self::Cold, Self::File, Self::Absent, Self::Hit];

    fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::File => "file",
            Self::Absent => "absent",
            Self::Hit => "hit",
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    rows: Rows,
    storage_bytes: usize,
    at_once: usize,
    reads: usize,
    cold_reads: usize,
    rounds: usize,
    copies: Vec<Copies>,
    reads_ns: Vec<Row>,
    waiting_rows: u16,
    waiting: Vec<Waiting>,
}

/// What the copies with such tables took, and what they have.
#[derive(Debug, Serialize)]
struct Copies {
    tables: Tables,
    wall_s: Spread,
    cpu_s: Spread,
    rows: u64,
    filter_bytes: u64,
    table_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Row {
    case: Case,
    contender: &'static str,
    /// Over the rounds: wall time over rows, ns.
    mean_ns: Spread,
    /// Its time over that of the first contender in the same round.
    ratio: Spread,
}

/// Makes the state if need be and the copies, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    // Made and brought to the disk, then closed.
    let world = options.state.open(&options.budget)?;
    world.database().sync()?;
    drop(world);

    let mut made: Vec<(Tables, Vec<Made>)> = Tables::ALL.map(|tables| (tables, Vec::new())).into();
    for load in 0..options.loads {
        in_turn(load, &mut made, |(tables, made)| {
            made.push(files::make(options, *tables)?);
            Ok(())
        })?;
    }
    let keys = Keys::of(files::keys(options)?, options)?;
    let mut times = vec![Vec::new(); Case::ALL.len() * Contender::ALL.len()];
    for round in 0..options.rounds {
        let mut contenders: Vec<usize> = (0..Contender::ALL.len()).collect();
        in_turn(round, &mut contenders, |at| {
            for (case_at, case) in Case::ALL.into_iter().enumerate() {
                let time = measure(options, &keys.of_round(round), (Contender::ALL[*at], case))?;
                times[case_at * Contender::ALL.len() + *at].push(time);
            }
            Ok(())
        })?;
    }
    let report = Report {
        machine: Machine::here(),
        accounts: options.state.accounts,
        slots: options.state.slots,
        rows: options.rows,
        storage_bytes: options.budget.storage_bytes,
        at_once: options.at_once,
        reads: options.reads,
        cold_reads: options.cold_reads,
        rounds: options.rounds,
        copies: made.iter().filter_map(copies).collect(),
        reads_ns: rows(&times),
        waiting_rows: options.waiting_rows,
        waiting: waiting::measure(options)?,
    };
    print(&report);
    crate::write_json(options.json.as_deref(), &report)
}

/// Does `work` with each, from the last to the first in every other round.
fn in_turn<T>(
    round: usize,
    things: &mut [T],
    mut work: impl FnMut(&mut T) -> Result<()>,
) -> Result<()> {
    match round % 2 {
        0 => things.iter_mut().try_for_each(work),
        _ => things.iter_mut().rev().try_for_each(&mut work),
    }
}

impl Options {
    fn copies_folder(&self) -> PathBuf {
        self.copies_path.clone().unwrap_or_else(|| {
            let mut folder = self.state.data_path.clone().into_os_string();
            folder.push(".copies");
            folder.into()
        })
    }

    fn copy_folder(&self, tables: Tables) -> PathBuf {
        self.copies_folder().join(tables.name())
    }

    /// Rows that a round asks for: those that are measured, and as many to warm with.
    fn rows_a_round(&self) -> usize {
        2 * self.reads.max(self.cold_reads)
    }
}

type Key = Box<[u8]>;

/// Keys in random order.
struct Keys {
    keys: Vec<Key>,
    rows_a_round: usize,
}

impl Keys {
    fn of(mut keys: Vec<Key>, options: &Options) -> Result<Self> {
        let rows_a_round = options.rows_a_round();
        let needed = rows_a_round * options.rounds;
        ensure!(
            keys.len() >= needed,
            "{} rows are too few to ask for {needed}; give fewer --reads, --cold-reads or --rounds",
            keys.len()
        );
        keys.shuffle(&mut SmallRng::seed_from_u64(1));
        Ok(Self { keys, rows_a_round })
    }

    /// Keys that no other round asks for: those to measure, and those to warm with.
    fn of_round(&self, round: usize) -> (&[Key], &[Key]) {
        let own = &self.keys[round * self.rows_a_round..][..self.rows_a_round];
        own.split_at(self.rows_a_round / 2)
    }
}

/// Keys of the same shape that no row has.
fn absent(keys: &[Key]) -> Vec<Key> {
    let mut random = SmallRng::seed_from_u64(2);
    let other = |mut key: Key| {
        // The account stays, so that the key lies among those that are there.
        match key.get_mut(32..64) {
            Some(slot) => random.fill(slot),
            None => key[31] ^= 1,
        }
        key
    };
    keys.iter().cloned().map(other).collect()
}

/// The time of a row in one case of one round, ns.
fn measure(
    options: &Options,
    (keys, others): &(&[Key], &[Key]),
    (contender, case): (Contender, Case),
) -> Result<f64> {
    let folder = options.copy_folder(contender.tables());
    match case {
        Case::Cold => disk::drop_cached(&folder)?,
        _ => disk::read_through(&folder)?,
    }
    let engine = contender.open(options, &folder)?;
    let way = Way {
        segment: options.rows.segment(),
        at_once: options.at_once,
    };
    let count = match case {
        Case::Cold => options.cold_reads,
        _ => options.reads,
    };
    let own = &keys[..count];
    let gone: Vec<Key>;
    let (warm, asked) = match case {
        Case::Cold => (&[][..], own),
        Case::File => (*others, own),
        Case::Hit => (own, own),
        Case::Absent => {
            gone = absent(own);
            (*others, &gone[..])
        }
    };
    way.read(&engine, Contender::ONE, warm)?;
    let (time, found) = way.read(&engine, contender, asked)?;
    let expected = if case == Case::Absent { 0 } else { count };
    ensure!(
        found == expected,
        "{} found {found} of {count} rows instead of {expected}; remove {} and it is made again",
        contender.name,
        folder.display()
    );
    Ok(time.as_nanos() as f64 / count as f64)
}

fn copies((tables, made): &(Tables, Vec<Made>)) -> Option<Copies> {
    let last = made.last()?;
    Some(Copies {
        tables: *tables,
        wall_s: Spread::of(made.iter().map(|made| made.wall_s)),
        cpu_s: Spread::of(made.iter().map(|made| made.cpu_s)),
        rows: last.rows,
        filter_bytes: last.filter_bytes,
        table_bytes: last.table_bytes,
    })
}

fn rows(times: &[Vec<f64>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, times) in Case::ALL.iter().zip(times.chunks(Contender::ALL.len())) {
        for (contender, own) in Contender::ALL.iter().zip(times) {
            let pairs = own.iter().zip(&times[0]);
            rows.push(Row {
                case: *case,
                contender: contender.name,
                mean_ns: Spread::of(own.iter().copied()),
                ratio: Spread::of(pairs.map(|(own, first)| own / first.max(1.0))),
            });
        }
    }
    rows
}

fn print(report: &Report) {
    for copies in &report.copies {
        let Spread { median, min, max } = copies.wall_s;
        println!(
            "{:<12} {} rows in {median:.2} s ({min:.2}..{max:.2}), {:.2} s of the processor \
             ({:.2}..{:.2}); filters {} B, tables {} B",
            copies.tables.name(),
            copies.rows,
            copies.cpu_s.median,
            copies.cpu_s.min,
            copies.cpu_s.max,
            copies.filter_bytes,
            copies.table_bytes
        );
    }
    println!(
        "{:<7} {:<20} {:>10} {:>18} {:>7} {:>12}",
        "case", "contender", "ns a row", "min..max", "ratio", "min..max"
    );
    for row in &report.reads_ns {
        let Spread { median, min, max } = row.mean_ns;
        println!(
            "{:<7} {:<20} {median:>10.0} {:>18} {:>7.2} {:>12}",
            row.case.name(),
            row.contender,
            format!("{min:.0}..{max:.0}"),
            row.ratio.median,
            format!("{:.2}..{:.2}", row.ratio.min, row.ratio.max)
        );
    }
    for waiting in &report.waiting {
        let shown = |Spread { median, min, max }| format!("{median:.0} ns ({min:.0}..{max:.0})");
        let oldest = waiting.oldest_ns.map_or("-".to_owned(), shown);
        println!(
            "{} batches of {} rows wait: a row of the oldest {oldest}, of none {}",
            waiting.batches,
            report.waiting_rows,
            shown(waiting.none_ns)
        );
    }
    println!(
        "{} rounds, {} rows at once where several are asked for",
        report.rounds, report.at_once
    );
}

#[cfg(test)]
mod tests;
