//! `peers matrix`: every client gets the chain from every client, whole or by a late state, undisturbed, restarted, and through a
//! reorganisation of the head that it syncs to.
//!
//! ```text
//! genesis ---------------- fork ------------- main head      what all sinks end with
//!                            `---- side head                 what a sink hears first, if the chain is reorganised
//! ```

use super::Binaries;
use super::chain::{Chain, ChainBlock};
use super::findings::Findings;
use super::node::{self, connect, fork_choice, give, new_payload, same_block, wait_until};
use crate::build::{self, BuildRequest};
use crate::process::{ClientKind, Process, StartOptions, new_folder};
use clap::Args;
use eyre::{Result, WrapErr, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct MatrixOptions {
    #[command(flatten)]
    binaries: Binaries,
    /// Clients, each as source and as sink.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "niwaki,geth"
    )]
    clients: Vec<ClientKind>,
    /// Blocks of the chain.
    #[arg(long, value_name = "N", default_value_t = 600)]
    blocks: usize,
    /// Blocks of the branch that a reorganisation leaves, upon the block 40 below the head.
    #[arg(long, value_name = "N", default_value_t = 30)]
    side_blocks: u64,
    /// geth speaks `snap/2` (EIP-8189) too, for a chain of Amsterdam: `--snap.v2`.
    #[arg(long)]
    snap2: bool,
    /// When a sink is restarted, or hears of the other branch, after its start, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 700)]
    disturb_ms: u64,
    /// Folder of the chain: read if it exists, else written [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    chain: Option<PathBuf>,
    /// Longest allowed time of each sync, seconds.
    #[arg(long, value_name = "N", default_value_t = 300)]
    timeout_s: u64,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How far below the head the other branch begins.
const FORK_DEPTH: usize = 40;
/// How often a sink hears of its head.
const SLOT: Duration = Duration::from_millis(200);
/// Blocks that are compared, beside the head.
const COMPARED: u64 = 40;

/// What happens to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    None,
    Restart,
    Reorg,
}

const DISTURBANCES: [Disturbance; 3] =
    [Disturbance::None, Disturbance::Restart, Disturbance::Reorg];

/// The chain and what it leaves.
struct Branches {
    genesis: PathBuf,
    main: Vec<ChainBlock>,
    /// The blocks of both, then the others of the side branch.
    side: Vec<ChainBlock>,
}

pub(crate) fn run(options: &MatrixOptions) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(None, temporary.path())?;
    let saved = options.chain.as_deref();
    let chain = Chain::read_or_build(&options.binaries, saved, &folder, options.blocks)?;
    let branches = branches(options, chain, &folder)?;
    let mut findings = Findings::default();
    let mut times = Vec::new();
    for source in &options.clients {
        for sink in &options.clients {
            for has_snap in [false, true] {
                for disturbance in DISTURBANCES {
                    let mode = if has_snap { "snap" } else { "full" };
                    let what = format!("{sink:?} from {source:?}, {mode}, {disturbance:?}");
                    let cell = Cell {
                        options,
                        branches: &branches,
                        folder: folder.join(what.replace([' ', ','], "-")),
                        kinds: [*source, *sink],
                        has_snap,
                        disturbance,
                    };
                    let synced = cell.run();
                    match &synced {
                        Ok(took) => {
                            eprintln!("{what}: {:.1} s", took.as_secs_f64());
                            times.push(*took);
                        }
                        Err(error) => eprintln!("{what}: {error:#}"),
                    }
                    findings.claim(what, synced.is_ok());
                }
            }
        }
    }
    findings.count("syncs that end with the same chain", times.len() as u64);
    findings.times("sync", times);
    findings.finish("matrix", options.json.as_deref())
}

/// Builds the other branch.
fn branches(options: &MatrixOptions, chain: Chain, folder: &Path) -> Result<Branches> {
    let Chain { genesis, blocks } = chain;
    let common = blocks.len().saturating_sub(FORK_DEPTH);
    ensure!(
        common > 0,
        "the chain has {} blocks, more than {FORK_DEPTH} are needed",
        blocks.len()
    );
    let (kind, binary) = options.binaries.builder()?;
    let start = StartOptions::genesis(&genesis);
    let builder = Process::start(kind, "builder", binary, folder.join("builder"), start)?;
    let mut side = blocks[..common].to_vec();
    give(&builder.client, &side)?;
    for _ in 0..options.side_blocks {
        let parent = &side[side.len() - 1];
        let request = BuildRequest {
            fork_choice: parent.fork_choice(),
            slot: parent.number + 1,
            builder: 1,
            is_amsterdam: parent.method == "engine_newPayloadV5",
            time: Duration::ZERO,
        };
        let (built, _) = build::build(&builder.client, &request)?;
        let block = ChainBlock::from(built);
        give(&builder.client, std::slice::from_ref(&block))?;
        side.push(block);
    }
    Ok(Branches {
        genesis,
        main: blocks,
        side,
    })
}

