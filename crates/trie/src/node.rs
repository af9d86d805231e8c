//! One trie node with its children by reference, and its two byte forms: RLP (what is hashed)
//! and the stored row (a mask of the children that are leaves, then the same RLP).

use crate::{Branch, Child, Path};
use alloy_primitives::{B256, keccak256};
use alloy_rlp::Header;

/// The bytes are not a trie node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed trie node: {0}")]
pub struct MalformedNode(pub &'static str);

/// How a parent refers to a child.
///
/// Spec: Yellow Paper, appendix D, function `n`: a node whose RLP is shorter than 32 bytes is inline in its parent, any
/// other is referred to by its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeRef {
    /// No child.
    #[default]
    Empty,
    /// A node by the hash of its RLP.
    Hash(B256),
    /// The same of a node that is known to be a leaf, so that a store that keeps leaves elsewhere need not search it
    /// among the nodes.
    Leaf(B256),
    /// The whole node.
    Inline(InlineNode),
}

/// The RLP of a node, 1 to 31 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineNode {
    bytes: [u8; 31],
    len: u8,
}

impl InlineNode {
    /// Holds `rlp`; `None` if it has more than 31 bytes.
    pub fn new(rlp: &[u8]) -> Option<Self> {
        let mut bytes = [0; 31];
        bytes.get_mut(..rlp.len())?.copy_from_slice(rlp);
        let len = u8::try_from(rlp.len()).ok()?;
        Some(Self { bytes, len })
    }

    /// The RLP.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A node of a Merkle-Patricia trie.
///
/// Spec: Yellow Paper, appendix D; execution-specs `trie.py`, `InternalNode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The end of a key.
    Leaf {
        /// The rest of the key.
        path: Path,
        /// The value as encoded in the trie.
        value: Vec<u8>,
    },
    /// Nibbles that all keys below share.
    Extension(Box<Extension>),
    /// A fork with up to 16 children.
    Branch(Box<Branch>),
}

/// A node with one child, a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The shared nibbles, at least one.
    pub path: Path,
    /// The branch below.
    pub child: Child,
}

impl Extension {
    /// Appends the stored row to `out`: no leaf mask, then the RLP.
    pub(crate) fn encode_row(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0; Node::ROW_MASK_BYTES]);
        self.encode(out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (packed, len) = hex_prefix(self.path.as_slice(), false);
        let (packed, child) = (&packed[..len], &self.child.reference);
        list_header(string_length(packed) + child.encoded_length(), out);
        encode_string(packed, out);
        child.encode(out);
    }
}

/// Appends the RLP of the leaf of `key`, `depth` nibbles down.
pub(crate) fn encode_leaf(key: &Path, depth: usize, value: &[u8], out: &mut Vec<u8>) {
    let (packed, len) = hex_prefix(&key.as_slice()[depth..], true);
    let packed = &packed[..len];
    list_header(string_length(packed) + string_length(value), out);
    encode_string(packed, out);
    encode_string(value, out);
}

impl Node {
    /// Bytes of a stored row before the RLP: the leaf mask, big-endian, bit `n` for child `n`.
    pub(crate) const ROW_MASK_BYTES: usize = 2;

