//! `peers kill`: the syncing node gets SIGKILL at random moments. After each, its database must be without problems, and it goes on
//! from about where it was.

use super::Binaries;
use super::chain::Chain;
use super::findings::Findings;
use super::node::{self, GrowingChain, fork_choice, give, new_payload, same_block, wait_until};
use crate::process::{ClientKind, Process, new_folder};
use clap::Args;
use eyre::{Result, WrapErr, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// Kills.
    #[arg(long, value_name = "N", default_value_t = 200)]
    runs: usize,
    /// Blocks of the chain.
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    blocks: usize,
    /// So many of the blocks come while the node syncs.
    #[arg(long, value_name = "N", default_value_t = 0)]
    late: usize,
    /// Longest time from a start to the kill, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 4_000)]
    within_ms: u64,
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

/// How long a sync may take that is not disturbed.
const TIMEOUT: Duration = Duration::from_secs(300);

/// What was counted.
#[derive(Default)]
struct Counts {
    kills: usize,
    /// Kills before the node had the head and all blocks below it.
    during_sync: u64,
    /// Kills while a state was being downloaded.
    without_state: u64,
    /// Kills by what the sync was doing.
    states: BTreeMap<String, u64>,
    syncs: u64,
    /// Blocks that were gone after a kill: they are asked for again.
    gone: Vec<u64>,
    problems: u64,
    wrong_heads: u64,
}

pub(crate) fn run(options: &KillOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(None, temporary.path())?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, &folder, options.blocks)?;
    let start = |kind, name: &'static str, folder: PathBuf, has_snap| {
        let options_of = node::syncing(&chain.genesis, has_snap);
        node::start(kind, name, &options.binaries, &folder, options_of)
    };
    let (early, late) = chain.split(options.late);
    let start_source = |folder: PathBuf| {
        let source = start(options.source, "source", folder, false)?;
        give(&source.client, early)?;
        Ok::<_, eyre::Report>(source)
    };
    let mut source = start_source(folder.join("source"))?;
    let mut rng = SmallRng::seed_from_u64(options.seed);
    let mut counts = Counts::default();
    while counts.kills < options.runs {
        let run = counts.syncs;
        if run > 0 && !late.is_empty() {
            source = start_source(folder.join(format!("source-{run}")))?;
        }
        let data = folder.join(format!("sink-{run}"));
        let mut sink = start(ClientKind::Niwaki, "sink", data.clone(), options.snap)?;
        let growing = GrowingChain::new(early, late)?;
        let state = (&mut rng, &mut counts);
        sync_and_kill(options, growing, &source, &mut sink, state)?;
        drop(sink);
        std::fs::remove_dir_all(data)?;
    }
    let mut findings = Findings::default();
    let again: u64 = counts.gone.iter().sum();
    findings.count("kills", counts.kills as u64);
    findings.count("kills before the node had all blocks", counts.during_sync);
    if options.snap {
        findings.count("kills before it had a whole state", counts.without_state);
        findings.claim(
            "some kills come before it has a whole state",
            counts.without_state > 0,
        );
    }
    for (state, kills) in counts.states {
        findings.count(format!("kills in state {state}"), kills);
    }
    findings.count("syncs to the end", counts.syncs);
    findings.count("blocks asked for again, in all", again);
    findings.count(
        "blocks asked for again, after one kill at most",
        counts.gone.iter().max().copied().unwrap_or(0),
    );
    findings.claim(
        "the database is without problems after each kill",
        counts.problems == 0,
    );
    findings.claim("each sync ends at the head", counts.wrong_heads == 0);
    findings.claim(
        "some kills come before the node has all blocks",
        counts.during_sync > 0,
    );
    findings.finish("kill", options.json.as_deref())
}

/// One sync from the genesis block to the head, with kills.
fn sync_and_kill(
    options: &KillOptions,
    mut chain: GrowingChain<'_>,
    source: &Process,
    sink: &mut Process,
    state: (&mut SmallRng, &mut Counts),
) -> Result<()> {
    let (rng, counts) = state;
    let began = Instant::now();
    loop {
        sink.client.add_peer(&source.client.enode()?)?;
        let wait = Duration::from_millis(rng.random_range(20..=options.within_ms.max(21)));
        let (has_all, last) = follow(options, source, sink, &mut chain, wait)?;
        if counts.kills >= options.runs || has_all {
            break;
        }
        let status = sink.client.call("niwaki_syncStatus", json!([]))?;
        let state = match status["state"].as_str() {
            Some("idle") if status["historyComplete"] == false => "history",
            state => state.unwrap_or("unknown"),
        };
        let state = state.to_owned();
        *counts.states.entry(state).or_default() += 1;
        sink.kill()?;
        counts.kills += 1;
        counts.during_sync += 1;
        eprintln!("kill {} at block {last}", counts.kills);
        check(sink, counts)?;
        sink.restart().wrap_err_with(|| sink.log())?;
        wait_until("the node listens", Duration::from_secs(20), || {
            Ok(sink.client.enode().is_ok())
        })?;
        counts
            .gone
            .push(last.saturating_sub(sink.client.block_number()?));
        ensure!(
            began.elapsed() < TIMEOUT,
            "block {last} after {:?}",
            began.elapsed()
        );
    }
    sink.client.add_peer(&source.client.enode()?)?;
    let (has_all, last) = follow(options, source, sink, &mut chain, TIMEOUT)?;
    ensure!(has_all, "block {last} after {TIMEOUT:?}");
    counts.syncs += 1;
    let mut is_same = true;
    for block in ["0x1", "0x80", "latest"] {
        is_same &= same_block(&source.client, &sink.client, block)?;
    }
    counts.wrong_heads += u64::from(!is_same);
    // One more kill with nothing to do.
    sink.kill()?;
    counts.kills += 1;
    check(sink, counts)
}

/// Sends the head for some time, as the chain grows. Returns whether the node has all its blocks, and its block number then.
fn follow(
    options: &KillOptions,
    source: &Process,
    sink: &Process,
    chain: &mut GrowingChain<'_>,
    time: Duration,
) -> Result<(bool, u64)> {
    let began = Instant::now();
    loop {
        let head = chain.grow(&source.client)?;
        new_payload(&sink.client, head)?;
        let is_at_head = fork_choice(&sink.client, head)? == "VALID" && chain.is_whole();
        let has_all = is_at_head && (!options.snap || node::has_history(sink)?);
        let number = sink.client.block_number()?;
        if has_all || began.elapsed() > time {
            return Ok((has_all, number));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Counts what `storage check` finds.
fn check(sink: &Process, counts: &mut Counts) -> Result<()> {
    let (is_clean, printed) = sink.check_storage()?;
    if printed.contains("is being downloaded") {
        counts.without_state += 1;
    } else if !is_clean {
        counts.problems += 1;
        eprintln!("{printed}");
    }
    Ok(())
}
