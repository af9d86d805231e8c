//! `niwaki-bench replay`: executes recorded mainnet blocks, checks the results against the chain, and times them.
//!
//! | file | what it is |
//! |---|---|
//! | `warm` | a witness with its values in memory, like a node's caches |
//! | `revm` | the same transactions on revm |
//! | `timeline` | what each thread did, as JSON or SVG |

mod revm;
mod timeline;
pub(crate) mod warm;

use crate::{
    harness::JsonFile,
    machine::Machine,
    recorded::{Entry, PreState, load},
    stats::{median, percentile},
};
use eyre::{ContextCompat, Result, bail, ensure};
use niwaki_chain::nanoseconds;
use niwaki_crypto::forget_precompile_results;
use niwaki_evm::Dispatch;
use niwaki_execution::{
    BlockExecution, ExecuteError, Executor, Parallelism, RecoveringBlock, TxStats, apply_body,
    receipt_blooms, recover_block, recover_in_background,
};
use niwaki_primitives::{
    B256, BlockAccessList, Bloom, Encodable2718, Fork, Header, Receipt, RecoveredBlock, StateDiff,
    StateView, TxEnvelope,
};
use niwaki_rules::{ChainSpec, Network, requests_hash};
use niwaki_trie::{WitnessState, ordered_root};
use revm::RevmBlock;
use serde::Serialize;
use std::{
    hint::black_box,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};
use timeline::Timeline;
use warm::ReadRecorder;

/// Options of `niwaki-bench replay`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Folder with recorded blocks, searched recursively.
    dir: PathBuf,
    /// Executions of each block; the median is reported.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Only blocks whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Threads that execute the transactions of a block, speculatively if more than one.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Execute every transaction speculatively before the first is committed, as with more threads than transactions.
    #[arg(long = "all-ahead")]
    speculate_all: bool,
    /// Write what each thread did in the last run of each block here, as JSON or SVG.
    #[arg(long)]
    timeline: Option<PathBuf>,
    /// Run each block as if it had its block access list, which an earlier run records.
    #[arg(long)]
    list: bool,
    /// Recover the senders within the measured time on this many threads, the commit thread included, as for a block
    /// of unknown transactions.
    #[arg(long, value_name = "THREADS")]
    recover: Option<usize>,
    /// Alternate with revm on a state that is equally warm; from Byzantium on.
    #[arg(long, conflicts_with = "recover")]
    revm: bool,
    /// Alternate with our interpreter without superinstructions.
    #[arg(long)]
    unfused: bool,
    #[command(flatten)]
    json: JsonFile,
}

#[derive(Debug, Serialize)]
struct BlockResult {
    name: String,
    fork: String,
    transactions: usize,
    gas: u64,
    /// Median ms of execution without roots; senders are known, unless --recover.
    execute_ms: f64,
    mgas_per_s: f64,
    /// revm, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    revm: Option<PeerTime>,
    /// Without superinstructions, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfused: Option<PeerTime>,
    /// Transactions validated, re-executed, sequential: in the last run.
    shares: [usize; 3],
    /// The checks that passed.
    checked: Vec<&'static str>,
    /// The first difference from the chain.
    error: Option<String>,
}

/// The results of all blocks.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    repeat: usize,
    threads: usize,
    /// Threads that recovered senders within the measured time.
    recover: Option<usize>,
    /// Sums over the blocks.
    shares: [usize; 3],
    blocks: usize,
    failed: usize,
    gas: u64,
    mgas_per_s: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// revm's time over ours: for all blocks together, and for the median block over a million gas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) over_revm: Option<[f64; 2]>,
    /// The same for our time without superinstructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_unfused: Option<[f64; 2]>,
    rows: Vec<BlockResult>,
}

/// Another way of executing a block, alternated with ours.
#[derive(Clone, Copy, Debug, Serialize)]
struct PeerTime {
    /// Median ms.
    ms: f64,
    /// Median ratio to ours.
    over: f64,
}

impl Options {
    /// Options to run every block of `dir` `repeat` times, with revm and without superinstructions too.
    pub(crate) fn with_revm(dir: &Path, repeat: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            repeat,
            threads: 1,
            revm: true,
            unfused: true,
            ..Self::default()
        }
    }
}

/// Replays every block.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    timeline::check(options.timeline.as_deref())?;
    let (report, timelines) = measure_all(options)?;
    options.json.write(&report)?;
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

