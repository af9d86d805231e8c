//! Backups are whole, share what they can, and are refused where they are damaged.

use super::*;
use crate::{Batch, Options, Segment};
use std::ops::Range;

const OF: &str = "the chain 0x01";

fn open(path: &Path) -> Database {
    Database::open(path, &Options::default()).unwrap()
}

/// Writes `rows`, of `bytes` each, to two segments.
fn fill(database: &Database, rows: Range<u32>, bytes: usize) {
    for at in rows {
        let mut batch = Batch::new();
        // Of each row its own bytes, so that nothing can stand for anything else.
        let value: Vec<u8> = (at..).flat_map(u32::to_be_bytes).take(bytes).collect();
        batch.put(Segment::Accounts, &at.to_be_bytes(), &value);
        batch.put(Segment::Code, &at.to_be_bytes(), &value);
        database.write(batch, false).unwrap();
    }
}

fn dump(database: &Database) -> Vec<(Segment, crate::Row)> {
    let rows = |segment| {
        let rows = database.prefix(segment, &[]);
        rows.map(move |row| (segment, row.unwrap()))
    };
    Segment::ALL.into_iter().flat_map(rows).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(file, target).unwrap();
    }
}

#[test]
fn each_backup_restores_its_own_state_and_shares_unchanged_files() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    fill(&database, 0..300, 2000);
    let first = database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let at_first = dump(&database);
    assert_eq!((first.backup.id, first.backups.len()), (1, 1));
    assert!(first.added_bytes > 600_000, "{first:?}");
    assert_eq!(first.added_bytes, first.backup.bytes);

    // As a backup that was cut short leaves it; it does not count as bytes that were there.
    let left = folder.join("backups/shared_checksum/999999_s0_1000000.sst");
    fs::write(&left, vec![0; 1_000_000]).unwrap();
    fill(&database, 300..301, 2000);
    let second = database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let at_second = dump(&database);
    assert_eq!(second.backup.id, 2);
    assert!(second.backup.bytes > first.backup.bytes, "{second:?}");
    assert!(second.added_bytes < first.added_bytes / 4, "{second:?}");
    assert!(second.added_bytes > 0 && !left.exists(), "{second:?}");
    // What is written after a backup is not in it.
    fill(&database, 301..302, 2000);

    for (id, expected) in [
        (Some(1), &at_first),
        (Some(2), &at_second),
        (None, &at_second),
    ] {
        let target = dir.path().join(format!("restored-{id:?}"));
        let backup = restore(&folder, &target, id, &mut |_, _| true).unwrap();
        assert_eq!(backup.id, id.unwrap_or(2));
        assert!(dump(&open(&target)) == *expected);
        assert!(!target.join("restoring").exists());
        let error = restore(&folder, &target, id, &mut |_, _| true).unwrap_err();
        assert!(matches!(error, BackupError::NotEmpty { .. }), "{error}");
    }
    let error = restore(&folder, &dir.path().join("other"), Some(7), &mut |_, _| {
        true
    })
    .unwrap_err();
    assert!(
        error.to_string().contains("no backup 7; it has 1, 2"),
        "{error}"
    );
}

#[test]
fn keep_removes_the_oldest_backups() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    for at in 0..4 {
        fill(&database, at..at + 1, 1000);
        let made = database
            .backup(&folder, OF, Some(2), &mut |_, _| true)
            .unwrap();
        let ids: Vec<_> = made.backups.iter().map(|backup| backup.id).collect();
        assert_eq!(ids, if at == 0 { vec![1] } else { vec![at, at + 1] });
    }
    let expected = dump(&database);
    drop(database);
    // A folder of backups is the same to a database that was restored or moved.
    let database = open(&data);
    assert_eq!(
        database
            .backup(&folder, OF, Some(0), &mut |_, _| true)
            .unwrap()
            .backups
            .len(),
        1
    );
    let target = dir.path().join("restored");
    restore(&folder, &target, None, &mut |_, _| true).unwrap();
    assert!(dump(&open(&target)) == expected);
}

#[test]
fn a_backup_with_a_damaged_byte_is_refused_or_restores_correctly() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    fill(&database, 0..20, 500);
    database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let at_first = dump(&database);
    fill(&database, 20..40, 500);
    database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let expected = dump(&database);

    let (mut refused, mut whole) = (0, 0);
    for file in files(&folder) {
        let name = file.strip_prefix(&folder).unwrap();
        for damage in ["flip", "cut", "remove"] {
            let damaged = dir.path().join("damaged");
            copy(&folder, &damaged);
            let target = damaged.join(name);
            let mut bytes = fs::read(&target).unwrap();
            let middle = bytes.len() / 2;
            match damage {
                "flip" if bytes.is_empty() => continue,
                "flip" => {
                    bytes[middle] ^= 1;
                    fs::write(&target, bytes).unwrap();
                }
                "cut" => fs::write(&target, &bytes[..middle]).unwrap(),
                _ => fs::remove_file(&target).unwrap(),
            }
            let restored = dir.path().join("restored");
            match restore(&damaged, &restored, None, &mut |_, _| true) {
                Ok(backup) => {
                    // Only where the file is not one of the backup, or the latest one is gone whole.
                    let rows = dump(&open(&restored));
                    let is_right = match backup.id {
                        2 => rows == expected,
                        _ => rows == at_first && name.ends_with("meta/2"),
                    };
                    assert!(is_right, "{damage} {}", name.display());
                    whole += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("damaged") || text.contains("not a folder of backups"),
                        "{damage} {}: {text}",
                        name.display()
                    );
                    assert!(!restored.join("database").exists());
                    refused += 1;
                }
            }
            for folder in [&damaged, &restored] {
                if folder.exists() {
                    fs::remove_dir_all(folder).unwrap();
                }
            }
        }
    }
    println!("{refused} refused, {whole} restored");
    assert!(refused > 15);
}

