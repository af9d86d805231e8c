//! `niwaki-bench rollback`: rolls a large state back by many blocks at once.
//!
//! Commits blocks of random changes, then rolls back to the block before the first of them by trie logs. The rollback
//! is timed until it is durable. Then the state root and the values of the first block's slots are checked.

use crate::big_state::{BigState, BlockSize, Budget};
use crate::harness::{JsonFile, Seed};
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{StateDiff, StateView};
use niwaki_state::{TRIE_LOGS_KEPT, WorldState};
use niwaki_storage::Batch;
use rand::rngs::SmallRng;
use serde::Serialize;
use std::time::Instant;

/// Options of `niwaki-bench rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// Blocks to roll back at once.
    #[arg(long, default_value_t = TRIE_LOGS_KEPT, value_parser = clap::value_parser!(u64).range(1..=TRIE_LOGS_KEPT))]
    blocks: u64,
    /// Slots that each block changes.
    #[arg(long, default_value_t = 1000)]
    changed_slots: u64,
    /// Accounts that hold these slots.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    changed_accounts: u64,
    /// Runs; each commits the blocks, then rolls them back.
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
    changed_accounts: u64,
    changed_slots: u64,
    runs: usize,
    /// Committing the blocks of a run, with their roots, until they are on disk.
    forward_s: Spread,
    rollback_s: Spread,
}

/// Creates the state if it does not exist, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    options.json.check()?;
    let block = BlockSize {
        changed_accounts: options.changed_accounts,
        changed_slots: options.changed_slots,
        hot_slots: None,
    };
    options.state.check(&block)?;
    let world = options.state.open(&options.budget)?;
    let mut random = options.seed.rng();
    let (mut forward, mut back) = (Vec::new(), Vec::new());
    for run in 0..options.runs {
        let (forward_s, back_s) = one_run(&world, options, &block, &mut random)?;
        eprintln!("run {run}: {forward_s:.3} s forward, {back_s:.3} s back");
        forward.push(forward_s);
        back.push(back_s);
    }
    let report = Report {
        machine: Machine::here(),
        accounts: options.state.accounts,
        slots: options.state.slots,
        blocks: options.blocks,
        changed_accounts: options.changed_accounts,
        changed_slots: options.changed_slots,
        runs: options.runs,
        forward_s: Spread::of(forward),
        rollback_s: Spread::of(back),
    };
    let Spread { median, min, max } = report.rollback_s;
    println!(
        "{} blocks of {} slots rolled back in {median:.3} s ({min:.3}..{max:.3}, {} runs); \
         they took {:.3} s forward",
        report.blocks, report.changed_slots, report.runs, report.forward_s.median
    );
    options.json.write(&report)
}

/// Seconds to commit the blocks and to roll them back.
fn one_run(
    world: &WorldState,
    options: &Options,
    block: &BlockSize,
    random: &mut SmallRng,
) -> Result<(f64, f64)> {
    let start = world.head().ok_or_else(|| eyre!("the state has no head"))?;
    let clock = Instant::now();
    let mut first: Option<StateDiff> = None;
    for _ in 0..options.blocks {
        let diff = options.state.commit_random_block(world, block, random)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        crate::harness::parse(&[&["--data-path", "x"][..], words].concat())
    }

    #[test]
    fn more_than_512_blocks_are_refused() {
        assert_eq!(parse(&[]).unwrap().blocks, TRIE_LOGS_KEPT);
        for blocks in ["0", "513"] {
            assert!(parse(&["--blocks", blocks]).is_err(), "{blocks}");
        }
        assert!(parse(&["--runs", "0"]).is_err());
    }

    #[test]
    fn every_run_ends_at_the_block_it_started_from() {
        let folder = tempfile::tempdir().unwrap();
        let words = ["--accounts", "5", "--slots", "500", "--blocks", "9"];
        let mut options = parse(&words).unwrap();
        options.state.data_path = folder.path().to_owned();
        (options.changed_accounts, options.changed_slots) = (3, 30);
        (options.runs, options.budget) = (2, Budget::of(32 << 20));
        run(&options).unwrap();
        let world = options.state.open(&options.budget).unwrap();
        assert_eq!(world.head().unwrap().block.number, 0);
    }
}
