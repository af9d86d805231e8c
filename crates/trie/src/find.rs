//! Lookup of one key or one node, from the root down.

use crate::view::{fault_key, segment};
use crate::{Node, NodeRef, Owner, Path, TrieView};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};

/// The value of `key` in the trie of `owner` with root `root`; `None` if it is absent. `visit` is called with each node
/// on the path that is not inline, from the root down.
///
/// # Errors
/// Any [`Fault`] of the view; [`Fault::Corrupt`] if an inline node is not one.
pub fn find(
    view: &dyn TrieView,
    owner: Owner,
    root: B256,
    key: &Path,
    visit: &mut dyn FnMut(&Node),
) -> Result<Option<Vec<u8>>, Fault> {
    if root == EMPTY_ROOT_HASH {
        return Ok(None);
    }
    let mut reference = NodeRef::Hash(root);
    let mut at = Path::EMPTY;
    loop {
        let node = match &reference {
            NodeRef::Empty => return Ok(None),
            NodeRef::Inline(node) => {
                Node::decode(node.as_slice()).map_err(|error| Fault::Corrupt {
                    segment: segment(&owner),
                    key: fault_key(&owner, &at),
                    reason: error.to_string(),
                })?
            }
            NodeRef::Leaf(hash) => view.leaf(&owner, &at, hash)?,
            NodeRef::Hash(hash) => match view.node(&owner, &at, hash)? {
                Some(node) => node,
                None => view.leaf(&owner, &at, hash)?,
            },
        };
        if !matches!(reference, NodeRef::Inline(_)) {
            visit(&node);
        }
        let rest = &key.as_slice()[at.len()..];
        let skipped = match node {
            Node::Leaf { path, value } => {
                return Ok((path.as_slice() == rest).then_some(value));
            }
            Node::Extension(extension) => {
                reference = extension.child.reference;
                extension.path
            }
            Node::Branch(branch) => {
                let Some((nibble, _)) = rest.split_first() else {
                    return Ok(branch.value().map(<[u8]>::to_vec));
                };
                reference = branch.get(*nibble);
                Path::EMPTY.join(&[*nibble]).expect("one nibble")
            }
        };
        if !rest.starts_with(skipped.as_slice()) {
            return Ok(None);
        }
        at = at
            .join(skipped.as_slice())
            .expect("a part of the key is not longer than a key");
    }
}

/// The node at `path` of the trie of `owner` with root `root`; `None` if there is none that its parent names by hash.
///
/// # Errors
/// Any [`Fault`] of the view.
pub fn node_at(
    view: &dyn TrieView,
    owner: Owner,
    root: B256,
    path: &Path,
) -> Result<Option<Node>, Fault> {
    let mut reference = match root {
        EMPTY_ROOT_HASH => NodeRef::Empty,
        root => NodeRef::Hash(root),
    };
    let mut at = Path::EMPTY;
    loop {
        let node = match &reference {
            NodeRef::Empty | NodeRef::Inline(_) => return Ok(None),
            NodeRef::Leaf(hash) => view.leaf(&owner, &at, hash)?,
            NodeRef::Hash(hash) => match view.node(&owner, &at, hash)? {
                Some(node) => node,
                None => view.leaf(&owner, &at, hash)?,
            },
        };
        let rest = &path.as_slice()[at.len()..];
        if rest.is_empty() {
            return Ok(Some(node));
        }
        let skipped = match node {
            Node::Leaf { .. } => return Ok(None),
            Node::Extension(extension) => {
                reference = extension.child.reference;
                extension.path
            }
            Node::Branch(branch) => {
                reference = branch.get(rest[0]);
                Path::EMPTY.join(&rest[..1]).expect("one nibble")
            }
        };
        if !rest.starts_with(skipped.as_slice()) {
            return Ok(None);
        }
        at = at
            .join(skipped.as_slice())
            .expect("a part of the path is not longer than it");
    }
}
