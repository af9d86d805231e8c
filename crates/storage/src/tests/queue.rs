//! Write-behind is not observable: reads, snapshots and a reopened database equal a map.

use super::*;
use crate::DeferredRows;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const SEGMENT: Segment = Segment::StorageTrie;

fn key(rng: &mut StdRng) -> Vec<u8> {
    (0..rng.random_range(1..4))
        .map(|_| rng.random_range(0..4))
        .collect()
}

/// A batch of random changes, some of one key, and of another segment; the model follows.
fn random_batch(rng: &mut StdRng, model: &mut Model) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..rng.random_range(0..20) {
        let key = key(rng);
        if rng.random_range(0..3) == 0 {
            batch.delete(SEGMENT, &key);
            model.remove(&key);
        } else {
            let value = vec![rng.random::<u8>(); rng.random_range(0..4)];
            batch.put(SEGMENT, &key, &value);
            model.insert(key, value);
        }
        if rng.random_range(0..4) == 0 {
            let mut more = put(Segment::Slots, b"other", b"x");
            more.delete(Segment::Slots, b"none");
            batch.append(more);
        }
    }
    batch
}

fn rows(rows: crate::RowIter<'_>) -> Model {
    let row = |row: Result<crate::Row, _>| row.unwrap();
    rows.map(row)
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn part(model: &Model, from: &[u8], to: Option<&[u8]>) -> Model {
    let mut part = model.clone();
    part.retain(|key, _| &key[..] >= from && to.is_none_or(|to| &key[..] < to));
    part
}

#[test]
fn writes_are_read_at_once_and_after_reopening() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        for _ in 0..3 {
            let database = open(dir.path());
            for _ in 0..40 {
                let batch = random_batch(&mut rng, &mut model);
                let more = random_batch(&mut rng, &mut model);
                let later = DeferredRows::new(100, move |batch| batch.append(more));
                let durable = rng.random_range(0..20) == 0;
                database.write_deferred(batch, later, durable).unwrap();
                if rng.random_range(0..10) == 0 {
                    database.flush().unwrap();
                }
                let (from, to) = (key(&mut rng), key(&mut rng));
                assert_eq!(
                    database.get(SEGMENT, &from).unwrap(),
                    model.get(&from).cloned()
                );
                let both = database.multi_get(SEGMENT, &[&from, &to]).unwrap();
                assert_eq!(both, [model.get(&from).cloned(), model.get(&to).cloned()]);
                let found = rows(database.range(SEGMENT, &from, Some(&to)));
                assert_eq!(found, part(&model, &from, Some(&to)));
            }
            assert_eq!(rows(database.prefix(SEGMENT, &[])), model);
        }
    }
}

#[test]
fn a_snapshot_does_not_change_when_batches_reach_the_engine() {
    let mut rng = StdRng::seed_from_u64(1);
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let mut model = Model::new();
    let mut snapshots = Vec::new();
    for round in 0..60 {
        database
            .write(random_batch(&mut rng, &mut model), false)
            .unwrap();
        if round % 7 == 0 {
            snapshots.push((database.snapshot(), model.clone()));
        }
        if round % 11 == 0 {
            database.flush().unwrap();
        }
    }
    for (snapshot, model) in &snapshots {
        assert_eq!(rows(snapshot.prefix(SEGMENT, &[])), *model);
        let from = key(&mut rng);
        assert_eq!(
            snapshot.get(SEGMENT, &from).unwrap(),
            model.get(&from).cloned()
        );
    }
}

#[test]
fn pending_batches_are_bounded_by_bytes_and_by_64() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::default()
    };
    let database = Database::open(dir.path(), &options).unwrap();
    let (limit, value) = (options.max_pending_bytes(), vec![7; 1 << 20]);
    for round in 0..40_u8 {
        database.wait_for_room().unwrap();
        database
            .write(put(SEGMENT, &[round], &value), false)
            .unwrap();
        assert!(database.pending_bytes() <= limit + value.len() + 1);
    }
    for round in 0..200_u8 {
        database
            .write(put(SEGMENT, &[round], b"small"), false)
            .unwrap();
        assert!(database.pending_batches() <= 64);
    }
    database.sync().unwrap();
    assert_eq!(
        (database.pending_bytes(), database.pending_batches()),
        (0, 0)
    );
    assert_eq!(rows(database.prefix(SEGMENT, &[])).len(), 200);
}

#[test]
fn on_ready_runs_once_after_the_batch_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    for database in [open(dir.path()), Database::in_memory().unwrap()] {
        let done = Arc::new(AtomicUsize::new(0));
        // Too small to be made ready early, and large enough.
        for (count, bytes) in [(1, 10), (2, 1 << 20)] {
            let later = DeferredRows::new(bytes, |batch| batch.put(SEGMENT, b"later", b"x"));
            let counter = Arc::clone(&done);
            let later = later.on_ready(move || {
                counter.fetch_add(1, Ordering::SeqCst);
            });
            let first = put(SEGMENT, b"first", b"x");
            database.write_deferred(first, later, false).unwrap();
            assert_eq!(rows(database.prefix(SEGMENT, &[])).len(), 2);
            database.flush().unwrap();
            assert_eq!(done.load(Ordering::SeqCst), count);
        }
    }
}

/// What round `round` leaves of key `key`: each round sets its own key and removes one of before.
fn of_round(round: u64, key: u64) -> Option<u64> {
    const KEYS: u64 = 50;
    let last = |first: u64| (first <= round).then(|| round - (round - first) % KEYS);
    let (set, removed) = (last(key), last((key + KEYS - 20) % KEYS));
    set.filter(|set| removed.is_none_or(|removed| removed < *set))
}

#[test]
fn snapshots_of_3_threads_see_their_own_round_of_600() {
    const ROUNDS: u64 = 600;
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let get = |snapshot: &crate::Snapshot, segment, key: u64| {
        let row = snapshot.get(segment, &key.to_be_bytes()).unwrap();
        row.map(|row| u64::from_be_bytes(row.try_into().unwrap()))
    };
    let compare = |snapshot: &crate::Snapshot| {
        let round = get(snapshot, Segment::Meta, 0);
        for key in 0..50 {
            let expected = round.and_then(|round| of_round(round, key));
            assert_eq!(
                get(snapshot, SEGMENT, key),
                expected,
                "key {key} in {round:?}"
            );
        }
        round
    };
    std::thread::scope(|scope| {
        for kept in [0, 1, 30] {
            let (database, compare) = (&database, &compare);
            scope.spawn(move || {
                let mut snapshots = std::collections::VecDeque::new();
                let mut last = None;
                while last.is_none_or(|round| round < ROUNDS - 1) {
                    snapshots.push_back(database.snapshot());
                    last = snapshots.iter().map(compare).max().flatten();
                    if snapshots.len() > kept {
                        snapshots.pop_front();
                    }
                }
            });
        }
        for round in 0..ROUNDS {
            let bytes = |number: u64| number.to_be_bytes();
            let mut batch = put(Segment::Meta, &bytes(0), &bytes(round));
            batch.delete(SEGMENT, &bytes((round + 20) % 50));
            let later = DeferredRows::new(16, move |batch| {
                batch.put(SEGMENT, &bytes(round % 50), &bytes(round));
            });
            database.write_deferred(batch, later, false).unwrap();
            if round % 200 == 150 {
                database.flush().unwrap();
            }
        }
    });
}
