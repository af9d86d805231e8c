//! A view is a value: it goes to other threads, is cloned, and outlives the state it is of.

use super::*;
use crate::{PastView, StateHead};
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
fn views_are_cloned_shared_and_sent_and_borrow_nothing() {
    fn is_value<T: Clone + Send + Sync + 'static>() {}
    is_value::<View>();
    is_value::<PastView>();
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
    let beside = world.view_at(past[4].0.block).unwrap().unwrap();
    let archived = world.view_of_past(past[2].0).unwrap().unwrap();
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
            assert_same(&beside, in_branch);
            for (address, held) in &in_archive.accounts {
                let account = archived.account(address).unwrap().unwrap();
                assert_eq!(account.balance, held.balance);
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
fn a_clone_reads_the_same_whatever_is_committed_and_the_last_gives_the_snapshot_back() {
    let mut rng = StdRng::seed_from_u64(710);
    let (world, mut state) = world(&mut rng, &archive());
    let living = || world.database().snapshots().unwrap();
    let base = living();
    assert_eq!(base, 0);
    let mut views = Vec::new();
    let mut past: Vec<(PastView, StateHead)> = Vec::new();
    for round in 1..=10 {
        let view = world.view_at_head().unwrap();
        let head = world.head().unwrap();
        past.push((world.view_of_past(head).unwrap().unwrap(), head));
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
fn a_clone_of_a_view_that_tells_does_not_hold_up_who_listens() {
    let mut rng = StdRng::seed_from_u64(720);
    let (world, state) = world(&mut rng, &small_cache());
    let mut view = world.view_at_head().unwrap();
    let clone = world.with_prefetch(&mut view, &AtomicBool::new(false), |view, _| {
        assert_same(view, &state);
        view.clone()
    });
    assert_same(&clone, &state);
}

type Found<T> = Vec<(B256, T)>;

/// What a visit gives that is there, at most `most` of it.
fn visited<T>(
    most: usize,
    visit: impl FnOnce(&mut crate::Visit<'_, T>) -> Result<(), niwaki_primitives::Fault>,
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

/// Whoever goes through the state by the two visits finds it, from wherever they begin.
fn assert_visited(
    state: &MemoryState,
    accounts: &dyn Fn(&B256, usize) -> Found<TrieAccount>,
    slots: &dyn Fn(&B256, &B256, usize) -> Found<U256>,
) {
    let mut held: Vec<_> = state.accounts.iter().collect();
    held.sort_by_key(|(address, _)| keccak256(address));
    let all = accounts(&B256::ZERO, usize::MAX);
    let keys = |list: &[(B256, TrieAccount)]| list.iter().map(|(key, _)| *key).collect::<Vec<_>>();
    let want: Vec<B256> = held.iter().map(|(address, _)| keccak256(address)).collect();
    assert_eq!(keys(&all), want);
    for at in [0, want.len() / 2, want.len() - 1] {
        assert_eq!(
            keys(&accounts(&want[at], 3)),
            want[at..want.len().min(at + 3)]
        );
    }
    assert!(accounts(&B256::repeat_byte(0xff), 1).is_empty());
    for ((address, held), (key, account)) in held.into_iter().zip(all) {
        assert_eq!(Some(account.account()), state.account(address).unwrap());
        let slot = |(slot, value): (&U256, &U256)| (keccak256(B256::from(*slot)), *value);
        let mut want: Vec<_> = held.storage.iter().map(slot).collect();
        want.sort_unstable();
        assert_eq!(slots(&key, &B256::ZERO, usize::MAX), want);
        if let Some((middle, _)) = want.get(want.len() / 2) {
            assert_eq!(slots(&key, middle, usize::MAX), want[want.len() / 2..]);
            assert_eq!(slots(&key, middle, 1).len(), 1);
        }
    }
}

#[test]
fn a_visit_goes_through_what_a_view_holds_at_the_head_beside_it_and_in_the_past() {
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
            let view = world.view_of_past(head).unwrap().unwrap();
            assert_visited(
                &state,
                &|from, most| visited(most, |visit| view.accounts_from(from, visit)),
                &|key, from, most| visited(most, |visit| view.slots_from(key, from, visit)),
            );
        }
    }
}
