//! Ranges of leaves checked against a root: all leaves of a trie between two keys, none changed, left out or added.
//!
//! A peer sends a range with the nodes on the paths to its two ends. The check goes down from the root. A subtrie that an end lies in
//! is opened with a node of the proof; one between the ends must have the hash that the leaves in it give:
//!
//! ```text
//!                       root            opened: the origin and the last key are below it
//!          /      /      |       \
//!      before   opened  hashed   opened      after
//!               /  \     from     /  \         |
//!         before  hashed leaves hashed after   +-- there is more
//!             ^ origin                ^ last key
//! ```
//!
//! Subtries before the origin and after the last key are not looked at: their hashes are in nodes whose own hashes were checked.
//! So the cost is that of hashing the leaves, and the nodes of two paths. What was hashed are the nodes of the trie between the ends:
//! their rows come out, so that they need not be built again.

use crate::dirty_nodes::Leaf;
use crate::update::subtrie_hashes;
use crate::{Node, NodeRef, Owner, Path, RowSink};
use alloy_primitives::{B256, map::HashMap};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Bytes, EMPTY_ROOT_HASH};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Range, RangeInclusive};

/// A range is not what the trie with the root has there, or its proof does not show that it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A key does not follow the one before it, or the first is below the origin.
    #[error("key {key} is not above the one before it, or below the origin")]
    Unordered {
        /// The key.
        key: B256,
    },
    /// A leaf has no value.
    #[error("key {key} has an empty value")]
    EmptyValue {
        /// Its key.
        key: B256,
    },
    /// The proof lacks a node on the path to an end of the range.
    #[error("the proof lacks node {hash} at path '{path}'")]
    MissingNode {
        /// Where it is in the trie.
        path: Path,
        /// Its hash.
        hash: B256,
    },
    /// Bytes are not a node that can be there.
    #[error("node at path '{path}': {reason}")]
    Malformed {
        /// Where it is in the trie.
        path: Path,
        /// What is wrong.
        reason: &'static str,
    },
    /// The trie has other leaves below a path than the range.
    #[error("the trie has other leaves below path '{path}'")]
    Differs {
        /// The path.
        path: Path,
    },
    /// The range has no leaf, and the trie has some from the origin on.
    #[error("the range has no leaf, the trie has some from the origin on")]
    NotEmpty,
    /// The proof has nodes that are not on the paths to the ends.
    #[error("{count} nodes of the proof are not on the paths to the ends of the range")]
    Surplus {
        /// How many.
        count: usize,
    },
}

/// Checks that `leaves` are all leaves of the trie with this root from the origin, the first of `keys`, to the last of them; without any,
/// that it has none from the origin on. `proof` has the nodes on the paths to the origin and to the last leaf, in any order; without a
/// node the leaves must be the whole trie. Returns whether the trie has leaves after the last one.
///
/// `rows` gets the rows of nodes below which all keys are among `keys` and the leaves; not of those on the two paths.
///
/// # Errors
/// [`RangeError`]: then nothing is proven, the rows neither.
///
/// Spec: devp2p `caps/snap.md`, AccountRange and StorageRanges.
pub fn verify_range(
    root: B256,
    keys: RangeInclusive<B256>,
    leaves: &[(B256, &[u8])],
    proof: &[Bytes],
    rows: &mut RowSink<'_>,
) -> Result<bool, RangeError> {
    let (origin, last_key) = keys.into_inner();
    check_order(origin, leaves)?;
    let mut leaves: Vec<Leaf<'_>> = leaves
        .iter()
        .map(|(key, value)| Leaf {
            key: Path::of_hash(key),
            value: Cow::Borrowed(*value),
        })
        .collect();
    let mut walk = Walk {
        nodes: hashed(proof),
        origin: Path::of_hash(&origin),
        last: leaves.last().map(|leaf| leaf.key),
        between: Vec::new(),
        has_more: false,
    };
    let reference = match root {
        EMPTY_ROOT_HASH => NodeRef::Empty,
        root => NodeRef::Hash(root),
    };
    match proof {
        [] => walk.closed(Path::EMPTY, &reference, &leaves, 0..leaves.len())?,
        _ => walk.visit(Path::EMPTY, &reference, &leaves, 0..leaves.len())?,
    }
    let Walk {
        nodes,
        between,
        has_more,
        last,
        ..
    } = walk;
    if last.is_none() && has_more {
        return Err(RangeError::NotEmpty);
    }
    let count = nodes.values().filter(|node| !node.is_used).count();
    if count > 0 {
        return Err(RangeError::Surplus { count });
    }
    let (first_key, last_key) = (Path::of_hash(&origin), Path::of_hash(&last_key));
    let mut rows_of_keys = |_: &Owner, path: &Path, row: Option<&[u8]>| {
        if let Some(row) = row.filter(|_| is_within(path, &first_key, &last_key)) {
            rows(path, row);
        }
    };
    let subtries = between.iter();
    let subtries = subtries.map(|part| (part.path, part.leaves.clone()));
    let hashes = subtrie_hashes(&mut leaves, subtries, &mut rows_of_keys);
    let mut differing = between.iter().zip(hashes);
    match differing.find(|(part, hash)| part.hash != *hash) {
        Some((part, _)) => Err(RangeError::Differs { path: part.path }),
        None => Ok(has_more),
    }
}

