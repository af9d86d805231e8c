//! The trie cache moves between states, whatever root was computed before.

use super::*;
use crate::commit::hashed_diff::HashedSlotDiff;
use crate::commit::hashed_keys::HashedKeys;
use crate::commit::root::hash_diff;
use crate::tries::incremental_root::IncrementalRoot;
use crate::tries::trie_cache::MIN_ROW_BYTES;
use niwaki_primitives::Fault;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn any_of_several_computed_siblings_can_be_committed() {
    for seed in 800..806 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (world, mut state) = world(&mut rng, &small_cache());
        for number in 1..12 {
            let head = world.head().unwrap();
            let view = world.view_at_head().unwrap();
            let mut siblings = Vec::new();
            for _ in 0..rng.random_range(1..5) {
                let diff = random_diff(&mut rng, &state);
                let mut after = state.clone();
                after.apply(&diff);
                let computed = computed(&world, &view, &diff, &after);
                siblings.push((computed, after));
            }
            let chosen = rng.random_range(0..siblings.len());
            let (computed, after) = siblings.swap_remove(chosen);
            state = after;
            let (own, parent) = (block(number, 0), head.block.hash);
            world
                .commit(computed, own, parent, Batch::new(), false)
                .unwrap();
            assert_eq!(world.head().unwrap().root, oracle_root(&state));
            assert_same(&world.view_at_head().unwrap(), &state);
            assert_clean(&world);
        }
    }
}

#[test]
fn roots_without_a_commit_collect_less_than_2_mib_of_rows() {
    let mut rng = StdRng::seed_from_u64(805);
    let (world, mut state) = world(&mut rng, &small_cache());
    let (mut most, mut begun_again) = (0, 0);
    let mut last = 0;
    for _ in 0..2_000 {
        let diff = random_diff(&mut rng, &state);
        world
            .compute_root(&world.view_at_head().unwrap(), &diff)
            .unwrap();
        let bytes = world.tries().rows().bytes();
        begun_again += usize::from(bytes < last);
        (most, last) = (most.max(bytes), bytes);
    }
    assert!(
        begun_again > 0,
        "{most} bytes were too few to show anything"
    );
    assert!(most < 2 * MIN_ROW_BYTES, "{most} bytes");
    for _ in 0..3 {
        advance(&mut rng, &world, &mut state, 0);
    }
    assert_clean(&world);
}

#[test]
fn a_root_is_computed_on_a_view_3_blocks_behind_the_head() {
    let mut rng = StdRng::seed_from_u64(810);
    let (world, mut state) = world(&mut rng, &small_cache());
    let old_state = state.clone();
    let old = world.view_at_head().unwrap();
    for _ in 0..3 {
        advance(&mut rng, &world, &mut state, 0);
    }
    let diff = random_diff(&mut rng, &old_state);
    let mut after = old_state;
    after.apply(&diff);
    computed(&world, &old, &diff, &after);
    advance(&mut rng, &world, &mut state, 0);
    assert_clean(&world);
}

#[test]
fn a_corrupt_node_fails_one_root_and_not_the_next() {
    let mut rng = StdRng::seed_from_u64(820);
    let options = StateOptions {
        // Every node is evicted soon.
        cache_bytes: 0,
        ..StateOptions::default()
    };
    let (world, mut state) = world(&mut rng, &options);
    for _ in 0..5 {
        advance(&mut rng, &world, &mut state, 0);
    }
    let rows: Vec<_> = world
        .database()
        .prefix(Segment::AccountTrie, &[])
        .map(Result::unwrap)
        .collect();
    let mut damage = Batch::new();
    let mut repair = Batch::new();
    for (key, row) in rows.iter().filter(|(key, _)| !key.is_empty()) {
        damage.put(Segment::AccountTrie, key, b"damaged");
        repair.put(Segment::AccountTrie, key, row);
    }
    let reopened = WorldState::open(world.into_database(), &options).unwrap();
    reopened.database().write(damage, false).unwrap();
    let diff = random_diff(&mut rng, &state);
    {
        let view = reopened.view_at_head().unwrap();
        let fault = reopened.compute_root(&view, &diff).unwrap_err();
        assert!(matches!(fault, Fault::Corrupt { .. }), "{fault}");
    }
    reopened.database().write(repair, false).unwrap();
    for _ in 0..5 {
        advance(&mut rng, &reopened, &mut state, 0);
    }
    assert_clean(&reopened);
}

