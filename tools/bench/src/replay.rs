//! `niwaki-bench replay`: real blocks, checked and timed.

use crate::{
    machine::Machine,
    recorded::{Entry, Recorded, load},
    stats::{median, percentile},
};
use eyre::{ContextCompat, Result, bail, ensure};
use niwaki_execution::{ExecuteError, Executor, TransactionError, apply_body, recover_block};
use niwaki_primitives::{
    B256, Block, BlockBody, Bloom, Encodable2718, Fork, Header, Receipt, RecoveredBlock,
    TxEnvelope, Typed2718,
};
use niwaki_rules::{ChainSpec, Network, requests_hash};
use niwaki_trie::{WitnessState, ordered_root};
use serde::Serialize;
use std::{path::PathBuf, time::Instant};

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
    /// Median ms of execution, senders known, roots not included.
    execute_ms: f64,
    mgas_per_s: f64,
    /// What was compared and holds.
    checked: Vec<&'static str>,
    /// What differs.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    repeat: usize,
    blocks: usize,
    failed: usize,
    gas: u64,
    mgas_per_s: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    rows: Vec<Row>,
}

/// Replays every block.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let mut rows = Vec::new();
    println!(
        "{:<40} {:<18} {:>4} {:>11} {:>9} {:>8}",
        "block", "fork", "txs", "gas", "ms", "Mgas/s"
    );
    for entry in load(&options.dir)? {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !entry.name.contains(only))
        {
            continue;
        }
        let row = replay(entry, options.repeat)?;
        let (name, fork, txs) = (&row.name, &row.fork, row.transactions);
        let (ms, rate) = (row.execute_ms, row.mgas_per_s);
        println!(
            "{name:<40} {fork:<18} {txs:>4} {:>11} {ms:>9.3} {rate:>8.0}",
            row.gas
        );
        if let Some(error) = &row.error {
            println!("  FAILED: {error}");
        }
        rows.push(row);
    }
    let report = summary(rows, options.repeat);
    println!(
        "{} blocks, {} failed, {} gas, {:.0} Mgas/s; P50 {:.3} ms, P95 {:.3} ms, P99 {:.3} ms",
        report.blocks,
        report.failed,
        report.gas,
        report.mgas_per_s,
        report.p50_ms,
        report.p95_ms,
        report.p99_ms
    );
    crate::write_json(options.json.as_deref(), &report)?;
    ensure!(
        report.failed == 0,
        "{} blocks differ from the chain",
        report.failed
    );
    Ok(())
}

fn summary(rows: Vec<Row>, repeat: usize) -> Report {
    let times: Vec<f64> = rows.iter().map(|row| row.execute_ms).collect();
    let gas = rows.iter().map(|row| row.gas).sum::<u64>();
    let total_ms: f64 = times.iter().sum();
    Report {
        machine: Machine::here(),
        repeat,
        blocks: rows.len(),
        failed: rows.iter().filter(|row| row.error.is_some()).count(),
        gas,
        mgas_per_s: gas as f64 / 1e3 / total_ms.max(1e-9),
        p50_ms: median(&times),
        p95_ms: percentile(&times, 95.0),
        p99_ms: percentile(&times, 99.0),
        rows,
    }
}

fn replay(entry: Entry, repeat: usize) -> Result<Row> {
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
    let mut times = Vec::new();
    let mut checked = Vec::new();
    let mut error = None;
    let result = match &entry.block {
        Recorded::Witness { block, state } => {
            let recovered = recover_block((**block).clone(), header.hash_slow())?;
            whole_block(&spec, &recovered, state, repeat, &mut times, &mut checked)
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
            only_transactions(
                &spec,
                &recovered,
                (&**state, gas),
                repeat,
                &mut times,
                &mut checked,
            )
        }
    };
    if let Err(report) = result {
        error = Some(format!("{report:#}"));
    }
    let execute_ms = median(&times);
    let mgas_per_s = gas as f64 / 1e3 / execute_ms.max(1e-9);
    Ok(Row {
        name: entry.name,
        fork,
        transactions,
        gas,
        execute_ms,
        mgas_per_s,
        checked,
        error,
    })
}

fn whole_block(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    state: &WitnessState,
    repeat: usize,
    times: &mut Vec<f64>,
    checked: &mut Vec<&'static str>,
) -> Result<()> {
    let header = &block.block.header;
    let mut executed = None;
    for _ in 0..repeat.max(1) {
        let start = Instant::now();
        let result = apply_body(spec, block, state, &mut |diff| state.post_root(diff));
        times.push(start.elapsed().as_secs_f64() * 1e3);
        executed = Some(match result {
            Ok(executed) => executed,
            Err(ExecuteError::Invalid(reason)) => bail!("refused as invalid: {reason}"),
            Err(ExecuteError::Fault(fault)) => bail!("could not be executed: {fault}"),
        });
    }
    let executed = executed.expect("ran at least once");
    check_results(header, executed.gas_used, &executed.receipts, true, checked)?;
    if let Some(expected) = header.requests_hash {
        same("requests hash", requests_hash(&executed.requests), expected)?;
        checked.push("requestsHash");
    }
    same(
        "state root",
        state.post_root(&executed.diff)?,
        header.state_root,
    )?;
    checked.push("stateRoot");
    Ok(())
}

fn only_transactions(
    spec: &ChainSpec,
    block: &RecoveredBlock,
    (state, gas): (&niwaki_testkit::MemoryState, &[u64]),
    repeat: usize,
    times: &mut Vec<f64>,
    checked: &mut Vec<&'static str>,
) -> Result<()> {
    let header = &block.block.header;
    let transactions = &block.block.body.transactions;
    let root = ordered_root(transactions, |tx: &TxEnvelope, out| tx.encode_2718(out));
    same("transactions root", root, header.transactions_root)?;
    checked.push("transactionsRoot");
    let mut receipts = Vec::new();
    let mut used = 0;
    for _ in 0..repeat.max(1) {
        receipts.clear();
        let start = Instant::now();
        let mut executor = Executor::new(spec, header, state);
        for (index, (tx, sender)) in transactions.iter().zip(&block.senders).enumerate() {
            let result = match executor.process_transaction(tx, *sender, None) {
                Ok(result) => result,
                Err(TransactionError::Invalid(reason)) => bail!("transaction {index}: {reason}"),
                Err(TransactionError::Fault(fault)) => bail!("transaction {index}: {fault}"),
            };
            same(
                &format!("gas of transaction {index}"),
                result.gas_used,
                gas[index],
            )?;
            receipts.push(Receipt {
                tx_type: tx.ty(),
                status: Some(result.exit.is_success()),
                post_state: None,
                cumulative_gas_used: executor.used().gas,
                logs: result.logs,
            });
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
        used = executor.used().header_gas(spec.fork_of(header));
    }
    // Receipts before Byzantium hold state roots, which the recorded accounts don't give.
    let has_root = spec.fork_of(header) >= Fork::Byzantium;
    check_results(header, used, &receipts, has_root, checked)
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
