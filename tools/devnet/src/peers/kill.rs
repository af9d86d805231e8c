//! `peers kill`: the syncing node gets SIGKILL at random moments, or loses its power, or finds its disk full. After each, its database
//! must be without problems, and it goes on from about where it was.
//!
//! | file | what it is |
//! |---|---|
//! | `counts` | what was counted, and which state is to be hit next |
//! | `exported` | exported states, compared |
//! | `disk` | a disk that loses what is not synced, or is full |

mod counts;
mod disk;
mod exported;

use super::Binaries;
use super::chain::Chain;
use super::findings::Findings;
use super::link::{Link, LinkOptions};
use super::node::{self, GrowingChain, fork_choice, give, new_payload, same_block, wait_until};
use super::sync::last_lines;
use crate::process::{ClientKind, Process, new_folder};
use clap::{Args, ValueEnum};
use counts::Counts;
use disk::Disk;
use exported::have_same_rows;
use eyre::{Result, WrapErr, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct KillOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The node that has the chain; the one that is killed is niwaki.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    source: ClientKind,
    /// The killed node downloads the state of a late block, then the blocks below it.
    #[arg(long)]
    snap: bool,
    /// What happens to the node.
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    by: Strike,
    /// Kills.
    #[arg(long, value_name = "N", default_value_t = 200)]
    runs: usize,
    /// So many kills hit each state of a sync, at least.
    #[arg(long, value_name = "N", default_value_t = 0)]
    each: u64,
    /// Blocks of the chain.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    blocks: usize,
    /// So many of the blocks come while the node syncs.
    #[arg(long, value_name = "N", default_value_t = 0)]
    late: usize,
    /// Longest time from a start to the kill, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 4_000)]
    within_ms: u64,
    /// So many of the blocks the node has before: with --snap it applies the access lists of the others, but for the last.
    #[arg(long, value_name = "N", default_value_t = 0)]
    have: usize,
    /// Folder of the chain: read if it exists, else written [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    chain: Option<PathBuf>,
    /// Seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What happens to a syncing node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Strike {
    /// It gets SIGKILL.
    Kill,
    /// It gets SIGKILL, and what was not synced to its disk is gone. Needs root and ext4.
    PowerCut,
    /// Its disk is full until it has said so; then it gets SIGKILL. Needs root and ext4.
    FullDisk,
}

/// How long a sync may take that is not disturbed.
const TIMEOUT: Duration = Duration::from_secs(300);
/// How long a node may take to say that its disk is full: what it waits for it says each minute.
const FULL_WITHIN: Duration = Duration::from_secs(90);
/// Most bytes that may come, in percent of those of a sync that is not disturbed.
const MOST_BYTES_PERCENT: u64 = 150;

/// What all syncs share.
struct Scenario<'s> {
    options: &'s KillOptions,
    chain: &'s Chain,
    folder: PathBuf,
    rng: SmallRng,
    counts: Counts,
}

/// The node that syncs.
struct Sink {
    process: Process,
    disk: Option<Disk>,
}

pub(crate) fn run(options: &KillOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(None, temporary.path())?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, &folder, options.blocks)?;
    let mut scenario = Scenario {
        options,
        chain: &chain,
        folder,
        rng: SmallRng::seed_from_u64(options.seed),
        counts: Counts::new(options, &chain),
    };
    let mut source = None;
    for run in 0.. {
        // The first sync is not disturbed.
        let is_disturbed = run > 0;
        if is_disturbed && scenario.counts.is_enough(options) {
            break;
        }
        let own = match source.take() {
            Some(source) if options.late == 0 => source,
            old => {
                drop(old);
                scenario.start_source(run)?
            }
        };
        scenario.sync(run, source.insert(own), is_disturbed)?;
    }
    let mut findings = Findings::default();
    scenario.counts.report(options, &mut findings);
    findings.finish("kill", options.json.as_deref())
}

