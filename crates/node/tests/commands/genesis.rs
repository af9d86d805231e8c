//! Large genesis files: loaded once, recognised afterwards, interrupted and killed while loading.

use crate::support::{CommandResult, TestDir, chain_file, growth, kill_at};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;
use std::process::{Command, Stdio};

/// More than is held in memory at once.
const LARGE: u32 = 90_000;

/// A folder with a genesis file of `accounts` accounts, every fourth with storage.
fn dir(accounts: u32) -> TestDir {
    let mut text =
        r#"{"config": {"chainId": 7, "londonBlock": 0}, "gasLimit": 1, "alloc": {"#.to_owned();
    for at in 0..accounts {
        let comma = if at == 0 { "" } else { "," };
        // Not sorted: the multiplier is odd, so the addresses are a permutation.
        let address = at.wrapping_mul(0x9e37_79b1);
        write!(text, "{comma}\n\"0x{address:040x}\": {{\"balance\": {at}").unwrap();
        if at % 4 == 0 {
            write!(text, ", \"storage\": {{\"0x1\": \"0x{:x}\"}}", at + 1).unwrap();
        }
        text.push('}');
    }
    text.push_str("}}");
    let mut dir = TestDir::new();
    dir.genesis = dir.file("genesis.json", text.as_bytes());
    dir
}

#[test]
fn a_head_check_creates_the_chain_and_opens_it_again() {
    for accounts in [0, 1, 2, 100, LARGE] {
        let dir = dir(accounts);
        let begun = dir.run("storage check --head-only", &[]).succeeded();
        for line in ["opened in", "peak memory", "agree"] {
            assert!(begun.out.contains(line), "{begun:?}");
        }
        let known = dir.run("storage check --head-only", &[]).succeeded();
        assert_eq!(known.head(), begun.head());
        assert_eq!(dir.checked_head(), begun.head());
    }
    let dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let result = dir.run("storage check --head-only", &[]).succeeded();
    assert_eq!(result.head().0, 54);
}

#[test]
fn a_built_in_network_has_its_genesis_hash() {
    let dir = TestDir::new();
    let run = |network: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
        command.arg("--data-path").arg(dir.data_path());
        command.args(["--network", network, "storage", "check", "--head-only"]);
        CommandResult::of(&command.output().unwrap())
    };
    for _ in 0..2 {
        let (number, hash) = run("mainnet").succeeded().head();
        assert_eq!((number, &hash[..10]), (0, "0xd4e56740"));
    }
    run("sepolia").failed(&["holds the chain with genesis", "--data-path"]);
}

#[test]
fn a_genesis_file_with_other_rules_for_blocks_that_are_there_is_refused() {
    let mut dir = TestDir::new();
    dir.import(&chain_file()).succeeded();
    let text = std::fs::read_to_string(&dir.genesis).unwrap();
    let given = |dir: &mut TestDir, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{from}");
        dir.genesis = dir.file("genesis.json", changed.as_bytes());
        dir.run("storage check --head-only", &[])
    };
    for (from, to, words) in [
        // Removed, so the next fork comes first; moved back; moved before the head.
        ("\"londonBlock\": 27,", "", "londonBlock was 27 and is 30"),
        (
            "\"londonBlock\": 27,",
            "\"londonBlock\": 26,",
            "londonBlock was 27 and is 26",
        ),
        (
            "\"osakaTime\": 480,",
            "\"osakaTime\": 481,",
            "osakaTime was 480 and is 481",
        ),
        ("\"bpo2Time\": 540,", "", "bpo2Time was 540 and is absent"),
        (
            "\"bpo2Time\": 540,",
            "\"bpo2Time\": 540, \"bpo3Time\": 540,",
            "bpo3Time was absent",
        ),
        (
            "3503995874084926",
            "3503995874084927",
            "chainId was 3503995874084926",
        ),
        (
            "4732352",
            "4732353",
            "terminalTotalDifficulty was 4732352 and is 4732353",
        ),
        (
            "\"target\": 10",
            "\"target\": 11",
            "blobSchedule was 10/15/8346193 and is 11/15",
        ),
        (
            "\"mergeNetsplitBlock\": 36,",
            "",
            "mergeNetsplitBlock was 36 and is absent",
        ),
    ] {
        let refused = given(&mut dir, from, to);
        refused.failed(&[words, "block 54", "--data-path"]);
    }
    // Future forks may move, and fields that geth does not compare may change.
    for (from, to) in [
        (
            "\"bpo2Time\": 540,",
            "\"bpo2Time\": 540, \"amsterdamTime\": 99999999,",
        ),
        (
            "\"ethash\": {},",
            "\"ethash\": {}, \"contractSizeLimit\": 30000,",
        ),
    ] {
        assert_eq!(given(&mut dir, from, to).succeeded().head().0, 54);
    }
    // The next file is compared with the last accepted one.
    dir.genesis = chain_file().with_file_name("genesis.json");
    dir.run("storage check", &[]).succeeded();
}

