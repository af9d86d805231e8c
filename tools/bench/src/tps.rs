//! `niwaki-bench tps`: transactions at a fixed rate into a network that runs, and what its blocks take in of them.
//!
//! The transactions are signed before. The rate does not wait for the nodes: what they take in more slowly is a backlog, which grows. A closed
//! loop waits for the acknowledgement of each.
//!
//! | file | what it is |
//! |---|---|
//! | `work` | the contract, accounts and signed transactions |
//! | `send` | the threads that send |
//! | `watch` | the blocks as they come |
//! | `client` | JSON-RPC |

mod client;
mod send;
mod watch;
mod work;

use crate::harness::JsonFile;
use crate::machine::Machine;
use crate::stats::percentile;
use client::Client;
use eyre::{Result, ensure};
use send::{Pace, Sent};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use watch::SeenBlock;
use work::{Call, Work};

/// How long the last transactions may take, if blocks still take some in.
const DRAIN: Duration = Duration::from_secs(30);

/// Options of `niwaki-bench tps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Nodes that get the transactions in turn: URLs of JSON-RPC over HTTP. Blocks are counted at the last one.
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    rpc: Vec<String>,
    /// Transactions a second.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// One transaction a request: each connection sends its next one when its last one is acknowledged, and one that is refused again after
    /// 100 ms. `--rate` is then the most for which transactions are signed.
    #[arg(long)]
    closed_loop: bool,
    /// Seconds that are measured.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds before them, at the same rate.
    #[arg(long, value_name = "S", default_value_t = 20)]
    warm_up: u64,
    /// Accounts that send.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    accounts: u64,
    /// What the transactions do. `register` writes five new slots and a log, 292 bytes of calldata.
    #[arg(long, value_name = "CALL", default_value = "register")]
    call: Call,
    /// Connections to each node.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = crate::harness::at_least_one)]
    connections: usize,
    /// Processes of the nodes: their processor time is measured.
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pids: Vec<u32>,
    #[command(flatten)]
    json: JsonFile,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    client: String,
    nodes: usize,
    call: Call,
    rate: u64,
    closed_loop: bool,
    seconds: u64,
    accounts: u64,
    /// Included in the measured time.
    tps: f64,
    gas_per_s: f64,
    blocks: usize,
    /// Of the measured blocks.
    rounds_above_zero: usize,
    /// Transactions a second by which those grow that are sent and not included.
    backlog_slope: f64,
    largest_backlog: u64,
    interval_ms: [f64; 2],
    latency_ms: [f64; 2],
    /// The last block that was sent behind the rate, ms.
    latest_ms: u64,
    acknowledged: u64,
    included: u64,
    /// Acknowledged and in no block, because an earlier one of the same account was refused.
    behind_refused: u64,
    /// Acknowledged, and in no block for no such reason.
    lost: u64,
    refused: BTreeMap<String, u64>,
    cpu_s_of_nodes: Vec<f64>,
    cpu_s_of_generator: f64,
    /// Executions of blocks per block of the chain, of each validator that says so (`niwaki_bftState`).
    executions_per_block: Vec<f64>,
}

/// Runs the load.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let clients: Vec<Client> = options.rpc.iter().map(|url| Client::new(url)).collect();
    let last = clients.last().map(Client::with_new_connections);
    let Some(watched) = last else {
        return Ok(());
    };
    let name = watched.version()?;
    let seconds = options.warm_up + options.seconds;
    let count = options.rate * seconds;
    let pace = match options.closed_loop {
        true => Pace::ClosedLoop(Duration::from_secs(seconds)),
        false => Pace::Rate(options.rate),
    };
    println!("{name}: signing {count} transactions");
    let work = Work::prepare(&watched, options.call, options.accounts, count)?;

    let before = cpu_times(&options.pids)?;
    let executed_before = executions(&clients);
    let own_before = cpu_time(std::process::id())?;
    let began = Instant::now();
    let sent = Sent::new(work.transactions.len());
    let blocks = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch::watch(&watched, &work, &sent, began));
        let sending = send::run(&clients, options.connections, &work, pace, &sent);
        sent.end(sending);
        watching.join().unwrap_or_else(|_| Ok(Vec::new()))
    })?;
    let after = cpu_times(&options.pids)?;
    let cpu = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before);
    let mut report = report(options, &work, &sent, &blocks)?;
    report.client = name;
    report.cpu_s_of_nodes = cpu.collect();
    report.cpu_s_of_generator = cpu_time(std::process::id())? - own_before;
    report.executions_per_block = executions(&clients)
        .iter()
        .zip(&executed_before)
        .filter_map(|(after, before)| per_block((*before)?, (*after)?))
        .collect();
    print(&report);
    options.json.write(&report)
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn report(options: &Options, work: &Work, sent: &Sent, blocks: &[SeenBlock]) -> Result<Report> {
    let from = options.warm_up * 1_000;
    let to = from + options.seconds * 1_000;
    let measured: Vec<&SeenBlock> = blocks
        .iter()
        .filter(|block| (from..=to).contains(&block.at_ms))
        .collect();
    ensure!(
        measured.len() >= 3,
        "{} blocks came in the measured time: three are needed; longer --seconds",
        measured.len()
    );
    let (first, rest) = (measured[0], &measured[1..]);
    let span_s = (measured[measured.len() - 1].at_ms - first.at_ms) as f64 / 1e3;
    let included: u64 = rest.iter().map(|block| block.own).sum();
    let gas: u64 = rest.iter().map(|block| block.gas_used).sum();
    let gaps = measured
        .windows(2)
        .map(|pair| (pair[1].at_ms - pair[0].at_ms) as f64);
    let gaps: Vec<f64> = gaps.collect();
    let backlogs: Vec<(f64, f64)> = measured
        .iter()
        .map(|block| (block.at_ms as f64 / 1e3, block.backlog as f64))
        .collect();
    let latencies = sent.latencies(from, to);
    let total = blocks.iter().map(|block| block.own).sum();
    let acknowledged = sent.acknowledged();
    let behind_refused = sent.behind_refused(work.accounts);
    Ok(Report {
        machine: Machine::here(),
        client: String::new(),
        nodes: options.rpc.len(),
        call: work.call,
        rate: options.rate,
        closed_loop: options.closed_loop,
        seconds: options.seconds,
        accounts: options.accounts,
        tps: included as f64 / span_s,
        gas_per_s: gas as f64 / span_s,
        blocks: measured.len(),
        rounds_above_zero: rest.iter().filter(|block| block.round > 0).count(),
        backlog_slope: slope(&backlogs),
        largest_backlog: blocks.iter().map(|block| block.backlog).max().unwrap_or(0),
        interval_ms: [percentile(&gaps, 50.0), percentile(&gaps, 99.0)],
        latency_ms: [percentile(&latencies, 50.0), percentile(&latencies, 99.0)],
        latest_ms: sent.latest_ms(),
        acknowledged,
        included: total,
        behind_refused,
        lost: acknowledged.saturating_sub(total + behind_refused),
        refused: sent.refused(),
        cpu_s_of_nodes: Vec::new(),
        cpu_s_of_generator: 0.0,
        executions_per_block: Vec::new(),
    })
}

