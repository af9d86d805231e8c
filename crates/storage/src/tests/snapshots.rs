//! What a snapshot keeps: its moment, the engine below it, and no more memory than promised.

use super::*;
use crate::{BackupError, Snapshot, restore};
use std::sync::mpsc::channel;
use std::thread;

fn value(snapshot: &Snapshot, key: &[u8]) -> Option<Vec<u8>> {
    snapshot.get(Segment::Slots, key).unwrap()
}

#[test]
fn a_snapshot_outlives_its_database_on_another_thread() {
    let dir = tempfile::tempdir().unwrap();
    for on_disk in [true, false] {
        let database = match on_disk {
            true => open(dir.path()),
            false => Database::in_memory().unwrap(),
        };
        let write = |key: &[u8], value| {
            let batch = put(Segment::Slots, key, value);
            database.write(batch, false).unwrap();
        };
        write(b"engine", b"1");
        database.flush().unwrap();
        write(b"waiting", b"2");
        let snapshot = database.snapshot();
        write(b"engine", b"3");
        write(b"waiting", b"4");
        let (closed, when_closed) = channel();
        let reader = thread::spawn(move || {
            when_closed.recv().unwrap();
            let both = (value(&snapshot, b"engine"), value(&snapshot, b"waiting"));
            assert_eq!(both, (Some(b"1".to_vec()), Some(b"2".to_vec())));
            assert_eq!(keys(snapshot.prefix(Segment::Slots, &[])).len(), 2);
            snapshot
        });
        drop(database);
        closed.send(()).unwrap();
        drop(reader.join().unwrap());
    }
    let database = open(dir.path());
    let last = database.get(Segment::Slots, b"waiting").unwrap();
    assert_eq!(last, Some(b"4".to_vec()), "it was written by the closing");
}

#[test]
fn a_data_path_stays_in_use_until_its_last_snapshot_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let backups = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let write = || database.write(put(Segment::Slots, b"k", b"v"), false);
    write().unwrap();
    database
        .backup(backups.path(), "a test", None, &mut |_, _| true)
        .unwrap();
    let first = database.snapshot();
    let last = first.clone();
    drop(database);
    for snapshot in [first, last] {
        let error = Database::open(dir.path(), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        let error = restore(backups.path(), dir.path(), None, &mut |_, _| true).unwrap_err();
        assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
        assert_eq!(value(&snapshot, b"k"), Some(b"v".to_vec()));
    }
    assert!(
        open(dir.path())
            .get(Segment::Slots, b"k")
            .unwrap()
            .is_some()
    );
}

#[test]
fn clones_count_as_one_snapshot_until_the_last_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    for database in [open(dir.path()), Database::in_memory().unwrap()] {
        let living = || database.live_snapshots().unwrap();
        assert_eq!(living(), 0);
        let first = database.snapshot();
        let clone = first.clone();
        assert_eq!(living(), 1);
        let other = database.snapshot();
        assert_eq!(living(), 2);
        drop(first);
        assert_eq!(living(), 2);
        drop(clone);
        assert_eq!(living(), 1);
        drop(other);
        assert_eq!(living(), 0);
    }
}

#[test]
fn bytes_pinned_by_snapshots_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_budget_bytes: 16 << 20,
        ..Options::default()
    };
    let database = Database::open(dir.path(), &options).unwrap();
    let (limit, value) = (options.max_pending_bytes(), vec![7; 1 << 20]);
    let mut snapshots = Vec::new();
    for round in 0..60_u8 {
        let mut batch = put(Segment::Slots, &[round], &value);
        batch.put(Segment::Meta, b"round", &[round]);
        database.write(batch, false).unwrap();
        snapshots.push(database.snapshot());
        // A batch that was just written may still be in memory.
        let group = limit + value.len() + 100;
        let pinned = database.pinned_bytes();
        assert!(pinned <= 2 * limit + group, "{pinned} after {round}");
    }
    for (round, snapshot) in (0_u8..).zip(&snapshots) {
        let seen = snapshot.get(Segment::Meta, b"round").unwrap();
        assert_eq!(seen, Some(vec![round]));
        assert_eq!(
            keys(snapshot.prefix(Segment::Slots, &[])).len(),
            usize::from(round) + 1
        );
    }
    drop(snapshots);
    database
        .write(put(Segment::Meta, b"k", b"v"), false)
        .unwrap();
    database.flush().unwrap();
    assert!(database.pinned_bytes() <= 2, "of the last batch");
}
