//! `niwaki-bench replay`: real blocks, checked and timed.

mod revm;
mod timeline;
pub(crate) mod warm;

use crate::{
    machine::Machine,
    recorded::{Entry, Recorded, load},
    stats::{median, percentile},
};
use eyre::{ContextCompat, Result, bail, ensure};
use niwaki_chain::nanoseconds;
use niwaki_crypto::forget_precompile_results;
use niwaki_evm::Dispatch;
use niwaki_execution::{
    BlockExecution, ExecuteError, Executor, Parallelism, TxStats, apply_body, receipt_blooms,
    recover_block, recover_in_background,
};
use niwaki_primitives::{
    B256, Block, BlockAccessList, BlockBody, Bloom, Encodable2718, Fork, Header, Receipt,
    RecoveredBlock, Senders, StateDiff, StateView, TxEnvelope,
};
use niwaki_rules::{ChainSpec, Network, requests_hash};
use niwaki_trie::{WitnessState, ordered_root};
use revm::Contender;
use serde::Serialize;
use std::{
    hint::black_box,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use timeline::Timeline;
use warm::Reading;

/// Options of `niwaki-bench replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory with recorded blocks; those below it count too.
    dir: PathBuf,
    /// Times each block is executed; the median counts.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Only blocks whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Threads that the transactions of a block run on, some ahead of their turn.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Runs every transaction ahead before the first one counts: what would be kept if there were more
    /// threads than transactions.
    #[arg(long)]
    speculate_all: bool,
    /// Writes what each thread did in the last run of each block, and when, here as JSON.
    #[arg(long)]
    timeline: Option<PathBuf>,
    /// Runs each block as if it had brought its access list, which a run before gives.
    #[arg(long)]
    list: bool,
    /// Recovers the senders within the time, on so many threads, the one that executes included: as of a block
    /// whose transactions nobody has seen before.
    #[arg(long, value_name = "THREADS")]
    recover: Option<usize>,
    /// Runs the transactions on revm too, in turn with ours, upon a state that is as warm; from Byzantium on.
    #[arg(long, conflicts_with = "recover")]
    revm: bool,
    /// Executes each block without fused sequences of opcodes too, in turn.
    #[arg(long)]
    unfused: bool,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    fork: String,
    transactions: usize,
    gas: u64,
    /// Median ms of execution, roots not included; senders are known, unless they were to be recovered.
    execute_ms: f64,
    mgas_per_s: f64,
    /// On revm, if it took part.
    #[serde(skip_serializing_if = "Option::is_none")]
    revm: Option<Beside>,
    /// Without fused sequences, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfused: Option<Beside>,
    /// Transactions run ahead of their turn and kept, run ahead and repeated, run in turn: in the last
    /// run.
    shares: [usize; 3],
    /// What was compared and holds.
    checked: Vec<&'static str>,
    /// What differs.
    error: Option<String>,
}

/// The figures of all blocks.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    repeat: usize,
    threads: usize,
    /// Threads that recovered senders within the time, if they were to be.
    recover: Option<usize>,
    /// As for each block.
    shares: [usize; 3],
    blocks: usize,
    failed: usize,
    gas: u64,
    mgas_per_s: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// Of the blocks that ran on revm too: revm's time of all over ours, and the middle of those over a
    /// million gas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) over_revm: Option<[f64; 2]>,
    /// The same of our own time without fused sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_unfused: Option<[f64; 2]>,
    rows: Vec<Row>,
}

/// Another way of executing a block, in turn with ours.
#[derive(Clone, Copy, Debug, Serialize)]
struct Beside {
    /// Median ms.
    ms: f64,
    /// Median of its times over ours.
    over: f64,
}

impl Options {
    /// Every block of `dir` in turn with revm and without fused sequences, `repeat` times.
    pub(crate) fn beside_revm(dir: &Path, repeat: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            repeat,
            only: None,
            threads: 1,
            speculate_all: false,
            timeline: None,
            list: false,
            recover: None,
            revm: true,
            unfused: true,
            json: None,
        }
    }
}

/// Replays every block.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    timeline::check(options.timeline.as_deref())?;
    let (report, timelines) = measure_all(options)?;
    crate::write_json(options.json.as_deref(), &report)?;
    if let Some(path) = &options.timeline {
        timeline::write(path, &timelines)?;
    }
    ensure!(
        report.failed == 0,
        "{} blocks differ from the chain",
        report.failed
    );
    Ok(())
}

