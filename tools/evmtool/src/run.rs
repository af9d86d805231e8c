//! `niwaki-evm run`: runs code once or many times, and prints gas, output and time.

mod start;

use crate::t8n;
use crate::trace::TraceOptions;
use clap::Args;
use eyre::{Result, eyre};
use niwaki_evm::tracers::{Eip3155, Eip3155End as End, Eip3155Options};
use niwaki_evm::{Dispatch, Evm, Exit, Table, Tracer};
use niwaki_primitives::{Address, Bytes, Fork, U256};
use niwaki_testkit::{MemoryState, state_root};
use serde_json::{Value, json};
use start::RunInput;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Code in hex, or `@FILE` that holds it.
    #[arg(value_name = "CODE", conflicts_with_all = ["code_option", "codefile"])]
    code: Option<String>,
    /// The same as an option; without any, the code of the receiver in --genesis or --chain runs.
    #[arg(long = "code", value_name = "CODE", conflicts_with = "codefile")]
    code_option: Option<String>,
    /// File that holds the code in hex; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    codefile: Option<String>,
    /// Call data in hex, or `@FILE` that holds it.
    #[arg(long, default_value = "", conflicts_with = "inputfile")]
    input: String,
    /// File that holds the call data in hex; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    inputfile: Option<String>,
    /// Fork whose rules apply [default: that of --genesis or --chain, or Osaka; as Besu BPO5]
    #[arg(long)]
    fork: Option<String>,
    /// Gas for the call [default: 1000000000; as Besu 10000000000]
    #[arg(long)]
    gas: Option<u64>,
    /// Subtracts the intrinsic gas of a transaction with this input.
    #[arg(long)]
    intrinsic_gas: bool,
    /// Gas price, wei.
    #[arg(long, value_name = "WEI", default_value = "0", value_parser = start::number)]
    price: U256,
    /// Blob base fee, wei [default: of the block]
    #[arg(long, value_name = "WEI", value_parser = start::number)]
    blob_price: Option<U256>,
    /// Caller; short addresses are padded with zeros on the left.
    #[arg(long, value_name = "ADDRESS", value_parser = start::address)]
    sender: Option<Address>,
    /// Called account.
    #[arg(long, value_name = "ADDRESS", value_parser = start::address)]
    receiver: Option<Address>,
    /// Another account that holds the code, warm from the start [default: the receiver]
    #[arg(long, value_name = "ADDRESS", value_parser = start::address)]
    contract: Option<Address>,
    /// Receiver of fees [default: that of --genesis or --chain, or zero]
    #[arg(long, value_name = "ADDRESS", value_parser = start::address)]
    coinbase: Option<Address>,
    /// Value of the call, wei; raises the balance of a sender with less.
    #[arg(long, value_name = "WEI", default_value = "0", value_parser = start::number)]
    value: U256,
    /// Runs the code, followed by the input, as init code of a creation by the sender.
    #[arg(long)]
    create: bool,
    /// Genesis file with the accounts, the block and the forks of the run.
    #[arg(
        long,
        visible_alias = "prestate",
        value_name = "FILE",
        conflicts_with = "chain"
    )]
    genesis: Option<PathBuf>,
    /// Built-in chain, such as mainnet, whose genesis is used.
    #[arg(long, value_name = "NAME")]
    chain: Option<String>,
    /// Timed runs, after a tenth as many to warm up.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Prints one JSON object; as Besu: traces.
    #[arg(long)]
    json: bool,
    /// Prints the state after the run as JSON.
    #[arg(long, visible_alias = "dump")]
    json_alloc: bool,
    /// Writes the EIP-3155 trace of one run, which is not timed, to standard error.
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    traces: TraceOptions,
    /// Dispatch of the interpreter: fused, threaded or loop.
    #[arg(long, default_value_t)]
    dispatch: Dispatch,
}

/// The result of one run.
struct RunResult {
    exit: Exit,
    gas_used: u64,
    refund: i64,
    output: Bytes,
    ns: u128,
    state: MemoryState,
}

impl RunResult {
    fn end<'a>(&'a self, fork: Fork) -> End<'a> {
        End {
            state_root: None,
            output: &self.output,
            gas_used: self.gas_used,
            exit: self.exit,
            fork: fork.name(),
        }
    }
}