    /// Appends the RLP to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Leaf { path, value } => encode_leaf(path, 0, value, out),
            Self::Extension(extension) => extension.encode(out),
            Self::Branch(branch) => out.extend_from_slice(&branch.row()[Self::ROW_MASK_BYTES..]),
        }
    }

    /// Appends the stored row to `out`.
    pub fn encode_row(&self, out: &mut Vec<u8>) {
        match self {
            Self::Leaf { path, value } => {
                out.extend_from_slice(&[0; Self::ROW_MASK_BYTES]);
                encode_leaf(path, 0, value, out);
            }
            Self::Extension(extension) => extension.encode_row(out),
            Self::Branch(branch) => out.extend_from_slice(branch.row()),
        }
    }

    /// Reads a node from its RLP.
    ///
    /// # Errors
    /// [`MalformedNode`] if the bytes are anything but one node.
    pub fn decode(rlp: &[u8]) -> Result<Self, MalformedNode> {
        Self::decode_masked(rlp, 0)
    }

    /// Reads a node from a stored row.
    ///
    /// # Errors
    /// [`MalformedNode`] if the bytes are anything but one row.
    pub fn from_row(row: &[u8]) -> Result<Self, MalformedNode> {
        let (mask, rlp) = row
            .split_first_chunk::<{ Self::ROW_MASK_BYTES }>()
            .ok_or(MalformedNode("shorter than its leaf mask"))?;
        Self::decode_masked(rlp, u16::from_be_bytes(*mask))
    }

    fn decode_masked(rlp: &[u8], mask: u16) -> Result<Self, MalformedNode> {
        let mut rest = rlp;
        let mut list = Item::take(&mut rest)?;
        if !list.list || !rest.is_empty() {
            return Err(MalformedNode("not a single list"));
        }
        let mut items = [Item::default(); 17];
        let mut count = 0;
        while !list.payload.is_empty() {
            let item = Item::take(&mut list.payload)?;
            *items
                .get_mut(count)
                .ok_or(MalformedNode("more than 17 items"))? = item;
            count += 1;
        }
        match count {
            2 => Self::decode_short(&items[0], &items[1]),
            17 => {
                let mut children = [NodeRef::Empty; 16];
                for (nibble, child) in children.iter_mut().enumerate() {
                    *child = NodeRef::decode(&items[nibble], mask >> nibble & 1 == 1)?;
                }
                items[16].string()?;
                Ok(Self::Branch(Box::new(Branch::of_rlp(rlp, &children))))
            }
            _ => Err(MalformedNode("neither 2 nor 17 items")),
        }
    }

    fn decode_short(path: &Item<'_>, value: &Item<'_>) -> Result<Self, MalformedNode> {
        let (path, is_leaf) = read_hex_prefix(path.string()?)?;
        if is_leaf {
            let value = value.string()?.to_vec();
            return Ok(Self::Leaf { path, value });
        }
        let child = NodeRef::decode(value, false)?;
        if path.is_empty() || child == NodeRef::Empty {
            return Err(MalformedNode("extension without path or child"));
        }
        let child = child.into();
        Ok(Self::Extension(Box::new(Extension { path, child })))
    }
}

impl NodeRef {
    /// The reference to the node whose RLP is `rlp`.
    pub fn of(rlp: &[u8], is_leaf: bool) -> Self {
        match InlineNode::new(rlp) {
            Some(node) => Self::Inline(node),
            None if is_leaf => Self::Leaf(keccak256(rlp)),
            None => Self::Hash(keccak256(rlp)),
        }
    }

    pub(crate) fn encoded_length(&self) -> usize {
        match self {
            Self::Empty => 1,
            Self::Hash(_) | Self::Leaf(_) => 33,
            Self::Inline(node) => node.as_slice().len(),
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => out.push(0x80),
            Self::Hash(hash) | Self::Leaf(hash) => {
                let mut string = [0xa0; 33];
                string[1..].copy_from_slice(hash.as_slice());
                out.extend_from_slice(&string);
            }
            Self::Inline(node) => out.extend_from_slice(node.as_slice()),
        }
    }

    fn decode(item: &Item<'_>, is_leaf: bool) -> Result<Self, MalformedNode> {
        if item.list {
            return InlineNode::new(item.raw)
                .map(Self::Inline)
                .ok_or(MalformedNode("child of 32 bytes or more stands inline"));
        }
        match (item.payload.len(), is_leaf) {
            (0, _) => Ok(Self::Empty),
            (32, false) => Ok(Self::Hash(B256::from_slice(item.payload))),
            (32, true) => Ok(Self::Leaf(B256::from_slice(item.payload))),
            _ => Err(MalformedNode("child is neither a hash nor a node")),
        }
    }
}

/// One RLP item within a node.
#[derive(Clone, Copy, Default)]
struct Item<'a> {
    list: bool,
    payload: &'a [u8],
    raw: &'a [u8],
}

impl<'a> Item<'a> {
    fn take(rest: &mut &'a [u8]) -> Result<Self, MalformedNode> {
        let whole = *rest;
        let header = Header::decode(rest).map_err(|_| MalformedNode("bad RLP"))?;
        let payload = rest
            .split_off(..header.payload_length)
            .ok_or(MalformedNode("RLP ends early"))?;
        let raw = &whole[..whole.len() - rest.len()];
        let list = header.list;
        Ok(Self { list, payload, raw })
    }

    fn string(&self) -> Result<&'a [u8], MalformedNode> {
        if self.list {
            return Err(MalformedNode("a list where a string belongs"));
        }
        Ok(self.payload)
    }
}

