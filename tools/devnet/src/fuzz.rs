//! Malformed requests to a node that must keep responding.
//!
//! Several connections send malformed requests while one more calls `eth_blockNumber` and measures
//! the latency. At the end the node must still run, must have responded in time throughout, must have
//! stayed below its memory limit and must not have logged a panic. `--seed` and `--only` reproduce
//! one case.

mod cases;
mod wires;

use crate::client::Client;
use crate::process::{APIS, Process, StartOptions, free_port, memory};
use crate::report::percentile;
use cases::Case;
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wires::Endpoints;

#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Folder with the test chain and the recorded requests that the cases are made from.
    #[arg(long, value_name = "DIR", default_value = "testdata")]
    testdata: PathBuf,
    /// How long to run, seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Seed of the cases; the same seed makes the same cases.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send only the case of this number.
    #[arg(long, value_name = "N")]
    only: Option<u64>,
    /// Connections that send at the same time.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Longest allowed latency of eth_blockNumber, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    answer_ms: u64,
    /// Largest allowed resident memory of the node, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1_024)]
    memory_mib: u64,
}

/// Findings to report at most.
const MAX_FINDINGS: usize = 20;

/// Results of a run.
#[derive(Debug, Default)]
struct FuzzReport {
    sent: BTreeMap<String, u64>,
    findings: Vec<String>,
    /// Latencies of `eth_blockNumber`.
    waits: Vec<Duration>,
}

/// Sends cases until the time is over.
///
/// # Errors
/// If there is any finding.
pub(crate) fn run(options: &FuzzOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let requests = requests(&options.testdata.join("rpc/execution-apis.txt"))?;
    let (mut node, endpoints) = start(options, folder.path())?;
    let results = Mutex::new(FuzzReport::default());
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + Duration::from_secs(options.seconds);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&node.client, &is_over, &results));
        let senders: Vec<_> = (0..options.connections.max(1))
            .map(|_| {
                scope.spawn(|| match options.only {
                    Some(number) => send_case(options, number, &requests, &endpoints, &results),
                    None => {
                        while Instant::now() < end {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            send_case(options, number, &requests, &endpoints, &results);
                        }
                    }
                })
            })
            .collect();
        for sender in senders {
            let _ = sender.join();
        }
        is_over.store(true, Ordering::Relaxed);
        let _ = watch.join();
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(options, &mut node, results)
}

/// The requests of the recorded exchanges in `path`, which are valid.
fn requests(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the exchanges {}", path.display()))?;
    let sent = text.lines().filter_map(|line| line.strip_prefix(">> "));
    let requests: Vec<String> = sent.map(str::to_owned).collect();
    ensure!(!requests.is_empty(), "{} has no requests", path.display());
    Ok(requests)
}

fn send_case(
    options: &FuzzOptions,
    number: u64,
    requests: &[String],
    endpoints: &Endpoints,
    results: &Mutex<FuzzReport>,
) {
    let case = Case::new(options.seed, number, requests);
    let sent = wires::send(endpoints, &case);
    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
    *results.sent.entry(format!("{:?}", case.kind)).or_default() += 1;
    if let Err(error) = sent
        && results.findings.len() < MAX_FINDINGS
    {
        let (transport, kind) = (case.transport, case.kind);
        let finding = format!(
            "--seed {} --only {number} ({transport:?}, {kind:?}): {error:#}",
            options.seed
        );
        results.findings.push(finding);
    }
}

/// Calls `eth_blockNumber` every 20 ms until `is_over`.
fn watch(client: &Client, is_over: &AtomicBool, results: &Mutex<FuzzReport>) {
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let response = client.block_number();
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        results.waits.push(began.elapsed());
        if let Err(error) = response
            && results.findings.len() < MAX_FINDINGS
        {
            results
                .findings
                .push(format!("the head's number: {error:#}"));
        }
        drop(results);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(options: &FuzzOptions, node: &mut Process, mut results: FuzzReport) -> Result<()> {
    let total: u64 = results.sent.values().sum();
    let kinds: Vec<String> = results
        .sent
        .iter()
        .map(|(kind, count)| format!("{count} {}", kind.to_lowercase()))
        .collect();
    results.waits.sort();
    let longest = percentile(&results.waits, 100);
    let memory = memory(node.id(), "VmHWM:").ok().map(|bytes| bytes >> 20);
    println!(
        "{total} cases of seed {}: {}; the head's number {} times, P50 {:.1} ms, P99 {:.1} ms, at most \
         {:.1} ms; at most {} MiB",
        options.seed,
        kinds.join(", "),
        results.waits.len(),
        percentile(&results.waits, 50).as_secs_f64() * 1e3,
        percentile(&results.waits, 99).as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3,
        memory.unwrap_or(0),
    );
    let mut findings = results.findings;
    if let Some(status) = node.exit_status()? {
        findings.push(format!("the node ended: {status}"));
    }
    if longest > Duration::from_millis(options.answer_ms) {
        findings.push(format!("the head's number took {longest:?}"));
    }
    if memory.is_some_and(|memory| memory > options.memory_mib) {
        findings.push(format!(
            "{memory:?} MiB, of {} that it may take",
            options.memory_mib
        ));
    }
    findings.extend(
        node.log()
            .lines()
            .filter(|line| line.contains("panicked"))
            .map(str::to_owned),
    );
    match findings.is_empty() {
        true => Ok(()),
        false => bail!("{} findings:\n{}", findings.len(), findings.join("\n")),
    }
}

/// Starts the node on the test chain, with every server.
fn start(options: &FuzzOptions, folder: &Path) -> Result<(Process, Endpoints)> {
    let chain = options.testdata.join("chain");
    let (genesis, blocks) = (chain.join("genesis.json"), chain.join("chain.rlp"));
    let websocket = free_port()?;
    let websocket_port = websocket.to_string();
    let start = StartOptions {
        chain: Some(&blocks),
        memory_budget: "256M",
        connections: 80,
        flags: &[
            "--rpc-ws-enabled",
            "--rpc-ws-port",
            &websocket_port,
            "--rpc-ws-api",
            APIS,
            "--Xrpc-ipc-enabled",
            "--Xrpc-ipc-apis",
            APIS,
        ],
        ..StartOptions::genesis(&genesis)
    };
    let node = Process::start_niwaki(&options.niwaki, folder.to_owned(), start)?;
    let endpoints = Endpoints {
        http: ([127, 0, 0, 1], node.rpc_port()).into(),
        websocket: ([127, 0, 0, 1], websocket).into(),
        ipc: node.data_path().join("niwaki.ipc"),
    };
    Ok((node, endpoints))
}
