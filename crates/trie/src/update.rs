//! Sorted leaf updates merged into tries: one pass down the touched paths and back up.
//!
//! Goes in: [`Trie`]s, a [`TrieView`] for the nodes that they do not have in memory, and leaf updates in key order.
//! Comes out: the changed tries, and the rows that a store must set or remove.
//!
//! On the way down a node is taken out of its parent and the updates are split among its children. On the way up
//! each subtrie is put together again, but nothing is hashed: new nodes go to [`DirtyNodes`], which hashes all
//! tries of a call together, height by height.
//!
//! ```text
//! merge(path 3): updates 3a1.. 3a7.. 3f0..
//!   branch at 3 --take_child(a)--> merge(path 3a): updates 3a1.. 3a7..   -> new branch, attached as child a
//!               --take_child(f)--> merge(path 3f): updates 3f0..         -> new leaf, attached as child f
//! ```
//!
//! Removals can leave a branch with one child. Then it collapses: the child moves up, with its nibble in front of
//! its own path, or behind an extension ([`Merge::collapse`]). For that the one child that was not touched
//! must be read, the only case in which an update reads a sibling.

use crate::branch::{CachedNode, Child};
use crate::cpu_cache::{touch_paths, touch_paths_below};
use crate::dirty_nodes::{
    DirtyNodes, Leaf, NewInnerNode, NewNode, PartOutcome, PendingChildren, RowFn,
};
use crate::path::common_prefix;
use crate::view::{NoNodes, fault_key, segment};
use crate::{Branch, Extension, MalformedNode, Node, NodeRef, Owner, Path, Trie, TrieView};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};
use std::borrow::Cow;
use std::ops::Range;

/// A changed leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafUpdate<'a> {
    /// The key.
    pub key: Path,
    /// The value as encoded in the trie, not empty; `None` removes the key.
    pub value: Option<&'a [u8]>,
    /// The trie is known to have this key, so the leaf that is replaced need not be read. `false` is always correct,
    /// `true` only if the key is there.
    pub replaces: bool,
}

/// One trie that is to change.
#[derive(Debug)]
pub struct TrieUpdate<'a> {
    /// Which trie.
    pub owner: Owner,
    /// The trie.
    pub trie: &'a mut Trie,
    /// Its changed leaves, their keys strictly ascending.
    pub leaves: &'a [LeafUpdate<'a>],
}

/// What the updates of a call share: where nodes come from, and the clock to set on them.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) view: &'a dyn TrieView,
    pub(crate) clock: u32,
}

impl Source<'_> {
    /// Applies each of `updates`, none of them empty, to its trie. After an error the tries must not be used.
    pub(crate) fn update(
        self,
        updates: &mut [TrieUpdate<'_>],
        rows: &mut RowFn<'_>,
    ) -> Result<(), Fault> {
        touch_paths(updates.iter().flat_map(|update| {
            let leaves = update.leaves.iter();
            leaves.map(|leaf| (&*update.trie, &leaf.key))
        }));
        let leaves = updates.iter().flat_map(|update| update.leaves);
        let mut dirty = DirtyNodes::new(self.clock, rows).with_room_for(leaves);
        for update in &mut *updates {
            dirty.begin(update.owner);
            let mut merge = Merge::new(self.view, update.owner, &mut dirty);
            let root = std::mem::take(&mut update.trie.root);
            let top = merge.resolve(&Path::EMPTY, root, update.leaves)?;
            let was_stored = !matches!(top, None | Some(Node::Leaf { .. }));
            let root = merge.merge(Path::EMPTY, top, update.leaves)?;
            dirty.add_top(Path::EMPTY, was_stored, root);
        }
        for (update, outcome) in updates.iter_mut().zip(dirty.hash()) {
            update.trie.replace_with(outcome);
        }
        Ok(())
    }

    /// Applies `leaves`, whose keys all begin with `path`, to the subtrie below `child`, which is at `path` in the trie
    /// of `owner`. Everything below the top of the new subtrie is hashed, the top itself is not.
    pub(crate) fn update_below<'b>(
        self,
        owner: Owner,
        path: Path,
        child: Child,
        leaves: &'b [LeafUpdate<'b>],
        rows: &mut RowFn<'_>,
    ) -> Result<PartOutcome<'b>, Fault> {
        touch_paths_below(child.cached.as_ref(), leaves, path.len());
        let mut dirty = DirtyNodes::new(self.clock, rows).with_room_for(leaves.iter());
        dirty.begin(owner);
        let mut merge = Merge::new(self.view, owner, &mut dirty);
        let top = merge.resolve(&path, child, leaves)?;
        let top = merge.merge(path, top, leaves)?;
        Ok(dirty.hash_below(top))
    }

    /// Puts new subtries back below the branch at the root of their trie.
    pub(crate) fn rebuild(
        self,
        owner: Owner,
        branch: Box<Branch>,
        tops: Vec<(u8, Option<NewNode<'_>>)>,
        rows: &mut RowFn<'_>,
    ) -> Result<PartOutcome<'static>, Fault> {
        let mut dirty = DirtyNodes::new(self.clock, rows);
        dirty.begin(owner);
        let mut merge = Merge::new(self.view, owner, &mut dirty);
        let root = merge.rebuild(Path::EMPTY, branch, tops)?;
        dirty.add_top(Path::EMPTY, true, root);
        let outcome = dirty.hash().pop();
        Ok(outcome.expect("one part was begun"))
    }
}

