//! Dirty nodes: new nodes of tries that have no hash yet.
//!
//! A node can be encoded when all of its children have their references. So nodes are hashed by height, from the
//! leaves up, all nodes of one height in one keccak batch, whatever trie they belong to, and each is then
//! put into its parent:
//!
//! ```text
//! height 2        root A        root B          3rd batch: 2 nodes, their outcomes
//! height 1      x    y  .       z   .           2nd batch: 3 nodes, put into A, A, B
//! leaves       l l  l l  (old)  l l (old)       1st batch: 6 leaves, put into x, x, y, y, z, z
//! ```
//!
//! A node knows its parent by index ([`ParentLink`]). Because children are merged before their parent exists, they
//! first form a list, linked through `next`, that the parent takes over when it is added ([`PendingChildren`]).
//!
//! A *part* is one trie, or one subtrie of a trie that is updated in parallel. `update` merges leaves into parts;
//! this file does everything that comes after.

use crate::branch::{CachedNode, Child};
use crate::node::encode_leaf;
use crate::{InlineNode, LeafUpdate, Node, NodeRef, Owner, Path};
use alloy_primitives::{B256, keccak256};
use niwaki_crypto::keccak256_batch;
use std::borrow::Cow;
use std::ops::Range;

/// Called for each changed row: the trie, the path, and the row to set there, or `None` to remove it.
pub(crate) type RowFn<'a> = dyn FnMut(&Owner, &Path, Option<&[u8]>) + 'a;

/// A new node that has no parent yet.
#[derive(Debug)]
pub(crate) enum NewNode<'a> {
    Leaf(Leaf<'a>),
    Inner(NewInnerNode),
}

/// A leaf by its whole key.
#[derive(Debug)]
pub(crate) struct Leaf<'a> {
    pub(crate) key: Path,
    pub(crate) value: Cow<'a, [u8]>,
}

/// A new inner node, and those of its children that are dirty.
#[derive(Debug)]
pub(crate) struct NewInnerNode {
    pub(crate) node: CachedNode,
    pub(crate) pending: PendingChildren,
}

/// The dirty children of a new node: a list through [`ParentLink::next`].
#[derive(Debug)]
pub(crate) struct PendingChildren {
    /// One more than the height of the highest; zero if there are none.
    height: u8,
    /// The first of them.
    first: u32,
}

impl Default for PendingChildren {
    fn default() -> Self {
        Self {
            height: 0,
            first: NONE,
        }
    }
}

const NONE: u32 = u32::MAX;
/// Set in the index of a dirty leaf.
const LEAF: u32 = 1 << 31;

impl From<CachedNode> for NewInnerNode {
    fn from(node: CachedNode) -> Self {
        let pending = PendingChildren::default();
        Self { node, pending }
    }
}

impl NewInnerNode {
    pub(crate) fn set_child(&mut self, slot: u8, child: Child) {
        set_child(&mut self.node, slot, child);
    }
}

fn set_child(node: &mut CachedNode, slot: u8, child: Child) {
    match node {
        CachedNode::Branch(branch) => branch.put(slot, child),
        CachedNode::Extension(extension) => extension.child = child,
    }
}

/// The link of a dirty node below its parent.
#[derive(Clone, Copy)]
struct ParentLink {
    /// [`NONE`] for the top of a part.
    parent: u32,
    slot: u8,
    /// The next child of the same parent.
    next: u32,
}

struct DirtyNode {
    part: u32,
    path: Path,
    /// `None` once it is put into its parent.
    node: Option<CachedNode>,
    height: u8,
    /// Whether the store has a row at the path.
    was_stored: bool,
    link: ParentLink,
}

struct DirtyLeaf {
    /// Where its RLP ends in [`DirtyNodes::leaf_rlp`].
    end: usize,
    link: ParentLink,
}

/// What a part has become.
#[derive(Debug, Default)]
pub(crate) struct PartOutcome<'a> {
    /// The root of a trie.
    pub(crate) root: Child,
    /// The top of a subtrie, not hashed yet, with everything below it in place.
    pub(crate) top: Option<NewNode<'a>>,
    /// Bytes of nodes that were removed from memory, and added.
    pub(crate) bytes_removed: usize,
    pub(crate) bytes_added: usize,
}

/// The dirty nodes of some parts.
pub(crate) struct DirtyNodes<'a> {
    list: Vec<DirtyNode>,
    leaves: Vec<DirtyLeaf>,
    leaf_rlp: Vec<u8>,
    /// Of each part, its trie.
    owners: Vec<Owner>,
    outcomes: Vec<PartOutcome<'static>>,
    clock: u32,
    rows: &'a mut RowFn<'a>,
}

impl<'a> DirtyNodes<'a> {
    pub(crate) fn new(clock: u32, rows: &'a mut RowFn<'a>) -> Self {
        Self {
            list: Vec::new(),
            leaves: Vec::new(),
            leaf_rlp: Vec::new(),
            owners: Vec::new(),
            outcomes: Vec::new(),
            clock,
            rows,
        }
    }

