//! The published fixtures: the kept ones always, all of them where `NIWAKI_CORPUS` names them.
//!
//! Every case runs twice, once per dispatch of the interpreter. A case that fails is named with
//! its reason; a part that is missing is named too.

use niwaki_evm::Dispatch;
use niwaki_evmtool::{Outcome, Selection, Suite, Tally, run_files};
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

/// Runs every case under `path` with both dispatches and gives how the cases ended, which is the
/// same for both. Panics with the name and the reason of each case that failed.
fn run_both(path: &Path, suite: Suite) -> Tally {
    let files = fixture_files(&[path.to_owned()]).expect("the folder can be listed");
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    let [threaded, looped] = [Dispatch::Threaded, Dispatch::Loop].map(|dispatch| {
        let selection = Selection {
            dispatch,
            ..Selection::default()
        };
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
            "{} of {tally} with {dispatch:?} dispatch:\n{}",
            failures.len(),
            shown.join("\n")
        );
        tally
    });
    assert_eq!(threaded, looped, "both dispatches run the same cases");
    println!("{}: {threaded}, with each dispatch", path.display());
    for (reason, count) in skipped {
        println!("  skipped {} times: {reason}", count / 2);
    }
    threaded
}

fn kept(file: &str) -> PathBuf {
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
fn kept_state_tests_pass_with_both_dispatches() {
    assert_eq!(
        run_both(&kept("state-tests.json"), Suite::State),
        tally(1298)
    );
}

#[test]
fn kept_blockchain_tests_pass_with_both_dispatches() {
    assert_eq!(
        run_both(&kept("blockchain-tests.json"), Suite::Block),
        tally(135)
    );
}

#[test]
fn kept_engine_tests_pass_with_both_dispatches() {
    assert_eq!(
        run_both(&kept("engine-tests.json"), Suite::Block),
        tally(43)
    );
}

#[test]
fn every_case_of_the_corpus_passes_where_there_is_one() {
    for (part, suite) in CORPUS {
        let Some(path) = corpus(part) else {
            continue;
        };
        let tally = run_both(&path, suite);
        assert!(tally.passed > 0, "{part}: {tally}");
    }
}
