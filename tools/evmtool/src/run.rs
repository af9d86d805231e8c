//! `niwaki-evm run`: code once, or many times, and how long it takes.

use clap::Args;
use eyre::{Context, Result, eyre};
use niwaki_evm::{BlockEnv, Evm, Exit, Message, Table, Target, Tracer, TxEnv};
use niwaki_primitives::{Address, Bytes, Fork, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};
use serde_json::json;
use std::time::Instant;

use crate::command::DispatchChoice;
use crate::trace::{Eip3155, End};

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Code in hex, or `@FILE` that holds it.
    #[arg(long)]
    code: String,
    /// Call data in hex, or `@FILE` that holds it.
    #[arg(long, default_value = "")]
    input: String,
    /// Fork whose rules apply.
    #[arg(long, default_value = "Osaka")]
    fork: String,
    /// Gas for the call.
    #[arg(long, default_value_t = 1_000_000_000)]
    gas: u64,
    /// Runs that are timed, after as many to warm up as take a tenth of that.
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    /// Writes the EIP-3155 trace of one run to standard error; that run is not timed.
    #[arg(long)]
    trace: bool,
    /// Dispatch of the interpreter.
    #[arg(long, value_enum, default_value_t)]
    dispatch: DispatchChoice,
}

const CALLER: Address = Address::repeat_byte(0x10);
const CONTRACT: Address = Address::repeat_byte(0xc0);

/// What one run gave.
struct Ran {
    exit: Exit,
    gas_used: u64,
    refund: i64,
    output: Bytes,
    ns: u128,
}

impl Ran {
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

/// Runs the code and prints what came of it.
pub(crate) fn run(options: &RunOptions) -> Result<()> {
    let fork = fork_of(&options.fork)?;
    let code = bytes_of("--code", &options.code)?;
    let input = bytes_of("--input", &options.input)?;
    let mut state = MemoryState::default();
    let contract = MemoryAccount {
        code: code.into(),
        ..MemoryAccount::default()
    };
    state.insert(CONTRACT, contract);
    let caller = MemoryAccount {
        balance: U256::from(1) << 128,
        ..MemoryAccount::default()
    };
    state.insert(CALLER, caller);

    if options.trace {
        let mut tracer = Eip3155::default();
        let ran = once(&state, fork, &input, options, Some(&mut tracer))?;
        eprint!("{}", tracer.finish(ran.end(fork)));
    }
    // Every run is to count.
    niwaki_crypto::set_precompile_result_bytes(0);
    let repeat = options.repeat.max(1);
    for _ in 0..repeat.div_ceil(10) {
        once(&state, fork, &input, options, None)?;
    }
    let mut last = once(&state, fork, &input, options, None)?;
    let mut times = vec![last.ns];
    for _ in 1..repeat {
        last = once(&state, fork, &input, options, None)?;
        times.push(last.ns);
    }
    times.sort_unstable();
    let (median, min) = (times[times.len() / 2], times[0]);
    if options.json {
        let object = json!({
            "fork": fork.name(),
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
    Ok(())
}

/// The fork of that name.
pub(crate) fn fork_of(name: &str) -> Result<Fork> {
    Fork::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Fork::ALL.iter().map(|fork| fork.name()).collect();
        eyre!("--fork {name} is no fork; use one of {}", names.join(", "))
    })
}

fn bytes_of(option: &str, text: &str) -> Result<Bytes> {
    let text = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .wrap_err_with(|| format!("can't read {path}, which {option} names; check the path"))?,
        None => text.to_owned(),
    };
    let bytes = hex::decode(text.trim()).wrap_err_with(|| {
        format!("{option} is not hex; give an even number of hex digits or @FILE")
    })?;
    Ok(bytes.into())
}

fn once(
    state: &MemoryState,
    fork: Fork,
    input: &Bytes,
    options: &RunOptions,
    tracer: Option<&mut dyn Tracer>,
) -> Result<Ran> {
    let block = BlockEnv {
        number: 1,
        gas_limit: options.gas,
        chain_id: 1,
        ..BlockEnv::default()
    };
    let mut evm = Evm::new(state, Table::of(fork), block);
    evm.set_dispatch(options.dispatch.into());
    evm.begin_transaction(TxEnv {
        origin: CALLER,
        ..TxEnv::default()
    });
    for address in [CALLER, CONTRACT] {
        evm.world().warm_from_start(&address)?;
    }
    let message = Message {
        caller: CALLER,
        target: Target::Call(CONTRACT),
        value: U256::ZERO,
        input: input.clone(),
        gas: options.gas,
        reservoir: 0,
    };
    let start = Instant::now();
    let outcome = evm.run(&message, tracer)?;
    let ns = start.elapsed().as_nanos();
    Ok(Ran {
        exit: outcome.exit,
        gas_used: options.gas.saturating_sub(outcome.gas_left),
        refund: evm.world().refund(),
        output: outcome.output,
        ns,
    })
}
