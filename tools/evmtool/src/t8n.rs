//! `niwaki-evm t8n`: the state transition of one block, from files or standard input.
//!
//! Options, documents and exit codes are those of go-ethereum's `evm t8n`, which Besu's tool shares, so that
//! test fillers such as execution-spec-tests can use it.

mod input;
mod output;
mod server;
mod transactions;
mod transition;

pub(crate) use output::alloc;
pub(crate) use server::{ServerOptions, serve};

use clap::Args;
use input::{Input, Parts};
use niwaki_evm::tracers::Eip3155Options;
use niwaki_primitives::{Fork, U256};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use transition::{Done, Traces};

/// Options of `t8n`.
#[derive(Debug, Args)]
pub(crate) struct T8nOptions {
    /// The state before: a file, or `stdin`.
    #[arg(
        long = "input.alloc",
        value_name = "FILE",
        default_value = "alloc.json"
    )]
    input_alloc: String,
    /// The block: a file, or `stdin`.
    #[arg(long = "input.env", value_name = "FILE", default_value = "env.json")]
    input_env: String,
    /// The transactions: a file of objects, a `.rlp` file with a list in hex, or `stdin`.
    #[arg(long = "input.txs", value_name = "FILE", default_value = "txs.json")]
    input_txs: String,
    /// Where files are written that are not absolute.
    #[arg(long = "output.basedir", value_name = "DIR", default_value = ".")]
    output_basedir: PathBuf,
    /// The state after: a file, `stdout`, `stderr`, or empty for none.
    #[arg(
        long = "output.alloc",
        value_name = "FILE",
        default_value = "alloc.json"
    )]
    output_alloc: String,
    /// Roots, receipts, gas, and what was rejected.
    #[arg(
        long = "output.result",
        value_name = "FILE",
        default_value = "result.json"
    )]
    output_result: String,
    /// The transactions that were given, taken or not, a list in RLP in hex; by default not written.
    #[arg(long = "output.body", value_name = "FILE", default_value = "")]
    output_body: String,
    #[command(flatten)]
    state: StateOptions,
    /// Writes the EIP-3155 trace of each transaction to `trace-INDEX-HASH.jsonl`.
    #[arg(long)]
    trace: bool,
    /// With memory.
    #[arg(long = "trace.memory", requires = "trace")]
    trace_memory: bool,
    /// Without the stack.
    #[arg(long = "trace.nostack", requires = "trace")]
    trace_nostack: bool,
    /// With what calls have returned, which is the default.
    #[arg(long = "trace.returndata", requires = "trace")]
    trace_returndata: bool,
}

/// The rules, as options.
#[derive(Debug, Args)]
struct StateOptions {
    /// Fork whose rules apply.
    #[arg(long = "state.fork", value_name = "NAME", default_value = "Osaka")]
    fork: String,
    /// Chain id that signatures must name.
    #[arg(long = "state.chainid", value_name = "N", default_value_t = 1)]
    chain_id: u64,
    /// Wei that a block before Paris pays to its coinbase, -1 for nothing at all [default: as the fork has it]
    #[arg(long = "state.reward", value_name = "WEI", allow_hyphen_values = true)]
    reward: Option<i128>,
}

/// The rules of a transition.
#[derive(Clone, Copy, Debug)]
struct Rules {
    fork: Fork,
    chain_id: u64,
    /// The block reward before Paris if it is not the fork's; `Some(None)` for no reward.
    reward: Option<Option<U256>>,
}

impl StateOptions {
    fn rules(&self) -> Result<Rules, Failure> {
        Rules::new(&self.fork, self.chain_id, self.reward)
    }
}

impl Rules {
    fn new(fork: &str, chain_id: u64, reward: Option<i128>) -> Result<Self, Failure> {
        let found = fork.parse();
        let found =
            found.map_err(|error: String| Failure::config(format!("state.fork {error}")))?;
        let reward = reward.map(|wei| u128::try_from(wei).ok().map(U256::from));
        Ok(Self {
            fork: found,
            chain_id,
            reward,
        })
    }
}