/// Measures every block, and prints it.
pub(crate) fn measure_all(options: &Options) -> Result<(Report, Vec<Timeline>)> {
    let mut timelines = Vec::new();
    let mut rows = Vec::new();
    println!(
        "{:<40} {:<18} {:>4} {:>11} {:>9} {:>8} {:>4} {:>4} {:>4}",
        "block", "fork", "txs", "gas", "ms", "Mgas/s", "kept", "again", "turn"
    );
    for entry in load(&options.dir)? {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !entry.name.contains(only))
        {
            continue;
        }
        let (row, timeline) = replay(entry, options)?;
        timelines.push(timeline);
        let (name, fork, txs) = (&row.name, &row.fork, row.transactions);
        let (ms, rate) = (row.execute_ms, row.mgas_per_s);
        let [kept, repeated, in_turn] = row.shares;
        let beside = |name: &str, other: Option<Beside>| {
            other.map_or_else(String::new, |other| format!("  {name} {:.2}x", other.over))
        };
        let peer = beside("revm", row.revm) + &beside("unfused", row.unfused);
        println!(
            "{name:<40} {fork:<18} {txs:>4} {:>11} {ms:>9.3} {rate:>8.0} {kept:>4} {repeated:>4} \
             {in_turn:>4}{peer}",
            row.gas
        );
        if let Some(error) = &row.error {
            println!("  FAILED: {error}");
        }
        rows.push(row);
    }
    let report = summary(rows, options);
    println!(
        "{} blocks, {} failed, {} gas, {:.0} Mgas/s; P50 {:.3} ms, P95 {:.3} ms, P99 {:.3} ms; of the \
         transactions {} kept, {} run again, {} in turn",
        report.blocks,
        report.failed,
        report.gas,
        report.mgas_per_s,
        report.p50_ms,
        report.p95_ms,
        report.p99_ms,
        report.shares[0],
        report.shares[1],
        report.shares[2]
    );
    for (name, over) in [("revm", report.over_revm), ("unfused", report.over_unfused)] {
        if let Some([all, middle]) = over {
            println!(
                "{name}: {all:.2} times our time for all, {middle:.2} in the middle block over 1 Mgas"
            );
        }
    }
    Ok((report, timelines))
}

fn summary(rows: Vec<Row>, options: &Options) -> Report {
    let times: Vec<f64> = rows.iter().map(|row| row.execute_ms).collect();
    let gas = rows.iter().map(|row| row.gas).sum::<u64>();
    let total_ms: f64 = times.iter().sum();
    Report {
        machine: Machine::here(),
        repeat: options.repeat,
        threads: options.threads,
        recover: options.recover,
        shares: shares_of(&rows),
        blocks: rows.len(),
        failed: rows.iter().filter(|row| row.error.is_some()).count(),
        gas,
        mgas_per_s: gas as f64 / 1e3 / total_ms.max(1e-9),
        p50_ms: median(&times),
        p95_ms: percentile(&times, 95.0),
        p99_ms: percentile(&times, 99.0),
        over_revm: over(&rows, |row| row.revm),
        over_unfused: over(&rows, |row| row.unfused),
        rows,
    }
}

/// Another's time of all blocks over ours, and the middle of those over a million gas.
fn over(rows: &[Row], other: impl Fn(&Row) -> Option<Beside>) -> Option<[f64; 2]> {
    let both = || rows.iter().filter_map(|row| Some((row, other(row)?)));
    let sum = |times: &mut dyn Iterator<Item = f64>| times.sum::<f64>();
    let theirs = sum(&mut both().map(|(_, theirs)| theirs.ms));
    let ours = sum(&mut both().map(|(row, _)| row.execute_ms));
    let large = both().filter(|(row, _)| row.gas > 1_000_000);
    let ratios: Vec<f64> = large.map(|(_, theirs)| theirs.over).collect();
    (ours > 0.0).then(|| [theirs / ours, median(&ratios)])
}

fn shares_of(rows: &[Row]) -> [usize; 3] {
    [0, 1, 2].map(|at| rows.iter().map(|row| row.shares[at]).sum())
}

/// How blocks are run, and what came of one.
struct Runs {
    repeat: usize,
    parallelism: Parallelism,
    with_list: bool,
    recover: Option<usize>,
    with_revm: bool,
    revm_times: Vec<f64>,
    with_unfused: bool,
    unfused_times: Vec<f64>,
    times: Vec<f64>,
    stats: TxStats,
    checked: Vec<&'static str>,
}

