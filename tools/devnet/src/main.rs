//! `niwaki-devnet`: drives the binaries of niwaki and geth from outside, through their ports only.
//!
//! | file | what it is |
//! |---|---|
//! | `play` | a consensus client for two clients at once: builds on either, partitions, restarts, kills |
//! | `peers` | networks of nodes: sync, following, gossip, go-ethereum's suites |
//! | `load` | the same JSON-RPC requests to both clients, alternating: throughput and latency |
//! | `soak` | one niwaki under load over a large state for hours, its memory sampled |
//! | `fuzz` | malformed requests to niwaki, which must keep responding |
//! | `fuzz_wire` | malformed bytes for every reader of the network, in this process |
//! | `simulate` | validators in virtual time, with everything that can go wrong |
//! | `sockets` | more connections to niwaki than its limit |
//! | `fixtures` | engine fixtures of execution-spec-tests |
//! | `payloads` | the payloads of go-ethereum's test chain, also with tampered block access lists |
//! | `build` | has a client build a block |
//! | `send` | transactions of every type to a node that runs already |
//! | `client` | Engine API and JSON-RPC calls to one client |
//! | `process` | starts, stops, kills and restarts a client |
//! | `accounts` | accounts of known keys, and transactions of every type |
//! | `genesis` | the genesis file of `play`, `soak` and `send` |
//! | `report` | counts and latencies, printed and as JSON |

mod accounts;
mod build;
mod client;
mod fixtures;
mod fuzz;
mod fuzz_wire;
mod genesis;
mod load;
mod payloads;
mod peers;
mod play;
mod process;
mod report;
mod send;
mod simulate;
mod soak;
mod sockets;

use clap::{Args, Parser};
use eyre::Result;
use process::new_folder;
use report::write_json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tikv_jemallocator::Jemalloc;

/// It counts what each thread allocates, which `fuzz-wire` bounds.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Drives niwaki and geth from outside, through their ports.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
enum Command {
    /// Play the consensus client of both clients at once, on a new chain.
    Play(PlayOptions),
    /// Start networks of nodes and check what they get from each other.
    Peers(peers::PeersOptions),
    /// Send both clients the same JSON-RPC requests and compare throughput and latency.
    Load(load::LoadOptions),
    /// Run niwaki for a long time over a large state and sample its memory.
    Soak(soak::SoakOptions),
    /// Send transactions of every type to a node that runs already.
    Send(send::SendOptions),
    /// Send niwaki malformed requests and check that it keeps responding.
    Fuzz(fuzz::FuzzOptions),
    /// Feed malformed bytes to every decoder of peers' messages, in this process.
    FuzzWire(fuzz_wire::FuzzWireOptions),
    /// Run validators of the BFT protocols in virtual time, with everything that can go wrong.
    Simulate(simulate::SimulateOptions),
    /// Open more connections to niwaki than its limit and check that it keeps responding.
    Sockets(sockets::SocketOptions),
    /// Run engine fixtures of execution-spec-tests against niwaki's Engine API port.
    Fixtures(fixtures::FixtureOptions),
    /// Send niwaki the payloads of go-ethereum's test chain, and some with tampered block access lists.
    Payloads(payloads::PayloadOptions),
}

#[derive(Debug, Args)]
struct PlayOptions {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// Path of a geth 1.17 binary (`cargo xtask peers` builds it); without it niwaki plays against itself.
    #[arg(long, value_name = "FILE")]
    geth: Option<PathBuf>,
    /// Number of slots to play.
    #[arg(long, value_name = "N", default_value_t = 500)]
    slots: u64,
    /// Length of a slot, milliseconds. Block timestamps always advance by 4 seconds a slot.
    #[arg(long, value_name = "MS", default_value_t = 4_000)]
    slot_ms: u64,
    /// Transactions to send in each slot.
    #[arg(long, value_name = "N", default_value_t = 12)]
    transactions: u64,
    /// First slot of the Amsterdam fork; without it the chain stays on Osaka.
    #[arg(long, value_name = "N")]
    amsterdam_slot: Option<u64>,
    /// Seed of the random choices; the same seed gives the same events.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the data of both clients, kept afterwards; must not exist [default: a temporary folder].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the results as JSON to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Play(options) => play(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Send(options) => send::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::FuzzWire(options) => fuzz_wire::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Sockets(options) => sockets::run(&options),
        Command::Fixtures(options) => fixtures::run(&options),
        Command::Payloads(options) => payloads::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("niwaki-devnet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(options: &PlayOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let temporary = tempfile::tempdir()?;
    let folder = new_folder(options.folder.as_deref(), temporary.path())?;
    let mut play = play::Play::new(options, &folder)?;
    let slot = Duration::from_millis(options.slot_ms);
    for number in 1..=options.slots {
        play.slot(number, slot)?;
    }
    let report = play.finish()?;
    report.print();
    write_json(options.json.as_deref(), &report.to_json())
}
