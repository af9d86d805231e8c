//! State tests as Besu's evmtool runs them: in order, with one JSON object for each on standard output, after its trace
//! if one is requested. Files are named on the command line, or standard input has their names or their content.

use super::{PostResult, compare, execute};
use crate::cases::{Outcome, Selection, catch_panic};
use crate::logs_hash::logs_hash;
use crate::t8n;
use crate::trace::TraceOptions;
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_evm::tracers::{Eip3155, besu_error};
use niwaki_evm::{Exit, Tracer};
use niwaki_primitives::Fork;
use niwaki_testkit::fixtures::{Fixture, Indexes, StatePost, StateTest, parse_fixtures};
use niwaki_testkit::{fixture_files, state_root};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to run and what to print.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) selection: &'a Selection,
    /// Traces every test.
    pub(crate) trace: bool,
    pub(crate) traces: &'a TraceOptions,
    /// Prints the state after every test.
    pub(crate) alloc: bool,
}

/// Counts of passed and failed tests.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    unreadable: u64,
}

/// Runs the files of `paths`; `stdin` is a file on standard input. Without paths, standard input has file names, one
/// per line. True if no test failed.
pub(crate) fn run_batch(batch: Batch<'_>, paths: &[PathBuf], out: &mut impl Write) -> Result<bool> {
    let mut count = Count::default();
    if paths.is_empty() {
        for line in std::io::stdin().lock().lines() {
            let line = line.wrap_err("can't read names of files from standard input")?;
            if line.trim().is_empty() {
                break;
            }
            batch.file(Path::new(line.trim()), &mut count, out);
        }
    }
    for path in paths {
        if path.as_os_str() == "stdin" {
            let text = std::io::read_to_string(std::io::stdin());
            let text = text.wrap_err("can't read a fixture from standard input")?;
            batch.text(path, &text, &mut count, out);
            continue;
        }
        let files = fixture_files(std::slice::from_ref(path));
        let files = files.map_err(|(path, error)| {
            eyre!("can't list {}: {error}; check the path", path.display())
        })?;
        for file in files {
            batch.file(&file, &mut count, out);
        }
    }
    ensure!(
        count.unreadable == 0,
        "{} files could not be read; repair them or leave them out",
        count.unreadable
    );
    ensure!(
        count.passed + count.failed > 0,
        "no state test was selected; loosen --fork, --test-name and the indexes"
    );
    Ok(count.failed == 0)
}

impl Batch<'_> {
    fn file(&self, path: &Path, count: &mut Count, out: &mut impl Write) {
        match std::fs::read_to_string(path) {
            Ok(text) => self.text(path, &text, count, out),
            Err(error) => {
                count.unreadable += 1;
                eprintln!("niwaki-evm: can't read {}: {error}", path.display());
            }
        }
    }

    fn text(&self, path: &Path, text: &str, count: &mut Count, out: &mut impl Write) {
        let fixtures = parse_fixtures(path, text).unwrap_or_else(|error| {
            count.unreadable += 1;
            eprintln!("niwaki-evm: {error}");
            Vec::new()
        });
        for fixture in fixtures {
            let Fixture::State(test) = fixture else {
                continue;
            };
            if !self.selection.selects_name(&test.name) {
                continue;
            }
            let posts = test.posts.iter();
            let posts = posts.filter(|post| self.selection.selects(post));
            let mut posts: Vec<&StatePost> = posts.collect();
            posts.sort_by_key(|post| Fork::from_name(&post.fork));
            for post in posts {
                let is_passed = self.run(&test, post, out);
                count.passed += u64::from(is_passed);
                count.failed += u64::from(!is_passed);
            }
        }
    }

    /// Runs one choice and prints its result; true if it passed.
    fn run(&self, test: &StateTest, post: &StatePost, out: &mut impl Write) -> bool {
        let Indexes { data, gas, value } = post.indexes;
        let mut summary = json!({
            "output": "", "gasUsed": self.gas(0), "test": test.name, "fork": post.fork,
            "d": data, "g": gas, "v": value, "pass": false,
        });
        let mut alloc = None;
        let outcome = catch_panic(|| {
            let mut tracer = { self.trace }.then(|| Eip3155::new(self.traces.options(), &mut *out));
            let watching = tracer.as_mut().map(|tracer| tracer as &mut dyn Tracer);
            let began = Instant::now();
            let actual = execute(test, post, self.selection.dispatch, watching)?;
            let seconds = began.elapsed().as_secs_f64();
            if let Some(mut tracer) = tracer {
                tracer.end();
            }
            let root = state_root(&actual.state);
            self.add_result(&mut summary, &actual, seconds);
            summary["stateRoot"] = json!(root);
            summary["postLogsHash"] = json!(logs_hash(actual.logs()));
            alloc = self.alloc.then(|| t8n::alloc(&actual.state));
            compare(test, post, &actual, root)
        });
        let is_passed = outcome == Outcome::Passed;
        summary["pass"] = json!(is_passed);
        if let (Outcome::Failed(reason), Value::Null) = (outcome, &summary["stateRoot"]) {
            summary["error"] = Value::String(reason);
        }
        if let Some(alloc) = alloc {
            let _ = writeln!(out, "{alloc}");
        }
        // A reader may wait for this line before it writes the next name.
        let _ = writeln!(out, "{summary}").and_then(|()| out.flush());
        is_passed
    }

    fn gas(&self, gas: u64) -> Value {
        match self.traces.is_strict() {
            true => Value::String(format!("{gas:#x}")),
            false => Value::from(gas),
        }
    }

    fn add_result(&self, summary: &mut Value, actual: &PostResult, seconds: f64) {
        let result = match &actual.result {
            Ok(result) => result,
            Err(reason) => {
                summary["validationError"] = json!(reason);
                return;
            }
        };
        summary["output"] = Value::String(hex::encode(&result.output));
        summary["gasUsed"] = self.gas(result.gas_used);
        if let Exit::Halt(halt) = result.exit {
            summary["error"] = Value::String(besu_error(&halt.to_string()));
        }
        if self.traces.with_time() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "nanoseconds of one test"
            )]
            let ns = (seconds * 1e9) as u64;
            summary["time"] = Value::from(ns);
            let rate = result.gas_used as f64 / seconds / 1e6;
            summary["Mgps"] = Value::String(format!("{rate:.3}"));
        }
    }
}