/// Whether all keys below a path are among those from `first` to `last`.
fn is_within(path: &Path, first: &Path, last: &Path) -> bool {
    let (first, rest_of_first) = first.as_slice().split_at(path.len());
    let (last, rest_of_last) = last.as_slice().split_at(path.len());
    let begins = match path.as_slice().cmp(first) {
        Ordering::Less => false,
        Ordering::Equal => rest_of_first.iter().all(|nibble| *nibble == 0),
        Ordering::Greater => true,
    };
    let ends = match path.as_slice().cmp(last) {
        Ordering::Less => true,
        Ordering::Equal => rest_of_last.iter().all(|nibble| *nibble == 0x0f),
        Ordering::Greater => false,
    };
    begins && ends
}

fn check_order(origin: B256, leaves: &[(B256, &[u8])]) -> Result<(), RangeError> {
    let mut least = Some(origin);
    for (key, value) in leaves {
        if least.is_none_or(|least| *key < least) {
            return Err(RangeError::Unordered { key: *key });
        }
        if value.is_empty() {
            return Err(RangeError::EmptyValue { key: *key });
        }
        least = after(*key);
    }
    Ok(())
}

/// The key after this one; `None` after the last.
fn after(key: B256) -> Option<B256> {
    let next =
        alloy_primitives::U256::from_be_bytes(key.0).checked_add(alloy_primitives::U256::ONE);
    next.map(B256::from)
}

fn hashed(proof: &[Bytes]) -> HashMap<B256, ProofNode<'_>> {
    let messages: Vec<&[u8]> = proof.iter().map(AsRef::as_ref).collect();
    let hashes = keccak256_batch(&messages);
    let nodes = messages.into_iter().map(|rlp| ProofNode {
        rlp,
        is_used: false,
    });
    hashes.into_iter().zip(nodes).collect()
}

struct ProofNode<'p> {
    rlp: &'p [u8],
    is_used: bool,
}

/// A subtrie whose leaves are all in the range.
struct Between {
    path: Path,
    hash: B256,
    leaves: Range<usize>,
}

/// Where a subtrie or a leaf lies.
enum Place {
    Before,
    AtAnEnd,
    Between,
    After,
}

/// The way down from the root, along both ends.
struct Walk<'p> {
    nodes: HashMap<B256, ProofNode<'p>>,
    origin: Path,
    /// `None` if the range has no leaf: then everything from the origin on lies after it.
    last: Option<Path>,
    between: Vec<Between>,
    has_more: bool,
}

