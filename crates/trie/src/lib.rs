//! The Merkle-Patricia trie: roots, updates, proofs, and a state in a witness.
//!
//! The one crate that knows how values become roots. Nodes come from a [`TrieView`], changes go back as rows; there is
//! no IO, no logging and no clock here. A node is stored under its path, so an update overwrites it in place.
//!
//! | file | what it is |
//! |---|---|
//! | `path` | [`Path`]: up to 64 nibbles |
//! | `node` | [`Node`]: leaf, extension, branch; RLP and stored row |
//! | `branch` | [`Branch`]: a branch kept as its row |
//! | `account` | the values of leaves |
//! | `view` | [`TrieView`]: where nodes come from |
//! | `trie` | [`Trie`]: a trie in memory, as far as it was visited |
//! | `update` | sorted leaf updates merged into tries |
//! | `dirty_nodes` | new nodes, hashed height by height |
//! | `parallel` | [`update_tries`]: many tries on several threads |
//! | `cpu_cache` | nodes brought into the CPU's caches |
//! | `find` | lookup of one key |
//! | `proof` | Merkle proofs |
//! | `range` | ranges of leaves, checked against a root |
//! | `builder` | [`TrieBuilder`]: a trie from leaves in key order |
//! | `ordered` | roots of lists |
//! | `witness` | [`WitnessState`]: a state in a witness |
#![forbid(unsafe_code)]

mod account;
mod branch;
mod builder;
mod cpu_cache;
mod dirty_nodes;
mod find;
mod node;
mod ordered;
mod parallel;
mod path;
mod proof;
mod range;
mod trie;
mod update;
mod view;
mod witness;

pub use account::{TrieAccount, decode_slot, encode_slot, encode_slot_to};
pub use branch::{Branch, Child};
pub use builder::{RowSink, TrieBuilder};
pub use cpu_cache::touch_paths;
pub use find::{find, node_at};
pub use node::{
    Extension, InlineNode, MalformedNode, Node, NodeRef, compact_path, encode_compact_path,
};
pub use ordered::{OrderedTrie, ordered_root};
pub use parallel::{EmitRow, UpdateOptions, update_tries};
pub use path::Path;
pub use proof::{ProofError, prove, verify_proof};
pub use range::{RangeError, verify_range};
pub use trie::{PathEnd, Trie};
pub use update::{LeafUpdate, TrieUpdate};
pub use view::{Owner, TrieView};
pub use witness::WitnessState;

#[cfg(test)]
mod tests;
