//! Any past state of an archive.

use crate::commit::flat::{account_of_row, value_of_row};
use crate::commit::history::{PATH_TERMINATOR, history_of};
use crate::tries::disk_trie::{leaf_of, node_of, range_below, row_key};
use crate::{StateHead, View};
use alloy_primitives::{hex, keccak256};
use niwaki_primitives::{Account, Address, B256, Bytes, EMPTY_ROOT_HASH, Fault, StateView, U256};
use niwaki_storage::{Segment, Snapshot, corrupt};
use niwaki_trie::{Node, Owner, Path, TrieAccount, TrieView, encode_slot, prove};
use std::collections::BTreeSet;

/// The state after a canonical block below the head. It never changes, whatever is committed later. It keeps what a
/// [`View`] keeps, and is as cheap to clone.
#[derive(Clone, Debug)]
pub struct HistoricalView {
    /// A view of a head above the block.
    now: View,
    /// The block and its state root.
    past: StateHead,
}

impl HistoricalView {
    /// The state of `past`, which must be an ancestor of the head that `now` is a view of.
    pub(crate) fn new(now: View, past: StateHead) -> Self {
        Self { now, past }
    }

    /// The block whose state this is, and its state root.
    pub fn block(&self) -> StateHead {
        self.past
    }

    /// The account at `address`, with its storage root.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn trie_account(&self, address: &Address) -> Result<Option<TrieAccount>, Fault> {
        self.account_by_key(&keccak256(address))
    }

    pub(crate) fn account_by_key(&self, key: &B256) -> Result<Option<TrieAccount>, Fault> {
        let slim = self.row(Segment::Accounts, key.as_slice(), &[])?;
        slim.map(|slim| account_of_row(key.as_slice(), &slim))
            .transpose()
    }

    pub(crate) fn slot_by_key(&self, key: &[u8]) -> Result<U256, Fault> {
        let value = self.row(Segment::Slots, key, &[])?;
        value.map_or(Ok(U256::ZERO), |value| value_of_row(key, &value))
    }

    /// The nodes that prove the account at `address`, from the root down.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_account(&self, address: &Address) -> Result<Vec<Bytes>, Fault> {
        let key = Path::of_hash(&keccak256(address));
        prove(self, None, self.past.root, &key)
    }

    /// The nodes that prove `slot` in the storage root of `address`, from the root down.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prove_slot(&self, address: &Address, slot: &U256) -> Result<Vec<Bytes>, Fault> {
        let account = self.trie_account(address)?;
        let root = account.map_or(EMPTY_ROOT_HASH, |account| account.storage_root);
        let key = Path::of_hash(&keccak256(B256::from(*slot)));
        prove(self, Some(keccak256(address)), root, &key)
    }

    /// The row of `key` after the block: the one before the first later change, or else the present one. `end` ends
    /// keys whose length varies.
    fn row(&self, segment: Segment, key: &[u8], end: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let above = self.past.block.number.saturating_add(1).to_be_bytes();
        let from = [key, end, &above].concat();
        let to = [key, end, &u64::MAX.to_be_bytes()].concat();
        let mut later = self.snapshot().range(history_of(segment), &from, Some(&to));
        match later.next().transpose()? {
            Some((_, before)) if before.is_empty() => Ok(None),
            Some((_, before)) => Ok(Some(before.into())),
            None => self.snapshot().get(segment, key),
        }
    }

    /// The keys from `from` up to `to` that have or once had a row in a flat segment.
    fn keys(
        &self,
        segment: Segment,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<BTreeSet<Vec<u8>>, Fault> {
        let mut keys = BTreeSet::new();
        for row in self.snapshot().range(segment, from, to) {
            keys.insert(row?.0.into());
        }
        let (history, mut from) = (history_of(segment), from.to_vec());
        loop {
            let Some(row) = self.snapshot().range(history, &from, to).next() else {
                return Ok(keys);
            };
            let (row, _) = row?;
            let key = row.len().checked_sub(8).and_then(|end| row.get(..end));
            let key = key.ok_or_else(|| corrupt(history, &row, "it has no block number"))?;
            keys.insert(key.to_vec());
            from = [key, &[0xff; 9]].concat();
        }
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.now.snapshot
    }
}

impl TrieView for HistoricalView {
    fn node(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault> {
        let (segment, key) = row_key(owner, path);
        let key = key.concat();
        let Some(row) = self.row(segment, &key, &[PATH_TERMINATOR])? else {
            return Ok(None);
        };
        node_of(segment, &key, &row, hash).map(Some)
    }

    fn leaf(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Node, Fault> {
        let (segment, from, to) = range_below(owner, path);
        for key in self.keys(segment, &from, to.as_deref())? {
            let (own, value) = match owner {
                None => {
                    let key = B256::try_from(&key[..]);
                    let key = key.map_err(|_| corrupt(segment, &from, "a key is not 32 bytes"))?;
                    let account = self.account_by_key(&key)?;
                    (key, account.map(|account| account.to_leaf()))
                }
                Some(_) => {
                    let own = key.get(32..).and_then(|own| B256::try_from(own).ok());
                    let own = own.ok_or_else(|| corrupt(segment, &key, "it is not 64 bytes"))?;
                    let value = self.slot_by_key(&key)?;
                    (own, (!value.is_zero()).then(|| encode_slot(&value)))
                }
            };
            let own = Path::of_hash(&own);
            if let Some(leaf) = value.and_then(|value| leaf_of(own, path, value, hash)) {
                return Ok(leaf);
            }
        }
        Err(Fault::Missing {
            segment: segment.name(),
            key: format!("{} (a past leaf below path {path})", hex::encode(&from)),
        })
    }
}

impl StateView for HistoricalView {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.map(|account| account.account()))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let key = [keccak256(address), keccak256(B256::from(*slot))].concat();
        self.slot_by_key(&key)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        let account = self.trie_account(address)?;
        Ok(account.is_some_and(|account| account.storage_root != EMPTY_ROOT_HASH))
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.now.code(code_hash)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.now.block_hash(number)
    }
}
