//! The command line of `niwaki-evm`: its options, and what `state-test` and `block-test` print.

use crate::cases::{Outcome, Selection, Suite, Tally, Verdict, run_files};
use crate::network::is_known;
use crate::state_test::{Batch, run_batch};
use crate::trace::TraceOptions;
use crate::{b11r, benchmark, cartevm, fuzz, fuzz_precompiles, run, t8n};
use clap::{Args, Parser, Subcommand};
use eyre::{Result, bail, ensure, eyre};
use niwaki_evm::Dispatch;
use niwaki_execution::Parallelism;
use niwaki_testkit::fixture_files;
use serde_json::json;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Runs EVM code, and the conformance fixtures of execution-spec-tests and ethereum-tests.
///
/// The exit code is 0 if every case passed, 1 if one failed, 2 if there was nothing to run or it could not be read.
/// `t8n` and `b11r` have go-ethereum's codes: 3 for a wrong configuration, 4 for a missing block hash, 10 for JSON,
/// 11 for files, 12 for RLP.
#[derive(Debug, Parser)]
#[command(name = "niwaki-evm", version)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs state tests and the older VM tests; without paths, the files that standard input names.
    #[command(visible_alias = "statetest")]
    StateTest(StateOptions),
    /// Runs blockchain tests and engine tests.
    BlockTest(BlockOptions),
    /// Runs code once or many times and prints gas, output and time.
    Run(Box<run::RunOptions>),
    /// Runs the state transition of a block, for fillers of tests.
    #[command(visible_alias = "transition")]
    T8n(t8n::T8nOptions),
    /// Serves state transitions over HTTP.
    T8nServer(t8n::ServerOptions),
    /// Builds a block from a header, transactions, ommers and withdrawals.
    #[command(visible_alias = "block-builder")]
    B11r(b11r::B11rOptions),
    /// Measures every opcode or every pair of opcodes, and prints those that are slowest for their gas.
    Cartevm(cartevm::CartOptions),
    /// Measures precompiled contracts and KECCAK256, on the native library and on the pure one.
    Benchmark(benchmark::BenchmarkOptions),
    /// Runs random transactions or blocks here and on revm or go-ethereum, and compares.
    Fuzz(fuzz::FuzzOptions),
    /// Runs random inputs of precompiled contracts on the native library and on the pure one, and compares.
    FuzzPrecompiles(fuzz_precompiles::PrecompilesOptions),
}

impl Options {
    /// Parses a command line, also one of Besu's evmtool, which runs code if no command is named and takes trace
    /// options before `state-test`.
    pub fn of(mut arguments: Vec<OsString>) -> Self {
        const BESU: &str = "--besu";
        const OWN: [&str; 4] = ["-h", "--help", "-V", "--version"];
        let is_option = |argument: &OsString| {
            let text = argument.to_string_lossy();
            text.starts_with('-') && !OWN.contains(&&*text)
        };
        if arguments.get(1).is_some_and(is_option) {
            let command = arguments
                .iter()
                .position(|argument| argument == "state-test");
            let command = command.map_or("run".into(), |at| arguments.remove(at));
            arguments.splice(1..1, [command, BESU.into()]);
        }
        Self::parse_from(arguments)
    }

    /// Runs the command; true if no case failed.
    ///
    /// # Errors
    /// What is wrong with the input, and what to do.
    pub fn execute(&self) -> Result<bool> {
        check_machine()?;
        match &self.command {
            Command::StateTest(options) => options.run(),
            Command::BlockTest(options) => {
                let selection = options.cases.selection(options.parallelism());
                run_cases(&options.cases, Suite::Block, &selection)
            }
            Command::Run(options) => run::run(options).map(|()| true),
            Command::T8n(options) => Ok(t8n::run(options).map(|()| true)?),
            Command::T8nServer(options) => t8n::serve(options).map(|()| true),
            Command::B11r(options) => Ok(b11r::run(options).map(|()| true)?),
            Command::Cartevm(options) => cartevm::run(options).map(|()| true),
            Command::Benchmark(options) => benchmark::run(options).map(|()| true),
            Command::Fuzz(options) => fuzz::run(options),
            Command::FuzzPrecompiles(options) => fuzz_precompiles::run(options),
        }
    }
}

