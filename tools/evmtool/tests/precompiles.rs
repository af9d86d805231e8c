//! `benchmark` and `fuzz-precompiles` from the command line.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// The report of a short run.
fn report(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("b.json").display().to_string();
    let short = ["--repeat", "1", "--duration", "0", "--json", &path];
    let output = run(&[&["benchmark"], arguments, &short].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report = std::fs::read(path).expect("a report");
    serde_json::from_slice(&report).expect("JSON")
}

fn names(report: &Value) -> Vec<&str> {
    let cases = report["cases"].as_array().expect("a list");
    cases
        .iter()
        .map(|case| case["name"].as_str().expect("a name"))
        .collect()
}

#[test]
fn every_contract_of_osaka_is_measured_on_both_libraries() {
    let report = report(&[]);
    let names = names(&report);
    assert!(names.len() >= 84, "{names:?}");
    for (name, libraries) in [
        ("ecrecover", 2),
        ("sha256-64", 1),
        ("ripemd160-64", 1),
        ("identity-64", 1),
        ("modexp-inverse-bn254", 2),
        ("bn254-add", 2),
        ("bn254-mul-most", 2),
        ("bn254-pairing-8", 2),
        ("blake2f-12", 1),
        ("point-evaluation", 2),
        ("bls12-g1add", 2),
        ("bls12-g1msm-128", 2),
        ("bls12-g2add", 2),
        ("bls12-g2msm-1-most", 2),
        ("bls12-pairing-2", 2),
        ("bls12-map-fp", 2),
        ("bls12-map-fp2", 2),
        ("keccak256-136", 1),
    ] {
        let at = names.iter().position(|known| *known == name);
        let case = &report["cases"][at.unwrap_or_else(|| panic!("{name} is missing"))];
        let measured = case["libraries"].as_array().unwrap();
        assert_eq!(measured.len(), libraries, "{case}");
        assert!(
            measured
                .iter()
                .all(|one| one["least_ns"].as_f64().unwrap() > 0.0),
            "{case}"
        );
        assert_eq!(case.get("over_pure").is_some(), libraries == 2, "{case}");
    }
    let gas = |name: &str| {
        let at = names.iter().position(|known| *known == name).unwrap();
        report["cases"][at]["gas"].as_u64().unwrap()
    };
    assert_eq!(gas("bn254-pairing-4"), 45_000 + 4 * 34_000);
    assert_eq!(gas("keccak256-1000"), 30 + 6 * 32);
    assert_eq!(gas("p256verify"), 6_900);
}

#[test]
fn options_select_name_and_library() {
    let native = report(&["--native", "ecrecover", "modexp-32"]);
    let pure = report(&["--pure", "ecrecover"]);
    assert_eq!(names(&pure), ["ecrecover", "ecrecover-no-signer"]);
    assert_eq!(names(&native).len(), 5);
    let library = |report: &Value| report["cases"][0]["libraries"][0]["library"].clone();
    assert_eq!(library(&native), "libsecp256k1");
    assert_eq!(library(&pure), "k256");
    assert_eq!(native["cases"][0]["libraries"].as_array().unwrap().len(), 1);
}

#[test]
fn fork_sets_contracts_and_prices() {
    let report = report(&["--fork", "Byzantium", "bn254-", "bls12"]);
    let names = names(&report);
    assert!(names.iter().all(|name| name.contains("bn254")), "{names:?}");
    let add = names.iter().position(|name| *name == "bn254-add");
    assert_eq!(report["cases"][add.unwrap()]["gas"], 500);
}

#[test]
fn cached_result_is_faster_than_computed_one() {
    let ns = |options: &[&str]| {
        let report = report(&[options, &["bls12-pairing-8"]].concat());
        report["cases"][0]["libraries"][0]["ns"].as_f64().unwrap()
    };
    assert!(ns(&["--use-precompile-cache"]) * 3.0 < ns(&["--native"]));
}

#[test]
fn unmeasurable_input_is_an_error_with_its_reason() {
    for (arguments, text) in [
        (vec!["nope"], "no case of Osaka has a name with nope in it"),
        (vec!["--fork", "Atlantis"], "--fork Atlantis is no fork"),
        (vec!["--native", "--pure"], "cannot be used with"),
    ] {
        let output = run(&[&["benchmark"], &arguments[..]].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && errors.contains(text),
            "{errors}"
        );
    }
}

#[test]
fn random_inputs_are_counted_per_contract() {
    let output = run(&["fuzz-precompiles", "--inputs", "40", "--seed", "5"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("fuzzing from seed 5 on "), "{said}");
    let lines = said.lines().skip(1);
    let whole = lines.filter(|line| line.contains(": 40 inputs without a difference: "));
    assert_eq!(whole.count(), 18, "{said}");
}

#[test]
fn unknown_contract_and_zero_inputs_are_errors() {
    for (arguments, text) in [
        (["--only", "nope"], "--only nope is no precompiled contract"),
        (["--inputs", "0"], "--inputs 0 compares nothing"),
    ] {
        let output = run(&[&["fuzz-precompiles"][..], &arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(text), "{errors}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[cfg(unix)]
#[test]
fn stopped_search_prints_its_counts() {
    use std::io::{BufRead, BufReader, Read};
    let mut child = Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(["fuzz-precompiles", "--inputs", "1000000000", "--seed", "9"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // Printed when the process handles signals.
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("fuzzing from seed 9"), "{line}");
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        said.contains("inputs without a difference") && said.ends_with("stopped\n"),
        "{said}"
    );
}
