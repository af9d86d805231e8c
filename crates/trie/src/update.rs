//! Sorted changes merged into a stored trie: one pass down the touched paths and back up.
//!
//! Goes in: a root, a [`TrieView`], and changed leaves in key order. Comes out: the new root and
//! the rows that a store must set or remove. Nothing is kept between calls; a node is read once,
//! when a change passes through it, or when it is the last child of a branch that falls together.

use crate::builder::{TrieBuilder, encode_reference, encode_root};
use crate::path::common_prefix;
use crate::view::{fault_key, segment};
use crate::{Branch, MalformedNode, Node, NodeRef, Owner, Path, TrieView};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};

/// A changed leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafUpdate {
    /// The key.
    pub key: Path,
    /// The value as it stands in the trie, not empty; `None` removes the key.
    pub value: Option<Vec<u8>>,
    /// The trie is known to hold this key, so the leaf it replaces need not be read. `false` is
    /// always right, `true` only if it is so.
    pub replaces: bool,
}

/// What a store must do to its rows: set (`Some`) or remove (`None`) at each path. No path is
/// listed twice.
pub type RowUpdates = Vec<(Path, Option<Vec<u8>>)>;

/// Applies `updates` to the trie of `owner` with root `root`: gives the new root and the changes
/// of its rows.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if its nodes can't be those of a trie.
///
/// # Panics
/// If the keys of `updates` do not strictly ascend.
///
/// Spec: execution-specs `trie.py`, `trie_set` and `root`.
pub fn update_trie(
    view: &dyn TrieView,
    owner: Owner,
    root: B256,
    updates: &[LeafUpdate],
) -> Result<(B256, RowUpdates), Fault> {
    assert!(
        updates.is_sorted_by(|a, b| a.key < b.key),
        "the keys of an update ascend"
    );
    if updates.is_empty() {
        return Ok((root, Vec::new()));
    }
    let mut merge = Merge {
        view,
        owner,
        rows: Vec::new(),
        row: Vec::new(),
    };
    let before = match root {
        EMPTY_ROOT_HASH => NodeRef::Empty,
        root => NodeRef::Hash(root),
    };
    let top = merge.resolve(&Path::EMPTY, &before, updates)?;
    let was_stored = !matches!(top, None | Some(Node::Leaf { .. }));
    let root = match merge.merge(Path::EMPTY, top, updates)? {
        Some(node) => {
            let (hash, is_stored) = encode_root(&node, &mut merge.row);
            if is_stored {
                merge.rows.push((Path::EMPTY, Some(merge.row.clone())));
            } else if was_stored {
                merge.rows.push((Path::EMPTY, None));
            }
            hash
        }
        None => {
            if was_stored {
                merge.rows.push((Path::EMPTY, None));
            }
            EMPTY_ROOT_HASH
        }
    };
    Ok((root, merge.rows))
}

struct Merge<'a> {
    view: &'a dyn TrieView,
    owner: Owner,
    rows: RowUpdates,
    row: Vec<u8>,
}

