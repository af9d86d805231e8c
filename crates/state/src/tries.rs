//! Trie nodes: in memory, on disk, and on their way from one to the other.

pub(crate) mod disk_trie;
pub(crate) mod incremental_root;
pub(crate) mod prefetcher;
pub(crate) mod trie_cache;
mod trie_prefetch;