#[test]
fn a_chain_without_blocks_accepts_new_rules_for_the_same_genesis() {
    let mut dir = TestDir::new();
    let first = dir.run("storage check --head-only", &[]).succeeded();
    let text = std::fs::read_to_string(&dir.genesis).unwrap();
    let changed = text.replacen("\"londonBlock\": 27,", "\"londonBlock\": 28,", 1);
    assert_ne!(text, changed);
    dir.genesis = dir.file("genesis.json", changed.as_bytes());
    let then = dir.run("storage check --head-only", &[]).succeeded();
    assert_eq!(then.head(), first.head());
}

#[test]
fn the_genesis_state_hash_cache_flag_is_accepted_without_effect() {
    let dir = dir(3);
    for flag in ["", "=true", "=false"] {
        let words = format!("storage check --head-only --genesis-state-hash-cache-enabled{flag}");
        let result = dir.run(&words, &[]).succeeded();
        let is_note = |line: &&str| line.contains("--genesis-state-hash-cache-enabled");
        let notes = result.errors.lines().filter(is_note);
        assert_eq!(notes.count(), 1, "{result:?}");
        assert!(result.errors.contains("changes nothing"), "{result:?}");
    }
}

#[test]
fn a_stopped_genesis_import_starts_again() {
    // Many times more than is loaded before this test sees the folder.
    let dir = dir(20 * LARGE);
    let mut stopped = stop_while_loading(&dir);
    // On a busy machine the process may finish first.
    while stopped.code == Some(0) {
        std::fs::remove_dir_all(dir.data_path()).unwrap();
        stopped = stop_while_loading(&dir);
    }
    let result = stopped;
    assert_eq!(result.code, Some(130), "{result:?}");
    assert!(
        result.errors.contains("reads the genesis from the start"),
        "{result:?}"
    );
    let result = dir.run("storage check --head-only", &[]).succeeded();
    assert!(result.out.contains("agree"), "{result:?}");
}

/// Sends SIGINT to the process that loads the genesis of `dir` once it has started loading.
fn stop_while_loading(dir: &TestDir) -> CommandResult {
    let mut command = dir.command("storage check --head-only", &[]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The process creates the folder after it has installed its signal handler.
    while !dir.data_path().join("loading").exists() && child.try_wait().unwrap().is_none() {}
    let id = rustix::process::Pid::from_child(&child);
    // The process may have exited.
    let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
    CommandResult::of(&child.wait_with_output().unwrap())
}

#[test]
fn kills_during_genesis_import_lose_nothing() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let dir = dir(LARGE);
    let load = || dir.command("storage check --head-only", &[]);
    let whole = growth(&mut load(), &dir.data_path());
    let head = dir.run("storage check --head-only", &[]).succeeded().head();
    let (mut cut_short, mut rounds) = (0, 0);
    while cut_short < 30 {
        rounds += 1;
        assert!(
            rounds < 1_000,
            "genesis files are loaded before that can be cut short"
        );
        std::fs::remove_dir_all(dir.data_path()).unwrap();
        for _ in 0..2 {
            let bytes = random.random_range(1..=whole);
            kill_at(&mut load(), &dir.data_path(), bytes);
            cut_short += u32::from(dir.data_path().join("loading").exists());
        }
        let result = dir.run("storage check --head-only", &[]).succeeded();
        assert_eq!(result.head(), head);
        assert!(!dir.data_path().join("loading").exists());
        assert_eq!(dir.checked_head(), head);
    }
}
