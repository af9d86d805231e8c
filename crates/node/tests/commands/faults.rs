//! Damaged files and unwritable disks: clear messages, an exit code, and no further damage.

use crate::backup::files;
use crate::support::{CommandResult, HEAD, TestDir, chain_file};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with the whole chain in SST files.
fn dir() -> TestDir {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    // Opening the database flushes its write-ahead log into SST files.
    dir.checked_head();
    dir
}

fn is_named(path: &Path, part: &str) -> bool {
    path.file_name().unwrap().to_str().unwrap().contains(part)
}

/// The database files that hold data: neither logs nor locks.
fn data_files(dir: &TestDir) -> Vec<PathBuf> {
    let mut found = files(&dir.data_path().join("database"));
    found.retain(|path| {
        let texts = ["LOG", "LOCK", "IDENTITY", "OPTIONS"];
        !texts.iter().any(|text| is_named(path, text))
    });
    found
}

#[test]
fn a_flipped_byte_in_any_table_is_reported_or_harmless() {
    let dir = dir();
    let whole = dir.path("whole");
    std::fs::rename(dir.data_path(), &whole).unwrap();
    let tables = files(&whole).into_iter();
    let tables: Vec<_> = tables.filter(|path| is_named(path, ".sst")).collect();
    assert!(tables.len() > 8, "{tables:?}");
    let mut told = 0;
    for table in tables {
        // A fresh copy each time: opening may compact the files.
        for file in files(&whole) {
            let target = dir.data_path().join(file.strip_prefix(&whole).unwrap());
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(file, target).unwrap();
        }
        let bytes = std::fs::read(&table).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 3] ^= 1;
        let copy = dir.data_path().join(table.strip_prefix(&whole).unwrap());
        std::fs::write(&copy, &flipped).unwrap();
        let result = dir.run("storage check", &[]);
        if result.code != Some(0) {
            let name = table.file_name().unwrap().to_str().unwrap();
            result.failed(&["damaged", "storage restore", name]);
            std::fs::write(&copy, &bytes).unwrap();
            told += 1;
        }
        assert_eq!(dir.checked_head().1, HEAD);
        std::fs::remove_dir_all(dir.data_path()).unwrap();
    }
    assert!(told > 5, "{told}");
}

#[test]
fn a_damaged_manifest_is_reported_with_the_next_step_and_no_new_chain_is_created() {
    let dir = dir();
    let is_manifest = |path: &PathBuf| is_named(path, "MANIFEST");
    for part in ["MANIFEST", "CURRENT"] {
        let find = || {
            data_files(&dir)
                .into_iter()
                .rfind(|path| is_named(path, part))
        };
        let file = find().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x55;
        for damage in [Some(&flipped[..]), Some(b"garbage"), None] {
            if part == "CURRENT" && damage.is_some_and(|bytes| bytes == b"garbage") {
                continue;
            }
            let before = data_files(&dir);
            match damage {
                Some(damage) => std::fs::write(&file, damage).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            for words in ["storage check", "storage repair", "storage backup --to x"] {
                dir.run(words, &[])
                    .failed(&["restore a backup", "open failed"]);
            }
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(data_files(&dir), before);
        }
        assert_eq!(dir.checked_head().1, HEAD);
        assert!(data_files(&dir).iter().any(is_manifest));
    }
}

/// Runs a shell script in a mount namespace; `None` if the system does not allow that.
fn in_namespace(script: &str) -> Option<CommandResult> {
    let words = ["--user", "--map-root-user", "--mount", "bash", "-c", script];
    let output = Command::new("unshare").args(words).output().unwrap();
    let result = CommandResult::of(&output);
    if output.status.code() == Some(77) || result.errors.contains("unshare failed") {
        eprintln!(
            "skipped: this system gives no mount namespace: {}",
            result.errors
        );
        return None;
    }
    Some(result)
}

/// A command quoted for a shell.
fn quoted(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    words.join(" ")
}

#[test]
fn an_unwritable_data_path_is_named_and_unchanged() {
    let dir = dir();
    let data = dir.data_path();
    let check = dir.command("storage check", &[]);
    let file = chain_file();
    let import = dir.command("blocks import --from", &[&file]);
    let script = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}' || exit 77; {1}; echo \
         code=$?; {2}; echo code=$?",
        data.display(),
        quoted(&check),
        quoted(&import)
    );
    let Some(result) = in_namespace(&script) else {
        return;
    };
    assert_eq!(result.out.matches("code=1").count(), 2, "{result:?}");
    assert_eq!(
        result.errors.matches("make it writable").count(),
        2,
        "{result:?}"
    );
    assert!(
        !result.errors.contains("in use by another process"),
        "{result:?}"
    );
    assert_eq!(dir.checked_head().1, HEAD);
}

#[test]
fn damaged_tries_and_indices_are_repaired_and_damaged_values_refused() {
    use niwaki_storage::{Batch, Database, Options, Segment};
    let dir = dir();
    let damage = |segments: &[Segment]| {
        let database = Database::open(&dir.data_path(), &Options::default()).unwrap();
        let mut batch = Batch::new();
        for segment in segments {
            let (key, value) = database.prefix(*segment, &[]).nth(5).unwrap().unwrap();
            let mut value = value.to_vec();
            *value.last_mut().unwrap() ^= 1;
            batch.put(*segment, &key, &value);
        }
        database.write(batch, true).unwrap();
    };
    damage(&[
        Segment::AccountTrie,
        Segment::StorageTrie,
        Segment::Canonical,
        Segment::Numbers,
        Segment::Transactions,
    ]);
    let bad = dir.run("storage check", &[]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.out.contains("storage repair"), "{bad:?}");
    let bad = dir.run("storage check --sample 20000", &[]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.out.contains("problem: segment accounts"), "{bad:?}");
    let repaired = dir.run("storage repair", &[]).succeeded();
    assert!(repaired.out.contains("2 trie rows"), "{repaired:?}");
    assert!(repaired.out.contains("no problems found"), "{repaired:?}");
    assert_eq!(dir.checked_head().1, HEAD);
    let sampled = dir.run("storage check --sample 100", &[]).succeeded();
    assert!(sampled.out.contains("checked 100 accounts"), "{sampled:?}");
    assert_eq!(sampled.head().1, HEAD);

    damage(&[Segment::Accounts]);
    let refused = dir.run("storage repair", &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["can't be rebuilt", "the head says", "storage restore"] {
        assert!(refused.out.contains(words), "no '{words}': {refused:?}");
    }
}