impl Runs {
    /// Notes how long it takes to `run` the block, by itself, and to recover its senders if that is asked for.
    fn timed<T>(&mut self, block: &RecoveredBlock, mut run: impl FnMut(&RecoveredBlock) -> T) -> T {
        let mut timed = || {
            let mut block = block.clone();
            if self.recover.is_some() {
                block.senders = Senders::new(block.block.body.transactions.len(), []);
            }
            let block = Arc::new(block);
            forget_precompile_results();
            let start = Instant::now();
            let _recovering = self
                .recover
                .map(|threads| recover_in_background(&block, threads));
            let result = run(&block);
            (result, start.elapsed().as_secs_f64() * 1e3)
        };
        if self.with_unfused {
            Dispatch::Threaded.set_default();
            self.unfused_times.push(timed().1);
            Dispatch::Fused.set_default();
        }
        let (result, ms) = timed();
        self.times.push(ms);
        result
    }

    /// Notes how long it takes revm, if that takes part; why not, if it can't. (It makes no system calls, whose
    /// slots a transaction may read.)
    fn timed_on_revm(&mut self, contender: &mut Option<Contender<'_>>) {
        match contender.as_ref().map(Contender::run) {
            None => {}
            Some(Ok(took)) => self.revm_times.push(took.as_secs_f64() * 1e3),
            Some(Err(error)) => {
                println!("  revm is left out: {error:#}");
                self.revm_times.clear();
                *contender = None;
            }
        }
    }

    /// What another way that took these times comes to beside ours.
    fn beside(&self, times: &[f64]) -> Option<Beside> {
        let pairs = times.iter().zip(&self.times);
        let ratios: Vec<f64> = pairs.map(|(theirs, ours)| theirs / ours).collect();
        (!ratios.is_empty()).then(|| Beside {
            ms: median(times),
            over: median(&ratios),
        })
    }
}

fn replay(entry: Entry, options: &Options) -> Result<(Row, Timeline)> {
    let network = Network::from_name(&entry.chain)
        .wrap_err_with(|| format!("{}: no chain is called {}", entry.name, entry.chain))?;
    let spec = network.genesis().spec;
    let (header, transactions) = match &entry.block {
        Recorded::Witness { block, .. } => (&block.header, block.body.transactions.len()),
        Recorded::Transactions {
            header,
            transactions,
            ..
        } => (&**header, transactions.len()),
    };
    let (fork, gas) = (spec.fork_of(header).to_string(), header.gas_used);
    let mut runs = Runs {
        repeat: options.repeat.max(1),
        parallelism: Parallelism {
            speculate_all: options.speculate_all,
            clock: Some(nanoseconds),
            record_spans: options.timeline.is_some(),
            ..Parallelism::of(options.threads)
        },
        with_list: options.list,
        recover: options.recover,
        with_revm: options.revm,
        revm_times: Vec::new(),
        with_unfused: options.unfused,
        unfused_times: Vec::new(),
        times: Vec::new(),
        stats: TxStats::default(),
        checked: Vec::new(),
    };
    let mut error = None;
    let result = match &entry.block {
        Recorded::Witness { block, state } => {
            let recovered = recover_block((**block).clone(), header.hash_slow())?;
            whole_block(&spec, &recovered, state, &mut runs)
        }
        Recorded::Transactions {
            header,
            transactions,
            state,
            gas,
        } => {
            let body = BlockBody {
                transactions: transactions.clone(),
                ommers: vec![],
                withdrawals: None,
            };
            let block = Block {
                header: (**header).clone(),
                body,
            };
            let recovered = recover_block(block, header.hash_slow())?;
            only_transactions(&spec, &recovered, (&**state, gas), &mut runs)
        }
    };
    if let Err(report) = result {
        error = Some(format!("{report:#}"));
    }
    let execute_ms = median(&runs.times);
    let revm = runs.beside(&runs.revm_times);
    let unfused = runs.beside(&runs.unfused_times);
    let TxStats {
        validated,
        reexecuted,
        sequential,
        spans,
        ..
    } = runs.stats;
    let mgas_per_s = gas as f64 / 1e3 / execute_ms.max(1e-9);
    let timeline = Timeline {
        name: entry.name.clone(),
        spans,
    };
    let row = Row {
        name: entry.name,
        fork,
        transactions,
        gas,
        execute_ms,
        mgas_per_s,
        revm,
        unfused,
        shares: [validated, reexecuted, sequential],
        checked: runs.checked,
        error,
    };
    Ok((row, timeline))
}