/// Runs the code and prints the result.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let input = RunInput::of(options)?;
    let result = match options.traces.is_besu() {
        true => run_as_besu(options, &input)?,
        false => run_plain(options, &input)?,
    };
    if options.json_alloc {
        println!("{:#}", t8n::alloc(&result.state));
    }
    Ok(())
}

fn run_plain(options: &RunOptions, input: &RunInput) -> Result<RunResult> {
    if options.trace {
        let mut tracer = Eip3155::new(
            Eip3155Options::default(),
            BufWriter::new(std::io::stderr().lock()),
        );
        let result = run_once(input, options, Some(&mut tracer))?;
        let _ = tracer.finish(result.end(input.fork)).flush();
    }
    let (last, times) = time_runs(options, input)?;
    let (median, min) = (times[times.len() / 2], times[0]);
    if options.json {
        let object = json!({
            "fork": input.fork.name(),
            "exit": format!("{:?}", last.exit),
            "success": last.exit.is_success(),
            "gasUsed": last.gas_used,
            "refund": last.refund,
            "output": last.output,
            "runs": times.len(),
            "nsMedian": u64::try_from(median).unwrap_or(u64::MAX),
            "nsMin": u64::try_from(min).unwrap_or(u64::MAX),
        });
        println!("{object}");
    } else {
        println!("exit     {:?}", last.exit);
        println!(
            "gas used {} (refund counter {})",
            last.gas_used, last.refund
        );
        println!("output   {}", last.output);
        println!(
            "time     {median} ns median, {min} ns min of {} runs",
            times.len()
        );
    }
    Ok(last)
}

/// Prints trace and summary in Besu's format; a traced run is the only one.
fn run_as_besu(options: &RunOptions, input: &RunInput) -> Result<RunResult> {
    let (result, ns) = if options.json || options.trace {
        let out = BufWriter::new(std::io::stdout().lock());
        let mut tracer = Eip3155::new(options.traces.options(), out);
        let result = run_once(input, options, Some(&mut tracer))?;
        let _ = tracer.end().flush();
        let ns = result.ns;
        (result, ns)
    } else {
        let (result, times) = time_runs(options, input)?;
        (result, times[times.len() / 2])
    };
    let mut summary = json!({
        "stateRoot": state_root(&result.state),
        "output": result.output,
        "gasUsed": format!("{:#x}", result.gas_used),
        "pass": !matches!(result.exit, Exit::Halt(_)),
        "fork": input.fork.name(),
    });
    if options.traces.with_time() {
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        summary["timens"] = Value::from(ns);
        summary["time"] = Value::from(ns / 1_000);
    }
    println!("{summary}");
    Ok(result)
}

/// The last run, and the times of all runs, ascending.
fn time_runs(options: &RunOptions, input: &RunInput) -> Result<(RunResult, Vec<u128>)> {
    // Each run must be executed, not taken from the cache.
    niwaki_crypto::set_precompile_result_bytes(0);
    let repeat = options.repeat.max(1);
    for _ in 0..repeat.div_ceil(10) {
        run_once(input, options, None)?;
    }
    let mut last = run_once(input, options, None)?;
    let mut times = vec![last.ns];
    for _ in 1..repeat {
        last = run_once(input, options, None)?;
        times.push(last.ns);
    }
    times.sort_unstable();
    Ok((last, times))
}

/// The fork of that name.
pub(crate) fn fork_of(name: &str) -> Result<Fork> {
    name.parse()
        .map_err(|error: String| eyre!("--fork {error}"))
}

fn run_once(
    input: &RunInput,
    options: &RunOptions,
    tracer: Option<&mut dyn Tracer>,
) -> Result<RunResult> {
    let mut evm = Evm::new(&input.state, Table::of(input.fork), input.block.clone());
    evm.set_dispatch(options.dispatch);
    if let Some(bytes) = input.max_code_bytes {
        evm.set_max_code_bytes(bytes);
    }
    evm.begin_transaction(input.tx.clone());
    for address in &input.warm {
        evm.world().load_warm(address)?;
    }
    let began = Instant::now();
    let outcome = evm.run(&input.message, tracer)?;
    let ns = began.elapsed().as_nanos();
    let world = evm.world();
    let refund = world.refund();
    world.end_transaction();
    let diff = world.diff();
    let mut state = input.state.clone();
    state.apply(&diff);
    Ok(RunResult {
        exit: outcome.exit,
        gas_used: input.message.gas.saturating_sub(outcome.gas_left),
        refund,
        output: outcome.output,
        ns,
        state,
    })
}
