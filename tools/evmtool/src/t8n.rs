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
use input::{Documents, Input};
use niwaki_evm::tracers::Eip3155Options;
use niwaki_primitives::{Fork, U256};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use transition::{Traces, TransitionResult};

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
    /// The given transactions, included or not, as a list in RLP in hex; by default not written.
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

impl Rules {
    fn new(fork: &str, chain_id: u64, reward: Option<i128>) -> Result<Self, Failure> {
        let error = |error: String| Failure::config(format!("state.fork {error}"));
        Ok(Self {
            fork: fork.parse().map_err(error)?,
            chain_id,
            reward: reward.map(|wei| u128::try_from(wei).ok().map(U256::from)),
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
    let StateOptions {
        fork,
        chain_id,
        reward,
    } = &options.state;
    let rules = Rules::new(fork, *chain_id, *reward)?;
    let input = options.read(rules.chain_id)?;
    let folder = &options.output_basedir;
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder, &error))?;
    let traces = options.trace.then(|| Traces {
        folder: folder.clone(),
        options: Eip3155Options {
            memory: options.trace_memory,
            stack: !options.trace_nostack,
            ..Eip3155Options::default()
        },
    });
    let result = transition::apply(&rules, input, traces.as_ref())?;
    let (mut stdout, mut stderr) = (Map::new(), Map::new());
    for (name, to) in [
        ("alloc", &options.output_alloc),
        ("result", &options.output_result),
        ("body", &options.output_body),
    ] {
        let value = || document(name, &result, rules.fork);
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

/// A document of the output.
fn document(name: &str, result: &TransitionResult, fork: Fork) -> Value {
    match name {
        "alloc" => output::alloc(&result.state),
        "result" => output::result(result, fork),
        _ => output::body(result),
    }
}

pub(crate) fn write(path: &Path, value: &Value) -> Result<(), Failure> {
    std::fs::write(path, format!("{value:#}\n")).map_err(|error| Failure::io(path, &error))
}

fn read(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::io(Path::new(path), &error))
}

/// The JSON in a file; `what` names it in errors.
pub(crate) fn read_json(what: &str, path: &str) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(read(path)?)
        .map_err(|error| Failure::json(&format!("{what} {path}"), error))
}

/// The documents on standard input if one of `names` is `stdin`, else none.
pub(crate) fn read_stdin<T: Default + DeserializeOwned>(names: &[&str]) -> Result<T, Failure> {
    if !names.contains(&"stdin") {
        return Ok(T::default());
    }
    let text = std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::io(Path::new("standard input"), &error))?;
    serde_json::from_str(&text).map_err(|error| Failure::json("standard input", error))
}

/// A list of transactions in RLP, as hex in a file.
pub(crate) fn read_rlp(path: &str) -> Result<String, Failure> {
    Ok(read(path)?.trim().trim_matches('"').to_owned())
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(what: &str, raw: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(raw.get()).map_err(|error| Failure::json(what, error))
}

impl T8nOptions {
    fn read(&self, chain_id: u64) -> Result<Input, Failure> {
        let (alloc, env, txs) = (&*self.input_alloc, &*self.input_env, &*self.input_txs);
        let mut documents: Documents = read_stdin(&[alloc, env, txs])?;
        if alloc != "stdin" {
            documents.alloc = Some(read_json("input.alloc", alloc)?);
        }
        if env != "stdin" {
            documents.env = Some(read_json("input.env", env)?);
        }
        match txs {
            "stdin" => {}
            file if file.ends_with(".rlp") => documents.txs_rlp = Some(read_rlp(file)?),
            file => {
                documents.txs_rlp = None;
                documents.txs = Some(read_json("input.txs", file)?);
            }
        }
        documents.read(chain_id)
    }
}
