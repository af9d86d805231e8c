//! New nodes of tries that wait for their hashes.
//!
//! A node can be encoded when all its children have their references. So nodes are hashed by
//! height, from the leaves up, all of one height in one batch, of however many tries, and put into
//! their parents when they are.

use crate::branch::{Child, Held};
use crate::{InlineNode, Node, NodeRef, Owner, Path};
use alloy_primitives::B256;
use niwaki_crypto::keccak256_batch;
use std::ops::Range;

/// What is told of each changed row: the trie, the path, and the row to set there, or `None` if
/// there is none any more.
pub(crate) type Rows<'a> = dyn FnMut(&Owner, &Path, Option<&[u8]>) + 'a;

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
        let child = &mut drafts.list[draft as usize];
        child.slot = slot;
        child.next = self.children;
        self.children = draft;
        // A trie is at most 65 nodes high.
        self.height = self.height.max(child.height + 1);
    }

    pub(crate) fn set_child(&mut self, slot: u8, child: Child) {
        set_child(&mut self.node, slot, child);
    }
}

fn set_child(node: &mut Node, slot: u8, child: Child) {
    match node {
        Node::Branch(branch) => branch.put(slot, child),
        Node::Extension(extension) => extension.child = child,
        Node::Leaf { .. } => unreachable!("a leaf has no children"),
    }
}

struct Draft {
    part: u32,
    path: Path,
    node: Node,
    height: u8,
    /// The store has a row at the path.
    was_stored: bool,
    /// [`NONE`] for the top of a part.
    parent: u32,
    slot: u8,
    /// The next child of the same parent.
    next: u32,
}

/// What has become of a part: a trie or a subtrie.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The root of a trie.
    pub(crate) root: Child,
    /// The top of a subtrie, which has no hash yet, with all below it in place.
    pub(crate) top: Option<Node>,
    /// Bytes of nodes taken out of memory, and put back.
    pub(crate) taken: usize,
    pub(crate) put: usize,
}

/// The new nodes of some parts.
pub(crate) struct Drafts<'a> {
    list: Vec<Draft>,
    /// Of each part, its trie.
    owners: Vec<Owner>,
    outcomes: Vec<Outcome>,
    clock: u32,
    rows: &'a mut Rows<'a>,
}

impl<'a> Drafts<'a> {
    pub(crate) fn new(clock: u32, rows: &'a mut Rows<'a>) -> Self {
        Self {
            list: Vec::new(),
            owners: Vec::new(),
            outcomes: Vec::new(),
            clock,
            rows,
        }
    }

    /// Begins the next part.
    pub(crate) fn begin(&mut self, owner: Owner) {
        self.owners.push(owner);
        self.outcomes.push(Outcome::default());
    }

