//! Ways through the tries, brought into memory many at a time.
//!
//! Each round goes one node further down on all of them: waits for memory overlap, the rows of a round
//! are looked up as one, and their hashes are made together.

use crate::disk_trie::DiskTrie;
use crate::prefetch::Touched;
use crate::tries::{Tries, bytes_of};
use niwaki_primitives::{B256, EMPTY_ROOT_HASH, Fault};
use niwaki_trie::{Node, Owner, Path, Trie, TrieView, WayEnd, warm};

/// So many leaves are kept that are in the way of what may be inserted, about 250 bytes each.
const MOST_LEAVES: usize = 1 << 13;

/// The way to an account or a slot.
struct Way {
    owner: Owner,
    /// Of the trie.
    root: B256,
    key: Path,
    /// Whether a leaf that is found there is split once the key is inserted.
    is_absent: bool,
}

impl Way {
    fn to(touched: &Touched) -> Self {
        let (owner, root, key) = match touched.slot {
            None => (None, B256::ZERO, touched.account),
            Some((slot, root)) => (Some(touched.account), root, slot),
        };
        Self {
            owner,
            root,
            key: Path::of_hash(&key),
            is_absent: touched.is_absent,
        }
    }
}

impl Tries {
    /// Brings the nodes on the ways to what was touched in the head's state into memory, and the leaves
    /// that stand there if that was absent.
    pub(crate) fn load(&mut self, source: &DiskTrie<'_>, touched: &[Touched]) -> Result<(), Fault> {
        let ways = touched.iter().map(Way::to);
        let mut ways: Vec<Way> = ways.filter(|way| way.root != EMPTY_ROOT_HASH).collect();
        for way in &ways {
            self.begin_trie(way);
        }
        warm(
            ways.iter()
                .filter_map(|way| Some((self.trie(way)?, &way.key))),
        );
        while !ways.is_empty() {
            let ends: Vec<WayEnd> = ways.iter().map(|way| self.end_of(way)).collect();
            let outside = ways.iter().zip(&ends).filter_map(|(way, end)| match end {
                WayEnd::Outside(depth, hash) => Some((way.owner, way.key.first(*depth), *hash)),
                _ => None,
            });
            let outside: Vec<_> = outside.collect();
            let mut nodes = source.nodes(&outside)?.into_iter();
            let mut rest = Vec::new();
            for (way, end) in ways.into_iter().zip(ends) {
                match end {
                    WayEnd::Outside(depth, hash) => match nodes.next().flatten() {
                        Some(node) => {
                            let is_held = self.hold(&way, depth, node);
                            rest.extend(is_held.then_some(way));
                        }
                        None => self.load_leaf(source, &way, depth, hash),
                    },
                    WayEnd::Leaf(depth, hash) => self.load_leaf(source, &way, depth, hash),
                    WayEnd::Here => {}
                }
            }
            ways = rest;
        }
        Ok(())
    }

    /// Makes sure that there is a trie for it.
    fn begin_trie(&mut self, way: &Way) {
        if let Some(owner) = way.owner {
            self.storage.entry(owner).or_insert_with(|| {
                let trie = Trie::new(way.root);
                self.bytes += bytes_of(&trie);
                trie
            });
        }
    }

    fn trie(&self, way: &Way) -> Option<&Trie> {
        match &way.owner {
            None => Some(&self.accounts),
            Some(owner) => self.storage.get(owner),
        }
    }

    fn trie_mut(&mut self, way: &Way) -> Option<&mut Trie> {
        match &way.owner {
            None => Some(&mut self.accounts),
            Some(owner) => self.storage.get_mut(owner),
        }
    }

    fn end_of(&mut self, way: &Way) -> WayEnd {
        let clock = self.clock.now;
        let trie = self.trie_mut(way);
        trie.map_or(WayEnd::Here, |trie| trie.way_to(&way.key, clock))
    }

    /// Whether the node is in memory then.
    fn hold(&mut self, way: &Way, depth: usize, node: Node) -> bool {
        let Some(trie) = self.trie_mut(way) else {
            return false;
        };
        let before = trie.bytes();
        let is_held = trie.hold(&way.key, depth, node);
        self.bytes += trie.bytes() - before;
        is_held
    }

    /// Looks up the leaf so many nibbles down at which a way ends, if the key may be inserted there.
    fn load_leaf(&mut self, source: &DiskTrie<'_>, way: &Way, depth: usize, hash: B256) {
        if !way.is_absent || self.leaves.contains_key(&hash) {
            return;
        }
        // One of a state ahead of the head may not be found here.
        if let Ok(leaf) = source.leaf(&way.owner, &way.key.first(depth), &hash) {
            if self.leaves.len() == MOST_LEAVES {
                self.leaves.clear();
            }
            self.leaves.insert(hash, leaf);
        }
    }
}
