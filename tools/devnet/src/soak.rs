//! `niwaki-devnet soak`: one node under a memory budget over a large state, for a given time.
//!
//! The node builds and imports a block each slot through the Engine API, with a reorg now and then;
//! transactions and requests reach it by JSON-RPC. Its resident memory is sampled once a second. The
//! results are the peak, whether memory still grows in the second half, and that in the end every
//! transaction that the pool accepted is in the chain.

mod memory;
mod rpc_load;
mod slots;
mod state;
mod transactions;

use crate::accounts::{self, Account};
use crate::process::{self, Process, StartOptions, new_folder};
use crate::report::{Report, write_json};
use clap::Args;
use eyre::Result;
use memory::Sample;
use rpc_load::RpcLoad;
use serde_json::{Value, json};
use slots::Slots;
use state::Storage;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use transactions::TransactionSender;

#[derive(Debug, Args)]
pub(crate) struct SoakOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Folder for the node's data, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The node's --memory-budget.
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    memory_budget: String,
    /// Storage slots of the genesis state.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    slots: u32,
    /// Contracts that the storage slots are spread over.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    contracts: u32,
    /// Accounts that send transactions.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(10..))]
    senders: u64,
    /// How long to run at least, minutes.
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Transactions to send in all; the run lasts until they are sent [default: no limit].
    #[arg(long, value_name = "N")]
    transactions: Option<u64>,
    /// Transactions per second, at most; 0 for as many as the pool accepts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    transactions_per_second: u64,
    /// Time from one block to the next, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    slot_ms: u64,
    /// Gas limit of the genesis block, and the node's --target-gas-limit.
    #[arg(long, value_name = "GAS", default_value_t = 1_000_000_000)]
    gas_limit: u64,
    /// Connections that request blocks, accounts, calls and logs; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 4)]
    connections: usize,
    /// Requests per second over all connections, at most; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    requests_per_second: u64,
    /// Pause the requests in every second group of N slots, to compare latencies; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pause_slots: u64,
    /// Seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// State that the threads share.
#[derive(Debug, Default)]
struct Shared {
    /// Stops the sender of transactions.
    is_sent: AtomicBool,
    /// Stops the requests and the memory samples.
    is_over: AtomicBool,
    /// Pauses the requests.
    is_paused: AtomicBool,
    /// Transactions that the pool accepted and the chain must include in the end.
    sent: AtomicU64,
    /// Transactions that the chain includes.
    included: AtomicU64,
    requests: AtomicU64,
}

/// Slots in which the pool must become empty at the end.
const DRAIN_SLOTS: u64 = 200;

/// Runs the soak and prints its results.
pub(crate) fn run(options: &SoakOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let senders = accounts::make(options.senders);
    let storage = Storage::new(options.contracts, options.slots);
    let genesis = folder.join("genesis.json");
    eprintln!("making a genesis file of {} slots", options.slots);
    storage.write(&genesis, &senders, options.gas_limit)?;
    let target = options.gas_limit.to_string();
    let start = StartOptions {
        memory_budget: &options.memory_budget,
        flags: &[
            "--target-gas-limit",
            &target,
            "--tx-pool-no-local-priority",
            "--tx-pool-max-prioritized",
            "20000",
        ],
        ..StartOptions::genesis(&genesis)
    };
    let began = Instant::now();
    let node = Process::start_niwaki(&options.niwaki, folder, start)?;
    eprintln!(
        "the node is ready after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let result = soak(options, &node, &storage, senders)?;
    result.report.print();
    memory::print(&result.samples, result.peak_bytes);
    write_json(options.json.as_deref(), &result.to_json(options))
}

/// Results of a run.
struct SoakResult {
    report: Report,
    samples: Vec<Sample>,
    /// Peak of resident memory as the kernel counts it, also between two samples.
    peak_bytes: u64,
}

impl SoakResult {
    fn to_json(&self, options: &SoakOptions) -> Value {
        json!({
            "memory_budget": options.memory_budget,
            "slots": options.slots,
            "slot_ms": options.slot_ms,
            "transactions_per_second_at_most": options.transactions_per_second,
            "requests_per_second_at_most": options.requests_per_second,
            "connections": options.connections,
            "peak_rss_bytes": self.peak_bytes,
            "slope_bytes_per_minute": memory::slope_of_second_half(&self.samples),
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
) -> Result<SoakResult> {
    let shared = Arc::new(Shared::default());
    let rpc_load = RpcLoad::new(node.rpc_port(), options, &shared);
    std::thread::scope(|scope| {
        let (shared, client) = (&*shared, &node.client);
        let sender = TransactionSender::new(senders, storage, options.seed);
        let sender = scope.spawn(move || sender.run(client, shared, options));
        let draw = scope.spawn(|| rpc_load.draw_requests(client, storage));
        let requests = scope.spawn(|| rpc_load.run());
        let samples = scope.spawn(|| memory::sample(node.id(), shared));
        let report = play(options, node, shared, sender, || {
            options.connections > 0 && (requests.is_finished() || draw.is_finished())
        });
        shared.is_sent.store(true, Ordering::Relaxed);
        shared.is_over.store(true, Ordering::Relaxed);
        // An error of these threads has ended the slots, so it is the cause and comes first.
        join(draw)?;
        let (requests, samples) = (join(requests)?, join(samples)?);
        let mut report = report?;
        requests.add_to(&mut report);
        let peak_bytes = process::memory(node.id(), "VmHWM:")?;
        Ok(SoakResult {
            report,
            samples,
            peak_bytes,
        })
    })
}

/// Plays slots until the time is over and enough was sent, then until the pool is empty.
fn play(
    options: &SoakOptions,
    node: &Process,
    shared: &Shared,
    sender: ScopedJoinHandle<'_, Result<TransactionSender<'_>>>,
    has_failed: impl Fn() -> bool,
) -> Result<Report> {
    let mut slots = Slots::new(node, shared)?;
    let began = Instant::now();
    let length = Duration::from_millis(options.slot_ms);
    let minutes = Duration::from_secs(options.minutes * 60);
    let is_enough = |sender: &ScopedJoinHandle<'_, _>| {
        sender.is_finished() || (options.transactions.is_none() && began.elapsed() > minutes)
    };
    while began.elapsed() <= minutes || !is_enough(&sender) {
        let pauses = slots.number().checked_div(options.pause_slots);
        let is_paused = pauses.is_some_and(|group| group % 2 == 1);
        shared.is_paused.store(is_paused, Ordering::Relaxed);
        slots.slot(length)?;
        let ends = sender.is_finished() && options.transactions.is_none();
        if ends || has_failed() {
            break;
        }
    }
    shared.is_sent.store(true, Ordering::Relaxed);
    let sender = join(sender)?;
    slots.drain(length, DRAIN_SLOTS)?;
    slots.check_nonces(sender.accounts())?;
    let mut report = slots.finish()?;
    for (what, count) in sender.counts() {
        report.add(what, count);
    }
    Ok(report)
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
