//! The Merkle-Patricia trie: roots, updates, proofs, and a state that lives in a witness.
//!
//! The one crate that knows how values become roots. Nodes come from a [`TrieView`]; changes go
//! back as rows. It does no IO, logs nothing and knows no clock.
#![forbid(unsafe_code)]

mod account;
mod branch;
mod builder;
mod draft;
mod find;
mod node;
mod ordered;
mod parallel;
mod path;
mod proof;
mod trie;
mod update;
mod view;
mod warm;
mod witness;

pub use account::{TrieAccount, decode_slot, encode_slot, encode_slot_to};
pub use branch::{Branch, Child};
pub use builder::{RowSink, TrieBuilder};
pub use find::find;
pub use node::{Extension, InlineNode, MalformedNode, Node, NodeRef};
pub use ordered::{OrderedTrie, ordered_root};
pub use parallel::{Tell, Work, update_tries};
pub use path::Path;
pub use proof::{ProofError, prove, verify_proof};
pub use trie::{Trie, WayEnd};
pub use update::{LeafUpdate, TrieUpdate};
pub use view::{Owner, TrieView};
pub use warm::warm;
pub use witness::WitnessState;

#[cfg(test)]
mod tests;
