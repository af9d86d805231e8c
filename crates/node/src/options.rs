//! The command line. Names and meanings are Besu's where Besu has the flag.
//!
//! | file | what it is |
//! |---|---|
//! | `node` | flags of the running node |
//! | `access` | flags of authentication and TLS |
//! | `graphql` | flags of GraphQL |
//! | `peers` | flags of the network of peers |
//! | `permissions` | flags of the lists of nodes and accounts |
//! | `storage` | `niwaki storage` and its commands |

mod access;
mod bft;
mod graphql;
mod node;
mod operator;
mod peers;
mod permissions;
mod storage;

use crate::memory::MemoryBudget;
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use niwaki_rules::Network;
use std::path::PathBuf;

pub(crate) use access::{HttpTlsFlags, HttpTokenFlags, SocketTlsFlags, SocketTokenFlags};
pub(crate) use bft::VoteJournalFlag;
pub(crate) use graphql::GraphQlTlsFlags;
pub(crate) use node::{
    LogFormat, LogLevel, NodeOptions, OperationFlags, PoolFlags, PoolFlavor, TYPES,
};
pub(crate) use operator::{GenerateOptions, OperatorCommand, RlpCommand};
pub(crate) use peers::{DiscoveryMode, DnsList, NatMethodFlag, PeerFlags, SyncModeFlag};
pub(crate) use permissions::PermissionFlags;
pub(crate) use storage::{
    AccountOptions, BackupOptions, BesuImportOptions, CheckOptions, RestoreOptions, RocksdbCommand,
    StateExportOptions, StateImportOptions, StorageCommand, TrieLogCommand, TrieLogExportOptions,
    TrieLogImportOptions,
};

/// An Ethereum execution client. Without a command it runs the node.
#[derive(Debug, Parser)]
#[command(name = "niwaki", version = env!("NIWAKI_VERSION"), max_term_width = 100, mut_args = switch)]
pub(crate) struct Options {
    /// Folder of the database; created if it does not exist [default: niwaki in the user's data folder].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_path: Option<PathBuf>,

    /// Network to run, by name [default: mainnet].
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        value_parser = parse_network
    )]
    pub(crate) network: Option<Network>,

    /// Genesis file in geth's or Besu's format, instead of --network.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) genesis_file: Option<PathBuf>,

    /// Memory for all caches and buffers together, such as 2G [default: a quarter of the machine's memory,
    /// at most 8G].
    #[arg(
        long,
        global = true,
        value_name = "BYTES",
        value_parser = MemoryBudget::parse
    )]
    pub(crate) memory_budget: Option<MemoryBudget>,

    /// Use more memory: half of the machine's, at most 16G. --memory-budget overrides it.
    #[arg(
        long = "Xplugin-rocksdb-high-spec-enabled",
        global = true,
        value_name = "BOOL"
    )]
    pub(crate) high_spec: Option<bool>,

    /// Execute the transactions of a block speculatively in parallel; the result is that of sequential
    /// execution [default: true].
    #[arg(
        long = "bonsai-parallel-tx-processing-enabled",
        alias = "Xbonsai-parallel-tx-processing-enabled",
        global = true,
        value_name = "BOOL"
    )]
    pub(crate) parallel_transactions: Option<bool>,

    /// Threads that execute the transactions of a block [default: half the number of processors, but at
    /// least two if the machine has two].
    #[arg(
        long,
        global = true,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(crate) transaction_threads: Option<u16>,

    /// Cache results of precompiled contracts by input, within the memory budget [default: true; Besu's
    /// is false].
    #[arg(long, global = true, value_name = "BOOL")]
    pub(crate) cache_precompiles: Option<bool>,

    /// Which states to keep: BONSAI those of the last 512 blocks, X_BONSAI_ARCHIVE (or FOREST) every state,
    /// with proofs. Fixed when the database is created [default: BONSAI, or what the database has].
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        ignore_case = true
    )]
    pub(crate) data_storage_format: Option<DataFormat>,

    /// Accepted for compatibility with Besu; no effect: a known genesis file is never read again.
    #[arg(long, global = true, value_name = "BOOL", hide = true)]
    pub(crate) genesis_state_hash_cache_enabled: Option<bool>,

    /// Print the flags that begin with X: they may change or go at any time.
    #[arg(long = "Xhelp", short = 'X')]
    pub(crate) unstable_help: bool,

    #[command(flatten)]
    pub(crate) node: NodeOptions,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration file without running the node.
    ValidateConfig(ValidateOptions),
    /// Import and export blocks.
    #[command(subcommand)]
    Blocks(BlocksCommand),
    /// Check the machine, the disk and the network, and say what to do where they do not suit a node. Takes the flags of the node,
    /// before the command.
    Doctor(DoctorOptions),
    /// Have the running node profile itself: flame graphs, and profiles for pprof.
    Profile(ProfileOptions),
    /// Decode transactions, one per line in hex, and print the sender of each, or what is wrong with it.
    #[command(name = "txparse")]
    TxParse(TxParseOptions),
    /// Hash passwords for a credentials file.
    #[command(subcommand)]
    Password(PasswordCommand),
    /// The public key of this node: its identity for peers.
    #[command(subcommand)]
    PublicKey(PublicKeyCommand),
    /// Make what a network of validators begins with.
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// Encode and decode the validators in extra data.
    #[command(subcommand)]
    Rlp(RlpCommand),
    /// Check, repair, back up and move the database.
    #[command(subcommand)]
    Storage(StorageCommand),
    /// Print the completion script for a shell.
    Completions(CompletionOptions),
    /// Print the manual page.
    Man(ManOptions),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print a list of JSON objects: check, grade (pass, warn, fail, unknown), found, mend.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds of the disk test, which writes a file of 1 GiB into the data path and removes it; 0 for none.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(..=600))]
    pub(crate) disk_seconds: u64,
    /// Server to compare the clock with, or none.
    #[arg(long, value_name = "HOST[:PORT]", default_value = "pool.ntp.org")]
    pub(crate) ntp_server: String,
}

