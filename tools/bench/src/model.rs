//! `niwaki-bench model`: what more threads would bring to recorded blocks.
//!
//! Each transaction is timed by itself, in its turn and ahead of it, and what it waits for is found by the
//! rule by which runs ahead are kept. The schedule is then run in simulated time on any number of threads,
//! and held against the real one on one thread and on two.

mod measure;
mod schedule;

use crate::machine::Machine;
use crate::progress::Progress;
use crate::recorded::{Entry, Recorded, load};
use crate::stats::Spread;
use eyre::{Context, Result, ensure};
use measure::{Measured, measure, wake_time};
use schedule::{Load, Outcome, simulate};
use serde::Serialize;
use std::path::PathBuf;

/// Options of `niwaki-bench model`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory with recorded blocks; those below it count too.
    dir: PathBuf,
    /// Times each block is run in each way; medians count.
    #[arg(long, default_value_t = 5, value_parser = crate::at_least_one)]
    repeat: usize,
    /// Only blocks whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Only blocks that use so much gas, at least.
    #[arg(long, default_value_t = 10_000_000)]
    least_gas: u64,
    /// On how many threads: numbers with commas between them.
    #[arg(long, default_value = "1,2,4,8,16,32", value_delimiter = ',', value_parser = crate::at_least_one)]
    threads: Vec<usize>,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What the model says of a block with so many threads.
#[derive(Debug, Serialize)]
struct Prediction {
    threads: usize,
    ms: f64,
    /// Times as fast as one thread without a list, by the model.
    times_as_fast: f64,
    /// Transactions run ahead of their turn and kept, run ahead and repeated, run in turn.
    shares: [usize; 3],
    /// What the committing thread spent its time on, ms: transactions in their turn, adopting, running
    /// again, running others ahead, waiting.
    committer_ms: [f64; 5],
}

/// A block with its list, or without.
#[derive(Debug, Serialize)]
struct Side {
    /// No schedule that runs each transaction once, after what it looks at, is shorter, ms. By times in turn
    /// beside another thread.
    longest_chain_ms: f64,
    /// What the committing thread does even if all others run ahead and are kept, ms.
    serial_share_ms: f64,
    predictions: Vec<Prediction>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    transactions: usize,
    gas: u64,
    work_ms: f64,
    /// A run ahead over the same in turn.
    ahead_factor: f64,
    /// Medians of the real thing: one thread; two; two with the list.
    real_ms: [f64; 3],
    /// What the model says of these.
    model_ms: [f64; 3],
    no_list: Side,
    list: Side,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    repeat: usize,
    /// From calling a thread until it runs, us.
    wake_us: f64,
    rows: Vec<Row>,
}

/// Measures every block and says what it would take.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    ensure!(
        options.dir.is_dir(),
        "{} is no folder; give one with recorded blocks",
        options.dir.display()
    );
    let entries: Vec<Entry> = load(&options.dir)?
        .into_iter()
        .filter(|entry| gas_of(entry) >= options.least_gas && transactions_of(entry) > 1)
        .filter(|entry| {
            let only = options.only.as_ref();
            only.is_none_or(|only| entry.name.contains(only))
        })
        .collect();
    ensure!(
        !entries.is_empty(),
        "{} has no such block of two transactions or more that uses {} gas; give another folder, --only or --least-gas",
        options.dir.display(),
        options.least_gas
    );
    let wake = wake_time()?;
    let mut progress = Progress::new(entries.len() as u64, "blocks");
    let mut rows = Vec::new();
    for (done, entry) in (1..).zip(entries) {
        let name = entry.name.clone();
        let measured = measure(entry, options.repeat, wake).wrap_err_with(|| name.clone())?;
        progress.show(done, &name);
        rows.push(row(name, &measured, &options.threads));
    }
    progress.finish();
    let report = Report {
        machine: Machine::here(),
        repeat: options.repeat,
        wake_us: wake as f64 / 1e3,
        rows,
    };
    print(&report, &options.threads);
    crate::write_json(options.json.as_deref(), &report)
}

fn gas_of(entry: &Entry) -> u64 {
    match &entry.block {
        Recorded::Witness { block, .. } => block.header.gas_used,
        Recorded::Transactions { header, .. } => header.gas_used,
    }
}

