//! Difficulty formulas against worked examples, and against the ethereum-tests if installed.

use super::*;
use alloy_primitives::B256;
use serde_json::Value;

fn parent(difficulty: u64, timestamp: u64, ommers: bool) -> Header {
    Header {
        difficulty: U256::from(difficulty),
        timestamp,
        ommers_hash: if ommers {
            B256::repeat_byte(1)
        } else {
            EMPTY_OMMER_ROOT_HASH
        },
        ..Header::default()
    }
}

fn at(fork: Fork, number: u64, elapsed: u64, ommers: bool) -> u64 {
    let parent = parent(2048 * 1000, 1000, ommers);
    let difficulty = block_difficulty(fork, number, 1000 + elapsed, &parent);
    u64::try_from(difficulty).unwrap()
}

#[test]
fn frontier_moves_one_step_up_below_13_seconds_and_down_from_there_on() {
    assert_eq!(at(Fork::Frontier, 1, 12, false), 2049 * 1000);
    assert_eq!(at(Fork::Frontier, 1, 13, false), 2047 * 1000);
    assert_eq!(at(Fork::Frontier, 1, 1 << 40, false), 2047 * 1000);
}

#[test]
fn homestead_moves_by_slices_of_10_seconds_and_by_99_at_most() {
    assert_eq!(at(Fork::Homestead, 1, 9, false), 2049 * 1000);
    assert_eq!(at(Fork::Homestead, 1, 10, false), 2048 * 1000);
    assert_eq!(at(Fork::Homestead, 1, 20, false), 2047 * 1000);
    assert_eq!(at(Fork::Homestead, 1, 1000, false), (2048 - 99) * 1000);
    assert_eq!(at(Fork::Homestead, 1, 1 << 40, false), (2048 - 99) * 1000);
}

#[test]
fn byzantium_moves_by_slices_of_9_seconds_and_one_more_after_ommers() {
    assert_eq!(at(Fork::Byzantium, 1, 8, false), 2049 * 1000);
    assert_eq!(at(Fork::Byzantium, 1, 9, false), 2048 * 1000);
    assert_eq!(at(Fork::Byzantium, 1, 8, true), 2050 * 1000);
    assert_eq!(at(Fork::Byzantium, 1, 18, true), 2048 * 1000);
}

#[test]
fn the_bomb_doubles_every_100_000_blocks_after_its_delay() {
    for (fork, delay) in [
        (Fork::Homestead, 0),
        (Fork::Byzantium, 3_000_000),
        (Fork::Petersburg, 5_000_000),
        (Fork::Berlin, 9_000_000),
        (Fork::London, 9_700_000),
        (Fork::ArrowGlacier, 10_700_000),
        (Fork::GrayGlacier, 11_400_000),
    ] {
        let slice = if fork == Fork::Homestead { 10 } else { 9 };
        let bomb = |number| at(fork, number, slice, false) - 2048 * 1000;
        assert_eq!(bomb(delay + 199_999), 0, "{fork}");
        assert_eq!(bomb(delay + 200_000), 1, "{fork}");
        assert_eq!(bomb(delay + 399_999), 2, "{fork}");
        assert_eq!(bomb(delay + 400_000), 4, "{fork}");
    }
}

#[test]
fn difficulty_never_falls_below_its_floor_and_never_overflows() {
    let low = parent(1, 0, false);
    let floor = U256::from(131_072);
    assert_eq!(block_difficulty(Fork::London, 1, 1000, &low), floor);
    let mut high = parent(0, 0, true);
    high.difficulty = U256::MAX;
    let saturated = block_difficulty(Fork::London, u64::MAX, 1, &high);
    assert_eq!(saturated, U256::MAX);
}

fn number(value: &Value, key: &str) -> U256 {
    let text = value[key].as_str().unwrap_or_else(|| panic!("{key}"));
    crate::json::parse_u256(text).unwrap()
}

/// Compares every case of a difficulty file with the formula of `fork`. `parentUncles` is a count
/// in newer files, an ommers hash or nothing in older ones.
fn run_cases(fork: Fork, cases: &serde_json::Map<String, Value>) -> usize {
    let mut count = 0;
    for (name, case) in cases.iter().filter(|(name, _)| *name != "_info") {
        let ommers = match case["parentUncles"].as_str().unwrap_or("0x00") {
            text if text.len() == 66 => text.parse::<B256>().unwrap() != EMPTY_OMMER_ROOT_HASH,
            text => text != "0x00",
        };
        let mut parent = parent(0, number(case, "parentTimestamp").to(), ommers);
        parent.difficulty = number(case, "parentDifficulty");
        let block = number(case, "currentBlockNumber").to();
        let time = number(case, "currentTimestamp").to();
        let got = block_difficulty(fork, block, time, &parent);
        assert_eq!(got, number(case, "currentDifficulty"), "{fork} {name}");
        count += 1;
    }
    count
}

/// Runs every case of a file of kept or published tests: fork, then name.
fn run_file(forks: &serde_json::Map<String, Value>) -> usize {
    let named = forks.iter().filter(|(name, _)| *name != "_info");
    named
        .map(|(name, cases)| {
            let fork = Fork::from_name(name).unwrap();
            run_cases(fork, cases.as_object().unwrap())
        })
        .sum()
}

#[test]
fn kept_difficulty_cases_are_met() {
    let kept = include_str!("../../testdata/difficulty-tests.json");
    assert_eq!(run_file(&serde_json::from_str(kept).unwrap()), 282);
}

fn load(path: &std::path::Path) -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Cases of a chain of its own: the fork follows from the number.
fn run_chain(path: &std::path::Path, fork_at: impl Fn(u64) -> Fork) -> usize {
    let cases = load(path);
    for (name, case) in &cases {
        let fork = fork_at(number(case, "currentBlockNumber").to());
        let one = serde_json::Map::from_iter([(name.clone(), case.clone())]);
        run_cases(fork, &one);
    }
    cases.len()
}

#[test]
fn every_difficulty_case_of_the_corpus_is_met() {
    let Some(root) = niwaki_testkit::corpus("basic-tests/ethereum-tests") else {
        return;
    };
    let mut count = 0;
    for folder in std::fs::read_dir(root.join("DifficultyTests")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            for (_, test) in load(&file.unwrap().path()) {
                count += run_file(test.as_object().unwrap());
            }
        }
    }
    assert!(count > 10_000, "{count}");
    let basic = root.join("BasicTests");
    let by_block = |[homestead, byzantium, constantinople]: [u64; 3]| {
        move |number| match number {
            n if n >= constantinople => Fork::Constantinople,
            n if n >= byzantium => Fork::Byzantium,
            n if n >= homestead => Fork::Homestead,
            _ => Fork::Frontier,
        }
    };
    let mainnet = [1_150_000, 4_370_000, u64::MAX];
    for (file, forks) in [
        ("difficulty.json", mainnet),
        ("difficultyCustomHomestead.json", [0, u64::MAX, u64::MAX]),
        ("difficultyCustomMainNetwork.json", mainnet),
        ("difficultyMainNetwork.json", mainnet),
        ("difficultyRopsten.json", [0, 1_700_000, 4_230_000]),
    ] {
        let fork_at = by_block(forks);
        let cases = run_chain(&basic.join(file), fork_at);
        println!("{file}: {cases} cases");
    }
}
