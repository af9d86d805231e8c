//! `niwaki-evm fuzz`: random blocks on this machine, and on revm or go-ethereum's `evm t8n`.

use clap::Args;
use eyre::{Result, bail, ensure};
use niwaki_evm::Dispatch;
use niwaki_fuzz::{BLOCK_FORKS, Difference, FORKS, Search, T8n, Tally, check, check_block, search};
use niwaki_primitives::Fork;
use std::{
    path::PathBuf,
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
    /// Runs whole blocks, their transactions in turn and ahead of it, instead of beside revm.
    #[arg(long)]
    blocks: bool,
    /// Runs whole blocks beside this program too, go-ethereum's `evm`.
    #[arg(long, value_name = "PATH")]
    t8n: Option<PathBuf>,
    /// Fork of every case, such as Osaka; by default drawn, with --blocks and --t8n Amsterdam.
    #[arg(long)]
    fork: Option<String>,
    /// Where --t8n writes the files of a block that differs.
    #[arg(long, requires = "t8n", value_name = "DIR", default_value = ".")]
    keep: PathBuf,
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
    let dispatch = if options.loop_dispatch {
        Dispatch::Loop
    } else {
        niwaki_evm::set_runs_to_be_hot(1);
        Dispatch::Fused
    };
    let (peer, fork) = (options.peer()?, options.fork()?);
    let whole_blocks = options.blocks || peer.is_some();
    let check = |seed, tally: &mut Tally| {
        if whole_blocks {
            let fork = fork.unwrap_or(Fork::Amsterdam);
            check_block(seed, fork, peer.as_ref(), dispatch, tally)
        } else {
            check(seed, fork, dispatch, tally)
        }
    };
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
        // A block costs a process.
        chunk: if peer.is_some() { 1 } else { 64 },
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
    match search(&look, &check, &progress) {
        Ok((cases, tally)) => {
            // A receipt does not say which of the two it was.
            let failed = if whole_blocks {
                format!("{} failed", tally.reverted)
            } else {
                format!("{} reverted, {} halted", tally.reverted, tally.halted)
            };
            println!(
                "{cases} cases without a difference: {} transactions succeeded, {failed}, {} were \
                 refused; {} Mgas in {:.0} s",
                tally.succeeded,
                tally.refused,
                tally.gas / 1_000_000,
                start.elapsed().as_secs_f64()
            );
            Ok(true)
        }
        Err(found) => {
            tell(options, &found);
            Ok(false)
        }
    }
}

impl FuzzOptions {
    /// The other program, where there is one.
    fn peer(&self) -> Result<Option<T8n>> {
        let Some(program) = &self.t8n else {
            return Ok(None);
        };
        ensure!(
            program.is_file(),
            "--t8n {} is no file; give go-ethereum's program `evm`",
            program.display()
        );
        Ok(Some(T8n::new(program.clone(), self.keep.clone())))
    }

    /// The fork that is asked for, if the other machine has it.
    fn fork(&self) -> Result<Option<Fork>> {
        let Some(name) = &self.fork else {
            return Ok(None);
        };
        let forks: &[Fork] = match self.blocks || self.t8n.is_some() {
            true => &BLOCK_FORKS,
            false => &FORKS,
        };
        let Some(fork) = forks.iter().find(|fork| fork.name() == name) else {
            let names: Vec<&str> = forks.iter().map(|fork| fork.name()).collect();
            bail!(
                "--fork {name} is not run on both machines; use one of {}",
                names.join(", ")
            );
        };
        Ok(Some(*fork))
    }
}

fn tell(options: &FuzzOptions, found: &Difference) {
    println!(
        "difference on {}, seed {}: {}",
        found.fork, found.seed, found.what
    );
    let blocks = if options.blocks { " --blocks" } else { "" };
    let peer = options.t8n.as_ref().map_or_else(
        || blocks.to_owned(),
        |program| format!("{blocks} --t8n {}", program.display()),
    );
    println!(
        "to see it again: niwaki-evm fuzz{peer} --fork {} --cases 1 --seed {}",
        found.fork.name(),
        found.seed
    );
}
