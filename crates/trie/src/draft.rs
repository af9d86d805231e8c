//! New nodes of tries that wait for their hashes.
//!
//! A node can be encoded when all its children have their references. So nodes are hashed by
//! height, from the leaves up, all of one height in one batch, of however many tries, and put into
//! their parents when they are.

use crate::branch::{Child, Held};
use crate::node::encode_leaf;
use crate::{InlineNode, LeafUpdate, Node, NodeRef, Owner, Path};
use alloy_primitives::{B256, keccak256};
use niwaki_crypto::keccak256_batch;
use std::borrow::Cow;
use std::ops::Range;

/// What is told of each changed row: the trie, the path, and the row to set there, or `None` if
/// there is none any more.
pub(crate) type Rows<'a> = dyn FnMut(&Owner, &Path, Option<&[u8]>) + 'a;

/// What is to stand at a place, which its parent gives it.
#[derive(Debug)]
pub(crate) enum Top<'a> {
    Leaf(Leaf<'a>),
    Inner(Built),
}

/// A leaf by its whole key.
#[derive(Debug)]
pub(crate) struct Leaf<'a> {
    pub(crate) key: Path,
    pub(crate) value: Cow<'a, [u8]>,
}

/// A new inner node, and which of its children wait among the drafts.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) node: Held,
    pub(crate) hanging: Hanging,
}

/// The children of a new node that wait.
#[derive(Debug)]
pub(crate) struct Hanging {
    /// One more than the height of the highest; zero if none waits.
    height: u8,
    /// The first of them; each names the next.
    first: u32,
}

impl Default for Hanging {
    fn default() -> Self {
        Self {
            height: 0,
            first: NONE,
        }
    }
}

const NONE: u32 = u32::MAX;
/// Set in the number of a draft that is a leaf.
const LEAF: u32 = 1 << 31;

impl From<Held> for Built {
    fn from(node: Held) -> Self {
        let hanging = Hanging::default();
        Self { node, hanging }
    }
}

impl Built {
    pub(crate) fn set_child(&mut self, slot: u8, child: Child) {
        set_child(&mut self.node, slot, child);
    }
}

fn set_child(node: &mut Held, slot: u8, child: Child) {
    match node {
        Held::Branch(branch) => branch.put(slot, child),
        Held::Extension(extension) => extension.child = child,
    }
}

/// Where a draft hangs.
#[derive(Clone, Copy)]
struct Place {
    /// [`NONE`] for the top of a part.
    parent: u32,
    slot: u8,
    /// The next child of the same parent.
    next: u32,
}

struct Draft {
    part: u32,
    path: Path,
    /// `None` once it is in its place.
    node: Option<Held>,
    height: u8,
    /// The store has a row at the path.
    was_stored: bool,
    place: Place,
}

struct LeafDraft {
    /// Where its RLP ends among that of all leaves.
    end: usize,
    place: Place,
}

/// What has become of a part: a trie or a subtrie.
#[derive(Debug, Default)]
pub(crate) struct Outcome<'a> {
    /// The root of a trie.
    pub(crate) root: Child,
    /// The top of a subtrie, which has no hash yet, with all below it in place.
    pub(crate) top: Option<Top<'a>>,
    /// Bytes of nodes taken out of memory, and put back.
    pub(crate) taken: usize,
    pub(crate) put: usize,
}

/// The new nodes of some parts.
pub(crate) struct Drafts<'a> {
    list: Vec<Draft>,
    leaves: Vec<LeafDraft>,
    leaf_rlp: Vec<u8>,
    /// Of each part, its trie.
    owners: Vec<Owner>,
    outcomes: Vec<Outcome<'static>>,
    clock: u32,
    rows: &'a mut Rows<'a>,
}

impl<'a> Drafts<'a> {
    pub(crate) fn new(clock: u32, rows: &'a mut Rows<'a>) -> Self {
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

    /// The same, with room for about what `leaves` bring.
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
        self.outcomes.push(Outcome::default());
    }

