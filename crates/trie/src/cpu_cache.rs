//! Brings the nodes that an update will need into the CPU's caches.
//!
//! A walk down a trie waits for memory at every node. Walking down all paths at once, one node each per round, lets
//! these waits overlap, because the loads of a round do not depend on each other.

use crate::branch::{CachedNode, Child};
use crate::{LeafUpdate, NodeRef, Path, Trie, TrieUpdate};

/// Touches the nodes in memory on the paths to keys, each in the trie that comes with it.
pub fn touch_paths<'a>(paths: impl Iterator<Item = (&'a Trie, &'a Path)>) {
    let paths =
        paths.filter_map(|(trie, key)| Some(PathWalk::new(trie.root.cached.as_ref()?, key, 0)));
    walk_all(paths.collect());
}

/// As [`touch_paths`], below one node that is `depth` nibbles down.
pub(crate) fn touch_paths_below<'a>(
    node: Option<&'a CachedNode>,
    leaves: &'a [LeafUpdate<'a>],
    depth: usize,
) {
    if let Some(node) = node {
        walk_all(
            leaves
                .iter()
                .map(|leaf| PathWalk::new(node, &leaf.key, depth))
                .collect(),
        );
    }
}

/// Whether most of `updates` must read nodes, judged by a sample of their leaves.
pub(crate) fn is_cold(updates: &[TrieUpdate<'_>]) -> bool {
    const SAMPLES: usize = 16;
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    let paths = updates.iter().flat_map(|update| {
        let leaves = update.leaves.iter();
        leaves.map(|leaf| (&update.trie.root, leaf.key.as_slice()))
    });
    let samples = paths.step_by(leaves / SAMPLES + 1);
    let (mut missing, mut count) = (0, 0);
    for (root, nibbles) in samples {
        count += 1;
        missing += usize::from(is_path_incomplete(root, nibbles));
    }
    2 * missing > count
}

/// Whether a node on the path is not in memory.
fn is_path_incomplete(root: &Child, nibbles: &[u8]) -> bool {
    let Some(node) = &root.cached else {
        return matches!(root.reference, NodeRef::Hash(_));
    };
    let mut walk = PathWalk { node, nibbles };
    loop {
        let is_named = match (walk.node, walk.nibbles.first()) {
            (CachedNode::Branch(branch), Some(nibble)) => {
                matches!(branch.get(*nibble), NodeRef::Hash(_))
            }
            (CachedNode::Branch(_), None) => false,
            (CachedNode::Extension(extension), _) => {
                walk.nibbles.starts_with(extension.path.as_slice())
            }
        };
        walk = match walk.next() {
            Some(next) => next,
            None => return is_named,
        };
    }
}

/// A position on the path to a leaf.
struct PathWalk<'a> {
    node: &'a CachedNode,
    nibbles: &'a [u8],
}

impl<'a> PathWalk<'a> {
    fn new(node: &'a CachedNode, key: &'a Path, depth: usize) -> Self {
        let nibbles = &key.as_slice()[depth..];
        Self { node, nibbles }
    }

    /// One node further down.
    fn next(self) -> Option<Self> {
        let (node, nibbles) = match self.node {
            CachedNode::Branch(branch) => {
                let (nibble, rest) = self.nibbles.split_first()?;
                (branch.cached_child(*nibble)?, rest)
            }
            CachedNode::Extension(extension) => {
                let rest = self.nibbles.strip_prefix(extension.path.as_slice())?;
                (extension.child.cached.as_ref()?, rest)
            }
        };
        Some(Self { node, nibbles })
    }
}

fn walk_all(mut paths: Vec<PathWalk<'_>>) {
    while !paths.is_empty() {
        // No load of the round depends on another one.
        let touched: u32 = paths.iter().map(|walk| walk.node.touch()).sum();
        std::hint::black_box(touched);
        paths = paths.into_iter().filter_map(PathWalk::next).collect();
    }
}
