//! The chain: the only writer of blocks and state.
//!
//! It imports blocks and writes each as one batch: header, body, receipts, indices, flat values, trie rows, trie log,
//! head. Whatever the process dies of, the chain opens again at the last whole block.
//!
//! | file | what it is |
//! |---|---|
//! | `chain`, `open` | the chain, and how it is opened |
//! | `genesis_file` | a genesis file of any size, loaded once |
//! | `import` | one block: validated, executed, committed |
//! | `threads`, `tuning` | on how many threads, from which sizes on |
//! | `sender_stream` | senders of a stream of blocks, recovered in parallel |
//! | `build` | a new block, from a template |
//! | `consensus`, `payload` | the chain as a consensus client drives it |
//! | `journal` | what a consensus client was answered, for a process that dies |
//! | `forkchoice` | the head, reorganisations, the safe and the finalized block |
//! | `tree`, `view` | blocks by number and hash, states |
//! | `events` | listeners to moves of the head |
//! | `prewarm` | pooled transactions executed before the next block comes |
//! | `skeleton` | headers of blocks that are not executed yet |
//! | `persist`, `rows`, `indices` | what is written of a block, and its bytes |
//! | `bft` | the validators of a BFT chain, block after block |
//! | `contract` | contracts that say how a network is run |
//! | `bad_blocks`, `recent_blocks` | the last invalid blocks, the last imported ones |
//! | `log_index` | which blocks may hold a log |
//! | `check`, `repair` | the whole database against itself, and what can be computed again |
//! | `trie_logs` | counted, pruned, exported, imported |
//! | `state_download` | a state that comes from peers |
//! | `history` | blocks below those that are stored |
//! | `state_file`, `chunks`, `transfer` | the state of the head as a file; export files and their errors |
//! | `besu` | the data folder of a stopped Besu, taken over |
//! | `ere` | archives of blocks, read and written |
//! | `backup` | copies of the database |
#![forbid(unsafe_code)]

mod backup;
mod bad_blocks;
mod besu;
mod bft;
mod build;
mod chain;
mod check;
mod chunks;
mod consensus;
mod contract;
mod ere;
mod events;
mod forkchoice;
mod genesis_file;
mod history;
mod import;
mod indices;
mod journal;
mod log_index;
mod open;
mod payload;
mod persist;
mod prewarm;
mod recent_blocks;
mod repair;
mod rows;
mod sender_stream;
mod skeleton;
mod state_download;
mod state_file;
mod threads;
mod transfer;
mod tree;
mod trie_logs;
mod tuning;
mod view;

pub use besu::{BesuError, BesuFolder, BesuImport, BesuLayout, CopiedHistory};
pub use build::{BlockTemplate, BuildError, BuiltBlock, Candidate, NextCandidate};
pub use chain::{Chain, SegmentUsage, StorageStats, nanoseconds};
pub use check::{ChainCheck, receipts_root};
pub use consensus::{
    Consensus, ForkChoice, ForkChoiceError, MissingBlock, MissingHead, RejectedBlock, Verdict,
};
pub use contract::ContractAnswer;
pub use ere::{EreError, EreFile, ErePart, EreWriter, MAX_ERE_BLOCKS, header_accumulator};
pub use events::{HeadChange, HeadListener};
pub use forkchoice::SetHeadError;
pub use genesis_file::{GenesisFileConfig, Loading, LoadingReport};
pub use history::PrunedBlocks;
pub use import::{
    ImportError, ImportRequest, ImportStatus, Imported, JudgedBlock, ListedBlocks, PayloadHints,
    Receipts, Timings, WriteAhead, WriteStats, body_roots,
};
pub use indices::TransactionPlace;
pub use log_index::{LogIndex, LogIndexState, SECTION_BLOCKS, SectionBlocks};
pub use niwaki_state::{
    BlockId, CacheStats, CheckSummary, GenesisAccount, HistoricalView, HitRate, Problem,
    ProvableView, RangeVisitor, ReadStats, StateHead, StateOptions,
};
pub use niwaki_storage::{
    BackupError, BackupProgress, NewBackup, Options as StorageOptions, SyncPolicy,
};
pub use open::{ChainConfig, GenesisBlock, OpenError};
pub use prewarm::Prewarmed;
pub use repair::{ChainRepair, RepairRefusal, Repairing, RepairingReport};
pub use rows::slim_receipts;
pub use sender_stream::{StreamedBlock, recover_stream};
pub use skeleton::HeaderRun;
pub use state_download::{BLOCKS_WITH_STATE, DownloadedBlock};
pub use state_file::{Exporting, GenesisSource, StateExported, StateImport, StateReport};
pub use transfer::TransferError;
pub use tree::StoredHeader;
pub use trie_logs::{PrunedTrieLogs, TrieLogChoice, TrieLogCount, TrieLogReport};
pub use view::ChainView;

#[cfg(test)]
mod tests;
