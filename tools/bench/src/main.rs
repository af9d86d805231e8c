//! The judge: real blocks, chains and programs, timed beside the peers in the same run.

mod big_state;
mod chain_file;
mod compare;
mod disk;
mod engine;
mod gen_chain;
mod gen_genesis;
mod import;
mod keccak;
mod listed;
mod machine;
mod model;
mod overview;
mod peers;
mod process;
mod programs;
mod progress;
mod random;
mod ratios;
mod recorded;
mod recover;
mod replay;
mod rollback;
mod side_chain;
mod sload;
mod soak;
mod state_root;
mod stats;

use clap::{Parser, Subcommand};
use eyre::{Context, Result, ensure};
use serde::Serialize;
use std::{path::Path, process::ExitCode};

/// The node's allocator, and that of reth, which revm is the core of. With the C library's, revm
/// took 4 or 20 us for the same call, depending on what the process had allocated before.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures Niwaki beside its peers on the same work and reports it as a table and as JSON.
#[derive(Debug, Parser)]
#[command(name = "niwaki-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// EVM programs: NAME.code and NAME.input (hex) in DIR, one call each, in paired runs.
    Evm(programs::Options),
    /// Whole chains, from a file of blocks to a database on disk, in paired runs.
    Import(import::Options),
    /// Both of these beside all peers: one table and one file.
    Overview(overview::Options),
    /// What the EVM is asked to be beside revm, geth, evmone and Besu, and whether it is: one table, one plot.
    Ratios(ratios::Options),
    /// A chain's blocks through the Engine API, on several threads, beside geth and reth, in pairs.
    Compare(compare::Options),
    /// The head of a database of ours, as JSON.
    #[command(hide = true)]
    Head(import::HeadOptions),
    /// Writes a genesis file of any size, to measure beginnings with.
    GenGenesis(gen_genesis::Options),
    /// Writes a chain with real contracts and load shaped like mainnet's, for us and for geth.
    GenChain(gen_chain::Options),
    /// Real mainnet blocks on their recorded pre-state: checked against the chain, and timed.
    Replay(replay::Options),
    /// What more threads would bring to recorded blocks: our schedule in simulated time, and its ceilings.
    Model(model::Options),
    /// State root and commit of random changes over a large state, beside alloy-trie and geth.
    StateRoot(state_root::Options),
    /// Blocks of Amsterdam judged with their access list and without, on one thread and on several.
    Listed(listed::Options),
    /// Keccak-256 of many messages at once, beside keccak-asm and sha3.
    Keccak(keccak::Options),
    /// Signers of many signatures, together and one by one.
    Recover(recover::Options),
    /// Random reads of slots of a large state, beside bare RocksDB and MDBX.
    Sload(sload::Options),
    /// Options of the storage engine and ways to ask it, beside what was chosen.
    Engine(engine::Options),
    /// A large state moved back by many blocks at once.
    Rollback(rollback::Options),
    /// Blocks beside the head, each executed upon the one before, timed by depth.
    SideChain(side_chain::Options),
    /// Blocks and random reads for minutes within a budget, memory watched.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Evm(options) => programs::run(&options),
        Command::Import(options) => import::run(&options),
        Command::Ratios(options) => ratios::run(&options),
        Command::Overview(options) => overview::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Head(options) => import::print_head(&options),
        Command::GenGenesis(options) => gen_genesis::run(&options),
        Command::GenChain(options) => gen_chain::run(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Model(options) => model::run(&options),
        Command::StateRoot(options) => state_root::run(&options),
        Command::Listed(options) => listed::run(&options),
        Command::Keccak(options) => keccak::run(&options),
        Command::Recover(options) => recover::run(&options),
        Command::Sload(options) => sload::run(&options),
        Command::Engine(options) => engine::run(&options),
        Command::Rollback(options) => rollback::run(&options),
        Command::SideChain(options) => side_chain::run(&options),
        Command::Soak(options) => soak::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("niwaki-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses a place for the figures that can't hold them, before minutes are spent on measuring.
fn check_json(path: Option<&Path>) -> Result<()> {
    check_place(path, "--json")
}

/// The same for what `flag` names.
fn check_place(path: Option<&Path>, flag: &str) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let is_writable = !path.is_dir() && folder.is_none_or(Path::is_dir);
    ensure!(
        is_writable,
        "can't write {}: it is a folder, or in none; give another {flag}",
        path.display()
    );
    Ok(())
}

/// Writes `report` to `path`, if there is one.
fn write_json(path: Option<&Path>, report: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)? + "\n";
    std::fs::write(path, text)
        .wrap_err_with(|| format!("can't write {}; give another --json", path.display()))
}

/// Reads a count of runs from the command line.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be measured; use 1 or more".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}; use a whole number from 1 on")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_file_for_figures_must_lie_in_a_folder() {
        assert!(check_json(None).is_ok());
        assert!(check_json(Some(Path::new("new.json"))).is_ok());
        assert!(check_json(Some(Path::new("/nonexistent/new.json"))).is_err());
        assert!(check_json(Some(Path::new("/"))).is_err());
    }

    #[test]
    fn no_runs_are_refused() {
        assert!(at_least_one("0").is_err_and(|reason| reason.contains("1 or more")));
        assert!(at_least_one("-1").is_err());
        assert_eq!(at_least_one("7"), Ok(7));
    }
}
