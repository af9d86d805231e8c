//! What a database promises: order, atomicity, snapshots, and clear refusals.

use crate::{Batch, Database, OpenError, Options, SCHEMA_VERSION, Segment, SyncPolicy};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

mod disk;
mod options;
mod queue;
mod snapshots;

fn open(path: &Path) -> Database {
    Database::open(path, &Options::default()).unwrap()
}

fn put(segment: Segment, key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(segment, key, value);
    batch
}

fn keys(rows: crate::RowIter<'_>) -> Vec<Vec<u8>> {
    rows.map(|row| row.unwrap().0.to_vec()).collect()
}

/// Every file below `path` with its bytes, to see that nothing was touched.
fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn the_last_change_of_a_key_counts_and_segments_are_separate() {
    let database = Database::in_memory().unwrap();
    let mut batch = put(Segment::Accounts, b"a", b"1");
    batch.put(Segment::Slots, b"a", b"2");
    batch.put_parts(Segment::Slots, &[b"b", b"c"], &[b"3", b"", b"4"]);
    batch.delete(Segment::Accounts, b"a");
    batch.put(Segment::Accounts, b"z", b"");
    let mut more = Batch::new();
    more.put_with(Segment::Code, b"w", |out| out.extend_from_slice(b"56"));
    more.delete(Segment::Slots, b"x");
    batch.append(more);
    assert_eq!(batch.len(), 7);
    database.write(batch, false).unwrap();
    assert_eq!(database.get(Segment::Accounts, b"a").unwrap(), None);
    assert_eq!(database.get(Segment::Accounts, b"z").unwrap(), Some(vec![]));
    let code = database.get(Segment::Code, b"w").unwrap();
    assert_eq!(code.as_deref(), Some(&b"56"[..]));
    let values = database
        .multi_get(Segment::Slots, &[b"bc", b"x", b"a"])
        .unwrap();
    assert_eq!(values, [Some(b"34".to_vec()), None, Some(b"2".to_vec())]);
}

#[test]
fn ranges_and_prefixes_are_in_key_order_and_end_before_their_bound() {
    let database = Database::in_memory().unwrap();
    let mut batch = Batch::new();
    for key in [
        &[1_u8][..],
        &[1, 0],
        &[1, 255],
        &[1, 255, 255, 3],
        &[2],
        &[255, 255],
        &[255],
    ] {
        batch.put(Segment::AccountTrie, key, b"row");
    }
    database.write(batch, false).unwrap();
    let segment = Segment::AccountTrie;
    assert_eq!(
        keys(database.prefix(segment, &[1])),
        [&[1_u8][..], &[1, 0], &[1, 255], &[1, 255, 255, 3]]
    );
    assert_eq!(keys(database.prefix(segment, &[1, 255])).len(), 2);
    assert_eq!(keys(database.prefix(segment, &[255])).len(), 2);
    assert_eq!(keys(database.prefix(segment, &[])).len(), 7);
    assert_eq!(keys(database.range(segment, &[1, 1], Some(&[2]))).len(), 2);
    assert_eq!(keys(database.range(segment, &[2], None)).len(), 3);
}

#[test]
fn a_snapshot_does_not_see_later_writes() {
    let database = Database::in_memory().unwrap();
    database
        .write(put(Segment::Meta, b"k", b"old"), false)
        .unwrap();
    let snapshot = database.snapshot();
    let mut batch = put(Segment::Meta, b"k", b"new");
    batch.put(Segment::Meta, b"l", b"new");
    database.write(batch, false).unwrap();
    assert_eq!(
        snapshot.get(Segment::Meta, b"k").unwrap(),
        Some(b"old".to_vec())
    );
    let both = snapshot.multi_get(Segment::Meta, &[b"k", b"l"]).unwrap();
    assert_eq!(both, [Some(b"old".to_vec()), None]);
    assert_eq!(keys(snapshot.prefix(Segment::Meta, b"")), [b"k"]);
    assert_eq!(keys(snapshot.range(Segment::Meta, b"a", None)), [b"k"]);
    assert_eq!(keys(database.prefix(Segment::Meta, b"")).len(), 2);
}

#[test]
fn batches_written_without_a_sync_survive_closing() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5_u8 {
        let database = open(dir.path());
        for before in 0..round {
            assert!(database.get(Segment::Headers, &[before]).unwrap().is_some());
        }
        let durable = round % 2 == 1;
        database
            .write(put(Segment::Headers, &[round], &[7; 100]), durable)
            .unwrap();
    }
    let sync = SyncPolicy::EachCommit;
    let options = Options {
        sync,
        ..Options::default()
    };
    let database = Database::open(dir.path(), &options).unwrap();
    database
        .write(put(Segment::Headers, &[9], &[7; 100]), false)
        .unwrap();
    database.sync().unwrap();
    assert_eq!(keys(database.prefix(Segment::Headers, &[])).len(), 6);
    assert!(database.size_bytes(Segment::Headers).unwrap() > 100);
}

