//! `peers sync`: one node has a chain, another one starts empty and gets it from its peer.
//!
//! ```text
//! source: newPayload of every block, fork choice     sink: each slot newPayload and fork choice of the head, until VALID
//!   `--late N`: the last N blocks while the sink syncs, one a slot; then the source of each run begins with a copy of the data of one
//!   that has the others
//!    ^------------------------- peers ----------------------^
//! ```

mod phases;

use super::Binaries;
use super::chain::{Chain, ChainBlock};
use super::findings::Findings;
use super::link::{Link, LinkOptions};
use super::node::{
    self, GrowingChain, connect_at, fork_choice, give, new_payload, same_block, wait_until,
};
use crate::process::{ClientKind, Process, memory, new_folder};
use clap::Args;
use eyre::{Result, bail, ensure};
use phases::Phases;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct SyncOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The node that has the chain.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    source: ClientKind,
    /// The node that gets it.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    sink: ClientKind,
    /// The sink downloads the state of a late block, then the blocks below it.
    #[arg(long)]
    snap: bool,
    /// Blocks of the chain.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    blocks: usize,
    /// So many of the blocks the sink has before: with --snap it applies the access lists of the others, but for the last.
    #[arg(long, value_name = "N", default_value_t = 0)]
    have: usize,
    /// So many of the blocks come while the sink syncs, one each slot.
    #[arg(long, value_name = "N", default_value_t = 0)]
    late: usize,
    /// Folder of a source that has all blocks but the late ones: used if it exists, else made [default: in the folder of the nodes].
    #[arg(long, value_name = "DIR", requires = "late")]
    source_folder: Option<PathBuf>,
    /// Folder of the chain: read if it exists (`genesis.json`, `newpayload.json`), else written [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    chain: Option<PathBuf>,
    /// Time of a byte from one node to the other, milliseconds, with --link-mbit.
    #[arg(long, value_name = "MS", default_value_t = 25, requires = "link_mbit")]
    link_ms: u64,
    /// The nodes have a link of so many megabits a second, each way [default: no bound].
    #[arg(long, value_name = "N")]
    link_mbit: Option<u64>,
    /// Time from one slot to the next, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    slot_ms: u64,
    /// Longest allowed time of the sync, seconds.
    #[arg(long, value_name = "N", default_value_t = 300)]
    timeout_s: u64,
    /// Syncs, each with a new sink.
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,
    /// The `--memory-budget` of niwaki.
    #[arg(long, value_name = "BYTES", default_value = "512M")]
    memory_budget: String,
    /// Folder for the nodes' data and logs, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One source stands for the many peers of a network: what it gives is bounded by the machine alone.
const UNBOUNDED: &[&str] = &["--p2p-serving-rate=0"];
/// Blocks that are compared at the end, beside the head.
const COMPARED: u64 = 40;