#[test]
fn tries_in_memory_stay_within_twice_their_limit() {
    let mut rng = StdRng::seed_from_u64(830);
    let options = StateOptions {
        cache_bytes: 60_000,
        ..StateOptions::default()
    };
    let (world, mut state) = world(&mut rng, &options);
    let mut most = 0;
    for _ in 0..200 {
        advance(&mut rng, &world, &mut state, 0);
        most = most.max(world.cache_stats().trie_bytes);
    }
    assert!((1..2 * 30_000).contains(&most), "{most} bytes");
    let stats = world.cache_stats();
    assert!(
        stats.trie_nodes_read > 0 && stats.reads.accounts.hits > 0,
        "{stats:?}"
    );
}

/// A diff that increments these slots of these accounts.
fn written(world: &WorldState, accounts: &[u64], slots: &[u64]) -> StateDiff {
    let view = world.view_at_head().unwrap();
    let mut diff = StateDiff::default();
    for at in accounts {
        let address = address(*at);
        let slot = |slot: &u64| {
            let slot = U256::from(*slot);
            let prior = view.storage(&address, &slot).unwrap();
            let new = prior + U256::from(1);
            (slot, SlotDiff { prior, new })
        };
        let prior = view.account(&address).unwrap();
        let new = prior.or_else(|| Some(Account::default()));
        let change = AccountDiff {
            prior,
            new,
            storage_wiped: false,
            slots: slots.iter().map(slot).collect(),
        };
        diff.accounts.push((address, change));
    }
    diff
}

#[test]
fn blocks_with_many_nodes_do_not_outrun_eviction() {
    const LIMIT_BYTES: usize = 8 << 20;
    let options = StateOptions {
        cache_bytes: 2 * LIMIT_BYTES,
        ..StateOptions::default()
    };
    let world = WorldState::open(Database::in_memory().unwrap(), &options).unwrap();
    genesis(&world, &MemoryState::default());
    let commit = |diff: StateDiff| {
        let number = world.head().unwrap().block.number;
        let computed = world.compute_root(&world.view_at_head().unwrap(), &diff);
        let (own, parent) = (block(number + 1, 0), world.head().unwrap().block.hash);
        let batch = canonical(&own);
        world
            .commit(computed.unwrap(), own, parent, batch, false)
            .unwrap();
    };
    let slots: Vec<u64> = (0..1500).collect();
    for accounts in (0..200).collect::<Vec<_>>().chunks(20) {
        commit(written(&world, accounts, &slots));
    }
    let mut rng = StdRng::seed_from_u64(4);
    let mut most = 0;
    for _ in 0..60 {
        let accounts: BTreeSet<u64> = (0..40).map(|_| rng.random_range(0..200)).collect();
        let slots: BTreeSet<u64> = (0..60).map(|_| rng.random_range(0..1500)).collect();
        let (accounts, slots): (Vec<_>, Vec<_>) =
            (accounts.into_iter().collect(), slots.into_iter().collect());
        commit(written(&world, &accounts, &slots));
        most = most.max(world.cache_stats().trie_bytes);
    }
    let range = LIMIT_BYTES / 2..LIMIT_BYTES + LIMIT_BYTES / 2;
    assert!(range.contains(&most), "{most} bytes");
    assert!(world.cache_stats().trie_nodes_read > 1000);
}

#[test]
fn a_prefetch_changes_no_root() {
    for cache_bytes in [0, 20_000, 1 << 20] {
        let mut rng = StdRng::seed_from_u64(840);
        let options = StateOptions {
            cache_bytes,
            ..StateOptions::default()
        };
        let (world, mut state) = world(&mut rng, &options);
        for number in 1..60 {
            let head = world.head().unwrap();
            let mut view = world.view_at_head().unwrap();
            let diff = random_diff(&mut rng, &state);
            let ended = AtomicBool::new(false);
            world.with_trie_prefetch(&mut view, &ended, |view, _| assert_same(view, &state));
            state.apply(&diff);
            let computed = computed(&world, &view, &diff, &state);
            drop(view);
            let (own, parent) = (block(number, 0), head.block.hash);
            world
                .commit(computed, own, parent, Batch::new(), false)
                .unwrap();
        }
        assert_clean(&world);
    }
}

