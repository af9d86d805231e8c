//! Runs the cases of many fixture files on several threads, and counts the verdicts.

use crate::block_test::{self, check_block, check_payload};
use crate::{state_test, vm_test};
use niwaki_evm::Dispatch;
use niwaki_execution::Parallelism;
use niwaki_testkit::fixtures::{Fixture, FixtureError, Indexes, StatePost, load_fixtures};
use niwaki_testkit::{glob_matches, run_parallel};
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Which kinds of fixtures to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// State and VM tests.
    State,
    /// Blockchain and engine tests.
    Block,
}

/// Which cases to run, and how. The default is every case with the fastest dispatch.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only cases of this fork or network, such as `Prague` or `ParisToShanghaiAtTime15k`.
    pub fork: Option<String>,
    /// Only cases whose name matches this pattern, as [`glob_matches`] reads it.
    pub test_name: Option<String>,
    /// Only these choices of data, gas limit and value of a state test.
    pub indexes: [Option<usize>; 3],
    /// Writes EIP-3155 traces of state tests to standard error.
    pub trace: bool,
    /// Dispatch of the interpreter.
    pub dispatch: Dispatch,
    /// How the transactions of a block run; `None` for sequentially.
    pub parallelism: Option<Parallelism>,
}

impl Selection {
    /// Whether cases of this fork or network are selected.
    pub(crate) fn selects_fork(&self, fork: &str) -> bool {
        let selected = self.fork.as_deref();
        selected.is_none_or(|selected| selected.eq_ignore_ascii_case(fork))
    }

    /// Whether this choice of a state test is selected.
    pub(crate) fn selects(&self, post: &StatePost) -> bool {
        let Indexes { data, gas, value } = post.indexes;
        let mut indexes = self.indexes.iter().zip([data, gas, value]);
        self.selects_fork(&post.fork)
            && indexes.all(|(selected, index)| selected.is_none_or(|selected| selected == index))
    }

    /// Whether cases of this name are selected.
    pub(crate) fn selects_name(&self, name: &str) -> bool {
        let pattern = self.test_name.as_deref();
        pattern.is_none_or(|pattern| glob_matches(pattern, name))
    }
}

/// The verdict on one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the case, with the choice for state tests.
    pub name: String,
    /// Fork or network.
    pub fork: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As the fixture expects.
    Passed,
    /// Different, and how.
    Failed(String),
    /// Not run, and why.
    Skipped(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(reason) => Self::Failed(reason),
        }
    }
}

/// Counts of passed, failed and skipped cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Cases that passed.
    pub passed: u64,
    /// Cases that failed.
    pub failed: u64,
    /// Cases that were not run.
    pub skipped: u64,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Runs `case` and turns a panic into a failure, so that one case can't end the others.
pub(crate) fn catch_panic(case: impl FnOnce() -> Result<(), String>) -> Outcome {
    match catch_unwind(AssertUnwindSafe(case)) {
        Ok(result) => result.into(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Failed(format!("panicked: {}", text.unwrap_or("no message")))
        }
    }
}

/// Runs every selected case of `files` on `jobs` threads and passes each verdict to `report` on this thread, or the
/// error of a file that is no fixture file.
pub fn run_files(
    files: &[PathBuf],
    suite: Suite,
    selection: &Selection,
    jobs: usize,
    mut report: impl FnMut(&Path, Result<&Verdict, FixtureError>),
) -> Tally {
    let mut tally = Tally::default();
    run_parallel(
        jobs,
        files,
        |file| load_fixtures(file).map(|fixtures| run_fixtures(&fixtures, suite, selection)),
        |file, verdicts| match verdicts {
            Ok(verdicts) => {
                for verdict in &verdicts {
                    tally.count(&verdict.outcome);
                    report(file, Ok(verdict));
                }
            }
            Err(error) => report(file, Err(error)),
        },
    );
    tally
}

/// Runs every selected case of the fixtures of one file.
pub fn run_fixtures(fixtures: &[Fixture], suite: Suite, selection: &Selection) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for fixture in fixtures {
        if !selection.selects_name(fixture.name()) {
            continue;
        }
        match (suite, fixture) {
            (Suite::State, Fixture::State(test)) => {
                verdicts.extend(state_test::run(test, selection));
            }
            (Suite::State, Fixture::Vm(test)) => verdicts.extend(vm_test::run(test, selection)),
            (Suite::Block, Fixture::Block(test)) => {
                verdicts.extend(block_test::run(test, selection, "block", check_block));
            }
            (Suite::Block, Fixture::Engine(test)) => {
                verdicts.extend(block_test::run(test, selection, "payload", check_payload));
            }
            (_, other) => verdicts.push(Verdict {
                name: other.name().to_owned(),
                fork: String::new(),
                outcome: Outcome::Skipped("a fixture of the other command's kind".to_owned()),
            }),
        }
    }
    verdicts
}
