//! The command line. Names and meanings are Besu's where Besu has them.

mod access;
mod node;
mod storage;

use crate::memory::MemoryBudget;
use clap::{Args, Parser, Subcommand, ValueEnum};
use niwaki_rules::Network;
use std::path::PathBuf;

pub(crate) use access::{HttpTlsFlags, HttpTokenFlags, SocketTlsFlags, SocketTokenFlags};
pub(crate) use node::{LogFormat, LogLevel, NodeOptions, OperationFlags, PoolFlavor};
pub(crate) use storage::{
    AccountOptions, BackupOptions, CheckOptions, RestoreOptions, StateExportOptions,
    StateImportOptions, StorageCommand, TrieLogCommand, TrieLogExportOptions, TrieLogImportOptions,
};

/// An Ethereum execution client. Without a command it runs the node.
#[derive(Debug, Parser)]
#[command(name = "niwaki", version = env!("NIWAKI_VERSION"), max_term_width = 100)]
pub(crate) struct Options {
    /// Folder of the database; created if it is absent [default: niwaki in the user's data folder].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_path: Option<PathBuf>,

    /// The chain, by name [default: mainnet].
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        value_parser = parse_network
    )]
    pub(crate) network: Option<Network>,

    /// The chain, by a genesis file as geth or Besu write it; instead of --network.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) genesis_file: Option<PathBuf>,

    /// Memory for all caches and buffers together, such as 2G [default: a quarter of the machine's, at
    /// most 8G].
    #[arg(
        long,
        global = true,
        value_name = "BYTES",
        value_parser = MemoryBudget::parse
    )]
    pub(crate) memory_budget: Option<MemoryBudget>,

    /// Besu's name for more memory: half of the machine's, at most 16G, where --memory-budget does not
    /// say how much.
    #[arg(
        long = "Xplugin-rocksdb-high-spec-enabled",
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) high_spec: Option<bool>,

    /// Runs the transactions of a block on several threads, some ahead of their turn, with the result of one
    /// after the other [default: true].
    #[arg(
        long = "bonsai-parallel-tx-processing-enabled",
        alias = "Xbonsai-parallel-tx-processing-enabled",
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) parallel_transactions: Option<bool>,

    /// On how many threads the transactions of a block run [default: half as many as the machine has
    /// processors, two at least where there are two].
    #[arg(
        long,
        global = true,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(crate) transaction_threads: Option<u16>,

    /// Keeps results of precompiled contracts by their input, within the memory budget [default: true;
    /// Besu's is false].
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) cache_precompiles: Option<bool>,

    /// Which states are kept: BONSAI the last 512 blocks', X_BONSAI_ARCHIVE (or FOREST) every one, with
    /// proofs. Decided when a chain is begun [default: BONSAI, or what the chain was begun with].
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        ignore_case = true
    )]
    pub(crate) data_storage_format: Option<DataFormat>,

    /// Taken for Besu's sake; it changes nothing, since a known genesis file is never read again.
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide = true
    )]
    pub(crate) genesis_state_hash_cache_enabled: Option<bool>,

    #[command(flatten)]
    pub(crate) node: NodeOptions,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checks a configuration file without running the node.
    ValidateConfig(ValidateOptions),
    /// Imports and exports blocks.
    #[command(subcommand)]
    Blocks(BlocksCommand),
    /// Hashes passwords for files of credentials.
    #[command(subcommand)]
    Password(PasswordCommand),
    /// Looks after the database.
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Prints what a shell completes commands and flags with.
    Completions(CompletionOptions),
    /// Prints the manual's page.
    Man(ManOptions),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Write a page for each command into this folder instead; created if it is absent.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateOptions {
    /// The file of flags.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PasswordCommand {
    /// Prints the bcrypt hash of a password, for a file of credentials.
    Hash(PasswordOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PasswordOptions {
    /// The password; other users of the machine may see it here [default: the first line of standard
    /// input].
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlocksCommand {
    /// Imports blocks from files: checks, executes and stores each one. Can be stopped and started
    /// again at any time.
    Import(ImportOptions),
    /// Exports blocks of the canonical chain to a file.
    Export(ExportOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// Files of blocks, imported in this order.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,

    /// More files of blocks.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// What the files hold: RLP (blocks one after the other), ERA1 (an archive of blocks before the
    /// Merge) or JSON (blocks to be made, each with transactions and the keys to sign them).
    #[arg(long, value_enum, ignore_case = true, default_value_t = Format::Rlp)]
    pub(crate) format: Format,

    /// Leave out blocks before this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) start_block: u64,

    /// Leave out blocks from this number on [default: none].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,

    /// Do not verify the seal of proof-of-work blocks. This version never does, and says so once
    /// where the flag is missing.
    #[arg(long)]
    pub(crate) skip_pow_validation_enabled: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,

    /// RLP (blocks one after the other) or ERA1 (at most 8192 blocks before the Merge).
    #[arg(long, value_enum, ignore_case = true, default_value_t = ExportFormat::Rlp)]
    pub(crate) format: ExportFormat,

    /// The first block.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) start_block: u64,

    /// The block to stop before [default: after the head].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum Format {
    Rlp,
    Era1,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum ExportFormat {
    Rlp,
    Era1,
}

/// Besu's names for what a data path keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataFormat {
    #[value(name = "BONSAI")]
    Bonsai,
    #[value(name = "X_BONSAI_ARCHIVE", alias = "FOREST")]
    Archive,
}

fn parse_network(name: &str) -> Result<Network, String> {
    Network::from_name(name).ok_or_else(|| {
        let names = Network::ALL.map(Network::name).join(", ");
        format!("choose one of {names}, or give --genesis-file FILE")
    })
}
