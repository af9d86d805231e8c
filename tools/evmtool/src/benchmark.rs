//! `niwaki-evm benchmark`: times precompiled contracts and KECCAK256 on the native library and on the pure one.
//!
//! A case is one input. Its batches alternate between both libraries; its result is the median of the batches. No
//! result is cached between two calls unless requested.

mod case;
mod report;

use crate::run::fork_of;
use case::{Case, cases};
use clap::Args;
use eyre::{Result, WrapErr, ensure};
use niwaki_crypto::{PrecompileHalt, Precompiled, Preference, keccak256};
use niwaki_evm::Table;
use report::{Measured, Report, Row};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of `benchmark`.
#[derive(Debug, Args)]
pub(crate) struct BenchmarkOptions {
    /// Only cases whose names contain one of these, such as `modexp` or `bls12-g1msm-128`; all of them by default.
    #[arg(value_name = "TESTS")]
    tests: Vec<String>,
    /// Only the native library of each contract, or the faster one where none is native.
    #[arg(long)]
    native: bool,
    /// Only the library in pure Rust.
    #[arg(long, conflicts_with = "native")]
    pure: bool,
    /// Fork whose contracts and prices apply.
    #[arg(long, default_value = "Osaka")]
    fork: String,
    /// Caches results and points as a node does, so that an input is computed once and then found.
    #[arg(long, conflicts_with_all = ["native", "pure"])]
    use_precompile_cache: bool,
    /// Batches of each case, after one to warm up.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Minimum time of a batch, ms; it has at least one call.
    #[arg(
        long, value_name = "MS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(..=60_000)
    )]
    duration: u64,
    /// Writes every case as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The code that runs a case.
#[derive(Clone, Copy)]
enum Runner {
    Contract(Precompiled, Preference),
    /// The library and the caches that a node uses.
    Cached(Precompiled),
    Keccak,
}

/// More gas than any case costs.
const GAS: u64 = 1 << 50;

/// Runs the benchmark.
pub(crate) fn run(options: &BenchmarkOptions) -> Result<()> {
    let fork = fork_of(&options.fork)?;
    if !options.use_precompile_cache {
        niwaki_crypto::set_precompile_result_bytes(0);
    }
    let contracts = Table::of(fork).precompiles();
    let selected: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.address.is_none_or(|at| contracts.get(&at).is_some()))
        .filter(|case| {
            options.tests.is_empty() || options.tests.iter().any(|part| case.name.contains(part))
        })
        .collect();
    ensure!(
        !selected.is_empty(),
        "no case of {} has a name with {} in it; run `niwaki-evm benchmark` without names to see them",
        fork.name(),
        options.tests.join(" or ")
    );
    let mut report = Report {
        fork: fork.name(),
        batches: options.repeat,
        batch_ms: options.duration,
        cases: Vec::new(),
    };
    report::print_head();
    for case in &selected {
        let contract = case.address.and_then(|at| contracts.get(&at));
        let row = options.measure(case, contract)?;
        row.print();
        report.cases.push(row);
    }
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&report)? + "\n";
        std::fs::write(path, json).wrap_err_with(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

impl BenchmarkOptions {
    fn measure(&self, case: &Case, contract: Option<Precompiled>) -> Result<Row> {
        let runners = self.runners(contract);
        let mut gas = None;
        for (_, runner) in &runners {
            let used = runner
                .run(&case.input)
                .map_err(|halt| eyre::eyre!("{} fails: {halt:?}", case.name))?;
            ensure!(
                gas.is_none_or(|gas| gas == used),
                "{}: libraries cost {gas:?} and {used} gas",
                case.name
            );
            gas = Some(used);
        }
        let least = Duration::from_millis(self.duration);
        let calls: Vec<u32> = runners
            .iter()
            .map(|(_, runner)| case.calls_within(*runner, least))
            .collect();
        let mut times = vec![Vec::new(); runners.len()];
        for _ in 0..self.repeat {
            for (at, (_, runner)) in runners.iter().enumerate() {
                let took = case.batch(*runner, calls[at]);
                times[at].push(took.as_secs_f64() * 1e9 / f64::from(calls[at]));
            }
        }
        let gas = gas.unwrap_or_default();
        let libraries = runners.iter().zip(times);
        let libraries = libraries.map(|((library, _), times)| Measured::new(library, gas, times));
        Ok(Row::new(case, gas, libraries.collect()))
    }

    /// The selected libraries, the native one first.
    fn runners(&self, contract: Option<Precompiled>) -> Vec<(&'static str, Runner)> {
        let Some(contract) = contract else {
            return vec![("keccak-asm", Runner::Keccak)];
        };
        let [native, pure] = contract.libraries();
        if self.use_precompile_cache {
            return vec![(native, Runner::Cached(contract))];
        }
        let native = (native, Runner::Contract(contract, Preference::Native));
        let pure = (pure, Runner::Contract(contract, Preference::Pure));
        match (self.native, self.pure) {
            (true, _) => vec![native],
            (_, true) => vec![pure],
            _ if native.0 == pure.0 => vec![native],
            _ => vec![native, pure],
        }
    }
}

impl Runner {
    /// One call; the gas used.
    fn run(self, input: &[u8]) -> Result<u64, PrecompileHalt> {
        let result = match self {
            Self::Contract(contract, library) => contract.run_by(library, black_box(input), GAS),
            Self::Cached(contract) => contract.run(black_box(input), GAS),
            Self::Keccak => {
                black_box(keccak256(black_box(input)));
                return Ok(30 + 6 * input.len().div_ceil(32) as u64);
            }
        };
        black_box(result).map(|(gas, _)| gas)
    }
}

impl Case {
    /// Time of `calls` calls. The cache of pairing points is cleared before each call, outside of the measured time.
    fn batch(&self, runner: Runner, calls: u32) -> Duration {
        let once = || {
            // It succeeded before, and depends on nothing but its input.
            let _ = black_box(runner.run(&self.input));
        };
        if self.caches_points && !matches!(runner, Runner::Cached(_)) {
            return (0..calls)
                .map(|_| {
                    niwaki_crypto::forget_precompile_results();
                    let start = Instant::now();
                    once();
                    start.elapsed()
                })
                .sum();
        }
        let start = Instant::now();
        (0..calls).for_each(|_| once());
        start.elapsed()
    }

    /// How many calls take at least `least`.
    fn calls_within(&self, runner: Runner, least: Duration) -> u32 {
        let mut calls = 1;
        loop {
            let took = self.batch(runner, calls);
            if took >= least || calls >= 1 << 24 {
                return calls;
            }
            let missing = least.as_secs_f64() / took.as_secs_f64().max(1e-9);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 2 and 100"
            )]
            let factor = (missing * 1.1).ceil().clamp(2.0, 100.0) as u32;
            calls *= factor;
        }
    }
}
