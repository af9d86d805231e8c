//! A large synthetic state and random blocks on top of it, shared by the benchmarks of the state.
//!
//! Account `n` has the address `n + 0x1000`, nonce 1, a balance of `n` wei and the slots 0, 1, 2, ... with the values
//! 1, 2, 3, ...; all accounts have the same number of slots. The hash of a block is its state root.

use eyre::{Result, bail, ensure, eyre};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Fault, SlotDiff, StateDiff, StateView, U256,
};
use niwaki_state::{BlockId, ComputedRoot, StateOptions, WorldState};
use niwaki_storage::{Batch, Database, Options as StorageOptions};
use rand::{Rng, rngs::SmallRng};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

/// Folder and size of the state.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct BigState {
    /// Folder of the state; created with --accounts and --slots if it is empty, and kept.
    #[arg(long)]
    #[serde(skip)]
    pub(crate) data_path: PathBuf,
    /// Accounts with storage.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) accounts: u64,
    /// Total slots of all accounts.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..1 << 32))]
    pub(crate) slots: u64,
}

/// Memory and threads of the state.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Budget {
    /// Threads that compute a state root; 0 for all.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Bytes of the state's caches.
    #[arg(long, default_value_t = 4 << 30)]
    pub(crate) cache_bytes: usize,
    /// Bytes of the storage engine's caches and buffers.
    #[arg(long, default_value_t = StorageOptions::default().memory_budget_bytes)]
    pub(crate) storage_bytes: usize,
}

impl Budget {
    /// Shares `bytes` as the node does: 45 % for the state, 35 % for the storage engine.
    pub(crate) fn of(bytes: usize) -> Self {
        Self {
            threads: 0,
            cache_bytes: bytes / 100 * 45,
            storage_bytes: bytes / 100 * 35,
        }
    }

    /// Threads that compute a state root.
    pub(crate) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }
}

/// The size of a random block.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct BlockSize {
    /// Accounts that a block changes.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) changed_accounts: u64,
    /// Slots that a block changes, the same number in each of these accounts.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) changed_slots: u64,
    /// Draw the slots from the first N of each account only, so that rounds hit the same slots again and find
    /// everything cached [default: all].
    #[arg(long)]
    pub(crate) hot_slots: Option<u64>,
}

/// The address of account `n`.
pub(crate) fn address(n: u64) -> Address {
    Address::left_padding_from(&(n + 0x1000).to_be_bytes())
}

impl BigState {
    /// Slots of each account.
    pub(crate) fn slots_each(&self) -> u64 {
        self.slots / self.accounts
    }

    /// Slots of each account that blocks draw from.
    fn drawn_slots(&self, block: &BlockSize) -> u64 {
        block.hot_slots.unwrap_or(self.slots_each())
    }

    /// Refuses sizes that can't be created, or changed by such blocks.
    pub(crate) fn check(&self, block: &BlockSize) -> Result<()> {
        ensure!(
            self.slots >= self.accounts,
            "--slots {} are not one for each of --accounts {}; give more slots or fewer accounts",
            self.slots,
            self.accounts
        );
        ensure!(
            block.changed_accounts <= self.accounts,
            "--changed-accounts {} must be at most --accounts {}",
            block.changed_accounts,
            self.accounts
        );
        let drawn = self.drawn_slots(block);
        ensure!(
            drawn <= self.slots_each(),
            "--hot-slots {drawn} are more than each account has, {}",
            self.slots_each()
        );
        let most = drawn.saturating_mul(block.changed_accounts);
        ensure!(
            (block.changed_accounts..=most).contains(&block.changed_slots),
            "--changed-slots {} must be {} to {most}, as many as there are to draw from",
            block.changed_slots,
            block.changed_accounts
        );
        Ok(())
    }

    /// Opens the state; creates it first if the folder is empty.
    pub(crate) fn open(&self, budget: &Budget) -> Result<WorldState> {
        let world = self.open_unread(budget)?;
        if world.head().is_none() {
            self.create(&world)?;
        }
        self.check_size(&world)?;
        Ok(world)
    }

