//! `niwaki-devnet soak`: one node under a memory budget over a large state, for as long as asked.
//!
//! Blocks are built and given back through the Engine API, one each slot, some of them beside the
//! head; transactions and requests come by JSON-RPC. Once a second the resident memory of the node
//! is written down. What counts is its peak, whether it still grows in the second half, and that in
//! the end every transaction that was taken is in the chain.

mod asking;
mod feed;
mod slots;
mod state;
mod watch;

use crate::accounts::{self, Account};
use crate::process::{Given, Kind, Process, memory};
use crate::report::Report;
use asking::Asking;
use clap::Args;
use eyre::{Result, ensure};
use feed::Feed;
use serde_json::{Value, json};
use slots::Slots;
use state::Storage;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use watch::Sample;

#[derive(Debug, Args)]
pub(crate) struct SoakOptions {
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Folder of the node; kept afterwards. Must not exist [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The node's --memory-budget.
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    memory_budget: String,
    /// Slots of the state at the beginning.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    slots: u32,
    /// Contracts that these are spread over.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    contracts: u32,
    /// Accounts that send.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(10..))]
    senders: u64,
    /// How long at least.
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// How many transactions at least; with that many the sending ends [default: any number].
    #[arg(long, value_name = "N")]
    transactions: Option<u64>,
    /// Transactions a second, at most; 0 for as many as the pool takes.
    #[arg(long, value_name = "N", default_value_t = 0)]
    transactions_per_second: u64,
    /// From one block to the next, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    slot_ms: u64,
    /// Gas limit of the first block, and what is aimed at.
    #[arg(long, value_name = "GAS", default_value_t = 1_000_000_000)]
    gas_limit: u64,
    /// Connections that ask for blocks, accounts, calls and logs; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Requests a second of all of them, at most; 0 for as many as they can.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    requests_per_second: u64,
    /// Nobody asks in every second group of so many slots, to compare; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pause_slots: u64,
    /// Where chance begins.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write what was measured as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the threads have in common.
#[derive(Debug, Default)]
struct Shared {
    /// Nothing more is sent.
    is_sent: AtomicBool,
    /// Nothing more is asked, and no sample taken.
    is_over: AtomicBool,
    /// The requests pause.
    is_paused: AtomicBool,
    /// Transactions that the pool took and the chain must have in the end, and those that it has.
    sent: AtomicU64,
    included: AtomicU64,
    requests: AtomicU64,
}

/// Slots that the pool has at the end to become empty.
const EMPTY_WITHIN: u64 = 200;

/// Runs as the options say.
pub(crate) fn run(options: &SoakOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let temporary = tempfile::tempdir()?;
    let folder = match &options.folder {
        Some(folder) => {
            let path = folder.display();
            ensure!(!folder.exists(), "{path} exists; name a folder to be made");
            std::path::absolute(folder)?
        }
        None => temporary.path().to_owned(),
    };
    std::fs::create_dir_all(&folder)?;
    let senders = accounts::make(options.senders);
    let storage = Storage::new(options.contracts, options.slots);
    let genesis = folder.join("genesis.json");
    eprintln!("making a genesis file of {} slots", options.slots);
    storage.write(&genesis, &senders, options.gas_limit)?;
    let target = options.gas_limit.to_string();
    let given = Given {
        memory_budget: &options.memory_budget,
        flags: &[
            "--target-gas-limit",
            &target,
            "--tx-pool-no-local-priority",
            "--tx-pool-max-prioritized",
            "20000",
        ],
        ..Given::genesis(&genesis)
    };
    let binary = std::path::absolute(&options.niwaki)?;
    let began = Instant::now();
    let node = Process::start(Kind::Niwaki, "niwaki", &binary, folder, given)?;
    eprintln!(
        "the node is ready after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let seen = soak(options, &node, &storage, senders)?;
    seen.report.print();
    watch::print(&seen.samples, seen.peak_bytes);
    match &options.json {
        Some(path) => Ok(std::fs::write(
            path,
            format!("{:#}\n", seen.to_json(options)),
        )?),
        None => Ok(()),
    }
}

/// What was seen.
struct Seen {
    report: Report,
    samples: Vec<Sample>,
    /// Of resident memory; the system sees between the samples too.
    peak_bytes: u64,
}

impl Seen {
    fn to_json(&self, options: &SoakOptions) -> Value {
        json!({
            "memory_budget": options.memory_budget,
            "slots": options.slots,
            "slot_ms": options.slot_ms,
            "transactions_per_second_at_most": options.transactions_per_second,
            "requests_per_second_at_most": options.requests_per_second,
            "connections": options.connections,
            "peak_rss_bytes": self.peak_bytes,
            "slope_bytes_per_minute": watch::slope_of_second_half(&self.samples),
            "report": self.report.to_json(),
            "samples": self.samples.iter().copied().map(Sample::to_json).collect::<Vec<_>>(),
        })
    }
}

fn soak(
    options: &SoakOptions,
    node: &Process,
    storage: &Storage,
    senders: Vec<Account>,
) -> Result<Seen> {
    let shared = Arc::new(Shared::default());
    let asking = Asking::new(node.ports()[0], options, &shared);
    std::thread::scope(|scope| {
        let (shared, client) = (&*shared, &node.client);
        let feed = Feed::new(senders, storage, options.seed);
        let feed = scope.spawn(move || feed.run(client, shared, options));
        let drawing = scope.spawn(|| asking.draw(client, storage));
        let answers = scope.spawn(|| asking.run());
        let watching = scope.spawn(|| watch::watch(node.id(), shared));
        let played = play(options, node, shared, feed, || {
            options.connections > 0 && (answers.is_finished() || drawing.is_finished())
        });
        shared.is_sent.store(true, Ordering::Relaxed);
        shared.is_over.store(true, Ordering::Relaxed);
        // Whoever failed beside the slots ended them, and knows why.
        join(drawing)?;
        let (answers, samples) = (join(answers)?, join(watching)?);
        let mut report = played?;
        answers.tell(&mut report);
        let peak_bytes = memory(node.id(), "VmHWM:")?;
        Ok(Seen {
            report,
            samples,
            peak_bytes,
        })
    })
}

/// Plays the slots until the time is over and enough was sent; then until the pool is empty.
fn play(
    options: &SoakOptions,
    node: &Process,
    shared: &Shared,
    feed: ScopedJoinHandle<'_, Result<Feed<'_>>>,
    has_failed: impl Fn() -> bool,
) -> Result<Report> {
    let mut slots = Slots::begin(node, shared)?;
    let began = Instant::now();
    let length = Duration::from_millis(options.slot_ms);
    let minutes = Duration::from_secs(options.minutes * 60);
    let is_enough = |feed: &ScopedJoinHandle<'_, _>| {
        feed.is_finished() || (options.transactions.is_none() && began.elapsed() > minutes)
    };
    while began.elapsed() <= minutes || !is_enough(&feed) {
        let pauses = slots.number().checked_div(options.pause_slots);
        let is_paused = pauses.is_some_and(|group| group % 2 == 1);
        shared.is_paused.store(is_paused, Ordering::Relaxed);
        slots.slot(length)?;
        let ends = feed.is_finished() && options.transactions.is_none();
        if ends || has_failed() {
            break;
        }
    }
    shared.is_sent.store(true, Ordering::Relaxed);
    let feed = join(feed)?;
    slots.drain(length, EMPTY_WITHIN)?;
    slots.check_nonces(feed.accounts())?;
    let mut report = slots.finish()?;
    for (what, count) in feed.counts() {
        report.add(what, count);
    }
    Ok(report)
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
