//! Sorted changes merged into tries in memory: one pass down the touched paths and back up.
//!
//! Goes in: [`Trie`]s, a [`TrieView`] for what they do not have in memory, and changed leaves in key
//! order. Comes out: the tries, changed, and the rows that a store must set or remove. Nodes are
//! taken out of their parents on the way down and hashed at the end, those of one height together,
//! whatever trie they are of.

use crate::branch::{Child, Held};
use crate::draft::{Built, Drafts, Hanging, Leaf, Outcome, Rows, Top};
use crate::path::common_prefix;
use crate::view::{fault_key, segment};
use crate::warm::{warm, warm_below};
use crate::{Branch, Extension, MalformedNode, Node, NodeRef, Owner, Path, Trie, TrieView};
use niwaki_primitives::Fault;
use std::borrow::Cow;

/// A changed leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafUpdate<'a> {
    /// The key.
    pub key: Path,
    /// The value as it stands in the trie, not empty; `None` removes the key.
    pub value: Option<&'a [u8]>,
    /// The trie is known to hold this key, so the leaf it replaces need not be read. `false` is
    /// always right, `true` only if it is so.
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

/// What changes have in common: where nodes come from, and the clock to leave on them.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) view: &'a dyn TrieView,
    pub(crate) clock: u32,
}

impl Source<'_> {
    /// Applies each of `updates`, none of them empty, to its trie. After an error the tries are
    /// not to be used.
    pub(crate) fn update(
        self,
        updates: &mut [TrieUpdate<'_>],
        rows: &mut Rows<'_>,
    ) -> Result<(), Fault> {
        warm(updates.iter().flat_map(|update| {
            let leaves = update.leaves.iter();
            leaves.map(|leaf| (&*update.trie, &leaf.key))
        }));
        let leaves = updates.iter().flat_map(|update| update.leaves);
        let mut drafts = Drafts::new(self.clock, rows).with_room_for(leaves);
        for update in &mut *updates {
            drafts.begin(update.owner);
            let mut merge = Merge::new(self.view, update.owner, &mut drafts);
            let root = std::mem::take(&mut update.trie.root);
            let top = merge.resolve(&Path::EMPTY, root, update.leaves)?;
            let was_stored = !matches!(top, None | Some(Node::Leaf { .. }));
            let root = merge.merge(Path::EMPTY, top, update.leaves)?;
            drafts.add_root(was_stored, root);
        }
        for (update, outcome) in updates.iter_mut().zip(drafts.hash()) {
            update.trie.take_over(outcome);
        }
        Ok(())
    }

    /// What the subtrie below `child`, which stands at `path` in the trie of `owner`, becomes by
    /// `leaves`, which all begin with `path`: all of it but the hash of its top.
    pub(crate) fn update_below<'b>(
        self,
        (owner, path): (Owner, Path),
        child: Child,
        leaves: &'b [LeafUpdate<'b>],
        rows: &mut Rows<'_>,
    ) -> Result<Outcome<'b>, Fault> {
        warm_below(child.held.as_ref(), leaves, path.len());
        let mut drafts = Drafts::new(self.clock, rows).with_room_for(leaves.iter());
        drafts.begin(owner);
        let mut merge = Merge::new(self.view, owner, &mut drafts);
        let top = merge.resolve(&path, child, leaves)?;
        let top = merge.merge(path, top, leaves)?;
        Ok(drafts.hash_below(top))
    }

    /// Puts the tops of subtries back below the branch at the root of their trie.
    pub(crate) fn rejoin(
        self,
        owner: Owner,
        branch: Box<Branch>,
        tops: Vec<(u8, Option<Top<'_>>)>,
        rows: &mut Rows<'_>,
    ) -> Result<Outcome<'static>, Fault> {
        let mut drafts = Drafts::new(self.clock, rows);
        drafts.begin(owner);
        let mut merge = Merge::new(self.view, owner, &mut drafts);
        let root = merge.rejoin(Path::EMPTY, branch, tops)?;
        drafts.add_root(true, root);
        let outcome = drafts.hash().pop();
        Ok(outcome.expect("one part was begun"))
    }
}

