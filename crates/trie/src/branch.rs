//! The branch node, and what a parent has of a child: its reference, and the node itself if it is in memory.
//!
//! A branch is stored as its row: the RLP that is hashed, with two bytes in front that say which children are leaves.
//! So a branch is encoded by copying, and changing a child overwrites 32 bytes in place:
//!
//! ```text
//! row:  8001 | f8 91 | a0 <hash 0> | 80 | a0 <hash 2> | ... | 80
//!       ^leaf mask     ^child 0      ^absent                  ^value
//!       (children 0 and 15 are leaves)
//! ```

use crate::node::{encode_string, list_header};
use crate::{Extension, InlineNode, Node, NodeRef, Path};
use alloy_primitives::B256;
use alloy_rlp::Header;
use std::ops::Range;

/// A child as its parent has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// How the parent refers to it.
    pub reference: NodeRef,
    /// The node, if it is in memory. Only inner nodes with a hash reference are cached.
    pub(crate) cached: Option<CachedNode>,
}

impl From<NodeRef> for Child {
    fn from(reference: NodeRef) -> Self {
        let cached = None;
        Self { reference, cached }
    }
}

/// An inner node in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedNode {
    Extension(Box<Extension>),
    Branch(Box<Branch>),
}

impl CachedNode {
    /// An inner node, or the path and value of a leaf.
    pub(crate) fn of(node: Node) -> Result<Self, (Path, Vec<u8>)> {
        match node {
            Node::Leaf { path, value } => Err((path, value)),
            Node::Extension(extension) => Ok(Self::Extension(extension)),
            Node::Branch(branch) => Ok(Self::Branch(branch)),
        }
    }

    /// Bytes of this node, without those of nodes below.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Extension(_) => size_of::<Extension>(),
            Self::Branch(branch) => branch.bytes(),
        }
    }

    /// Reads a byte of every cache line of the node.
    pub(crate) fn touch(&self) -> u32 {
        match self {
            Self::Extension(extension) => u32::from(extension.path.is_empty()),
            Self::Branch(branch) => branch.touch(),
        }
    }
}

impl From<CachedNode> for Node {
    fn from(cached: CachedNode) -> Self {
        match cached {
            CachedNode::Extension(extension) => Self::Extension(extension),
            CachedNode::Branch(branch) => Self::Branch(branch),
        }
    }
}

/// A node with up to 16 children, kept as its stored row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// 2 bytes in which bit `n` is set if child `n` is a leaf that is named by its hash, big-endian;
    /// then the RLP: a list of 16 children and the value.
    row: Vec<u8>,
    /// One entry per present child, its node if that is in memory; empty if no child is in memory.
    cached: Vec<Option<CachedNode>>,
    /// Bit `n` is set if child `n` is present.
    mask: u16,
    /// Bit `n` is set if child `n` is inline.
    inline: u16,
    /// The clock of [`Trie`](crate::Trie) when an update last went through here.
    pub(crate) used: u32,
}

/// The RLP of an absent child and of an absent value.
const ABSENT: u8 = 0x80;
/// The first byte of the RLP of a hash.
const HASH: u8 = 0xa0;
/// The RLP of a list of less than 56 bytes begins with this and its length.
const SHORT_LIST: u8 = 0xc0;

impl Default for Branch {
    fn default() -> Self {
        let mut row = vec![ABSENT; Self::MASK_BYTES + 1 + 17];
        row[..Self::MASK_BYTES].fill(0);
        row[Self::MASK_BYTES] = SHORT_LIST + 17;
        Self {
            row,
            cached: Vec::new(),
            mask: 0,
            inline: 0,
            used: 0,
        }
    }
}

impl Branch {
    /// Bytes of a row before the RLP.
    const MASK_BYTES: usize = Node::ROW_MASK_BYTES;
    /// Bytes of a row with 16 children named by their hashes and no value.
    const FULL_BYTES: usize = Self::MASK_BYTES + 3 + 16 * 33 + 1;

    /// A branch without children that can take all of them without growing.
    pub(crate) fn with_room() -> Self {
        let mut branch = Self::default();
        let more = Self::FULL_BYTES - branch.row.len();
        branch.row.reserve_exact(more);
        branch
    }