    fn outcome(&mut self) -> &mut Outcome<'static> {
        self.outcomes.last_mut().expect("a part was begun")
    }

    /// Counts a node that left its place in memory.
    pub(crate) fn taken(&mut self, held: &Held) {
        self.outcome().taken += held.bytes();
    }

    /// Counts a node that is put back as it was.
    pub(crate) fn put_back(&mut self, held: &Held) {
        self.outcome().put += held.bytes();
    }

    /// Hangs a node of the present part, which stands at `path`, where the store has a row or not,
    /// as child `slot` (of an extension: 0).
    pub(crate) fn hang(
        &mut self,
        path: Path,
        was_stored: bool,
        built: Built,
        below: &mut Hanging,
        slot: u8,
    ) {
        // A trie is at most 65 nodes high.
        below.height = below.height.max(built.hanging.height + 1);
        let (parent, next) = (NONE, below.first);
        let place = Place { parent, slot, next };
        below.first = self.add(path, was_stored, built, place);
    }

    /// As [`Drafts::hang`], of a leaf that stands `depth` nibbles down.
    pub(crate) fn hang_leaf(
        &mut self,
        leaf: &Leaf<'_>,
        depth: usize,
        below: &mut Hanging,
        slot: u8,
    ) {
        encode_leaf(&leaf.key, depth, &leaf.value, &mut self.leaf_rlp);
        let end = self.leaf_rlp.len();
        let (parent, next) = (NONE, below.first);
        let place = Place { parent, slot, next };
        below.height = below.height.max(1);
        below.first = LEAF | number(self.leaves.len());
        self.leaves.push(LeafDraft { end, place });
    }

    fn add(&mut self, path: Path, was_stored: bool, built: Built, place: Place) -> u32 {
        let index = number(self.list.len());
        let mut child = built.hanging.first;
        while child != NONE {
            let place = match child & LEAF {
                0 => &mut self.list[child as usize].place,
                _ => &mut self.leaves[(child ^ LEAF) as usize].place,
            };
            place.parent = index;
            child = place.next;
        }
        self.list.push(Draft {
            part: number(self.outcomes.len() - 1),
            path,
            node: Some(built.node),
            height: built.hanging.height,
            was_stored,
            place,
        });
        index
    }

    /// Ends a part that is a trie, which has become `root`.
    pub(crate) fn add_root(&mut self, was_stored: bool, root: Option<Top<'_>>) {
        if let Some(Top::Inner(built)) = root {
            self.add(Path::EMPTY, was_stored, built, Place::TOP);
            return;
        }
        if let Some(Top::Leaf(leaf)) = root {
            let mut rlp = Vec::new();
            encode_leaf(&leaf.key, 0, &leaf.value, &mut rlp);
            self.outcome().root = NodeRef::Leaf(keccak256(&rlp)).into();
        }
        if was_stored {
            self.remove(Path::EMPTY);
        }
    }

    /// The row of the present part's trie at `path` goes.
    pub(crate) fn remove(&mut self, path: Path) {
        let owner = self.owners.last().expect("a part was begun");
        (self.rows)(owner, &path, None);
    }

    /// Hashes everything of parts that are tries: what has become of each.
    pub(crate) fn hash(mut self) -> Vec<Outcome<'static>> {
        self.hash_all();
        self.outcomes
    }

    /// Hashes all below the top of the only part, a subtrie.
    pub(crate) fn hash_below(mut self, top: Option<Top<'_>>) -> Outcome<'_> {
        let top = match top {
            Some(Top::Inner(built)) => {
                let index = self.add(Path::EMPTY, false, built, Place::TOP);
                self.list[index as usize].height = TOP_HEIGHT;
                self.hash_all();
                let top = self.list.pop().and_then(|draft| draft.node);
                top.map(|node| Top::Inner(node.into()))
            }
            other => other,
        };
        let outcome = self.outcomes.pop().expect("one part was begun");
        Outcome { top, ..outcome }
    }

    fn hash_all(&mut self) {
        self.hash_leaves();
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for (index, draft) in (0_u32..).zip(&self.list) {
            let height = usize::from(draft.height);
            if draft.height != TOP_HEIGHT {
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
            let rlp = |leaf: &LeafDraft| {
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
                self.put(leaf.place, reference.into());
            }
        }
    }

    /// Gives nodes of one height their references, and puts them into their parents or makes them
    /// roots.
    fn hash_nodes(&mut self, nodes: &[u32], buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut extensions: Vec<Range<usize>> = Vec::with_capacity(nodes.len());
        for index in nodes {
            let start = buffer.len();
            if let Held::Extension(extension) = self.node(*index) {
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

    fn node(&self, index: u32) -> &Held {
        let node = &self.list[index as usize].node;
        node.as_ref().expect("a node is hashed once")
    }

    /// Puts a node in its place, now that its hash is known.
    fn finish(&mut self, index: u32, extension: &[u8], hash: B256) {
        let draft = &mut self.list[index as usize];
        let mut node = draft.node.take().expect("a node is hashed once");
        let is_top = draft.place.parent == NONE;
        let owner = &self.owners[draft.part as usize];
        let outcome = &mut self.outcomes[draft.part as usize];
        let row = row(&node, extension);
        let inline = InlineNode::new(&row[Node::ROW_MASK_BYTES..]).filter(|_| !is_top);
        let child = match inline {
            Some(inline) => {
                if draft.was_stored {
                    (self.rows)(owner, &draft.path, None);
                }
                NodeRef::Inline(inline).into()
            }
            None => {
                (self.rows)(owner, &draft.path, Some(row));
                if let Held::Branch(branch) = &mut node {
                    branch.used = self.clock;
                }
                outcome.put += node.bytes();
                Child {
                    reference: NodeRef::Hash(hash),
                    held: Some(node),
                }
            }
        };
        match is_top {
            true => outcome.root = child,
            false => {
                let place = draft.place;
                self.put(place, child);
            }
        }
    }

    fn put(&mut self, place: Place, child: Child) {
        let parent = &mut self.list[place.parent as usize].node;
        let parent = parent
            .as_mut()
            .expect("a parent is hashed after its children");
        set_child(parent, place.slot, child);
    }
}

impl Place {
    /// That of the top of a part.
    const TOP: Self = Self {
        parent: NONE,
        slot: 0,
        next: NONE,
    };
}

/// The stored row of `node`, which is given if it is an extension.
fn row<'a>(node: &'a Held, extension: &'a [u8]) -> &'a [u8] {
    match node {
        Held::Branch(branch) => branch.row(),
        Held::Extension(_) => extension,
    }
}

fn number(count: usize) -> u32 {
    let count = u32::try_from(count).ok().filter(|count| count & LEAF == 0);
    count.expect("fewer nodes than 2^31 change at once")
}

/// Bytes that a leaf takes beside its value, at most.
const LEAF_BYTES: usize = 48;

/// The height of a top that is not hashed.
const TOP_HEIGHT: u8 = u8::MAX;

/// Nodes that are encoded, hashed and copied before the next ones, so that their bytes stay in the
/// first caches.
const NODES_AT_ONCE: usize = 64;
