//! `niwaki-evm fuzz-precompiles`: runs random inputs of precompiled contracts on the native and on the pure library.

use crate::fuzz::{EVERY, seed_of_clock, stop_flag};
use clap::Args;
use eyre::{Result, bail, ensure};
use niwaki_fuzz::{CONTRACTS, Disagreement, check_precompile_inputs, contract_at};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Options of `fuzz-precompiles`.
#[derive(Debug, Args)]
pub(crate) struct PrecompilesOptions {
    /// Inputs of each contract.
    #[arg(
        long,
        visible_alias = "cases",
        value_name = "N",
        default_value_t = 1_000
    )]
    inputs: u64,
    /// Stops with each contract after this many seconds, and goes on with the next.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of input 0, each other one's being one more; by default drawn from the clock and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these contracts, such as `modexp,p256verify`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Threads; by default one per processor.
    #[arg(long)]
    jobs: Option<usize>,
}

/// Searches for a difference; false if there is one.
pub(crate) fn run(options: &PrecompilesOptions) -> Result<bool> {
    let contracts = options.contracts()?;
    let seed = options.seed.unwrap_or_else(seed_of_clock);
    let jobs = options
        .jobs
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    ensure!(
        options.inputs > 0,
        "--inputs 0 looks at nothing; give at least 1"
    );
    let stop = stop_flag()?;
    println!("fuzzing from seed {seed} on {jobs} threads");
    for (address, name) in contracts {
        let start = Instant::now();
        let told = Mutex::new(start);
        let goes_on = |inputs: u64| {
            if let Some(mut last) = told.lock().ok().filter(|last| last.elapsed() >= EVERY) {
                *last = Instant::now();
                let rate = inputs as f64 / start.elapsed().as_secs_f64();
                println!(
                    "{name}: {inputs} of {} inputs, {rate:.0} a second",
                    options.inputs
                );
            }
            !stop.load(Ordering::Relaxed)
        };
        let until = options
            .seconds
            .map(|seconds| start + Duration::from_secs(seconds));
        let seeds = seed..seed.saturating_add(options.inputs);
        match check_precompile_inputs(address, seeds, jobs, until, &goes_on) {
            Ok(outcomes) => println!(
                "{name}: {} inputs without a difference: {} with an output, {} with an empty one, {} \
                 refused, {} out of gas; {:.0} s",
                outcomes.count(),
                outcomes.succeeded,
                outcomes.empty,
                outcomes.refused,
                outcomes.out_of_gas,
                start.elapsed().as_secs_f64()
            ),
            Err(found) => {
                report(name, &found);
                return Ok(false);
            }
        }
        if stop.load(Ordering::Relaxed) {
            println!("stopped");
            break;
        }
    }
    Ok(true)
}

fn report(name: &str, found: &Disagreement) {
    let [native, pure] =
        contract_at(found.contract).map_or([""; 2], |contract| contract.libraries());
    println!(
        "difference of {name} ({native} and {pure}), seed {}: {}\ninput 0x{}",
        found.seed, found.what, found.input
    );
    println!(
        "to see it again: niwaki-evm fuzz-precompiles --only {name} --inputs 1 --seed {}",
        found.seed
    );
}

impl PrecompilesOptions {
    /// The selected contracts, in the order of their addresses.
    fn contracts(&self) -> Result<Vec<(u16, &'static str)>> {
        for name in &self.only {
            if !CONTRACTS.iter().any(|(_, known)| known == name) {
                let names = CONTRACTS.map(|(_, name)| name);
                bail!(
                    "--only {name} is no precompiled contract; give some of {}",
                    names.join(", ")
                );
            }
        }
        let wanted = CONTRACTS
            .into_iter()
            .filter(|(_, name)| self.only.is_empty() || self.only.iter().any(|only| only == name));
        Ok(wanted.collect())
    }
}
