//! Damaged files and a disk that can't be written: clear words, an exit code, and nothing made worse.

use crate::backup::files;
use crate::support::{Ended, HEAD, Place, chain_file};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place with the whole chain in tables.
fn place() -> Place {
    let place = Place::new();
    place.import(&chain_file()).succeeded();
    // An opening makes tables of what the log holds.
    place.checked_head();
    place
}

fn is_named(path: &Path, part: &str) -> bool {
    path.file_name().unwrap().to_str().unwrap().contains(part)
}

/// The files of the database that hold data: neither texts for people nor locks.
fn data_files(place: &Place) -> Vec<PathBuf> {
    let mut found = files(&place.data_path().join("database"));
    found.retain(|path| {
        let texts = ["LOG", "LOCK", "IDENTITY", "OPTIONS"];
        !texts.iter().any(|text| is_named(path, text))
    });
    found
}

#[test]
fn a_flipped_byte_in_any_table_is_reported_or_harmless() {
    let place = place();
    let whole = place.path("whole");
    std::fs::rename(place.data_path(), &whole).unwrap();
    let tables = files(&whole).into_iter();
    let tables: Vec<_> = tables.filter(|path| is_named(path, ".sst")).collect();
    assert!(tables.len() > 8, "{tables:?}");
    let mut told = 0;
    for table in tables {
        // Each time from the beginning: an opening may merge tables.
        for file in files(&whole) {
            let target = place.data_path().join(file.strip_prefix(&whole).unwrap());
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(file, target).unwrap();
        }
        let bytes = std::fs::read(&table).unwrap();
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 3] ^= 1;
        let copy = place.data_path().join(table.strip_prefix(&whole).unwrap());
        std::fs::write(&copy, &flipped).unwrap();
        let ended = place.run("storage check", &[]);
        if ended.code != Some(0) {
            let name = table.file_name().unwrap().to_str().unwrap();
            ended.failed(&["damaged", "storage restore", name]);
            std::fs::write(&copy, &bytes).unwrap();
            told += 1;
        }
        assert_eq!(place.checked_head().1, HEAD);
        std::fs::remove_dir_all(place.data_path()).unwrap();
    }
    assert!(told > 5, "{told}");
}

#[test]
fn a_damaged_manifest_is_reported_with_the_next_step_and_no_new_chain_is_created() {
    let place = place();
    let is_manifest = |path: &PathBuf| is_named(path, "MANIFEST");
    for part in ["MANIFEST", "CURRENT"] {
        let find = || {
            data_files(&place)
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
            let before = data_files(&place);
            match damage {
                Some(damage) => std::fs::write(&file, damage).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            for words in ["storage check", "storage repair", "storage backup --to x"] {
                place
                    .run(words, &[])
                    .failed(&["restore a backup", "open failed"]);
            }
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(data_files(&place), before);
        }
        assert_eq!(place.checked_head().1, HEAD);
        assert!(data_files(&place).iter().any(is_manifest));
    }
}

/// Runs a shell script in a name space of its own, in which it may mount; `None` if the system gives
/// none.
fn in_namespace(script: &str) -> Option<Ended> {
    let words = ["--user", "--map-root-user", "--mount", "bash", "-c", script];
    let output = Command::new("unshare").args(words).output().unwrap();
    let ended = Ended::of(&output);
    if output.status.code() == Some(77) || ended.errors.contains("unshare failed") {
        eprintln!(
            "skipped: this system gives no mount namespace: {}",
            ended.errors
        );
        return None;
    }
    Some(ended)
}

/// A command as a shell takes it.
fn quoted(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    words.join(" ")
}

#[test]
fn an_unwritable_data_path_is_named_and_unchanged() {
    let place = place();
    let data = place.data_path();
    let check = place.command("storage check", &[]);
    let file = chain_file();
    let import = place.command("blocks import --from", &[&file]);
    let script = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,ro,bind '{0}' || exit 77; {1}; echo \
         code=$?; {2}; echo code=$?",
        data.display(),
        quoted(&check),
        quoted(&import)
    );
    let Some(ended) = in_namespace(&script) else {
        return;
    };
    assert_eq!(ended.out.matches("code=1").count(), 2, "{ended:?}");
    assert_eq!(
        ended.errors.matches("make it writable").count(),
        2,
        "{ended:?}"
    );
    assert!(
        !ended.errors.contains("in use by another process"),
        "{ended:?}"
    );
    assert_eq!(place.checked_head().1, HEAD);
}

#[test]
fn damaged_tries_and_indices_are_repaired_and_damaged_values_refused() {
    use niwaki_storage::{Batch, Database, Options, Segment};
    let place = place();
    let damage = |segments: &[Segment]| {
        let database = Database::open(&place.data_path(), &Options::default()).unwrap();
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
    let bad = place.run("storage check", &[]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.out.contains("storage repair"), "{bad:?}");
    let bad = place.run("storage check --sample 20000", &[]);
    assert_eq!(bad.code, Some(1));
    assert!(bad.out.contains("problem: segment accounts"), "{bad:?}");
    let repaired = place.run("storage repair", &[]).succeeded();
    assert!(repaired.out.contains("2 trie rows"), "{repaired:?}");
    assert!(repaired.out.contains("no problems found"), "{repaired:?}");
    assert_eq!(place.checked_head().1, HEAD);
    let sampled = place.run("storage check --sample 100", &[]).succeeded();
    assert!(sampled.out.contains("checked 100 accounts"), "{sampled:?}");
    assert_eq!(sampled.head().1, HEAD);

    damage(&[Segment::Accounts]);
    let refused = place.run("storage repair", &[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["can't be made anew", "the head says", "storage restore"] {
        assert!(refused.out.contains(words), "no '{words}': {refused:?}");
    }
}
