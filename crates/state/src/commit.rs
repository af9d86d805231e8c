//! From what a block changed to its state root and to the rows of its commit.

pub(crate) mod flat;
pub(crate) mod hashed_diff;
pub(crate) mod hashed_keys;
pub(crate) mod history;
pub(crate) mod last_values;
pub(crate) mod listed;
pub(crate) mod root;
pub(crate) mod rows;
pub(crate) mod trie_log;
