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
    /// Those that are there, ascending by nibble.
    children: Vec<Child>,
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
        let child = self.find(nibble).ok().map(|at| &self.children[at]);
        child.map_or(NodeRef::Empty, |child| child.reference)
    }

    /// Puts a child, not in memory, at `nibble`, or none if it is empty.
    pub fn set(&mut self, nibble: u8, reference: NodeRef) {
        self.put(nibble, reference.into());
    }

    /// The children that are there, ascending by nibble.
    pub fn children(&self) -> impl Iterator<Item = (u8, NodeRef)> {
        let references = self.children.iter().map(|child| child.reference);
        self.nibbles().zip(references)
    }

    /// How many children there are.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Whether there is no child.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Makes room for `count` children.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.children.reserve_exact(count);
    }

    pub(crate) fn put(&mut self, nibble: u8, child: Child) {
        let is_empty = child.reference == NodeRef::Empty;
        match self.find(nibble) {
            Ok(at) if is_empty => {
                self.children.remove(at);
                self.mask &= !(1 << nibble);
            }
            Ok(at) => self.children[at] = child,
            Err(_) if is_empty => {}
            Err(at) => {
                self.children.insert(at, child);
                self.mask |= 1 << nibble;
            }
        }
    }

    /// The child `nibble` with its node, which this branch then only names.
    pub(crate) fn lend(&mut self, nibble: u8) -> Child {
        let Some(child) = self.child_mut(nibble) else {
            return Child::default();
        };
        Child {
            reference: child.reference,
            held: child.held.take(),
        }
    }

    pub(crate) fn child_mut(&mut self, nibble: u8) -> Option<&mut Child> {
        let at = self.find(nibble).ok()?;
        self.children.get_mut(at)
    }

    pub(crate) fn children_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.children.iter_mut()
    }

    /// Bytes of this node, without those of nodes below.
    pub(crate) fn bytes(&self) -> usize {
        let children = self.children.capacity() * size_of::<Child>();
        size_of::<Self>() + children + self.value.capacity()
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

    fn nibbles(&self) -> impl Iterator<Item = u8> {
        let mask = self.mask;
        (0_u8..16).filter(move |nibble| mask >> nibble & 1 == 1)
    }

    /// Bit `n` is set if child `n` is a leaf that is named by its hash.
    pub(crate) fn leaf_mask(&self) -> u16 {
        let leaves = self.children();
        let leaves = leaves.filter(|(_, child)| matches!(child, NodeRef::Leaf(_)));
        leaves.fold(0, |mask, (nibble, _)| mask | 1 << nibble)
    }

    /// Appends the RLP to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let children = self.children.iter();
        let filled: usize = children.map(|child| child.reference.encoded_length()).sum();
        let length = filled + (16 - self.len()) + string_length(&self.value);
        out.reserve(length + 9);
        list_header(length, out);
        let mut children = self.children.iter();
        for nibble in 0..16 {
            let is_set = self.mask >> nibble & 1 == 1;
            match is_set.then(|| children.next()).flatten() {
                Some(child) => child.reference.encode(out),
                None => out.push(0x80),
            }
        }
        encode_string(&self.value, out);
    }
}
