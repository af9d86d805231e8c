//! `niwaki-bench model`: predicts the time of recorded blocks on any number of threads.
//!
//! Each transaction is timed alone, executed sequentially and speculatively; its dependences follow from the rule by
//! which speculative results are validated. The schedule is then simulated on any number of threads, and compared with
//! measurements on one thread and on two.
//!
//! | file | what it is |
//! |---|---|
//! | `measure` | times and dependences of the transactions, times of the block |
//! | `schedule` | the simulation |

mod measure;
mod schedule;

use crate::harness::JsonFile;
use crate::machine::Machine;
use crate::progress::Progress;
use crate::recorded::{Entry, load};
use crate::stats::Spread;
use eyre::{Context, Result, ensure};
use measure::{Measured, measure, wake_time};
use schedule::{BlockLoad, Outcome, simulate};
use serde::Serialize;
use std::path::PathBuf;

/// Options of `niwaki-bench model`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder with recorded blocks, searched recursively.
    dir: PathBuf,
    /// Runs of each block in each mode; medians are used.
    #[arg(long, default_value_t = 5, value_parser = crate::harness::at_least_one)]
    repeat: usize,
    /// Only blocks whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Only blocks that use at least this much gas.
    #[arg(long, default_value_t = 10_000_000)]
    least_gas: u64,
    /// Numbers of threads to predict, separated by commas.
    #[arg(long, default_value = "1,2,4,8,16,32", value_delimiter = ',', value_parser = crate::harness::at_least_one)]
    threads: Vec<usize>,
    #[command(flatten)]
    json: JsonFile,
}

/// The prediction for a block on a number of threads.
#[derive(Debug, Serialize)]
struct Prediction {
    threads: usize,
    ms: f64,
    /// Predicted speedup over one thread without a BAL.
    times_as_fast: f64,
    /// Transactions validated, re-executed, sequential.
    shares: [usize; 3],
    /// Time of the commit thread, ms: sequential execution, validating and applying, re-execution, speculation,
    /// waiting.
    committer_ms: [f64; 5],
}

/// The predictions for a block with its BAL, or without it.
#[derive(Debug, Serialize)]
struct Predictions {
    /// Lower bound of every schedule that runs each transaction once, after those it depends on, ms.
    longest_chain_ms: f64,
    /// Work of the commit thread even if every other transaction is speculated and validated, ms.
    serial_share_ms: f64,
    predictions: Vec<Prediction>,
}

#[derive(Debug, Serialize)]
struct BlockModel {
    name: String,
    transactions: usize,
    gas: u64,
    work_ms: f64,
    /// Time of a speculative execution over that of a sequential one.
    ahead_factor: f64,
    /// Measured medians: one thread; two; two with the BAL.
    real_ms: [f64; 3],
    /// The predictions for these.
    model_ms: [f64; 3],
    #[serde(rename = "no_list")]
    without_bal: Predictions,
    #[serde(rename = "list")]
    with_bal: Predictions,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    repeat: usize,
    /// From waking a thread until it runs, us.
    wake_us: f64,
    rows: Vec<BlockModel>,
}

/// Measures and simulates every block.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    ensure!(
        options.dir.is_dir(),
        "{} is no folder; give one with recorded blocks",
        options.dir.display()
    );
    let entries: Vec<Entry> = load(&options.dir)?
        .into_iter()
        .filter(|Entry { block, .. }| {
            block.header.gas_used >= options.least_gas && block.body.transactions.len() > 1
        })
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
    options.json.write(&report)
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

fn row(name: String, measured: &Measured, threads: &[usize]) -> BlockModel {
    let Measured {
        without_bal,
        with_bal,
        ..
    } = measured;
    let alone = simulate(&measured.alone, 1).end;
    let two = [without_bal, with_bal].map(|load| ms(simulate(load, 2).end));
    BlockModel {
        name,
        transactions: measured.transactions,
        gas: measured.gas,
        work_ms: ms(measured.alone.work()),
        ahead_factor: measured.ahead_factor,
        real_ms: measured.real.map(|time| time / 1e6),
        model_ms: [ms(alone), two[0], two[1]],
        without_bal: predictions(measured, without_bal, threads),
        with_bal: predictions(measured, with_bal, threads),
    }
}

fn predictions(measured: &Measured, several: &BlockLoad, threads: &[usize]) -> Predictions {
    let alone = simulate(&measured.alone, 1).end;
    let predictions = threads.iter().map(|threads| {
        let Outcome {
            end,
            validated,
            reexecuted,
            sequential,
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
            shares: [validated, reexecuted, sequential],
            committer_ms: [
                spent.sequential,
                spent.validate,
                spent.reexecute,
                spent.speculate,
                spent.idle,
            ]
            .map(ms),
        }
    });
    Predictions {
        predictions: predictions.collect(),
        longest_chain_ms: ms(several.longest_chain()),
        serial_share_ms: ms(several.serial_share()),
    }
}

/// How the commit threads of all blocks spend their time, in percent.
fn commit_thread_shares(
    rows: &[BlockModel],
    side: fn(&BlockModel) -> &Predictions,
    number: usize,
) -> String {
    let of = |kind: usize| -> f64 {
        let all = rows
            .iter()
            .map(|row| side(row).predictions[number].committer_ms[kind]);
        all.sum()
    };
    let all: f64 = (0..5).map(of).sum();
    let names = [
        "sequential",
        "validating",
        "re-executing",
        "speculating",
        "waiting",
    ]
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
        "spec",
        "chain",
        "serial",
        columns(" "),
        columns("+")
    );
    for row in &report.rows {
        let faster = |side: &Predictions| -> String {
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
            row.work_ms / row.without_bal.longest_chain_ms.max(1e-9),
            row.work_ms / row.without_bal.serial_share_ms.max(1e-9),
            faster(&row.without_bal),
            faster(&row.with_bal),
        );
    }
    println!(
        "1 thread in ms; spec: speculative over sequential execution; chain, serial: speedup that the longest \
         chain of dependences and the commit thread's own work allow; + with the BAL"
    );
    let rows = &report.rows;
    for (number, threads) in threads.iter().enumerate() {
        let sides: [fn(&BlockModel) -> &Predictions; 2] =
            [|row| &row.without_bal, |row| &row.with_bal];
        let [without_bal, with_bal] = sides.map(|side| {
            let each = Spread::of(
                rows.iter()
                    .map(|row| side(row).predictions[number].times_as_fast),
            );
            let alone: f64 = rows.iter().map(|row| row.model_ms[0]).sum();
            let all: f64 = rows
                .iter()
                .map(|row| side(row).predictions[number].ms)
                .sum();
            format!("{each}, of sums {:.2}", alone / all.max(1e-9))
        });
        println!("{threads:>3} threads: {without_bal}; with BALs {with_bal}");
        for (side, what) in sides.iter().zip(["", " with BALs"]) {
            println!(
                "    commit thread{what}: {}",
                commit_thread_shares(rows, *side, number)
            );
        }
    }
    for (at, what) in ["1 thread", "2 threads", "2 threads, BALs"]
        .iter()
        .enumerate()
    {
        let each = Spread::of(
            rows.iter()
                .map(|row| row.model_ms[at] / row.real_ms[at].max(1e-9)),
        );
        println!(
            "predicted over measured, {what}: {each}, n = {}",
            rows.len()
        );
    }
}
