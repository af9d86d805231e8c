//! Where trie nodes come from.

use crate::{Node, Path};
use alloy_primitives::B256;
use niwaki_primitives::Fault;

/// Which trie: the account trie (`None`) or the storage trie of the account with this hashed
/// address.
pub type Owner = Option<B256>;

/// A store of trie nodes: a disk that keys them by path, or a witness that keys them by hash. Several threads read it
/// at once.
pub trait TrieView: Sync {
    /// The node of `owner`'s trie at `path`, which by its parent (or the root) has the hash `hash`. `None` if the
    /// store has no node there because it is a leaf, which [`TrieView::leaf`] returns.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the store ought to have it; any [`Fault`] of the layer below.
    fn node(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault>;

    /// The only leaf at or below `path`, its own path relative to `path`. Only called where the trie is known to have a
    /// leaf, with hash `hash`.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the store ought to have it; any [`Fault`] of the layer below.
    fn leaf(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Node, Fault>;
}

/// A store without nodes, for tries that are built from leaves alone.
pub(crate) struct NoNodes;

impl TrieView for NoNodes {
    fn node(&self, _: &Owner, _: &Path, _: &B256) -> Result<Option<Node>, Fault> {
        Ok(None)
    }

    fn leaf(&self, owner: &Owner, path: &Path, _: &B256) -> Result<Node, Fault> {
        Err(Fault::Missing {
            segment: segment(owner),
            key: fault_key(owner, path),
        })
    }
}

/// The name of `owner`'s trie in a [`Fault`].
pub(crate) fn segment(owner: &Owner) -> &'static str {
    match owner {
        None => "account trie",
        Some(_) => "storage trie",
    }
}

/// The key of a node in a [`Fault`]: owner and path.
pub(crate) fn fault_key(owner: &Owner, path: &Path) -> String {
    match owner {
        None => format!("path '{path}'"),
        Some(owner) => format!("{owner} path '{path}'"),
    }
}
