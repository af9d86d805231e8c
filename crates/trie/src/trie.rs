//! A trie in memory, as far as it was visited.

use crate::branch::{Child, Held};
use crate::draft::Outcome;
use crate::{NodeRef, Owner, Path, TrieView};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};

/// One trie: its root, and the inner nodes that were visited since it was made. The others, and all
/// leaves, stay where they come from, a [`TrieView`], which must speak of the same trie.
///
/// A *clock* is a number that the caller lets grow as it likes; a change leaves it on every node
/// that it goes through, so that [`Trie::forget`] can tell what was not needed lately.
#[derive(Debug)]
pub struct Trie {
    pub(crate) root: Child,
    pub(crate) bytes: usize,
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

    /// Brings the inner nodes on the way to `key` into memory. If the way ends at a leaf, of whichever key,
    /// gives how many nibbles down that stands and its hash.
    ///
    /// # Errors
    /// Any [`Fault`] of the view.
    pub fn load(
        &mut self,
        view: &dyn TrieView,
        owner: &Owner,
        key: &Path,
        clock: u32,
    ) -> Result<Option<(usize, B256)>, Fault> {
        let (mut reference, mut place) = (self.root.reference, &mut self.root.held);
        let mut depth = 0;
        while let NodeRef::Hash(hash) = reference {
            if place.is_none() {
                let node = view.node(owner, &key.first(depth), &hash)?;
                *place = node.and_then(|node| Held::of(node).ok());
                self.bytes += place.as_ref().map_or(0, Held::bytes);
            }
            let rest = &key.as_slice()[depth..];
            match place {
                None => return Ok(Some((depth, hash))),
                Some(Held::Extension(extension)) => {
                    if !rest.starts_with(extension.path.as_slice()) {
                        return Ok(None);
                    }
                    depth += extension.path.len();
                    (reference, place) = (extension.child.reference, &mut extension.child.held);
                }
                Some(Held::Branch(branch)) => {
                    branch.used = clock;
                    depth += 1;
                    let Some(nibble) = rest.first() else {
                        return Ok(None);
                    };
                    match branch.get(*nibble) {
                        NodeRef::Hash(_) => {}
                        NodeRef::Leaf(hash) => return Ok(Some((depth, hash))),
                        NodeRef::Empty | NodeRef::Inline(_) => return Ok(None),
                    }
                    let before = branch.bytes();
                    branch.make_room();
                    self.bytes += branch.bytes() - before;
                    match branch.place(*nibble) {
                        Some(child) => (reference, place) = child,
                        None => return Ok(None),
                    }
                }
            }
        }
        Ok(match reference {
            NodeRef::Leaf(hash) => Some((depth, hash)),
            _ => None,
        })
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
