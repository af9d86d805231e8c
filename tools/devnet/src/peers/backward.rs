//! `peers backward`: a node at its genesis block gets a head some blocks ahead, and fetches what is between while its peers come and go.
//!
//! Two sources have the chain. At random moments the node leaves one of them and comes back, or one of them is killed and started again.

use super::Binaries;
use super::chain::{Chain, ChainBlock};
use super::findings::Findings;
use super::node::{self, fork_choice, give, same_block, wait_until, without_discovery};
use crate::process::{ClientKind, Process, new_folder};
use clap::Args;
use eyre::{Result, ensure, eyre};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct BackwardOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// The nodes that have the chain.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    source: ClientKind,
    /// The node that gets it.
    #[arg(long, value_name = "CLIENT", default_value = "niwaki")]
    sink: ClientKind,
    /// Blocks between the sink's head and the one that it is given.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "64,256,1024"
    )]
    gaps: Vec<usize>,
    /// Runs of each gap, each with a new sink.
    #[arg(long, value_name = "N", default_value_t = 50)]
    runs: usize,
    /// Mean time from one drop of a peer to the next, milliseconds; 0 for no drops.
    #[arg(long, value_name = "MS", default_value_t = 300)]
    drop_ms: u64,
    /// Longest allowed time of a run, seconds.
    #[arg(long, value_name = "N", default_value_t = 120)]
    timeout_s: u64,
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

/// For how long a peer that was left stays away.
const AWAY: Duration = Duration::from_millis(200);
/// How often the head is sent again.
const FORK_CHOICE_EVERY: Duration = Duration::from_millis(100);

/// What happened in all runs.
#[derive(Default)]
struct Drops {
    left: u64,
    killed: u64,
}

pub(crate) fn run(options: &BackwardOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(None, temporary.path())?;
    let most = options.gaps.iter().max().copied();
    let most = most.ok_or_else(|| eyre!("--gaps names no gap"))?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, &folder, most)?;
    ensure!(
        chain.blocks.len() >= most,
        "the chain has {} blocks",
        chain.blocks.len()
    );
    let start = |kind, name: &'static str, folder: &Path| {
        let options_of = without_discovery(&chain.genesis);
        node::start(kind, name, &options.binaries, folder, options_of)
    };
    let mut sources = Vec::new();
    for name in ["source-1", "source-2"] {
        let source = start(options.source, name, &folder.join(name))?;
        give(&source.client, &chain.blocks[..most])?;
        sources.push(source);
    }
    let mut rng = SmallRng::seed_from_u64(options.seed);
    let (mut findings, mut drops) = (Findings::default(), Drops::default());
    for &gap in options.gaps.iter().filter(|gap| **gap > 0) {
        let head = &chain.blocks[gap - 1];
        let (mut times, mut wrong) = (Vec::new(), 0_u64);
        for run in 0..options.runs {
            let data = folder.join("sink");
            let _ = std::fs::remove_dir_all(&data);
            let sink = start(options.sink, "sink", &data)?;
            let tag = format!("{:#x}", head.number);
            match catch_up(options, &sink, &mut sources, head, (&mut rng, &mut drops)) {
                Ok(took) if same_block(&sources[0].client, &sink.client, &tag)? => times.push(took),
                Ok(_) => wrong += 1,
                Err(error) => {
                    eprintln!(
                        "gap {gap}, run {run}: {error:#}\n{}",
                        super::sync::last_lines(&sink.log())
                    );
                    wrong += 1;
                }
            }
        }
        findings.claim(
            format!("gap {gap}: {} runs end at the head", options.runs),
            wrong == 0,
        );
        findings.times(&format!("gap {gap}"), times);
    }
    findings.count("peers left and found again", drops.left);
    findings.count("peers killed and started again", drops.killed);
    findings.finish("backward", options.json.as_deref())
}

/// Sends the head until the sink has it, and disturbs its peers.
fn catch_up(
    options: &BackwardOptions,
    sink: &Process,
    sources: &mut [Process],
    head: &ChainBlock,
    state: (&mut SmallRng, &mut Drops),
) -> Result<Duration> {
    let (rng, drops) = state;
    let mut enodes = Vec::new();
    for source in sources.iter() {
        enodes.push(source.client.enode()?);
        sink.client.add_peer(&source.client.enode()?)?;
    }
    let all = sources.len() as u64;
    wait_until("all sources are peers", Duration::from_secs(60), || {
        Ok(sink.client.peer_count()? >= all)
    })?;
    let began = Instant::now();
    let mut away: Option<(usize, Instant)> = None;
    let mut next_drop = began + next_wait(options.drop_ms, rng);
    loop {
        if fork_choice(&sink.client, head)? == "VALID" {
            if let Some((index, _)) = away {
                sink.client.add_peer(&enodes[index])?;
            }
            return Ok(began.elapsed());
        }
        let at = began.elapsed();
        ensure!(
            at < Duration::from_secs(options.timeout_s),
            "block {} of {} after {at:?}",
            sink.client.block_number()?,
            head.number
        );
        if let Some((index, since)) = away
            && since.elapsed() > AWAY
        {
            sink.client.add_peer(&enodes[index])?;
            away = None;
        }
        if options.drop_ms > 0 && Instant::now() > next_drop && away.is_none() {
            let index = rng.random_range(0..sources.len());
            if rng.random_ratio(1, 5) {
                sources[index].kill()?;
                sources[index].restart()?;
                drops.killed += 1;
            } else {
                sink.client.remove_peer(&enodes[index])?;
                away = Some((index, Instant::now()));
                drops.left += 1;
            }
            next_drop = Instant::now() + next_wait(options.drop_ms, rng);
        }
        std::thread::sleep(FORK_CHOICE_EVERY);
    }
}

fn next_wait(mean_ms: u64, rng: &mut SmallRng) -> Duration {
    Duration::from_millis(rng.random_range(0..=2 * mean_ms))
}
