//! Roots and rows from the last values of access lists are those of the blocks.

use super::download::rows;
use super::pivot::{access_list, amsterdam_diff};
use super::*;
use crate::LastValues;
use niwaki_primitives::{AccountChanges, BalanceChange, BlockAccessIndex, NonceChange};

/// Commits the blocks of these lists as one.
fn commit_listed(world: &WorldState, values: LastValues, block: BlockId, root: B256) {
    let computed = world.compute_root_of_lists(values).unwrap();
    let computed = computed.expect("no account with storage is deleted");
    assert_eq!(computed.root(), root);
    world.commit_batch(computed, block, Batch::new()).unwrap();
}

#[test]
fn lists_lead_to_the_rows_of_their_blocks() {
    for seed in 0..24 {
        let mut rng = StdRng::seed_from_u64(1_300 + seed);
        let options = match seed % 2 {
            0 => StateOptions::default(),
            _ => small_cache(),
        };
        let (by_blocks, mut state) = world(&mut rng, &options);
        let by_lists = WorldState::open(Database::in_memory().unwrap(), &options).unwrap();
        genesis(&by_lists, &state);
        for _ in 0..6 {
            let mut values = LastValues::default();
            for _ in 0..rng.random_range(1..8) {
                let diff = amsterdam_diff(&mut rng, &state);
                values.add(&access_list(&mut rng, &diff, &state));
                commit(&by_blocks, &mut state, &diff, 0);
            }
            let head = by_blocks.head().unwrap();
            commit_listed(&by_lists, values, head.block, head.root);
            assert!(rows(&by_lists) == rows(&by_blocks), "seed {seed}");
            assert_clean(&by_lists);
            // A block on top of it, whose values and nodes are read through the caches.
            let diff = amsterdam_diff(&mut rng, &state);
            commit(&by_lists, &mut state.clone(), &diff, 0);
            commit(&by_blocks, &mut state, &diff, 0);
        }
    }
}

#[test]
fn no_values_lead_to_the_root_that_is_there() {
    let mut rng = StdRng::seed_from_u64(1_400);
    let (world, _) = world(&mut rng, &StateOptions::default());
    let root = world.head().unwrap().root;
    assert!(LastValues::default().is_empty());
    commit_listed(&world, LastValues::default(), block(1, 0), root);
}

#[test]
fn values_that_delete_an_account_with_storage_lead_nowhere() {
    for has_storage in [false, true] {
        let mut state = MemoryState::default();
        let mut account = MemoryAccount {
            nonce: 1,
            ..MemoryAccount::default()
        };
        account
            .storage
            .extend(has_storage.then_some((U256::ONE, U256::ONE)));
        state.insert(address(1), account);
        let world =
            WorldState::open(Database::in_memory().unwrap(), &StateOptions::default()).unwrap();
        genesis(&world, &state);
        let mut changes = AccountChanges::new(address(1));
        let index = BlockAccessIndex(1);
        changes.nonce_changes.push(NonceChange::new(index, 0));
        changes
            .balance_changes
            .push(BalanceChange::new(index, U256::ZERO));
        let mut values = LastValues::default();
        values.add(&vec![changes]);
        assert_eq!(values.len(), 1);
        let root = world.compute_root_of_lists(values).unwrap();
        assert_eq!(root.is_none(), has_storage);
        assert!(root.is_none_or(|root| root.root() == oracle_root(&MemoryState::default())));
    }
}
