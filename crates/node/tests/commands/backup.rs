//! Backups made, restored, damaged, and cut short.

use crate::support::{Ended, HEAD, Place, chain_file, genesis_file};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command on the data path `name` beside that of `place`.
fn run(place: &Place, name: &str, words: &str, files: &[&Path]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
    command.arg("--data-path").arg(place.path(name));
    command.arg("--genesis-file").arg(genesis_file());
    command.args(words.split_whitespace()).args(files);
    Ended::of(&command.output().unwrap())
}

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
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

#[test]
fn restored_backups_have_their_heads_and_continue() {
    let place = Place::new();
    let folder = place.path("backups");
    let to = |words: &str| place.run(&format!("storage backup {words} --to"), &[&folder]);
    for end in [11, 31, 55] {
        let import = format!("blocks import --end-block {end} --from");
        place.run(&import, &[&chain_file()]).succeeded();
        assert_eq!(to("").succeeded().head().0, end - 1);
    }
    let mut heads = Vec::new();
    for id in 1..=3 {
        let restore = format!("storage restore --backup {id} --from");
        let name = format!("data-{id}");
        let ended = run(&place, &name, &restore, &[&folder]).succeeded();
        heads.push(ended.head().0);
        let check = run(&place, &name, "storage check", &[]).succeeded();
        assert!(check.out.contains("no problems found"), "{check:?}");
        assert_eq!(check.head(), ended.head());
        let import = run(&place, &name, "blocks import --from", &[&chain_file()]);
        assert_eq!(import.succeeded().head().1, HEAD);
    }
    assert_eq!(heads, [10, 30, 54]);

    let kept = to("--keep 2").succeeded();
    assert!(kept.out.contains("the folder has 3, 4"), "{kept:?}");
    let restore = "storage restore --backup 1 --from";
    run(&place, "x", restore, &[&folder]).failed(&["no backup 1", "3, 4"]);
    run(&place, "data-1", "storage restore --from", &[&folder]).failed(&["already", "--data-path"]);
    run(
        &place,
        "x",
        "storage restore --from",
        &[&place.path("none")],
    )
    .failed(&["not a folder of backups"]);
    assert!(!place.path("x").join("database").exists());
}

#[test]
fn a_damaged_backup_is_refused_with_its_number_and_what_to_do() {
    let place = Place::new();
    let folder = place.path("backups");
    for end in [20, 55] {
        let import = format!("blocks import --end-block {end} --from");
        place.run(&import, &[&chain_file()]).succeeded();
        place.run("storage backup --to", &[&folder]).succeeded();
    }
    let is_table = |path: &PathBuf| path.extension().is_some_and(|e| e == "sst");
    let table = files(&folder).into_iter().rfind(is_table).unwrap();
    let bytes = std::fs::read(&table).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for damaged in [Some(&flipped[..]), Some(&bytes[..100]), None] {
        match damaged {
            Some(damaged) => std::fs::write(&table, damaged).unwrap(),
            None => std::fs::remove_file(&table).unwrap(),
        }
        run(&place, "other", "storage restore --from", &[&folder]).failed(&[
            "backup 2",
            "damaged",
            "nothing was restored",
            "--backup",
        ]);
        assert!(!place.path("other").join("database").exists());
    }
    // The older one is as good as it was.
    let older = run(
        &place,
        "other",
        "storage restore --backup 1 --from",
        &[&folder],
    );
    assert_eq!(older.succeeded().head().0, 19);
}

#[test]
fn a_backup_without_space_leaves_older_backups_intact() {
    let place = Place::new();
    let folder = place.path("backups");
    place
        .run("blocks import --end-block 20 --from", &[&chain_file()])
        .succeeded();
    place.run("storage backup --to", &[&folder]).succeeded();
    place.import(&chain_file()).succeeded();
    // Tables are made before; only what is copied meets the limit.
    place.checked_head();
    let command = place.command("storage backup --to", &[&folder]);
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    // Files of at most 8 KiB, and the signal for more turned into an error.
    let script = format!("trap '' XFSZ && ulimit -f 8 && exec {}", words.join(" "));
    let limited = Command::new("bash").args(["-c", &script]).output().unwrap();
    Ended::of(&limited).failed(&["File too large"]);
    let older = run(&place, "older", "storage restore --from", &[&folder]);
    assert_eq!(older.succeeded().head().0, 19);
    assert_eq!(place.checked_head().1, HEAD);
    let again = place.run("storage backup --to", &[&folder]).succeeded();
    assert_eq!(again.head().1, HEAD);
    run(&place, "newer", "storage restore --from", &[&folder]).succeeded();
}