fn whole_block(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &WitnessState,
    runs: &mut Runs,
) -> Result<()> {
    let header = &block.block.header;
    let mut executed = None;
    let list = runs
        .with_list
        .then(|| list_of(spec, block, state, true))
        .transpose()?;
    let mut post_state = |diff: &StateDiff| state.post_root(diff);
    // Walking the tries of a witness is no node's work: the first run reads, the others have it.
    let reading = Reading::new(state);
    let _ = apply_body(spec, block, &reading, &mut post_state);
    let warm = reading.into_warm();
    let mut contender = runs
        .with_revm
        .then(|| Contender::new(spec, block, &warm, true))
        .transpose()?
        .flatten();
    let (parallelism, list) = (runs.parallelism, list.as_deref());
    for _ in 0..runs.repeat {
        let result = runs.timed(block, |block| {
            let execution = BlockExecution {
                bal: list,
                parallelism,
                ..BlockExecution::new(spec, block, &warm)
            };
            let ran = execution.run(&mut post_state)?;
            // As with revm, whose time has them too.
            black_box(receipt_blooms(&ran.0.receipts));
            Ok(ran)
        });
        executed = Some(match result {
            Ok((executed, stats)) => {
                runs.stats = stats;
                executed
            }
            Err(ExecuteError::Invalid(reason)) => bail!("refused as invalid: {reason}"),
            Err(ExecuteError::Fault(fault)) => bail!("could not be executed: {fault}"),
        });
        runs.timed_on_revm(&mut contender);
    }
    let executed = executed.expect("ran at least once");
    check_results(
        header,
        executed.gas_used,
        &executed.receipts,
        true,
        &mut runs.checked,
    )?;
    if let Some(expected) = header.requests_hash {
        same("requests hash", requests_hash(&executed.requests), expected)?;
        runs.checked.push("requestsHash");
    }
    same(
        "state root",
        state.post_root(&executed.diff)?,
        header.state_root,
    )?;
    runs.checked.push("stateRoot");
    Ok(())
}

/// The access list of the block's transactions, and of its beginning, as it would be if its fork had
/// one.
pub(crate) fn list_of(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &dyn StateView,
    with_beginning: bool,
) -> Result<BlockAccessList> {
    let Block { header, body } = &block.block;
    let mut executor = Executor::new(spec, header, state);
    executor.evm().world().record_access_list();
    match with_beginning {
        true => executor.begin_block(spec, header)?,
        false => executor.evm().world().close_access_index(),
    }
    for (tx, sender) in body.transactions.iter().zip(block.senders.known()) {
        executor.process_transaction(tx, sender, None)?;
    }
    let list = executor.evm().world().take_access_list();
    list.wrap_err("a list was to be recorded")
}

fn only_transactions(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    (state, gas): (&niwaki_testkit::MemoryState, &[u64]),
    runs: &mut Runs,
) -> Result<()> {
    let header = &block.block.header;
    let transactions = &block.block.body.transactions;
    let root = ordered_root(transactions, |tx: &TxEnvelope, out| tx.encode_2718(out));
    same("transactions root", root, header.transactions_root)?;
    runs.checked.push("transactionsRoot");
    // Receipts before Byzantium hold state roots, which the recorded accounts don't give.
    let has_root = spec.fork_of(header) >= Fork::Byzantium;
    let mut receipts = Vec::new();
    let list = runs
        .with_list
        .then(|| list_of(spec, block, state, false))
        .transpose()?;
    let mut contender = runs
        .with_revm
        .then(|| Contender::new(spec, block, state, false))
        .transpose()?
        .flatten();
    let (parallelism, list) = (runs.parallelism, list.as_deref());
    for _ in 0..runs.repeat {
        (receipts, _, runs.stats) = runs.timed(block, |block| {
            BlockExecution {
                bal: list,
                parallelism,
                ..BlockExecution::new(spec, block, state)
            }
            .run_transactions()
        })?;
        runs.timed_on_revm(&mut contender);
    }
    let mut before = 0;
    for (index, receipt) in receipts.iter().enumerate() {
        let used = receipt.cumulative_gas_used - before;
        same(&format!("gas of transaction {index}"), used, gas[index])?;
        before = receipt.cumulative_gas_used;
    }
    check_results(header, before, &receipts, has_root, &mut runs.checked)
}

fn check_results(
    header: &Header,
    gas_used: u64,
    receipts: &[Receipt],
    has_receipts_root: bool,
    checked: &mut Vec<&'static str>,
) -> Result<()> {
    same("gas used", gas_used, header.gas_used)?;
    checked.push("gasUsed");
    let bloom = receipts
        .iter()
        .fold(Bloom::ZERO, |bloom, receipt| bloom | receipt.bloom());
    same("logs bloom", bloom, header.logs_bloom)?;
    checked.push("logsBloom");
    if has_receipts_root {
        let root: B256 = ordered_root(receipts, |r: &Receipt, out| out.extend(r.encode_2718()));
        same("receipts root", root, header.receipts_root)?;
        checked.push("receiptsRoot");
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Display>(what: &str, got: T, expected: T) -> Result<()> {
    ensure!(
        got == expected,
        "{what}: got {got}, the chain has {expected}"
    );
    Ok(())
}
