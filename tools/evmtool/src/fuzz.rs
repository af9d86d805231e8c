//! `niwaki-evm fuzz`: runs random cases here and on revm or go-ethereum's `evm`, and compares.

use clap::Args;
use eyre::{Result, WrapErr, bail, ensure};
use niwaki_evm::Dispatch;
use niwaki_fuzz::{
    BLOCK_FORKS, Difference, FORKS, Progress, Search, Statetest, T8n, Tally, check, check_block,
    check_traces, search,
};
use niwaki_primitives::Fork;
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// Options of `niwaki-evm fuzz`.
#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// Stops after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Stops after this many cases, counting those before --from.
    #[arg(long)]
    cases: Option<u64>,
    /// Seed of case 0; each other case has one more than the case before [default: from the clock; printed]
    #[arg(long)]
    seed: Option<u64>,
    /// First case, to continue a search that was stopped.
    #[arg(long, value_name = "CASE", default_value_t = 0)]
    from: u64,
    /// Threads; by default one per processor.
    #[arg(long)]
    jobs: Option<usize>,
    /// Runs every case with loop dispatch.
    #[arg(long)]
    loop_dispatch: bool,
    /// Compares the sequential and the speculative execution of whole blocks, instead of ours with revm.
    #[arg(long)]
    blocks: bool,
    /// Compares whole blocks also with this program, go-ethereum's `evm`.
    #[arg(long, value_name = "PATH")]
    t8n: Option<PathBuf>,
    /// Compares the traces of first transactions with those of this program, go-ethereum's `evm`.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["t8n", "blocks"])]
    statetest: Option<PathBuf>,
    /// Fork of every case, such as Osaka [default: drawn; Amsterdam with --blocks and --t8n]
    #[arg(long)]
    fork: Option<String>,
    /// Folder for the files of a case that differs.
    #[arg(long, value_name = "DIR", default_value = ".")]
    keep: PathBuf,
}

/// Prints a line of progress every ten seconds.
pub(crate) struct ProgressPrinter {
    pub(crate) start: Instant,
    last: Mutex<Instant>,
}

impl ProgressPrinter {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self {
            start,
            last: Mutex::new(start),
        }
    }

    /// Prints `line` of the cases per second, if it is time.
    pub(crate) fn show(&self, cases: u64, line: impl FnOnce(f64) -> String) {
        let last = self.last.lock().ok();
        if let Some(mut last) = last.filter(|last| last.elapsed() >= Duration::from_secs(10)) {
            *last = Instant::now();
            println!(
                "{}",
                line(cases as f64 / self.start.elapsed().as_secs_f64())
            );
        }
    }
}

/// The number of threads: the given one, or one per processor.
pub(crate) fn jobs_of(given: Option<usize>) -> usize {
    let jobs = given.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    jobs.unwrap_or(1).max(1)
}

/// Searches for a difference; false if there is one.
pub(crate) fn run(options: &FuzzOptions) -> Result<bool> {
    ensure!(
        options.seconds.is_some() || options.cases.is_some(),
        "say how long to look: --seconds N, --cases N, or both"
    );
    let seed = options.seed.unwrap_or_else(seed_of_clock);
    let printer = ProgressPrinter::new();
    let start = printer.start;
    let dispatch = if options.loop_dispatch {
        Dispatch::Loop
    } else {
        niwaki_evm::set_hot_threshold(1);
        Dispatch::Fused
    };
    let (peer, fork) = (options.peer()?, options.fork()?);
    let folder = CaseFolder::new()?;
    let statetest = options.statetest(&folder.0)?;
    let whole_blocks = options.blocks || peer.is_some();
    let check = |mut seeds: Range<u64>, tally: &mut Tally| {
        if let Some(statetest) = &statetest {
            return check_traces(seeds, fork, statetest, tally);
        }
        seeds.try_for_each(|seed| match whole_blocks {
            true => {
                let fork = fork.unwrap_or(Fork::Amsterdam);
                check_block(seed, fork, peer.as_ref(), dispatch, tally)
            }
            false => check(seed, fork, dispatch, tally),
        })
    };
    let plan = Search {
        seed,
        cases: (options.from, options.cases.unwrap_or(u64::MAX)),
        until: options
            .seconds
            .map(|seconds| start + Duration::from_secs(seconds)),
        jobs: jobs_of(options.jobs),
        // A block costs a process.
        chunk: if peer.is_some() { 1 } else { 64 },
    };
    let stop = stop_flag()?;
    println!("fuzzing from seed {seed} on {} threads", plan.jobs);
    let should_continue = |progress: &Progress<Tally>| {
        let (cases, next) = (progress.cases, progress.next);
        printer.show(cases, |rate| {
            format!("{cases} cases, {rate:.0} a second; all before case {next}")
        });
        !stop.load(Ordering::Relaxed)
    };
    match search(&plan, &check, &should_continue) {
        Ok(progress) => {
            let is_stopped = stop.load(Ordering::Relaxed);
            summarize(&progress, whole_blocks, start);
            if is_stopped {
                println!(
                    "stopped; to go on: the same with --seed {seed} --from {}",
                    progress.next
                );
            }
            Ok(true)
        }
        Err(found) => {
            report(options, &found)?;
            Ok(false)
        }
    }
}

