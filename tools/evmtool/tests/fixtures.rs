//! The published fixtures: those in `testdata`, and all in `NIWAKI_CORPUS` if that is set.
//!
//! Every case runs once per dispatch of the interpreter, and blocks also with speculative execution. A case that fails
//! is named with its reason; a missing part is named too.

use niwaki_evm::Dispatch;
use niwaki_evmtool::{Outcome, Selection, Suite, Tally, run_files};
use niwaki_execution::Parallelism;
use niwaki_testkit::{corpus, fixture_files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders of fixtures and their kind.
const CORPUS: [(&str, Suite); 6] = [
    ("state-tests", Suite::State),
    ("blockchain-tests", Suite::Block),
    ("engine-tests", Suite::Block),
    ("bench/eest-benchmark", Suite::Block),
    ("basic-tests/goevmlab", Suite::State),
    ("basic-tests/besu/regressions/generalstate", Suite::State),
];

/// Runs every case under `path` in every mode and returns the tally, which is the same for all. Panics with the name
/// and the reason of each case that failed.
fn run_all(path: &Path, suite: Suite) -> Tally {
    let files = fixture_files(&[path.to_owned()]).expect("the folder can be listed");
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    let mut tallies = Vec::new();
    for selection in modes(suite) {
        let mut failures = Vec::new();
        let tally = run_files(&files, suite, &selection, jobs, |file, verdict| {
            let at = file.display();
            match verdict {
                Err(error) => failures.push(error.to_string()),
                Ok(verdict) => match &verdict.outcome {
                    Outcome::Passed => {}
                    Outcome::Skipped(reason) => *skipped.entry(reason.clone()).or_default() += 1,
                    Outcome::Failed(reason) => {
                        let (name, fork) = (&verdict.name, &verdict.fork);
                        failures.push(format!("{at} {name} [{fork}]: {reason}"));
                    }
                },
            }
        });
        let shown = failures.iter().take(50).cloned().collect::<Vec<_>>();
        assert!(
            failures.is_empty(),
            "{} of {tally} with {:?} dispatch and {:?}:\n{}",
            failures.len(),
            selection.dispatch,
            selection.parallelism,
            shown.join("\n")
        );
        tallies.push(tally);
    }
    let first = tallies.first().cloned().expect("there is a way");
    assert!(
        tallies.iter().all(|tally| *tally == first),
        "all ways run the same cases"
    );
    println!("{}: {first}, in {} ways", path.display(), tallies.len());
    for (reason, count) in skipped {
        println!("  skipped {} times: {reason}", count / tallies.len() as u64);
    }
    first
}

/// Each dispatch; and for blocks speculative execution of all transactions, and of some on three threads.
fn modes(suite: Suite) -> Vec<Selection> {
    let ahead = |threads, speculate_all| Selection {
        parallelism: Some(Parallelism {
            speculate_all,
            ..Parallelism::of(threads)
        }),
        ..Selection::default()
    };
    // All code is fused before its first run.
    niwaki_evm::set_hot_threshold(1);
    let mut ways = Dispatch::ALL
        .map(|dispatch| Selection {
            dispatch,
            ..Selection::default()
        })
        .to_vec();
    if suite == Suite::Block {
        ways.extend([ahead(1, true), ahead(3, false)]);
    }
    ways
}

fn testdata(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(file)
}

fn tally(passed: u64) -> Tally {
    Tally {
        passed,
        ..Tally::default()
    }
}

#[test]
fn testdata_state_tests_pass_on_every_dispatch() {
    assert_eq!(
        run_all(&testdata("state-tests.json"), Suite::State),
        tally(1298)
    );
}

#[test]
fn testdata_blockchain_tests_pass_on_every_dispatch_and_in_parallel() {
    assert_eq!(
        run_all(&testdata("blockchain-tests.json"), Suite::Block),
        tally(135)
    );
}

#[test]
fn testdata_engine_tests_pass_on_every_dispatch_and_in_parallel() {
    assert_eq!(
        run_all(&testdata("engine-tests.json"), Suite::Block),
        tally(43)
    );
}

#[test]
fn every_case_of_the_corpus_passes() {
    for (part, suite) in CORPUS {
        let Some(path) = corpus(part) else {
            continue;
        };
        let tally = run_all(&path, suite);
        assert!(tally.passed > 0, "{part}: {tally}");
    }
}