pub(crate) fn run(options: &SyncOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, temporary.path(), options.blocks)?;
    let nodes = Nodes {
        options,
        genesis: &chain.genesis,
        folder: &folder,
    };
    let (early, late) = chain.split(options.late);
    let began = Instant::now();
    let mut source = nodes.start_source(0, early, late)?;
    let mut findings = Findings::default();
    findings.count("blocks", chain.blocks.len() as u64);
    findings.count("blocks that come meanwhile", late.len() as u64);
    findings.figure("the source's import", began.elapsed().as_secs_f64(), "s");
    findings.text("source", node::version(&source.client)?);
    let (mut times, mut rates, mut histories) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..options.runs.max(1) {
        if run > 0 && !late.is_empty() {
            source = nodes.start_source(run, early, late)?;
        }
        let sink_folder = folder.join(format!("sink-{run}"));
        let sink = nodes.start(options.sink, "sink", sink_folder.clone(), options.snap)?;
        if run == 0 {
            findings.text("sink", node::version(&sink.client)?);
        }
        give(&sink.client, &early[..options.have.min(early.len())])?;
        let source_url = source.client.enode()?;
        let link = link(options, &source_url)?;
        let url = link.as_ref().map_or(&*source_url, Link::enode);
        let connected = connect_at(&sink.client, &source.client, url)?;
        let cpu = [source.cpu_time()?, sink.cpu_time()?];
        let growing = GrowingChain::new(early, late)?;
        let mut phases = match options.snap && options.sink == ClientKind::Niwaki {
            true => Some(Phases::new(&sink)?),
            false => None,
        };
        let (began, written) = (Instant::now(), sink.written_bytes()?);
        let took = sync(options, growing, &source, &sink, phases.as_mut())?;
        eprintln!("run {run}: {:.1} s", took.as_secs_f64());
        rates.push((chain.blocks.len() - options.have) as f64 / took.as_secs_f64());
        times.push(took);
        if let Some(phases) = &phases {
            phases.note(run, took, &mut findings);
        }
        if let Some(link) = &link {
            let ranges = phases.as_ref().and_then(Phases::ranges);
            note_link(run, link, began, ranges, &mut findings);
        }
        if options.snap && options.have == 0 && options.sink == ClientKind::Niwaki {
            let timeout = Duration::from_secs(options.timeout_s);
            histories.push(wait_until("the older blocks", timeout, || {
                node::has_history(&sink)
            })?);
        }
        if run == 0 {
            findings.figure("until they are peers", connected.as_secs_f64() * 1e3, "ms");
            let [of_source, of_sink] = [&source, &sink].map(Process::cpu_time);
            let cpu_s = |now: Duration, before: Duration| (now - before).as_secs_f64();
            findings.figure("CPU of the source", cpu_s(of_source?, cpu[0]), "s");
            findings.figure("CPU of the sink", cpu_s(of_sink?, cpu[1]), "s");
            let peak = memory(sink.id(), "VmHWM:")? >> 20;
            findings.count("peak memory of the sink, MiB", peak);
            let written = sink.written_bytes()? - written;
            findings.count("written by the sink, MiB", written >> 20);
            let size = size_of_folder(&sink.data_path())?;
            findings.count("size of the sink's data, MiB", size >> 20);
        }
        let same = is_same(&chain, &source, &sink)?;
        findings.claim(
            format!("run {run}: the same head, state root, {COMPARED} blocks and receipts"),
            same,
        );
        drop(sink);
        // Each of them takes gigabytes where the state is large.
        if options.folder.is_none() {
            std::fs::remove_dir_all(sink_folder)?;
            if !late.is_empty() {
                source.kill()?;
                std::fs::remove_dir_all(folder.join(format!("source-{run}")))?;
            }
        }
    }
    rates.sort_by(f64::total_cmp);
    findings.figure("blocks per second, median", rates[rates.len() / 2], "");
    findings.times("sync", times);
    if !histories.is_empty() {
        findings.times("the older blocks, after it", histories);
    }
    findings.finish("sync", options.json.as_deref())
}

/// Starts the nodes of all runs.
struct Nodes<'a> {
    options: &'a SyncOptions,
    genesis: &'a Path,
    folder: &'a Path,
}

impl Nodes<'_> {
    fn start(
        &self,
        kind: ClientKind,
        name: &'static str,
        folder: PathBuf,
        has_snap: bool,
    ) -> Result<Process> {
        let mut options = node::syncing(self.genesis, has_snap);
        options.memory_budget = &self.options.memory_budget;
        if kind == ClientKind::Niwaki {
            options.flags = UNBOUNDED;
        }
        node::start(kind, name, &self.options.binaries, &folder, options)
    }

    /// The source of a run, with the `early` blocks.
    fn start_source(
        &self,
        run: usize,
        early: &[ChainBlock],
        late: &[ChainBlock],
    ) -> Result<Process> {
        let kind = self.options.source;
        let folder = self.folder.join(format!("source-{run}"));
        if late.is_empty() {
            let source = self.start(kind, "source", folder, false)?;
            give(&source.client, early)?;
            return Ok(source);
        }
        let has_early = self.options.source_folder.clone();
        let has_early = has_early.unwrap_or_else(|| self.folder.join("early"));
        if !has_early.exists() {
            // One that was not finished has blocks that are not given again.
            let part = has_early.with_extension("part");
            if part.exists() {
                std::fs::remove_dir_all(&part)?;
            }
            let mut source = self.start(kind, "source", part.clone(), false)?;
            give(&source.client, early)?;
            source.stop()?;
            std::fs::rename(part, &has_early)?;
        }
        copy_folder(&has_early, &folder)?;
        self.start(kind, "source", folder, false)
    }
}