    /// The same, with room for about the nodes that `leaves` make dirty.
    pub(crate) fn with_room_for<'c>(
        mut self,
        leaves: impl Iterator<Item = &'c LeafUpdate<'c>>,
    ) -> Self {
        let (mut count, mut bytes) = (0, 0);
        for leaf in leaves {
            count += 1;
            bytes += LEAF_BYTES + leaf.value.map_or(0, <[u8]>::len);
        }
        self.list.reserve_exact(2 * count);
        self.leaves.reserve_exact(count);
        self.leaf_rlp.reserve_exact(bytes);
        self
    }

    /// Begins the next part.
    pub(crate) fn begin(&mut self, owner: Owner) {
        self.owners.push(owner);
        self.outcomes.push(PartOutcome::default());
    }

    fn outcome(&mut self) -> &mut PartOutcome<'static> {
        self.outcomes.last_mut().expect("a part was begun")
    }

    /// Counts a node that was removed from memory.
    pub(crate) fn remove_node(&mut self, cached: &CachedNode) {
        self.outcome().bytes_removed += cached.bytes();
    }

    /// Counts a node that goes back to memory unchanged.
    pub(crate) fn keep_node(&mut self, cached: &CachedNode) {
        self.outcome().bytes_added += cached.bytes();
    }

    /// Adds a node of the present part, at `path`, as a child of a node that is added later: the child `slot` (0 of an
    /// extension) of the one that takes `below`. `was_stored` says whether the store has a row at `path`.
    pub(crate) fn attach(
        &mut self,
        path: Path,
        was_stored: bool,
        built: NewInnerNode,
        below: &mut PendingChildren,
        slot: u8,
    ) {
        // A trie is at most 65 nodes high.
        below.height = below.height.max(built.pending.height + 1);
        let (parent, next) = (NONE, below.first);
        let link = ParentLink { parent, slot, next };
        below.first = self.add(path, was_stored, built, link);
    }

    /// As [`DirtyNodes::attach`], of a leaf `depth` nibbles down.
    pub(crate) fn attach_leaf(
        &mut self,
        leaf: &Leaf<'_>,
        depth: usize,
        below: &mut PendingChildren,
        slot: u8,
    ) {
        encode_leaf(&leaf.key, depth, &leaf.value, &mut self.leaf_rlp);
        let end = self.leaf_rlp.len();
        let (parent, next) = (NONE, below.first);
        let link = ParentLink { parent, slot, next };
        below.height = below.height.max(1);
        below.first = LEAF | number(self.leaves.len());
        self.leaves.push(DirtyLeaf { end, link });
    }

    fn add(&mut self, path: Path, was_stored: bool, built: NewInnerNode, link: ParentLink) -> u32 {
        let index = number(self.list.len());
        let mut child = built.pending.first;
        while child != NONE {
            let link = match child & LEAF {
                0 => &mut self.list[child as usize].link,
                _ => &mut self.leaves[(child ^ LEAF) as usize].link,
            };
            link.parent = index;
            child = link.next;
        }
        self.list.push(DirtyNode {
            part: number(self.outcomes.len() - 1),
            path,
            node: Some(built.node),
            height: built.pending.height,
            was_stored,
            link,
        });
        index
    }

    /// Ends a part whose top, at `path`, is now `top`: that of a whole trie, or of a subtrie of a new one.
    pub(crate) fn add_top(&mut self, path: Path, was_stored: bool, top: Option<NewNode<'_>>) {
        if let Some(NewNode::Inner(built)) = top {
            self.add(path, was_stored, built, ParentLink::TOP);
            return;
        }
        if let Some(NewNode::Leaf(leaf)) = top {
            let mut rlp = Vec::new();
            encode_leaf(&leaf.key, path.len(), &leaf.value, &mut rlp);
            self.outcome().root = NodeRef::Leaf(keccak256(&rlp)).into();
        }
        if was_stored {
            self.remove(path);
        }
    }

    /// Removes the row at `path` of the present part's trie.
    pub(crate) fn remove(&mut self, path: Path) {
        let owner = self.owners.last().expect("a part was begun");
        (self.rows)(owner, &path, None);
    }

    /// Hashes all nodes, the tops of all parts too.
    pub(crate) fn hash(mut self) -> Vec<PartOutcome<'static>> {
        self.hash_all();
        self.outcomes
    }

    /// Hashes everything below `top`, the top of the only part, a subtrie.
    pub(crate) fn hash_below(mut self, top: Option<NewNode<'_>>) -> PartOutcome<'_> {
        let top = match top {
            Some(NewNode::Inner(built)) => {
                let index = self.add(Path::EMPTY, false, built, ParentLink::TOP);
                self.list[index as usize].height = TOP_HEIGHT;
                self.hash_all();
                let top = self.list.pop().and_then(|dirty| dirty.node);
                top.map(|node| NewNode::Inner(node.into()))
            }
            other => other,
        };
        let outcome = self.outcomes.pop().expect("one part was begun");
        PartOutcome { top, ..outcome }
    }

    fn hash_all(&mut self) {
        self.hash_leaves();
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for (index, dirty) in (0_u32..).zip(&self.list) {
            let height = usize::from(dirty.height);
            if dirty.height != TOP_HEIGHT {
                if levels.len() <= height {
                    levels.resize_with(height + 1, Vec::new);
                }
                levels[height].push(index);
            }
        }
        let mut buffer = Vec::new();
        for nodes in levels.iter().flat_map(|level| level.chunks(NODES_AT_ONCE)) {
            self.hash_nodes(nodes, &mut buffer);
        }
    }

    fn hash_leaves(&mut self) {
        let (leaves, bytes) = (
            std::mem::take(&mut self.leaves),
            std::mem::take(&mut self.leaf_rlp),
        );
        let mut start = 0;
        for leaves in leaves.chunks(NODES_AT_ONCE) {
            let rlp = |leaf: &DirtyLeaf| {
                let rlp = &bytes[start..leaf.end];
                start = leaf.end;
                rlp
            };
            let messages: Vec<&[u8]> = leaves.iter().map(rlp).collect();
            let hashes = keccak256_batch(&messages);
            for ((leaf, rlp), hash) in leaves.iter().zip(messages).zip(hashes) {
                let reference = match InlineNode::new(rlp) {
                    Some(inline) => NodeRef::Inline(inline),
                    None => NodeRef::Leaf(hash),
                };
                self.put(leaf.link, reference.into());
            }
        }
    }

    /// Hashes nodes of one height and puts them into their parents, or into the outcome of their part.
    fn hash_nodes(&mut self, nodes: &[u32], buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut extensions: Vec<Range<usize>> = Vec::with_capacity(nodes.len());
        for index in nodes {
            let start = buffer.len();
            if let CachedNode::Extension(extension) = self.node(*index) {
                extension.encode_row(buffer);
            }
            extensions.push(start..buffer.len());
        }
        let rlp = |(index, extension): (&u32, &Range<usize>)| {
            let row = row(self.node(*index), &buffer[extension.clone()]);
            &row[Node::ROW_MASK_BYTES..]
        };
        let messages: Vec<&[u8]> = nodes.iter().zip(&extensions).map(rlp).collect();
        let hashes = keccak256_batch(&messages);
        for ((index, extension), hash) in nodes.iter().zip(extensions).zip(hashes) {
            self.finish(*index, &buffer[extension], hash);
        }
    }

    fn node(&self, index: u32) -> &CachedNode {
        let node = &self.list[index as usize].node;
        node.as_ref().expect("a node is hashed once")
    }

    /// Puts a node into its parent, or into the outcome of its part, now that its hash is known.
    fn finish(&mut self, index: u32, extension: &[u8], hash: B256) {
        let dirty = &mut self.list[index as usize];
        let mut node = dirty.node.take().expect("a node is hashed once");
        let is_top = dirty.link.parent == NONE;
        let owner = &self.owners[dirty.part as usize];
        let outcome = &mut self.outcomes[dirty.part as usize];
        let row = row(&node, extension);
        let inline = InlineNode::new(&row[Node::ROW_MASK_BYTES..]).filter(|_| !is_top);
        let child = match inline {
            Some(inline) => {
                if dirty.was_stored {
                    (self.rows)(owner, &dirty.path, None);
                }
                NodeRef::Inline(inline).into()
            }
            None => {
                (self.rows)(owner, &dirty.path, Some(row));
                if let CachedNode::Branch(branch) = &mut node {
                    branch.used = self.clock;
                }
                outcome.bytes_added += node.bytes();
                Child {
                    reference: NodeRef::Hash(hash),
                    cached: Some(node),
                }
            }
        };
        match is_top {
            true => outcome.root = child,
            false => {
                let link = dirty.link;
                self.put(link, child);
            }
        }
    }

    fn put(&mut self, link: ParentLink, child: Child) {
        let parent = &mut self.list[link.parent as usize].node;
        let parent = parent
            .as_mut()
            .expect("a parent is hashed after its children");
        set_child(parent, link.slot, child);
    }
}

impl ParentLink {
    /// The top of a part has no parent.
    const TOP: Self = Self {
        parent: NONE,
        slot: 0,
        next: NONE,
    };
}

/// The stored row of `node`; that of an extension is encoded by the caller.
fn row<'a>(node: &'a CachedNode, extension: &'a [u8]) -> &'a [u8] {
    match node {
        CachedNode::Branch(branch) => branch.row(),
        CachedNode::Extension(_) => extension,
    }
}

fn number(count: usize) -> u32 {
    let count = u32::try_from(count).ok().filter(|count| count & LEAF == 0);
    count.expect("fewer nodes than 2^31 change at once")
}

/// Bytes of a leaf without its value, at most.
const LEAF_BYTES: usize = 48;

/// The height of a top that is not to be hashed.
const TOP_HEIGHT: u8 = u8::MAX;

/// Nodes that are encoded, hashed and copied before the next ones, so that their bytes stay in the L1 and L2 caches.
const NODES_AT_ONCE: usize = 64;
