//! `niwaki-devnet`: two execution clients driven from outside, side by side.
//!
//! `load` sends both the same requests, `fixtures` plays known cases, `payloads` a chain of geth's,
//! `soak` keeps niwaki busy for long, `fuzz` sends it what nobody should, `sockets` opens more of
//! them than it may hold. `play` is a consensus client for both at once: it plays
//! slots on a chain of its own through the real Engine API, with tokens: blocks that either client
//! builds go to both, with transactions of every type in them, and both must agree on every head.
//! Slots are missed, payloads come late and twice, the two are parted and brought together again,
//! and this client is stopped and killed. It refuses to know anything of the inside of either.

mod accounts;
mod client;
mod fixtures;
mod fuzz;
mod genesis;
mod load;
mod payloads;
mod play;
mod process;
mod report;
mod send;
mod soak;
mod sockets;

use clap::{Args, Parser};
use eyre::{Result, ensure};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Drives niwaki and geth from outside, side by side.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
enum Command {
    /// Plays the consensus client over both at once.
    Play(PlayOptions),
    /// Sends both the same JSON-RPC requests, in turn.
    Load(load::LoadOptions),
    /// Keeps niwaki busy for long over a large state, and watches its memory.
    Soak(soak::SoakOptions),
    /// Sends transactions of every type to a node that somebody else drives.
    Send(send::SendOptions),
    /// Sends niwaki what nobody should, and sees whether it goes on answering.
    Fuzz(fuzz::FuzzOptions),
    /// Opens more sockets to niwaki than it may hold, and sees whether it goes on answering.
    Sockets(sockets::SocketOptions),
    /// Puts niwaki through engine fixtures of execution-spec-tests, by its port.
    Fixtures(fixtures::FixtureOptions),
    /// Sends niwaki the payloads of go-ethereum's test chain, and blocks whose access lists lie.
    Payloads(payloads::PayloadOptions),
}

#[derive(Debug, Args)]
struct PlayOptions {
    /// The binary of niwaki.
    #[arg(long, value_name = "FILE")]
    niwaki: PathBuf,
    /// The binary of geth 1.17; `cargo xtask peers` builds it. Without it niwaki plays against itself.
    #[arg(long, value_name = "FILE")]
    geth: Option<PathBuf>,
    /// How many slots.
    #[arg(long, value_name = "N", default_value_t = 500)]
    slots: u64,
    /// How long a slot lasts, milliseconds. Timestamps go by 4 seconds a slot whatever this says.
    #[arg(long, value_name = "MS", default_value_t = 4_000)]
    slot_ms: u64,
    /// Transactions sent in each slot.
    #[arg(long, value_name = "N", default_value_t = 12)]
    transactions: u64,
    /// The slot from which on the chain has Amsterdam's rules; without it they never come.
    #[arg(long, value_name = "N")]
    amsterdam_slot: Option<u64>,
    /// Where chance begins; the same number gives the same events.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the data of both; kept afterwards. Must not exist [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write what was measured as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Play(options) => play(&options),
        Command::Load(options) => load::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Send(options) => send::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Sockets(options) => sockets::run(&options),
        Command::Fixtures(options) => fixtures::run(&options),
        Command::Payloads(options) => payloads::run(&options),
    };
    match done {
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
    let folder = match &options.folder {
        Some(folder) => {
            ensure!(
                !folder.exists(),
                "{} exists; name a folder to be made",
                folder.display()
            );
            std::fs::create_dir_all(folder)?;
            folder.clone()
        }
        None => temporary.path().to_owned(),
    };
    let mut play = play::Play::begin(options, &folder)?;
    let slot = Duration::from_millis(options.slot_ms);
    for number in 1..=options.slots {
        play.slot(number, slot)?;
    }
    let report = play.finish()?;
    report.print();
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))?;
    }
    Ok(())
}