impl Walk<'_> {
    fn place(&self, path: &Path) -> Place {
        let to = |end: &Path| path.as_slice().cmp(&end.as_slice()[..path.len()]);
        let to_last = self.last.as_ref().map_or(Ordering::Greater, to);
        match (to(&self.origin), to_last) {
            (Ordering::Less, _) => Place::Before,
            (Ordering::Equal, _) | (_, Ordering::Equal) => Place::AtAnEnd,
            (_, Ordering::Less) => Place::Between,
            (_, Ordering::Greater) => Place::After,
        }
    }

    /// The subtrie at `path`, to which its parent has this reference. `range` are those of the leaves whose keys begin with `path`.
    fn visit(
        &mut self,
        path: Path,
        reference: &NodeRef,
        leaves: &[Leaf<'_>],
        range: Range<usize>,
    ) -> Result<(), RangeError> {
        if *reference == NodeRef::Empty {
            return none_of(path, range);
        }
        match self.place(&path) {
            Place::Before => none_of(path, range),
            Place::After => {
                self.has_more = true;
                none_of(path, range)
            }
            Place::Between => self.closed(path, reference, leaves, range),
            Place::AtAnEnd => self.open(path, reference, leaves, range),
        }
    }

    /// A subtrie that is to be hashed from its leaves; an inline one is there as a whole.
    fn closed(
        &mut self,
        path: Path,
        reference: &NodeRef,
        leaves: &[Leaf<'_>],
        range: Range<usize>,
    ) -> Result<(), RangeError> {
        match reference {
            NodeRef::Empty => none_of(path, range),
            NodeRef::Inline(_) => self.open(path, reference, leaves, range),
            NodeRef::Hash(_) | NodeRef::Leaf(_) if range.is_empty() => {
                Err(RangeError::Differs { path })
            }
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => {
                self.between.push(Between {
                    path,
                    hash: *hash,
                    leaves: range,
                });
                Ok(())
            }
        }
    }

    /// A subtrie whose top is in the proof, or inline.
    fn open(
        &mut self,
        path: Path,
        reference: &NodeRef,
        leaves: &[Leaf<'_>],
        range: Range<usize>,
    ) -> Result<(), RangeError> {
        let malformed = |reason| RangeError::Malformed { path, reason };
        let node = match reference {
            NodeRef::Empty => return none_of(path, range),
            NodeRef::Inline(node) => Node::decode(node.as_slice()),
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => {
                let hash = *hash;
                let node = self.nodes.get_mut(&hash);
                let node = node.ok_or(RangeError::MissingNode { path, hash })?;
                node.is_used = true;
                Node::decode(node.rlp)
            }
        };
        match node.map_err(|error| malformed(error.0))? {
            Node::Leaf { path: rest, value } => {
                let key = path.join(rest.as_slice());
                let key = key.filter(|key| key.len() == Path::MAX);
                let key = key.ok_or(malformed("its key has not 32 bytes"))?;
                self.leaf(path, &key, &value, &leaves[range])
            }
            Node::Extension(extension) => {
                let below = path.join(extension.path.as_slice());
                let below = below.filter(|below| below.len() < Path::MAX);
                let below = below.ok_or(malformed("it is longer than any key"))?;
                let is_below = |leaf: &Leaf<'_>| leaf.key.as_slice().starts_with(below.as_slice());
                if !leaves[range.clone()].iter().all(is_below) {
                    return Err(RangeError::Differs { path });
                }
                self.visit(below, &extension.child.reference, leaves, range)
            }
            Node::Branch(branch) => {
                if branch.value().is_some() {
                    return Err(malformed("a branch with a value"));
                }
                let mut start = range.start;
                for nibble in 0..16 {
                    let below = path.join(&[nibble]);
                    let below = below.ok_or(malformed("it is below a whole key"))?;
                    let rest = &leaves[start..range.end];
                    let count =
                        rest.partition_point(|leaf| leaf.key.as_slice()[path.len()] <= nibble);
                    self.visit(below, &branch.get(nibble), leaves, start..start + count)?;
                    start += count;
                }
                Ok(())
            }
        }
    }

    /// A leaf of the trie, the only one at `path`, where the range has `leaves`.
    fn leaf(
        &mut self,
        path: Path,
        key: &Path,
        value: &[u8],
        leaves: &[Leaf<'_>],
    ) -> Result<(), RangeError> {
        let is_in_range = *key >= self.origin && self.last.is_some_and(|last| *key <= last);
        self.has_more |= *key >= self.origin && !is_in_range;
        let is_same = match leaves {
            [] => !is_in_range,
            [leaf] => is_in_range && leaf.key == *key && *leaf.value == *value,
            _ => false,
        };
        match is_same {
            true => Ok(()),
            false => Err(RangeError::Differs { path }),
        }
    }
}

/// Where the trie has nothing, or nothing that belongs to the range.
fn none_of(path: Path, range: Range<usize>) -> Result<(), RangeError> {
    match range.is_empty() {
        true => Ok(()),
        false => Err(RangeError::Differs { path }),
    }
}

#[cfg(test)]
mod tests;