/// The hash of each subtrie that some of `leaves` make up: at this path, of these leaves, at least one, all below it. Values are taken
/// out of the leaves. `rows` gets the rows of the subtries.
pub(crate) fn subtrie_hashes<'a>(
    leaves: &mut [Leaf<'_>],
    subtries: impl Iterator<Item = (Path, Range<usize>)>,
    rows: &'a mut RowFn<'a>,
) -> Vec<B256> {
    let mut dirty = DirtyNodes::new(0, rows);
    for (path, range) in subtries {
        dirty.begin(None);
        let mut merge = Merge::new(&NoNodes, None, &mut dirty);
        let top = merge.build_subtrie(path.len(), &mut leaves[range]);
        dirty.add_top(path, false, top);
    }
    let outcomes = dirty.hash().into_iter();
    outcomes
        .map(|outcome| match outcome.root.reference {
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => hash,
            NodeRef::Empty | NodeRef::Inline(_) => EMPTY_ROOT_HASH,
        })
        .collect()
}

struct Merge<'a, 'b> {
    view: &'a dyn TrieView,
    owner: Owner,
    dirty: &'a mut DirtyNodes<'b>,
}

impl<'a, 'b> Merge<'a, 'b> {
    fn new(view: &'a dyn TrieView, owner: Owner, dirty: &'a mut DirtyNodes<'b>) -> Self {
        Self { view, owner, dirty }
    }

