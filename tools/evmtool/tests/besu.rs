//! `run` and `state-test` as Besu's evmtool: its own cases, and flags that these don't use.

use niwaki_testkit::corpus;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut pipe = child.stdin.take().expect("asked for");
    // The program may not read its standard input.
    drop(pipe.write_all(stdin.as_bytes()));
    drop(pipe);
    child.wait_with_output().expect("a child can be waited for")
}

/// The objects that a run prints.
fn lines(arguments: &[&str], stdin: &str) -> Vec<Value> {
    let output = run(arguments, stdin);
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().map(|line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line} {errors}"))
    });
    lines.collect()
}

/// Each line has every field, in order, and no other.
#[test]
fn cases_of_besu_print_the_lines_of_besu() {
    let Some(folder) = corpus("besu-fixtures/evmtool") else {
        return;
    };
    let mut ran = 0;
    for kind in ["trace", "state-test"] {
        for entry in std::fs::read_dir(folder.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let case: Value = serde_json::from_str(&text).unwrap();
            let words = case["cli"].as_array().unwrap();
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let got = lines(&words, &case["stdin"].to_string());
            let at = path.display();
            let wanted = case["stdout"].as_array().unwrap();
            for (number, (got, wanted)) in got.iter().zip(wanted).enumerate() {
                assert_eq!(got, wanted, "{at}, line {number}");
            }
            assert_eq!(got.len(), wanted.len(), "{at}");
            ran += 1;
        }
    }
    assert_eq!(ran, 13);
}

/// PUSH1 2; PUSH1 1; SSTORE; PUSH1 1; SLOAD; POP.
const STORES: &str = "6002600155600154 50";

#[test]
fn trace_shows_storage_after_its_first_write() {
    let code = ["--trace", "--trace.storage", "--nostack", "--code", STORES];
    let lines = lines(&code, "");
    assert_eq!(lines[2]["opName"], "SSTORE");
    assert!(lines[2].get("storage").is_none());
    assert_eq!(lines[3]["storage"], json!({"0x1": "0x2"}));
    assert!(lines.iter().all(|line| line.get("stack").is_none()));
    // With times by default, and without a line for the end of the code.
    assert!(lines[6]["timens"].is_u64(), "{}", lines[6]);
    assert_eq!(lines.len(), 7);
}

/// Returns CALLER, ADDRESS, ORIGIN, COINBASE, CALLVALUE, GASPRICE, CHAINID, NUMBER and BASEFEE.
const TELLS: &str =
    "335f52 30602052 32604052 41606052 34608052 3a60a052 4660c052 4360e052 4861010052 6101205ff3";

#[test]
fn options_set_what_code_reads() {
    let options = [
        "run",
        "--json",
        "--sender",
        "0xa1",
        "--receiver",
        "b2",
        "--coinbase=c3",
    ];
    let more = ["--value=7", "--price", "0x8", "--fork", "Cancun", TELLS];
    let output = &lines(&[&options[..], &more].concat(), "")[0]["output"];
    let words: Vec<&str> = output.as_str().unwrap().as_bytes()[2..]
        .chunks(64)
        .map(|word| std::str::from_utf8(word).unwrap().trim_start_matches('0'))
        .collect();
    assert_eq!(words, ["a1", "b2", "a1", "c3", "7", "8", "1", "1", ""]);
}

