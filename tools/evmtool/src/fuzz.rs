//! `niwaki-evm fuzz`: random blocks on this machine and on revm.

use clap::Args;
use eyre::{Result, ensure};
use niwaki_evm::Dispatch;
use niwaki_fuzz::{Search, search};
use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Options of `niwaki-evm fuzz`.
#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// Stops after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Stops after this many cases.
    #[arg(long)]
    cases: Option<u64>,
    /// First seed; by default drawn from the clock and printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads; by default one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Runs every case on the loop form of the interpreter.
    #[arg(long)]
    loop_dispatch: bool,
}

/// Time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

/// Searches for a difference; false if there is one.
pub(crate) fn run(options: &FuzzOptions) -> Result<bool> {
    ensure!(
        options.seconds.is_some() || options.cases.is_some(),
        "say how long to look: --seconds N, --cases N, or both"
    );
    let seed = options.seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |since| since.as_secs().wrapping_mul(1 << 24))
    });
    let start = Instant::now();
    let look = Search {
        seed,
        cases: options.cases.unwrap_or(u64::MAX),
        until: options
            .seconds
            .map(|seconds| start + Duration::from_secs(seconds)),
        jobs: options
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
            .max(1),
        dispatch: if options.loop_dispatch {
            Dispatch::Loop
        } else {
            Dispatch::Threaded
        },
    };
    println!("fuzzing from seed {seed} on {} threads", look.jobs);
    let told = Mutex::new(start);
    let progress = |cases: u64| {
        let Ok(mut last) = told.lock() else { return };
        if last.elapsed() >= EVERY {
            *last = Instant::now();
            let rate = cases as f64 / start.elapsed().as_secs_f64();
            println!("{cases} cases, {rate:.0} a second");
        }
    };
    match search(&look, &progress) {
        Ok((cases, tally)) => {
            println!(
                "{cases} cases without a difference: {} transactions succeeded, {} reverted, {} \
                 halted, {} were refused; {} Mgas in {:.0} s",
                tally.succeeded,
                tally.reverted,
                tally.halted,
                tally.refused,
                tally.gas / 1_000_000,
                start.elapsed().as_secs_f64()
            );
            Ok(true)
        }
        Err(found) => {
            println!(
                "difference on {}, seed {}: {}",
                found.fork, found.seed, found.what
            );
            println!(
                "to see it again: niwaki-evm fuzz --cases 1 --seed {}",
                found.seed
            );
            Ok(false)
        }
    }
}