#[test]
fn a_log_cut_in_its_last_batch_loses_exactly_that_batch() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    for at in 0..3_u8 {
        let mut batch = put(Segment::Accounts, &[at], &[at; 500]);
        batch.put(Segment::Slots, &[at], &[at; 500]);
        database.write(batch, true).unwrap();
    }
    drop(database);
    let is_log = |path: &Path| path.extension().is_some_and(|e| e == "log");
    let (log, bytes) = files(dir.path())
        .into_iter()
        .filter(|(path, _)| is_log(path))
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    fs::write(log, &bytes[..bytes.len() - 600]).unwrap();
    let database = open(dir.path());
    for segment in [Segment::Accounts, Segment::Slots] {
        assert_eq!(keys(database.prefix(segment, &[])), [[0], [1]]);
    }
}

#[test]
fn a_second_opening_is_refused_and_names_the_path() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    first.write(put(Segment::Meta, b"k", b"v"), true).unwrap();
    let error = Database::open(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&dir.path().display().to_string())
    );
    drop(first);
    assert!(open(dir.path()).get(Segment::Meta, b"k").unwrap().is_some());
}

#[test]
fn another_schema_is_refused_and_no_file_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let next = SCHEMA_VERSION + 1;
    fs::write(
        dir.path().join("NIWAKI_FORMAT"),
        format!("niwaki-database {next}\n"),
    )
    .unwrap();
    let before = files(dir.path());
    let error = Database::open(dir.path(), &Options::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::OtherSchema { found, .. } if found == next),
        "{error}"
    );
    assert_eq!(files(dir.path()), before);
}

#[test]
fn a_foreign_directory_is_refused_and_no_file_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("database")).unwrap();
    fs::write(dir.path().join("database/CURRENT"), "MANIFEST-000001\n").unwrap();
    let before = files(dir.path());
    let error = Database::open(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    assert_eq!(files(dir.path()), before);
    for text in [
        &b"something else"[..],
        b"",
        b"niwaki-database x",
        b"\xff\xfe",
    ] {
        fs::write(dir.path().join("NIWAKI_FORMAT"), text).unwrap();
        let error = Database::open(dir.path(), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    }
}

#[test]
fn a_path_that_is_a_file_is_an_io_fault_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Database::open(&file, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
    assert!(matches!(error, OpenError::Fault(_)), "{error}");
}

#[test]
fn ingested_rows_read_like_written_ones_and_survive_closing() {
    let dir = tempfile::tempdir().unwrap();
    for database in [open(dir.path()), Database::in_memory().unwrap()] {
        let mut batch = Batch::new();
        for (segment, key, value) in [
            (Segment::Slots, b"b", b"1"),
            (Segment::Accounts, b"c", b"2"),
            (Segment::Slots, b"a", b"3"),
            (Segment::Slots, b"b", b"4"),
        ] {
            batch.put(segment, key, value);
        }
        database.ingest(batch).unwrap();
        // Over rows that are there already, in the log and in files.
        let change = put(Segment::Slots, b"a", b"5");
        database.write(change, false).unwrap();
        database.ingest(put(Segment::Slots, b"b", b"6")).unwrap();
        let slot = |key: &[u8]| database.get(Segment::Slots, key).unwrap().unwrap();
        assert_eq!((slot(b"a"), slot(b"b")), (b"5".to_vec(), b"6".to_vec()));
        assert_eq!(keys(database.prefix(Segment::Accounts, &[])), [b"c"]);
    }
    let database = open(dir.path());
    assert_eq!(keys(database.prefix(Segment::Slots, &[])), [b"a", b"b"]);
    database.remove_staging_dir().unwrap();
    database.remove_staging_dir().unwrap();
    assert!(!dir.path().join("loading").exists());
}

#[test]
fn tables_that_are_cut_where_others_lie_between_are_never_merged() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let rows = |keys: &[&[u8]]| {
        let mut batch = Batch::new();
        keys.iter()
            .for_each(|key| batch.put(Segment::Slots, key, key));
        batch
    };
    // The rows of the first call stand around those of the second and between those of the third.
    let cut = |key: &[u8]| (Segment::Slots, key.to_vec());
    let first = rows(&[b"a", b"b", b"f", b"g"]);
    let other_segment = (Segment::Accounts, b"b".to_vec());
    let cuts = [cut(b"z"), cut(b"c"), cut(b"c"), other_segment];
    database.ingest_cut(first, &cuts).unwrap();
    let second = rows(&[b"c", b"d", b"e"]);
    database.ingest_cut(second, &[cut(b"c")]).unwrap();
    let third = rows(&[b"0", b"h"]);
    database.ingest_cut(third, &[cut(b"h")]).unwrap();
    let mut files = database.engine.live_files().unwrap();
    files.retain(|file| file.column_family_name == Segment::Slots.name());
    assert_eq!(files.len(), 5);
    assert!(files.iter().all(|file| file.level > 0), "{files:?}");
    let all = keys(database.prefix(Segment::Slots, &[]));
    assert_eq!(all.concat(), b"0abcdefgh");
    drop(database);
    let staged = fs::read_dir(dir.path().join("loading")).unwrap();
    assert_eq!(staged.count(), 0);
}