#[test]
#[should_panic(expected = "work fails")]
fn a_panic_of_the_work_ends_the_prefetch() {
    let mut rng = StdRng::seed_from_u64(850);
    let (world, _) = world(&mut rng, &small_cache());
    let mut view = world.view_at_head().unwrap();
    world.with_trie_prefetch(&mut view, &AtomicBool::new(false), |view, _| {
        view.account(&address(1)).unwrap();
        panic!("work fails");
    });
}

#[test]
fn views_never_see_a_cache_shard_that_is_behind() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path(), &Options::default()).unwrap();
    let world = WorldState::open(database, &StateOptions::default()).unwrap();
    let mut state = MemoryState::default();
    let account = MemoryAccount::default();
    (0..40).for_each(|at| drop(state.accounts.insert(address(at), account.clone())));
    genesis(&world, &state);
    let mut rng = StdRng::seed_from_u64(3);
    for round in 1..60_u64 {
        // Some blocks are small enough to update the caches at once.
        let (slots, before) = (rng.random_range(1..20), state.clone());
        let mut diff = StateDiff::default();
        for at in 0..40 {
            let prior = state.account(&address(at)).unwrap();
            let new = prior.map(|prior| Account {
                nonce: round,
                ..prior
            });
            let slot = |slot| {
                let slot = U256::from(slot);
                let prior = state.storage(&address(at), &slot).unwrap();
                (
                    slot,
                    SlotDiff {
                        prior,
                        new: U256::from(round),
                    },
                )
            };
            let change = AccountDiff {
                prior,
                new,
                storage_wiped: false,
                slots: (0..slots).map(slot).collect(),
            };
            diff.accounts.push((address(at), change));
        }
        let old = world.view_at_head().unwrap();
        let computed = world.compute_root(&old, &diff).unwrap();
        let (own, parent) = (block(round, 0), block(round - 1, 0));
        world
            .commit(computed, own, parent.hash, canonical(&own), false)
            .unwrap();
        state.apply(&diff);
        let new = world.view_at_head().unwrap();
        assert_same(&new, &state);
        assert_same(&old, &before);
    }
    assert_clean(&world);
}

#[test]
fn hashed_keys_do_not_depend_on_what_was_hashed_before() {
    let mut rng = StdRng::seed_from_u64(821);
    let (world, mut state) = world(&mut rng, &small_cache());
    let mut views = Vec::new();
    for number in 1..4 {
        views.push((world.view_at_head().unwrap(), state.clone()));
        let (head, diff) = (world.head().unwrap(), random_diff(&mut rng, &state));
        state.apply(&diff);
        let computed = computed(&world, &views[number - 1].0, &diff, &state);
        let (own, parent) = (block(number as u64, 0), head.block.hash);
        world
            .commit(computed, own, parent, Batch::new(), false)
            .unwrap();
    }
    let mut known = HashedKeys::default();
    for _ in 0..200 {
        let (view, before) = &views[rng.random_range(0..views.len())];
        let diff = random_diff(&mut rng, before);
        let diff = part_of(&mut rng, &diff);
        known = known.of_diff(view, &diff.accounts).unwrap();
        let each: Vec<_> = known.iter().collect();
        assert_eq!(each.len(), diff.accounts.len());
        for ((address, change), (account, slots)) in diff.accounts.iter().zip(each) {
            let key = (account.address, account.key);
            assert_eq!(key, (*address, keccak256(address)));
            assert_eq!(account.prior, view.trie_account(address).unwrap());
            let expected = change.slots.iter();
            let expected = expected.map(|(slot, _)| (*slot, keccak256(B256::from(*slot))));
            assert_eq!(slots, expected.collect::<Vec<_>>());
        }
        // Merged keys are those of both lists, or the newer ones alone on another base.
        let older = HashedKeys::default()
            .of_diff(&views[0].0, &part_of(&mut rng, &diff).accounts)
            .unwrap();
        let both = older.merged_with(&known);
        let mut expected = list_of(&known);
        if view.block() == views[0].0.block() {
            for (address, slots) in list_of(&older) {
                expected.entry(address).or_default().extend(slots);
            }
        }
        assert_eq!(list_of(&both), expected);
    }
}

