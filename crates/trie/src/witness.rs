//! A state in a witness: the trie nodes, codes and headers that the execution of one block needs.

use crate::{
    LeafUpdate, Node, Owner, Path, Trie, TrieAccount, TrieUpdate, TrieView, UpdateOptions,
    decode_slot, encode_slot, find, update_tries,
};
use alloy_primitives::keccak256;
use niwaki_primitives::map::{B256Map, HashMap};
use niwaki_primitives::{
    Account, AccountDiff, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, SlotDiff, StateDiff,
    StateView, U256,
};

const NODES: &str = "witness nodes";

/// The state before a block, as far as a witness has it.
///
/// What the witness lacks is [`Fault::Missing`] when it is read, never absent.
#[derive(Clone, Debug)]
pub struct WitnessState {
    state_root: B256,
    nodes: B256Map<Bytes>,
    codes: B256Map<Bytes>,
    block_hashes: HashMap<u64, B256>,
}

impl WitnessState {
    /// A state with root `state_root` made of trie nodes (RLP) and codes, both in any order, and
    /// the hashes of ancestor blocks by number. Nothing is checked until it is used: nodes are
    /// found by their hash, so a foreign node is merely never read.
    pub fn new(
        state_root: B256,
        nodes: impl IntoIterator<Item = Bytes>,
        codes: impl IntoIterator<Item = Bytes>,
        block_hashes: impl IntoIterator<Item = (u64, B256)>,
    ) -> Self {
        let by_hash = |bytes: Bytes| (keccak256(&bytes), bytes);
        Self {
            state_root,
            nodes: nodes.into_iter().map(by_hash).collect(),
            codes: codes.into_iter().map(by_hash).collect(),
            block_hashes: block_hashes.into_iter().collect(),
        }
    }

    /// The root of this state.
    pub fn state_root(&self) -> B256 {
        self.state_root
    }

    /// The root of the state after `diff`, which is relative to this state.
    ///
    /// # Errors
    /// [`Fault::Missing`] if the witness lacks a node that the new root depends on.
    ///
    /// Spec: execution-specs `state.py`, `state_root`.
    pub fn post_root(&self, diff: &StateDiff) -> Result<B256, Fault> {
        let mut leaves = Vec::with_capacity(diff.accounts.len());
        for (address, change) in &diff.accounts {
            let key = Path::of_hash(&keccak256(address));
            let leaf = |account| self.post_account(address, account, change);
            leaves.push((key, change.new.as_ref().map(leaf).transpose()?));
        }
        self.updated_root(None, self.state_root, leaves)
    }

    fn updated_root(
        &self,
        owner: Owner,
        root: B256,
        mut leaves: Vec<(Path, Option<Vec<u8>>)>,
    ) -> Result<B256, Fault> {
        leaves.sort_unstable_by_key(|(key, _)| *key);
        let leaves: Vec<LeafUpdate<'_>> = leaves
            .iter()
            .map(|(key, value)| LeafUpdate {
                key: *key,
                value: value.as_deref(),
                replaces: false,
            })
            .collect();
        let mut trie = Trie::new(root);
        let update = TrieUpdate {
            owner,
            trie: &mut trie,
            leaves: &leaves,
        };
        let (threads, clock) = (1, 0);
        let work = UpdateOptions { threads, clock };
        let no_rows = |(): &mut (), _: &Owner, _: &Path, _: Option<&[u8]>| {};
        update_tries(self, vec![update], work, &no_rows)?;
        Ok(trie.root())
    }

    fn post_account(
        &self,
        address: &Address,
        account: &Account,
        change: &AccountDiff,
    ) -> Result<Vec<u8>, Fault> {
        let prior_root = match change.storage_wiped {
            true => EMPTY_ROOT_HASH,
            false => self.storage_root(address)?,
        };
        let leaf = |(slot, value): &(U256, SlotDiff)| {
            let key = Path::of_hash(&keccak256(B256::from(*slot)));
            (key, (!value.new.is_zero()).then(|| encode_slot(&value.new)))
        };
        let slots = change.slots.iter().map(leaf).collect();
        let owner = Some(keccak256(address));
        let storage_root = self.updated_root(owner, prior_root, slots)?;
        Ok(TrieAccount::new(account, storage_root).to_leaf())
    }

    fn trie_account(&self, address: &Address) -> Result<Option<TrieAccount>, Fault> {
        let key = keccak256(address);
        let path = Path::of_hash(&key);
        let leaf = find(self, None, self.state_root, &path, &mut |_| {})?;
        let decode = |leaf: Vec<u8>| TrieAccount::from_leaf(&leaf).map_err(|e| corrupt(&key, &e));
        leaf.map(decode).transpose()
    }

    fn storage_root(&self, address: &Address) -> Result<B256, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root))
    }
}

impl TrieView for WitnessState {
    fn node(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault> {
        self.leaf(owner, path, hash).map(Some)
    }

    fn leaf(&self, _: &Owner, _: &Path, hash: &B256) -> Result<Node, Fault> {
        let rlp = self.nodes.get(hash).ok_or_else(|| missing(NODES, hash))?;
        Node::decode(rlp).map_err(|e| corrupt(hash, &e))
    }
}

impl StateView for WitnessState {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.map(|account| account.account()))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let root = self.storage_root(address)?;
        let key = keccak256(B256::from(*slot));
        let owner = Some(keccak256(address));
        let leaf = find(self, owner, root, &Path::of_hash(&key), &mut |_| {})?;
        let decode = |leaf: Vec<u8>| decode_slot(&leaf).map_err(|e| corrupt(&key, &e));
        Ok(leaf.map(decode).transpose()?.unwrap_or_default())
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        Ok(self.storage_root(address)? != EMPTY_ROOT_HASH)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        let code = self.codes.get(code_hash).cloned();
        code.ok_or_else(|| missing("witness codes", code_hash))
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        let hash = self.block_hashes.get(&number).copied();
        hash.ok_or_else(|| missing("witness headers", &number))
    }
}

fn missing(segment: &'static str, key: &dyn std::fmt::Display) -> Fault {
    let key = key.to_string();
    Fault::Missing { segment, key }
}

fn corrupt(key: &B256, reason: &dyn std::fmt::Display) -> Fault {
    Fault::Corrupt {
        segment: NODES,
        key: key.to_string(),
        reason: reason.to_string(),
    }
}
