//! Benchmarks: real blocks, chains and programs, compared with peers in the same run.
//!
//! | file | what it is |
//! |---|---|
//! | `programs` | `evm`: EVM programs, compared with revm and geth |
//! | `replay` | recorded mainnet blocks, checked and timed, compared with revm |
//! | `ratios` | the EVM's targets over all peers: one table, one plot |
//! | `import` | imports of whole chains, compared with geth |
//! | `compare` | blocks through the Engine API, compared with geth and reth |
//! | `overview` | `evm` and `import` in one table |
//! | `bal` | Amsterdam blocks with and without their block access list |
//! | `model` | the parallel schedule in simulated time |
//! | `state_root` | state roots and commits, compared with alloy-trie and geth |
//! | `sload`, `reorg`, `soak` | reads, rollbacks and side blocks, memory of a large state |
//! | `keccak`, `recover` | batches of hashes, of signatures |
//! | `tps` | transactions at a fixed rate into a network that runs |
//! | `gen_chain`, `gen_genesis`, `besu_folder` | generators of chains, genesis files and a folder of Besu |
//! | `harness` | shared flags, timing loops, threads |
//! | `big_state`, `recorded`, `chain_file` | shared inputs: a large state, recorded blocks, files of blocks |
//! | `machine`, `stats`, `svg`, `progress` | shared output: machine, medians, plots, progress |
//! | `disk`, `process`, `peers`, `random` | files, processes, programs of peers, a stable random generator |

mod bal;
mod besu_folder;
mod big_state;
mod chain_file;
mod compare;
mod disk;
mod gen_chain;
mod gen_genesis;
mod harness;
mod import;
mod keccak;
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
mod reorg;
mod replay;
mod sload;
mod soak;
mod state_root;
mod stats;
mod svg;
mod tps;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The allocator of the node, and of reth, which is built on revm. With the C library's allocator, revm took 4 or
/// 20 us for the same call, depending on what the process had allocated before.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measures Niwaki and its peers on the same work; prints a table and writes JSON.
#[derive(Debug, Parser)]
#[command(name = "niwaki-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run EVM programs (NAME.code and NAME.input, hex, in DIR), one call each, in paired runs.
    Evm(programs::Options),
    /// Import whole chains from a file of blocks to a database on disk, in paired runs.
    Import(import::Options),
    /// Run `evm` and `import` with all peers: one table, one file.
    Overview(overview::Options),
    /// Compare the EVM with revm, geth, evmone and Besu, and check its targets: one table, one plot.
    Ratios(ratios::Options),
    /// Send a chain's blocks through the Engine API to us, geth and reth, in paired runs.
    Compare(compare::Options),
    /// Compare the Engine API by JSON-RPC with REST and SSZ, on one block with 21 blobs.
    EngineRest(compare::TransportOptions),
    /// Print the head of a Niwaki database as JSON.
    #[command(hide = true)]
    Head(import::HeadOptions),
    /// Write a genesis file of any size.
    GenGenesis(gen_genesis::Options),
    /// Write a chain with real contracts and a transaction mix like mainnet's, for us and for geth.
    GenChain(gen_chain::Options),
    /// Write a data folder as Besu leaves it, of any size.
    BesuFolder(besu_folder::Options),
    /// Write the blocks of a chain as Engine API requests, which `niwaki-devnet peers` reads.
    Payloads(compare::PayloadsOptions),
    /// Execute real mainnet blocks on their recorded pre-state; check and time them.
    Replay(replay::Options),
    /// Simulate our parallel schedule on recorded blocks with any number of threads, and its upper bounds.
    Model(model::Options),
    /// Time state root and commit of random changes over a large state, compared with alloy-trie and geth.
    StateRoot(state_root::Options),
    /// Validate Amsterdam blocks with and without their access list, on one thread and on several.
    #[command(alias = "listed")]
    Bal(bal::Options),
    /// Hash many messages at once with Keccak-256, compared with keccak-asm and sha3.
    Keccak(keccak::Options),
    /// Recover the signers of many signatures, in batches and one by one.
    Recover(recover::Options),
    /// Read random slots of a large state.
    Sload(sload::Options),
    /// Roll a large state back by many blocks at once.
    Rollback(reorg::RollbackOptions),
    /// Time side blocks of a large state by depth.
    SideChain(reorg::SideChainOptions),
    /// Commit blocks and read slots for minutes; watch memory against its budget.
    Soak(soak::Options),
    /// Send transactions at a fixed rate into a network that runs, and count what its blocks take in.
    Tps(tps::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Evm(options) => programs::run(&options),
        Command::BesuFolder(options) => besu_folder::run(&options),
        Command::Import(options) => import::run(&options),
        Command::Ratios(options) => ratios::run(&options),
        Command::Overview(options) => overview::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::EngineRest(options) => compare::compare_transports(&options),
        Command::Head(options) => import::print_head(&options),
        Command::GenGenesis(options) => gen_genesis::run(&options),
        Command::GenChain(options) => gen_chain::run(&options),
        Command::Payloads(options) => compare::write_payloads(&options),
        Command::Replay(options) => replay::run(&options),
        Command::Model(options) => model::run(&options),
        Command::StateRoot(options) => state_root::run(&options),
        Command::Bal(options) => bal::run(&options),
        Command::Keccak(options) => keccak::run(&options),
        Command::Recover(options) => recover::run(&options),
        Command::Sload(options) => sload::run(&options),
        Command::Rollback(options) => reorg::rollback(&options),
        Command::SideChain(options) => reorg::side_chain(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Tps(options) => tps::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("niwaki-bench: {error:#}");
            ExitCode::FAILURE
        }
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
}
