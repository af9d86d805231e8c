//! The chain: the only writer of blocks and state.
//!
//! Takes blocks, checks and executes them upon the state after their parent, and writes each as
//! one batch: header, body, receipts, indices, flat values, trie rows, trie log, head. Whatever
//! the process dies of, the chain opens again at the last whole block.
//!
//! | file | what |
//! |---|---|
//! | `open` | opening, and the genesis block |
//! | `genesis_file` | beginning from a file of any size, and knowing it again |
//! | `import` | one block, from bytes already decoded to head |
//! | `build` | a block made here, from a template |
//! | `ahead` | senders recovered while the blocks before are still executed |
//! | `known` | what comes with a block |
//! | `tree` | blocks by number and hash, ancestors |
//! | `forkchoice` | which block is the head, which are safe and final |
//! | `consensus` | what a consensus client drives: verdicts, fork choice, blocks without parents |
//! | `events` | who is told that the head moved |
//! | `receipts` | their trie and bloom, made as they come |
//! | `persist` | what of a block goes into the batch |
//! | `indices` | canonical numbers and transactions |
//! | `warm` | what the next block may take, run before it comes |
//! | `bad_blocks` | the last ones that were refused |
//! | `recent` | those taken in last, with their senders |
//! | `log_index` | which blocks may hold a log |
//! | `check` | the whole database against itself |
//! | `repair` | what a check finds, made anew from what is right |
//! | `trie_logs` | trie logs counted, pruned, taken out and put back |
//! | `state_file` | the state of the head as a file, out and in |
//! | `chunks` | the form of such files |
//! | `rows` | the byte forms |
#![forbid(unsafe_code)]

mod ahead;
mod backup;
mod bad_blocks;
mod build;
mod check;
mod chunks;
mod consensus;
mod events;
mod forkchoice;
mod genesis_file;
mod import;
mod indices;
mod journal;
mod known;
mod log_index;
mod open;
mod payload;
mod persist;
mod receipts;
mod recent;
mod repair;
mod rows;
mod state_file;
mod transfer;
mod tree;
mod trie_logs;
mod view;
mod warm;

pub use ahead::{BlockAhead, recover_ahead};
pub use build::{BlockTemplate, BuildError, BuiltBlock, Candidate, NextCandidate};
pub use check::ChainCheck;
pub use consensus::{Consensus, ForkChoice, ForkChoiceError, Refused, Verdict, WantedHead};
pub use events::{HeadChange, HeadListener};
pub use forkchoice::SetHeadError;
pub use genesis_file::{GenesisFileConfig, Loading, LoadingReport};
pub use import::{ImportError, ImportStatus, Imported, Timings};
pub use indices::TransactionPlace;
pub use known::Known;
pub use log_index::{LogIndex, LogIndexState, SECTION_BLOCKS, SectionBlocks};
pub use niwaki_state::{
    BlockId, CacheStats, CheckSummary, GenesisAccount, HistoricalView, HitRate, Problem,
    RangeVisitor, StateHead, StateOptions,
};
pub use niwaki_storage::{
    BackupError, BackupProgress, NewBackup, Options as StorageOptions, SyncPolicy,
};
pub use open::{Chain, ChainConfig, GenesisBlock, OpenError, StorageFigures, nanoseconds};
pub use receipts::Receipts;
pub use repair::{ChainRepair, RepairRefusal, Repairing, RepairingReport};
pub use state_file::{Exporting, GenesisSource, StateExported, StateImport, StateReport};
pub use transfer::TransferError;
pub use tree::StoredHeader;
pub use trie_logs::{PrunedTrieLogs, TrieLogChoice, TrieLogCount, TrieLogReport};
pub use view::ChainView;
pub use warm::WarmedUp;

#[cfg(test)]
mod tests;