/// Why there is no transition, with the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    code: u8,
    reason: String,
}

impl Failure {
    /// The exit code, as go-ethereum's.
    pub fn exit_code(&self) -> u8 {
        self.code
    }

    fn evm(reason: String) -> Self {
        Self { code: 2, reason }
    }

    pub(crate) fn config(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { code: 3, reason }
    }

    fn block_hash(reason: String) -> Self {
        Self { code: 4, reason }
    }

    pub(crate) fn json(what: &str, reason: impl std::fmt::Display) -> Self {
        let reason = format!("{what}: {reason}");
        Self { code: 10, reason }
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        let reason = format!("{}: {error}; check the path", path.display());
        Self { code: 11, reason }
    }

    pub(crate) fn rlp(reason: String) -> Self {
        Self { code: 12, reason }
    }
}

/// Runs the transition of the options.
///
/// # Errors
/// [`Failure`].
pub(crate) fn run(options: &T8nOptions) -> Result<(), Failure> {
    let rules = options.state.rules()?;
    let input = options.read(rules.chain_id)?;
    let folder = &options.output_basedir;
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
    let traces = options.trace.then(|| Traces {
        folder: folder.clone(),
        shown: Eip3155Options {
            memory: options.trace_memory,
            stack: !options.trace_nostack,
            ..Eip3155Options::default()
        },
    });
    let done = transition::apply(&rules, input, traces.as_ref())?;
    let (mut stdout, mut stderr) = (Map::new(), Map::new());
    for (name, to) in [
        ("alloc", &options.output_alloc),
        ("result", &options.output_result),
        ("body", &options.output_body),
    ] {
        let value = || part(name, &done, rules.fork);
        match to.as_str() {
            "" => {}
            "stdout" => drop(stdout.insert(name.to_owned(), value())),
            "stderr" => drop(stderr.insert(name.to_owned(), value())),
            file => write(&folder.join(file), &value())?,
        }
    }
    if !stdout.is_empty() {
        println!("{:#}", Value::Object(stdout));
    }
    if !stderr.is_empty() {
        eprintln!("{:#}", Value::Object(stderr));
    }
    Ok(())
}

fn part(name: &str, done: &Done, fork: Fork) -> Value {
    match name {
        "alloc" => output::alloc(&done.state),
        "result" => output::result(done, fork),
        _ => output::body(done),
    }
}

pub(crate) fn write(path: &Path, value: &Value) -> Result<(), Failure> {
    std::fs::write(path, format!("{value:#}\n")).map_err(|error| Failure::io(path, &error))
}

pub(crate) fn read(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::io(Path::new(path), &error))
}

pub(crate) fn read_stdin() -> Result<String, Failure> {
    std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::io(Path::new("standard input"), &error))
}

impl T8nOptions {
    fn read(&self, chain_id: u64) -> Result<Input, Failure> {
        let from_stdin = [&self.input_alloc, &self.input_env, &self.input_txs]
            .into_iter()
            .any(|from| from == "stdin");
        let mut parts = match from_stdin {
            true => serde_json::from_str(&read_stdin()?)
                .map_err(|error| Failure::json("standard input", error))?,
            false => Parts::default(),
        };
        let raw = |name: &str, from: &str| {
            let text = read(from)?;
            RawValue::from_string(text)
                .map_err(|error| Failure::json(&format!("{name} {from}"), error))
        };
        if self.input_alloc != "stdin" {
            parts.alloc = Some(raw("input.alloc", &self.input_alloc)?);
        }
        if self.input_env != "stdin" {
            parts.env = Some(raw("input.env", &self.input_env)?);
        }
        match self.input_txs.as_str() {
            "stdin" => {}
            file if file.ends_with(".rlp") => {
                let text = read(file)?;
                parts.txs_rlp = Some(text.trim().trim_matches('"').to_owned());
            }
            file => {
                parts.txs_rlp = None;
                parts.txs = Some(raw("input.txs", file)?);
            }
        }
        parts.read(chain_id)
    }
}
