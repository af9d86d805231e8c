//! `niwaki-bench rollback` and `side-chain`: what a reorg of a large state costs.
//!
//! `rollback` commits blocks of random changes, then rolls back to the block before the first of them by trie logs,
//! timed until it is durable. Then the state root and the values of the first block's slots are checked. `side-chain`
//! stages side blocks, each on top of the one before, and reports their times by depth:
//!
//! ```text
//! head 0 --- 1 --- 2 --- ...      (with --moving-head)
//!     +-- a1 -- a2 -- a3 ...      depth 1, 2, 3: view of the parent, reads, root, staging
//!     +-- b1 -- b2 -- b3 ...      (with --chains 2)
//! ```

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::harness::{JsonFile, Seed};
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{StateDiff, StateView};
use niwaki_state::{BlockId, TRIE_LOGS_KEPT, WorldState};
use niwaki_storage::Batch;
use rand::rngs::SmallRng;
use serde::Serialize;
use std::time::Instant;

/// Options of both commands.
#[derive(Clone, Debug, clap::Args, Serialize)]
struct CommonOptions {
    #[command(flatten)]
    #[serde(flatten)]
    state: BigState,
    #[command(flatten)]
    #[serde(skip)]
    budget: Budget,
    /// Slots that each block changes.
    #[arg(long, default_value_t = 1000)]
    changed_slots: u64,
    /// Accounts that hold these slots.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    changed_accounts: u64,
    /// Runs, each with new blocks.
    #[arg(long, default_value_t = 5, value_parser = crate::harness::at_least_one)]
    runs: usize,
    #[command(flatten)]
    #[serde(skip)]
    seed: Seed,
    #[command(flatten)]
    #[serde(skip)]
    json: JsonFile,
}

/// Options of `niwaki-bench rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct RollbackOptions {
    #[command(flatten)]
    common: CommonOptions,
    /// Blocks to roll back at once.
    #[arg(long, default_value_t = TRIE_LOGS_KEPT, value_parser = clap::value_parser!(u64).range(1..=TRIE_LOGS_KEPT))]
    blocks: u64,
}

/// Options of `niwaki-bench side-chain`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("changed_accounts", |arg| arg.default_value("500")))]
pub(crate) struct SideChainOptions {
    #[command(flatten)]
    common: CommonOptions,
    /// Blocks of each side chain.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=TRIE_LOGS_KEPT))]
    blocks: u64,
    /// Side chains, grown block by block in turn.
    #[arg(long, default_value_t = 1, value_parser = crate::harness::at_least_one)]
    chains: usize,
    /// Commit a block on the head for each block of the side chains.
    #[arg(long)]
    moving_head: bool,
}

#[derive(Debug, Serialize)]
struct Report<T> {
    machine: Machine,
    #[serde(flatten)]
    options: CommonOptions,
    blocks: u64,
    #[serde(flatten)]
    results: T,
}

#[derive(Debug, Serialize)]
struct RollbackTimes {
    /// Committing the blocks of a run, with their roots, until they are on disk.
    forward_s: Spread,
    rollback_s: Spread,
}

#[derive(Debug, Serialize)]
struct SideChainTimes {
    chains: usize,
    moving_head: bool,
    /// By depth from 1 on, over runs and chains.
    depths: Vec<DepthTimes>,
}

/// Milliseconds of the side blocks at one depth.
#[derive(Debug, Serialize)]
struct DepthTimes {
    view_ms: Spread,
    read_ms: Spread,
    root_ms: Spread,
    keep_ms: Spread,
    total_ms: Spread,
}

/// Milliseconds of one side block: view, reads, root, staging.
type Times = [f64; 4];

impl CommonOptions {
    fn block(&self) -> BlockSize {
        BlockSize {
            changed_accounts: self.changed_accounts,
            changed_slots: self.changed_slots,
            hot_slots: None,
        }
    }

    /// Opens the state; creates it if it does not exist.
    fn open(&self) -> Result<WorldState> {
        self.json.check()?;
        self.state.check(&self.block())?;
        self.state.open(&self.budget)
    }

    fn commit_block(&self, world: &WorldState, random: &mut SmallRng) -> Result<StateDiff> {
        self.state.commit_random_block(world, &self.block(), random)
    }

    fn write_report(&self, blocks: u64, results: impl Serialize) -> Result<()> {
        self.json.write(&Report {
            machine: Machine::here(),
            options: self.clone(),
            blocks,
            results,
        })
    }
}

/// Runs `rollback`.
pub(crate) fn rollback(options: &RollbackOptions) -> Result<()> {
    let RollbackOptions { common, blocks } = options;
    let world = common.open()?;
    let mut random = common.seed.rng();
    let (mut forward, mut back) = (Vec::new(), Vec::new());
    for run in 0..common.runs {
        let (forward_s, back_s) = roll_back(&world, options, &mut random)?;
        eprintln!("run {run}: {forward_s:.3} s forward, {back_s:.3} s back");
        forward.push(forward_s);
        back.push(back_s);
    }
    let (forward_s, rollback_s) = (Spread::of(forward), Spread::of(back));
    let Spread { median, min, max } = rollback_s;
    println!(
        "{blocks} blocks of {} slots rolled back in {median:.3} s ({min:.3}..{max:.3}, {} runs); \
         they took {:.3} s forward",
        common.changed_slots, common.runs, forward_s.median
    );
    let results = RollbackTimes {
        forward_s,
        rollback_s,
    };
    common.write_report(*blocks, results)
}

