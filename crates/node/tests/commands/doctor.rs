//! `niwaki doctor` on machines with something wrong.

use crate::support::{CommandResult, TestDir, chain_file};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const QUICK: &str = "doctor --json --disk-seconds 0 --ntp-server none";

/// What a check says: its grade, what it found, what is to be done.
#[track_caller]
fn finding(result: &CommandResult, check: &str) -> (String, String, String) {
    let findings: Vec<Value> = serde_json::from_str(&result.out).unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check} in {}", result.out));
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("grade"), text("found"), text("mend"))
}

#[track_caller]
fn assert_finding(result: &CommandResult, check: &str, grade: &str, word: &str) {
    let (given, found, mend) = finding(result, check);
    assert_eq!(given, grade, "{check}: {found}");
    assert!(found.contains(word), "{check}: {found}");
    let has_mend = matches!(grade, "warn" | "fail");
    assert_eq!(!mend.is_empty(), has_mend, "{check}: {mend}");
    let is_failed = grade == "fail";
    assert!(!is_failed || result.code == Some(1), "{result:?}");
}

#[test]
fn the_table_has_a_line_for_each_check_and_the_database_is_opened() {
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let result = dir.run(
        "--engine-rpc-enabled=false doctor --disk-seconds 0 --ntp-server none",
        &[],
    );
    for check in [
        "processor",
        "memory",
        "swap",
        "huge pages",
        "open files",
        "file system",
        "disk ",
        "free space",
        "engine secret",
        "node key",
        "address",
        "other programs",
        "ports",
        "clock",
        "database",
    ] {
        assert!(result.out.contains(check), "no {check} in {}", result.out);
    }
    assert!(result.out.contains("head 54"), "{}", result.out);
    assert!(result.out.lines().last().unwrap().contains(" passed, "));
}

#[test]
fn a_budget_above_the_machine_and_a_low_limit_of_files_fail() {
    let dir = TestDir::new();
    let command = dir.command(&format!("--memory-budget 64000G {QUICK}"), &[]);
    let mut limited = Command::new("sh");
    limited
        .env("NIWAKI_P2P_ENABLED", "false")
        .args(["-c", "ulimit -n 300; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    let result = CommandResult::of(&limited.output().unwrap());
    assert_finding(&result, "memory", "fail", "the budget is 64000.0");
    assert_finding(&result, "open files", "fail", "300 at most");
}

#[test]
fn a_port_that_is_taken_fails_and_names_the_flag() {
    let dir = TestDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let result = dir.run(
        &format!("--rpc-http-enabled --rpc-http-port {port} {QUICK}"),
        &[],
    );
    assert_finding(&result, "ports", "fail", "--rpc-http-port");
    assert!(finding(&result, "ports").2.contains("process"));
}

#[test]
fn a_secret_that_is_none_fails_and_one_that_all_can_read_warns() {
    let dir = TestDir::new();
    let path = dir.file("jwt.hex", b"abcd");
    let words = format!(
        "--engine-rpc-enabled --engine-jwt-secret {} {QUICK}",
        path.display()
    );
    assert_finding(
        &dir.run(&words, &[]),
        "engine secret",
        "fail",
        "64 hexadecimal digits",
    );
    std::fs::write(&path, "ab".repeat(32)).unwrap();
    for (mode, grade) in [(0o644, "warn"), (0o600, "pass")] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_finding(&dir.run(&words, &[]), "engine secret", grade, "jwt.hex");
    }
}

#[test]
fn a_data_path_in_memory_fails() {
    let shared = Path::new("/dev/shm");
    let Ok(folder) = tempfile::tempdir_in(shared) else {
        return; // No tmpfs, nothing to show.
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
    command
        .env("NIWAKI_P2P_ENABLED", "false")
        .arg("--data-path")
        .arg(folder.path());
    command.args(["--network", "dev"]).args(QUICK.split(' '));
    let result = CommandResult::of(&command.output().unwrap());
    assert_finding(&result, "file system", "fail", "tmpfs");
}

#[test]
fn a_damaged_database_fails_and_a_missing_one_does_not() {
    let dir = TestDir::new();
    assert_finding(&dir.run(QUICK, &[]), "database", "pass", "none yet");
    dir.import(&chain_file()).succeeded();
    let database = dir.data_path().join("database");
    for entry in std::fs::read_dir(&database).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
        {
            std::fs::write(path, b"no manifest").unwrap();
        }
    }
    assert_finding(&dir.run(QUICK, &[]), "database", "fail", "");
}

#[test]
fn the_disk_test_measures_and_leaves_nothing() {
    let dir = TestDir::new();
    std::fs::create_dir(dir.data_path()).unwrap();
    let result = dir.run("doctor --json --disk-seconds 1 --ntp-server none", &[]);
    let (_, found, _) = finding(&result, "disk speed");
    // Some file systems have no direct access: then it says so.
    assert!(
        found.contains("reads/s") || found.contains("not measured"),
        "{found}"
    );
    assert_eq!(std::fs::read_dir(dir.data_path()).unwrap().count(), 0);
}
