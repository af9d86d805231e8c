//! Sorted changes merged into a stored trie: one pass down the touched paths and back up.
//!
//! Goes in: roots, a [`TrieView`], and changed leaves in key order. Comes out: the new roots and
//! the rows that a store must set or remove. Nothing is kept between calls; a node is read once,
//! when a change passes through it, or when it is the last child of a branch that falls together.
//! Nodes are hashed at the end, those of one height together, whatever trie they are of.

use crate::draft::{Built, Drafts};
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

/// A row to set: its bytes, and the node they are of, for a store that keeps nodes in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrieRow {
    /// What [`Node::from_row`] reads.
    pub bytes: Vec<u8>,
    /// The node.
    pub node: Node,
}

/// What a store must do to its rows: set (`Some`) or remove (`None`) at each path. No path is
/// listed twice.
pub type RowUpdates = Vec<(Path, Option<TrieRow>)>;

/// One trie that is to change.
#[derive(Clone, Copy, Debug)]
pub struct TrieUpdate<'a> {
    /// Which trie.
    pub owner: Owner,
    /// Its root before.
    pub root: B256,
    /// Its changed leaves, their keys strictly ascending.
    pub leaves: &'a [LeafUpdate],
}

/// Applies `updates` to the trie of `owner` with root `root`: gives the new root and the changes
/// of its rows. See [`update_tries`], which is faster for many tries.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if its nodes can't be those of a trie.
///
/// # Panics
/// If the keys of `updates` do not strictly ascend.
pub fn update_trie(
    view: &dyn TrieView,
    owner: Owner,
    root: B256,
    leaves: &[LeafUpdate],
) -> Result<(B256, RowUpdates), Fault> {
    let update = TrieUpdate {
        owner,
        root,
        leaves,
    };
    let mut outcomes = update_tries(view, &[update])?;
    Ok(outcomes.pop().expect("an outcome for each trie"))
}

/// Applies each of `updates` to its trie: gives, in their order, the new roots and the changes of
/// the rows.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if its nodes can't be those of a trie.
///
/// # Panics
/// If the keys of an update do not strictly ascend.
///
/// Spec: execution-specs `trie.py`, `trie_set` and `root`.
pub fn update_tries(
    view: &dyn TrieView,
    updates: &[TrieUpdate<'_>],
) -> Result<Vec<(B256, RowUpdates)>, Fault> {
    let mut drafts = Drafts::new(updates.iter().map(|update| update.root));
    for (trie, update) in (0..).zip(updates) {
        assert!(
            update.leaves.is_sorted_by(|a, b| a.key < b.key),
            "the keys of an update ascend"
        );
        if update.leaves.is_empty() {
            continue;
        }
        let mut merge = Merge {
            view,
            owner: update.owner,
            trie,
            drafts: &mut drafts,
        };
        let before = match update.root {
            EMPTY_ROOT_HASH => NodeRef::Empty,
            root => NodeRef::Hash(root),
        };
        let top = merge.resolve(&Path::EMPTY, &before, update.leaves)?;
        let was_stored = !matches!(top, None | Some(Node::Leaf { .. }));
        let root = merge.merge(Path::EMPTY, top, update.leaves)?;
        drafts.add_root(trie, was_stored, root);
    }
    Ok(drafts.hash())
}

struct Merge<'a> {
    view: &'a dyn TrieView,
    owner: Owner,
    /// Which of the tries that change together.
    trie: u32,
    drafts: &'a mut Drafts,
}

