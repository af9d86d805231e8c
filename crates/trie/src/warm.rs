//! Brings what an update will need into the processor's cache.
//!
//! A walk down a trie waits for memory at every node. Walking all ways at once, a node each in turn,
//! lets these waits overlap.

use crate::branch::Held;
use crate::{LeafUpdate, Trie};

/// Looks at the nodes in memory on the ways to `leaves`, of each trie its own.
pub(crate) fn warm<'a>(tries: impl Iterator<Item = (&'a Trie, &'a [LeafUpdate<'a>])>) {
    let mut ways: Vec<Way<'a>> = Vec::new();
    for (trie, leaves) in tries {
        if let Some(root) = &trie.root.held {
            ways.extend(leaves.iter().map(|leaf| Way::new(root, leaf, 0)));
        }
    }
    walk(ways);
}

/// As [`warm`], below one node that stands `depth` nibbles down.
pub(crate) fn warm_below<'a>(node: Option<&'a Held>, leaves: &'a [LeafUpdate<'a>], depth: usize) {
    if let Some(node) = node {
        walk(
            leaves
                .iter()
                .map(|leaf| Way::new(node, leaf, depth))
                .collect(),
        );
    }
}

/// Somebody on the way to a leaf.
struct Way<'a> {
    node: &'a Held,
    nibbles: &'a [u8],
}

impl<'a> Way<'a> {
    fn new(node: &'a Held, leaf: &'a LeafUpdate<'a>, depth: usize) -> Self {
        let nibbles = &leaf.key.as_slice()[depth..];
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
