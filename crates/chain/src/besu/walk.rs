//! The leaves of a trie in the order of their keys. Every node is compared with the hash by which its parent names it.

use super::rows::Values;
use super::{BesuError, BesuFolder, TRIE_BRANCH, WORLD_STATE};
use niwaki_crypto::keccak256;
use niwaki_primitives::{B256, EMPTY_ROOT_HASH};
use niwaki_trie::{Node, NodeRef, Owner, Path};

/// Called with the key and the value of a leaf.
pub(super) type Visit<'a> = dyn FnMut(B256, &[u8]) -> Result<(), BesuError> + 'a;

impl BesuFolder {
    /// Visits each leaf whose key is above `after` of a trie with this root: that of the accounts, or of the storage of `owner`.
    pub(super) fn walk(
        &self,
        values: Values,
        owner: &Owner,
        root: B256,
        after: Option<B256>,
        visit: &mut Visit<'_>,
    ) -> Result<(), BesuError> {
        let after = after.map(|key| Path::of_hash(&key));
        let mut pending = match root {
            EMPTY_ROOT_HASH => Vec::new(),
            root => vec![(Path::EMPTY, NodeRef::Hash(root))],
        };
        while let Some((path, reference)) = pending.pop() {
            if after.is_some_and(|after| path.as_slice() < after.first(path.len()).as_slice()) {
                continue;
            }
            let damaged = || {
                self.damaged(format!(
                    "the node of its trie at {path} is not what was stored"
                ))
            };
            let found = match reference {
                NodeRef::Empty => continue,
                NodeRef::Inline(inline) => Node::decode(inline.as_slice()),
                NodeRef::Hash(hash) | NodeRef::Leaf(hash) => {
                    let rlp = self.node(values, owner, &path, &hash)?;
                    if keccak256(&rlp) != hash {
                        return Err(damaged());
                    }
                    Node::decode(&rlp)
                }
            };
            match found.map_err(|_| damaged())? {
                // The last one that is pushed is the next one.
                Node::Branch(branch) => {
                    for nibble in (0..16).rev() {
                        let path = path.join(&[nibble]).ok_or_else(damaged)?;
                        pending.push((path, branch.get(nibble)));
                    }
                }
                Node::Extension(extension) => {
                    let path = path.join(extension.path.as_slice()).ok_or_else(damaged)?;
                    pending.push((path, extension.child.reference));
                }
                Node::Leaf { path: rest, value } => {
                    let key = path.join(rest.as_slice()).ok_or_else(damaged)?;
                    let is_done = after.is_some_and(|after| key.as_slice() <= after.as_slice());
                    if !is_done {
                        visit(key.to_hash().ok_or_else(damaged)?, &value)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn node(
        &self,
        values: Values,
        owner: &Owner,
        path: &Path,
        hash: &B256,
    ) -> Result<Vec<u8>, BesuError> {
        let row = match values {
            Values::ByHash(_) => self.database.get(WORLD_STATE, hash.as_slice())?,
            Values::ByPath(_) | Values::Flat => {
                let owner = owner.as_ref().map_or(&[][..], |owner| owner.as_slice());
                let key = [owner, path.as_slice()].concat();
                self.database.get(TRIE_BRANCH, &key)?
            }
        };
        row.ok_or_else(|| self.damaged(format!("it has no node {hash} of its trie")))
    }
}
