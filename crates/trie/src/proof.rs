//! Merkle proofs: the nodes from the root to a key, and their check.

use crate::{Node, NodeRef, Owner, Path, TrieView, find};
use alloy_primitives::{B256, keccak256};
use niwaki_primitives::{Bytes, EMPTY_ROOT_HASH, Fault};

/// A proof does not prove what it claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The proof ends before the key is decided.
    #[error("the proof has {have} nodes and ends before the key is decided")]
    Incomplete {
        /// Nodes in the proof.
        have: usize,
    },
    /// The proof has nodes that are not on the path to the key.
    #[error("the proof has {have} nodes, {used} lead to the key")]
    Surplus {
        /// Nodes in the proof.
        have: usize,
        /// Nodes on the path.
        used: usize,
    },
    /// A node is not the one its parent names.
    #[error("node {index} hashes to {got}, its parent names {expected}")]
    WrongNode {
        /// Which node, from 0.
        index: usize,
        /// The hash of the node.
        got: B256,
        /// The hash its parent or the root names.
        expected: B256,
    },
    /// A node's bytes are not a node.
    #[error("node {index}: {reason}")]
    Malformed {
        /// Which node, from 0.
        index: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// The nodes that prove what `key` is in the trie of `owner` with root `root`, from the root down,
/// as RLP; for an absent key, those that prove its absence.
///
/// # Errors
/// Any [`Fault`] of the view.
///
/// Spec: EIP-1186.
pub fn prove(
    view: &dyn TrieView,
    owner: Owner,
    root: B256,
    key: &Path,
) -> Result<Vec<Bytes>, Fault> {
    let mut nodes = Vec::new();
    find(view, owner, root, key, &mut |node| {
        let mut rlp = Vec::new();
        node.encode(&mut rlp);
        nodes.push(rlp.into());
    })?;
    Ok(nodes)
}

/// What `proof` says `key` is in the trie with root `root`: its value, or `None` for absent.
///
/// # Errors
/// [`ProofError`] if the nodes do not decide the key or are not the nodes of that trie.
///
/// Spec: EIP-1186.
pub fn verify_proof(
    root: B256,
    key: &Path,
    proof: &[Bytes],
) -> Result<Option<Vec<u8>>, ProofError> {
    let mut used = 0;
    let value = match root {
        EMPTY_ROOT_HASH => None,
        root => follow(root, key, proof, &mut used)?,
    };
    if used != proof.len() {
        let have = proof.len();
        return Err(ProofError::Surplus { have, used });
    }
    Ok(value)
}

fn follow(
    root: B256,
    key: &Path,
    proof: &[Bytes],
    used: &mut usize,
) -> Result<Option<Vec<u8>>, ProofError> {
    let mut reference = NodeRef::Hash(root);
    let mut rest = key.as_slice();
    loop {
        let inline;
        let rlp = match &reference {
            NodeRef::Empty => return Ok(None),
            NodeRef::Inline(node) => {
                inline = *node;
                inline.as_slice()
            }
            NodeRef::Hash(expected) | NodeRef::Leaf(expected) => {
                let index = *used;
                let have = proof.len();
                let node = proof.get(index).ok_or(ProofError::Incomplete { have })?;
                let (got, expected) = (keccak256(node), *expected);
                if got != expected {
                    return Err(ProofError::WrongNode {
                        index,
                        got,
                        expected,
                    });
                }
                *used += 1;
                node
            }
        };
        let node = Node::decode(rlp).map_err(|error| ProofError::Malformed {
            index: used.saturating_sub(1),
            reason: error.0,
        })?;
        match node {
            Node::Leaf { path, value } => return Ok((path.as_slice() == rest).then_some(value)),
            Node::Extension(extension) => match rest.strip_prefix(extension.path.as_slice()) {
                Some(tail) => (reference, rest) = (extension.child.reference, tail),
                None => return Ok(None),
            },
            Node::Branch(branch) => match rest.split_first() {
                Some((nibble, tail)) => {
                    (reference, rest) = (branch.get(*nibble), tail);
                }
                None => return Ok(branch.value().map(<[u8]>::to_vec)),
            },
        }
    }
}
