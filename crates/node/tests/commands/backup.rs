//! Backups: create, restore, damaged, interrupted.

use crate::support::{CommandResult, HEAD, TestDir, chain_file, genesis_file};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a command on another data path `name` in `dir`.
fn run(dir: &TestDir, name: &str, words: &str, files: &[&Path]) -> CommandResult {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
    command.arg("--data-path").arg(dir.path(name));
    command.arg("--genesis-file").arg(genesis_file());
    command.args(words.split_whitespace()).args(files);
    CommandResult::of(&command.output().unwrap())
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
    let dir = TestDir::new();
    let folder = dir.path("backups");
    let to = |words: &str| dir.run(&format!("storage backup {words} --to"), &[&folder]);
    for end in [11, 31, 55] {
        let import = format!("blocks import --end-block {end} --from");
        dir.run(&import, &[&chain_file()]).succeeded();
        assert_eq!(to("").succeeded().head().0, end - 1);
    }
    let mut heads = Vec::new();
    for id in 1..=3 {
        let restore = format!("storage restore --backup {id} --from");
        let name = format!("data-{id}");
        let result = run(&dir, &name, &restore, &[&folder]).succeeded();
        heads.push(result.head().0);
        let check = run(&dir, &name, "storage check", &[]).succeeded();
        assert!(check.out.contains("no problems found"), "{check:?}");
        assert_eq!(check.head(), result.head());
        let import = run(&dir, &name, "blocks import --from", &[&chain_file()]);
        assert_eq!(import.succeeded().head().1, HEAD);
    }
    assert_eq!(heads, [10, 30, 54]);

    let kept = to("--keep 2").succeeded();
    assert!(kept.out.contains("the folder has 3, 4"), "{kept:?}");
    let restore = "storage restore --backup 1 --from";
    run(&dir, "x", restore, &[&folder]).failed(&["no backup 1", "3, 4"]);
    run(&dir, "data-1", "storage restore --from", &[&folder]).failed(&["already", "--data-path"]);
    run(&dir, "x", "storage restore --from", &[&dir.path("none")])
        .failed(&["not a folder of backups"]);
    assert!(!dir.path("x").join("database").exists());
}

#[test]
fn a_damaged_backup_is_refused_with_its_number_and_what_to_do() {
    let dir = TestDir::new();
    let folder = dir.path("backups");
    for end in [20, 55] {
        let import = format!("blocks import --end-block {end} --from");
        dir.run(&import, &[&chain_file()]).succeeded();
        dir.run("storage backup --to", &[&folder]).succeeded();
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
        run(&dir, "other", "storage restore --from", &[&folder]).failed(&[
            "backup 2",
            "damaged",
            "nothing was restored",
            "--backup",
        ]);
        assert!(!dir.path("other").join("database").exists());
    }
    // The older backup is intact.
    let older = run(
        &dir,
        "other",
        "storage restore --backup 1 --from",
        &[&folder],
    );
    assert_eq!(older.succeeded().head().0, 19);
}

#[test]
fn a_backup_without_space_leaves_older_backups_intact() {
    let dir = TestDir::new();
    let folder = dir.path("backups");
    dir.run("blocks import --end-block 20 --from", &[&chain_file()])
        .succeeded();
    dir.run("storage backup --to", &[&folder]).succeeded();
    dir.import(&chain_file()).succeeded();
    // The tables exist already; only their copies meet the limit.
    dir.checked_head();
    let command = dir.command("storage backup --to", &[&folder]);
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    // Files of at most 8 KiB; SIGXFSZ is ignored, so writing more is an error.
    let script = format!("trap '' XFSZ && ulimit -f 8 && exec {}", words.join(" "));
    let limited = Command::new("bash").args(["-c", &script]).output().unwrap();
    CommandResult::of(&limited).failed(&["File too large"]);
    let older = run(&dir, "older", "storage restore --from", &[&folder]);
    assert_eq!(older.succeeded().head().0, 19);
    assert_eq!(dir.checked_head().1, HEAD);
    let again = dir.run("storage backup --to", &[&folder]).succeeded();
    assert_eq!(again.head().1, HEAD);
    run(&dir, "newer", "storage restore --from", &[&folder]).succeeded();
}
