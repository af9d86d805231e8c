//! `niwaki`: an Ethereum execution client.
//!
//! One straight function from the command line to an exit code. It refuses to know consensus rules:
//! those live in the rooms below.
#![forbid(unsafe_code)]

mod account;
mod blocks;
mod config;
mod loading;
mod memory;
mod notice;
mod open;
mod options;
mod password;
mod progress;
mod run;
mod shell;
mod stop;
mod storage;
mod summary;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use config::Note;
use eyre::{Result, eyre};
use niwaki_crypto::Preference;
use options::{BlocksCommand, Command, Options, PasswordCommand, StorageCommand};
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
    /// The command line can't be followed.
    Misused,
}

fn main() -> ExitCode {
    match begin() {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::Bad) => ExitCode::FAILURE,
        // What a shell reports of a program that Ctrl-C ended.
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Ok(Ending::Misused) => ExitCode::from(2),
        Err(error) => {
            notice::tell_failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line, with what environment, configuration file and profile add to it.
fn begin() -> Result<Ending> {
    let command = Options::command();
    let merged = config::merge(&command, std::env::args_os().collect(), &|name| {
        std::env::var_os(name)
    })?;
    let parsed = command.try_get_matches_from(&merged.arguments);
    match parsed.and_then(|matches| Options::from_arg_matches(&matches)) {
        Ok(options) => run_command(&options, &merged.notes),
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => {
            eprintln!("niwaki: {}", merged.explain(&error));
            Ok(Ending::Misused)
        }
    }
}

/// Whether clap prints what was asked for, not what is wrong.
fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// Tells of the configuration where there is no log.
fn print_notes(notes: &[Note]) {
    for note in notes {
        eprintln!("note: {}", note.text);
    }
}

fn run_command(options: &Options, notes: &[Note]) -> Result<Ending> {
    niwaki_crypto::install(Preference::Auto)?;
    if !niwaki_evm::has_tail_calls() {
        return Err(eyre!(
            "this build's interpreter would overflow its stack: the compiler did not turn its \
             tail calls into jumps; build with --release and the pinned toolchain"
        ));
    }
    if options.command.is_some() {
        print_notes(notes);
    }
    match &options.command {
        None => run::run(options, notes),
        Some(Command::Blocks(BlocksCommand::Import(import))) => blocks::import(options, import),
        Some(Command::Blocks(BlocksCommand::Export(export))) => blocks::export(options, export),
        Some(Command::Password(PasswordCommand::Hash(hash))) => password::hash(hash),
        Some(Command::Completions(wanted)) => shell::completions(wanted),
        Some(Command::Man(wanted)) => shell::man(wanted),
        Some(Command::Storage(command)) => run_storage(options, command),
        Some(Command::ValidateConfig(validate)) => {
            print_notes(&config::validate(
                &Options::command(),
                &validate.config_file,
            )?);
            println!(
                "{}: every key is known and takes its value",
                validate.config_file.display()
            );
            Ok(Ending::Done)
        }
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
