//! What nobody should send, to a node that must go on answering.
//!
//! Several connections at a time send requests that are wrong in every way there is, while one asks
//! for the number of the head and takes the time. Afterwards the node must be there, must have
//! answered in time all along, and must not have taken more memory than it may. The same seed sends
//! the same; a case that was found is sent again by its number.

mod cases;
mod wires;

use crate::client::Client;
use crate::process::{Kind as Of, free_port, import, memory};
use cases::Case;
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure, eyre};
use niwaki_rpc::JwtSecret;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use wires::Places;

#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// The folder with the chain and the exchanges that cases are made from.
    #[arg(long, value_name = "DIR", default_value = "testdata")]
    testdata: PathBuf,
    /// How long.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Where chance begins; the same number makes the same cases.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send the case of this number only.
    #[arg(long, value_name = "N")]
    only: Option<u64>,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// How long the number of the head may be waited for, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    answer_ms: u64,
    /// Memory that the node may take at most, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 1_024)]
    memory_mib: u64,
}

/// How many findings are kept.
const FINDINGS: usize = 20;

/// A node that is killed when it is dropped.
struct Node {
    child: Child,
    client: Client,
    places: Places,
}

/// What came out.
#[derive(Debug, Default)]
struct Outcome {
    sent: BTreeMap<String, u64>,
    findings: Vec<String>,
    waits: Vec<Duration>,
}

/// Sends until the time is over, and fails if anything was found.
pub(crate) fn run(options: &FuzzOptions) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let requests = requests(&options.testdata.join("rpc/execution-apis.txt"))?;
    let mut node = Node::start(options, folder.path())?;
    let outcome = Mutex::new(Outcome::default());
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + Duration::from_secs(options.seconds);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&node.client, &is_over, &outcome));
        let senders: Vec<_> = (0..options.connections.max(1))
            .map(|_| {
                scope.spawn(|| match options.only {
                    Some(number) => one(options, number, &requests, &node.places, &outcome),
                    None => {
                        while Instant::now() < end {
                            let number = next.fetch_add(1, Ordering::Relaxed);
                            one(options, number, &requests, &node.places, &outcome);
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
    let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(options, &mut node, outcome, folder.path())
}

/// The requests of exchanges that are right.
fn requests(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the exchanges {}", path.display()))?;
    let sent = text.lines().filter_map(|line| line.strip_prefix(">> "));
    let requests: Vec<String> = sent.map(str::to_owned).collect();
    ensure!(!requests.is_empty(), "{} has no requests", path.display());
    Ok(requests)
}

fn one(
    options: &FuzzOptions,
    number: u64,
    requests: &[String],
    places: &Places,
    outcome: &Mutex<Outcome>,
) {
    let case = Case::new(options.seed, number, requests);
    let sent = wires::send(places, &case);
    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
    *outcome.sent.entry(format!("{:?}", case.kind)).or_default() += 1;
    if let Err(error) = sent
        && outcome.findings.len() < FINDINGS
    {
        let (way, kind) = (case.way, case.kind);
        let finding = format!(
            "--seed {} --only {number} ({way:?}, {kind:?}): {error:#}",
            options.seed
        );
        outcome.findings.push(finding);
    }
}

/// Asks for the number of the head, again and again.
fn watch(client: &Client, is_over: &AtomicBool, outcome: &Mutex<Outcome>) {
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let asked = client.ask("eth_blockNumber", json!([]));
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.waits.push(began.elapsed());
        if let Err(error) = asked
            && outcome.findings.len() < FINDINGS
        {
            outcome
                .findings
                .push(format!("the head's number: {error:#}"));
        }
        drop(outcome);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn report(
    options: &FuzzOptions,
    node: &mut Node,
    mut outcome: Outcome,
    folder: &Path,
) -> Result<()> {
    let total: u64 = outcome.sent.values().sum();
    let kinds: Vec<String> = outcome
        .sent
        .iter()
        .map(|(kind, count)| format!("{count} {}", kind.to_lowercase()))
        .collect();
    outcome.waits.sort();
    let wait = |share: usize| {
        let index = (outcome.waits.len() * share / 100).min(outcome.waits.len().saturating_sub(1));
        outcome.waits.get(index).copied().unwrap_or_default()
    };
    let most = wait(100);
    let memory = memory(node.child.id(), "VmHWM:")
        .ok()
        .map(|bytes| bytes >> 20);
    println!(
        "{total} cases of seed {}: {}; the head's number {} times, P50 {:.1} ms, P99 {:.1} ms, at most \
         {:.1} ms; at most {} MiB",
        options.seed,
        kinds.join(", "),
        outcome.waits.len(),
        wait(50).as_secs_f64() * 1e3,
        wait(99).as_secs_f64() * 1e3,
        most.as_secs_f64() * 1e3,
        memory.unwrap_or(0),
    );
    let mut findings = outcome.findings;
    if let Some(status) = node.child.try_wait()? {
        findings.push(format!("the node ended: {status}"));
    }
    if most > Duration::from_millis(options.answer_ms) {
        findings.push(format!("the head's number took {most:?}"));
    }
    if memory.is_some_and(|memory| memory > options.memory_mib) {
        findings.push(format!(
            "{memory:?} MiB, of {} that it may take",
            options.memory_mib
        ));
    }
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    findings.extend(
        log.lines()
            .filter(|line| line.contains("panicked"))
            .map(str::to_owned),
    );
    match findings.is_empty() {
        true => Ok(()),
        false => bail!("{} findings:\n{}", findings.len(), findings.join("\n")),
    }
}

impl Node {
    fn start(options: &FuzzOptions, folder: &Path) -> Result<Self> {
        let binary = std::path::absolute(&options.niwaki)?;
        let chain = options.testdata.join("chain");
        std::fs::copy(chain.join("genesis.json"), folder.join("genesis.json"))
            .wrap_err_with(|| format!("no genesis file in {}", chain.display()))?;
        import(Of::Niwaki, &binary, folder, &chain.join("chain.rlp"))?;
        let ports = [free_port()?, free_port()?, free_port()?];
        let [http, websocket, engine] = ports.map(|port| port.to_string());
        let log = File::create(folder.join("log"))?;
        let child = Command::new(&binary)
            .args(["--data-path", "data", "--genesis-file", "genesis.json"])
            .args(["--rpc-http-enabled", "--rpc-http-port", &http])
            .args(["--rpc-ws-enabled", "--rpc-ws-port", &websocket])
            .args(["--engine-rpc-port", &engine, "--Xrpc-ipc-enabled"])
            .args([
                "--rpc-http-api",
                APIS,
                "--rpc-ws-api",
                APIS,
                "--Xrpc-ipc-apis",
                APIS,
            ])
            .args(["--memory-budget", "256M"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .wrap_err_with(|| format!("can't run {}", binary.display()))?;
        let [http, websocket, engine] = ports;
        let node = Self {
            child,
            client: Client::new("niwaki", http, engine, JwtSecret::new([0; 32])),
            places: Places {
                http: ([127, 0, 0, 1], http).into(),
                websocket: ([127, 0, 0, 1], websocket).into(),
                ipc: folder.join("data/niwaki.ipc"),
            },
        };
        let ready = node.client.wait_until_ready();
        ready.map_err(|error| {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            eyre!("{error:#}\n{log}")
        })?;
        Ok(node)
    }
}

/// What is offered: all that reads, and runs code.
const APIS: &str = "ETH,NET,WEB3,TXPOOL,DEBUG,TRACE";

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