/// What each validator says of how many blocks it has executed, and the block that is agreed on; `None` of others and other clients.
fn executions(clients: &[Client]) -> Vec<Option<(u64, u64)>> {
    let of = |client: &Client| {
        let state = client.call("niwaki_bftState", &Value::Array(Vec::new()));
        let state = state.ok().filter(|state| state["isValidator"] == true)?;
        let number = |name: &str| {
            let text = state[name].as_str()?;
            u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        Some((number("blocksExecuted")?, number("height")?))
    };
    clients.iter().map(of).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn per_block(before: (u64, u64), after: (u64, u64)) -> Option<f64> {
    let blocks = after.1.checked_sub(before.1).filter(|blocks| *blocks > 0)?;
    Some(after.0.saturating_sub(before.0) as f64 / blocks as f64)
}

/// The slope of a straight line through these points (least squares).
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|(a, b)| (a - x) * (b - y)).sum();
    let below: f64 = points.iter().map(|(a, _)| (a - x) * (a - x)).sum();
    match below > 0.0 {
        true => above / below,
        false => 0.0,
    }
}

fn print(report: &Report) {
    let [interval, longest] = report.interval_ms;
    let [latency, slowest] = report.latency_ms;
    println!(
        "{:.0} of {}{} transactions a second included, {:.0} Mgas/s, {} blocks, {} of rounds above 0",
        report.tps,
        if report.closed_loop { "at most " } else { "" },
        report.rate,
        report.gas_per_s / 1e6,
        report.blocks,
        report.rounds_above_zero
    );
    println!(
        "backlog: slope {:.1}/s, at most {}; sent at most {} ms late",
        report.backlog_slope, report.largest_backlog, report.latest_ms
    );
    println!(
        "interval P50 {interval:.0} ms, P99 {longest:.0}; latency P50 {latency:.0} ms, P99 {slowest:.0}"
    );
    println!(
        "{} acknowledged, {} included, {} after a refused one of their account, {} lost; refused: {:?}",
        report.acknowledged, report.included, report.behind_refused, report.lost, report.refused
    );
    let nodes: Vec<String> = report
        .cpu_s_of_nodes
        .iter()
        .map(|s| format!("{s:.1}"))
        .collect();
    let executions = report.executions_per_block.iter();
    let executions: Vec<String> = executions.map(|each| format!("{each:.2}")).collect();
    println!("executions per block: {}", executions.join(" "));
    println!(
        "CPU s: nodes {}, generator {:.1}",
        nodes.join(" "),
        report.cpu_s_of_generator
    );
}

fn cpu_times(processes: &[u32]) -> Result<Vec<f64>> {
    processes.iter().map(|process| cpu_time(*process)).collect()
}

/// User and system time of a process, seconds.
fn cpu_time(process: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Fields 14 and 15, hundredths of a second. Field 2 is the name, in brackets.
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<_, _>>()?;
    Ok(ticks / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_has_its_slope() {
        assert!((slope(&[(1.0, 5.0), (2.0, 8.0), (4.0, 14.0)]) - 3.0).abs() < 1e-9);
        assert!(slope(&[(1.0, 5.0)]).abs() < 1e-9);
        assert!(slope(&[]).abs() < 1e-9);
    }
}