    fn outcome(&mut self) -> &mut Outcome {
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

    /// Adds a node of the present part at its path, where the store has a row or not.
    pub(crate) fn add(&mut self, path: Path, was_stored: bool, built: Built) -> u32 {
        let index = u32::try_from(self.list.len()).expect("fewer nodes than 2^32 change at once");
        self.adopt(index, built.children);
        let part = u32::try_from(self.outcomes.len() - 1).expect("fewer parts than nodes");
        self.list.push(Draft {
            part,
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

    fn adopt(&mut self, parent: u32, mut child: u32) {
        while child != NONE {
            let draft = &mut self.list[child as usize];
            draft.parent = parent;
            child = draft.next;
        }
    }

    /// Ends a part that is a trie, which has become `root`.
    pub(crate) fn add_root(&mut self, was_stored: bool, root: Option<Built>) {
        match root {
            Some(root) => {
                self.add(Path::EMPTY, was_stored, root);
            }
            None if was_stored => self.remove(Path::EMPTY),
            None => {}
        }
    }

    /// The row of the present part's trie at `path` goes.
    pub(crate) fn remove(&mut self, path: Path) {
        let owner = self.owners.last().expect("a part was begun");
        (self.rows)(owner, &path, None);
    }

    /// Hashes everything of parts that are tries: what has become of each.
    pub(crate) fn hash(mut self) -> Vec<Outcome> {
        self.hash_all();
        self.outcomes
    }

    /// Hashes all below the top of the only part, a subtrie.
    pub(crate) fn hash_below(mut self, top: Option<Built>) -> Outcome {
        if let Some(top) = top {
            let index = self.add(Path::EMPTY, false, top);
            self.list[index as usize].height = u8::MAX;
            self.hash_all();
            self.outcome().top = self.list.pop().map(|draft| draft.node);
        }
        self.outcomes.pop().expect("one part was begun")
    }

    fn hash_all(&mut self) {
        let height = |list: &[Draft], index: u32| list[index as usize].height;
        let mut order: Vec<u32> = (0..).take(self.list.len()).collect();
        order.sort_by_key(|index| height(&self.list, *index));
        let mut buffer = Vec::new();
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let lowest = height(&self.list, *first);
            // The top of a subtrie, which was added last.
            if lowest == u8::MAX {
                return;
            }
            let count = rest.partition_point(|index| height(&self.list, *index) == lowest);
            let (level, higher) = rest.split_at(count);
            for nodes in level.chunks(NODES_AT_ONCE) {
                self.hash_nodes(nodes, &mut buffer);
            }
            rest = higher;
        }
    }

    /// Gives nodes of one height their references, and puts them into their parents or makes them
    /// roots.
    fn hash_nodes(&mut self, nodes: &[u32], buffer: &mut Vec<u8>) {
        buffer.clear();
        let mut rows: Vec<Range<usize>> = Vec::with_capacity(nodes.len());
        for index in nodes {
            let start = buffer.len();
            self.list[*index as usize].node.encode_row(buffer);
            rows.push(start..buffer.len());
        }
        let rlp = |row: &Range<usize>| &buffer[row.start + Node::ROW_MASK_BYTES..row.end];
        let messages: Vec<&[u8]> = rows.iter().map(rlp).collect();
        let hashes = keccak256_batch(&messages);
        for ((index, row), hash) in nodes.iter().zip(&rows).zip(hashes) {
            self.place(*index, &buffer[row.clone()], hash);
        }
    }

    /// Puts a node in its place, now that its row and hash are known.
    fn place(&mut self, index: u32, row: &[u8], hash: B256) {
        let draft = &mut self.list[index as usize];
        let (parent, slot) = (draft.parent, draft.slot);
        let node = std::mem::replace(&mut draft.node, Node::GONE);
        let is_leaf = matches!(node, Node::Leaf { .. });
        let rlp = &row[Node::ROW_MASK_BYTES..];
        let inline = InlineNode::new(rlp).filter(|_| parent != NONE);
        let owner = &self.owners[draft.part as usize];
        let outcome = &mut self.outcomes[draft.part as usize];
        let child = match inline {
            Some(inline) => NodeRef::Inline(inline).into(),
            None if is_leaf => NodeRef::Leaf(hash).into(),
            None => {
                (self.rows)(owner, &draft.path, Some(row));
                let mut held = Held::of(node);
                if let Some(Held::Branch(branch)) = &mut held {
                    branch.used = self.clock;
                }
                outcome.put += held.as_ref().map_or(0, Held::bytes);
                let reference = NodeRef::Hash(hash);
                Child { reference, held }
            }
        };
        if draft.was_stored && !matches!(child.reference, NodeRef::Hash(_)) {
            (self.rows)(owner, &draft.path, None);
        }
        match parent {
            NONE => outcome.root = child,
            parent => set_child(&mut self.list[parent as usize].node, slot, child),
        }
    }
}

/// Nodes that are encoded, hashed and copied before the next ones, so that their bytes stay in the
/// first caches.
const NODES_AT_ONCE: usize = 64;