/// Seconds to commit the blocks and to roll them back.
fn roll_back(
    world: &WorldState,
    options: &RollbackOptions,
    random: &mut SmallRng,
) -> Result<(f64, f64)> {
    let start = world.head().ok_or_else(|| eyre!("the state has no head"))?;
    let clock = Instant::now();
    let mut first: Option<StateDiff> = None;
    for _ in 0..options.blocks {
        let diff = options.common.commit_block(world, random)?;
        first.get_or_insert(diff);
    }
    world.database().sync()?;
    let forward = clock.elapsed().as_secs_f64();

    let clock = Instant::now();
    let is_moved = world.roll_to(start.block, start.root, Batch::new(), true)?;
    let back = clock.elapsed().as_secs_f64();
    ensure!(is_moved, "a trie log above {} is missing", start.block);
    ensure!(
        world.head() == Some(start),
        "the head is {:?} instead of {start:?}",
        world.head()
    );
    let view = world.view_at_head()?;
    for (address, change) in first.iter().flat_map(|diff| &diff.accounts) {
        for (slot, value) in &change.slots {
            let got = view.storage(address, slot)?;
            ensure!(
                got == value.prior,
                "slot {slot} of {address} is {got} after the rollback, it was {}",
                value.prior
            );
        }
    }
    Ok((forward, back))
}

/// Runs `side-chain`.
pub(crate) fn side_chain(options: &SideChainOptions) -> Result<()> {
    let common = &options.common;
    let world = common.open()?;
    let mut random = common.seed.rng();
    let mut times: Vec<Vec<Times>> = vec![Vec::new(); usize::try_from(options.blocks)?];
    for run in 0..common.runs {
        let clock = Instant::now();
        grow_side_chains(&world, options, &mut random, &mut times)?;
        eprintln!("run {run}: {:.3} s", clock.elapsed().as_secs_f64());
    }
    let depths: Vec<_> = times.into_iter().map(DepthTimes::of).collect();
    println!("ms of a block, median over {} runs", common.runs);
    println!("depth    view    read    root    keep   total (min..max)");
    for (depth, times) in (1..).zip(&depths) {
        let parts = [times.view_ms, times.read_ms, times.root_ms, times.keep_ms];
        let [view, read, root, keep] = parts.map(|part| part.median);
        let (total, range) = (times.total_ms.median, times.total_ms.range(2));
        println!("{depth:5} {view:7.2} {read:7.2} {root:7.2} {keep:7.2} {total:7.2} ({range})");
    }
    let results = SideChainTimes {
        chains: options.chains,
        moving_head: options.moving_head,
        depths,
    };
    common.write_report(options.blocks, results)
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

fn grow_side_chains(
    world: &WorldState,
    options: &SideChainOptions,
    random: &mut SmallRng,
    times: &mut [Vec<Times>],
) -> Result<()> {
    let mut tips = vec![big_state::head(world)?; options.chains];
    for times in times {
        for tip in &mut tips {
            let (block, took) = stage_block(world, &options.common, random, *tip)?;
            *tip = block;
            times.push(took);
        }
        if options.moving_head {
            options.common.commit_block(world, random)?;
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
    options: &CommonOptions,
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
    let computed = world.compute_root(&view, &diff)?;
    let root_ms = lap();
    let block = BlockId {
        number: parent.number + 1,
        hash: computed.root(),
    };
    let mut batch = Batch::new();
    world.stage_side_block(&view, &computed, block, parent.hash)(&mut batch);
    world.database().write(batch, false)?;
    drop((view, computed));
    Ok((block, [view_ms, read_ms, root_ms, lap()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::tests::parse;

    const SMALL: [&str; 6] = ["--data-path", "x", "--accounts", "5", "--slots", "500"];

    /// Changes the options so that a run takes milliseconds.
    fn shrink(options: &mut CommonOptions, folder: &tempfile::TempDir) {
        options.state.data_path = folder.path().to_owned();
        (options.changed_accounts, options.changed_slots) = (3, 30);
        (options.runs, options.budget) = (2, Budget::of(32 << 20));
    }

    fn head(options: &CommonOptions) -> u64 {
        let world = options.state.open(&options.budget).unwrap();
        world.head().unwrap().block.number
    }

    #[test]
    fn more_than_512_blocks_are_refused() {
        let options =
            |words: &[&str]| parse::<RollbackOptions>(&[&["--data-path", "x"][..], words].concat());
        assert_eq!(options(&[]).unwrap().blocks, TRIE_LOGS_KEPT);
        for blocks in ["0", "513"] {
            assert!(options(&["--blocks", blocks]).is_err(), "{blocks}");
        }
        assert!(options(&["--runs", "0"]).is_err());
    }

    #[test]
    fn each_command_has_its_own_default_of_changed_accounts() {
        let rollback: RollbackOptions = parse(&SMALL).unwrap();
        let side_chain: SideChainOptions = parse(&SMALL).unwrap();
        assert_eq!(rollback.common.changed_accounts, 100);
        assert_eq!(side_chain.common.changed_accounts, 500);
    }

    #[test]
    fn every_rollback_ends_at_the_block_it_started_from() {
        let folder = tempfile::tempdir().unwrap();
        let words = [&SMALL[..], &["--blocks", "9"]].concat();
        let mut options: RollbackOptions = parse(&words).unwrap();
        shrink(&mut options.common, &folder);
        rollback(&options).unwrap();
        assert_eq!(head(&options.common), 0);
    }

    #[test]
    fn side_chains_grow_while_the_head_stays_or_moves() {
        let folder = tempfile::tempdir().unwrap();
        for moving in [&[][..], &["--moving-head"]] {
            let words = [&SMALL[..], &["--blocks", "6", "--chains", "3"], moving].concat();
            let mut options: SideChainOptions = parse(&words).unwrap();
            shrink(&mut options.common, &folder);
            side_chain(&options).unwrap();
            let expected = if options.moving_head { 12 } else { 0 };
            assert_eq!(head(&options.common), expected);
        }
    }
}