    /// Applies `updates`, whose keys all begin with `path`, to the subtrie of `node`, which is at `path`.
    fn merge<'c>(
        &mut self,
        path: Path,
        node: Option<Node>,
        updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<NewNode<'c>>, Fault> {
        match node {
            None => Ok(self.build(&path, None, updates)),
            Some(Node::Leaf { path: rest, value }) => {
                let leaf = self.leaf(&path, &rest, value)?;
                Ok(self.build(&path, Some(leaf), updates))
            }
            Some(Node::Extension(extension)) => self.extension(path, *extension, updates),
            Some(Node::Branch(branch)) => self.branch(path, branch, None, updates),
        }
    }

    /// A leaf at `path`.
    fn leaf(&self, path: &Path, rest: &Path, value: Vec<u8>) -> Result<Leaf<'static>, Fault> {
        let key = self.join(path, rest.as_slice())?;
        let value = Cow::Owned(value);
        Ok(Leaf { key, value })
    }

    /// A new subtrie of the present leaf, if there is one, and of the updates that set a value.
    fn build<'c>(
        &mut self,
        path: &Path,
        leaf: Option<Leaf<'c>>,
        updates: &'c [LeafUpdate<'c>],
    ) -> Option<NewNode<'c>> {
        let mut leaf = leaf.filter(|leaf| updates.iter().all(|update| update.key != leaf.key));
        let set = |update: &LeafUpdate<'c>| {
            let (key, value) = (update.key, Cow::Borrowed(update.value?));
            Some(Leaf { key, value })
        };
        if let ([update], None) = (updates, &leaf) {
            return set(update).map(NewNode::Leaf);
        }
        let mut leaves = Vec::with_capacity(updates.len() + 1);
        for update in updates {
            leaves.extend(leaf.take_if(|leaf| leaf.key < update.key));
            leaves.extend(set(update));
        }
        leaves.extend(leaf);
        self.build_subtrie(path.len(), &mut leaves)
    }

    /// The subtrie of `leaves`, which ascend and share their first `depth` nibbles.
    fn build_subtrie<'c>(&mut self, depth: usize, leaves: &mut [Leaf<'c>]) -> Option<NewNode<'c>> {
        let (first, rest) = leaves.split_first_mut()?;
        let key = first.key;
        let Some(last) = rest.last() else {
            let value = std::mem::take(&mut first.value);
            return Some(NewNode::Leaf(Leaf { key, value }));
        };
        let fork = common_prefix(key.as_slice(), last.key.as_slice());
        let mut branch = Box::<Branch>::default();
        let mut leaves = leaves;
        if key.len() == fork {
            branch.set_value(&leaves[0].value);
            leaves = &mut leaves[1..];
        }
        let mut built = NewInnerNode::from(CachedNode::Branch(branch));
        while let Some(first) = leaves.first() {
            let (at, nibble) = (first.key.first(fork + 1), first.key.as_slice()[fork]);
            let count = leaves.partition_point(|leaf| leaf.key.as_slice()[fork] <= nibble);
            let (group, rest) = leaves.split_at_mut(count);
            leaves = rest;
            let child = self.build_subtrie(fork + 1, group);
            self.set_child_node(&at, NodeRef::Empty, child, &mut built, nibble);
        }
        if fork == depth {
            return Some(NewNode::Inner(built));
        }
        let path = key.first(fork).skip(depth);
        let top = self.extend(path, key.first(fork), NodeRef::Empty, built);
        Some(NewNode::Inner(top))
    }

    /// An extension by `path` to `below`, which is at `at`, where the old parent had the reference `before`.
    fn extend(
        &mut self,
        path: Path,
        at: Path,
        before: NodeRef,
        below: NewInnerNode,
    ) -> NewInnerNode {
        let mut built = extension(path, Child::default());
        let below = Some(NewNode::Inner(below));
        self.set_child_node(&at, before, below, &mut built, 0);
        built
    }

    /// Applies `updates` to a branch. `carried` is a child that is not in the branch yet and has no row.
    fn branch<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<NewNode<'c>>, Fault> {
        let depth = path.len();
        let removes = updates.iter().any(|update| update.value.is_none());
        if let Some((first, rest)) = updates.split_first()
            && first.key.len() == depth
        {
            branch.set_value(first.value.unwrap_or_default());
            updates = rest;
        }
        if !removes {
            let built = self.insert_into_branch(path, branch, carried, updates)?;
            return Ok(Some(NewNode::Inner(built)));
        }
        let mut changed: Vec<(u8, Option<NewNode<'c>>)> = Vec::with_capacity(updates.len().min(16));
        while let Some((nibble, group)) = take_group(&mut updates, depth) {
            let child_path = self.join(&path, &[nibble])?;
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.take_child(nibble), group)?,
            };
            changed.push((nibble, self.merge(child_path, child, group)?));
        }
        if let Some((nibble, node)) = carried {
            let at = self.join(&path, &[nibble])?;
            changed.push((nibble, Some(self.unchanged(&at, node)?)));
        }
        self.rebuild(path, branch, changed)
    }

    /// As [`Merge::branch`], if no update removes anything: then it stays a branch.
    fn insert_into_branch<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &'c [LeafUpdate<'c>],
    ) -> Result<NewInnerNode, Fault> {
        // Children are attached to the branch before it is itself among the dirty nodes.
        let mut pending = PendingChildren::default();
        while let Some((nibble, group)) = take_group(&mut updates, path.len()) {
            let child_path = self.join(&path, &[nibble])?;
            let before = branch.get(nibble);
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.take_child(nibble), group)?,
            };
            let child = self.merge(child_path, child, group)?;
            let child = child.expect("nothing was removed");
            self.attach(&child_path, before, child, &mut pending, nibble);
        }
        if let Some((nibble, node)) = carried {
            let at = self.join(&path, &[nibble])?;
            let child = self.unchanged(&at, node)?;
            self.attach(&at, NodeRef::Empty, child, &mut pending, nibble);
        }
        let node = CachedNode::Branch(branch);
        Ok(NewInnerNode { node, pending })
    }

    /// A node at `path` that is in memory and stays as it is.
    fn unchanged(&self, path: &Path, node: Node) -> Result<NewNode<'static>, Fault> {
        match CachedNode::of(node) {
            Ok(cached) => Ok(NewNode::Inner(cached.into())),
            Err((rest, value)) => self.leaf(path, &rest, value).map(NewNode::Leaf),
        }
    }

    /// Puts new children back into their branch, which collapses if only one child is left.
    fn rebuild<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        changed: Vec<(u8, Option<NewNode<'c>>)>,
    ) -> Result<Option<NewNode<'c>>, Fault> {
        let changed_mask = changed.iter().fold(0_u16, |mask, (at, _)| mask | 1 << at);
        let mut kept = branch
            .children()
            .filter(|(at, _)| changed_mask >> at & 1 == 0);
        let only_kept = kept.next().map(|(nibble, _)| nibble);
        let living = changed.iter().filter(|(_, node)| node.is_some()).count();
        let children = usize::from(only_kept.is_some()) + kept.count() + living;
        let collapses = children + usize::from(branch.value().is_some()) < 2;
        if !collapses {
            let before: Vec<NodeRef> = changed.iter().map(|(at, _)| branch.get(*at)).collect();
            let mut built = NewInnerNode::from(CachedNode::Branch(branch));
            for ((nibble, node), before) in changed.into_iter().zip(before) {
                let child_path = self.join(&path, &[nibble])?;
                self.set_child_node(&child_path, before, node, &mut built, nibble);
            }
            return Ok(Some(NewNode::Inner(built)));
        }

        let mut last = None;
        for (nibble, node) in changed {
            let at = self.join(&path, &[nibble])?;
            match node {
                Some(node) => last = Some((nibble, node, true)),
                None => self.remove(&at, &branch.get(nibble)),
            }
        }
        if let Some(nibble) = only_kept {
            let child_path = self.join(&path, &[nibble])?;
            if let Some(node) = self.resolve(&child_path, branch.take_child(nibble), &[])? {
                last = Some((nibble, self.unchanged(&child_path, node)?, false));
            }
        }
        match last {
            Some((nibble, node, is_new)) => {
                let at = self.join(&path, &[nibble])?;
                let before = branch.get(nibble);
                self.collapse(&at, 1, before, node, is_new).map(Some)
            }
            None => Ok(branch.value().map(|value| {
                let (key, value) = (path, Cow::Owned(value.to_vec()));
                NewNode::Leaf(Leaf { key, value })
            })),
        }
    }

    fn extension<'c>(
        &mut self,
        path: Path,
        stored: Extension,
        updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<NewNode<'c>>, Fault> {
        let depth = path.len();
        let Extension {
            path: skipped,
            child,
        } = stored;
        let shared = |update: &LeafUpdate<'_>| {
            common_prefix(skipped.as_slice(), &update.key.as_slice()[depth..])
        };
        let inserts = updates.iter().filter(|update| update.value.is_some());
        let split = inserts.map(shared).min().unwrap_or(skipped.len());
        let (prefix, rest) = skipped.as_slice().split_at(split);
        let start = updates.partition_point(|u| &u.key.as_slice()[depth..] < prefix);
        let count = updates[start..].partition_point(|u| shared(u) >= split);
        let group = &updates[start..start + count];
        if group.is_empty() {
            return Ok(Some(NewNode::Inner(extension(skipped, child))));
        }
        let below = self.join(&path, prefix)?;
        let (before, node) = match rest.split_first() {
            None => {
                let before = child.reference;
                let node = self.resolve(&below, child, group)?;
                (before, self.merge(below, node, group)?)
            }
            Some((nibble, tail)) => {
                let mut branch = Box::<Branch>::default();
                let mut carried = None;
                if tail.is_empty() {
                    branch.put(*nibble, child);
                } else {
                    let path = skipped.skip(split + 1);
                    let node = Node::Extension(Box::new(Extension { path, child }));
                    carried = Some((*nibble, node));
                }
                (NodeRef::Empty, self.branch(below, branch, carried, group)?)
            }
        };
        match node {
            Some(node) if prefix.is_empty() => Ok(Some(node)),
            Some(node) => self.collapse(&below, split, before, node, true).map(Some),
            None => {
                self.remove(&below, &before);
                Ok(None)
            }
        }
    }

    /// The node `count` nibbles above `path` if `top`, at `path`, is all that is left below it. Its old parent had the
    /// reference `before`; `is_new` says whether it has changed.
    fn collapse<'c>(
        &mut self,
        path: &Path,
        count: usize,
        before: NodeRef,
        mut top: NewNode<'c>,
        is_new: bool,
    ) -> Result<NewNode<'c>, Fault> {
        let prefix = path.skip(path.len() - count);
        match top {
            // A leaf has its whole key.
            NewNode::Leaf(_) => {}
            NewNode::Inner(NewInnerNode {
                node: CachedNode::Extension(ref mut extension),
                ..
            }) => {
                let whole = prefix.join(extension.path.as_slice());
                extension.path = whole.ok_or_else(|| self.too_long(path))?;
            }
            NewNode::Inner(branch) => {
                return Ok(NewNode::Inner(match is_new {
                    true => self.extend(prefix, *path, before, branch),
                    false => self.extend_to(prefix, before, branch.node),
                }));
            }
        }
        self.remove(path, &before);
        Ok(top)
    }

    /// An extension by `path` to a branch that stays as it is.
    fn extend_to(&mut self, path: Path, reference: NodeRef, branch: CachedNode) -> NewInnerNode {
        let is_named = matches!(reference, NodeRef::Hash(_));
        let cached = Some(branch).filter(|_| is_named);
        cached
            .iter()
            .for_each(|cached| self.dirty.keep_node(cached));
        extension(path, Child { reference, cached })
    }

    /// Makes `node`, which is now at `path`, the child `slot` of `parent`. The old parent had the reference `before`.
    fn set_child_node(
        &mut self,
        path: &Path,
        before: NodeRef,
        node: Option<NewNode<'_>>,
        parent: &mut NewInnerNode,
        slot: u8,
    ) {
        match node {
            Some(node) => self.attach(path, before, node, &mut parent.pending, slot),
            None => {
                self.remove(path, &before);
                parent.set_child(slot, Child::default());
            }
        }
    }

    fn attach(
        &mut self,
        path: &Path,
        before: NodeRef,
        node: NewNode<'_>,
        pending: &mut PendingChildren,
        slot: u8,
    ) {
        match node {
            NewNode::Leaf(leaf) => {
                self.remove(path, &before);
                self.dirty.attach_leaf(&leaf, path.len(), pending, slot);
            }
            NewNode::Inner(built) => {
                let was_stored = matches!(before, NodeRef::Hash(_));
                self.dirty.attach(*path, was_stored, built, pending, slot);
            }
        }
    }

    /// There is no node at `path` any more, where the parent had the reference `before`.
    fn remove(&mut self, path: &Path, before: &NodeRef) {
        if matches!(before, NodeRef::Hash(_)) {
            self.dirty.remove(*path);
        }
    }

    /// The node of `child`, from memory or from the view. `None` if there is none, or if it is a leaf that one of
    /// `updates` replaces.
    fn resolve(
        &mut self,
        path: &Path,
        child: Child,
        updates: &[LeafUpdate<'_>],
    ) -> Result<Option<Node>, Fault> {
        if let Some(cached) = child.cached {
            self.dirty.remove_node(&cached);
            return Ok(Some(cached.into()));
        }
        let hash = match &child.reference {
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

fn extension(path: Path, child: Child) -> NewInnerNode {
    CachedNode::Extension(Box::new(Extension { path, child })).into()
}

/// Removes and returns the first of `updates` that share the nibble at `depth`, with that nibble.
fn take_group<'a>(
    updates: &mut &'a [LeafUpdate<'a>],
    depth: usize,
) -> Option<(u8, &'a [LeafUpdate<'a>])> {
    let nibble = updates.first()?.key.as_slice()[depth];
    let count = updates.partition_point(|update| update.key.as_slice()[depth] <= nibble);
    let (group, rest) = updates.split_at(count);
    *updates = rest;
    Some((nibble, group))
}
