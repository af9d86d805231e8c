//! The branch node, and what a parent holds of a child: its reference, and the node itself where
//! it is in memory.

use crate::node::{encode_string, list_header, string_length};
use crate::{Extension, Node, NodeRef};

/// A child as its parent holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// How the parent names it.
    pub reference: NodeRef,
    /// The node, if it is in memory. Only inner nodes that are named by their hash are kept so.
    pub(crate) held: Option<Held>,
}

impl From<NodeRef> for Child {
    fn from(reference: NodeRef) -> Self {
        let held = None;
        Self { reference, held }
    }
}

/// An inner node in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Extension(Box<Extension>),
    Branch(Box<Branch>),
}

impl Held {
    /// Holds an inner node; `None` for a leaf.
    pub(crate) fn of(node: Node) -> Option<Self> {
        match node {
            Node::Leaf { .. } => None,
            Node::Extension(extension) => Some(Self::Extension(extension)),
            Node::Branch(branch) => Some(Self::Branch(branch)),
        }
    }

    /// Bytes of this node, without those of nodes below.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Extension(_) => size_of::<Extension>(),
            Self::Branch(branch) => branch.bytes(),
        }
    }
}

impl From<Held> for Node {
    fn from(held: Held) -> Self {
        match held {
            Held::Extension(extension) => Self::Extension(extension),
            Held::Branch(branch) => Self::Branch(branch),
        }
    }
}

/// A node with up to 16 children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// How the children that are there are named, ascending by nibble. Apart from the nodes, because
    /// hashing reads all names and no node.
    references: Vec<NodeRef>,
    /// The same children's nodes, as far as they are in memory; empty if none is.
    held: Vec<Option<Held>>,
    /// The value of the key that ends here; empty if none does (always, where all keys have the
    /// same length).
    pub value: Vec<u8>,
    /// Bit `n` is set if there is a child `n`.
    mask: u16,
    /// When a change went through here last, by the clock of [`Trie`](crate::Trie).
    pub(crate) used: u32,
}

impl Branch {
    /// How the child `nibble` is named.
    ///
    /// # Panics
    /// If `nibble` is above 15, as all of its methods do.
    pub fn get(&self, nibble: u8) -> NodeRef {
        let at = self.find(nibble).ok();
        at.map_or(NodeRef::Empty, |at| self.references[at])
    }

    /// Puts a child, not in memory, at `nibble`, or none if it is empty.
    pub fn set(&mut self, nibble: u8, reference: NodeRef) {
        self.put(nibble, reference.into());
    }

    /// The children that are there, ascending by nibble.
    pub fn children(&self) -> impl Iterator<Item = (u8, NodeRef)> {
        let mask = self.mask;
        let nibbles = (0_u8..16).filter(move |nibble| mask >> nibble & 1 == 1);
        nibbles.zip(self.references.iter().copied())
    }

    /// How many children there are.
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// Whether there is no child.
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// Makes room for `count` children.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.references.reserve_exact(count);
    }

    pub(crate) fn put(&mut self, nibble: u8, child: Child) {
        let Child { reference, held } = child;
        let is_empty = reference == NodeRef::Empty;
        let at = match self.find(nibble) {
            Ok(at) if is_empty => {
                self.references.remove(at);
                if !self.held.is_empty() {
                    self.held.remove(at);
                }
                self.mask &= !(1 << nibble);
                return;
            }
            Err(_) if is_empty => return,
            Ok(at) => {
                self.references[at] = reference;
                at
            }
            Err(at) => {
                self.references.insert(at, reference);
                if !self.held.is_empty() {
                    self.held.insert(at, None);
                }
                self.mask |= 1 << nibble;
                at
            }
        };
        if held.is_some() {
            self.make_room();
        }
        if let Some(place) = self.held.get_mut(at) {
            *place = held;
        }
    }

    /// The child `nibble` with its node, which this branch then only names.
    pub(crate) fn lend(&mut self, nibble: u8) -> Child {
        let Ok(at) = self.find(nibble) else {
            return Child::default();
        };
        Child {
            reference: self.references[at],
            held: self.held.get_mut(at).and_then(Option::take),
        }
    }

    /// The child `nibble`, if there is one, and the place for its node, if there is room for nodes.
    pub(crate) fn place(&mut self, nibble: u8) -> Option<(NodeRef, &mut Option<Held>)> {
        let at = self.find(nibble).ok()?;
        Some((self.references[at], self.held.get_mut(at)?))
    }

    /// The nodes in memory below.
    pub(crate) fn held_mut(&mut self) -> impl Iterator<Item = &mut Option<Held>> {
        self.held.iter_mut()
    }

    /// Gives back the room for nodes if there are none.
    pub(crate) fn shrink(&mut self) {
        if self.held.iter().all(Option::is_none) {
            self.held = Vec::new();
        }
    }

    /// Makes room for the nodes of all children.
    pub(crate) fn make_room(&mut self) {
        if self.held.is_empty() {
            self.held.reserve_exact(self.len());
            self.held.resize_with(self.len(), || None);
        }
    }

    /// Bytes of this node, without those of nodes below.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.references.capacity() * size_of::<NodeRef>()
            + self.held.capacity() * size_of::<Option<Held>>()
            + self.value.capacity()
    }

    /// Where the child `nibble` is among the children, or would be.
    fn find(&self, nibble: u8) -> Result<usize, usize> {
        assert!(nibble < 16, "a nibble is below 16");
        let at = (self.mask & ((1 << nibble) - 1)).count_ones() as usize;
        match self.mask >> nibble & 1 {
            1 => Ok(at),
            _ => Err(at),
        }
    }

    /// Bit `n` is set if child `n` is a leaf that is named by its hash.
    pub(crate) fn leaf_mask(&self) -> u16 {
        let leaves = self.children();
        let leaves = leaves.filter(|(_, child)| matches!(child, NodeRef::Leaf(_)));
        leaves.fold(0, |mask, (nibble, _)| mask | 1 << nibble)
    }

    /// Appends the RLP to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let references = self.references.iter();
        let filled: usize = references.map(NodeRef::encoded_length).sum();
        let length = filled + (16 - self.len()) + string_length(&self.value);
        out.reserve(length + 9);
        list_header(length, out);
        let mut references = self.references.iter();
        for nibble in 0..16 {
            let is_set = self.mask >> nibble & 1 == 1;
            match is_set.then(|| references.next()).flatten() {
                Some(reference) => reference.encode(out),
                None => out.push(0x80),
            }
        }
        encode_string(&self.value, out);
    }
}