/// Measures every block and prints its results.
pub(crate) fn measure_all(options: &Options) -> Result<(Report, Vec<Timeline>)> {
    let mut timelines = Vec::new();
    let mut rows = Vec::new();
    println!(
        "{:<40} {:<18} {:>4} {:>11} {:>9} {:>8} {:>5} {:>5} {:>5}",
        "block", "fork", "txs", "gas", "ms", "Mgas/s", "valid", "again", "seq"
    );
    for entry in load(&options.dir)? {
        let only = options.only.as_ref();
        if only.is_some_and(|only| !entry.name.contains(only)) {
            continue;
        }
        let (row, timeline) = replay(entry, options)?;
        timelines.push(timeline);
        let (name, fork, txs) = (&row.name, &row.fork, row.transactions);
        let (ms, rate) = (row.execute_ms, row.mgas_per_s);
        let [validated, reexecuted, sequential] = row.shares;
        let peer = |name: &str, other: Option<PeerTime>| {
            other.map_or_else(String::new, |other| format!("  {name} {:.2}x", other.over))
        };
        let peers = peer("revm", row.revm) + &peer("unfused", row.unfused);
        println!(
            "{name:<40} {fork:<18} {txs:>4} {:>11} {ms:>9.3} {rate:>8.0} {validated:>5} {reexecuted:>5} \
             {sequential:>5}{peers}",
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
         transactions {} validated, {} re-executed, {} sequential",
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

fn summary(rows: Vec<BlockResult>, options: &Options) -> Report {
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

/// A peer's time over ours: for all blocks together, and for the median block over a million gas.
fn over(
    rows: &[BlockResult],
    other: impl Fn(&BlockResult) -> Option<PeerTime>,
) -> Option<[f64; 2]> {
    let both = || rows.iter().filter_map(|row| Some((row, other(row)?)));
    let sum = |times: &mut dyn Iterator<Item = f64>| times.sum::<f64>();
    let theirs = sum(&mut both().map(|(_, theirs)| theirs.ms));
    let ours = sum(&mut both().map(|(row, _)| row.execute_ms));
    let large = both().filter(|(row, _)| row.gas > 1_000_000);
    let ratios: Vec<f64> = large.map(|(_, theirs)| theirs.over).collect();
    (ours > 0.0).then(|| [theirs / ours, median(&ratios)])
}

fn shares_of(rows: &[BlockResult]) -> [usize; 3] {
    [0, 1, 2].map(|at| rows.iter().map(|row| row.shares[at]).sum())
}

/// The runs of a block and their results.
struct Runs<'o> {
    options: &'o Options,
    times: Vec<f64>,
    revm_times: Vec<f64>,
    unfused_times: Vec<f64>,
    stats: TxStats,
    checked: Vec<&'static str>,
}

impl Runs<'_> {
    fn repeat(&self) -> usize {
        self.options.repeat.max(1)
    }

    fn parallelism(&self) -> Parallelism {
        Parallelism {
            speculate_all: self.options.speculate_all,
            clock: Some(nanoseconds),
            record_spans: self.options.timeline.is_some(),
            ..Parallelism::of(self.options.threads)
        }
    }

    /// Times `run` on the block, with the recovery of its senders if requested.
    fn timed<T>(
        &mut self,
        block: &RecoveredBlock,
        mut run: impl FnMut(&RecoveringBlock) -> T,
    ) -> T {
        let mut timed = || {
            let block = Arc::new(match self.options.recover {
                Some(_) => RecoveringBlock::new(Arc::clone(&block.block), block.hash, []),
                None => block.clone().into(),
            });
            forget_precompile_results();
            let start = Instant::now();
            let recover = |threads| recover_in_background(&block, threads);
            let _recovering = self.options.recover.map(recover);
            let result = run(&block);
            (result, start.elapsed().as_secs_f64() * 1e3)
        };
        if self.options.unfused {
            Dispatch::Threaded.set_default();
            self.unfused_times.push(timed().1);
            Dispatch::Fused.set_default();
        }
        let (result, ms) = timed();
        self.times.push(ms);
        result
    }

    /// Times revm, if it is measured. Leaves it out with a message if it fails: it makes no system calls, whose slots a
    /// transaction may read.
    fn timed_on_revm(&mut self, peer: &mut Option<RevmBlock<'_>>) {
        match peer.as_ref().map(RevmBlock::run) {
            None => {}
            Some(Ok(took)) => self.revm_times.push(took.as_secs_f64() * 1e3),
            Some(Err(error)) => {
                println!("  revm is left out: {error:#}");
                self.revm_times.clear();
                *peer = None;
            }
        }
    }

    /// The result of a peer with these times.
    fn peer_time(&self, times: &[f64]) -> Option<PeerTime> {
        let pairs = times.iter().zip(&self.times);
        let ratios: Vec<f64> = pairs.map(|(theirs, ours)| theirs / ours).collect();
        (!ratios.is_empty()).then(|| PeerTime {
            ms: median(times),
            over: median(&ratios),
        })
    }
}

fn replay(entry: Entry, options: &Options) -> Result<(BlockResult, Timeline)> {
    let Entry {
        name, chain, block, ..
    } = entry;
    let network = Network::from_name(&chain)
        .wrap_err_with(|| format!("{name}: no chain is called {chain}"))?;
    let spec = network.genesis().spec;
    let (fork, gas) = (
        spec.fork_of(&block.header).to_string(),
        block.header.gas_used,
    );
    let hash = block.header.hash_slow();
    let block = recover_block(block, hash)?;
    let mut runs = Runs {
        options,
        times: Vec::new(),
        revm_times: Vec::new(),
        unfused_times: Vec::new(),
        stats: TxStats::default(),
        checked: Vec::new(),
    };
    let result = match &entry.pre_state {
        PreState::Witness(state) => whole_block(&spec, &block, state, &mut runs),
        PreState::Values { state, gas } => only_transactions(&spec, &block, state, gas, &mut runs),
    };
    let execute_ms = median(&runs.times);
    let revm = runs.peer_time(&runs.revm_times);
    let unfused = runs.peer_time(&runs.unfused_times);
    let TxStats {
        validated,
        reexecuted,
        sequential,
        spans,
        ..
    } = runs.stats;
    let mgas_per_s = gas as f64 / 1e3 / execute_ms.max(1e-9);
    let timeline = Timeline {
        name: name.clone(),
        spans,
    };
    let row = BlockResult {
        name,
        fork,
        transactions: block.block.body.transactions.len(),
        gas,
        execute_ms,
        mgas_per_s,
        revm,
        unfused,
        shares: [validated, reexecuted, sequential],
        checked: runs.checked,
        error: result.err().map(|report| format!("{report:#}")),
    };
    Ok((row, timeline))
}

fn whole_block(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &WitnessState,
    runs: &mut Runs<'_>,
) -> Result<()> {
    let header = &block.block.header;
    let mut executed = None;
    let bal = { runs.options.list }
        .then(|| bal_of(spec, block, state, true))
        .transpose()?;
    let mut post_state = |diff: &StateDiff| state.post_root(diff);
    // A node has caches and does not walk a witness: a first run reads the values that the timed runs use.
    let recorder = ReadRecorder::new(state);
    let _ = apply_body(spec, &block.clone().into(), &recorder, &mut post_state);
    let warm = recorder.into_warm();
    let mut peer = { runs.options.revm }
        .then(|| RevmBlock::new(spec, block, &warm, true))
        .transpose()?
        .flatten();
    let (parallelism, bal) = (runs.parallelism(), bal.as_deref());
    for _ in 0..runs.repeat() {
        let result = runs.timed(block, |block| {
            let execution = BlockExecution {
                bal,
                parallelism,
                ..BlockExecution::new(spec, block, &warm)
            };
            let ran = execution.run(&mut post_state)?;
            // revm's time includes them too.
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
        runs.timed_on_revm(&mut peer);
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

/// The block access list of the block's transactions, and of its system calls at the start if requested, as if its
/// fork had one.
pub(crate) fn bal_of(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &dyn StateView,
    with_system_calls: bool,
) -> Result<BlockAccessList> {
    let header = &block.block.header;
    let mut executor = Executor::new(spec, header, state);
    executor.evm().world().record_access_list();
    match with_system_calls {
        true => executor.begin_block(spec, header)?,
        false => executor.evm().world().close_access_index(),
    }
    for (tx, sender) in block.transactions() {
        executor.process_transaction(tx, sender, None)?;
    }
    let bal = executor.evm().world().take_access_list();
    bal.wrap_err("no access list was recorded")
}

fn only_transactions(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &niwaki_testkit::MemoryState,
    gas: &[u64],
    runs: &mut Runs<'_>,
) -> Result<()> {
    let header = &block.block.header;
    let transactions = &block.block.body.transactions;
    let root = ordered_root(transactions, |tx: &TxEnvelope, out| tx.encode_2718(out));
    same("transactions root", root, header.transactions_root)?;
    runs.checked.push("transactionsRoot");
    // Receipts before Byzantium hold state roots, which the recorded accounts are not enough for.
    let has_root = spec.fork_of(header) >= Fork::Byzantium;
    let mut receipts = Vec::new();
    let bal = { runs.options.list }
        .then(|| bal_of(spec, block, state, false))
        .transpose()?;
    let mut peer = { runs.options.revm }
        .then(|| RevmBlock::new(spec, block, state, false))
        .transpose()?
        .flatten();
    let (parallelism, bal) = (runs.parallelism(), bal.as_deref());
    for _ in 0..runs.repeat() {
        (receipts, _, runs.stats) = runs.timed(block, |block| {
            BlockExecution {
                bal,
                parallelism,
                ..BlockExecution::new(spec, block, state)
            }
            .run_transactions()
        })?;
        runs.timed_on_revm(&mut peer);
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
