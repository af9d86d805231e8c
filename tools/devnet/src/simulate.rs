//! `niwaki-devnet simulate`: validators of the BFT protocols in one process, in virtual time, with everything that can go wrong.
//!
//! One seed is one run. It draws a network (protocol, validators, period), what goes wrong (delays, lost connections, partitions, crashes at
//! any action, clocks that are off, slow or failing storage, votes, liars) and when. After a while the trouble ends, but for the liars; then
//! each honest node must get on. The machines are those of `niwaki-bft`, so is all that they sign; the chain has headers only.
//!
//! Laws: one block at each height; each finished block is valid and has a quorum of seals; no honest node signs two messages of one kind
//! in one round, nor in a round below one where it was; what is signed was recorded before; a proposal shows what it must; messages that wait
//! are bounded; two blocks within 45 s after the trouble.
//!
//! | file | what it is |
//! |---|---|
//! | `scenario` | what a seed draws |
//! | `world`, `due` | nodes, what is on the way between them, the time |
//! | `links` | connections |
//! | `troubles` | what goes wrong |
//! | `node`, `chain` | one node, its chain |
//! | `liars` | what liars say |
//! | `laws` | what must hold |

mod chain;
mod due;
mod laws;
mod liars;
mod links;
mod node;
mod scenario;
mod troubles;
mod world;

use crate::report::write_json;
use clap::Args;
use eyre::{Result, bail, eyre};
use niwaki_bft::machine::{Guard, Guards};
use scenario::Scenario;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use world::{Counts, World};

#[derive(Args, Debug)]
pub(crate) struct SimulateOptions {
    /// Number of seeds.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Take out each rule of the machine in turn, and run seeds until a law breaks.
    #[arg(long)]
    without_guards: bool,
    /// With --without-guards: only the rules with these names.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "without_guards"
    )]
    only: Vec<String>,
    /// Print all events of the first seed that breaks a law, in the smallest run that does.
    #[arg(long)]
    trace: bool,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A run that broke a law.
struct Broken {
    seed: u64,
    law: String,
}

pub(crate) fn run(options: &SimulateOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    match options.without_guards {
        true => without_guards(options),
        false => with_all(options),
    }
}

fn with_all(options: &SimulateOptions) -> Result<()> {
    let started = Instant::now();
    let counts = Mutex::new(Counts::default());
    let broken = search(options, Guards::default(), &counts);
    let seeds = options.seeds;
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = started.elapsed().as_secs_f64();
    println!("{seeds} seeds, {seconds:.1} s");
    let Counts {
        blocks,
        finished_later,
        refused,
        evidence,
        starts,
    } = counts;
    println!("{blocks} blocks, {finished_later} times finished after round 0");
    println!("{starts} starts, {refused} messages refused, {evidence} proofs of lies");
    let seed = broken.as_ref().map(|broken| broken.seed);
    let results = json!({
        "seeds": seeds, "from": options.from, "seconds": seconds, "broken": seed,
        "blocks": blocks, "finished_after_round_0": finished_later, "starts": starts,
        "refused": refused, "evidence": evidence,
    });
    write_json(options.json.as_deref(), &results)?;
    let Some(Broken { seed, law }) = broken else {
        return Ok(());
    };
    let (smallest, law) = shrink(Scenario::of_seed(seed, Guards::default()), law);
    println!("the smallest run that breaks it: {smallest:?}");
    if options.trace {
        let mut world = World::new(smallest, true);
        let _ = world.run();
        let trace = world.trace.unwrap_or_default();
        trace.iter().for_each(|event| println!("{event}"));
    }
    Err(eyre!(
        "seed {seed}: {law} (--from {seed} --seeds 1 --trace shows its events)"
    ))
}

/// Takes each rule out: some seed must find it.
fn without_guards(options: &SimulateOptions) -> Result<()> {
    let mut missed = Vec::new();
    let mut rows = Vec::new();
    let names: Vec<String> = Guard::ALL.map(|guard| format!("{guard:?}")).to_vec();
    if let Some(other) = options.only.iter().find(|name| !names.contains(name)) {
        bail!("there is no rule {other}; choose from {}", names.join(", "));
    }
    let is_chosen =
        |guard: &Guard| options.only.is_empty() || options.only.contains(&format!("{guard:?}"));
    for guard in Guard::ALL.into_iter().filter(is_chosen) {
        let found = search(options, Guards::without(guard), &Mutex::default());
        match &found {
            Some(Broken { seed, law }) => println!("{guard:?}: seed {seed}, {law}"),
            None => missed.push(guard),
        }
        let seed = found.map(|broken| broken.seed);
        rows.push(json!({ "guard": format!("{guard:?}"), "seed": seed }));
    }
    write_json(options.json.as_deref(), &json!({ "guards": rows }))?;
    match missed.is_empty() {
        true => Ok(()),
        false => bail!("no seed finds that these are missing: {missed:?}; try more --seeds"),
    }
}

/// Runs seeds until one breaks a law; of those that were run, the lowest is the answer.
fn search(options: &SimulateOptions, guards: Guards, counts: &Mutex<Counts>) -> Option<Broken> {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let broken: Mutex<Option<Broken>> = Mutex::new(None);
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.seeds {
                return;
            }
            let seed = options.from + number;
            match try_run(&Scenario::of_seed(seed, guards)) {
                Ok(own) => lock(counts).add(&own),
                Err(law) => {
                    is_over.store(true, Ordering::Relaxed);
                    let mut known = lock(&broken);
                    if known.as_ref().is_none_or(|known| known.seed > seed) {
                        *known = Some(Broken { seed, law });
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(work);
        }
    });
    broken.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One run; a panic breaks a law too.
fn try_run(scenario: &Scenario) -> Result<Counts, String> {
    let run = AssertUnwindSafe(|| World::new(scenario.clone(), false).run());
    catch_unwind(run).unwrap_or_else(|_| Err("a panic".to_owned()))
}

/// Takes out of a run what it does not need to break a law.
fn shrink(mut scenario: Scenario, mut law: String) -> (Scenario, String) {
    'again: loop {
        for smaller in scenario.smaller() {
            if let Err(broken) = try_run(&smaller) {
                (scenario, law) = (smaller, broken);
                continue 'again;
            }
        }
        return (scenario, law);
    }
}