impl Merge<'_> {
    /// What `node`, which stands at `path`, becomes by `updates`, whose keys all begin with `path`.
    fn merge(
        &mut self,
        path: Path,
        node: Option<Node>,
        updates: &[LeafUpdate],
    ) -> Result<Option<Built>, Fault> {
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
    ) -> Option<Built> {
        let mut leaf = leaf.filter(|(key, _)| updates.iter().all(|update| update.key != *key));
        let mut leaves = Vec::with_capacity(updates.len() + 1);
        for update in updates {
            leaves.extend(leaf.take_if(|(key, _)| *key < update.key));
            if let Some(value) = &update.value {
                leaves.push((update.key, value.clone()));
            }
        }
        leaves.extend(leaf);
        self.grow(path.len(), &mut leaves)
    }

    /// The subtrie of `leaves`, which ascend and share `depth` nibbles.
    fn grow(&mut self, depth: usize, leaves: &mut [(Path, Vec<u8>)]) -> Option<Built> {
        let ((first, value), rest) = leaves.split_first_mut()?;
        let first = *first;
        let Some((last, _)) = rest.last() else {
            let (path, value) = (first.skip(depth), std::mem::take(value));
            return Some(Node::Leaf { path, value }.into());
        };
        let fork = common_prefix(first.as_slice(), last.as_slice());
        let mut branch = Box::<Branch>::default();
        let mut leaves = leaves;
        if first.len() == fork {
            branch.value = std::mem::take(&mut leaves[0].1);
            leaves = &mut leaves[1..];
        }
        let mut built = Built::from(Node::Branch(branch));
        while let Some((key, _)) = leaves.first() {
            let (key, nibble) = (*key, key.as_slice()[fork]);
            let count = leaves.partition_point(|(key, _)| key.as_slice()[fork] <= nibble);
            let (group, rest) = leaves.split_at_mut(count);
            leaves = rest;
            let child = self.grow(fork + 1, group);
            self.settle(
                &key.first(fork + 1),
                NodeRef::Empty,
                child,
                &mut built,
                nibble,
            );
        }
        if fork == depth {
            return Some(built);
        }
        let path = first.first(fork).skip(depth);
        Some(self.extend(path, first.first(fork), NodeRef::Empty, built))
    }

    /// An extension by `path` to `below`, which stands at `at` where its parent held `before`.
    fn extend(&mut self, path: Path, at: Path, before: NodeRef, below: Built) -> Built {
        let child = NodeRef::Empty;
        let mut built = Built::from(Node::Extension { path, child });
        self.settle(&at, before, Some(below), &mut built, 0);
        built
    }

    /// `carried` is a child that is in hand and has no row yet.
    fn branch(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &[LeafUpdate],
    ) -> Result<Option<Built>, Fault> {
        let depth = path.len();
        if let Some((first, rest)) = updates.split_first()
            && first.key.len() == depth
        {
            branch.value = first.value.clone().unwrap_or_default();
            updates = rest;
        }
        let mut fresh: Vec<(u8, Option<Built>)> = Vec::with_capacity(updates.len().min(16));
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
        fresh.extend(carried.map(|(nibble, node)| (nibble, Some(node.into()))));
        self.rejoin(path, branch, fresh)
    }

    /// Puts changed children back into their branch, which falls together if one is left.
    fn rejoin(
        &mut self,
        path: Path,
        branch: Box<Branch>,
        fresh: Vec<(u8, Option<Built>)>,
    ) -> Result<Option<Built>, Fault> {
        let changed = fresh.iter().fold(0_u16, |mask, (at, _)| mask | 1 << at);
        let untouched = |at: &usize| changed >> at & 1 == 0;
        let mut kept = (0..16)
            .filter(untouched)
            .filter(|at| branch.children[*at] != NodeRef::Empty);
        let only_kept = kept.next();
        let living = fresh.iter().filter(|(_, node)| node.is_some()).count();
        let children = usize::from(only_kept.is_some()) + kept.count() + living;
        let falls = children + usize::from(!branch.value.is_empty()) < 2;
        let children = branch.children;
        if !falls {
            let mut built = Built::from(Node::Branch(branch));
            for (nibble, node) in fresh {
                let child_path = self.join(&path, &[nibble])?;
                let before = children[usize::from(nibble)];
                self.settle(&child_path, before, node, &mut built, nibble);
            }
            return Ok(Some(built));
        }

        let mut last = None;
        for (nibble, node) in fresh {
            let at = self.join(&path, &[nibble])?;
            match node {
                Some(node) => last = Some((nibble, node, true)),
                None => self.remove(&at, &children[usize::from(nibble)]),
            }
        }
        if let Some(at) = only_kept {
            let nibble = u8::try_from(at).expect("below 16");
            let child_path = self.join(&path, &[nibble])?;
            let node = self.resolve(&child_path, &children[at], &[])?;
            last = node.map(|node| (nibble, node.into(), false));
        }
        match last {
            Some((nibble, node, is_fresh)) => {
                let before = children[usize::from(nibble)];
                let at = self.join(&path, &[nibble])?;
                self.lift(&at, 1, before, (node, is_fresh)).map(Some)
            }
            None if branch.value.is_empty() => Ok(None),
            None => {
                let (path, value) = (Path::EMPTY, branch.value);
                Ok(Some(Node::Leaf { path, value }.into()))
            }
        }
    }

    fn extension(
        &mut self,
        path: Path,
        skipped: Path,
        child: NodeRef,
        updates: &[LeafUpdate],
    ) -> Result<Option<Built>, Fault> {
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
            return Ok(Some(Node::Extension { path, child }.into()));
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
                self.remove(&below, &before);
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
        (mut built, is_fresh): (Built, bool),
    ) -> Result<Built, Fault> {
        let prefix = path.skip(path.len() - count);
        match &mut built.node {
            Node::Leaf { path: rest, .. } | Node::Extension { path: rest, .. } => {
                let whole = prefix.join(rest.as_slice());
                *rest = whole.ok_or_else(|| self.too_long(path))?;
                self.remove(path, &before);
                Ok(built)
            }
            Node::Branch(_) if is_fresh => Ok(self.extend(prefix, *path, before, built)),
            Node::Branch(_) => {
                let (path, child) = (prefix, before);
                Ok(Node::Extension { path, child }.into())
            }
        }
    }

    /// Hangs what now stands at `path`, where the parent held `before`, below `parent` as the
    /// child `slot`.
    fn settle(
        &mut self,
        path: &Path,
        before: NodeRef,
        node: Option<Built>,
        parent: &mut Built,
        slot: u8,
    ) {
        match node {
            Some(node) => {
                let was_stored = matches!(before, NodeRef::Hash(_));
                let place = (self.trie, *path);
                parent.hang(slot, self.drafts.add(place, was_stored, node), self.drafts);
            }
            None => {
                self.remove(path, &before);
                parent.set_child(slot, NodeRef::Empty);
            }
        }
    }

    /// Nothing stands at `path` any more, where the parent held `before`.
    fn remove(&mut self, path: &Path, before: &NodeRef) {
        if matches!(before, NodeRef::Hash(_)) {
            self.drafts.remove(self.trie, *path);
        }
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
        path.join(more).ok_or_else(|| self.too_long(path))
    }

    fn too_long(&self, path: &Path) -> Fault {
        self.corrupt(path, MalformedNode("its path is longer than any key"))
    }

    fn corrupt(&self, path: &Path, error: MalformedNode) -> Fault {
        Fault::Corrupt {
            segment: segment(&self.owner),
            key: fault_key(&self.owner, path),
            reason: error.to_string(),
        }
    }
}