#[test]
fn an_interrupted_backup_or_restore_leaves_older_backups_intact() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    fill(&database, 0..20, 500);
    database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let expected = dump(&database);
    // What a process leaves that dies before the backup counts.
    let engine = folder.join("backups");
    fs::create_dir_all(engine.join("private/2")).unwrap();
    fs::write(engine.join("private/2/MANIFEST-000009"), "half").unwrap();
    fs::write(engine.join("shared_checksum/000099_s1_9.sst"), "half").unwrap();
    fs::write(engine.join("meta/2.tmp"), "half").unwrap();
    // And one that dies while it restores.
    let target = dir.path().join("restored");
    fs::create_dir_all(target.join("restoring/database")).unwrap();
    fs::write(target.join("restoring/database/000001.sst"), "half").unwrap();
    fs::create_dir_all(target.join("database")).unwrap();
    fs::write(target.join("database/000001.sst"), "half").unwrap();
    restore(&folder, &target, None, &mut |_, _| true).unwrap();
    assert!(dump(&open(&target)) == expected);

    fill(&database, 20..30, 500);
    let made = database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    assert_eq!(made.backups.len(), 2);
    assert!(!engine.join("shared_checksum/000099_s1_9.sst").exists());
    for id in [1, 2] {
        restore(
            &folder,
            &dir.path().join(format!("{id}")),
            Some(id),
            &mut |_, _| true,
        )
        .unwrap();
    }
}

#[test]
fn a_foreign_backup_folder_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("letter"), "dear").unwrap();
    let error = database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap_err();
    assert!(matches!(error, BackupError::NotOurs { .. }), "{error}");
    assert_eq!(files(&folder).len(), 1);
    fs::remove_file(folder.join("letter")).unwrap();
    let error = restore(&folder, &dir.path().join("x"), None, &mut |_, _| true).unwrap_err();
    assert!(matches!(error, BackupError::NotOurs { .. }), "{error}");

    database
        .backup(&folder, OF, None, &mut |_, _| true)
        .unwrap();
    let error = database
        .backup(&folder, "the chain 0x02", None, &mut |_, _| true)
        .unwrap_err();
    assert!(matches!(error, BackupError::OfAnother { .. }), "{error}");
    let next = SCHEMA_VERSION + 1;
    fs::write(
        folder.join("NIWAKI_BACKUP"),
        format!("niwaki-backup 1 {next} {OF}\n"),
    )
    .unwrap();
    let error = restore(&folder, &dir.path().join("x"), None, &mut |_, _| true).unwrap_err();
    assert!(
        matches!(error, BackupError::OtherSchema { found, .. } if found == next),
        "{error}"
    );
}

#[test]
fn a_backup_during_writes_has_only_whole_batches() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    fill(&database, 0..50, 500);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| fill(&database, 50..4000, 500));
        while !writer.is_finished() {
            database
                .backup(&folder, OF, Some(3), &mut |_, _| true)
                .unwrap();
        }
    });
    let made = database
        .backup(&folder, OF, Some(3), &mut |_, _| true)
        .unwrap();
    for backup in made.backups {
        let target = dir.path().join(format!("{}", backup.id));
        restore(&folder, &target, Some(backup.id), &mut |_, _| true).unwrap();
        let database = open(&target);
        let keys = |segment| -> Vec<_> {
            let rows = database.prefix(segment, &[]);
            rows.map(|row| row.unwrap().0).collect()
        };
        let (accounts, codes) = (keys(Segment::Accounts), keys(Segment::Code));
        assert!(accounts.len() >= 50 && accounts == codes);
        let last = u32::try_from(accounts.len() - 1).unwrap();
        assert_eq!(*accounts[accounts.len() - 1], last.to_be_bytes());
    }
}

#[test]
fn a_stopped_backup_or_restore_changes_nothing_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let (data, folder) = (dir.path().join("data"), dir.path().join("backups"));
    let database = open(&data);
    let mut totals = Vec::new();
    for (id, rows) in [(1, 0..300), (2, 300..301)] {
        fill(&database, rows, 2000);
        let error = database
            .backup(&folder, OF, None, &mut |_, _| false)
            .unwrap_err();
        assert!(matches!(error, BackupError::Stopped), "{error}");
        let mut first = None;
        let mut report = |done, of| {
            first.get_or_insert((done, of));
            true
        };
        let made = database.backup(&folder, OF, None, &mut report).unwrap();
        assert_eq!((made.backup.id, made.backups.len()), (id, id as usize));
        let (done, of) = first.unwrap();
        assert_eq!(done, 0);
        totals.push(of);
    }
    // All of the first, and of the second only what the first has not.
    assert!(totals[0] > 600_000, "{totals:?}");
    assert!(0 < totals[1] && totals[1] < totals[0] / 4, "{totals:?}");

    let target = dir.path().join("restored");
    let error = restore(&folder, &target, None, &mut |_, _| false).unwrap_err();
    assert!(matches!(error, BackupError::Stopped), "{error}");
    assert!(!crate::is_data_path(&target).unwrap());
    let mut total = 0;
    let mut report = |_, of| {
        total = of;
        true
    };
    let backup = restore(&folder, &target, None, &mut report).unwrap();
    assert_eq!((backup.id, total), (2, backup.bytes));
    assert!(dump(&open(&target)) == dump(&database));
}