    /// Opens the state as it is; reads only its head.
    pub(crate) fn open_unread(&self, budget: &Budget) -> Result<WorldState> {
        let storage = StorageOptions {
            memory_budget_bytes: budget.storage_bytes,
            ..StorageOptions::default()
        };
        let state = StateOptions {
            cache_bytes: budget.cache_bytes,
            threads: budget.threads(),
            ..StateOptions::default()
        };
        let database = Database::open(&self.data_path, &storage)?;
        Ok(WorldState::open(database, &state)?)
    }

    fn create(&self, world: &WorldState) -> Result<()> {
        let Self {
            accounts, slots, ..
        } = self;
        eprintln!("making a state of {slots} slots in {accounts} accounts");
        let began = Instant::now();
        let mut load = world.begin_genesis()?;
        for n in 0..self.accounts {
            let address = address(n);
            for slot in 0..self.slots_each() {
                load.add_slot(&address, &U256::from(slot), &U256::from(slot + 1))?;
            }
            load.add_account(&address, 1, U256::from(n), &[])?;
        }
        let root = load.finish(&mut |_, _| true)?;
        let genesis = BlockId {
            number: 0,
            hash: B256::ZERO,
        };
        world.finish_genesis(genesis, root, Batch::new())?;
        eprintln!("made in {:.1} s", began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Refuses a state of another size than requested.
    fn check_size(&self, world: &WorldState) -> Result<()> {
        let view = world.view_at_head()?;
        let is_there = |n: u64| Ok::<_, Fault>(view.account(&address(n))?.is_some());
        let has = |slot: u64| {
            let value = view.storage(&address(0), &U256::from(slot))?;
            Ok::<_, Fault>(!value.is_zero())
        };
        let slots = self.slots_each();
        let has_size = is_there(self.accounts - 1)?
            && !is_there(self.accounts)?
            && has(slots - 1)?
            && !has(slots)?;
        if !has_size {
            let path = self.data_path.display();
            bail!(
                "{path} has a state of another size than --accounts {} and --slots {}; give the \
                 numbers it was made with, or an empty folder",
                self.accounts,
                self.slots
            );
        }
        Ok(())
    }

    /// New values for random slots of random accounts, on top of `view`.
    pub(crate) fn changes(
        &self,
        view: &dyn StateView,
        block: &BlockSize,
        random: &mut SmallRng,
    ) -> Result<StateDiff, Fault> {
        let mut accounts = BTreeSet::new();
        while (accounts.len() as u64) < block.changed_accounts {
            accounts.insert(random.random_range(0..self.accounts));
        }
        let each = block.changed_slots / block.changed_accounts;
        let mut diff = StateDiff::default();
        for account in accounts {
            let address = address(account);
            let mut slots: BTreeMap<U256, SlotDiff> = BTreeMap::new();
            while (slots.len() as u64) < each {
                let slot = U256::from(random.random_range(0..self.drawn_slots(block)));
                let prior = view.storage(&address, &slot)?;
                let new = prior.wrapping_add(U256::from(1)) | U256::from(1) << 64;
                slots.insert(slot, SlotDiff { prior, new });
            }
            let prior: Account = view.account(&address)?.unwrap_or_default();
            let mut new = prior;
            new.nonce += 1;
            let change = AccountDiff {
                prior: Some(prior),
                new: Some(new),
                storage_wiped: false,
                slots: slots.into_iter().collect(),
            };
            diff.accounts.push((address, change));
        }
        Ok(diff)
    }

    /// Commits a random block on top of the head; returns its changes.
    pub(crate) fn commit_random_block(
        &self,
        world: &WorldState,
        block: &BlockSize,
        random: &mut SmallRng,
    ) -> Result<StateDiff> {
        let view = world.view_at_head()?;
        let diff = self.changes(&view, block, random)?;
        let root = world.compute_root(&view, &diff)?;
        drop(view);
        commit(world, root)?;
        Ok(diff)
    }
}

/// Commits the block with this computed root as the new head; returns the block.
pub(crate) fn commit(world: &WorldState, root: ComputedRoot) -> Result<BlockId> {
    let parent = head(world)?;
    let block = BlockId {
        number: parent.number + 1,
        hash: root.root(),
    };
    world.commit(root, block, parent.hash, Batch::new(), false)?;
    Ok(block)
}

/// The head of `world`.
pub(crate) fn head(world: &WorldState) -> Result<BlockId> {
    let head = world.head().ok_or_else(|| eyre!("the state has no head"))?;
    Ok(head.block)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::SeedableRng;

    /// A state of `accounts` and `slots` in `folder`.
    pub(crate) fn small(folder: &std::path::Path, accounts: u64, slots: u64) -> BigState {
        BigState {
            data_path: folder.to_owned(),
            accounts,
            slots,
        }
    }

    const BLOCK: BlockSize = BlockSize {
        changed_accounts: 3,
        changed_slots: 12,
        hot_slots: None,
    };

    #[test]
    fn a_created_state_is_opened_again_and_another_size_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = small(folder.path(), 5, 500);
        let budget = Budget::of(32 << 20);
        let root = state.open(&budget).unwrap().head().unwrap().root;
        assert_eq!(state.open(&budget).unwrap().head().unwrap().root, root);
        for other in [
            small(folder.path(), 4, 400),
            small(folder.path(), 6, 600),
            small(folder.path(), 5, 505),
            small(folder.path(), 5, 495),
        ] {
            let error = other.open(&budget).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("another size"), "{error}");
        }
    }

