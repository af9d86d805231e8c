//! A trie built bottom-up from leaves in key order, in memory proportional to its depth: a stack trie, as geth calls
//! it.
//!
//! Goes in: keys, strictly ascending, with their values. Comes out: the root, and before it the row of every inner
//! node. Used for the genesis state, repair and check.
//!
//! Only branches on the path to the last key are open. When the next key leaves the path, everything below the fork is
//! finished, hashed and dropped:
//!
//! ```text
//! keys 31a, 31f so far: open branches at depth 1 (nibble 3) and 2 (nibbles 3 1)
//! next key 32b:         the branch at depth 2 is closed; its hash becomes child 1 of the branch at depth 1
//! ```

use crate::path::common_prefix;
use crate::{Branch, Extension, Node, NodeRef, Path};
use alloy_primitives::{B256, keccak256};
use niwaki_primitives::EMPTY_ROOT_HASH;

/// Receives each finished node that a store keeps: its path and its row.
pub type RowSink<'a> = dyn FnMut(&Path, &[u8]) + 'a;

/// Builds one trie.
pub struct TrieBuilder<'a> {
    /// Branches that may still get children, from the top, each with its depth, on the path to `last`.
    open: Vec<(usize, Box<Branch>)>,
    last: Option<(Path, Vec<u8>)>,
    rows: &'a mut RowSink<'a>,
    row: Vec<u8>,
}

impl<'a> TrieBuilder<'a> {
    /// A builder of a whole trie that passes its rows to `rows`.
    pub fn new(rows: &'a mut RowSink<'a>) -> Self {
        Self {
            open: Vec::new(),
            last: None,
            rows,
            row: Vec::new(),
        }
    }

    /// Adds the next leaf.
    ///
    /// # Panics
    /// If `key` is not greater than the key before it.
    pub fn add(&mut self, key: Path, value: Vec<u8>) {
        if let Some((last, last_value)) = self.last.take() {
            assert!(last < key, "keys ascend: {last} before {key}");
            let shared = common_prefix(last.as_slice(), key.as_slice());
            if shared == last.len() {
                let mut branch = Box::new(Branch::with_room());
                branch.set_value(&last_value);
                self.open.push((shared, branch));
            } else {
                self.close_down_to(shared, &last, last_value);
            }
        }
        self.last = Some((key, value));
    }

    /// The root hash of the whole trie; the row of the root comes last.
    pub fn finish(mut self) -> B256 {
        let Some(root) = self.close() else {
            return EMPTY_ROOT_HASH;
        };
        self.encode(&root);
        if !matches!(root, Node::Leaf { .. }) {
            (self.rows)(&Path::EMPTY, &self.row);
        }
        keccak256(&self.row[Node::ROW_MASK_BYTES..])
    }

    fn close(&mut self) -> Option<Node> {
        let (last, value) = self.last.take()?;
        let mut node = PendingNode::Leaf(value);
        while let Some((depth, mut branch)) = self.open.pop() {
            self.attach(&mut branch, depth, &last, node);
            node = PendingNode::Branch(depth, branch);
        }
        Some(self.node_at(node, 0, &last))
    }

    /// Closes every branch deeper than `shared` on the path to `last`, and leaves a branch open at `shared` that has
    /// `last`'s subtrie as a child.
    fn close_down_to(&mut self, shared: usize, last: &Path, value: Vec<u8>) {
        let mut node = PendingNode::Leaf(value);
        while let Some((depth, mut branch)) = self.open.pop_if(|(depth, _)| *depth > shared) {
            self.attach(&mut branch, depth, last, node);
            node = PendingNode::Branch(depth, branch);
        }
        let mut branch = match self.open.pop_if(|(depth, _)| *depth == shared) {
            Some((_, branch)) => branch,
            None => Box::new(Branch::with_room()),
        };
        self.attach(&mut branch, shared, last, node);
        self.open.push((shared, branch));
    }

    /// Makes `node`, which is on the path to `key`, a child of the branch at `depth`.
    fn attach(&mut self, branch: &mut Branch, depth: usize, key: &Path, node: PendingNode) {
        let node = self.node_at(node, depth + 1, key);
        let nibble = key.as_slice()[depth];
        branch.set(nibble, self.reference_to(&key.first(depth + 1), &node));
    }

    /// The node at `depth` on the path to `key` if `node` is all that is below: a longer leaf, or an extension.
    fn node_at(&mut self, node: PendingNode, depth: usize, key: &Path) -> Node {
        match node {
            PendingNode::Leaf(value) => Node::Leaf {
                path: key.skip(depth),
                value,
            },
            PendingNode::Branch(at, branch) if at == depth => Node::Branch(branch),
            PendingNode::Branch(at, branch) => {
                let child = self.reference_to(&key.first(at), &Node::Branch(branch));
                let (path, child) = (key.first(at).skip(depth), child.into());
                Node::Extension(Box::new(Extension { path, child }))
            }
        }
    }

    fn reference_to(&mut self, path: &Path, node: &Node) -> NodeRef {
        self.encode(node);
        let rlp = &self.row[Node::ROW_MASK_BYTES..];
        let reference = NodeRef::of(rlp, matches!(node, Node::Leaf { .. }));
        if matches!(reference, NodeRef::Hash(_)) {
            (self.rows)(path, &self.row);
        }
        reference
    }

    fn encode(&mut self, node: &Node) {
        self.row.clear();
        node.encode_row(&mut self.row);
    }
}

/// A finished subtrie on the path to the last key, without a parent so far.
enum PendingNode {
    Leaf(Vec<u8>),
    Branch(usize, Box<Branch>),
}
