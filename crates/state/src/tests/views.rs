//! A view is a value: it is sent to other threads, is cloned, and outlives its world state.

use super::*;
use crate::{HistoricalView, StateHead};
use niwaki_storage::Snapshot;
use std::sync::Barrier;
use std::thread;

fn archive() -> StateOptions {
    StateOptions {
        archive: true,
        ..small_cache()
    }
}

#[test]
fn views_are_clone_sync_send_and_static() {
    fn is_value<T: Clone + Send + Sync + 'static>() {}
    is_value::<View>();
    is_value::<HistoricalView>();
    is_value::<Snapshot>();
}

#[test]
fn views_on_threads_outlive_the_world_state() {
    let mut rng = StdRng::seed_from_u64(700);
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), &Options::default());
    let world = WorldState::open(open().unwrap(), &archive()).unwrap();
    let mut state = random_state(&mut rng);
    genesis(&world, &state);
    let mut past = Vec::new();
    for _ in 0..12 {
        past.push((world.head().unwrap(), state.clone()));
        advance(&mut rng, &world, &mut state, 0);
    }
    let head = world.view_at_head().unwrap();
    let side_block = world.view_at(past[4].0.block).unwrap().unwrap();
    let archived = world.historical_view(past[2].0).unwrap().unwrap();
    let mut later = state.clone();
    for _ in 0..3 {
        advance(&mut rng, &world, &mut later, 1);
    }
    let (in_archive, in_branch) = (&past[2].1, &past[4].1);
    let closed = Barrier::new(4);
    thread::scope(|scope| {
        let (closed, state) = (&closed, &state);
        for view in [head.clone(), head] {
            scope.spawn(move || {
                closed.wait();
                assert_same(&view, state);
            });
        }
        scope.spawn(move || {
            closed.wait();
            assert_same(&side_block, in_branch);
            for (address, expected) in &in_archive.accounts {
                let account = archived.account(address).unwrap().unwrap();
                assert_eq!(account.balance, expected.balance);
            }
        });
        drop(world);
        assert!(open().is_err(), "the data path is in use");
        closed.wait();
    });
    let world = WorldState::open(open().unwrap(), &archive()).unwrap();
    assert_eq!(world.head().unwrap().block, block(15, 1));
}

#[test]
fn clones_of_a_view_read_the_same_and_release_the_snapshot_at_the_last_drop() {
    let mut rng = StdRng::seed_from_u64(710);
    let (world, mut state) = world(&mut rng, &archive());
    let living = || world.database().live_snapshots().unwrap();
    let base = living();
    assert_eq!(base, 0);
    let mut views = Vec::new();
    let mut past: Vec<(HistoricalView, StateHead)> = Vec::new();
    for round in 1..=10 {
        let view = world.view_at_head().unwrap();
        let head = world.head().unwrap();
        past.push((world.historical_view(head).unwrap().unwrap(), head));
        views.push((view.clone(), view, state.clone()));
        assert_eq!(living(), 2 * round);
        advance(&mut rng, &world, &mut state, 0);
    }
    for (first, second, state) in &views {
        assert_same(first, state);
        assert_same(second, state);
        assert_same(&second.clone(), state);
    }
    for (view, head) in past {
        assert_eq!(view.clone().block(), head);
    }
    assert_eq!(living(), 10);
    let clones: Vec<_> = views.into_iter().map(|(first, _, _)| first).collect();
    assert_eq!(living(), 10);
    drop(clones);
    assert_eq!(living(), 0);
}

#[test]
fn a_clone_of_a_sending_view_does_not_keep_the_prefetcher_waiting() {
    let mut rng = StdRng::seed_from_u64(720);
    let (world, state) = world(&mut rng, &small_cache());
    let mut view = world.view_at_head().unwrap();
    let clone = world.with_trie_prefetch(&mut view, &AtomicBool::new(false), |view, _| {
        assert_same(view, &state);
        view.clone()
    });
    assert_same(&clone, &state);
}

type Found<T> = Vec<(B256, T)>;

/// The first `most` existing keys of a range, with their values.
fn visited<T>(
    most: usize,
    visit: impl FnOnce(&mut crate::RangeVisitor<'_, T>) -> Result<(), niwaki_primitives::Fault>,
) -> Found<T> {
    let mut found = Found::new();
    let mut last = None;
    visit(&mut |key, value| {
        assert!(
            last.replace(*key).is_none_or(|last| last < *key),
            "ascending"
        );
        found.extend(value.map(|value| (*key, value)));
        found.len() < most
    })
    .unwrap();
    found
}

/// Both ranges give the whole state, from any key on.
fn assert_visited(
    state: &MemoryState,
    accounts: &dyn Fn(&B256, usize) -> Found<TrieAccount>,
    slots: &dyn Fn(&B256, &B256, usize) -> Found<U256>,
) {
    let mut expected: Vec<_> = state.accounts.iter().collect();
    expected.sort_by_key(|(address, _)| keccak256(address));
    let all = accounts(&B256::ZERO, usize::MAX);
    let keys = |list: &[(B256, TrieAccount)]| list.iter().map(|(key, _)| *key).collect::<Vec<_>>();
    let want: Vec<B256> = expected
        .iter()
        .map(|(address, _)| keccak256(address))
        .collect();
    assert_eq!(keys(&all), want);
    for at in [0, want.len() / 2, want.len() - 1] {
        assert_eq!(
            keys(&accounts(&want[at], 3)),
            want[at..want.len().min(at + 3)]
        );
    }
    assert!(accounts(&B256::repeat_byte(0xff), 1).is_empty());
    for ((address, expected), (key, account)) in expected.into_iter().zip(all) {
        assert_eq!(Some(account.account()), state.account(address).unwrap());
        let slot = |(slot, value): (&U256, &U256)| (keccak256(B256::from(*slot)), *value);
        let mut want: Vec<_> = expected.storage.iter().map(slot).collect();
        want.sort_unstable();
        assert_eq!(slots(&key, &B256::ZERO, usize::MAX), want);
        if let Some((middle, _)) = want.get(want.len() / 2) {
            assert_eq!(slots(&key, middle, usize::MAX), want[want.len() / 2..]);
            assert_eq!(slots(&key, middle, 1).len(), 1);
        }
    }
}

#[test]
fn ranges_of_head_side_block_and_historical_views_are_complete_and_ordered() {
    for seed in 730..734 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (world, mut state) = world(&mut rng, &archive());
        let mut past = Vec::new();
        for _ in 0..12 {
            past.push((world.head().unwrap(), state.clone()));
            advance(&mut rng, &world, &mut state, 0);
        }
        let assert_view = |view: &View, state: &MemoryState| {
            assert_visited(
                state,
                &|from, most| visited(most, |visit| view.accounts_from(from, visit)),
                &|key, from, most| visited(most, |visit| view.slots_from(key, from, visit)),
            );
        };
        assert_view(&world.view_at_head().unwrap(), &state);
        for (head, state) in past {
            assert_view(&world.view_at(head.block).unwrap().unwrap(), &state);
            let view = world.historical_view(head).unwrap().unwrap();
            assert_visited(
                &state,
                &|from, most| visited(most, |visit| view.accounts_from(from, visit)),
                &|key, from, most| visited(most, |visit| view.slots_from(key, from, visit)),
            );
        }
    }
}
