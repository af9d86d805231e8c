//! A trie in memory, as far as it was visited.
//!
//! Only inner nodes are kept. A leaf, and a node that was never visited, is a hash in its parent; its bytes stay in the
//! store. A node is owned by its parent, so a trie is a tree of boxes and evicting a node drops all below it.

use crate::branch::{CachedNode, Child};
use crate::dirty_nodes::PartOutcome;
use crate::{Node, NodeRef, Path};
use alloy_primitives::B256;
use niwaki_primitives::EMPTY_ROOT_HASH;

/// One trie: its root, and the inner nodes that were visited since it was made. All others are read from a
/// [`TrieView`](crate::TrieView), which must be of the same trie.
///
/// The *clock* is a number that the caller advances as it likes. An update sets it on every branch that it goes
/// through, so that [`Trie::evict`] can tell which were not used lately.
#[derive(Debug)]
pub struct Trie {
    pub(crate) root: Child,
    pub(crate) bytes: usize,
}

/// Where the nodes in memory end on the path to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEnd {
    /// At this depth, in nibbles, is a node with this hash that is not in memory: an inner node, or a leaf if the
    /// store has no inner node there.
    NotCached(usize, B256),
    /// At this depth is a leaf with this hash, of this key or another one.
    Leaf(usize, B256),
    /// The path ends in memory: the key is absent, or within an inline node.
    Cached,
}

impl Trie {
    /// The trie with this root and no node in memory.
    pub fn new(root: B256) -> Self {
        let reference = match root {
            EMPTY_ROOT_HASH => NodeRef::Empty,
            root => NodeRef::Hash(root),
        };
        let root = reference.into();
        Self { root, bytes: 0 }
    }

    /// The root hash.
    pub fn root(&self) -> B256 {
        match self.root.reference {
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => hash,
            NodeRef::Empty | NodeRef::Inline(_) => EMPTY_ROOT_HASH,
        }
    }

    /// Bytes of the nodes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes down to `key` as far as nodes are in memory, and sets `clock` on them.
    pub fn descend(&mut self, key: &Path, clock: u32) -> PathEnd {
        let (mut reference, mut entry) = (self.root.reference, &mut self.root.cached);
        let mut depth = 0;
        loop {
            let hash = match reference {
                NodeRef::Hash(hash) => hash,
                NodeRef::Leaf(hash) => return PathEnd::Leaf(depth, hash),
                NodeRef::Empty | NodeRef::Inline(_) => return PathEnd::Cached,
            };
            let rest = &key.as_slice()[depth..];
            match entry {
                None => return PathEnd::NotCached(depth, hash),
                Some(CachedNode::Extension(extension)) => {
                    if !rest.starts_with(extension.path.as_slice()) {
                        return PathEnd::Cached;
                    }
                    depth += extension.path.len();
                    (reference, entry) = (extension.child.reference, &mut extension.child.cached);
                }
                Some(CachedNode::Branch(branch)) => {
                    branch.used = clock;
                    depth += 1;
                    let Some(nibble) = rest.first() else {
                        return PathEnd::Cached;
                    };
                    if branch.has_no_entries() {
                        return match branch.get(*nibble) {
                            NodeRef::Hash(hash) => PathEnd::NotCached(depth, hash),
                            NodeRef::Leaf(hash) => PathEnd::Leaf(depth, hash),
                            NodeRef::Empty | NodeRef::Inline(_) => PathEnd::Cached,
                        };
                    }
                    match branch.entry(*nibble) {
                        Some(child) => (reference, entry) = child,
                        None => return PathEnd::Cached,
                    }
                }
            }
        }
    }

    /// Adds an inner node `depth` nibbles down on the path to `key`, where [`Trie::descend`] found
    /// [`PathEnd::NotCached`]. `false` if no node is in memory there afterwards: `node` is a leaf, or the path does not
    /// lead there.
    pub fn insert_node(&mut self, key: &Path, depth: usize, node: Node) -> bool {
        let Ok(node) = CachedNode::of(node) else {
            return false;
        };
        let (mut entry, mut at) = (&mut self.root.cached, 0);
        while at < depth {
            let child = match entry {
                None => return false,
                Some(CachedNode::Extension(extension)) => {
                    at += extension.path.len();
                    Some(&mut extension.child.cached)
                }
                Some(CachedNode::Branch(branch)) => {
                    let before = branch.bytes();
                    branch.add_entries();
                    self.bytes += branch.bytes() - before;
                    let nibble = key.as_slice()[at];
                    at += 1;
                    branch.entry(nibble).map(|(_, cached)| cached)
                }
            };
            match child {
                Some(child) => entry = child,
                None => return false,
            }
        }
        if at == depth && entry.is_none() {
            self.bytes += node.bytes();
            *entry = Some(node);
        }
        at == depth
    }

    /// Drops the nodes that were last used before `clock`; with `nibble`, only those below this child of the root.
    pub fn evict(&mut self, clock: u32, nibble: Option<u8>) {
        self.bytes -= match (nibble, &mut self.root.cached) {
            (Some(nibble), Some(CachedNode::Branch(root))) => {
                let entry = root.entry(nibble);
                entry.map_or(0, |(_, child)| evict(child, clock))
            }
            (_, root) => evict(root, clock),
        };
    }
}

/// Returns the bytes that were dropped.
fn evict(entry: &mut Option<CachedNode>, clock: u32) -> usize {
    match entry {
        Some(CachedNode::Branch(branch)) if branch.used >= clock => {
            let before = branch.bytes();
            let below: usize = branch.entries_mut().map(|child| evict(child, clock)).sum();
            branch.shrink();
            below + before - branch.bytes()
        }
        Some(CachedNode::Extension(extension)) => {
            let below = evict(&mut extension.child.cached, clock);
            match extension.child.cached {
                Some(_) => below,
                None => below + entry.take().map_or(0, |cached| cached.bytes()),
            }
        }
        _ => entry.take().map_or(0, total_bytes),
    }
}

/// Bytes of a node and all below it.
fn total_bytes(cached: CachedNode) -> usize {
    let own = cached.bytes();
    own + match cached {
        CachedNode::Extension(extension) => extension.child.cached.map_or(0, total_bytes),
        CachedNode::Branch(mut branch) => {
            let below = branch.entries_mut().filter_map(Option::take);
            below.map(total_bytes).sum()
        }
    }
}

impl Trie {
    /// Becomes what an update has made of it.
    pub(crate) fn replace_with(&mut self, outcome: PartOutcome<'_>) {
        self.root = outcome.root;
        self.bytes = (self.bytes + outcome.bytes_added).saturating_sub(outcome.bytes_removed);
    }
}
