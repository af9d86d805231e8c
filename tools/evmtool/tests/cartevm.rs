//! `cartevm` from the command line: every opcode of every fork runs, with the gas that revm uses.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .arg("cartevm")
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// The report of a short run.
fn report(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (json, svg) = (path("c.json"), path("c.svg"));
    let mut short = vec!["--batches", "1"];
    if !arguments.contains(&"--code-size") {
        short.extend(["--code-size", "512"]);
    }
    let output = run(&[arguments, &short, &["--json", &json, "--svg", &svg]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("median"), "{printed}");
    let picture = std::fs::read_to_string(svg).expect("a picture");
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    let report = std::fs::read(json).expect("a report");
    serde_json::from_slice(&report).expect("JSON")
}

fn cases(report: &Value) -> &Vec<Value> {
    report["cases"].as_array().expect("a list")
}

/// The program itself compares the gas of both machines.
#[test]
fn every_opcode_of_every_fork_uses_the_gas_of_revm() {
    for (fork, opcodes) in [
        ("Frontier", 130),
        ("Byzantium", 135),
        ("Berlin", 142),
        ("Osaka", 150),
    ] {
        let report = report(&["--fork", fork, "--revm", "--gas", "6000000"]);
        assert_eq!(cases(&report).len(), opcodes, "{fork}");
        for case in cases(&report) {
            assert!(case["over_revm"].as_f64().unwrap() > 0.0, "{case}");
        }
    }
    // A fork without programs on revm.
    let report = report(&["--fork", "Amsterdam", "--revm", "--gas", "6000000"]);
    assert_eq!(cases(&report).len(), 154);
}

/// Creations are so expensive that their program is shorter than requested.
#[test]
fn expensive_opcodes_are_measured_too() {
    let report = report(&[
        "--only",
        "CREATE,CREATE2,ADD",
        "--code-size",
        "24576",
        "--revm",
    ]);
    assert_eq!(report["left_out"], Value::Array(Vec::new()));
    for case in cases(&report) {
        let (gas, times) = (&case["gas"], case["times"].as_u64().unwrap());
        assert!(gas.as_u64().unwrap() > 5_000_000, "{case}");
        assert!(times > 100, "{case}");
    }
}

#[test]
fn pairs_run_both_opcodes_equally_often() {
    let options = ["--only", "mulmod", "--pairs", "--revm", "--gas", "6000000"];
    let report = report(&options);
    assert_eq!(cases(&report).len(), 150);
    let case = cases(&report)
        .iter()
        .find(|case| case["name"] == "MULMOD ADD")
        .unwrap();
    // Copies of three operands, MULMOD, POP; a copy of one, and ADD, whose result is the other.
    let pair = 3.0 * 3.0 + 8.0 + 2.0 + 3.0 + 3.0;
    let each = case["gas"].as_f64().unwrap() / case["times"].as_f64().unwrap();
    assert!((each / pair - 1.0).abs() < 0.1, "{case}");
}

#[test]
fn frame_ending_and_stack_opcodes_have_operands_of_their_own_in_pairs() {
    let gas_of = |names: &str, pair: &str| {
        let report = report(&["--only", names, "--pairs", "--revm", "--gas", "6000000"]);
        let case = cases(&report)
            .iter()
            .find(|case| case["name"] == pair)
            .cloned();
        let case = case.unwrap_or_else(|| panic!("{pair} is missing: {}", report["left_out"]));
        case["gas"].as_f64().unwrap() / case["times"].as_f64().unwrap()
    };
    // Seven operands copied and a result popped, twice; the warm price of a call, and 10 gas for INVALID.
    let calls = 2.0 * (7.0 * 3.0 + 100.0 + 2.0);
    let each = gas_of("STOP,INVALID", "STOP INVALID");
    assert!((each / (calls + 10.0) - 1.0).abs() < 0.05, "{each}");
    // KECCAK256 of the same word, and two words of its own for SWAP1.
    let hash = 2.0 * 3.0 + 36.0 + 2.0;
    let each = gas_of("SWAP1", "SWAP1 KECCAK256");
    assert!(
        (each / (hash + 2.0 * 3.0 + 3.0 + 2.0 * 2.0) - 1.0).abs() < 0.05,
        "{each}"
    );
}

#[test]
fn slowest_case_is_first_and_median_in_the_middle() {
    let report = report(&[
        "--only",
        "ADD,SLOAD,EXP,KECCAK256,CREATE",
        "--gas",
        "6000000",
    ]);
    let rates: Vec<f64> = cases(&report)
        .iter()
        .map(|case| case["mgas_per_second"].as_f64().unwrap())
        .collect();
    assert_eq!(rates.len(), 5);
    assert!(rates.is_sorted(), "{rates:?}");
    assert_eq!(report["median_mgas_per_second"].as_f64().unwrap(), rates[2]);
}

#[test]
fn unmeasurable_input_is_an_error_with_its_reason() {
    for (arguments, text) in [
        (vec!["--only", "NOPE"], "--only NOPE is no opcode of Osaka"),
        (
            vec!["--fork", "Frontier", "--only", "PUSH0"],
            "PUSH0 is no opcode of Frontier",
        ),
        (vec!["--fork", "Atlantis"], "--fork Atlantis is no fork"),
        (
            vec!["--gas", "1000"],
            "it ends with Halt(OutOfGas)); --gas 1000 may not be enough",
        ),
        (
            vec!["--worst", "--only", "NOPE"],
            "--only NOPE is no attack of Osaka; give some of cold-sload",
        ),
        (vec!["--worst", "--gas", "1000"], "too little for --worst"),
        (vec!["--code-size", "10"], "10 is not in 512..=60000"),
    ] {
        let output = run(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(text),
            "{errors}"
        );
    }
}

/// The program itself compares the gas of both machines.
#[test]
fn every_attack_of_a_fork_uses_the_gas_of_revm() {
    for (fork, attacks) in [("Frontier", 8), ("Byzantium", 15), ("Osaka", 26)] {
        let options = ["--worst", "--fork", fork, "--revm", "--gas", "3000000"];
        let report = report(&options);
        assert!(
            report["left_out"].as_array().unwrap().is_empty(),
            "{report}"
        );
        assert_eq!(cases(&report).len(), attacks, "{fork}");
        assert!(report.get("code_size").is_none());
        for case in cases(&report) {
            assert!(case["times"].as_u64().unwrap() > 1, "{case}");
            assert!(case["over_revm"].as_f64().unwrap() > 0.0, "{case}");
        }
    }
}

#[test]
fn attacks_run_the_opcode_of_their_name() {
    let names = "cold-sload,jumpdest-wall,point-evaluation,create2";
    let report = report(&["--worst", "--only", names, "--gas", "6000000"]);
    for (name, gas) in [
        ("cold-sload", 2_100.0),
        ("jumpdest-wall", 24_000.0),
        ("point-evaluation", 50_000.0),
        ("create2", 32_000.0),
    ] {
        let mut all = cases(&report).iter();
        let case = all.find(|case| case["name"] == name).unwrap();
        let each = case["gas"].as_f64().unwrap() / case["times"].as_f64().unwrap();
        assert!(each > gas && each < gas * 1.05 + 200.0, "{each}: {case}");
    }
}
