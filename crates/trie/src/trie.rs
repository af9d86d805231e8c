//! A trie in memory, as far as it was visited.

use crate::branch::{Child, Held};
use crate::draft::Outcome;
use crate::{Branch, NodeRef, Owner, Path, TrieView};
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

    /// Brings the inner nodes on the way to `key` into memory.
    ///
    /// # Errors
    /// Any [`Fault`] of the view.
    pub fn load(
        &mut self,
        view: &dyn TrieView,
        owner: &Owner,
        key: &Path,
        clock: u32,
    ) -> Result<(), Fault> {
        let (mut child, mut depth) = (&mut self.root, 0);
        while let NodeRef::Hash(hash) = child.reference {
            if child.held.is_none() {
                let node = view.node(owner, &key.first(depth), &hash)?;
                child.held = node.and_then(Held::of);
                self.bytes += child.held.as_ref().map_or(0, Held::bytes);
            }
            let rest = &key.as_slice()[depth..];
            child = match &mut child.held {
                None => return Ok(()),
                Some(Held::Extension(extension)) => {
                    if !rest.starts_with(extension.path.as_slice()) {
                        return Ok(());
                    }
                    depth += extension.path.len();
                    &mut extension.child
                }
                Some(Held::Branch(branch)) => {
                    branch.used = clock;
                    depth += 1;
                    match rest.first().and_then(|nibble| branch.child_mut(*nibble)) {
                        Some(child) => child,
                        None => return Ok(()),
                    }
                }
            };
        }
        Ok(())
    }

    /// Drops the nodes that were last used before `clock`. With `nibble`, only below the root's
    /// child of that number.
    pub fn forget(&mut self, clock: u32, nibble: Option<u8>) {
        let child = match (nibble, &mut self.root.held) {
            (Some(nibble), Some(Held::Branch(root))) => match root.child_mut(nibble) {
                Some(child) => child,
                None => return,
            },
            _ => &mut self.root,
        };
        self.bytes -= forget(child, clock);
    }
}

/// Gives the bytes that were dropped.
fn forget(child: &mut Child, clock: u32) -> usize {
    let is_old = |branch: &Branch| branch.used < clock;
    match &mut child.held {
        None => 0,
        Some(Held::Branch(branch)) if !is_old(branch) => {
            let children = branch.children_mut();
            children.map(|child| forget(child, clock)).sum()
        }
        Some(Held::Extension(extension)) if matches!(&extension.child.held, Some(Held::Branch(branch)) if !is_old(branch)) => {
            forget(&mut extension.child, clock)
        }
        Some(_) => child.held.take().map_or(0, total_bytes),
    }
}

/// Bytes of a node and all below it.
fn total_bytes(held: Held) -> usize {
    let own = held.bytes();
    let below = |child: Child| child.held.map_or(0, total_bytes);
    own + match held {
        Held::Extension(extension) => below(extension.child),
        Held::Branch(mut branch) => {
            let children = branch.children_mut();
            children
                .map(|child| child.held.take().map_or(0, total_bytes))
                .sum()
        }
    }
}

impl Trie {
    /// Becomes what a change made of it.
    pub(crate) fn take_over(&mut self, outcome: Outcome) {
        self.root = outcome.root;
        self.bytes = (self.bytes + outcome.put).saturating_sub(outcome.taken);
    }
}
