//! Lookup of one key, from the root down.

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