/// The hashes of slots by account.
fn list_of(keys: &HashedKeys) -> BTreeMap<Address, BTreeMap<U256, B256>> {
    let each = keys.iter();
    each.map(|(account, slots)| {
        assert_eq!(account.key, keccak256(account.address));
        assert!(slots.is_sorted_by(|a, b| a.0 < b.0));
        (account.address, slots.iter().copied().collect())
    })
    .collect()
}

/// A random part of `diff`, as if the rest came later.
fn part_of(rng: &mut StdRng, diff: &StateDiff) -> StateDiff {
    let mut part = diff.clone();
    part.accounts.retain(|_| rng.random_range(0..3) > 0);
    for (_, change) in &mut part.accounts {
        change.slots.retain(|_| rng.random_range(0..3) > 0);
    }
    part
}

/// Accounts and slots that tests apply at once.
const BATCH: usize = 8;

/// In how many batches `diff` is applied on top of `view`.
fn batches_of(diff: &StateDiff, view: &View) -> usize {
    let mut changes = hash_diff(
        view,
        &diff.accounts,
        &HashedKeys::default().of_diff(view, &diff.accounts).unwrap(),
    )
    .unwrap();
    let mut batches = 0;
    while !changes.is_empty() {
        let left = changes.len();
        let taken = changes.take_batch(BATCH).len();
        assert!(taken > 0 && changes.len() + taken == left);
        assert!(taken >= BATCH || changes.is_empty());
        batches += 1;
    }
    batches
}

/// Applies `part` to the tries until it is done or over; whether anything is left.
fn apply(world: &WorldState, view: &View, part: &StateDiff, is_over: &dyn Fn() -> bool) -> bool {
    let mut rest = world.hash_part(view, &part.clone().into()).unwrap();
    while world
        .apply_to_tries(view, &mut rest, BATCH, is_over)
        .unwrap()
    {}
    !rest.is_empty()
}

#[test]
fn an_incremental_root_applies_parts_until_it_is_finished_or_dropped() {
    let mut rng = StdRng::seed_from_u64(845);
    let (world, state) = world(&mut rng, &small_cache());
    let view = world.view_at_head().unwrap();
    let diff = random_diff(&mut rng, &state);
    let expected = world.compute_root(&view, &diff).unwrap().root();

    let session = IncrementalRoot::new(&world, &view, BATCH);
    let finisher = session.finisher();
    assert!(session.is_applied() && !session.apply_some());
    session.push(part_of(&mut rng, &diff).into(), false);
    assert!(session.is_pending() && session.apply_some());
    session.push(diff.clone().into(), true);
    session.apply_all();
    assert!(session.is_applied() && !session.is_closed());
    assert_eq!(session.parts(), 2);
    session.push(diff.clone().into(), true);
    assert_eq!(finisher.finish(&diff).unwrap().root(), expected);
    assert!(session.is_closed() && !session.is_pending() && !session.apply_some());

    let session = IncrementalRoot::new(&world, &view, BATCH);
    let finisher = session.finisher();
    session.push(diff.into(), false);
    drop(finisher);
    let epoch = world.tries().epoch();
    session.apply_all();
    assert_eq!((world.tries().epoch(), session.parts()), (epoch, 0));
}

#[test]
fn an_incremental_root_equals_the_root_computed_at_once() {
    for (seed, archive) in [(830, false), (831, true), (832, false)] {
        println!("seed {seed}");
        let options = StateOptions {
            archive,
            ..small_cache()
        };
        let (begun, mut state) = world(&mut StdRng::seed_from_u64(seed), &options);
        let (whole, _) = world(&mut StdRng::seed_from_u64(seed), &options);
        let mut rng = StdRng::seed_from_u64(seed + 100);
        for _ in 0..40 {
            let diff = random_diff(&mut rng, &state);
            let view = begun.view_at_head().unwrap();
            // Changes that are undone later, and changes that stay.
            let parts = [
                random_diff(&mut rng, &state),
                part_of(&mut rng, &diff),
                part_of(&mut rng, &diff),
            ];
            for part in &parts {
                let (epoch, batches) = (begun.tries().epoch(), batches_of(part, &view));
                // It may be over before any batch.
                let most = rng.random_range(0..=batches + 1);
                let looks = Cell::new(0);
                let is_over = || looks.replace(looks.get() + 1) >= most;
                let is_left = apply(&begun, &view, part, &is_over);
                assert_eq!(is_left, most < batches);
                assert_eq!(begun.tries().epoch(), epoch + batches.min(most) as u64);
            }
            state.apply(&diff);
            let early = computed(&begun, &view, &diff, &state);
            let late = computed(&whole, &whole.view_at_head().unwrap(), &diff, &state);
            assert_eq!(early.diff(), late.diff());
            let head = begun.head().unwrap().block;
            let next = block(head.number + 1, 0);
            for (world, computed) in [(&begun, early), (&whole, late)] {
                let (own, parent) = (next, head.hash);
                world
                    .commit(computed, own, parent, canonical(&next), false)
                    .unwrap();
            }
        }
        assert!(dump(&begun) == dump(&whole));
        assert_clean(&begun);
    }
}