/// Checks cryptography and the interpreter's tail calls.
fn check_machine() -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    ensure!(
        niwaki_evm::has_tail_calls(),
        "the compiler made calls of the interpreter's jumps, so that long code would overflow the \
         stack; build with --release and the toolchain of rust-toolchain.toml"
    );
    Ok(())
}

/// Options of `state-test`.
#[derive(Debug, Args)]
struct StateOptions {
    #[command(flatten)]
    cases: CaseOptions,
    /// Writes EIP-3155 traces to standard error; one thread, loop dispatch.
    #[arg(long)]
    trace: bool,
    /// Only this index into the data.
    #[arg(long, value_name = "N")]
    data_index: Option<usize>,
    /// Only this index into the gas limits.
    #[arg(long, value_name = "N")]
    gas_index: Option<usize>,
    /// Only this index into the values.
    #[arg(long, value_name = "N")]
    value_index: Option<usize>,
    /// Prints the state after every test, in Besu's format.
    #[arg(long, visible_alias = "dump")]
    json_alloc: bool,
    #[command(flatten)]
    traces: TraceOptions,
}

impl StateOptions {
    fn run(&self) -> Result<bool> {
        let selection = Selection {
            indexes: [self.data_index, self.gas_index, self.value_index],
            trace: self.trace,
            ..self.cases.selection(None)
        };
        let paths = &self.cases.paths;
        let standard = paths.is_empty() || paths.iter().any(|path| path.as_os_str() == "stdin");
        if !(standard || self.json_alloc || self.traces.is_besu()) {
            return run_cases(&self.cases, Suite::State, &selection);
        }
        self.cases.check_fork()?;
        let batch = Batch {
            selection: &selection,
            trace: self.trace || self.cases.json,
            traces: &self.traces,
            alloc: self.json_alloc,
        };
        run_batch(batch, paths, &mut BufWriter::new(std::io::stdout().lock()))
    }
}

/// Options of `block-test`.
#[derive(Debug, Args)]
struct BlockOptions {
    #[command(flatten)]
    cases: CaseOptions,
    /// Threads that execute the transactions of a block, speculatively if more than one.
    #[arg(long, value_name = "N")]
    tx_threads: Option<usize>,
    /// Executes every transaction of a block speculatively before the first is committed.
    #[arg(long = "all-ahead")]
    speculate_all: bool,
}

impl BlockOptions {
    fn parallelism(&self) -> Option<Parallelism> {
        let is_parallel = self.speculate_all || self.tx_threads.is_some();
        is_parallel.then(|| Parallelism {
            speculate_all: self.speculate_all,
            ..Parallelism::of(self.tx_threads.unwrap_or(1).max(1))
        })
    }
}

/// Options of `state-test` and `block-test`.
#[derive(Debug, Args)]
struct CaseOptions {
    /// Fixture files, or directories of them; for `state-test` also `stdin`.
    paths: Vec<PathBuf>,
    /// Only cases of this fork or network, such as `Prague` or `ParisToShanghaiAtTime15k`.
    #[arg(long, visible_aliases = ["fork-index", "statetest.fork"])]
    fork: Option<String>,
    /// Only cases whose name matches this pattern (`*`, `?`) or contains this text.
    #[arg(long)]
    test_name: Option<String>,
    /// Prints one JSON object per case instead of the failures alone; in Besu's format: traces.
    #[arg(long)]
    json: bool,
    /// Threads; by default one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Dispatch of the interpreter: fused, threaded or loop.
    #[arg(long, default_value_t)]
    dispatch: Dispatch,
}

impl CaseOptions {
    fn check_fork(&self) -> Result<()> {
        if let Some(fork) = self.fork.as_deref().filter(|fork| !is_known(fork)) {
            bail!(
                "--fork {fork} is neither a fork nor a transition; use a name of the fixtures, \
                 such as Prague or CancunToPragueAtTime15k"
            );
        }
        Ok(())
    }

