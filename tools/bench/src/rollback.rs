//! `niwaki-bench rollback`: a large state moved back by many blocks at once.
//!
//! Commits blocks of random changes, then moves to the block before the first of them by trie logs.
//! The time is that of the move, durable; the state root that is reached and the values of the first
//! block's slots are compared with those before.

use crate::big_state::{self, BigState, BlockSize, Budget};
use crate::machine::Machine;
use crate::stats::Spread;
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{StateDiff, StateView};
use niwaki_state::{TRIE_LOGS_KEPT, WorldState};
use niwaki_storage::Batch;
use rand::{SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Options of `niwaki-bench rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    state: BigState,
    #[command(flatten)]
    budget: Budget,
    /// Blocks that are rolled back at once.
    #[arg(long, default_value_t = TRIE_LOGS_KEPT, value_parser = clap::value_parser!(u64).range(1..=TRIE_LOGS_KEPT))]
    blocks: u64,
    /// Slots that each block changes.
    #[arg(long, default_value_t = 1000)]
    changed_slots: u64,
    /// Accounts that these slots are in.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    changed_accounts: u64,
    /// Runs: blocks committed, then rolled back.
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
    changed_accounts: u64,
    changed_slots: u64,
    runs: usize,
    /// All blocks of a run, with their roots, until they are on the disk.
    forward_s: Spread,
    rollback_s: Spread,
}

/// Makes the state if need be, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    let block = BlockSize {
        changed_accounts: options.changed_accounts,
        changed_slots: options.changed_slots,
        hot_slots: None,
    };
    options.state.check(&block)?;
    let world = options.state.open(&options.budget)?;
    let mut random = SmallRng::seed_from_u64(options.seed);
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
    crate::write_json(options.json.as_deref(), &report)
}

/// Seconds forward and back.
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
        let view = world.view_at_head()?;
        let diff = options.state.changes(&view, block, random)?;
        let prepared = world.compute_root(&view, &diff)?;
        drop(view);
        big_state::commit(world, prepared)?;
        first.get_or_insert(diff);
    }
    world.database().sync()?;
    let forward = clock.elapsed().as_secs_f64();

    let clock = Instant::now();
    let is_moved = world.roll_to(start.block, start.root, Batch::new(), true)?;
    let back = clock.elapsed().as_secs_f64();
    ensure!(is_moved, "a trie log on the way to {} is gone", start.block);
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
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        let words = [&["rollback", "--data-path", "x"][..], words].concat();
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn more_blocks_than_trie_logs_are_kept_are_refused() {
        assert_eq!(parse(&[]).unwrap().blocks, TRIE_LOGS_KEPT);
        for blocks in ["0", "513"] {
            assert!(parse(&["--blocks", blocks]).is_err(), "{blocks}");
        }
        assert!(parse(&["--runs", "0"]).is_err());
    }

    #[test]
    fn every_run_ends_where_it_began() {
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
