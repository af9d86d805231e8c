//! `fuzz` from the command line, and the state tests that it writes.

use niwaki_evmtool::{Outcome, Selection, Suite, run_fixtures};
use niwaki_fuzz::{Case, FORKS, state_test};
use niwaki_testkit::fixtures::parse_fixtures;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .arg("fuzz")
        .args(arguments)
        .output()
        .expect("the program starts")
}

#[test]
fn written_state_test_has_the_result_of_its_case() {
    let (mut refused, mut taken) = (0, 0);
    for fork in FORKS {
        for seed in 0..20 {
            let test = state_test("case", &Case::of(seed, Some(fork)));
            let refuses = test.to_string().contains("expectException");
            let fixtures = parse_fixtures(Path::new("case"), &test.to_string()).unwrap();
            let verdicts = run_fixtures(&fixtures, Suite::State, &Selection::default());
            assert_eq!(verdicts.len(), 1);
            assert_eq!(
                verdicts[0].outcome,
                Outcome::Passed,
                "{fork} {seed}: {test}"
            );
            refused += usize::from(refuses);
            taken += usize::from(!refuses);
        }
    }
    assert!(refused > 5 && taken > 200, "{refused} {taken}");
}

#[test]
fn search_continues_from_a_given_case() {
    let output = run(&["--seed", "3", "--from", "150", "--cases", "200"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\n50 cases without a difference"), "{said}");
}

#[cfg(unix)]
#[test]
fn stopped_search_prints_the_next_case() {
    use std::io::{BufRead, BufReader, Read};
    let mut child = Command::new(env!("CARGO_BIN_EXE_niwaki-evm"))
        .args(["fuzz", "--seed", "9", "--seconds", "600", "--jobs", "2"])
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
    let (_, rest) = said.split_once("the same with --seed 9 --from ").unwrap();
    assert!(rest.trim().parse::<u64>().is_ok(), "{said}");
}
