//! The world state on disk: Bonsai.
//!
//! One current state, flat and in one trie, and for each recent block what it changed, both ways
//! (its trie log). A state beside the current one is the current one with such changes laid over
//! it. Goes in: a [`StateDiff`](niwaki_primitives::StateDiff). Comes out: its root, and, when told
//! to, a commit in one atomic batch together with whatever else belongs to the block. It refuses
//! to know consensus rules; blocks are a number and a hash.
#![forbid(unsafe_code)]

mod begun;
mod branch;
mod cache;
mod changes;
mod check;
mod commit_rows;
mod disk_trie;
mod flat;
mod genesis;
mod history;
mod keys;
mod layers;
mod load;
mod log;
mod past;
mod prefetch;
mod read_ahead;
mod repair;
mod root;
mod tries;
mod view;
mod visit;
mod ways;
mod world;

pub use begun::BegunRoot;
pub use cache::{CacheFigures, HitRate};
pub use changes::{AccountChange, Changes, SlotChange};
pub use check::{CheckSummary, Problem};
pub use flat::{decode_account, decode_value, encode_account, encode_value};
pub use genesis::{GenesisAccount, genesis_root};
pub use load::{GenesisLoad, KeptLoad, LoadError, LoadReport};
pub use log::{LogRow, TrieLogError};
pub use past::PastView;
pub use prefetch::ReadingAhead;
pub use repair::{RepairError, RepairReport, StateRepair};
pub use root::Prepared;
pub use view::View;
pub use visit::Visit;
pub use world::{BlockId, StateHead, StateOptions, TRIE_LOGS_KEPT, WorldState};

#[cfg(test)]
mod tests;
