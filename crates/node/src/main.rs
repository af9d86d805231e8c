//! `niwaki`: an Ethereum execution client.
//!
//! One straight function from the command line to an exit code. It refuses to know consensus rules:
//! those live in the rooms below.
#![forbid(unsafe_code)]

mod account;
mod blocks;
mod loading;
mod memory;
mod open;
mod options;
mod progress;
mod stop;
mod storage;
mod summary;

use clap::Parser;
use eyre::{Result, eyre};
use niwaki_crypto::Preference;
use options::{BlocksCommand, Command, Options, StorageCommand};
use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// All of it was done.
    Done,
    /// What it looked at is not right.
    Bad,
    /// Stopped on request before the end.
    Interrupted,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Bad) => ExitCode::FAILURE,
        // What a shell reports of a program that Ctrl-C ended.
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("niwaki: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Ending> {
    niwaki_crypto::install(Preference::Auto)?;
    if !niwaki_evm::dispatch_is_flat() {
        return Err(eyre!(
            "this build's interpreter would overflow its stack: the compiler did not turn its \
             tail calls into jumps; build with --release and the pinned toolchain"
        ));
    }
    match &options.command {
        Command::Blocks(BlocksCommand::Import(import)) => blocks::import(options, import),
        Command::Blocks(BlocksCommand::Export(export)) => blocks::export(options, export),
        Command::Storage(command) => run_storage(options, command),
    }
}

fn run_storage(options: &Options, command: &StorageCommand) -> Result<Ending> {
    match command {
        StorageCommand::Check(check) => storage::check(options, check),
        StorageCommand::Account(wanted) => account::show(options, wanted),
        StorageCommand::Repair => storage::repair::run(options),
        StorageCommand::Backup(backup) => storage::backup::backup(options, backup),
        StorageCommand::Restore(restore) => storage::backup::restore(options, restore),
        StorageCommand::Export(export) => storage::state_file::export(options, export),
        StorageCommand::Import(import) => storage::state_file::import(options, import),
        StorageCommand::TrieLog(command) => storage::trie_log::run(options, command),
    }
}