#[test]
fn genesis_sets_accounts_block_and_fork() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("genesis.json").display().to_string();
    let genesis = json!({
        "config": { "chainId": 77, "homesteadBlock": 0, "londonBlock": 0 },
        "gasLimit": "0x5000", "difficulty": "0x9", "baseFeePerGas": "0x11",
        "alloc": { "00000000000000000000000000000000000000b2": {
            "balance": "0x5", "storage": { "0x1": "0x2a" },
            // SLOAD 1; SELFBALANCE; CHAINID; BASEFEE.
            "code": "0x6001545f52476020524660405248606052608060 00f3".replace(' ', ""),
        }},
    });
    // PUSH0 is later than London.
    let genesis = genesis.to_string().replace("5f52", "600052");
    std::fs::write(&path, genesis).unwrap();
    let from = ["--notime", "--receiver", "b2", "--prestate", &path];
    let summary = &lines(&from, "")[0];
    let words = [0x2a, 5, 77, 0x11].map(|word: u64| format!("{word:064x}"));
    assert_eq!(summary["output"], format!("0x{}", words.concat()));
    assert_eq!(summary["fork"], "London");
    // The storage is from the genesis, the code from the command line: SLOAD 1, returned.
    let code = ["--code", "60015460005260206000f3"];
    let summary = &lines(&[&from[..], &code].concat(), "")[0];
    assert_eq!(summary["output"], format!("0x{}", words[0]));
}

#[test]
fn creation_runs_code_followed_by_input() {
    // Returns what follows its ten bytes: CODESIZE - 10 bytes of the code from offset 10.
    let init = "600a3803600a5f39600a38035ff3";
    let init = init.replace("600a", "600e");
    let output = run(
        &["run", "--create", "--input", "c0de", "--json-alloc", &init],
        "",
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let (said, alloc) = text.split_at(text.find('{').unwrap());
    assert!(said.contains("output   0xc0de"), "{said}");
    let alloc: Value = serde_json::from_str(alloc).unwrap();
    let codes = alloc.as_object().unwrap().values();
    let codes: Vec<&Value> = codes.filter_map(|account| account.get("code")).collect();
    assert_eq!(codes, ["0xc0de"]);
}

#[test]
fn unusable_input_is_named() {
    for (arguments, text) in [
        (vec!["run"], "there is no code to run; give it in hex"),
        (
            vec!["run", "--chain", "mars", "00"],
            "--chain mars is not built in; use one of mainnet",
        ),
        (
            vec!["run", "--genesis", "Cargo.toml", "00"],
            "Cargo.toml is no genesis",
        ),
        (
            vec!["run", "--gas", "5", "--intrinsic-gas", "00"],
            "less than the 21000",
        ),
        (
            vec!["run", "--sender", "0xzz", "00"],
            "an address has at most 40 hex digits",
        ),
        (
            vec!["run", "--value", "x", "00"],
            "give a number below 2^256",
        ),
        (
            vec!["run", "--codefile", "nowhere"],
            "can't read nowhere, which --codefile names",
        ),
        (vec!["block-test"], "no path to run; give fixture files"),
        (
            vec!["state-test", "stdin"],
            "1 files could not be read; repair them",
        ),
        (
            vec!["state-test", "--fork", "Atlantis"],
            "--fork Atlantis is neither",
        ),
        (vec!["state-test"], "no state test was selected"),
    ] {
        let output = run(&arguments, "");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
    }
}

#[test]
fn state_tests_are_named_on_standard_input_and_chosen_by_their_indexes() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/state-tests.json");
    let twice = format!("{file}\n{file}\n");
    let all = lines(&["state-test", "--notime"], &twice);
    assert!(
        all.len() > 100 && all.len().is_multiple_of(2),
        "{}",
        all.len()
    );
    assert!(all.iter().all(|line| line["pass"] == true));
    assert_eq!(all[..all.len() / 2], all[all.len() / 2..]);
    let last = all.iter().max_by_key(|line| line["d"].as_u64()).unwrap();
    let data = last["d"].to_string();
    let name = last["test"].as_str().unwrap();
    let only = [
        "statetest",
        "--notime",
        "--test-name",
        name,
        "--data-index",
        &data,
        file,
    ];
    let chosen = lines(&only, "");
    let wanted = all[..all.len() / 2].iter();
    let wanted: Vec<&Value> = wanted
        .filter(|line| line["test"] == last["test"] && line["d"] == last["d"])
        .collect();
    assert_eq!(chosen.iter().collect::<Vec<_>>(), wanted);
}
