//! `niwaki`: an Ethereum execution client.
//!
//! From the command line to an exit code. Consensus rules are in the crates below, never here.
//!
//! | file | what it is |
//! |---|---|
//! | `options` | the command line: every flag and command, with its help |
//! | `config` | flags from the environment, a TOML file or a profile, merged into the command line |
//! | `run` | the node: assembled, run until it is asked to stop |
//! | `blocks` | `niwaki blocks`: import from files, export to files |
//! | `storage`, `account` | `niwaki storage`: check, repair, backup, state files, trie logs, one account |
//! | `doctor` | `niwaki doctor`: what is wrong with the machine |
//! | `password`, `public_key`, `shell` | password hashes; the node's public key; completions and manual pages |
//! | `profile`, `txparse` | profiles of the running node; senders of transactions |
//! | `node_socket` | calls of the running node by this program's commands |
//! | `operator` | keys, genesis file and extra data of a network of validators |
//! | `open` | opens the chain that the command line names |
//! | `memory` | the memory budget and its shares |
//! | `stop` | Ctrl-C and SIGTERM |
//! | `notice`, `progress`, `loading`, `summary` | what a command prints besides its result |
#![forbid(unsafe_code)]

mod account;
mod blocks;
mod config;
mod doctor;
mod loading;
mod memory;
mod node_socket;
mod notice;
mod open;
mod operator;
mod options;
mod password;
mod profile;
mod progress;
mod public_key;
mod run;
mod shell;
mod stop;
mod storage;
mod summary;
mod txparse;

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

/// How a command that returned no error ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// A check found problems.
    ProblemsFound,
    /// Stopped on request before the end.
    Interrupted,
    /// The command line is not valid.
    UsageError,
}

fn main() -> ExitCode {
    match begin() {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::ProblemsFound) => ExitCode::FAILURE,
        // 128 + SIGINT, as a shell reports a program that Ctrl-C ended.
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Ok(Outcome::UsageError) => ExitCode::from(2),
        Err(error) => {
            notice::write_failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// Reads the command line, merged with environment, configuration file and profile, and runs the command.
fn begin() -> Result<Outcome> {
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
            Ok(Outcome::UsageError)
        }
    }
}

/// Whether clap's "error" is the output of `--help` or `--version`.
fn is_help(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// Prints notes about the configuration, for commands that do not log.
fn print_notes(notes: &[Note]) {
    for note in notes {
        eprintln!("note: {}", note.text);
    }
}

fn run_command(options: &Options, notes: &[Note]) -> Result<Outcome> {
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
    if options.unstable_help {
        return shell::unstable_help(Options::command());
    }
    match &options.command {
        None => run::run(options, notes),
        Some(Command::Blocks(BlocksCommand::Import(import))) => blocks::import(options, import),
        Some(Command::Blocks(BlocksCommand::Export(export))) => blocks::export(options, export),
        Some(Command::Password(PasswordCommand::Hash(hash))) => password::hash(hash),
        Some(Command::PublicKey(command)) => public_key::run(options, command),
        Some(Command::Doctor(command)) => doctor::run(options, command),
        Some(Command::Profile(options_of)) => profile::run(options, options_of),
        Some(Command::TxParse(options_of)) => txparse::run(options_of),
        Some(Command::Operator(command)) => operator::run(command),
        Some(Command::Rlp(command)) => operator::rlp(command),
        Some(Command::Completions(completions)) => shell::completions(completions),
        Some(Command::Man(man)) => shell::man(man),
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
            Ok(Outcome::Done)
        }
    }
}

fn run_storage(options: &Options, command: &StorageCommand) -> Result<Outcome> {
    match command {
        StorageCommand::Check(check) => storage::check(options, check),
        StorageCommand::Account(account) => account::show(options, account),
        StorageCommand::Repair => storage::repair::run(options),
        StorageCommand::Backup(backup) => storage::backup::backup(options, backup),
        StorageCommand::Restore(restore) => storage::backup::restore(options, restore),
        StorageCommand::Export(export) => storage::state_file::export(options, export),
        StorageCommand::Import(import) => storage::state_file::import(options, import),
        StorageCommand::ImportBesu(import) => storage::import_besu::run(options, import),
        StorageCommand::PrunePreMergeBlocks => storage::prune::run(options),
        StorageCommand::Rocksdb(command) => storage::rocksdb::run(options, command),
        StorageCommand::TrieLog(command) => storage::trie_log::run(options, command),
    }
}