struct Merge<'a, 'b> {
    view: &'a dyn TrieView,
    owner: Owner,
    drafts: &'a mut Drafts<'b>,
}

impl<'a, 'b> Merge<'a, 'b> {
    fn new(view: &'a dyn TrieView, owner: Owner, drafts: &'a mut Drafts<'b>) -> Self {
        Self {
            view,
            owner,
            drafts,
        }
    }

    /// What `node`, which stands at `path`, becomes by `updates`, whose keys all begin with `path`.
    fn merge<'c>(
        &mut self,
        path: Path,
        node: Option<Node>,
        updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<Top<'c>>, Fault> {
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

    /// A leaf that stands at `path`.
    fn leaf(&self, path: &Path, rest: &Path, value: Vec<u8>) -> Result<Leaf<'static>, Fault> {
        let key = self.join(path, rest.as_slice())?;
        let value = Cow::Owned(value);
        Ok(Leaf { key, value })
    }

    /// A fresh subtrie of the leaf that stood there, if any, and the updates that set a value.
    fn build<'c>(
        &mut self,
        path: &Path,
        leaf: Option<Leaf<'c>>,
        updates: &'c [LeafUpdate<'c>],
    ) -> Option<Top<'c>> {
        let mut leaf = leaf.filter(|leaf| updates.iter().all(|update| update.key != leaf.key));
        let set = |update: &LeafUpdate<'c>| {
            let (key, value) = (update.key, Cow::Borrowed(update.value?));
            Some(Leaf { key, value })
        };
        if let ([update], None) = (updates, &leaf) {
            return set(update).map(Top::Leaf);
        }
        let mut leaves = Vec::with_capacity(updates.len() + 1);
        for update in updates {
            leaves.extend(leaf.take_if(|leaf| leaf.key < update.key));
            leaves.extend(set(update));
        }
        leaves.extend(leaf);
        self.grow(path.len(), &mut leaves)
    }

    /// The subtrie of `leaves`, which ascend and share `depth` nibbles.
    fn grow<'c>(&mut self, depth: usize, leaves: &mut [Leaf<'c>]) -> Option<Top<'c>> {
        let (first, rest) = leaves.split_first_mut()?;
        let key = first.key;
        let Some(last) = rest.last() else {
            let value = std::mem::take(&mut first.value);
            return Some(Top::Leaf(Leaf { key, value }));
        };
        let fork = common_prefix(key.as_slice(), last.key.as_slice());
        let mut branch = Box::<Branch>::default();
        let mut leaves = leaves;
        if key.len() == fork {
            branch.set_value(&leaves[0].value);
            leaves = &mut leaves[1..];
        }
        let mut built = Built::from(Held::Branch(branch));
        while let Some(first) = leaves.first() {
            let (at, nibble) = (first.key.first(fork + 1), first.key.as_slice()[fork]);
            let count = leaves.partition_point(|leaf| leaf.key.as_slice()[fork] <= nibble);
            let (group, rest) = leaves.split_at_mut(count);
            leaves = rest;
            let child = self.grow(fork + 1, group);
            self.settle(&at, NodeRef::Empty, child, &mut built, nibble);
        }
        if fork == depth {
            return Some(Top::Inner(built));
        }
        let path = key.first(fork).skip(depth);
        let top = self.extend(path, key.first(fork), NodeRef::Empty, built);
        Some(Top::Inner(top))
    }

    /// An extension by `path` to `below`, which stands at `at` where its parent held `before`.
    fn extend(&mut self, path: Path, at: Path, before: NodeRef, below: Built) -> Built {
        let mut built = extension(path, Child::default());
        let below = Some(Top::Inner(below));
        self.settle(&at, before, below, &mut built, 0);
        built
    }

    /// `carried` is a child that is in hand and has no row yet.
    fn branch<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<Top<'c>>, Fault> {
        let depth = path.len();
        let removes = updates.iter().any(|update| update.value.is_none());
        if let Some((first, rest)) = updates.split_first()
            && first.key.len() == depth
        {
            branch.set_value(first.value.unwrap_or_default());
            updates = rest;
        }
        if !removes {
            let built = self.grown_branch(path, branch, carried, updates)?;
            return Ok(Some(Top::Inner(built)));
        }
        let mut fresh: Vec<(u8, Option<Top<'c>>)> = Vec::with_capacity(updates.len().min(16));
        while let Some((nibble, group)) = take_group(&mut updates, depth) {
            let child_path = self.join(&path, &[nibble])?;
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.lend(nibble), group)?,
            };
            fresh.push((nibble, self.merge(child_path, child, group)?));
        }
        if let Some((nibble, node)) = carried {
            let at = self.join(&path, &[nibble])?;
            fresh.push((nibble, Some(self.unchanged(&at, node)?)));
        }
        self.rejoin(path, branch, fresh)
    }

    /// As [`Merge::branch`], where no update removes anything: then the branch stays one.
    fn grown_branch<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &'c [LeafUpdate<'c>],
    ) -> Result<Built, Fault> {
        // Its children hang on it before it is whole.
        let mut hanging = Hanging::default();
        while let Some((nibble, group)) = take_group(&mut updates, path.len()) {
            let child_path = self.join(&path, &[nibble])?;
            let before = branch.get(nibble);
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.lend(nibble), group)?,
            };
            let child = self.merge(child_path, child, group)?;
            let child = child.expect("nothing was removed");
            self.hang(&child_path, before, child, &mut hanging, nibble);
        }
        if let Some((nibble, node)) = carried {
            let at = self.join(&path, &[nibble])?;
            let child = self.unchanged(&at, node)?;
            self.hang(&at, NodeRef::Empty, child, &mut hanging, nibble);
        }
        let node = Held::Branch(branch);
        Ok(Built { node, hanging })
    }

    /// A node in hand that stands at `path`.
    fn unchanged(&self, path: &Path, node: Node) -> Result<Top<'static>, Fault> {
        match Held::of(node) {
            Ok(held) => Ok(Top::Inner(held.into())),
            Err((rest, value)) => self.leaf(path, &rest, value).map(Top::Leaf),
        }
    }

    /// Puts changed children back into their branch, which falls together if one is left.
    fn rejoin<'c>(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        fresh: Vec<(u8, Option<Top<'c>>)>,
    ) -> Result<Option<Top<'c>>, Fault> {
        let changed = fresh.iter().fold(0_u16, |mask, (at, _)| mask | 1 << at);
        let mut kept = branch.children().filter(|(at, _)| changed >> at & 1 == 0);
        let only_kept = kept.next().map(|(nibble, _)| nibble);
        let living = fresh.iter().filter(|(_, node)| node.is_some()).count();
        let children = usize::from(only_kept.is_some()) + kept.count() + living;
        let falls = children + usize::from(branch.value().is_some()) < 2;
        if !falls {
            let before: Vec<NodeRef> = fresh.iter().map(|(at, _)| branch.get(*at)).collect();
            let mut built = Built::from(Held::Branch(branch));
            for ((nibble, node), before) in fresh.into_iter().zip(before) {
                let child_path = self.join(&path, &[nibble])?;
                self.settle(&child_path, before, node, &mut built, nibble);
            }
            return Ok(Some(Top::Inner(built)));
        }

        let mut last = None;
        for (nibble, node) in fresh {
            let at = self.join(&path, &[nibble])?;
            match node {
                Some(node) => last = Some((nibble, node, true)),
                None => self.remove(&at, &branch.get(nibble)),
            }
        }
        if let Some(nibble) = only_kept {
            let child_path = self.join(&path, &[nibble])?;
            if let Some(node) = self.resolve(&child_path, branch.lend(nibble), &[])? {
                last = Some((nibble, self.unchanged(&child_path, node)?, false));
            }
        }
        match last {
            Some((nibble, node, is_fresh)) => {
                let at = self.join(&path, &[nibble])?;
                let before = branch.get(nibble);
                self.lift(&at, 1, before, (node, is_fresh)).map(Some)
            }
            None => Ok(branch.value().map(|value| {
                let (key, value) = (path, Cow::Owned(value.to_vec()));
                Top::Leaf(Leaf { key, value })
            })),
        }
    }

    fn extension<'c>(
        &mut self,
        path: Path,
        stored: Extension,
        updates: &'c [LeafUpdate<'c>],
    ) -> Result<Option<Top<'c>>, Fault> {
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
            return Ok(Some(Top::Inner(extension(skipped, child))));
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
            Some(node) => self.lift(&below, split, before, (node, true)).map(Some),
            None => {
                self.remove(&below, &before);
                Ok(None)
            }
        }
    }

    /// The node that stands `count` nibbles above `path` if all below it is the given node at
    /// `path`; the flag says whether that node is new. Its parent named it `before`.
    fn lift<'c>(
        &mut self,
        path: &Path,
        count: usize,
        before: NodeRef,
        (mut top, is_fresh): (Top<'c>, bool),
    ) -> Result<Top<'c>, Fault> {
        let prefix = path.skip(path.len() - count);
        match &mut top {
            // Its key tells all.
            Top::Leaf(_) => {}
            Top::Inner(Built {
                node: Held::Extension(extension),
                ..
            }) => {
                let whole = prefix.join(extension.path.as_slice());
                extension.path = whole.ok_or_else(|| self.too_long(path))?;
            }
            Top::Inner(_) => {
                let Top::Inner(branch) = top else {
                    unreachable!("it was just looked at");
                };
                return Ok(Top::Inner(match is_fresh {
                    true => self.extend(prefix, *path, before, branch),
                    false => self.reach(prefix, before, branch.node),
                }));
            }
        }
        self.remove(path, &before);
        Ok(top)
    }

    /// An extension by `path` to a branch that stays as it was.
    fn reach(&mut self, path: Path, reference: NodeRef, branch: Held) -> Built {
        let is_named = matches!(reference, NodeRef::Hash(_));
        let held = Some(branch).filter(|_| is_named);
        held.iter().for_each(|held| self.drafts.put_back(held));
        extension(path, Child { reference, held })
    }

    /// Hangs what now stands at `path`, where the parent held `before`, below `parent` as the
    /// child `slot`.
    fn settle(
        &mut self,
        path: &Path,
        before: NodeRef,
        node: Option<Top<'_>>,
        parent: &mut Built,
        slot: u8,
    ) {
        match node {
            Some(node) => self.hang(path, before, node, &mut parent.hanging, slot),
            None => {
                self.remove(path, &before);
                parent.set_child(slot, Child::default());
            }
        }
    }

    fn hang(
        &mut self,
        path: &Path,
        before: NodeRef,
        node: Top<'_>,
        hanging: &mut Hanging,
        slot: u8,
    ) {
        match node {
            Top::Leaf(leaf) => {
                self.remove(path, &before);
                self.drafts.hang_leaf(&leaf, path.len(), hanging, slot);
            }
            Top::Inner(built) => {
                let was_stored = matches!(before, NodeRef::Hash(_));
                self.drafts.hang(*path, was_stored, built, hanging, slot);
            }
        }
    }

    /// Nothing stands at `path` any more, where the parent held `before`.
    fn remove(&mut self, path: &Path, before: &NodeRef) {
        if matches!(before, NodeRef::Hash(_)) {
            self.drafts.remove(*path);
        }
    }

    /// The node that `child` names. `None` if there is none, or if it is a leaf that one of
    /// `updates` replaces.
    fn resolve(
        &mut self,
        path: &Path,
        child: Child,
        updates: &[LeafUpdate<'_>],
    ) -> Result<Option<Node>, Fault> {
        if let Some(held) = child.held {
            self.drafts.taken(&held);
            return Ok(Some(held.into()));
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

fn extension(path: Path, child: Child) -> Built {
    Held::Extension(Box::new(Extension { path, child })).into()
}

/// The first of `updates` that agree in the nibble at `depth`, with that nibble.
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
