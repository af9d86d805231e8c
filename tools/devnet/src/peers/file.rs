//! `peers file`: what it costs to get a chain from a peer, compared with importing it from a file.
//!
//! ```text
//! import: a new database imports chain.rlp                  time I
//! sync:   a new database gets the head from its peer        time S, from the first fork choice to VALID
//! ```
//!
//! Imports and syncs alternate, each on a database that has only the genesis block. The folder is one of `niwaki-bench gen-chain`.

use super::Binaries;
use super::findings::Findings;
use super::node::{self, choice, connect, without_discovery};
use super::sync::last_lines;
use crate::process::{ClientKind, Process, import, init, memory, new_folder};
use clap::Args;
use eyre::{Result, WrapErr, bail, eyre};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the sink is told the head.
const SLOT: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(crate) struct FileOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The client of both nodes.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    client: ClientKind,
    /// Folder of the chain: `genesis.json`, `chain.rlp`, `chain.json`.
    chain: PathBuf,
    /// Longest allowed time of a sync, seconds.
    #[arg(long, value_name = "N", default_value_t = 1_200)]
    timeout_s: u64,
    /// Imports and syncs, in turn.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// A sync may take at most so many percent of the time of an import, by medians.
    #[arg(long, value_name = "PERCENT", default_value_t = 115.0)]
    at_most: f64,
    /// Folder for the nodes' data and logs, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &FileOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let head = head_of(&options.chain)?;
    let (mut imports, mut syncs) = (Vec::new(), Vec::new());
    let mut findings = Findings::default();
    let mut source: Option<Process> = None;
    for run in 0..options.runs.max(1) {
        let imported = folder.join(format!("import-{run}"));
        let took = time_import(options, &imported)?;
        imports.push(took);
        if source.is_none() {
            let started = start(options, "source", &imported)?;
            findings.text("client", node::version(&started.client)?);
            source = Some(started);
        } else {
            std::fs::remove_dir_all(&imported)?;
        }
        let source = source
            .as_ref()
            .ok_or_else(|| eyre!("a source was started"))?;
        let of_sink = folder.join(format!("sink-{run}"));
        prepare(options, &of_sink)?;
        let sink = start(options, "sink", &of_sink)?;
        connect(&sink.client, &source.client)?;
        let cpu = sink.cpu_time()?;
        let synced = sync(options, &sink, &head)?;
        eprintln!("run {run}: import {took:.1?}, sync {synced:.1?}");
        findings.figure(
            "CPU of the sink",
            (sink.cpu_time()? - cpu).as_secs_f64(),
            "s",
        );
        findings.count(
            "peak memory of the sink, MiB",
            memory(sink.id(), "VmHWM:")? >> 20,
        );
        syncs.push(synced);
        drop(sink);
        std::fs::remove_dir_all(&of_sink)?;
    }
    let percent = 100.0 * median(&syncs).as_secs_f64() / median(&imports).as_secs_f64();
    findings.times("import", imports);
    findings.times("sync", syncs);
    findings.figure("sync, of the time of an import", percent, "%");
    findings.claim(
        format!(
            "a sync takes at most {} % of the time of an import",
            options.at_most
        ),
        percent <= options.at_most,
    );
    findings.finish("file", options.json.as_deref())
}

/// The hash of the head, as `gen-chain` wrote it down.
fn head_of(chain: &Path) -> Result<String> {
    let path = chain.join("chain.json");
    let at = || format!("{} is needed", path.display());
    let text = std::fs::read_to_string(&path).wrap_err_with(at)?;
    let value: Value = serde_json::from_str(&text).wrap_err_with(at)?;
    let hash = value["head"]["hash"].as_str();
    Ok(hash
        .ok_or_else(|| eyre!("no head.hash in {}", path.display()))?
        .to_owned())
}

/// A folder with a database that has the genesis block.
fn prepare(options: &FileOptions, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::copy(
        options.chain.join("genesis.json"),
        folder.join("genesis.json"),
    )?;
    init(options.client, options.binaries.of(options.client)?, folder)
}

fn time_import(options: &FileOptions, folder: &Path) -> Result<Duration> {
    prepare(options, folder)?;
    let binary = options.binaries.of(options.client)?;
    let began = Instant::now();
    import(
        options.client,
        binary,
        folder,
        &options.chain.join("chain.rlp"),
    )?;
    Ok(began.elapsed())
}

fn start(options: &FileOptions, name: &'static str, folder: &Path) -> Result<Process> {
    let genesis = folder.join("genesis.json");
    // Memory as for an import.
    let start = crate::process::StartOptions {
        memory_budget: "4G",
        ..without_discovery(&genesis)
    };
    node::start(options.client, name, &options.binaries, folder, start)
}

/// Sends the fork choice each slot until the sink has the head. Returns how long that takes.
fn sync(options: &FileOptions, sink: &Process, head: &str) -> Result<Duration> {
    let began = Instant::now();
    loop {
        let params = json!([choice(head), null]);
        let (response, _) = sink
            .client
            .call_engine("engine_forkchoiceUpdatedV3", params)?;
        if response["payloadStatus"]["status"] == "VALID" {
            return Ok(began.elapsed());
        }
        if began.elapsed() > Duration::from_secs(options.timeout_s) {
            let log = last_lines(&sink.log());
            bail!(
                "no head after {} s: {response}; the log of the sink ends:\n{log}",
                options.timeout_s
            );
        }
        std::thread::sleep(SLOT);
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