/// One sync.
struct Cell<'m> {
    options: &'m MatrixOptions,
    branches: &'m Branches,
    folder: PathBuf,
    /// Source and sink.
    kinds: [ClientKind; 2],
    has_snap: bool,
    disturbance: Disturbance,
}

impl Cell<'_> {
    /// Returns how long it took.
    fn run(&self) -> Result<Duration> {
        let Branches { main, side, .. } = self.branches;
        let first = match self.disturbance {
            Disturbance::Reorg => side,
            Disturbance::None | Disturbance::Restart => main,
        };
        let source = self.start(self.kinds[0], "source", false)?;
        give(&source.client, first)?;
        let mut sink = self.start(self.kinds[1], "sink", self.has_snap)?;
        connect(&sink.client, &source.client)?;
        let began = Instant::now();
        if self.disturbance != Disturbance::None {
            let until = began + Duration::from_millis(self.options.disturb_ms);
            self.follow(&sink, &first[first.len() - 1], until)?;
        }
        match self.disturbance {
            Disturbance::None => {}
            Disturbance::Restart => self.restart(&source, &mut sink)?,
            Disturbance::Reorg => give(&source.client, &main[main.len() - FORK_DEPTH..])?,
        }
        let timeout = Duration::from_secs(self.options.timeout_s);
        let is_there = self.follow(&sink, &main[main.len() - 1], began + timeout)?;
        ensure!(
            is_there,
            "the sink is at block {} after {timeout:?}",
            sink.client.block_number()?
        );
        let took = began.elapsed();
        self.check(&source, &mut sink)?;
        std::fs::remove_dir_all(&self.folder)?;
        Ok(took)
    }

    fn start(&self, kind: ClientKind, name: &'static str, has_snap: bool) -> Result<Process> {
        let mut options = node::syncing(&self.branches.genesis, has_snap);
        if let Some(p2p) = &mut options.p2p {
            p2p.has_snap2 = self.options.snap2;
        }
        let folder = self.folder.join(name);
        node::start(kind, name, &self.options.binaries, &folder, options)
    }

    /// Tells the sink its head until it has it. Returns whether it has.
    fn follow(&self, sink: &Process, head: &ChainBlock, until: Instant) -> Result<bool> {
        loop {
            new_payload(&sink.client, head)?;
            if fork_choice(&sink.client, head)? == "VALID" {
                return Ok(true);
            }
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(SLOT);
        }
    }

    /// niwaki is killed; geth is stopped, which a kill may cost its newest blocks.
    fn restart(&self, source: &Process, sink: &mut Process) -> Result<()> {
        match sink.kind {
            ClientKind::Niwaki => sink.kill()?,
            _ => sink.stop()?,
        }
        sink.restart().wrap_err_with(|| sink.log())?;
        wait_until("the sink listens", Duration::from_secs(30), || {
            Ok(sink.client.enode().is_ok())
        })?;
        connect(&sink.client, &source.client)?;
        Ok(())
    }

    /// The sink has the chain of the source, and a database without problems.
    fn check(&self, source: &Process, sink: &mut Process) -> Result<()> {
        if self.has_snap && sink.kind == ClientKind::Niwaki {
            let timeout = Duration::from_secs(self.options.timeout_s);
            wait_until("the older blocks", timeout, || node::has_history(sink))?;
        }
        let head = self.branches.main.len() as u64;
        for step in 0..=COMPARED {
            let number = (1 + step * head / COMPARED).min(head);
            let same = same_block(&source.client, &sink.client, &format!("{number:#x}"))?;
            ensure!(same, "block {number} or its receipts differ");
        }
        if sink.kind == ClientKind::Niwaki {
            sink.stop()?;
            let (is_clean, printed) = sink.check_storage()?;
            ensure!(is_clean, "storage check: {printed}");
        }
        Ok(())
    }
}