fn transactions_of(entry: &Entry) -> usize {
    match &entry.block {
        Recorded::Witness { block, .. } => block.body.transactions.len(),
        Recorded::Transactions { transactions, .. } => transactions.len(),
    }
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

fn row(name: String, measured: &Measured, threads: &[usize]) -> Row {
    let Measured { plain, listed, .. } = measured;
    let alone = simulate(&measured.alone, 1).end;
    let two = [plain, listed].map(|load| ms(simulate(load, 2).end));
    Row {
        name,
        transactions: measured.transactions,
        gas: measured.gas,
        work_ms: ms(measured.alone.work()),
        ahead_factor: measured.ahead_factor,
        real_ms: measured.real.map(|time| time / 1e6),
        model_ms: [ms(alone), two[0], two[1]],
        no_list: side(measured, plain, threads),
        list: side(measured, listed, threads),
    }
}

fn side(measured: &Measured, several: &Load, threads: &[usize]) -> Side {
    let alone = simulate(&measured.alone, 1).end;
    let predictions = threads.iter().map(|threads| {
        let Outcome {
            end,
            kept,
            repeated,
            in_turn,
            spent,
        } = simulate(
            if *threads > 1 {
                several
            } else {
                &measured.alone
            },
            *threads,
        );
        Prediction {
            threads: *threads,
            ms: ms(end),
            times_as_fast: alone as f64 / end.max(1) as f64,
            shares: [kept, repeated, in_turn],
            committer_ms: [
                spent.in_turn,
                spent.adopt,
                spent.again,
                spent.ahead,
                spent.idle,
            ]
            .map(ms),
        }
    });
    Side {
        predictions: predictions.collect(),
        longest_chain_ms: ms(several.longest_chain()),
        serial_share_ms: ms(several.serial_share()),
    }
}

/// What the committing threads of all blocks spend their time on, in percent.
fn committer(rows: &[Row], side: fn(&Row) -> &Side, number: usize) -> String {
    let of = |kind: usize| -> f64 {
        let all = rows
            .iter()
            .map(|row| side(row).predictions[number].committer_ms[kind]);
        all.sum()
    };
    let all: f64 = (0..5).map(of).sum();
    let names = ["in turn", "adopting", "again", "ahead", "waiting"]
        .iter()
        .enumerate();
    let shares =
        names.map(|(kind, name)| format!("{name} {:.0} %", of(kind) * 100.0 / all.max(1e-9)));
    shares.collect::<Vec<_>>().join(", ")
}

fn print(report: &Report, threads: &[usize]) {
    let columns = |what: &str| -> String {
        let columns = threads.iter().map(|threads| format!("{what}{threads:>6}"));
        columns.collect()
    };
    println!(
        "{:<32} {:>5} {:>6} {:>8} {:>6} {:>7} {:>7}{} |{}",
        "block; times as fast on threads:",
        "txs",
        "Mgas",
        "1 thread",
        "ahead",
        "chain",
        "serial",
        columns(" "),
        columns("+")
    );
    for row in &report.rows {
        let faster = |side: &Side| -> String {
            let times = side.predictions.iter();
            times
                .map(|at| format!("{:>7.2}", at.times_as_fast))
                .collect()
        };
        println!(
            "{:<32} {:>5} {:>6.1} {:>8.3} {:>6.2} {:>7.1} {:>7.1}{} |{}",
            row.name,
            row.transactions,
            row.gas as f64 / 1e6,
            row.real_ms[0],
            row.ahead_factor,
            row.work_ms / row.no_list.longest_chain_ms.max(1e-9),
            row.work_ms / row.no_list.serial_share_ms.max(1e-9),
            faster(&row.no_list),
            faster(&row.list),
        );
    }
    println!(
        "1 thread in ms; ahead: a run ahead over the same in turn; chain, serial: as fast as the longest chain \
         of dependences and the committing thread's own work allow; + with the block's list"
    );
    let rows = &report.rows;
    for (number, threads) in threads.iter().enumerate() {
        let sides: [fn(&Row) -> &Side; 2] = [|row| &row.no_list, |row| &row.list];
        let [plain, listed] = sides.map(|side| {
            let each = Spread::of(
                rows.iter()
                    .map(|row| side(row).predictions[number].times_as_fast),
            );
            let alone: f64 = rows.iter().map(|row| row.model_ms[0]).sum();
            let all: f64 = rows
                .iter()
                .map(|row| side(row).predictions[number].ms)
                .sum();
            let (median, min, max) = (each.median, each.min, each.max);
            format!(
                "{median:.2} ({min:.2}..{max:.2}), of sums {:.2}",
                alone / all.max(1e-9)
            )
        });
        println!("{threads:>3} threads: {plain}; with lists {listed}");
        for (side, what) in sides.iter().zip(["", " with lists"]) {
            println!(
                "    committing thread{what}: {}",
                committer(rows, *side, number)
            );
        }
    }
    for (at, what) in ["1 thread", "2 threads", "2 threads, lists"]
        .iter()
        .enumerate()
    {
        let each = Spread::of(
            rows.iter()
                .map(|row| row.model_ms[at] / row.real_ms[at].max(1e-9)),
        );
        let (median, min, max) = (each.median, each.min, each.max);
        println!(
            "predicted over measured, {what}: {median:.2} ({min:.2}..{max:.2}), n = {}",
            rows.len()
        );
    }
}
