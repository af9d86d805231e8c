//! What a state lacks of the pivot's, found by comparing the tries from their roots down.
//!
//! Parts that came from several pivots are a mixture, of which the build makes tries all the same. A pass goes down the pivot's tries,
//! which peers give node by node, where their nodes differ from ours at the same path:
//!
//! ```text
//! root differs -> children that differ -> ... -> leaves: an account or slot is put, what the pivot does not have is removed
//!                                                 `-> flat rows, trie rows and root of all that was found, in one batch
//! ```
//!
//! Before and after a batch rows and tries fit each other, so that equal hashes mean equal subtries, rows and all. So a kill, a pass that
//! ends early or another pivot costs no more than what was not written; a value that changes from A to B and back is no danger.

use super::StateDownload;
use super::changes::Changes;
use crate::commit::flat::{account_of_row, value_of_row};
use crate::tries::disk_trie::{DiskTrie, RowSource, range_below};
use niwaki_crypto::keccak256;
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Segment, corrupt};
use niwaki_trie::{
    Node, NodeRef, Owner, Path, TrieAccount, TrieView, decode_slot, encode_compact_path,
};

/// A pass ends early with so many changes.
const MAX_CHANGES: usize = 1 << 18;

/// A node of the pivot's tries that differs from ours.
#[derive(Clone, Debug)]
pub struct DifferingNode {
    /// The hashed address of the account whose storage it is of; `None` if it is of the account trie.
    pub owner: Option<B256>,
    /// Where it is.
    pub path: Path,
    /// Its hash.
    pub hash: B256,
    own: Own,
}

impl DifferingNode {
    /// Its path in compact form, as peers are asked for it (Yellow Paper, appendix C).
    pub fn compact_path(&self) -> Vec<u8> {
        encode_compact_path(&self.path)
    }
}

/// What our trie has at a path.
#[derive(Clone, Debug)]
enum Own {
    Child(NodeRef),
    /// The rest of a leaf or an extension that begins above.
    Rest(Node),
}

impl Own {
    const NOTHING: Self = Self::Child(NodeRef::Empty);

    fn root(hash: B256) -> Self {
        Self::Child(match hash {
            EMPTY_ROOT_HASH => NodeRef::Empty,
            hash => NodeRef::Hash(hash),
        })
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Child(NodeRef::Empty))
    }

    /// The hash by which a parent names it.
    fn hash(&self) -> Option<B256> {
        match self {
            Self::Child(NodeRef::Hash(hash) | NodeRef::Leaf(hash)) => Some(*hash),
            Self::Child(_) => None,
            Self::Rest(node) => {
                let mut rlp = Vec::new();
                node.encode(&mut rlp);
                Some(keccak256(rlp))
            }
        }
    }
}

/// Why a node was not compared.
#[derive(Debug, thiserror::Error)]
pub enum HealError {
    /// The bytes are not the node with this hash.
    #[error("the bytes are not the node")]
    OtherNode,
    /// The storage failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A pass over what differs.
#[derive(Debug)]
pub struct HealPass<'d> {
    download: &'d StateDownload<'d>,
    changes: Changes,
    /// Nodes to ask for, the deepest last.
    pending: Vec<DifferingNode>,
}

impl StateDownload<'_> {
    /// Begins to compare; `None` if the tries have the pivot's root.
    ///
    /// # Panics
    /// If the tries were not built.
    pub fn begin_heal(&self) -> Option<HealPass<'_>> {
        let own = self.own_root().expect("the tries were built");
        let root = DifferingNode {
            owner: None,
            path: Path::EMPTY,
            hash: self.pivot().root,
            own: Own::root(own),
        };
        (root.hash != own).then(|| HealPass {
            download: self,
            changes: Changes::default(),
            pending: vec![root],
        })
    }
}

