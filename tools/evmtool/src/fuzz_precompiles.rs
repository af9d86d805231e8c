//! `niwaki-evm fuzz-precompiles`: runs random inputs of precompiled contracts on the native and on the pure library.

use crate::fuzz::{ProgressPrinter, jobs_of, seed_of_clock, stop_flag};
use clap::Args;
use eyre::{Result, bail, ensure};
use niwaki_fuzz::{
    CONTRACTS, Disagreement, Outcomes, Progress, Search, check_precompile, contract_at, search,
};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

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
    /// Seconds for each contract, at most.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of input 0; each other input has one more than the input before [default: from the clock; printed]
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
    let jobs = jobs_of(options.jobs);
    ensure!(
        options.inputs > 0,
        "--inputs 0 compares nothing; give at least 1"
    );
    let stop = stop_flag()?;
    println!("fuzzing from seed {seed} on {jobs} threads");
    for (address, name) in contracts {
        let printer = ProgressPrinter::new();
        let should_continue = |progress: &Progress<Outcomes>| {
            let (inputs, all) = (progress.cases, options.inputs);
            printer.show(inputs, |rate| {
                format!("{name}: {inputs} of {all} inputs, {rate:.0} a second")
            });
            !stop.load(Ordering::Relaxed)
        };
        let limit = options.seconds.map(Duration::from_secs);
        let plan = Search {
            seed,
            cases: (0, options.inputs),
            until: limit.map(|limit| printer.start + limit),
            jobs,
            chunk: 16,
        };
        let check = |mut seeds: Range<u64>, outcomes: &mut Outcomes| {
            seeds.try_for_each(|seed| check_precompile(address, seed, outcomes))
        };
        match search(&plan, &check, &should_continue).map(|progress| progress.tally) {
            Ok(outcomes) => println!(
                "{name}: {} inputs without a difference: {} with an output, {} with an empty one, {} \
                 refused, {} out of gas; {:.0} s",
                outcomes.count(),
                outcomes.succeeded,
                outcomes.empty,
                outcomes.refused,
                outcomes.out_of_gas,
                printer.start.elapsed().as_secs_f64()
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
        let selected = CONTRACTS
            .into_iter()
            .filter(|(_, name)| self.only.is_empty() || self.only.iter().any(|only| only == name));
        Ok(selected.collect())
    }
}
