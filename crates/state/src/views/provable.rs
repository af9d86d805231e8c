//! The state of a recent block together with its tries, for proofs and for nodes by path.
//!
//! The rows of trie nodes are the head's. For another state the nodes on the paths to what differs are computed from the trie logs in
//! between and laid over the rows:
//!
//! ```text
//! nodes of block 9  =  rows of the snapshot at head 12  +  nodes that undoing 12, 11 and 10 changes
//! ```

use crate::tries::disk_trie::{DiskTrie, NodeRows, RowSource};
use crate::tries::trie_cache::TrieCache;
use crate::{HashedDiff, StateHead, View};
use niwaki_primitives::{B256, Bytes, Fault};
use niwaki_trie::{Owner, Path, TrieAccount, compact_path, node_at, prove};
use std::sync::Arc;

/// The state after one block, with the nodes of its tries. It never changes.
#[derive(Debug)]
pub struct ProvableView {
    view: View,
    root: B256,
    /// Nodes that differ from those of the view's head.
    nodes: NodeRows,
    /// What differs from the view's head.
    offset: Vec<Arc<HashedDiff>>,
}

impl View {
    /// This state with the nodes of its tries. For the head's state nothing is computed; for another one the tries are updated with all
    /// that differs, on so many threads.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn with_tries(self, threads: usize) -> Result<ProvableView, Fault> {
        let layers = self.layers();
        let (mut root, mut nodes, mut offset) = (self.head.root, NodeRows::default(), Vec::new());
        if !layers.steps().is_empty() {
            let mut diff = HashedDiff::clone(&layers.total());
            let source = DiskTrie::new(RowSource::Snapshot(&self.snapshot), &[]);
            let mut tries = TrieCache::new(root, usize::MAX, threads.max(1));
            root = tries.apply(&source, &mut diff)?;
            nodes = NodeRows::of(&tries.take_rows());
            offset.push(Arc::new(diff));
        }
        Ok(ProvableView {
            view: self,
            root,
            nodes,
            offset,
        })
    }
}

impl ProvableView {
    /// The state.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The block and its state root, as the tries have it.
    pub fn head(&self) -> StateHead {
        StateHead {
            block: self.view.block(),
            root: self.root,
        }
    }

    /// About the bytes that this takes in memory beside the view.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes()
    }

    /// The account with this hashed address.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn account_by_key(&self, key: &B256) -> Result<Option<TrieAccount>, Fault> {
        let mut found = None;
        self.view.accounts_from(key, &mut |at, account| {
            if at == key {
                found = account;
            }
            false
        })?;
        Ok(found)
    }

    /// The nodes that prove what the account with this hashed address is, from the root down.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_account_by_key(&self, key: &B256) -> Result<Vec<Bytes>, Fault> {
        prove(&self.tries(), None, self.root, &Path::of_hash(key))
    }

    /// The nodes that prove what a hashed slot is, from `storage_root` down, which must be that of the account with the hashed address
    /// `owner`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_slot_by_key(
        &self,
        owner: &B256,
        storage_root: B256,
        key: &B256,
    ) -> Result<Vec<Bytes>, Fault> {
        let path = Path::of_hash(key);
        prove(&self.tries(), Some(*owner), storage_root, &path)
    }

    /// RLP of the node at this path, in hex-prefix encoding, of the account trie; `None` if it has no node there that its parent names
    /// by hash.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn account_node(&self, path: &[u8]) -> Result<Option<Bytes>, Fault> {
        self.node(None, self.root, path)
    }

    /// As [`ProvableView::account_node`], of the storage trie with this root, which must be that of the account with the hashed address
    /// `owner`.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn storage_node(
        &self,
        owner: &B256,
        storage_root: B256,
        path: &[u8],
    ) -> Result<Option<Bytes>, Fault> {
        self.node(Some(*owner), storage_root, path)
    }

    fn node(&self, owner: Owner, root: B256, path: &[u8]) -> Result<Option<Bytes>, Fault> {
        let Some(path) = compact_path(path) else {
            return Ok(None);
        };
        let node = node_at(&self.tries(), owner, root, &path)?;
        let encode = |node: niwaki_trie::Node| {
            let mut rlp = Vec::new();
            node.encode(&mut rlp);
            rlp.into()
        };
        Ok(node.map(encode))
    }

    fn tries(&self) -> DiskTrie<'_> {
        let rows = RowSource::Overlaid(&self.nodes, &self.view.snapshot);
        DiskTrie::new(rows, &self.offset)
    }
}