    fn selection(&self, parallelism: Option<Parallelism>) -> Selection {
        Selection {
            fork: self.fork.clone(),
            test_name: self.test_name.clone(),
            dispatch: self.dispatch,
            parallelism,
            ..Selection::default()
        }
    }
}

/// Runs every selected case; true if none failed.
fn run_cases(options: &CaseOptions, suite: Suite, selection: &Selection) -> Result<bool> {
    options.check_fork()?;
    ensure!(
        !options.paths.is_empty(),
        "no path to run; give fixture files or directories of them"
    );
    let files = fixture_files(&options.paths)
        .map_err(|(path, error)| eyre!("can't list {}: {error}; check the path", path.display()))?;
    if files.is_empty() {
        let paths = options.paths.iter().map(|path| path.display().to_string());
        bail!(
            "no .json file in {}; give fixture files or directories of them",
            paths.collect::<Vec<_>>().join(", ")
        );
    }
    let jobs = match options.jobs {
        _ if selection.trace => 1,
        Some(jobs) => jobs.max(1),
        None => std::thread::available_parallelism().map_or(1, |count| count.get()),
    };
    let mut unreadable = 0u64;
    let mut out = std::io::stdout().lock();
    let report = |file: &Path, verdict: Result<&Verdict, _>| match verdict {
        // A closed pipe ends printing, not counting.
        Ok(verdict) => drop(print(&mut out, options.json, file, verdict)),
        Err(error) => {
            unreadable += 1;
            eprintln!("niwaki-evm: {error}");
        }
    };
    let tally = run_files(&files, suite, selection, jobs, report);
    let _ = print_tally(&mut out, options.json, &tally);
    ensure!(
        unreadable == 0,
        "{unreadable} of {} files could not be read; repair them or leave them out",
        files.len()
    );
    ensure_something_ran(options, suite, &tally)?;
    Ok(tally.failed == 0)
}

/// Fails if no case was run.
fn ensure_something_ran(options: &CaseOptions, suite: Suite, tally: &Tally) -> Result<()> {
    if tally.passed + tally.failed > 0 {
        return Ok(());
    }
    let (kind, other) = match suite {
        Suite::State => ("state or VM test", "block-test"),
        Suite::Block => ("blockchain or engine test", "state-test"),
    };
    ensure!(
        tally.skipped == 0,
        "all {} cases were skipped: none is a complete {kind}; try {other}",
        tally.skipped
    );
    let fork = options.fork.as_ref().map(|fork| format!(" of fork {fork}"));
    let name = options.test_name.as_ref();
    let name = name.map(|name| format!(" whose name matches {name}"));
    bail!(
        "no {kind}{}{} in these files; loosen --fork or --test-name",
        fork.unwrap_or_default(),
        name.unwrap_or_default()
    )
}

fn print_tally(out: &mut impl Write, as_json: bool, tally: &Tally) -> std::io::Result<()> {
    match as_json {
        true => writeln!(out, "{}", json!(tally)),
        false => writeln!(out, "{tally}"),
    }
}

fn print(
    out: &mut impl Write,
    as_json: bool,
    file: &Path,
    verdict: &Verdict,
) -> std::io::Result<()> {
    let (status, reason) = match &verdict.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Failed(reason) => ("failed", Some(reason)),
        Outcome::Skipped(reason) => ("skipped", Some(reason)),
    };
    if as_json {
        let object = json!({
            "file": file.display().to_string(),
            "name": verdict.name,
            "fork": verdict.fork,
            "status": status,
            "pass": matches!(verdict.outcome, Outcome::Passed),
            "error": reason,
        });
        return writeln!(out, "{object}");
    }
    let (file, name, fork) = (file.display(), &verdict.name, &verdict.fork);
    match &verdict.outcome {
        Outcome::Failed(reason) => writeln!(out, "FAILED {file} {name} [{fork}]: {reason}"),
        _ => Ok(()),
    }
}
