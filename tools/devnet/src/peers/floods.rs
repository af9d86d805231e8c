//! `peers floods`: a node imports blocks in peace; then another one the same blocks while attackers flood it, once for each flood. Memory
//! and the latency of `newPayload` are compared.
//!
//! The attackers (`attack`) run in this process, on one thread of the lowest priority, so that they take little time from the node's
//! threads; what the system spends on their packets it takes from both.

mod attack;

use super::Binaries;
use super::chain::{Chain, ChainBlock};
use super::findings::Findings;
use super::node::{self, fork_choice};
use crate::process::{ClientKind, P2pOptions, Process, StartOptions, memory, new_folder};
use crate::report::percentile;
use attack::{Attack, Flood};
use clap::Args;
use eyre::{Result, ensure};
use niwaki_primitives::B256;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct FloodsOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The floods, each on a new node.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "hashes,bombs,connects,udp,deaf,ids,askers"
    )]
    floods: Vec<Flood>,
    /// How long each flood lasts, and the time in peace, seconds.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Blocks per second that the node imports.
    #[arg(long, value_name = "N", default_value_t = 5)]
    blocks_per_second: u64,
    /// The node's --memory-budget, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: u64,
    /// Largest allowed resident memory, in percent of the budget and the 256 MiB of the network.
    #[arg(long, value_name = "PERCENT", default_value_t = 125)]
    memory_percent: u64,
    /// Largest allowed P99 of newPayload, in percent of that in peace.
    #[arg(long, value_name = "PERCENT", default_value_t = 110)]
    p99_percent: u32,
    /// Folder of the chain: read if it exists, else written [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    chain: Option<PathBuf>,
    /// Folder for the nodes' data and logs, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Memory of the network beside the budget, MiB.
const NETWORK_MIB: u64 = 256;

/// What was measured in some time.
struct Phase {
    times: Vec<Duration>,
    peak_bytes: u64,
    cpu: Duration,
}

pub(crate) fn run(options: &FloodsOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    // The first one, which finds every cache empty, is not measured.
    let needed = 1 + usize::try_from(options.seconds * options.blocks_per_second)?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, temporary.path(), needed)?;
    ensure!(
        chain.blocks.len() >= needed,
        "the chain has {} blocks, {needed} are needed",
        chain.blocks.len(),
    );
    let (first, measured) = chain.blocks[..needed].split_at(1);
    let start = |name: &str| {
        let node = start(options, &chain.genesis, &folder.join(name))?;
        import(options, &node, first, &|_| {})?;
        Ok::<_, eyre::Report>(node)
    };
    let mut findings = Findings::default();
    let peace = import(options, &start("peace")?, measured, &|_| {})?;
    note(&mut findings, "peace", &peace);
    for flood in &options.floods {
        let name = format!("{flood:?}").to_lowercase();
        let node = start(&name)?;
        let attack = Attack::start(*flood, &node.client.enode()?)?;
        let under = import(options, &node, measured, &|root| attack.head_moved(root))?;
        let did = attack.stop();
        note(&mut findings, &name, &under);
        for (what, count) in did {
            findings.count(format!("{name}: {what}"), count);
        }
        let allowed = flood.allowed(options.p99_percent);
        compare(options, &mut findings, &name, (&peace, &under), allowed);
        let is_clean = !node.log().contains("panicked");
        findings.claim(
            format!("{name}: every block is VALID, and nothing panicked"),
            is_clean,
        );
    }
    findings.finish("floods", options.json.as_deref())
}

fn start(options: &FloodsOptions, genesis: &Path, folder: &Path) -> Result<Process> {
    let budget = format!("{}M", options.memory_mib);
    let start = StartOptions {
        memory_budget: &budget,
        p2p: Some(P2pOptions {
            has_discovery: true,
            // Half of them are for nodes that connect by themselves.
            max_peers: 110,
            ..P2pOptions::default()
        }),
        ..StartOptions::genesis(genesis)
    };
    node::start(ClientKind::Niwaki, "node", &options.binaries, folder, start)
}

/// Imports blocks at the pace, and measures. `head_moved` gets the state root of each.
fn import(
    options: &FloodsOptions,
    node: &Process,
    blocks: &[ChainBlock],
    head_moved: &dyn Fn(B256),
) -> Result<Phase> {
    let pace = Duration::from_secs(1) / u32::try_from(options.blocks_per_second.max(1))?;
    let cpu = node.cpu_time()?;
    let (mut times, mut peak_bytes) = (Vec::new(), 0);
    for block in blocks {
        let began = Instant::now();
        let (response, took) = node
            .client
            .call_engine(&block.method, block.params.clone())?;
        ensure!(
            response["status"] == "VALID",
            "block {}: {response}",
            block.number
        );
        ensure!(
            fork_choice(&node.client, block)? == "VALID",
            "head {}",
            block.number
        );
        times.push(took);
        head_moved(block.state_root()?);
        peak_bytes = peak_bytes.max(memory(node.id(), "VmRSS:")?);
        std::thread::sleep(pace.saturating_sub(began.elapsed()));
    }
    times.sort_unstable();
    Ok(Phase {
        times,
        peak_bytes,
        cpu: node.cpu_time()? - cpu,
    })
}

fn note(findings: &mut Findings, name: &str, phase: &Phase) {
    let ms = |percent| percentile(&phase.times, percent).as_secs_f64() * 1e3;
    findings.figure(format!("{name}: newPayload P50"), ms(50), "ms");
    findings.figure(format!("{name}: newPayload P99"), ms(99), "ms");
    findings.count(
        format!("{name}: resident memory at most, MiB"),
        phase.peak_bytes >> 20,
    );
    findings.figure(format!("{name}: CPU"), phase.cpu.as_secs_f64(), "s");
}

/// `allowed` is a percentile, and most percent of that in peace.
fn compare(
    options: &FloodsOptions,
    findings: &mut Findings,
    name: &str,
    phases: (&Phase, &Phase),
    allowed: (usize, u32),
) {
    let (peace, under) = phases;
    let limit = (options.memory_mib + NETWORK_MIB) * options.memory_percent / 100;
    findings.claim(
        format!("{name}: at most {limit} MiB"),
        under.peak_bytes >> 20 <= limit,
    );
    let (percent, most) = allowed;
    let in_peace = percentile(&peace.times, percent);
    let holds = percentile(&under.times, percent) <= in_peace * most / 100;
    findings.claim(
        format!("{name}: P{percent} of newPayload at most {most} % of that in peace"),
        holds,
    );
}
