//! `niwaki-devnet fuzz-wire`: malformed bytes for every reader of `niwaki-network`, in this process.
//!
//! Each input is a valid one that was changed (`mutate`), behind a right envelope where the reader opens one first. Three laws hold
//! of each: no panic; what is read survives being written and read again; one reading allocates no more bytes than the target allows
//! for an input of that size. A failure is named by seed, number and the input itself: `--only NUMBER`, or `--decoder NAME --input
//! HEX`, runs it again.

mod mutate;

use crate::report::write_json;
use clap::Args;
use eyre::{Result, WrapErr, bail, ensure, eyre};
use niwaki_network::fuzz::{Target, targets};
use niwaki_primitives::hex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tikv_jemalloc_ctl::thread;

#[derive(Args, Debug)]
pub(crate) struct FuzzWireOptions {
    /// How long to run, seconds [default: 60, or no limit with --inputs].
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Number of inputs, over all decoders [default: no limit].
    #[arg(long, value_name = "N")]
    inputs: Option<u64>,
    /// Seed of the inputs; the same seed makes the same inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of the first input.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Run only the input of this number.
    #[arg(long, value_name = "N")]
    only: Option<u64>,
    /// Run only decoders whose name begins with this text; `--decoder list` lists all.
    #[arg(long, value_name = "NAME")]
    decoder: Option<String>,
    /// Run only this input, in hex, on --decoder.
    #[arg(long, value_name = "HEX", requires = "decoder")]
    input: Option<String>,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Failures to report at most.
const MAX_FAILURES: usize = 20;

/// Longest input in hex that a report repeats; a longer one is found by its number.
const MAX_HEX: usize = 100_000;

/// The default length of a run.
const SECONDS: u64 = 60;

/// What was seen of one decoder.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    inputs: u64,
    read: u64,
    bytes: u64,
    longest: usize,
    /// The most bytes that one reading allocated, and the length of that input.
    most_allocated: (u64, usize),
}

impl Counts {
    fn add(&mut self, input: &[u8], was_read: bool, allocated: u64) {
        self.inputs += 1;
        self.read += u64::from(was_read);
        self.bytes += input.len() as u64;
        self.longest = self.longest.max(input.len());
        self.most_allocated = self.most_allocated.max((allocated, input.len()));
    }

    fn merge(&mut self, other: &Self) {
        self.inputs += other.inputs;
        self.read += other.read;
        self.bytes += other.bytes;
        self.longest = self.longest.max(other.longest);
        self.most_allocated = self.most_allocated.max(other.most_allocated);
    }
}

/// What the threads share.
struct Run<'a> {
    options: &'a FuzzWireOptions,
    targets: &'a [&'a Target],
    next: AtomicU64,
    failures: Mutex<Vec<String>>,
    counts: Mutex<Vec<Counts>>,
    end: Option<Instant>,
}

/// Runs inputs until the time is over or enough were run.
///
/// # Errors
/// If an input breaks a law.
pub(crate) fn run(options: &FuzzWireOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let all = targets();
    let name = options.decoder.as_deref().unwrap_or_default();
    if name == "list" {
        all.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    if let Some(input) = &options.input {
        return run_one(&all, name, input);
    }
    let chosen: Vec<&Target> = all.iter().filter(|t| t.name.starts_with(name)).collect();
    ensure!(
        !chosen.is_empty(),
        "no decoder begins with {name}; --decoder list lists all"
    );
    // A panic is a finding, which is printed at the end.
    std::panic::set_hook(Box::new(|_| ()));
    let began = Instant::now();
    let seconds = match (options.seconds, options.inputs) {
        (Some(seconds), _) => Some(seconds),
        (None, None) => Some(SECONDS),
        (None, Some(_)) => None,
    };
    let run = Run {
        options,
        targets: &chosen,
        next: AtomicU64::new(options.only.unwrap_or(options.from)),
        failures: Mutex::new(Vec::new()),
        counts: Mutex::new(vec![Counts::default(); chosen.len()]),
        end: seconds.map(|seconds| began + Duration::from_secs(seconds)),
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| run.work());
        }
    });
    run.report(began.elapsed())
}

fn run_one(all: &[Target], name: &str, input: &str) -> Result<()> {
    let target = all.iter().find(|target| target.name == name);
    let target =
        target.ok_or_else(|| eyre!("no decoder is named {name}; --decoder list lists all"))?;
    let input = hex::decode(input).wrap_err("--input is not hex")?;
    let (was_read, allocated) =
        try_input(target, &input).map_err(|error| eyre!("{name}: {error}"))?;
    let what = if was_read { "read" } else { "refused" };
    println!(
        "{name}: {what}, {allocated} bytes allocated, {} allowed",
        target.allowed_bytes(&input)
    );
    Ok(())
}

