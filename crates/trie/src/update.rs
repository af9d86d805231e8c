//! Sorted changes merged into tries in memory: one pass down the touched paths and back up.
//!
//! Goes in: [`Trie`]s, a [`TrieView`] for what they do not have in memory, and changed leaves in key
//! order. Comes out: the tries, changed, and the rows that a store must set or remove. Nodes are
//! taken out of their parents on the way down and hashed at the end, those of one height together,
//! whatever trie they are of.

use crate::branch::{Child, Held};
use crate::draft::{Built, Drafts, Outcome, Rows};
use crate::path::common_prefix;
use crate::view::{fault_key, segment};
use crate::{Branch, Extension, MalformedNode, Node, NodeRef, Owner, Path, Trie, TrieView};
use niwaki_primitives::Fault;

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

/// One trie that is to change.
#[derive(Debug)]
pub struct TrieUpdate<'a> {
    /// Which trie.
    pub owner: Owner,
    /// The trie.
    pub trie: &'a mut Trie,
    /// Its changed leaves, their keys strictly ascending.
    pub leaves: &'a [LeafUpdate],
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
        let mut drafts = Drafts::new(self.clock, rows);
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
    pub(crate) fn update_below(
        self,
        (owner, path): (Owner, Path),
        child: Child,
        leaves: &[LeafUpdate],
        rows: &mut Rows<'_>,
    ) -> Result<Outcome, Fault> {
        let mut drafts = Drafts::new(self.clock, rows);
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
        tops: Vec<(u8, Option<Node>)>,
        rows: &mut Rows<'_>,
    ) -> Result<Outcome, Fault> {
        let mut drafts = Drafts::new(self.clock, rows);
        drafts.begin(owner);
        let mut merge = Merge::new(self.view, owner, &mut drafts);
        let tops = tops.into_iter();
        let tops = tops.map(|(nibble, top)| (nibble, top.map(Built::from)));
        let root = merge.rejoin(Path::EMPTY, branch, tops.collect())?;
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
            Some(Node::Extension(extension)) => self.extension(path, *extension, updates),
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
        let mut built = extension(path, Child::default());
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
        let removes = updates.iter().any(|update| update.value.is_none());
        if let Some((first, rest)) = updates.split_first()
            && first.key.len() == depth
        {
            branch.value = first.value.clone().unwrap_or_default();
            updates = rest;
        }
        if !removes {
            return self.grown_branch(path, branch, carried, updates).map(Some);
        }
        let mut fresh: Vec<(u8, Option<Built>)> = Vec::with_capacity(updates.len().min(16));
        while let Some((nibble, group)) = take_group(&mut updates, depth) {
            let child_path = self.join(&path, &[nibble])?;
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.lend(nibble), group)?,
            };
            fresh.push((nibble, self.merge(child_path, child, group)?));
        }
        fresh.extend(carried.map(|(nibble, node)| (nibble, Some(node.into()))));
        self.rejoin(path, branch, fresh)
    }

    /// As [`Merge::branch`], where no update removes anything: then the branch stays one.
    fn grown_branch(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        mut carried: Option<(u8, Node)>,
        mut updates: &[LeafUpdate],
    ) -> Result<Built, Fault> {
        // Its children hang on it before it is whole.
        let mut built = Built::from(Node::GONE);
        while let Some((nibble, group)) = take_group(&mut updates, path.len()) {
            let child_path = self.join(&path, &[nibble])?;
            let before = branch.get(nibble);
            let child = match carried.take_if(|(at, _)| *at == nibble) {
                Some((_, node)) => Some(node),
                None => self.resolve(&child_path, branch.lend(nibble), group)?,
            };
            let child = self.merge(child_path, child, group)?;
            self.settle(&child_path, before, child, &mut built, nibble);
        }
        if let Some((nibble, node)) = carried {
            let child_path = self.join(&path, &[nibble])?;
            self.settle(
                &child_path,
                NodeRef::Empty,
                Some(node.into()),
                &mut built,
                nibble,
            );
        }
        built.node = Node::Branch(branch);
        Ok(built)
    }

    /// Puts changed children back into their branch, which falls together if one is left.
    fn rejoin(
        &mut self,
        path: Path,
        mut branch: Box<Branch>,
        fresh: Vec<(u8, Option<Built>)>,
    ) -> Result<Option<Built>, Fault> {
        let changed = fresh.iter().fold(0_u16, |mask, (at, _)| mask | 1 << at);
        let mut kept = branch.children().filter(|(at, _)| changed >> at & 1 == 0);
        let only_kept = kept.next().map(|(nibble, _)| nibble);
        let living = fresh.iter().filter(|(_, node)| node.is_some()).count();
        let children = usize::from(only_kept.is_some()) + kept.count() + living;
        let falls = children + usize::from(!branch.value.is_empty()) < 2;
        if !falls {
            let before: Vec<NodeRef> = fresh.iter().map(|(at, _)| branch.get(*at)).collect();
            let mut built = Built::from(Node::Branch(branch));
            for ((nibble, node), before) in fresh.into_iter().zip(before) {
                let child_path = self.join(&path, &[nibble])?;
                self.settle(&child_path, before, node, &mut built, nibble);
            }
            return Ok(Some(built));
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
            let node = self.resolve(&child_path, branch.lend(nibble), &[])?;
            last = node.map(|node| (nibble, node.into(), false));
        }
        match last {
            Some((nibble, node, is_fresh)) => {
                let at = self.join(&path, &[nibble])?;
                let before = branch.get(nibble);
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
        stored: Extension,
        updates: &[LeafUpdate],
    ) -> Result<Option<Built>, Fault> {
        let depth = path.len();
        let Extension {
            path: skipped,
            child,
        } = stored;
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
            return Ok(Some(extension(skipped, child)));
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
                    let node = extension(skipped.skip(split + 1), child).node;
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
    fn lift(
        &mut self,
        path: &Path,
        count: usize,
        before: NodeRef,
        (mut built, is_fresh): (Built, bool),
    ) -> Result<Built, Fault> {
        let prefix = path.skip(path.len() - count);
        let rest = match &mut built.node {
            Node::Leaf { path, .. } => path,
            Node::Extension(extension) => &mut extension.path,
            Node::Branch(_) if is_fresh => return Ok(self.extend(prefix, *path, before, built)),
            Node::Branch(_) => {
                let is_named = matches!(before, NodeRef::Hash(_));
                let held = Held::of(built.node).filter(|_| is_named);
                held.iter().for_each(|held| self.drafts.put_back(held));
                let reference = before;
                return Ok(extension(prefix, Child { reference, held }));
            }
        };
        let whole = prefix.join(rest.as_slice());
        *rest = whole.ok_or_else(|| self.too_long(path))?;
        self.remove(path, &before);
        Ok(built)
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
                let draft = self.drafts.add(*path, was_stored, node);
                parent.hang(slot, draft, self.drafts);
            }
            None => {
                self.remove(path, &before);
                parent.set_child(slot, Child::default());
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
        updates: &[LeafUpdate],
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
    Node::Extension(Box::new(Extension { path, child })).into()
}

/// The first of `updates` that agree in the nibble at `depth`, with that nibble.
fn take_group<'a>(updates: &mut &'a [LeafUpdate], depth: usize) -> Option<(u8, &'a [LeafUpdate])> {
    let nibble = updates.first()?.key.as_slice()[depth];
    let count = updates.partition_point(|update| update.key.as_slice()[depth] <= nibble);
    let (group, rest) = updates.split_at(count);
    *updates = rest;
    Some((nibble, group))
}