    /// The branch of this RLP, a list of these children and a value; `leaves` are the children
    /// that are leaves if they are named by their hashes.
    pub(crate) fn of_rlp(rlp: &[u8], children: &[NodeRef; 16]) -> Self {
        let mut branch = Self {
            row: [&[0; Self::MASK_BYTES], rlp].concat(),
            cached: Vec::new(),
            mask: 0,
            inline: 0,
            used: 0,
        };
        for (nibble, child) in (0..16).zip(children) {
            branch.set_bits(nibble, child);
        }
        branch
    }

    /// The reference of child `nibble`.
    ///
    /// # Panics
    /// If `nibble` is above 15, as all of its methods do.
    pub fn get(&self, nibble: u8) -> NodeRef {
        if self.find(nibble).is_err() {
            return NodeRef::Empty;
        }
        let item = &self.row[self.item(nibble)];
        if self.inline >> nibble & 1 == 1 {
            let node = InlineNode::new(item);
            return NodeRef::Inline(node.expect("what stands here was an inline node"));
        }
        let hash = B256::from_slice(&item[1..]);
        match self.leaf_mask() >> nibble & 1 {
            1 => NodeRef::Leaf(hash),
            _ => NodeRef::Hash(hash),
        }
    }

    /// Sets child `nibble`, whose node is not in memory; an empty reference removes it.
    pub fn set(&mut self, nibble: u8, reference: NodeRef) {
        self.put(nibble, reference.into());
    }

    /// The present children, ascending by nibble.
    pub fn children(&self) -> impl Iterator<Item = (u8, NodeRef)> {
        let nibbles = (0_u8..16).filter(|nibble| self.mask >> nibble & 1 == 1);
        nibbles.map(|nibble| (nibble, self.get(nibble)))
    }

    /// How many children there are.
    pub fn len(&self) -> usize {
        self.mask.count_ones() as usize
    }

    /// Whether there is no child.
    pub fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// The value of the key that ends here; none does where all keys have the same length.
    pub fn value(&self) -> Option<&[u8]> {
        let mut rest = &self.row[self.start(16)..];
        let value = Header::decode_bytes(&mut rest, false);
        value.ok().filter(|value| !value.is_empty())
    }

    /// Sets the value of the key that ends here; an empty one removes it.
    pub fn set_value(&mut self, value: &[u8]) {
        let mut item = Vec::new();
        encode_string(value, &mut item);
        self.splice(self.start(16)..self.row.len(), &item);
    }

    pub(crate) fn put(&mut self, nibble: u8, child: Child) {
        let Child { reference, cached } = child;
        let (found, item) = (self.find(nibble), self.item(nibble));
        match &reference {
            NodeRef::Empty => self.splice(item, &[ABSENT]),
            NodeRef::Inline(node) => self.splice(item, node.as_slice()),
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => {
                let mut named = [HASH; 33];
                named[1..].copy_from_slice(hash.as_slice());
                self.splice(item, &named);
            }
        }
        self.set_bits(nibble, &reference);
        let is_there = reference != NodeRef::Empty;
        match found {
            Ok(at) if !is_there && !self.cached.is_empty() => drop(self.cached.remove(at)),
            Err(at) if is_there && !self.cached.is_empty() => self.cached.insert(at, None),
            _ => {}
        }
        let (Ok(at) | Err(at)) = found;
        if cached.is_some() {
            self.add_entries();
        }
        if let Some(entry) = self.cached.get_mut(at).filter(|_| is_there) {
            *entry = cached;
        }
    }

    /// Sets the bits of child `nibble`.
    fn set_bits(&mut self, nibble: u8, reference: &NodeRef) {
        let bit = |is_set: bool| u16::from(is_set) << nibble;
        let without = !bit(true);
        self.mask = self.mask & without | bit(*reference != NodeRef::Empty);
        let is_inline = matches!(reference, NodeRef::Inline(_));
        self.inline = self.inline & without | bit(is_inline);
        let is_leaf = matches!(reference, NodeRef::Leaf(_));
        let leaves = self.leaf_mask() & without | bit(is_leaf);
        self.row[..Self::MASK_BYTES].copy_from_slice(&leaves.to_be_bytes());
    }

    /// Replaces `range` of the row by `bytes`.
    fn splice(&mut self, range: Range<usize>, bytes: &[u8]) {
        if range.len() == bytes.len() {
            self.row[range].copy_from_slice(bytes);
            return;
        }
        let items = self.items();
        let length = self.row.len() - items - range.len() + bytes.len();
        self.row
            .reserve_exact(bytes.len().saturating_sub(range.len()));
        self.row.splice(range, bytes.iter().copied());
        let mut header = Vec::with_capacity(3);
        list_header(length, &mut header);
        self.row.splice(Self::MASK_BYTES..items, header);
    }

