//! The command line of `niwaki storage`.

use clap::{Args, Subcommand};
use niwaki_primitives::{Address, B256, U256};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StorageCommand {
    /// Read the whole database and check that values, trie, head, blocks and indices agree; in an archive
    /// the history too.
    Check(CheckOptions),
    /// Show an account and its slots as of a block, with proofs, as eth_getProof does.
    Account(AccountOptions),
    /// Rebuild derived data: tries and storage roots from accounts and slots, indices and total
    /// difficulties from headers and bodies. Then check everything. The history of an archive is left
    /// unchanged.
    Repair,
    /// Add a backup of the whole database to a folder. Files that an earlier backup in the folder holds
    /// are not copied again.
    Backup(BackupOptions),
    /// Restore a backup into a data path that has no database.
    Restore(RestoreOptions),
    /// Write the state of the head to one file that another node can import and verify. The file does not
    /// hold the history of an archive.
    Export(StateExportOptions),
    /// Import an exported state and verify it against its block. The data path must have no chain. The
    /// same command continues an interrupted import of the same file.
    Import(StateImportOptions),
    /// Take over the data folder of a stopped Besu, Bonsai or Forest: its state, verified against the header of its block, and its
    /// blocks. The folder is not changed. The same command continues an interrupted one.
    ImportBesu(BesuImportOptions),
    /// Remove the blocks before the Merge, but for the genesis block: bodies, receipts, headers and their index.
    /// Interrupted, the same command goes on.
    PrunePreMergeBlocks,
    /// What the storage engine says of itself.
    #[command(subcommand)]
    Rocksdb(RocksdbCommand),
    /// Count, prune, export and import trie logs: the state diffs that roll the state back and forward.
    #[command(subcommand)]
    TrieLog(TrieLogCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RocksdbCommand {
    /// Print what each part of the database takes on the disk.
    Usage(RocksdbUsageOptions),
    /// Print levels, compactions and stalls.
    #[command(name = "x-stats")]
    XStats,
}

#[derive(Debug, Args)]
pub(crate) struct RocksdbUsageOptions {
    /// Parts to print [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) column_family_filter: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Check only that the head's header, its state root and the root of the trie agree. Creates the
    /// database if there is none.
    #[arg(long)]
    pub(crate) head_only: bool,

    /// Check the head and this many random accounts, with their code and one slot each, along the trie path
    /// from the state root. Takes moments whatever the size of the state.
    #[arg(long, value_name = "ACCOUNTS", conflicts_with = "head_only")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct AccountOptions {
    /// Address of the account.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Address,

    /// Storage slot to show, decimal or 0x; may be given several times.
    #[arg(long, value_name = "SLOT")]
    pub(crate) slot: Vec<U256>,

    /// Show the state after this block [default: the head].
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,

    /// Include Merkle proofs; of blocks far below the head they need an archive.
    #[arg(long)]
    pub(crate) proof: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// Folder of backups; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// Keep only the latest N backups in the folder [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// Folder of backups.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,

    /// Number of the backup [default: the latest].
    #[arg(long, value_name = "ID")]
    pub(crate) backup: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct StateExportOptions {
    /// File to write; it must not exist. Its name ends with .part until it is complete, and the same command
    /// continues an interrupted export.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StateImportOptions {
    /// Exported file.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct BesuImportOptions {
    /// The folder that Besu's --data-path names.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,

    /// Execute so many blocks up to Besu's head, rather than trust what it stores of them. This verifies the rules of the genesis file, and
    /// the states of these blocks can be read afterwards.
    #[arg(long, value_name = "BLOCKS", default_value_t = 512)]
    pub(crate) execute_last: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrieLogCommand {
    /// Count the trie logs: all, of canonical blocks, of side blocks, of blocks that are not stored.
    Count,
    /// Remove the trie logs of blocks that are not canonical or are more than 512 below the head.
    Prune,
    /// Write trie logs to one file.
    Export(TrieLogExportOptions),
    /// Import trie logs from a file, all of them or none.
    Import(TrieLogImportOptions),
}

#[derive(Debug, Args)]
pub(crate) struct TrieLogExportOptions {
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE", alias = "trie-log-file-path")]
    pub(crate) to: PathBuf,

    /// Hashes of the blocks, canonical or not, separated by commas.
    #[arg(
        long,
        value_name = "HASH",
        value_delimiter = ',',
        conflicts_with_all = ["start_block", "end_block"]
    )]
    pub(crate) trie_log_block_hash: Vec<B256>,

    /// Instead of hashes: first canonical block [default: the first that has a trie log].
    #[arg(long, value_name = "N")]
    pub(crate) start_block: Option<u64>,

    /// Instead of hashes: stop before this canonical block [default: after the head].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct TrieLogImportOptions {
    /// Exported file.
    #[arg(long, value_name = "FILE", alias = "trie-log-file-path")]
    pub(crate) from: PathBuf,
}
