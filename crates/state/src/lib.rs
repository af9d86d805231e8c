//! The world state on disk, in the layout that Besu calls Bonsai.
//!
//! The disk has one current state, that of the head: flat values by hashed key and one trie, of which the
//! flat values are the leaves. For each recent block there is a trie log: what the block changed, with
//! values before and after. Any other recent state is the head's with such diffs laid over it:
//!
//! ```text
//! view of block 11'  =  head's state  +  undo log(12)  +  undo log(11)  +  log(11')
//!
//!   10 --- 11 --- 12   <- head, whose flat rows and trie nodes are on disk
//!     \
//!      `-- 11'         <- side block: a trie log, no rows of its own
//! ```
//!
//! A block goes through in four steps:
//!
//! 1. [`WorldState::view_at`] gives the state of the parent, from which the block is executed.
//! 2. [`WorldState::compute_root`] applies the block's [`StateDiff`](niwaki_primitives::StateDiff) to the
//!    tries in memory and gives a [`ComputedRoot`]; nothing is written. With [`WorldState::begin_root`] the same is
//!    done in parts while the block is still executed.
//! 3. The caller compares the root with the header's.
//! 4. [`WorldState::commit`] writes flat rows, trie rows, trie log and the caller's own rows as one atomic batch,
//!    or [`WorldState::stage_side_block`] keeps the trie log only.
//!
//! This crate knows no consensus rules; a block is a number and a hash.
//!
//! | file | what it is |
//! |---|---|
//! | `world` | [`WorldState`]: open, view, commit, roll along trie logs |
//! | `head` | [`BlockId`], [`StateHead`] |
//! | `views` | states to read from |
//! | `views/view` | [`View`]: the head's state, or that of another recent block |
//! | `views/overlay` | path from the head to another block by trie logs; recent overlays |
//! | `views/layers` | diffs of several blocks, looked up as one |
//! | `views/historical` | [`HistoricalView`]: any past state of an archive |
//! | `views/provable` | [`ProvableView`]: a recent state with its tries, for proofs |
//! | `views/range` | accounts and slots in the order of their hashes |
//! | `views/cache` | accounts, slots and code in memory |
//! | `views/value_prefetch` | values read into that cache before execution needs them |
//! | `tries` | trie nodes |
//! | `tries/trie_cache` | the nodes in memory, and how they move from one state to another |
//! | `tries/disk_trie` | the nodes on disk |
//! | `tries/incremental_root` | a root computed in parts while the block is executed |
//! | `tries/prefetcher` | the thread that loads trie paths while the block is executed |
//! | `tries/trie_prefetch` | many trie paths loaded together, level by level |
//! | `commit` | from a diff to the rows of a commit |
//! | `commit/root` | from a `StateDiff` to a [`ComputedRoot`] |
//! | `commit/listed` | from [`LastValues`] to a [`ComputedRoot`] |
//! | `commit/last_values` | [`LastValues`]: the last value of all that access lists change |
//! | `commit/hashed_keys` | hashes of the addresses and slots of a diff |
//! | `commit/hashed_diff` | [`HashedDiff`]: what differs between two states, by hashed key |
//! | `commit/rows` | flat rows and trie log of a commit |
//! | `commit/flat` | bytes of a flat account and value |
//! | `commit/trie_log` | bytes of a trie log |
//! | `commit/history` | rows of an archive |
//! | `download` | [`StateDownload`]: a state that comes from peers in ranges |
//! | `download/verify` | ranges checked against a root |
//! | `download/part` | [`StatePart`]: rows on their way to the disk |
//! | `download/remaining` | [`Remaining`]: what has not come |
//! | `download/complete` | the tries made whole, once all ranges have come |
//! | `download/pivot` | the state of a later block, by block access lists |
//! | `download/heal` | what differs from the pivot's tries, found from their roots down |
//! | `download/changes` | accounts and slots that both put or remove, written with their tries |
//! | `maintenance` | the whole state at once |
//! | `maintenance/genesis` | the first state, from a short list of accounts |
//! | `maintenance/load` | the first state, of any size |
//! | `maintenance/check` | flat values, tries, code and head compared with each other |
//! | `maintenance/repair` | tries and storage roots built again from flat values |
//! | `maintenance/scan` | the pass over all flat values that both share |
#![forbid(unsafe_code)]

mod commit;
mod download;
mod head;
mod maintenance;
mod tries;
mod views;
mod world;

pub use commit::flat::{decode_account, decode_value, encode_account, encode_value};
pub use commit::hashed_diff::{HashedAccountDiff, HashedDiff, HashedSlotDiff};
pub use commit::last_values::LastValues;
pub use commit::root::ComputedRoot;
pub use commit::trie_log::{TrieLog, TrieLogError};
pub use download::heal::{DifferingNode, HealError, HealPass};
pub use download::part::StatePart;
pub use download::remaining::{KeyRange, LargeStorage, Remaining};
pub use download::verify::{TrieRows, verify_accounts, verify_slots};
pub use download::{DownloadProgress, StateDownload, UNKNOWN_STORAGE_ROOT};
pub use head::{BlockId, StateHead};
pub use maintenance::check::{CheckSummary, Problem};
pub use maintenance::genesis::{GenesisAccount, genesis_root};
pub use maintenance::load::{GenesisLoad, LoadError, LoadProgress, ResumableLoad};
pub use maintenance::repair::{RepairError, RepairProgress, RepairSummary};
pub use niwaki_trie::{RangeError, TrieAccount};
pub use tries::incremental_root::{IncrementalRoot, RootFinisher};
pub use tries::prefetcher::TriePrefetcher;
pub use views::cache::{CacheStats, Evictions, HitRate, ReadStats};
pub use views::historical::HistoricalView;
pub use views::provable::ProvableView;
pub use views::range::RangeVisitor;
pub use views::view::View;
pub use world::{StateOptions, TRIE_LOGS_KEPT, WorldState};

#[cfg(test)]
mod tests;
