//! `niwaki-bench state-root`: the root and the commit of a block's changes over a large state.
//!
//! A state of accounts with storage is made once and kept; then each round changes random slots
//! of random accounts and measures the root (`prepare`) and the commit apart.

use crate::{machine::Machine, stats::Spread};
use eyre::{Result, ensure};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Fault, SlotDiff, StateDiff, StateView, U256,
};
use niwaki_state::{BlockId, GenesisAccount, StateOptions, WorldState};
use niwaki_storage::{Batch, Database, Options as StorageOptions};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

/// Options of `niwaki-bench state-root`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the state; made with --accounts and --slots if it is empty, and kept.
    #[arg(long)]
    data_path: PathBuf,
    /// Accounts with storage.
    #[arg(long, default_value_t = 1000)]
    accounts: u64,
    /// Slots of all accounts together.
    #[arg(long, default_value_t = 20_000_000)]
    slots: u64,
    /// Accounts that a round changes.
    #[arg(long, default_value_t = 1000)]
    changed_accounts: u64,
    /// Slots that a round changes.
    #[arg(long, default_value_t = 10_000)]
    changed_slots: u64,
    /// Rounds that are measured, after as many that are not.
    #[arg(long, default_value_t = 20, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Threads that compute the root; 0 for all.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Bytes of the state's caches.
    #[arg(long, default_value_t = 4 << 30)]
    cache_bytes: usize,
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
    changed_accounts: u64,
    changed_slots: u64,
    threads: usize,
    rounds: usize,
    root_ms: Spread,
    commit_ms: Spread,
}

/// Makes the state if need be, and measures.
pub(crate) fn run(options: &Options) -> Result<()> {
    crate::check_json(options.json.as_deref())?;
    ensure!(
        options.changed_accounts <= options.accounts && options.accounts > 0,
        "--changed-accounts {} must be at most --accounts {}",
        options.changed_accounts,
        options.accounts
    );
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 {
        all
    } else {
        options.threads
    };
    let database = Database::open(&options.data_path, &StorageOptions::default())?;
    let cache_bytes = options.cache_bytes;
    let world = WorldState::open(
        database,
        &StateOptions {
            cache_bytes,
            threads,
            ..StateOptions::default()
        },
    )?;
    if world.head().is_none() {
        make(&world, options)?;
    }

    let mut random = SmallRng::seed_from_u64(options.seed);
    let (mut roots, mut commits) = (Vec::new(), Vec::new());
    for round in 0..2 * options.rounds {
        let (root_ms, commit_ms) = one_round(&world, options, &mut random)?;
        if round >= options.rounds {
            roots.push(root_ms);
            commits.push(commit_ms);
        }
    }
    let report = Report {
        machine: Machine::here(),
        accounts: options.accounts,
        slots: options.slots,
        changed_accounts: options.changed_accounts,
        changed_slots: options.changed_slots,
        threads,
        rounds: options.rounds,
        root_ms: Spread::of(roots),
        commit_ms: Spread::of(commits),
    };
    for (what, Spread { median, min, max }) in
        [("root", report.root_ms), ("commit", report.commit_ms)]
    {
        println!(
            "{what:<8} {median:>9.3} ms  ({min:.3}..{max:.3}, {} rounds)",
            options.rounds
        );
    }
    crate::write_json(options.json.as_deref(), &report)
}

fn address(n: u64) -> Address {
    Address::left_padding_from(&(n + 0x1000).to_be_bytes())
}

/// The slot `n` of an account, as a mapping spreads them.
fn slot(n: u64) -> U256 {
    U256::from(n)
}

fn slots_of(options: &Options) -> u64 {
    options.slots / options.accounts
}

fn make(world: &WorldState, options: &Options) -> Result<()> {
    eprintln!(
        "making a state of {} slots in {} accounts",
        options.slots, options.accounts
    );
    let began = Instant::now();
    let count = slots_of(options);
    let accounts = (0..options.accounts).map(|n| {
        Ok::<_, Fault>(GenesisAccount {
            address: address(n),
            nonce: 1,
            balance: U256::from(n),
            storage: (0..count)
                .map(|at| (slot(at), U256::from(at + 1)))
                .collect(),
            ..GenesisAccount::default()
        })
    });
    let root = world.load_genesis(accounts)?;
    let genesis = BlockId {
        number: 0,
        hash: B256::ZERO,
    };
    world.finish_genesis(genesis, root, Batch::new())?;
    eprintln!("made in {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// The time of root and commit in ms.
fn one_round(world: &WorldState, options: &Options, random: &mut SmallRng) -> Result<(f64, f64)> {
    let view = world.view_at_head()?;
    let diff = changes(&view, options, random)?;
    let clock = Instant::now();
    let prepared = world.prepare(&view, &diff)?;
    let root = clock.elapsed();
    let parent = view.block();
    drop(view);
    let id = BlockId {
        number: parent.number + 1,
        hash: prepared.root(),
    };
    let clock = Instant::now();
    world.commit(prepared, (id, parent.hash), Batch::new(), false)?;
    let commit = clock.elapsed();
    Ok((root.as_secs_f64() * 1e3, commit.as_secs_f64() * 1e3))
}

/// New values for random slots of random accounts, each account at least one.
fn changes(view: &dyn StateView, options: &Options, random: &mut SmallRng) -> Result<StateDiff> {
    let mut accounts = BTreeSet::new();
    while (accounts.len() as u64) < options.changed_accounts {
        accounts.insert(random.random_range(0..options.accounts));
    }
    let accounts: Vec<u64> = accounts.into_iter().collect();
    let mut slots: BTreeMap<u64, BTreeMap<U256, SlotDiff>> = BTreeMap::new();
    let each = (options.changed_slots / options.changed_accounts).max(1);
    let mut diff = StateDiff::default();
    for account in accounts {
        let own = slots.entry(account).or_default();
        let address = address(account);
        while (own.len() as u64) < each.min(slots_of(options)) {
            let slot = slot(random.random_range(0..slots_of(options)));
            let prior = view.storage(&address, &slot)?;
            let new = prior.wrapping_add(U256::from(1)) | U256::from(1) << 64;
            own.insert(slot, SlotDiff { prior, new });
        }
        let prior: Account = view.account(&address)?.unwrap_or_default();
        let mut new = prior;
        new.nonce += 1;
        diff.accounts.push((
            address,
            AccountDiff {
                prior: Some(prior),
                new: Some(new),
                storage_wiped: false,
                slots: own.iter().map(|(slot, diff)| (*slot, *diff)).collect(),
            },
        ));
    }
    diff.accounts.sort_by_key(|(address, _)| *address);
    Ok(diff)
}