    #[test]
    fn a_block_changes_3_accounts_and_12_slots() {
        let folder = tempfile::tempdir().unwrap();
        let state = small(folder.path(), 5, 500);
        let world = state.open(&Budget::of(32 << 20)).unwrap();
        let mut random = SmallRng::seed_from_u64(1);
        let view = world.view_at_head().unwrap();
        let diff = state.changes(&view, &BLOCK, &mut random).unwrap();
        assert_eq!(diff.accounts.len(), 3);
        assert!(diff.accounts.iter().all(|(_, change)| {
            change.slots.len() == 4 && change.slots.iter().all(|(_, slot)| slot.prior != slot.new)
        }));
    }

    #[test]
    fn only_hot_slots_are_drawn_if_limited() {
        let folder = tempfile::tempdir().unwrap();
        let state = small(folder.path(), 5, 500);
        let world = state.open(&Budget::of(32 << 20)).unwrap();
        let view = world.view_at_head().unwrap();
        let block = BlockSize {
            hot_slots: Some(6),
            ..BLOCK
        };
        let mut random = SmallRng::seed_from_u64(1);
        let diff = state.changes(&view, &block, &mut random).unwrap();
        let mut slots = diff.accounts.iter().flat_map(|(_, change)| &change.slots);
        assert!(slots.all(|(slot, _)| *slot < U256::from(6)), "{diff:?}");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let path = std::path::Path::new("unused");
        assert!(small(path, 5, 500).check(&BLOCK).is_ok());
        for (state, block) in [
            (small(path, 5, 4), BLOCK),
            (small(path, 2, 500), BLOCK),
            (small(path, 5, 10), BLOCK),
            (
                small(path, 5, 500),
                BlockSize {
                    hot_slots: Some(3),
                    ..BLOCK
                },
            ),
            (
                small(path, 5, 500),
                BlockSize {
                    hot_slots: Some(101),
                    ..BLOCK
                },
            ),
            (
                small(path, 5, 500),
                BlockSize {
                    changed_slots: 2,
                    ..BLOCK
                },
            ),
        ] {
            assert!(state.check(&block).is_err(), "{state:?} {block:?}");
        }
    }
}
