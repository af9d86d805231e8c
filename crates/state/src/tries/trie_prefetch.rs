//! Trie paths loaded into memory, many at a time, level by level.
//!
//! Each round goes one node down on all paths. So the rows of a round are one multi-get, their hashes are one
//! keccak batch, and waits for memory overlap. A path is done when its last node is in memory or when it
//! ends at a leaf, which is not a row:
//!
//! ```text
//! round 1:  ""               one row, for all paths
//! round 2:  "3"  "a"  "f"    up to 16 rows
//! round 3:  "31" "a0" "f7"   ...
//! ```
//!
//! A leaf matters only if a key is to be inserted next to it: splitting it needs its whole key and value,
//! which are read from the flat rows and kept in the [`LeafCache`](crate::tries::disk_trie::LeafCache).

use crate::tries::disk_trie::DiskTrie;
use crate::tries::prefetcher::PrefetchTarget;
use crate::tries::trie_cache::{TrieCache, storage_trie_bytes};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_trie::{Node, Owner, Path, PathEnd, Trie, TrieView, touch_paths};

/// Leaves that are kept at most, about 250 bytes each.
const MAX_LEAVES: usize = 1 << 13;

/// The path to an account or a slot.
struct TriePath {
    owner: Owner,
    /// Of the trie; zero for the account trie.
    root: B256,
    key: Path,
    /// Whether the key is absent, so that the leaf at which the path ends is split once it is inserted.
    is_absent: bool,
}

impl TriePath {
    fn to(target: &PrefetchTarget) -> Self {
        let (owner, root, key) = match target.slot {
            None => (None, B256::ZERO, target.account),
            Some((slot, root)) => (Some(target.account), root, slot),
        };
        Self {
            owner,
            root,
            key: Path::of_hash(&key),
            is_absent: target.is_absent,
        }
    }
}

impl TrieCache {
    /// Loads the nodes on the paths to `targets` in the head's state, and the leaves at which the paths to absent
    /// ones end.
    pub(crate) fn load_paths(
        &mut self,
        source: &DiskTrie<'_>,
        targets: &[PrefetchTarget],
    ) -> Result<(), Fault> {
        let paths = targets.iter().map(TriePath::to);
        let mut paths: Vec<TriePath> = paths.filter(|path| path.root != EMPTY_ROOT_HASH).collect();
        for path in &paths {
            self.ensure_trie(path);
        }
        touch_paths(
            paths
                .iter()
                .filter_map(|path| Some((self.trie(path)?, &path.key))),
        );
        while !paths.is_empty() {
            let ends: Vec<PathEnd> = paths.iter().map(|path| self.cached_end(path)).collect();
            let missing = paths.iter().zip(&ends).filter_map(|(path, end)| match end {
                PathEnd::NotCached(depth, hash) => {
                    Some((path.owner, path.key.first(*depth), *hash))
                }
                _ => None,
            });
            let mut missing: Vec<_> = missing.collect();
            // Neighbours in a list that ascends miss the same node.
            missing.dedup();
            let mut nodes = source.nodes(&missing)?.into_iter();
            // The node that was read last, and whether it is in memory now; `None` if it is a leaf.
            let mut last: Option<(_, Option<bool>)> = None;
            let mut rest = Vec::new();
            for (path, end) in paths.into_iter().zip(ends) {
                match end {
                    PathEnd::NotCached(depth, hash) => {
                        let missed = (path.owner, path.key.first(depth), hash);
                        let known = last.filter(|(node, _)| *node == missed);
                        let is_cached = known.map_or_else(
                            || {
                                let node = nodes.next().flatten();
                                node.map(|node| self.insert_node(&path, depth, node))
                            },
                            |(_, is_cached)| is_cached,
                        );
                        last = Some((missed, is_cached));
                        match is_cached {
                            Some(is_cached) => rest.extend(is_cached.then_some(path)),
                            None => self.load_leaf(source, &path, depth, hash),
                        }
                    }
                    PathEnd::Leaf(depth, hash) => self.load_leaf(source, &path, depth, hash),
                    PathEnd::Cached => {}
                }
            }
            paths = rest;
        }
        Ok(())
    }

    /// Adds an empty storage trie for the path if there is none.
    fn ensure_trie(&mut self, path: &TriePath) {
        if let Some(owner) = path.owner {
            self.storage.entry(owner).or_insert_with(|| {
                let trie = Trie::new(path.root);
                self.bytes += storage_trie_bytes(&trie);
                trie
            });
        }
    }

    fn trie(&self, path: &TriePath) -> Option<&Trie> {
        match &path.owner {
            None => Some(&self.accounts),
            Some(owner) => self.storage.get(owner),
        }
    }

    fn trie_mut(&mut self, path: &TriePath) -> Option<&mut Trie> {
        match &path.owner {
            None => Some(&mut self.accounts),
            Some(owner) => self.storage.get_mut(owner),
        }
    }

    fn cached_end(&mut self, path: &TriePath) -> PathEnd {
        let clock = self.clock.now;
        let trie = self.trie_mut(path);
        trie.map_or(PathEnd::Cached, |trie| trie.descend(&path.key, clock))
    }

    /// Whether the node is in memory afterwards.
    fn insert_node(&mut self, path: &TriePath, depth: usize, node: Node) -> bool {
        let Some(trie) = self.trie_mut(path) else {
            return false;
        };
        let before = trie.bytes();
        let is_cached = trie.insert_node(&path.key, depth, node);
        self.bytes += trie.bytes() - before;
        is_cached
    }

    /// Reads the leaf `depth` nibbles down, at which a path ends, if its key may be inserted there.
    fn load_leaf(&mut self, source: &DiskTrie<'_>, path: &TriePath, depth: usize, hash: B256) {
        if !path.is_absent || self.leaves.contains_key(&hash) {
            return;
        }
        // If the tries are not the head's, the leaf may not be on disk; then the update reads it.
        if let Ok(leaf) = source.leaf(&path.owner, &path.key.first(depth), &hash) {
            if self.leaves.len() == MAX_LEAVES {
                self.leaves.clear();
            }
            self.leaves.insert(hash, leaf);
        }
    }
}
