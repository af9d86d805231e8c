//! Rolling back and forward, side branches, and how many blocks back they may begin.

use super::*;
use crate::TRIE_LOGS_KEPT;

#[test]
fn rolling_100_blocks_back_and_forth_gives_the_same_bytes() {
    for seed in 100..103 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (world, mut state) = world(&mut rng, &small_cache());
        let mut past = vec![(world.head().unwrap(), dump(&world), state.clone())];
        for _ in 0..100 {
            advance(&mut rng, &world, &mut state, 0);
            past.push((world.head().unwrap(), dump(&world), state.clone()));
        }
        for at in [99, 60, 0, 100, 37, 38, 36, 100] {
            let (head, bytes, state) = &past[at];
            assert!(
                world
                    .roll_to(head.block, head.root, Batch::new(), false)
                    .unwrap()
            );
            assert_eq!(world.head(), Some(*head));
            assert!(dump(&world) == *bytes, "bytes of block {at}");
            assert_same(&world.view_at_head().unwrap(), state);
        }
        assert_clean(&world);
    }
}

#[test]
fn any_recent_block_can_be_viewed_without_moving_the_head() {
    let mut rng = StdRng::seed_from_u64(200);
    let (world, mut state) = world(&mut rng, &StateOptions::default());
    let mut past = vec![(world.head().unwrap().block, state.clone())];
    for _ in 0..40 {
        advance(&mut rng, &world, &mut state, 0);
        past.push((world.head().unwrap().block, state.clone()));
    }
    for (block, state) in past.iter().rev().step_by(3) {
        let view = world.view_at(*block).unwrap().unwrap();
        assert_eq!(view.block(), *block);
        assert_same(&view, state);
    }
}

/// Stages a random block on top of `parent` as a side block.
fn grow_side_chain(
    rng: &mut StdRng,
    world: &WorldState,
    parent: BlockId,
    state: &mut MemoryState,
    fork: u8,
) -> (BlockId, B256) {
    let diff = random_diff(rng, state);
    let view = world.view_at(parent).unwrap().unwrap();
    assert_same(&view, state);
    state.apply(&diff);
    let computed = computed(world, &view, &diff, state);
    let next = block(parent.number + 1, fork);
    let mut batch = Batch::new();
    world.stage_side_block(&view, &computed, next, parent.hash)(&mut batch);
    world.database().write(batch, false).unwrap();
    (next, computed.root())
}

#[test]
fn side_branches_have_the_right_roots_and_can_become_the_head() {
    for seed in 300..306 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (world, mut state) = world(&mut rng, &small_cache());
        for _ in 0..5 {
            advance(&mut rng, &world, &mut state, 0);
        }
        let mut side_state = state.clone();
        let mut side = world.head().unwrap().block;
        for _ in 0..6 {
            advance(&mut rng, &world, &mut state, 0);
        }
        let main = world.head().unwrap();
        let mut root = B256::ZERO;
        for _ in 0..9 {
            (side, root) = grow_side_chain(&mut rng, &world, side, &mut side_state, 1);
        }
        assert_eq!(world.head(), Some(main));
        assert_same(&world.view_at_head().unwrap(), &state);

        // The branch becomes canonical by its logs, its next block by a commit.
        assert!(world.roll_to(side, root, Batch::new(), false).unwrap());
        assert_same(&world.view_at_head().unwrap(), &side_state);
        assert_clean(&world);
        let diff = random_diff(&mut rng, &state);
        let computed = {
            let view = world.view_at(main.block).unwrap().unwrap();
            assert_same(&view, &state);
            state.apply(&diff);
            computed(&world, &view, &diff, &state)
        };
        let next = block(main.block.number + 1, 2);
        world
            .commit(computed, next, main.block.hash, Batch::new(), true)
            .unwrap();
        assert_eq!(world.head().unwrap().root, oracle_root(&state));
        assert_same(&world.view_at_head().unwrap(), &state);
        assert_clean(&world);
        let loaded = WorldState::open(Database::in_memory().unwrap(), &small_cache()).unwrap();
        genesis(&loaded, &state);
        assert!(dump(&world) == dump(&loaded));
    }
}

