//! `niwaki-bench side-chain`: blocks beside the head, each executed upon the one before.
//!
//! Several side chains grow in turn from the block that is the head at first, and with
//! `--moving-head` the head goes on too. The time of a block is that of the view of its parent, of
//! reading what it changes, of its root and of keeping it; it is reported by depth.

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure, eyre};
use niwaki_state::{BlockId, TRIE_LOGS_KEPT, WorldState};
use niwaki_storage::Batch;
use rand::{SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Options of `niwaki-bench side-chain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// Blocks of each side chain.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=TRIE_LOGS_KEPT))]
    blocks: u64,
    /// Side chains, which grow in turn.
    #[arg(long, default_value_t = 1, value_parser = crate::at_least_one)]
    chains: usize,
    /// The head moves on by a block whenever every side chain has.
    #[arg(long)]
    moving_head: bool,
    /// Slots that each block changes.
    #[arg(long, default_value_t = 1000)]
    changed_slots: u64,
    /// Accounts that these slots are in.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    changed_accounts: u64,
    /// Runs, each with side chains of its own.
    #[arg(long, default_value_t = 5, value_parser = crate::at_least_one)]
    runs: usize,
    /// Seed of the changes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the figures here as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    accounts: u64,
    slots: u64,
    blocks: u64,
    chains: usize,
    moving_head: bool,
    changed_accounts: u64,
    changed_slots: u64,
    runs: usize,
    /// Of each depth from 1 on, over runs and chains.
    depths: Vec<Depth>,
}

/// Milliseconds of the blocks at one depth.
#[derive(Debug, Serialize)]
struct Depth {
    view_ms: Spread,
    read_ms: Spread,
    root_ms: Spread,
    keep_ms: Spread,
    total_ms: Spread,
}

/// Milliseconds of one block: view, read, root, keep.
type Times = [f64; 4];

/// Makes the state if need be, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let block = options.block();
    options.state.check(&block)?;
    let world = options.state.open(&options.budget)?;
    let mut random = SmallRng::seed_from_u64(options.seed);
    let depths = usize::try_from(options.blocks)?;
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); depths];
    for run in 0..options.runs {
        let clock = Instant::now();
        one_run(&world, options, &mut random, &mut times)?;
        eprintln!("run {run}: {:.3} s", clock.elapsed().as_secs_f64());
    }
    let report = Report {
        machine: Machine::here(),
        accounts: options.state.accounts,
        slots: options.state.slots,
        blocks: options.blocks,
        chains: options.chains,
        moving_head: options.moving_head,
        changed_accounts: options.changed_accounts,
        changed_slots: options.changed_slots,
        runs: options.runs,
        depths: times.into_iter().map(Depth::of).collect(),
    };
    print(&report);
    crate::write_json(options.json.as_deref(), &report)
}

fn print(report: &Report) {
    println!("ms of a block, median over {} runs", report.runs);
    println!("depth    view    read    root    keep   total (min..max)");
    for (at, depth) in report.depths.iter().enumerate() {
        let parts = [
            &depth.view_ms,
            &depth.read_ms,
            &depth.root_ms,
            &depth.keep_ms,
        ];
        let parts: Vec<_> = parts
            .iter()
            .map(|part| format!("{:7.2}", part.median))
            .collect();
        let Spread { median, min, max } = depth.total_ms;
        let parts = parts.join(" ");
        println!("{:5} {parts} {median:7.2} ({min:.2}..{max:.2})", at + 1);
    }
}

impl Options {
    fn block(&self) -> BlockSize {
        BlockSize {
            changed_accounts: self.changed_accounts,
            changed_slots: self.changed_slots,
            hot_slots: None,
        }
    }
}

impl Depth {
    fn of(times: Vec<Times>) -> Self {
        let part = |part: usize| Spread::of(times.iter().map(|times| times[part]));
        Self {
            view_ms: part(0),
            read_ms: part(1),
            root_ms: part(2),
            keep_ms: part(3),
            total_ms: Spread::of(times.iter().map(|times| times.iter().sum())),
        }
    }
}

fn one_run(
    world: &WorldState,
    options: &Options,
    random: &mut SmallRng,
    times: &mut [Vec<Times>],
) -> Result<()> {
    let mut tips = vec![big_state::head(world)?; options.chains];
    for times in times {
        for tip in &mut tips {
            let (block, took) = grow(world, options, random, *tip)?;
            *tip = block;
            times.push(took);
        }
        if options.moving_head {
            let view = world.view_at_head()?;
            let diff = options.state.changes(&view, &options.block(), random)?;
            big_state::commit(world, world.compute_root(&view, &diff)?)?;
        }
    }
    for tip in tips {
        ensure!(
            world.view_at(tip)?.is_some(),
            "the state of the side chain's block {tip} is not there"
        );
    }
    Ok(())
}

/// A random block upon `parent`, kept beside the head; what it took.
fn grow(
    world: &WorldState,
    options: &Options,
    random: &mut SmallRng,
    parent: BlockId,
) -> Result<(BlockId, Times)> {
    let mut clock = Instant::now();
    let mut lap = || {
        let now = Instant::now();
        let ms = (now - clock).as_secs_f64() * 1e3;
        clock = now;
        ms
    };
    let view = world.view_at(parent)?;
    let view = view.ok_or_else(|| eyre!("the state of block {parent} is out of reach"))?;
    let view_ms = lap();
    let diff = options.state.changes(&view, &options.block(), random)?;
    let read_ms = lap();
    let prepared = world.compute_root(&view, &diff)?;
    let root_ms = lap();
    let block = BlockId {
        number: parent.number + 1,
        hash: prepared.root(),
    };
    let mut batch = Batch::new();
    world.stage_side_block(&view, &prepared, block, parent.hash)(&mut batch);
    world.database().write(batch, false)?;
    drop((view, prepared));
    Ok((block, [view_ms, read_ms, root_ms, lap()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn side_chains_grow_beside_a_head_that_stands_or_moves() {
        let folder = tempfile::tempdir().unwrap();
        for moving in [&[][..], &["--moving-head"]] {
            let words = [
                "side-chain",
                "--data-path",
                "x",
                "--accounts",
                "5",
                "--slots",
                "500",
            ];
            let words = [&words[..], &["--blocks", "6", "--chains", "3"], moving].concat();
            let mut options = Line::try_parse_from(words).unwrap().options;
            options.state.data_path = folder.path().to_owned();
            (options.changed_accounts, options.changed_slots) = (3, 30);
            (options.runs, options.budget) = (2, Budget::of(32 << 20));
            run(&options).unwrap();
            let world = options.state.open(&options.budget).unwrap();
            let head = if options.moving_head { 12 } else { 0 };
            assert_eq!(world.head().unwrap().block.number, head);
        }
    }
}