/// Runs an input. Returns whether it was read, and how many bytes that allocated; or which law is broken.
fn try_input(target: &Target, input: &[u8]) -> Result<(bool, u64), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let before = allocated();
        let was_read = target.read(input);
        let cost = allocated() - before;
        let law = if was_read {
            target.check(input)
        } else {
            Ok(())
        };
        (was_read, cost, law)
    }));
    let (was_read, cost, law) = outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("it panics: {}", text.unwrap_or("without a text"))
    })?;
    law?;
    let allowed = target.allowed_bytes(input) as u64;
    match cost > allowed {
        true => Err(format!("{cost} bytes allocated, {allowed} are allowed")),
        false => Ok((was_read, cost)),
    }
}

/// Bytes that this thread has allocated since it began.
fn allocated() -> u64 {
    thread::allocatedp::read().map_or(0, |pointer| pointer.get())
}

/// A seed for the input of this number.
fn seed_of(seed: u64, number: u64) -> u64 {
    let mut rng = SmallRng::seed_from_u64(seed ^ number.rotate_left(32));
    rng.random::<u64>() ^ number
}

impl Run<'_> {
    fn work(&self) {
        let mut counts = vec![Counts::default(); self.targets.len()];
        let until = self.options.inputs.map(|inputs| self.options.from + inputs);
        let until = self.options.only.map(|number| number + 1).or(until);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = until.is_some_and(|until| number >= until)
                || number.is_multiple_of(64) && self.end.is_some_and(|end| Instant::now() > end);
            if is_over {
                break;
            }
            let index = usize::try_from(number).unwrap_or_default() % self.targets.len();
            let target = self.targets[index];
            let mut rng = SmallRng::seed_from_u64(seed_of(self.options.seed, number));
            // Making an input runs code of the library too.
            let made = catch_unwind(AssertUnwindSafe(|| mutate::input(target, &mut rng)));
            let Ok(input) = made else {
                self.fail(target, number, &[], "making the input panics");
                continue;
            };
            match try_input(target, &input) {
                Ok((was_read, cost)) => counts[index].add(&input, was_read, cost),
                Err(error) => self.fail(target, number, &input, &error),
            }
        }
        // The other threads stop too: with a time limit they would find out by themselves.
        let mut all = self.counts.lock().expect("no thread panics with it");
        for (sum, own) in all.iter_mut().zip(&counts) {
            sum.merge(own);
        }
    }

    fn fail(&self, target: &Target, number: u64, input: &[u8], error: &str) {
        let mut failures = self.failures.lock().expect("no thread panics with it");
        if failures.len() >= MAX_FAILURES {
            return;
        }
        let decoder = match &self.options.decoder {
            Some(name) => format!(" --decoder {name}"),
            None => String::new(),
        };
        let input = match input.len() <= MAX_HEX {
            true => format!("--decoder {} --input {}", target.name, hex::encode(input)),
            false => format!("an input of {} bytes", input.len()),
        };
        let seed = self.options.seed;
        let error: String = error.chars().take(500).collect();
        failures.push(format!(
            "{}: {error}\n  --seed {seed} --only {number}{decoder}\n  {input}",
            target.name
        ));
    }

    fn report(self, took: Duration) -> Result<()> {
        let counts = self.counts.into_inner().expect("no thread panics with it");
        let mut sum = Counts::default();
        counts.iter().for_each(|counts| sum.merge(counts));
        println!(
            "{:<32} {:>10} {:>8} {:>9} {:>9} {:>12}",
            "decoder", "inputs", "read", "bytes", "longest", "allocated"
        );
        for (target, counts) in self.targets.iter().zip(&counts) {
            print_row(&target.name, counts);
        }
        print_row("all", &sum);
        let seconds = took.as_secs_f64();
        println!(
            "seed {}, {seconds:.1} s, {:.0} inputs/s",
            self.options.seed,
            sum.inputs as f64 / seconds
        );
        let rows = self.targets.iter().zip(&counts);
        let rows: Vec<Value> = rows
            .map(|(target, counts)| row(&target.name, counts))
            .collect();
        let failures = self
            .failures
            .into_inner()
            .expect("no thread panics with it");
        let report = json!({
            "seed": self.options.seed,
            "from": self.options.from,
            "seconds": seconds,
            "decoders": rows,
            "all": row("all", &sum),
            "failures": failures,
        });
        write_json(self.options.json.as_deref(), &report)?;
        match failures.is_empty() {
            true => Ok(()),
            false => bail!("{} failures:\n{}", failures.len(), failures.join("\n")),
        }
    }
}

fn percent_read(counts: &Counts) -> f64 {
    100.0 * counts.read as f64 / counts.inputs.max(1) as f64
}

fn print_row(name: &str, counts: &Counts) {
    let (most, of) = counts.most_allocated;
    println!(
        "{name:<32} {:>10} {:>6.1} % {:>9} {:>9} {most:>12} of {of}",
        counts.inputs,
        percent_read(counts),
        counts.bytes / counts.inputs.max(1),
        counts.longest,
    );
}

fn row(name: &str, counts: &Counts) -> Value {
    let (most, of) = counts.most_allocated;
    json!({
        "decoder": name, "inputs": counts.inputs, "read": counts.read, "bytes": counts.bytes, "longest_bytes": counts.longest,
        "most_allocated_bytes": most, "of_input_bytes": of,
    })
}