impl Merge<'_> {
    /// What `node`, which stands at `path`, becomes by `updates`, whose keys all begin with `path`.
    fn merge(
        &mut self,
        path: Path,
        node: Option<Node>,
        updates: &[LeafUpdate],
    ) -> Result<Option<Node>, Fault> {
        match node {
            None => Ok(self.build(&path, None, updates)),
            Some(Node::Leaf { path: rest, value }) => {
                let key = self.join(&path, rest.as_slice())?;
                Ok(self.build(&path, Some((key, value)), updates))
            }
            Some(Node::Extension {
                path: skipped,
                child,
            }) => self.extension(path, skipped, child, updates),
            Some(Node::Branch(branch)) => self.branch(path, branch, None, updates),
        }
    }

    /// A fresh subtrie of the leaf that stood there, if any, and the updates that set a value.
    fn build(
        &mut self,
        path: &Path,
        leaf: Option<(Path, Vec<u8>)>,
        updates: &[LeafUpdate],
    ) -> Option<Node> {
        let rows = &mut self.rows;
        let mut sink = |path: &Path, row: &[u8]| rows.push((*path, Some(row.to_vec())));
        let mut builder = TrieBuilder::below(path.len(), &mut sink);
        let mut leaf = leaf.filter(|(key, _)| updates.iter().all(|update| update.key != *key));
        for update in updates {
            if let Some((key, value)) = leaf.take_if(|(key, _)| *key < update.key) {
                builder.add(key, value);
            }
            if let Some(value) = &update.value {
                builder.add(update.key, value.clone());
            }
        }
        if let Some((key, value)) = leaf {
            builder.add(key, value);
        }
        builder.finish_node()
    }

    /// `carried` is a child that is in hand and has no row yet.
    fn branch(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &[LeafUpdate],
    ) -> Result<Option<Node>, Fault> {
        let depth = path.len();
        if let Some((first, rest)) = updates.split_first()
            && first.key.len() == depth
        {
            branch.value = first.value.clone().unwrap_or_default();
            updates = rest;
        }
        let mut fresh: Vec<(u8, Option<Node>)> = Vec::with_capacity(updates.len().min(16));
        while let Some(first) = updates.first() {
            let nibble = first.key.as_slice()[depth];
            let count = updates.partition_point(|update| update.key.as_slice()[depth] <= nibble);
            let (group, rest) = updates.split_at(count);
            updates = rest;
            let child_path = self.join(&path, &[nibble])?;
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => {
                    let child = branch.children[usize::from(nibble)];
                    self.resolve(&child_path, &child, group)?
                }
            };
            fresh.push((nibble, self.merge(child_path, child, group)?));
        }
        fresh.extend(carried.map(|(nibble, node)| (nibble, Some(node))));
        self.rejoin(path, branch, fresh)
    }

    /// Puts changed children back into their branch, which falls together if one is left.
    fn rejoin(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        fresh: Vec<(u8, Option<Node>)>,
    ) -> Result<Option<Node>, Fault> {
        let changed = fresh.iter().fold(0_u16, |mask, (at, _)| mask | 1 << at);
        let untouched = |at: &usize| changed >> at & 1 == 0;
        let mut kept = (0..16)
            .filter(untouched)
            .filter(|at| branch.children[*at] != NodeRef::Empty);
        let only_kept = kept.next();
        let living = fresh.iter().filter(|(_, node)| node.is_some()).count();
        let children = usize::from(only_kept.is_some()) + kept.count() + living;
        let falls = children + usize::from(!branch.value.is_empty()) < 2;

        let mut last = None;
        for (nibble, node) in fresh {
            let at = usize::from(nibble);
            if falls && node.is_some() {
                last = node.map(|node| (nibble, node, true));
            } else {
                let child_path = self.join(&path, &[nibble])?;
                branch.children[at] = self.settle(&child_path, &branch.children[at], node.as_ref());
            }
        }
        if !falls {
            return Ok(Some(Node::Branch(branch)));
        }
        if let Some(at) = only_kept {
            let nibble = u8::try_from(at).expect("below 16");
            let child_path = self.join(&path, &[nibble])?;
            let node = self.resolve(&child_path, &branch.children[at], &[])?;
            last = node.map(|node| (nibble, node, false));
        }
        match last {
            Some((nibble, node, is_fresh)) => {
                let before = branch.children[usize::from(nibble)];
                let at = self.join(&path, &[nibble])?;
                self.lift(&at, 1, before, (node, is_fresh)).map(Some)
            }
            None if branch.value.is_empty() => Ok(None),
            None => {
                let (path, value) = (Path::EMPTY, branch.value);
                Ok(Some(Node::Leaf { path, value }))
            }
        }
    }

    fn extension(
        &mut self,
        path: Path,
        skipped: Path,
        child: NodeRef,
        updates: &[LeafUpdate],
    ) -> Result<Option<Node>, Fault> {
        let depth = path.len();
        let shared = |update: &LeafUpdate| {
            common_prefix(skipped.as_slice(), &update.key.as_slice()[depth..])
        };
        let inserts = updates.iter().filter(|update| update.value.is_some());
        let split = inserts.map(shared).min().unwrap_or(skipped.len());
        let (prefix, rest) = skipped.as_slice().split_at(split);
        let start = updates.partition_point(|u| &u.key.as_slice()[depth..] < prefix);
        let count = updates[start..].partition_point(|u| shared(u) >= split);
        let group = &updates[start..start + count];
        if group.is_empty() {
            let path = skipped;
            return Ok(Some(Node::Extension { path, child }));
        }
        let below = self.join(&path, prefix)?;
        let (before, node) = match rest.split_first() {
            None => {
                let node = self.resolve(&below, &child, group)?;
                (child, self.merge(below, node, group)?)
            }
            Some((nibble, tail)) => {
                let mut branch = Box::<Branch>::default();
                let mut carried = None;
                if tail.is_empty() {
                    branch.children[usize::from(*nibble)] = child;
                } else {
                    let path = skipped.skip(split + 1);
                    carried = Some((*nibble, Node::Extension { path, child }));
                }
                (NodeRef::Empty, self.branch(below, branch, carried, group)?)
            }
        };
        match node {
            Some(node) if prefix.is_empty() => Ok(Some(node)),
            Some(node) => self.lift(&below, split, before, (node, true)).map(Some),
            None => {
                self.settle(&below, &before, None);
                Ok(None)
            }
        }
    }

    /// The node that stands `count` nibbles above `path` if all below it is the given node at
    /// `path`; the flag says whether that node is new. Its parent named it `before`.
    fn lift(
        &mut self,
        path: &Path,
        count: usize,
        before: NodeRef,
        (node, is_fresh): (Node, bool),
    ) -> Result<Node, Fault> {
        let prefix = path.skip(path.len() - count);
        match node {
            Node::Leaf { path: rest, value } => {
                self.settle(path, &before, None);
                let path = self.join(&prefix, rest.as_slice())?;
                Ok(Node::Leaf { path, value })
            }
            Node::Extension { path: rest, child } => {
                self.settle(path, &before, None);
                let path = self.join(&prefix, rest.as_slice())?;
                Ok(Node::Extension { path, child })
            }
            branch => {
                let child = match is_fresh {
                    true => self.settle(path, &before, Some(&branch)),
                    false => before,
                };
                Ok(Node::Extension {
                    path: prefix,
                    child,
                })
            }
        }
    }

    /// Records what becomes of the row at `path`, where the parent held `before`, and gives the
    /// reference to what stands there now.
    fn settle(&mut self, path: &Path, before: &NodeRef, node: Option<&Node>) -> NodeRef {
        let after = match node {
            Some(node) => encode_reference(node, &mut self.row),
            None => NodeRef::Empty,
        };
        if matches!(after, NodeRef::Hash(_)) {
            self.rows.push((*path, Some(self.row.clone())));
        } else if matches!(before, NodeRef::Hash(_)) {
            self.rows.push((*path, None));
        }
        after
    }

    /// The node behind `reference`. `None` if there is none, or if it is a leaf that one of
    /// `updates` replaces.
    fn resolve(
        &self,
        path: &Path,
        reference: &NodeRef,
        updates: &[LeafUpdate],
    ) -> Result<Option<Node>, Fault> {
        let hash = match reference {
            NodeRef::Empty => return Ok(None),
            NodeRef::Inline(node) => {
                let node = Node::decode(node.as_slice()).map_err(|e| self.corrupt(path, e))?;
                return Ok(Some(node));
            }
            NodeRef::Hash(hash) => {
                if let Some(node) = self.view.node(&self.owner, path, hash)? {
                    return Ok(Some(node));
                }
                hash
            }
            NodeRef::Leaf(hash) => hash,
        };
        if updates.iter().any(|update| update.replaces) {
            return Ok(None);
        }
        self.view.leaf(&self.owner, path, hash).map(Some)
    }

    fn join(&self, path: &Path, more: &[u8]) -> Result<Path, Fault> {
        path.join(more)
            .ok_or_else(|| self.corrupt(path, MalformedNode("its path is longer than any key")))
    }

    fn corrupt(&self, path: &Path, error: MalformedNode) -> Fault {
        Fault::Corrupt {
            segment: segment(&self.owner),
            key: fault_key(&self.owner, path),
            reason: error.to_string(),
        }
    }
}