#[test]
fn block_hashes_are_those_of_the_branch() {
    let mut rng = StdRng::seed_from_u64(400);
    let (world, mut state) = world(&mut rng, &small_cache());
    for _ in 0..4 {
        advance(&mut rng, &world, &mut state, 0);
    }
    let fork = world.head().unwrap().block;
    let mut side_state = state.clone();
    for _ in 0..3 {
        advance(&mut rng, &world, &mut state, 0);
    }
    let (first, _) = grow_side_chain(&mut rng, &world, fork, &mut side_state, 1);
    let (second, _) = grow_side_chain(&mut rng, &world, first, &mut side_state, 1);
    let view = world.view_at(second).unwrap().unwrap();
    for (number, fork) in [(1, 0), (4, 0), (5, 1), (6, 1)] {
        assert_eq!(view.block_hash(number).unwrap(), block(number, fork).hash);
    }
    let view = world.view_at_head().unwrap();
    for number in [1, 5, 6, 7] {
        assert_eq!(view.block_hash(number).unwrap(), block(number, 0).hash);
    }
    assert!(view.block_hash(100).is_err());
}

#[test]
fn trie_logs_reach_512_blocks_back_and_not_much_further() {
    let mut rng = StdRng::seed_from_u64(500);
    let (world, mut state) = world(&mut rng, &StateOptions::default());
    let mut states = vec![state.clone()];
    let last = TRIE_LOGS_KEPT + 70;
    for number in 1..=last {
        let head = world.head().unwrap();
        let mut diff = random_diff(&mut rng, &state);
        diff.accounts.truncate(2);
        state.apply(&diff);
        states.push(state.clone());
        let computed = world
            .compute_root(&world.view_at_head().unwrap(), &diff)
            .unwrap();
        let next = block(number, 0);
        world
            .commit(computed, next, head.block.hash, canonical(&next), false)
            .unwrap();
    }
    let kept = world.database().prefix(Segment::TrieLogs, &[]).count() as u64;
    // Logs are removed in steps of 32 blocks.
    let first = 64;
    assert_eq!(kept, last - first + 1);
    let deepest = last - TRIE_LOGS_KEPT;
    let view = world.view_at(block(deepest, 0)).unwrap().unwrap();
    assert_same(&view, &states[usize::try_from(deepest).unwrap()]);
    drop(view);
    let deeper = block(first - 2, 0);
    assert!(world.view_at(deeper).unwrap().is_none());
    assert!(
        !world
            .roll_to(deeper, B256::ZERO, Batch::new(), false)
            .unwrap()
    );
    assert!(
        world.view_at(block(last + 1, 7)).unwrap().is_none(),
        "unknown block"
    );
    assert_eq!(world.head().unwrap().block, block(last, 0));
}

#[test]
fn trie_logs_to_another_root_are_refused_and_nothing_is_written() {
    let mut rng = StdRng::seed_from_u64(600);
    let (world, mut state) = world(&mut rng, &small_cache());
    advance(&mut rng, &world, &mut state, 0);
    let (head, bytes) = (world.head(), dump(&world));
    let error = world
        .roll_to(block(0, 0), B256::ZERO, Batch::new(), false)
        .unwrap_err();
    assert!(error.to_string().contains("state root"), "{error}");
    assert_eq!(world.head(), head);
    assert!(dump(&world) == bytes);
}

#[test]
fn side_chains_grow_while_the_head_moves_and_reorganises() {
    for seed in 310..318 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let options = StateOptions {
            archive: seed % 2 == 1,
            ..small_cache()
        };
        let (world, mut state) = world(&mut rng, &options);
        let head = world.head().unwrap();
        let mut sides = vec![(head.block, head.root, state.clone()); 3];
        for round in 1..=120 {
            let at = rng.random_range(0..sides.len());
            match rng.random_range(0..12) {
                // A block on top of a side chain, or on top of its parent.
                0..=6 => {
                    let (parent, _, mut own) = sides[at].clone();
                    let (tip, root) = grow_side_chain(&mut rng, &world, parent, &mut own, round);
                    sides[at] = (tip, root, own);
                    if sides.len() < 12 && rng.random_range(0..4) == 0 {
                        sides.push(sides[at].clone());
                    }
                }
                7..=10 => advance(&mut rng, &world, &mut state, round),
                _ => {
                    let old = world.head().unwrap();
                    let (tip, root, own) = sides[at].clone();
                    assert!(world.roll_to(tip, root, Batch::new(), false).unwrap());
                    sides[at] = (old.block, old.root, std::mem::replace(&mut state, own));
                }
            }
            assert_eq!(world.head().unwrap().root, oracle_root(&state));
        }
        for (tip, _, state) in &sides {
            assert_same(&world.view_at(*tip).unwrap().unwrap(), state);
        }
        assert_same(&world.view_at_head().unwrap(), &state);
        assert_clean(&world);
    }
}
