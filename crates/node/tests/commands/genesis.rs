//! Large genesis files: begun once, known afterwards, stopped and killed on the way.

use crate::support::{Ended, Place, chain_file, growth, kill_at};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;
use std::process::{Command, Stdio};

/// More than is read into memory.
const LARGE: u32 = 90_000;

/// A place with a genesis file of `accounts` accounts, every fourth with slots.
fn place(accounts: u32) -> Place {
    let mut text =
        r#"{"config": {"chainId": 7, "londonBlock": 0}, "gasLimit": 1, "alloc": {"#.to_owned();
    for at in 0..accounts {
        let comma = if at == 0 { "" } else { "," };
        // In an order of their own: the multiplier is odd.
        let address = at.wrapping_mul(0x9e37_79b1);
        write!(text, "{comma}\n\"0x{address:040x}\": {{\"balance\": {at}").unwrap();
        if at % 4 == 0 {
            write!(text, ", \"storage\": {{\"0x1\": \"0x{:x}\"}}", at + 1).unwrap();
        }
        text.push('}');
    }
    text.push_str("}}");
    let mut place = Place::new();
    place.genesis = place.file("genesis.json", text.as_bytes());
    place
}

#[test]
fn a_head_check_creates_the_chain_and_opens_it_again() {
    for accounts in [0, 1, 2, 100, LARGE] {
        let place = place(accounts);
        let begun = place.run("storage check --head-only", &[]).succeeded();
        for line in ["opened in", "peak memory", "agree"] {
            assert!(begun.out.contains(line), "{begun:?}");
        }
        let known = place.run("storage check --head-only", &[]).succeeded();
        assert_eq!(known.head(), begun.head());
        assert_eq!(place.checked_head(), begun.head());
    }
    let place = Place::new();
    place.import(&chain_file()).succeeded();
    let ended = place.run("storage check --head-only", &[]).succeeded();
    assert_eq!(ended.head().0, 54);
}

#[test]
fn a_built_in_network_has_its_genesis_hash() {
    let place = Place::new();
    let run = |network: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
        command.arg("--data-path").arg(place.data_path());
        command.args(["--network", network, "storage", "check", "--head-only"]);
        Ended::of(&command.output().unwrap())
    };
    for _ in 0..2 {
        let (number, hash) = run("mainnet").succeeded().head();
        assert_eq!((number, &hash[..10]), (0, "0xd4e56740"));
    }
    run("sepolia").failed(&["holds the chain with genesis", "--data-path"]);
}

#[test]
fn a_genesis_file_with_other_rules_for_blocks_that_are_there_is_refused() {
    let mut place = Place::new();
    place.import(&chain_file()).succeeded();
    let text = std::fs::read_to_string(&place.genesis).unwrap();
    let given = |place: &mut Place, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{from}");
        place.genesis = place.file("genesis.json", changed.as_bytes());
        place.run("storage check --head-only", &[])
    };
    for (from, to, words) in [
        // Lost: it begins with the next one. Moved back, moved into the past of the head.
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
        let refused = given(&mut place, from, to);
        refused.failed(&[words, "block 54", "--data-path"]);
    }
    // What lies ahead may move, and what geth does not compare may change.
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
        assert_eq!(given(&mut place, from, to).succeeded().head().0, 54);
    }
    // What was taken last is what the next file is compared with.
    place.genesis = chain_file().with_file_name("genesis.json");
    place.run("storage check", &[]).succeeded();
}

#[test]
fn a_chain_without_blocks_accepts_new_rules_for_the_same_genesis() {
    let mut place = Place::new();
    let first = place.run("storage check --head-only", &[]).succeeded();
    let text = std::fs::read_to_string(&place.genesis).unwrap();
    let changed = text.replacen("\"londonBlock\": 27,", "\"londonBlock\": 28,", 1);
    assert_ne!(text, changed);
    place.genesis = place.file("genesis.json", changed.as_bytes());
    let then = place.run("storage check --head-only", &[]).succeeded();
    assert_eq!(then.head(), first.head());
}

#[test]
fn the_genesis_state_hash_cache_flag_is_accepted_without_effect() {
    let place = place(3);
    for flag in ["", "=true", "=false"] {
        let words = format!("storage check --head-only --genesis-state-hash-cache-enabled{flag}");
        let ended = place.run(&words, &[]).succeeded();
        let is_note = |line: &&str| line.contains("--genesis-state-hash-cache-enabled");
        let notes = ended.errors.lines().filter(is_note);
        assert_eq!(notes.count(), 1, "{ended:?}");
        assert!(ended.errors.contains("changes nothing"), "{ended:?}");
    }
}

#[test]
fn a_stopped_genesis_import_starts_again() {
    // Many times more than is read while this test looks for the folder.
    let place = place(20 * LARGE);
    let mut stopped = stop_while_loading(&place);
    // On a machine that keeps this test from running, the process may be quicker.
    while stopped.code == Some(0) {
        std::fs::remove_dir_all(place.data_path()).unwrap();
        stopped = stop_while_loading(&place);
    }
    let ended = stopped;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(
        ended.errors.contains("begins the genesis anew"),
        "{ended:?}"
    );
    let ended = place.run("storage check --head-only", &[]).succeeded();
    assert!(ended.out.contains("agree"), "{ended:?}");
}

/// Asks the process that loads the genesis of `place` to stop once it has begun to.
fn stop_while_loading(place: &Place) -> Ended {
    let mut command = place.command("storage check --head-only", &[]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The folder is made after the process has begun to listen.
    while !place.data_path().join("loading").exists() && child.try_wait().unwrap().is_none() {}
    let id = rustix::process::Pid::from_child(&child);
    // It may have ended.
    let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
    Ended::of(&child.wait_with_output().unwrap())
}

#[test]
fn kills_during_genesis_import_lose_nothing() {
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let place = place(LARGE);
    let load = || place.command("storage check --head-only", &[]);
    let whole = growth(&mut load(), &place.data_path());
    let head = place
        .run("storage check --head-only", &[])
        .succeeded()
        .head();
    let (mut cut_short, mut rounds) = (0, 0);
    while cut_short < 30 {
        rounds += 1;
        assert!(
            rounds < 1_000,
            "genesis files are loaded before that can be cut short"
        );
        std::fs::remove_dir_all(place.data_path()).unwrap();
        for _ in 0..2 {
            let bytes = random.random_range(1..=whole);
            kill_at(&mut load(), &place.data_path(), bytes);
            cut_short += u32::from(place.data_path().join("loading").exists());
        }
        let ended = place.run("storage check --head-only", &[]).succeeded();
        assert_eq!(ended.head(), head);
        assert!(!place.data_path().join("loading").exists());
        assert_eq!(place.checked_head(), head);
    }
}