#[test]
fn tables_made_beside_a_snapshot_are_not_written_again_when_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let tables = || {
        let files = database.engine.live_files().unwrap();
        let names = files.into_iter().map(|file| file.name);
        names.collect::<std::collections::BTreeSet<_>>()
    };
    database.ingest(put(Segment::Slots, b"a", b"1")).unwrap();
    let snapshot = database.snapshot();
    database.ingest(put(Segment::Accounts, b"b", b"1")).unwrap();
    // A table that a compaction makes of two, one of them newer than the snapshot.
    let slots = database.family(Segment::Slots);
    database
        .write(put(Segment::Slots, b"a", b"2"), false)
        .unwrap();
    database.flush().unwrap();
    database
        .engine
        .compact_range_cf(slots, None::<&[u8]>, None::<&[u8]>);
    let made = tables();
    assert_eq!(made.len(), 2);
    // The engine looks when a snapshot goes, at tables that are older than the last write.
    database
        .write(put(Segment::Bodies, b"1", b""), false)
        .unwrap();
    database.flush().unwrap();
    drop(snapshot);
    let options = rocksdb::WaitForCompactOptions::default();
    database.engine.wait_for_compact(&options).unwrap();
    assert_eq!(tables(), made);
}

#[test]
fn clearing_a_segment_removes_only_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    for key in [b"a", b"b"] {
        database.ingest(put(Segment::Slots, key, b"1")).unwrap();
    }
    let mut batch = put(Segment::Slots, &[0xff; 96], b"1");
    batch.put(Segment::Slots, b"", b"1");
    batch.put(Segment::Accounts, b"a", b"1");
    database.write(batch, false).unwrap();
    database.clear(Segment::Slots).unwrap();
    assert_eq!(keys(database.prefix(Segment::Slots, &[])).len(), 0);
    assert_eq!(keys(database.prefix(Segment::Accounts, &[])).len(), 1);
    // What is ingested afterwards lies above nothing.
    for key in [b"a", b"b"] {
        database.ingest(put(Segment::Slots, key, b"2")).unwrap();
    }
    let mut files = database.engine.live_files().unwrap();
    files.retain(|file| file.column_family_name == Segment::Slots.name());
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.iter().all(|file| file.level > 0), "{files:?}");
}

#[test]
fn the_fault_of_a_full_disk_says_to_free_space() {
    let text = "IO error: No space left on device: While appending to file";
    let fault = crate::fault::engine_fault("write batch", "all", text);
    assert!(fault.to_string().contains("free some space"), "{fault}");
}

#[test]
fn a_hundred_databases_in_memory_open_at_once() {
    let start = Instant::now();
    let databases: Vec<_> = (0..100).map(|_| Database::in_memory().unwrap()).collect();
    println!("{:?} for 100", start.elapsed());
    for (at, database) in (0_u8..).zip(&databases) {
        database
            .write(put(Segment::Meta, b"k", &[at]), false)
            .unwrap();
    }
    for (at, database) in (0_u8..).zip(&databases) {
        assert_eq!(database.get(Segment::Meta, b"k").unwrap(), Some(vec![at]));
    }
}

#[test]
fn a_database_without_its_current_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    database
        .write(put(Segment::Meta, b"k", b"v"), true)
        .unwrap();
    drop(database);
    let current = dir.path().join("database/CURRENT");
    let bytes = fs::read(&current).unwrap();
    fs::remove_file(&current).unwrap();
    let before = files(dir.path());
    let error = Database::open(dir.path(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("restore a backup"), "{error}");
    assert_eq!(files(dir.path()), before);
    fs::write(&current, bytes).unwrap();
    assert!(open(dir.path()).get(Segment::Meta, b"k").unwrap().is_some());
}