/// A seed from the clock; those of two seconds are far apart.
pub(crate) fn seed_of_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs().wrapping_mul(1 << 24))
}

fn summarize(progress: &Progress<Tally>, whole_blocks: bool, start: Instant) {
    let tally = progress.tally;
    // A receipt does not distinguish the two.
    let failed = if whole_blocks {
        format!("{} failed", tally.reverted)
    } else {
        format!("{} reverted, {} halted", tally.reverted, tally.halted)
    };
    println!(
        "{} cases without a difference: {} transactions succeeded, {failed}, {} were refused; {} \
         Mgas in {:.0} s",
        progress.cases,
        tally.succeeded,
        tally.refused,
        tally.gas / 1_000_000,
        start.elapsed().as_secs_f64()
    );
}

/// A flag that Ctrl-C sets; running cases are then completed. A second Ctrl-C ends the process.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .wrap_err("can't listen for Ctrl-C")?;
    Ok(stop)
}

/// The folder through which this process passes cases to another program; removed when dropped.
struct CaseFolder(PathBuf);

impl CaseFolder {
    fn new() -> Result<Self> {
        let name = format!("niwaki-fuzz-{}", std::process::id());
        let memory = Path::new("/dev/shm");
        let temporary = match memory.is_dir() {
            true => memory.to_owned(),
            false => std::env::temp_dir(),
        };
        let folder = temporary.join(name);
        std::fs::create_dir_all(&folder)
            .wrap_err_with(|| format!("can't make {}; set TMPDIR", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for CaseFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Refuses a program that is no file.
fn checked_program(option: &str, program: Option<&PathBuf>) -> Result<Option<PathBuf>> {
    if let Some(missing) = program.filter(|program| !program.is_file()) {
        bail!(
            "--{option} {} is no file; give go-ethereum's program `evm`",
            missing.display()
        );
    }
    Ok(program.cloned())
}

impl FuzzOptions {
    /// The program to compare blocks with, if there is one.
    fn peer(&self) -> Result<Option<T8n>> {
        let program = checked_program("t8n", self.t8n.as_ref())?;
        Ok(program.map(|program| T8n::new(program, self.keep.clone())))
    }

    /// The program that traces state tests, if there is one.
    fn statetest(&self, folder: &Path) -> Result<Option<Statetest>> {
        let program = checked_program("statetest", self.statetest.as_ref())?;
        Ok(program.map(|program| Statetest::new(program, folder.to_owned())))
    }

    /// The requested fork, if the other program has it.
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
                "--fork {name} is not known to both programs; use one of {}",
                names.join(", ")
            );
        };
        Ok(Some(*fork))
    }
}

fn report(options: &FuzzOptions, found: &Difference) -> Result<()> {
    println!(
        "difference on {}, seed {}: {}",
        found.fork, found.seed, found.what
    );
    let mut flags = String::new();
    if options.blocks {
        flags += " --blocks";
    }
    for (option, program) in [("t8n", &options.t8n), ("statetest", &options.statetest)] {
        if let Some(program) = program {
            flags += &format!(" --{option} {}", program.display());
        }
    }
    if let Some(test) = &found.test {
        let fork = found.fork.name().to_lowercase();
        let path = options
            .keep
            .join(format!("fuzz-{fork}-{}.json", found.seed));
        std::fs::create_dir_all(&options.keep)
            .and_then(|()| std::fs::write(&path, format!("{test:#}\n")))
            .wrap_err_with(|| format!("can't write {}; choose another --keep", path.display()))?;
        let path = path.display();
        println!("cut down: niwaki-evm state-test --trace {path}; evm statetest --trace {path}");
    }
    println!(
        "to see it again: niwaki-evm fuzz{flags} --fork {} --cases 1 --seed {}",
        found.fork.name(),
        found.seed
    );
    Ok(())
}