impl HealPass<'_> {
    /// The next nodes to ask for, at most so many; none once the pass is over.
    pub fn take(&mut self, most: usize) -> Vec<DifferingNode> {
        if self.changes.len() >= MAX_CHANGES {
            return Vec::new();
        }
        let from = self.pending.len().saturating_sub(most);
        self.pending.split_off(from)
    }

    /// How many nodes are to be asked for, as far as is known.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many accounts and slots differ, as far as is known.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Codes of the accounts that differ which are not here: they must be before [`HealPass::apply`].
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn missing_codes(&self) -> Result<Vec<B256>, Fault> {
        let hashes = self.changes.accounts.values().flatten();
        let mut hashes: Vec<B256> = hashes.map(|account| account.code_hash).collect();
        hashes.retain(|hash| *hash != EMPTY_CODE_HASH);
        hashes.sort_unstable();
        hashes.dedup();
        self.download.missing_codes(&hashes)
    }

    /// Writes what was found, so that rows and tries fit each other again. Uses so many threads. Durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then nothing was written.
    pub fn apply(self, threads: usize) -> Result<(), Fault> {
        let own_root = self.download.own_root().unwrap_or(EMPTY_ROOT_HASH);
        let changes = self.changes;
        changes.write(self.download, own_root, Batch::new(), threads)
    }

    /// Compares a node, of which a peer has given the RLP, with ours.
    ///
    /// # Errors
    /// [`HealError`].
    pub fn compare(&mut self, node: &DifferingNode, rlp: &[u8]) -> Result<(), HealError> {
        if keccak256(rlp) != node.hash {
            return Err(HealError::OtherNode);
        }
        let theirs = Node::decode(rlp).map_err(|_| HealError::OtherNode)?;
        self.node(&node.owner, node.path, theirs, node.own.clone())
    }

    fn node(&mut self, owner: &Owner, path: Path, theirs: Node, own: Own) -> Result<(), HealError> {
        match theirs {
            Node::Branch(branch) => {
                let children = self.children(owner, &path, own)?;
                for (nibble, own) in (0_u8..).zip(children) {
                    self.child(owner, join(&path, nibble)?, branch.get(nibble), own)?;
                }
                Ok(())
            }
            Node::Extension(extension) => {
                let (end, own) = self.descend(owner, path, &extension.path, own)?;
                self.child(owner, end, extension.child.reference, own)
            }
            Node::Leaf { path: rest, value } => {
                let (end, _) = self.descend(owner, path, &rest, own)?;
                let key = end.to_hash().ok_or(HealError::OtherNode)?;
                self.leaf(owner, key, &value)
            }
        }
    }

    fn child(
        &mut self,
        owner: &Owner,
        path: Path,
        theirs: NodeRef,
        own: Own,
    ) -> Result<(), HealError> {
        match theirs {
            NodeRef::Empty if own.is_nothing() => {}
            NodeRef::Empty => self.remove_below(owner, &path)?,
            NodeRef::Inline(node) => {
                let node = Node::decode(node.as_slice()).map_err(|_| HealError::OtherNode)?;
                self.node(owner, path, node, own)?;
            }
            NodeRef::Hash(hash) | NodeRef::Leaf(hash) => {
                if own.hash() != Some(hash) {
                    self.pending.push(DifferingNode {
                        owner: *owner,
                        path,
                        hash,
                        own,
                    });
                }
            }
        }
        Ok(())
    }

    /// What our trie has at the children of a path.
    fn children(&self, owner: &Owner, path: &Path, own: Own) -> Result<[Own; 16], HealError> {
        let mut children = [const { Own::NOTHING }; 16];
        let trie = DiskTrie::new(RowSource::Latest(self.download.database()), &[]);
        let node = match own {
            Own::Rest(node) => node,
            Own::Child(NodeRef::Empty) => return Ok(children),
            Own::Child(NodeRef::Inline(node)) => {
                Node::decode(node.as_slice()).map_err(|error| own_fault(path, error))?
            }
            Own::Child(NodeRef::Leaf(hash)) => trie.leaf(owner, path, &hash)?,
            Own::Child(NodeRef::Hash(hash)) => match trie.node(owner, path, &hash)? {
                Some(node) => node,
                None => trie.leaf(owner, path, &hash)?,
            },
        };
        let (first, rest) = match node {
            Node::Branch(branch) => {
                for (nibble, child) in branch.children() {
                    children[usize::from(nibble)] = Own::Child(child);
                }
                return Ok(children);
            }
            Node::Leaf { path, value } => {
                let first = path.as_slice().first().copied();
                let path = path.skip(1);
                (first, Own::Rest(Node::Leaf { path, value }))
            }
            Node::Extension(mut extension) => {
                let first = extension.path.as_slice().first().copied();
                extension.path = extension.path.skip(1);
                let rest = match extension.path.is_empty() {
                    true => Own::Child(extension.child.reference),
                    false => Own::Rest(Node::Extension(extension)),
                };
                (first, rest)
            }
        };
        // A key of 64 nibbles has no child.
        let first = first.ok_or(HealError::OtherNode)?;
        children[usize::from(first)] = rest;
        Ok(children)
    }

    /// Follows nibbles along which the pivot's trie has no fork: what ours has beside them is removed. Returns where they end, and what
    /// ours has there.
    fn descend(
        &mut self,
        owner: &Owner,
        mut path: Path,
        nibbles: &Path,
        mut own: Own,
    ) -> Result<(Path, Own), HealError> {
        for nibble in nibbles.as_slice() {
            if !own.is_nothing() {
                let mut children = self.children(owner, &path, own)?;
                own = std::mem::replace(&mut children[usize::from(*nibble)], Own::NOTHING);
                for (other, child) in (0_u8..).zip(children) {
                    if !child.is_nothing() {
                        self.remove_below(owner, &join(&path, other)?)?;
                    }
                }
            }
            path = join(&path, *nibble)?;
        }
        Ok((path, own))
    }

    /// The pivot has this leaf, and ours is not the same.
    fn leaf(&mut self, owner: &Owner, key: B256, value: &[u8]) -> Result<(), HealError> {
        if let Some(owner) = owner {
            let value = decode_slot(value).map_err(|_| HealError::OtherNode)?;
            self.changes.put_slot(*owner, key, value);
            return Ok(());
        }
        let theirs = TrieAccount::from_leaf(value).map_err(|_| HealError::OtherNode)?;
        let own = self.download.account(&key)?;
        let own_root = own.map_or(EMPTY_ROOT_HASH, |own| own.storage_root);
        self.changes.accounts.insert(key, Some(theirs));
        self.child(
            &Some(key),
            Path::EMPTY,
            match theirs.storage_root {
                EMPTY_ROOT_HASH => NodeRef::Empty,
                root => NodeRef::Hash(root),
            },
            Own::root(own_root),
        )
    }

    /// The pivot has nothing at or below a path.
    fn remove_below(&mut self, owner: &Owner, path: &Path) -> Result<(), Fault> {
        let database = self.download.database();
        let (segment, from, to) = range_below(owner, path);
        for row in database.range(segment, &from, to.as_deref()) {
            let (key, value) = row?;
            let hash = |bytes: Option<&[u8]>| {
                let hash = bytes.and_then(|bytes| B256::try_from(bytes).ok());
                hash.ok_or_else(|| corrupt(segment, &key, "the key has another length"))
            };
            match owner {
                None => {
                    let account = hash(Some(&key))?;
                    let root = account_of_row(&key, &value)?.storage_root;
                    self.changes.accounts.insert(account, None);
                    if root != EMPTY_ROOT_HASH {
                        self.remove_below(&Some(account), &Path::EMPTY)?;
                    }
                }
                Some(owner) => {
                    value_of_row(&key, &value)?;
                    let slot = hash(key.get(32..))?;
                    self.changes.put_slot(*owner, slot, U256::ZERO);
                }
            }
        }
        Ok(())
    }
}

fn join(path: &Path, nibble: u8) -> Result<Path, HealError> {
    path.join(&[nibble]).ok_or(HealError::OtherNode)
}

fn own_fault(path: &Path, error: impl std::fmt::Display) -> Fault {
    let key = path.to_string();
    corrupt(Segment::StorageTrie, key.as_bytes(), error.to_string())
}
