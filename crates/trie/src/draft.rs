//! New nodes of tries that wait for their hashes.
//!
//! A node can be encoded when all its children have their references. So nodes are hashed by
//! height, from the leaves up, all of one height in one batch, of however many tries.

use crate::update::{RowUpdates, TrieRow};
use crate::{InlineNode, Node, NodeRef, Path};
use alloy_primitives::B256;
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::EMPTY_ROOT_HASH;
use std::ops::Range;

/// A new node, and which of its children wait among the drafts.
pub(crate) struct Built {
    pub(crate) node: Node,
    /// One more than that of the highest waiting child; zero if none waits.
    height: u8,
    /// The first of them; each names the next.
    children: u32,
}

const NONE: u32 = u32::MAX;

impl From<Node> for Built {
    fn from(node: Node) -> Self {
        Self {
            node,
            height: 0,
            children: NONE,
        }
    }
}

impl Built {
    /// Hangs a waiting node below this one, as child `slot` (of an extension: 0).
    pub(crate) fn hang(&mut self, slot: u8, draft: u32, drafts: &mut Drafts) {
        self.set_child(slot, NodeRef::Empty);
        let child = &mut drafts.list[draft as usize];
        child.slot = slot;
        child.next = self.children;
        self.children = draft;
        // A trie is at most 65 nodes high.
        self.height = self.height.max(child.height + 1);
    }

    pub(crate) fn set_child(&mut self, slot: u8, reference: NodeRef) {
        set_child(&mut self.node, slot, reference);
    }
}

fn set_child(node: &mut Node, slot: u8, reference: NodeRef) {
    match node {
        Node::Branch(branch) => branch.children[usize::from(slot)] = reference,
        Node::Extension { child, .. } => *child = reference,
        Node::Leaf { .. } => unreachable!("a leaf has no children"),
    }
}

struct Draft {
    trie: u32,
    path: Path,
    node: Node,
    height: u8,
    /// The store has a row at the path.
    was_stored: bool,
    /// [`NONE`] for a root.
    parent: u32,
    slot: u8,
    /// The next child of the same parent.
    next: u32,
}

/// The new nodes of some tries.
pub(crate) struct Drafts {
    list: Vec<Draft>,
    outcomes: Vec<(B256, RowUpdates)>,
}

impl Drafts {
    /// Of tries with these roots so far.
    pub(crate) fn new(roots: impl Iterator<Item = B256>) -> Self {
        Self {
            list: Vec::new(),
            outcomes: roots.map(|root| (root, Vec::new())).collect(),
        }
    }

    /// Adds a node at its trie and path, where the store has a row or not.
    pub(crate) fn add(&mut self, (trie, path): (u32, Path), was_stored: bool, built: Built) -> u32 {
        let index = u32::try_from(self.list.len()).expect("fewer nodes than 2^32 change at once");
        let mut child = built.children;
        while child != NONE {
            let draft = &mut self.list[child as usize];
            draft.parent = index;
            child = draft.next;
        }
        self.list.push(Draft {
            trie,
            path,
            node: built.node,
            height: built.height,
            was_stored,
            parent: NONE,
            slot: 0,
            next: NONE,
        });
        index
    }

    /// Adds what `trie` has become, which has a row for its root in the store or not.
    pub(crate) fn add_root(&mut self, trie: u32, was_stored: bool, root: Option<Built>) {
        match root {
            Some(root) => {
                self.add((trie, Path::EMPTY), was_stored, root);
            }
            None => {
                self.outcomes[trie as usize].0 = EMPTY_ROOT_HASH;
                if was_stored {
                    self.remove(trie, Path::EMPTY);
                }
            }
        }
    }

    /// The row of `trie` at `path` goes.
    pub(crate) fn remove(&mut self, trie: u32, path: Path) {
        self.outcomes[trie as usize].1.push((path, None));
    }

    /// Hashes everything: the roots and rows of each trie.
    pub(crate) fn hash(mut self) -> Vec<(B256, RowUpdates)> {
        let height = |list: &[Draft], index: u32| list[index as usize].height;
        let mut order: Vec<u32> = (0..).take(self.list.len()).collect();
        order.sort_by_key(|index| height(&self.list, *index));
        let mut buffer = Vec::new();
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let lowest = height(&self.list, *first);
            let count = rest.partition_point(|index| height(&self.list, *index) == lowest);
            let (level, higher) = rest.split_at(count);
            for nodes in level.chunks(NODES_AT_ONCE) {
                hash_nodes(&mut self.list, &mut self.outcomes, nodes, &mut buffer);
            }
            rest = higher;
        }
        self.outcomes
    }
}

/// Nodes that are encoded, hashed and copied before the next ones, so that their bytes stay in the
/// first caches.
const NODES_AT_ONCE: usize = 64;

/// Gives nodes of one height their references: to their parents, or to their tries as roots.
fn hash_nodes(
    list: &mut [Draft],
    outcomes: &mut [(B256, RowUpdates)],
    nodes: &[u32],
    buffer: &mut Vec<u8>,
) {
    buffer.clear();
    let mut rows: Vec<Range<usize>> = Vec::with_capacity(nodes.len());
    for index in nodes {
        let start = buffer.len();
        list[*index as usize].node.encode_row(buffer);
        rows.push(start..buffer.len());
    }
    let rlp = |row: &Range<usize>| &buffer[row.start + Node::ROW_MASK_BYTES..row.end];
    let messages: Vec<&[u8]> = rows.iter().map(rlp).collect();
    let hashes = keccak256_batch(&messages);
    for ((index, row), hash) in nodes.iter().zip(&rows).zip(hashes) {
        let draft = &mut list[*index as usize];
        let (parent, slot, was_stored) = (draft.parent, draft.slot, draft.was_stored);
        let is_leaf = matches!(draft.node, Node::Leaf { .. });
        let outcome = &mut outcomes[draft.trie as usize];
        let is_root = parent == NONE;
        let inline = InlineNode::new(rlp(row)).filter(|_| !is_root);
        if !is_leaf && inline.is_none() {
            let bytes = buffer[row.clone()].to_vec();
            let node = std::mem::replace(&mut draft.node, Node::GONE);
            outcome.1.push((draft.path, Some(TrieRow { bytes, node })));
        } else if was_stored {
            outcome.1.push((draft.path, None));
        }
        if is_root {
            outcome.0 = hash;
            continue;
        }
        let reference = match inline {
            Some(node) => NodeRef::Inline(node),
            None if is_leaf => NodeRef::Leaf(hash),
            None => NodeRef::Hash(hash),
        };
        set_child(&mut list[parent as usize].node, slot, reference);
    }
}
