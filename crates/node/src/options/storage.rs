//! The command line of `niwaki storage`.

use clap::{Args, Subcommand};
use niwaki_primitives::{Address, B256, U256};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StorageCommand {
    /// Reads the whole database and compares values, trie, head, blocks and indices; of an archive
    /// the history too.
    Check(CheckOptions),
    /// Shows an account and slots of it after a block, with proofs, as eth_getProof would.
    Account(AccountOptions),
    /// Makes anew what follows from something that is right: tries and storage roots from accounts
    /// and slots, indices and total difficulties from headers and bodies. Then checks everything.
    /// The history of an archive is left as it is.
    Repair,
    /// Adds a backup of the whole database to a folder; files that an earlier backup there has are
    /// not copied again.
    Backup(BackupOptions),
    /// Makes a data path of a backup. The data path must have no database.
    Restore(RestoreOptions),
    /// Writes the state of the head to one file that any node can take in and verify. The history of
    /// an archive is not in it.
    Export(StateExportOptions),
    /// Takes in a state that was exported, and verifies it against its block. The data path must
    /// have no chain. The same command goes on with an import of the same file that was interrupted.
    Import(StateImportOptions),
    /// Counts, prunes, exports and imports trie logs, by which the state goes back and forth.
    #[command(subcommand)]
    TrieLog(TrieLogCommand),
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Compare only the head's header, its state root and the root of the trie. Begins the chain if
    /// there is none yet.
    #[arg(long)]
    pub(crate) head_only: bool,

    /// Compare the head, and so many accounts drawn by chance, with their codes and a slot of each,
    /// each by its way down from the state root. Takes moments whatever the size of the state.
    #[arg(long, value_name = "ACCOUNTS", conflicts_with = "head_only")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct AccountOptions {
    /// The account.
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: Address,

    /// A slot to show too, decimal or 0x; may be given several times.
    #[arg(long, value_name = "SLOT")]
    pub(crate) slot: Vec<U256>,

    /// The block after which [default: the head].
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,

    /// With the nodes that prove it in the state root; below the head in an archive only.
    #[arg(long)]
    pub(crate) proof: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// The folder of backups; created if it is absent.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// Keep only the latest N backups of the folder [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The folder of backups.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: PathBuf,

    /// The number of the backup [default: the latest one].
    #[arg(long, value_name = "ID")]
    pub(crate) backup: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct StateExportOptions {
    /// The file to write; it must not exist. Until it is whole its name ends with .part, and the same
    /// command goes on with what an interrupted one has left.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StateImportOptions {
    /// The file that was exported.
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrieLogCommand {
    /// Counts the trie logs: all, of canonical blocks, of forks, of blocks that are not stored.
    Count,
    /// Removes the trie logs of blocks that are not canonical or lie more than 512 below the head.
    Prune,
    /// Writes trie logs to one file.
    Export(TrieLogExportOptions),
    /// Puts trie logs back from a file, all of them or none.
    Import(TrieLogImportOptions),
}

#[derive(Debug, Args)]
pub(crate) struct TrieLogExportOptions {
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE", alias = "trie-log-file-path")]
    pub(crate) to: PathBuf,

    /// The hashes of the blocks, separated by commas; canonical or not.
    #[arg(
        long,
        value_name = "HASH",
        value_delimiter = ',',
        conflicts_with_all = ["start_block", "end_block"]
    )]
    pub(crate) trie_log_block_hash: Vec<B256>,

    /// Instead of hashes: the first canonical block [default: the first one with a log].
    #[arg(long, value_name = "N")]
    pub(crate) start_block: Option<u64>,

    /// Instead of hashes: the canonical block to stop before [default: after the head].
    #[arg(long, value_name = "N")]
    pub(crate) end_block: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct TrieLogImportOptions {
    /// The file that was exported.
    #[arg(long, value_name = "FILE", alias = "trie-log-file-path")]
    pub(crate) from: PathBuf,
}
