//! A trie in memory, as far as it was visited.

use crate::branch::{Child, Held};
use crate::draft::Outcome;
use crate::{Node, NodeRef, Path};
use alloy_primitives::B256;
use niwaki_primitives::EMPTY_ROOT_HASH;

/// One trie: its root, and the inner nodes that were visited since it was made. The others, and all
/// leaves, stay where they come from, a [`TrieView`](crate::TrieView), which must speak of the same
/// trie.
///
/// A *clock* is a number that the caller lets grow as it likes; a change leaves it on every node
/// that it goes through, so that [`Trie::forget`] can tell what was not needed lately.
#[derive(Debug)]
pub struct Trie {
    pub(crate) root: Child,
    pub(crate) bytes: usize,
}

/// Where the nodes in memory end on the way to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayEnd {
    /// So many nibbles down, at a node with this hash that is not in memory: an inner one, or a leaf if
    /// the store keeps no inner node there.
    Outside(usize, B256),
    /// So many nibbles down, at a leaf with this hash, of whichever key.
    Leaf(usize, B256),
    /// In memory: nothing below leads to the key, or it stands within a node.
    Here,
}

impl Trie {
    /// The trie with this root, of which nothing is in memory.
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

    /// Goes down to `key` as far as nodes are in memory, which leaves `clock` on them.
    pub fn way_to(&mut self, key: &Path, clock: u32) -> WayEnd {
        let (mut reference, mut place) = (self.root.reference, &mut self.root.held);
        let mut depth = 0;
        loop {
            let hash = match reference {
                NodeRef::Hash(hash) => hash,
                NodeRef::Leaf(hash) => return WayEnd::Leaf(depth, hash),
                NodeRef::Empty | NodeRef::Inline(_) => return WayEnd::Here,
            };
            let rest = &key.as_slice()[depth..];
            match place {
                None => return WayEnd::Outside(depth, hash),
                Some(Held::Extension(extension)) => {
                    if !rest.starts_with(extension.path.as_slice()) {
                        return WayEnd::Here;
                    }
                    depth += extension.path.len();
                    (reference, place) = (extension.child.reference, &mut extension.child.held);
                }
                Some(Held::Branch(branch)) => {
                    branch.used = clock;
                    depth += 1;
                    let Some(nibble) = rest.first() else {
                        return WayEnd::Here;
                    };
                    if branch.holds_none() {
                        return match branch.get(*nibble) {
                            NodeRef::Hash(hash) => WayEnd::Outside(depth, hash),
                            NodeRef::Leaf(hash) => WayEnd::Leaf(depth, hash),
                            NodeRef::Empty | NodeRef::Inline(_) => WayEnd::Here,
                        };
                    }
                    match branch.place(*nibble) {
                        Some(child) => (reference, place) = child,
                        None => return WayEnd::Here,
                    }
                }
            }
        }
    }

    /// Holds an inner node in memory that stands `depth` nibbles down on the way to `key`, where that
    /// was found to end [`WayEnd::Outside`]. Whether a node stands there in memory then: not if `node` is a
    /// leaf, nor if the way does not lead there.
    pub fn hold(&mut self, key: &Path, depth: usize, node: Node) -> bool {
        let Ok(node) = Held::of(node) else {
            return false;
        };
        let (mut place, mut at) = (&mut self.root.held, 0);
        while at < depth {
            let child = match place {
                None => return false,
                Some(Held::Extension(extension)) => {
                    at += extension.path.len();
                    Some(&mut extension.child.held)
                }
                Some(Held::Branch(branch)) => {
                    let before = branch.bytes();
                    branch.make_room();
                    self.bytes += branch.bytes() - before;
                    let nibble = key.as_slice()[at];
                    at += 1;
                    branch.place(nibble).map(|(_, held)| held)
                }
            };
            match child {
                Some(child) => place = child,
                None => return false,
            }
        }
        if at == depth && place.is_none() {
            self.bytes += node.bytes();
            *place = Some(node);
        }
        at == depth
    }

    /// Drops the nodes that were last used before `clock`. With `nibble`, only below the root's
    /// child of that number.
    pub fn forget(&mut self, clock: u32, nibble: Option<u8>) {
        self.bytes -= match (nibble, &mut self.root.held) {
            (Some(nibble), Some(Held::Branch(root))) => {
                let place = root.place(nibble);
                place.map_or(0, |(_, child)| forget(child, clock))
            }
            (_, root) => forget(root, clock),
        };
    }
}

/// Gives the bytes that were dropped.
fn forget(place: &mut Option<Held>, clock: u32) -> usize {
    match place {
        Some(Held::Branch(branch)) if branch.used >= clock => {
            let before = branch.bytes();
            let below: usize = branch.held_mut().map(|child| forget(child, clock)).sum();
            branch.shrink();
            below + before - branch.bytes()
        }
        Some(Held::Extension(extension)) => {
            let below = forget(&mut extension.child.held, clock);
            match extension.child.held {
                Some(_) => below,
                None => below + place.take().map_or(0, |held| held.bytes()),
            }
        }
        _ => place.take().map_or(0, total_bytes),
    }
}

/// Bytes of a node and all below it.
fn total_bytes(held: Held) -> usize {
    let own = held.bytes();
    own + match held {
        Held::Extension(extension) => extension.child.held.map_or(0, total_bytes),
        Held::Branch(mut branch) => {
            let below = branch.held_mut().filter_map(Option::take);
            below.map(total_bytes).sum()
        }
    }
}

impl Trie {
    /// Becomes what a change made of it.
    pub(crate) fn take_over(&mut self, outcome: Outcome<'_>) {
        self.root = outcome.root;
        self.bytes = (self.bytes + outcome.put).saturating_sub(outcome.taken);
    }
}