#[derive(Debug, Args)]
pub(crate) struct ProfileOptions {
    /// How long the processor is sampled.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Folder for the profiles: cpu.svg, cpu.pb.gz and, if the node was started with --profile-heap-enabled, heap.svg and heap.pb.gz.
    /// The node writes them.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TxParseOptions {
    /// File of transactions [default: standard input]. Empty lines and those that begin with # are left out.
    #[arg(long, value_name = "FILE")]
    pub(crate) corpus_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManOptions {
    /// Write one page per command into this folder instead; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateOptions {
    /// Configuration file in TOML.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PasswordCommand {
    /// Print the bcrypt hash of a password, for a credentials file.
    Hash(PasswordOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PasswordOptions {
    /// Password; other users of the machine can see it on the command line [default: the first line of
    /// standard input].
    #[arg(long, value_name = "PASSWORD")]
    pub(crate) password: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PublicKeyCommand {
    /// Print the public key, 0x and 128 hex digits.
    Export(PublicKeyOptions),
    /// Print the address of the public key, the validator's of a BFT network.
    ExportAddress(PublicKeyOptions),
}

#[derive(Debug, Args)]
pub(crate) struct PublicKeyOptions {
    /// File to write to [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// File with the private key; made if it does not exist [default: key in the data path].
    #[arg(long, value_name = "FILE")]
    pub(crate) node_private_key_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BlocksCommand {
    /// Import blocks from files: validate, execute and store each block. Can be stopped at any time; the
    /// same command continues.
    Import(ImportOptions),
    /// Export blocks of the canonical chain to a file.
    Export(ExportOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// Files of blocks, imported in the order given.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,

    /// More files of blocks.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Format of the files: RLP (concatenated blocks), ERA1 (an archive of blocks before the Merge), ERE (an
    /// archive of any blocks) or JSON (blocks to build: transactions and the keys that sign them).
    #[arg(long, value_enum, ignore_case = true, default_value_t = Format::Rlp)]
    pub(crate) format: Format,

    /// Skip blocks before this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) start_block: u64,

    /// Skip blocks from this number on [default: none].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,

    /// Do not verify the proof-of-work seal. This version never does; without the flag it prints a note
    /// that says so.
    #[arg(long)]
    pub(crate) skip_pow_validation_enabled: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,

    /// RLP (concatenated blocks), ERA1 (at most 8192 blocks, all before the Merge) or ERE (at most 8192 blocks,
    /// with their receipts).
    #[arg(long, value_enum, ignore_case = true, default_value_t = ExportFormat::Rlp)]
    pub(crate) format: ExportFormat,

    /// First block to export.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) start_block: u64,

    /// Stop before this block [default: after the head].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum Format {
    Rlp,
    Era1,
    Ere,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum ExportFormat {
    Rlp,
    Era1,
    Ere,
}

/// Which states a data path keeps, by Besu's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataFormat {
    #[value(name = "BONSAI")]
    Bonsai,
    #[value(name = "X_BONSAI_ARCHIVE", alias = "FOREST")]
    Archive,
}

/// A switch, by its value name BOOL: without a value it is on, `=false` turns it off.
fn switch(arg: Arg) -> Arg {
    match arg.get_value_names() {
        Some([name]) if name.as_str() == "BOOL" => (arg.num_args(0..=1))
            .require_equals(true)
            .default_missing_value("true"),
        _ => arg,
    }
}

fn parse_network(name: &str) -> Result<Network, String> {
    Network::from_name(name).ok_or_else(|| {
        let names = Network::ALL.map(Network::name).join(", ");
        format!("choose one of {names}, or give --genesis-file FILE")
    })
}