#[test]
fn an_incremental_root_stops_when_over_or_the_head_has_moved_or_near_a_reset() {
    let mut rng = StdRng::seed_from_u64(840);
    let (world, mut state) = world(&mut rng, &small_cache());
    let diff = random_diff(&mut rng, &state);
    let left_behind = world.view_at_head().unwrap();
    let epoch = |world: &WorldState| world.tries().epoch();
    let before = epoch(&world);
    apply(&world, &left_behind, &diff, &|| true);
    assert_eq!(epoch(&world), before);
    advance(&mut rng, &world, &mut state, 0);
    let before = epoch(&world);
    apply(&world, &left_behind, &diff, &|| false);
    assert_eq!(epoch(&world), before);
    let view = world.view_at_head().unwrap();
    let mut begun = 0;
    loop {
        let before = epoch(&world);
        apply(&world, &view, &random_diff(&mut rng, &state), &|| false);
        if epoch(&world) == before {
            break;
        }
        begun += 1;
    }
    assert!(begun > 0 && !world.tries().needs_reset());
    advance(&mut rng, &world, &mut state, 0);
    assert_clean(&world);
}

#[test]
fn the_diff_between_siblings_undoes_one_and_applies_the_other() {
    let mut rng = StdRng::seed_from_u64(820);
    let (world, state) = world(&mut rng, &small_cache());
    let view = world.view_at_head().unwrap();
    let hashed = |rng: &mut StdRng| {
        let diff = random_diff(rng, &state);
        let keys = HashedKeys::default()
            .of_diff(&view, &diff.accounts)
            .unwrap();
        hash_diff(&view, &diff.accounts, &keys)
            .unwrap()
            .without_unchanged()
    };
    for _ in 0..500 {
        let (from, to) = (hashed(&mut rng), hashed(&mut rng));
        let diff = from.clone().inverted().then(to.clone());
        assert_eq!(from.diff_to(&to), diff);
        assert!(from.diff_to(&from).is_empty());
        // A partial diff changes nothing that it does not list.
        let (mut part, mut whole) = (to.clone(), to);
        part.accounts.retain(|_| rng.random_range(0..3) > 0);
        let on = from.diff_to_part(&part);
        whole
            .accounts
            .retain(|account| part.account(&account.key).is_some());
        let kept = from
            .accounts
            .iter()
            .filter(|from| part.account(&from.key).is_none());
        whole.accounts.extend(kept.cloned());
        whole.accounts.sort_by_key(|account| account.key);
        for account in &mut whole.accounts {
            let Some(to) = part.account(&account.key) else {
                continue;
            };
            let from = from.account(&account.key);
            let slots = from.iter().flat_map(|from| &from.slots);
            let kept = slots.filter(|slot| to.slot(&slot.key).is_none());
            account.slots.extend(kept.map(|slot| HashedSlotDiff {
                new: if to.new.is_some() {
                    slot.new
                } else {
                    U256::ZERO
                },
                ..*slot
            }));
            account.slots.sort_by_key(|slot| slot.key);
        }
        let mut both = [from.clone().then(on), whole.without_unchanged()];
        // Some slots are known by their hash in one of the diffs only.
        let accounts = both.iter_mut().flat_map(|changes| &mut changes.accounts);
        let slots = accounts.flat_map(|account| &mut account.slots);
        slots.for_each(|slot| slot.slot = None);
        assert_eq!(both[0], both[1]);
    }
}
