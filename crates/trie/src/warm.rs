//! Brings what an update will need into the processor's cache.
//!
//! A walk down a trie waits for memory at every node. Walking all ways at once, a node each in turn,
//! lets these waits overlap.

use crate::branch::{Child, Held};
use crate::{LeafUpdate, NodeRef, Path, Trie, TrieUpdate};

/// Looks at the nodes in memory on the ways to keys, each in a trie of its own.
pub fn warm<'a>(ways: impl Iterator<Item = (&'a Trie, &'a Path)>) {
    let ways = ways.filter_map(|(trie, key)| Some(Way::new(trie.root.held.as_ref()?, key, 0)));
    walk(ways.collect());
}

/// As [`warm`], below one node that stands `depth` nibbles down.
pub(crate) fn warm_below<'a>(node: Option<&'a Held>, leaves: &'a [LeafUpdate<'a>], depth: usize) {
    if let Some(node) = node {
        walk(
            leaves
                .iter()
                .map(|leaf| Way::new(node, &leaf.key, depth))
                .collect(),
        );
    }
}

/// Whether most of `updates` begin by reading nodes, as far as some of their leaves tell.
pub(crate) fn is_cold(updates: &[TrieUpdate<'_>]) -> bool {
    const ASKED: usize = 16;
    let leaves: usize = updates.iter().map(|update| update.leaves.len()).sum();
    let ways = updates.iter().flat_map(|update| {
        let leaves = update.leaves.iter();
        leaves.map(|leaf| (&update.trie.root, leaf.key.as_slice()))
    });
    let asked = ways.step_by(leaves / ASKED + 1);
    let (mut missing, mut count) = (0, 0);
    for (root, nibbles) in asked {
        count += 1;
        missing += usize::from(ends_outside(root, nibbles));
    }
    2 * missing > count
}

/// Whether a node on the way is not in memory.
fn ends_outside(root: &Child, nibbles: &[u8]) -> bool {
    let Some(node) = &root.held else {
        return matches!(root.reference, NodeRef::Hash(_));
    };
    let mut way = Way { node, nibbles };
    loop {
        let is_named = match (way.node, way.nibbles.first()) {
            (Held::Branch(branch), Some(nibble)) => {
                matches!(branch.get(*nibble), NodeRef::Hash(_))
            }
            (Held::Branch(_), None) => false,
            (Held::Extension(extension), _) => way.nibbles.starts_with(extension.path.as_slice()),
        };
        way = match way.next() {
            Some(next) => next,
            None => return is_named,
        };
    }
}

/// Somebody on the way to a leaf.
struct Way<'a> {
    node: &'a Held,
    nibbles: &'a [u8],
}

impl<'a> Way<'a> {
    fn new(node: &'a Held, key: &'a Path, depth: usize) -> Self {
        let nibbles = &key.as_slice()[depth..];
        Self { node, nibbles }
    }

    /// One node further down.
    fn next(self) -> Option<Self> {
        let (node, nibbles) = match self.node {
            Held::Branch(branch) => {
                let (nibble, rest) = self.nibbles.split_first()?;
                (branch.peek(*nibble)?, rest)
            }
            Held::Extension(extension) => {
                let rest = self.nibbles.strip_prefix(extension.path.as_slice())?;
                (extension.child.held.as_ref()?, rest)
            }
        };
        Some(Self { node, nibbles })
    }
}

fn walk(mut ways: Vec<Way<'_>>) {
    while !ways.is_empty() {
        // Each step reads what no other step of the round waits for.
        let seen: u32 = ways.iter().map(|way| way.node.touch()).sum();
        std::hint::black_box(seen);
        ways = ways.into_iter().filter_map(Way::next).collect();
    }
}
