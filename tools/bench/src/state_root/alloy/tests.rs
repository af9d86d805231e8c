//! alloy-trie and our state, changed by the same blocks.

use super::*;
use crate::big_state::{self, BigState, BlockSize, Budget, tests::small};
use niwaki_primitives::{Account, SlotDiff, StateView};
use niwaki_state::WorldState;
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// Commits `diff`; returns the root.
fn ours(world: &WorldState, diff: &StateDiff) -> B256 {
    let view = world.view_at_head().unwrap();
    let prepared = world.compute_root(&view, diff).unwrap();
    drop(view);
    big_state::commit(world, prepared).unwrap();
    world.head().unwrap().root
}

#[test]
fn roots_are_equal_after_each_of_10_blocks() {
    for (seed, accounts, slots) in [(1, 1, 3), (2, 3, 50), (3, 40, 8_000)] {
        let folder = tempfile::tempdir().unwrap();
        let state = small(folder.path(), accounts, slots);
        let world = state.open(&Budget::of(32 << 20)).unwrap();
        let head = world.head().unwrap();
        let mut alloy = AlloyState::load(world.database(), head.root, 2).unwrap();
        let block = BlockSize {
            changed_accounts: accounts.div_ceil(2),
            changed_slots: slots / 4 + 1,
            hot_slots: None,
        };
        let mut random = SmallRng::seed_from_u64(seed);
        for round in 0..10 {
            let view = world.view_at_head().unwrap();
            let diff = state.changes(&view, &block, &mut random).unwrap();
            drop(view);
            let root = alloy.apply_block(&diff).root;
            assert_eq!(ours(&world, &diff), root, "seed {seed}, round {round}");
        }
    }
}

/// Sets half of the drawn slots to zero, so that branches and extensions appear and disappear.
fn churn(state: &BigState, view: &dyn StateView, random: &mut SmallRng) -> StateDiff {
    let mut diff = StateDiff::default();
    for n in 0..state.accounts + 2 {
        let address = big_state::address(n);
        let prior: Option<Account> = view.account(&address).unwrap();
        let mut new = prior.unwrap_or_default();
        new.nonce += 1;
        let mut slots = BTreeMap::new();
        for _ in 0..random.random_range(0..40) {
            let slot = U256::from(random.random_range(0..2 * state.slots_each()));
            let prior = view.storage(&address, &slot).unwrap();
            let value = random.random::<u64>() >> random.random_range(0..64);
            let is_set = random.random();
            let new = if is_set {
                U256::from(value)
            } else {
                U256::ZERO
            };
            if prior != new {
                slots.insert(slot, SlotDiff { prior, new });
            }
        }
        let change = AccountDiff {
            prior,
            new: Some(new),
            storage_wiped: false,
            slots: slots.into_iter().collect(),
        };
        diff.accounts.push((address, change));
    }
    diff
}

#[test]
fn roots_are_equal_while_slots_and_accounts_appear_and_disappear() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let state = small(folder.path(), 4, 4 * (1 + 20 * seed));
        let world = state.open(&Budget::of(32 << 20)).unwrap();
        let head = world.head().unwrap();
        let mut alloy = AlloyState::load(world.database(), head.root, 2).unwrap();
        let mut random = SmallRng::seed_from_u64(seed);
        for round in 0..30 {
            let view = world.view_at_head().unwrap();
            let diff = churn(&state, &view, &mut random);
            drop(view);
            let root = alloy.apply_block(&diff).root;
            assert_eq!(ours(&world, &diff), root, "seed {seed}, round {round}");
        }
        let head = world.head().unwrap();
        world.database().sync().unwrap();
        let fresh = AlloyState::load(world.database(), head.root, 2).unwrap();
        assert_eq!(alloy.accounts.branches, fresh.accounts.branches);
        for (key, trie) in &fresh.storage {
            assert_eq!(alloy.storage[key].branches, trie.branches, "{key}");
        }
    }
}

#[test]
fn the_keys_below_a_path_are_all_with_that_prefix() {
    let bounds = |nibbles: &[u8]| match keys_below(&Nibbles::from_nibbles(nibbles)) {
        (Bound::Included(first), Bound::Included(last)) => (first, last),
        _ => unreachable!("both ends belong"),
    };
    assert_eq!(bounds(&[]), (B256::ZERO, B256::repeat_byte(0xff)));
    let (first, last) = bounds(&[0xa, 0xb, 0xc]);
    assert_eq!(
        (first[..3].to_vec(), last[..3].to_vec()),
        (vec![0xab, 0xc0, 0], vec![0xab, 0xcf, 0xff])
    );
    let (first, last) = bounds(&[0xa, 0xb]);
    assert_eq!(
        (first[..2].to_vec(), last[..2].to_vec()),
        (vec![0xab, 0], vec![0xab, 0xff])
    );
}