impl Scenario<'_> {
    fn start(
        &self,
        kind: ClientKind,
        name: &'static str,
        folder: &Path,
        snap: bool,
    ) -> Result<Process> {
        let options = node::syncing(&self.chain.genesis, snap);
        node::start(kind, name, &self.options.binaries, folder, options)
    }

    /// Starts a node that has the blocks that are not late.
    fn start_source(&self, run: usize) -> Result<Process> {
        let folder = self.folder.join("source");
        if run > 0 {
            std::fs::remove_dir_all(&folder)?;
        }
        let source = self.start(self.options.source, "source", &folder, false)?;
        let (early, _) = self.chain.split(self.options.late);
        give(&source.client, early)?;
        Ok(source)
    }

    fn start_sink(&self, folder: &Path) -> Result<Sink> {
        let disk = match self.options.by {
            Strike::Kill => None,
            Strike::PowerCut | Strike::FullDisk => Some(Disk::create(folder)?),
        };
        let process = self.start(ClientKind::Niwaki, "sink", folder, self.options.snap)?;
        let (early, _) = self.chain.split(self.options.late);
        give(
            &process.client,
            &early[..self.options.have.min(early.len())],
        )?;
        Ok(Sink { process, disk })
    }

    /// One sync from the genesis block to the head, with kills if it is to be disturbed.
    fn sync(&mut self, run: usize, source: &Process, is_disturbed: bool) -> Result<()> {
        let folder = self.folder.join(format!("sink-{run}"));
        let mut sink = self.start_sink(&folder)?;
        let (early, late) = self.chain.split(self.options.late);
        let mut chain = GrowingChain::new(early, late)?;
        // It counts what the source sends.
        let link = Link::start(&source.client.enode()?, LinkOptions::FAST)?;
        let began = Instant::now();
        while is_disturbed && !self.counts.is_enough(self.options) {
            sink.process.client.add_peer(link.enode())?;
            let within = self.options.within_ms.max(21);
            let wait = Duration::from_millis(self.rng.random_range(20..=within));
            let aim = self.counts.aim(self.options.each);
            let (has_all, last) = self.follow(source, &sink.process, &mut chain, wait, aim)?;
            if has_all {
                break;
            }
            if self.options.by == Strike::FullDisk {
                self.fill_disk(source, &sink, &mut chain)?;
            }
            self.strike(&mut sink, last)?;
            ensure!(
                began.elapsed() < TIMEOUT,
                "block {last} after {:?}",
                began.elapsed()
            );
        }
        sink.process.client.add_peer(link.enode())?;
        let (has_all, last) = self.follow(source, &sink.process, &mut chain, TIMEOUT, None)?;
        let log = || last_lines(&sink.process.log());
        ensure!(has_all, "block {last} after {TIMEOUT:?}:\n{}", log());
        let mut is_same = true;
        for block in ["0x1", "0x80", "latest"] {
            is_same &= same_block(&source.client, &sink.process.client, block)?;
        }
        self.counts
            .sync_ends(is_disturbed, is_same, link.sent_bytes());
        // Killed, it would come back some blocks below: the last ones are written in the background.
        sink.process.stop()?;
        self.counts.check(&sink.process)?;
        self.compare_state(&sink.process)?;
        drop(sink);
        std::fs::remove_dir_all(folder)?;
        Ok(())
    }

    /// Sends the head for some time, as the chain grows, and then until the sync is in the state that is aimed at. Returns whether the
    /// node has all blocks, and its block number then.
    fn follow(
        &self,
        source: &Process,
        sink: &Process,
        chain: &mut GrowingChain<'_>,
        time: Duration,
        aim: Option<&str>,
    ) -> Result<(bool, u64)> {
        let began = Instant::now();
        loop {
            let head = chain.grow(&source.client)?;
            new_payload(&sink.client, head)?;
            let is_at_head = fork_choice(&sink.client, head)? == "VALID" && chain.is_whole();
            let has_all = is_at_head && (!self.options.snap || node::has_history(sink)?);
            let is_hit = match aim {
                Some(aim) => state(sink)? == aim,
                None => began.elapsed() > time,
            };
            if has_all || is_hit || began.elapsed() > TIMEOUT {
                return Ok((has_all, sink.client.block_number()?));
            }
            let pause_ms = if aim.is_some() { 1 } else { 10 };
            std::thread::sleep(Duration::from_millis(pause_ms));
        }
    }

    /// Fills the disk but for a little, and has the sync go on until the node says that it is full, or has all blocks.
    fn fill_disk(
        &mut self,
        source: &Process,
        sink: &Sink,
        chain: &mut GrowingChain<'_>,
    ) -> Result<()> {
        let Some(disk) = &sink.disk else {
            return Ok(());
        };
        let sink = &sink.process;
        // The log goes on over restarts.
        let before = sink.log().len();
        let log = || sink.log().split_off(before);
        disk.fill(self.rng.random_range(0..4))?;
        let began = Instant::now();
        let mut has_all = false;
        while !says_it_is_full(&log()) && !has_all && began.elapsed() < FULL_WITHIN {
            let head = chain.grow(&source.client)?;
            // It may fail from now on.
            let _ = new_payload(&sink.client, head);
            let is_valid = fork_choice(&sink.client, head).is_ok_and(|status| status == "VALID");
            has_all = is_valid && chain.is_whole() && node::has_history(sink).unwrap_or(false);
            std::thread::sleep(Duration::from_millis(50));
        }
        let words = says_it_is_full(&log());
        self.counts.not_full += u64::from(!words && has_all);
        let is_clear = (words || has_all) && !log().contains("panicked");
        self.counts.without_words += u64::from(!is_clear);
        Ok(())
    }

    /// Kills the node at block `last`, checks its database and starts it again.
    fn strike(&mut self, sink: &mut Sink, last: u64) -> Result<()> {
        let state = state(&sink.process)?;
        sink.process.kill()?;
        match (self.options.by, &sink.disk) {
            (Strike::PowerCut, Some(disk)) => disk.cut_power()?,
            (Strike::FullDisk, Some(disk)) => disk.free()?,
            _ => {}
        }
        self.counts.kill(&state);
        eprintln!("kill {} at block {last}: {state}", self.counts.kills);
        self.counts.check(&sink.process)?;
        let sink = &mut sink.process;
        sink.restart().wrap_err_with(|| sink.log())?;
        wait_until("the node listens", Duration::from_secs(20), || {
            Ok(sink.client.enode().is_ok())
        })?;
        let gone = last.saturating_sub(sink.client.block_number()?);
        self.counts.gone.push(gone);
        Ok(())
    }

    /// Compares the state, all of it, with that of the sync that was not disturbed.
    fn compare_state(&mut self, sink: &Process) -> Result<()> {
        let undisturbed = self.folder.join("undisturbed.state");
        let own = match undisturbed.exists() {
            true => self.folder.join("own.state"),
            false => undisturbed.clone(),
        };
        let output = sink.storage("export").arg("--to").arg(&own).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the state: {errors}");
        if own != undisturbed {
            let is_same = have_same_rows(&own, &undisturbed)?;
            self.counts.other_states += u64::from(!is_same);
            std::fs::remove_file(own)?;
        }
        Ok(())
    }
}

/// Whether a log says that a write failed for want of space, or that there is too little to begin.
fn says_it_is_full(log: &str) -> bool {
    log.contains("No space left") || log.contains("GiB are free")
}

/// What a sync is doing: `history` where only older blocks are missing.
fn state(sink: &Process) -> Result<String> {
    let status = sink.client.call("niwaki_syncStatus", json!([]))?;
    let state = match status["state"].as_str() {
        Some("idle") if status["historyComplete"] == false => "history",
        state => state.unwrap_or("unknown"),
    };
    Ok(state.to_owned())
}
