//! The check finds damage of every kind and names it.

use super::*;

fn problems(world: &WorldState) -> Vec<Problem> {
    let mut problems = Vec::new();
    let summary = world.check(&mut |problem| problems.push(problem)).unwrap();
    assert_eq!(summary.problems, problems.len() as u64);
    problems
}

/// Writes `batch` directly to the database and returns what the check reports; the damage is undone.
fn after(world: &WorldState, damage: &Batch, repair: &Batch) -> Vec<Problem> {
    world.database().write(damage.clone(), false).unwrap();
    let found = problems(world);
    world.database().write(repair.clone(), false).unwrap();
    assert_eq!(problems(world), []);
    found
}

#[test]
fn a_changed_missing_or_stray_row_of_any_segment_is_found() {
    let mut rng = StdRng::seed_from_u64(700);
    let (world, _) = world(&mut rng, &small_cache());
    for segment in STATE_SEGMENTS {
        let rows: Vec<_> = world
            .database()
            .prefix(segment, &[])
            .map(Result::unwrap)
            .collect();
        assert!(rows.len() > 10, "{segment:?}");
        for (key, value) in rows.iter().step_by(rows.len() / 8) {
            let mut repair = Batch::new();
            repair.put(segment, key, value);

            let mut changed = value.to_vec();
            *changed.last_mut().unwrap() ^= 1;
            let mut damage = Batch::new();
            damage.put(segment, key, &changed);
            let found = after(&world, &damage, &repair);
            assert!(!found.is_empty(), "changed row of {segment:?}");

            let mut damage = Batch::new();
            damage.delete(segment, key);
            let found = after(&world, &damage, &repair);
            assert!(!found.is_empty(), "missing row of {segment:?}");
        }
        let mut stray = rows[3].0.to_vec();
        *stray.last_mut().unwrap() ^= 0x0f;
        let (mut damage, mut repair) = (Batch::new(), Batch::new());
        damage.put(segment, &stray, &rows[3].1);
        repair.delete(segment, &stray);
        let found = after(&world, &damage, &repair);
        assert!(!found.is_empty(), "stray row of {segment:?}");
    }
}

#[test]
fn damage_is_reported_with_segment_and_key() {
    let mut rng = StdRng::seed_from_u64(701);
    let (world, _) = world(&mut rng, &small_cache());
    let row = |segment| {
        world
            .database()
            .prefix(segment, &[])
            .nth(5)
            .unwrap()
            .unwrap()
    };
    let name = |bytes: &[u8]| alloy_primitives::hex::encode(bytes);

    let (key, value) = row(Segment::StorageTrie);
    let (mut damage, mut repair) = (Batch::new(), Batch::new());
    damage.delete(Segment::StorageTrie, &key);
    repair.put(Segment::StorageTrie, &key, &value);
    let found = after(&world, &damage, &repair);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].segment, &found[0].key),
        ("storage_trie", &name(&key))
    );
    assert_eq!(found[0].what, "missing row");

    let (key, code) = row(Segment::Code);
    let (mut damage, mut repair) = (Batch::new(), Batch::new());
    damage.put(Segment::Code, &key, b"other code");
    repair.put(Segment::Code, &key, &code);
    let found = after(&world, &damage, &repair);
    assert!(
        found
            .iter()
            .all(|p| p.segment == "code" && p.key == name(&key)),
        "{found:?}"
    );

    let mut stray = [0xee; 64];
    stray[0] = 0;
    let (mut damage, mut repair) = (Batch::new(), Batch::new());
    damage.put(Segment::Slots, &stray, &[1]);
    repair.delete(Segment::Slots, &stray);
    let found = after(&world, &damage, &repair);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].what, "a slot of no account");
}

#[test]
fn a_sample_finds_a_changed_value_or_node_and_nothing_in_a_clean_state() {
    let mut rng = StdRng::seed_from_u64(704);
    let (world, state) = world(&mut rng, &small_cache());
    let sampled = |count| {
        let mut problems = Vec::new();
        let report = &mut |problem| problems.push(problem);
        let summary = world.check_sample(count, report).unwrap();
        assert_eq!(summary.problems, problems.len() as u64);
        (summary, problems)
    };
    // With this many draws each of the few accounts is drawn.
    let draws = 200 * state.accounts.len() as u64;
    let (summary, problems) = sampled(draws);
    assert_eq!((summary.accounts, problems), (draws, vec![]));
    assert!(summary.slots > 0 && summary.trie_rows > draws);
    for segment in STATE_SEGMENTS {
        let row = world.database().prefix(segment, &[]).last().unwrap();
        let (key, mut bytes) = row.unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let (mut damage, mut repair) = (Batch::new(), Batch::new());
        damage.put(segment, &key, &bytes);
        *bytes.last_mut().unwrap() ^= 1;
        repair.put(segment, &key, &bytes);
        world.database().write(damage, false).unwrap();
        let (_, problems) = sampled(draws);
        assert!(!problems.is_empty(), "{}", segment.name());
        world.database().write(repair, false).unwrap();
    }
    assert_eq!(sampled(draws).1, vec![]);
}

#[test]
fn a_sample_of_no_account_is_empty() {
    let database = Database::in_memory().unwrap();
    let world = WorldState::open(database, &StateOptions::default()).unwrap();
    genesis(&world, &MemoryState::default());
    let report = &mut |problem: Problem| panic!("{problem}");
    let summary = world.check_sample(5, report).unwrap();
    assert_eq!(summary, CheckSummary::default());
}

#[test]
fn a_corrupt_row_is_a_fault_when_read() {
    let mut rng = StdRng::seed_from_u64(702);
    let (world, state) = world(&mut rng, &small_cache());
    let root = world.head().unwrap().root;
    let mut damage = Batch::new();
    for row in world.database().prefix(Segment::AccountTrie, &[]) {
        let (key, mut row) = row.unwrap();
        *row.last_mut().unwrap() ^= 1;
        damage.put(Segment::AccountTrie, &key, &row);
    }
    world.database().write(damage.clone(), false).unwrap();
    let view = world.view_at_head().unwrap();
    let diff = random_diff(&mut rng, &state);
    let error = world.compute_root(&view, &diff).unwrap_err();
    assert!(error.to_string().contains("account_trie"), "{error}");
    assert_eq!(world.head().unwrap().root, root);
}

#[test]
fn malformed_flat_rows_are_corrupt() {
    let mut rng = StdRng::seed_from_u64(703);
    let (world, state) = world(&mut rng, &small_cache());
    let (address, _) = state
        .accounts
        .iter()
        .find(|(_, a)| !a.storage.is_empty())
        .unwrap();
    let key = keccak256(address);
    let slot = *state.accounts[address].storage.keys().next().unwrap();
    let mut damage = Batch::new();
    damage.put(Segment::Accounts, key.as_slice(), &[0xc1, 0x80]);
    let slot_key = [key.as_slice(), keccak256(B256::from(slot)).as_slice()].concat();
    damage.put(Segment::Slots, &slot_key, &[0, 1]);
    world.database().write(damage.clone(), false).unwrap();
    assert!(decode_account(&[0xc1, 0x80]).is_err());
    let view = world.view_at_head().unwrap();
    assert!(view.account(address).is_err());
    assert!(view.storage(address, &slot).is_err());
}
