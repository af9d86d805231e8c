//! An archive has every canonical state and its proofs, whatever side branches were followed in between.

use super::*;
use crate::StateHead;
use niwaki_primitives::EMPTY_ROOT_HASH;

fn archive() -> StateOptions {
    StateOptions {
        archive: true,
        ..small_cache()
    }
}

/// Every value of a past state, and proofs of some.
fn assert_past(world: &WorldState, past: StateHead, state: &MemoryState) {
    let view = world.historical_view(past).unwrap().unwrap();
    assert_eq!(view.block(), past);
    for at in 0..61 {
        let address = address(at);
        let expected = state.account(&address).unwrap();
        assert_eq!(
            view.account(&address).unwrap(),
            expected,
            "{address} at {past:?}"
        );
        let has_storage = state.has_storage(&address).unwrap();
        assert_eq!(view.has_storage(&address).unwrap(), has_storage);
        for slot in (0..41).map(U256::from) {
            let expected = state.storage(&address, &slot).unwrap();
            assert_eq!(
                view.storage(&address, &slot).unwrap(),
                expected,
                "{address} {slot}"
            );
        }
        let account = view.trie_account(&address).unwrap();
        let key = Path::of_hash(&keccak256(address));
        let proof = view.prove_account(&address).unwrap();
        let proven = verify_proof(past.root, &key, &proof).unwrap();
        assert_eq!(proven, account.map(|account| account.to_leaf()));
        let slot = U256::from(at % 41);
        let key = Path::of_hash(&keccak256(B256::from(slot)));
        let root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
        let proof = view.prove_slot(&address, &slot).unwrap();
        let expected = state.storage(&address, &slot).unwrap();
        let proven = verify_proof(root, &key, &proof).unwrap();
        assert_eq!(
            proven,
            (!expected.is_zero()).then(|| encode_slot(&expected))
        );
    }
}

#[test]
fn every_past_state_of_an_archive_reads_and_proves() {
    let mut rng = StdRng::seed_from_u64(900);
    let (world, mut state) = world(&mut rng, &archive());
    let mut past = vec![(world.head().unwrap(), state.clone())];
    for _ in 0..40 {
        advance(&mut rng, &world, &mut state, 0);
        past.push((world.head().unwrap(), state.clone()));
    }
    for (head, state) in &past {
        assert_past(&world, *head, state);
    }
    // The options do not matter any more.
    let world = WorldState::open(world.into_database(), &small_cache()).unwrap();
    assert!(world.is_archive());
    assert_past(&world, past[7].0, &past[7].1);
}

#[test]
fn history_has_no_rows_of_abandoned_branches() {
    for seed in 910..914 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (world, mut state) = world(&mut rng, &archive());
        let mut past = vec![(world.head().unwrap(), state.clone())];
        for fork in 1..9 {
            for _ in 0..rng.random_range(1..5) {
                // A root that is computed and never committed.
                let other = random_diff(&mut rng, &state);
                world
                    .compute_root(&world.view_at_head().unwrap(), &other)
                    .unwrap();
                advance(&mut rng, &world, &mut state, fork);
                past.push((world.head().unwrap(), state.clone()));
            }
            // Back some blocks: by rolling, or by a block on top of an older one.
            let keep = rng.random_range(1..=past.len());
            let (head, older) = past[keep - 1].clone();
            past.truncate(keep);
            state = older;
            if rng.random() {
                let moved = world.roll_to(head.block, head.root, Batch::new(), false);
                assert!(moved.unwrap());
            } else {
                let diff = random_diff(&mut rng, &state);
                let view = world.view_at(head.block).unwrap().unwrap();
                state.apply(&diff);
                let computed = computed(&world, &view, &diff, &state);
                drop(view);
                let next = block(head.block.number + 1, fork + 100);
                let (own, parent) = (next, head.block.hash);
                world
                    .commit(computed, own, parent, canonical(&next), false)
                    .unwrap();
                past.push((world.head().unwrap(), state.clone()));
            }
            assert_clean(&world);
        }
        for (head, state) in &past {
            assert_past(&world, *head, state);
        }
        let number = |row: &niwaki_storage::Row| {
            u64::from_be_bytes(row.0[row.0.len() - 8..].try_into().unwrap())
        };
        let top = world.head().unwrap().block.number;
        for segment in [
            Segment::AccountHistory,
            Segment::SlotHistory,
            Segment::StorageTrieHistory,
        ] {
            let rows = world.database().prefix(segment, &[]).map(Result::unwrap);
            assert!(
                rows.into_iter().all(|row| number(&row) <= top),
                "{segment:?}"
            );
        }
    }
}

#[test]
fn without_an_archive_there_is_no_history() {
    let mut rng = StdRng::seed_from_u64(920);
    let (world, mut state) = world(&mut rng, &small_cache());
    let genesis = world.head().unwrap();
    advance(&mut rng, &world, &mut state, 0);
    assert!(world.historical_view(genesis).unwrap().is_none());
    assert_eq!(
        world.database().prefix(Segment::SlotHistory, &[]).count(),
        0
    );
}

#[test]
fn a_damaged_history_row_is_reported() {
    let mut rng = StdRng::seed_from_u64(930);
    let (world, mut state) = world(&mut rng, &archive());
    for _ in 0..10 {
        advance(&mut rng, &world, &mut state, 0);
    }
    let whole = assert_clean(&world).history_rows;
    assert!(whole > 40, "{whole}");
    let found = |batch: Batch| {
        world.database().write(batch, false).unwrap();
        let mut found = Vec::new();
        world.check(&mut |problem| found.push(problem)).unwrap();
        found
    };
    for segment in [
        Segment::AccountHistory,
        Segment::SlotHistory,
        Segment::AccountTrieHistory,
        Segment::StorageTrieHistory,
    ] {
        let rows = world.database().prefix(segment, &[]).map(Result::unwrap);
        let (key, value) = rows.filter(|(_, value)| !value.is_empty()).last().unwrap();
        let numbered = |number: u64| [&key[..key.len() - 8], &number.to_be_bytes()].concat();
        let bad = [
            (key.to_vec(), [&[0][..], &value].concat()),
            (numbered(0), value.to_vec()),
            (numbered(11), value.to_vec()),
            (key[..7].to_vec(), value.to_vec()),
            ([&[0x10][..], &key].concat(), value.to_vec()),
        ];
        for (bad_key, bad_value) in bad {
            let mut damage = Batch::new();
            damage.put(segment, &bad_key, &bad_value);
            let problems = found(damage);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].segment, segment.name());
            let mut mend = Batch::new();
            mend.delete(segment, &bad_key);
            mend.put(segment, &key, &value);
            assert_eq!(found(mend), []);
        }
    }
}
