//! `niwaki-bench side-chain`: side blocks, each on top of the one before.
//!
//! ```text
//! head 0 --- 1 --- 2 --- ...      (with --moving-head)
//!     +-- a1 -- a2 -- a3 ...      depth 1, 2, 3: view of the parent, reads, root, staging
//!     +-- b1 -- b2 -- b3 ...      (with --chains 2)
//! ```
//!
//! The times of a block's view, reads, root and staging are reported by depth.

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::harness::{JsonFile, Seed};
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure, eyre};
use niwaki_state::{BlockId, TRIE_LOGS_KEPT, WorldState};
use niwaki_storage::Batch;
use rand::rngs::SmallRng;
use serde::Serialize;
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
    /// Side chains, grown block by block in turn.
    #[arg(long, default_value_t = 1, value_parser = crate::harness::at_least_one)]
    chains: usize,
    /// Commit a block on the head for each block of the side chains.
    #[arg(long)]
    moving_head: bool,
    /// Slots that each block changes.
    #[arg(long, default_value_t = 1000)]
    changed_slots: u64,
    /// Accounts that hold these slots.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    changed_accounts: u64,
    /// Runs; each grows new side chains.
    #[arg(long, default_value_t = 5, value_parser = crate::harness::at_least_one)]
    runs: usize,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: JsonFile,
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
    /// By depth from 1 on, over runs and chains.
    depths: Vec<DepthTimes>,
}

/// Milliseconds of the blocks at one depth.
#[derive(Debug, Serialize)]
struct DepthTimes {
    view_ms: Spread,
    read_ms: Spread,
    root_ms: Spread,
    keep_ms: Spread,
    total_ms: Spread,
}

/// Milliseconds of one block: view, reads, root, staging.
type Times = [f64; 4];

/// Creates the state if it does not exist, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let block = options.block();
    options.state.check(&block)?;
    let world = options.state.open(&options.budget)?;
    let mut random = options.seed.rng();
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
        depths: times.into_iter().map(DepthTimes::of).collect(),
    };
    print(&report);
    options.json.write(&report)
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
        let (parts, total) = (parts.join(" "), depth.total_ms);
        println!(
            "{:5} {parts} {:7.2} ({})",
            at + 1,
            total.median,
            total.range(2)
        );
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

impl DepthTimes {
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
            let (block, took) = stage_block(world, options, random, *tip)?;
            *tip = block;
            times.push(took);
        }
        if options.moving_head {
            let block = options.block();
            options.state.commit_random_block(world, &block, random)?;
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

/// Stages a random side block on top of `parent`; returns the block and its times.
fn stage_block(
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

    #[test]
    fn side_chains_grow_while_the_head_stays_or_moves() {
        let folder = tempfile::tempdir().unwrap();
        for moving in [&[][..], &["--moving-head"]] {
            let words = ["--data-path", "x", "--accounts", "5", "--slots", "500"];
            let words = [&words[..], &["--blocks", "6", "--chains", "3"], moving].concat();
            let mut options: Options = crate::harness::parse(&words).unwrap();
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