/// Hex-prefix encoding: the flag nibble (2 for a leaf, 1 for an odd length), then the path. Returns the buffer and how
/// much of it is used.
///
/// Spec: Yellow Paper, appendix C.
fn hex_prefix(nibbles: &[u8], is_leaf: bool) -> ([u8; 33], usize) {
    let mut out = [0; 33];
    out[0] = if is_leaf { 0x20 } else { 0x00 };
    let (odd, even) = nibbles.split_at(nibbles.len() % 2);
    if let [first] = odd {
        out[0] |= 0x10 | first;
    }
    for (byte, pair) in out[1..].iter_mut().zip(even.chunks_exact(2)) {
        *byte = (pair[0] << 4) | pair[1];
    }
    (out, 1 + even.len() / 2)
}

fn read_hex_prefix(bytes: &[u8]) -> Result<(Path, bool), MalformedNode> {
    let (flag, rest) = bytes
        .split_first()
        .ok_or(MalformedNode("path without flag"))?;
    let too_long = MalformedNode("path longer than 64 nibbles");
    let tail = Path::of_key(rest).ok_or(too_long)?;
    let path = match flag >> 4 {
        0 | 2 if flag & 0x0f == 0 => tail,
        1 | 3 => {
            let head = Path::of_nibbles(&[flag & 0x0f]).ok_or(too_long)?;
            head.join(tail.as_slice()).ok_or(too_long)?
        }
        _ => return Err(MalformedNode("unknown path flag")),
    };
    Ok((path, flag >> 4 >= 2))
}

/// The path whose hex-prefix encoding this is; `None` if it is none, or that of a leaf.
///
/// Spec: Yellow Paper, appendix C.
pub fn compact_path(bytes: &[u8]) -> Option<Path> {
    let (path, is_leaf) = read_hex_prefix(bytes).ok()?;
    (!is_leaf).then_some(path)
}

/// The hex-prefix encoding of the path of an inner node, which [`compact_path`] reads.
///
/// Spec: Yellow Paper, appendix C.
pub fn encode_compact_path(path: &Path) -> Vec<u8> {
    let (packed, len) = hex_prefix(path.as_slice(), false);
    packed[..len].to_vec()
}

pub(crate) fn string_length(bytes: &[u8]) -> usize {
    alloy_rlp::Encodable::length(bytes)
}

pub(crate) fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    alloy_rlp::Encodable::encode(bytes, out);
}

pub(crate) fn list_header(payload_length: usize, out: &mut Vec<u8>) {
    let list = true;
    Header {
        list,
        payload_length,
    }
    .encode(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(nibbles: &[u8]) -> Path {
        Path::of_nibbles(nibbles).unwrap()
    }

    #[test]
    fn hex_prefix_encodes_leaf_and_odd_length() {
        let encode = |nibbles: &[u8], leaf| {
            let (bytes, len) = hex_prefix(nibbles, leaf);
            bytes[..len].to_vec()
        };
        assert_eq!(encode(&[1, 2, 3, 4, 5], false), [0x11, 0x23, 0x45]);
        assert_eq!(encode(&[0, 1, 2, 3, 4, 5], false), [0x00, 0x01, 0x23, 0x45]);
        assert_eq!(encode(&[15, 1, 12, 11, 8], true), [0x3f, 0x1c, 0xb8]);
        assert_eq!(encode(&[], true), [0x20]);
    }

    #[test]
    fn a_row_decodes_to_its_node_and_leaf_mask() {
        let mut branch = Branch::default();
        branch.set(7, NodeRef::Hash(B256::repeat_byte(2)));
        branch.set(15, NodeRef::of(&[0xc2, 0x20, 0x05], true));
        branch.set(0, NodeRef::Leaf(B256::repeat_byte(1)));
        let node = Node::Branch(Box::new(branch));
        let mut row = Vec::new();
        node.encode_row(&mut row);
        assert_eq!(row[..2], [0, 1]);
        assert_eq!(Node::from_row(&row), Ok(node));
    }

    #[test]
    fn every_truncation_and_extra_byte_is_malformed() {
        let child = NodeRef::Hash(B256::repeat_byte(9));
        let node = Node::Extension(Box::new(Extension {
            path: path(&[1, 2, 3]),
            child: child.into(),
        }));
        let mut rlp = Vec::new();
        node.encode(&mut rlp);
        assert_eq!(Node::decode(&rlp), Ok(node));
        for end in 0..rlp.len() {
            assert!(Node::decode(&rlp[..end]).is_err(), "{end} bytes");
        }
        rlp.push(0x80);
        assert!(Node::decode(&rlp).is_err());
        assert!(Node::from_row(&[0]).is_err());
    }
}