    /// Child `nibble`, with its node, which is taken out of the branch; the reference stays.
    pub(crate) fn take_child(&mut self, nibble: u8) -> Child {
        let Ok(at) = self.find(nibble) else {
            return Child::default();
        };
        Child {
            reference: self.get(nibble),
            cached: self.cached.get_mut(at).and_then(Option::take),
        }
    }

    /// Child `nibble` and the entry for its node, if the child is present and there are entries.
    pub(crate) fn entry(&mut self, nibble: u8) -> Option<(NodeRef, &mut Option<CachedNode>)> {
        let at = self.find(nibble).ok()?;
        let reference = self.get(nibble);
        Some((reference, self.cached.get_mut(at)?))
    }

    /// The node of child `nibble`, if it is in memory.
    pub(crate) fn cached_child(&self, nibble: u8) -> Option<&CachedNode> {
        self.cached.get(self.find(nibble).ok()?)?.as_ref()
    }

    fn touch(&self) -> u32 {
        let lines = self.row.iter().step_by(64);
        lines.map(|byte| u32::from(*byte)).sum()
    }

    /// Whether no child has its node in memory and there are no entries for them.
    pub(crate) fn has_no_entries(&self) -> bool {
        self.cached.is_empty()
    }

    /// The entries of the children.
    pub(crate) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Option<CachedNode>> {
        self.cached.iter_mut()
    }

    /// Drops the entries of the children if all are empty.
    pub(crate) fn shrink(&mut self) {
        if self.cached.iter().all(Option::is_none) {
            self.cached = Vec::new();
        }
    }

    /// Adds an empty entry for each present child, if there are none.
    pub(crate) fn add_entries(&mut self) {
        if self.cached.is_empty() {
            self.cached.reserve_exact(self.len());
            self.cached.resize_with(self.len(), || None);
        }
    }

    /// Bytes of this node, without those of nodes below.
    pub(crate) fn bytes(&self) -> usize {
        let cached = self.cached.capacity() * size_of::<Option<CachedNode>>();
        size_of::<Self>() + allocated(self.row.capacity()) + allocated(cached)
    }

    /// The stored row.
    pub(crate) fn row(&self) -> &[u8] {
        &self.row
    }

    /// The index of child `nibble` among the present ones, or where it would be.
    fn find(&self, nibble: u8) -> Result<usize, usize> {
        assert!(nibble < 16, "a nibble is below 16");
        let at = (self.mask & ((1 << nibble) - 1)).count_ones() as usize;
        match self.mask >> nibble & 1 {
            1 => Ok(at),
            _ => Err(at),
        }
    }

    fn leaf_mask(&self) -> u16 {
        u16::from_be_bytes([self.row[0], self.row[1]])
    }

    /// Where the items of the list begin in the row.
    fn items(&self) -> usize {
        let header = match self.row[Self::MASK_BYTES] {
            0xf9 => 3,
            0xf8 => 2,
            _ => 1,
        };
        Self::MASK_BYTES + header
    }

    /// Where item `number` of the list, a child or (16) the value, begins in the row.
    fn start(&self, number: u8) -> usize {
        let before = (1 << number) - 1;
        if u32::from(self.inline) & before != 0 {
            return (0..number).fold(self.items(), |at, _| at + self.length_at(at));
        }
        let hashes = (u32::from(self.mask) & before).count_ones() as usize;
        self.items() + usize::from(number) + 32 * hashes
    }

    /// The range of child `nibble` in the row.
    fn item(&self, nibble: u8) -> Range<usize> {
        let start = self.start(nibble);
        start..start + self.length_at(start)
    }

    /// Bytes of the child that begins at `at`.
    fn length_at(&self, at: usize) -> usize {
        match self.row[at] {
            ABSENT => 1,
            HASH => 33,
            list => usize::from(list.saturating_sub(SHORT_LIST)) + 1,
        }
    }
}

/// About the bytes that an allocator takes for this many: up to 128 a multiple of 16, then one of four sizes between
/// two powers of two.
fn allocated(bytes: usize) -> usize {
    let step = match bytes.saturating_sub(1).checked_ilog2() {
        Some(log @ 7..) => 1 << (log - 2),
        _ => 16,
    };
    bytes.next_multiple_of(step)
}