/// Notes how much of a link was used: while ranges came, if it is known when that was.
fn note_link(
    run: usize,
    link: &Link,
    began: Instant,
    ranges: Option<(Instant, Instant)>,
    findings: &mut Findings,
) {
    let sent = link.sent_bytes() as f64 / f64::from(1 << 20);
    findings.figure(format!("run {run}: the source has sent"), sent, "MiB");
    let what = match ranges {
        Some(_) => "of the link used while ranges came",
        None => "of the link used",
    };
    let (from, to) = ranges.unwrap_or((began, Instant::now()));
    findings.figure(format!("run {run}: {what}"), link.usage(from..to), "%");
}

/// The link to the source, if it is a slow one.
fn link(options: &SyncOptions, enode: &str) -> Result<Option<Link>> {
    let link = options.link_mbit.map(|mbit| {
        let options = LinkOptions {
            delay: Duration::from_millis(options.link_ms),
            bits_per_s: mbit * 1_000_000,
        };
        Link::start(enode, options)
    });
    link.transpose()
}

/// Sends the head each slot until the sink has it; first of all the blocks that are late, which the source gets too. Returns how long
/// that takes.
fn sync(
    options: &SyncOptions,
    mut chain: GrowingChain<'_>,
    source: &Process,
    sink: &Process,
    mut phases: Option<&mut Phases>,
) -> Result<Duration> {
    let began = Instant::now();
    let timeout = Duration::from_secs(options.timeout_s);
    loop {
        let slot = Instant::now();
        let head = chain.grow(&source.client)?;
        new_payload(&sink.client, head)?;
        let is_there = fork_choice(&sink.client, head)? == "VALID";
        if is_there && chain.is_whole() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > timeout {
            let at = sink.client.block_number()?;
            bail!(
                "the sink is at block {at} of {} after {timeout:?}; its log ends:\n{}",
                head.number,
                last_lines(&sink.log())
            );
        }
        // A sink that is at the head before its slot ends has finished then.
        while slot.elapsed() < Duration::from_millis(options.slot_ms) {
            if chain.is_whole() && sink.client.block_number()? >= head.number {
                break;
            }
            if let Some(phases) = &mut phases {
                phases.look(sink)?;
            }
            std::thread::sleep(Duration::from_millis(options.slot_ms.min(20)));
        }
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(
        status.success(),
        "can't copy {} to {}",
        from.display(),
        to.display()
    );
    Ok(())
}

fn size_of_folder(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => size_of_folder(&entry.path())?,
            // A file may go meanwhile.
            false => entry.metadata().map_or(0, |data| data.len()),
        };
    }
    Ok(bytes)
}

/// The end of a log.
pub(super) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

fn is_same(chain: &Chain, source: &Process, sink: &Process) -> Result<bool> {
    let (source, sink) = (&source.client, &sink.client);
    let head = chain.blocks.last().map_or(0, |block| block.number);
    let mut same = same_block(source, sink, "latest")? && sink.block_number()? == head;
    for step in 0..COMPARED {
        let number = 1 + step * head / COMPARED;
        same &= same_block(source, sink, &format!("{number:#x}"))?;
    }
    Ok(same)
}
