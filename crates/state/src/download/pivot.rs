//! The pivot moved to a later block by the access lists of the blocks between (EIP-7928, EIP-8189).
//!
//! What has come stays as it is until the tries are whole: the last values that the lists have of it are kept as rows of `meta`, and
//! written then, tries and all. What has not come will come from the later state. That holds for any split of the keys: a list has the
//! last value of all that its block wrote, whatever was there before.

use super::changes::Changes;
use super::{StateDownload, UNKNOWN_STORAGE_ROOT};
use crate::commit::flat::encode_value;
use crate::commit::last_values::{AccountValues, LastValues};
use crate::{Remaining, StateHead};
use alloy_rlp::{Decodable, Encodable, RlpDecodable, RlpEncodable};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Account, B256, BlockAccessList, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Batch, Row, Segment, corrupt};
use niwaki_trie::TrieAccount;

/// With the hashed address of an account, or that and a hashed slot: its last value.
const CHANGED: &[u8] = b"download/changed/";
/// So many values are written together: their trie rows are in memory until then.
const MAX_CHANGES: usize = 1 << 15;

impl StateDownload<'_> {
    /// Moves the pivot. `lists` are those of the blocks after the present pivot up to `pivot`, in their order, each checked against
    /// its header. Parts that are written afterwards must be of the new state. Durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then the pivot has not moved.
    pub fn move_pivot(&self, pivot: StateHead, lists: &[BlockAccessList]) -> Result<(), Fault> {
        let mut remaining = self.remaining();
        let mut rows = Batch::new();
        let mut values = LastValues::default();
        lists.iter().for_each(|list| values.add(list));
        for (address, values) in &values.accounts {
            self.keep(&keccak256(address), values, &mut remaining, &mut rows)?;
        }
        self.change(rows, |saved| {
            saved.set_pivot(pivot);
            saved.remaining = remaining;
        })
    }

    /// Whether values of access lists are kept that are not written.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn has_changes(&self) -> Result<bool, Fault> {
        let mut rows = self.database().prefix(Segment::Meta, CHANGED);
        Ok(rows.next().transpose()?.is_some())
    }

    /// Writes the values that access lists have changed, on so many threads, and calls `go_on` before each batch of them. Returns whether
    /// all are written. What is written is durable, and not written again.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If the tries are not whole.
    pub fn write_changes(
        &self,
        threads: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Fault> {
        while self.has_changes()? {
            if !go_on() {
                return Ok(false);
            }
            let own_root = self.own_root().expect("the tries are whole");
            let (mut changes, mut written) = (Changes::default(), Batch::new());
            let rows = self.database().prefix(Segment::Meta, CHANGED);
            for row in rows.take(MAX_CHANGES) {
                let row = row?;
                written.delete(Segment::Meta, &row.0);
                self.add_change(&row, &mut changes)?;
            }
            changes.write(self, own_root, written, threads)?;
        }
        Ok(true)
    }

    /// Reads a value that is kept.
    fn add_change(&self, row: &Row, changes: &mut Changes) -> Result<(), Fault> {
        let (key, value) = row;
        let wrong = || corrupt(Segment::Meta, key, "it is no value of an access list");
        let hashes = key.get(CHANGED.len()..).unwrap_or_default();
        let (account, slot) = hashes.split_first_chunk::<32>().ok_or_else(wrong)?;
        let account = B256::from(account);
        if !slot.is_empty() {
            let slot = B256::try_from(slot).map_err(|_| wrong())?;
            let value = U256::try_from_be_slice(value).ok_or_else(wrong)?;
            changes.put_slot(account, slot, value);
            return Ok(());
        }
        let fields = Fields::decode(&mut &value[..]).map_err(|_| wrong())?;
        let before = self.account(&account)?;
        let before = before.unwrap_or(TrieAccount::new(&Account::EMPTY, EMPTY_ROOT_HASH));
        let after = fields.of(&before);
        let after = (!after.account().is_empty()).then_some(after);
        changes.accounts.insert(account, after);
        Ok(())
    }

    /// Keeps these values, if the account is here.
    fn keep(
        &self,
        key: &B256,
        values: &AccountValues,
        remaining: &mut Remaining,
        rows: &mut Batch,
    ) -> Result<(), Fault> {
        if remaining.lacks_account(key) {
            return Ok(());
        }
        let code = values.code.as_ref();
        if let Some((hash, code)) = code.filter(|(_, code)| !code.is_empty()) {
            rows.put(Segment::Code, hash.as_slice(), code);
        }
        let fields = fields_of(values);
        if fields != Fields::default() {
            let key = [CHANGED, key.as_slice()].concat();
            let earlier = self.database().get(Segment::Meta, &key)?;
            let earlier = earlier.map(|row| Fields::decode(&mut &row[..]));
            let earlier = earlier
                .transpose()
                .map_err(|error| corrupt(Segment::Meta, &key, error))?;
            let mut row = Vec::new();
            fields.after(earlier.unwrap_or_default()).encode(&mut row);
            rows.put(Segment::Meta, &key, &row);
        }
        let storages = remaining.storages.iter_mut();
        let mut coming: Vec<_> = storages.filter(|s| s.account == *key).collect();
        for (slot, value) in &values.slots {
            let slot = keccak256(B256::from(*slot));
            if !coming.iter().any(|storage| storage.lacks(&slot)) {
                let key = [CHANGED, key.as_slice(), slot.as_slice()];
                rows.put_parts(Segment::Meta, &key, &[&encode_value(value)]);
            }
        }
        if !values.slots.is_empty() {
            let roots = coming.iter_mut().map(|storage| &mut storage.root);
            roots.for_each(|root| *root = UNKNOWN_STORAGE_ROOT);
        }
        Ok(())
    }
}

/// The fields of an account that lists have changed: each none or one.
#[derive(Clone, Debug, Default, PartialEq, Eq, RlpDecodable, RlpEncodable)]
struct Fields {
    balance: Vec<U256>,
    nonce: Vec<u64>,
    code_hash: Vec<B256>,
}

impl Fields {
    /// These, and where they have none those of before.
    fn after(self, before: Self) -> Self {
        fn last<T>(before: Vec<T>, after: Vec<T>) -> Vec<T> {
            if after.is_empty() { before } else { after }
        }
        Self {
            balance: last(before.balance, self.balance),
            nonce: last(before.nonce, self.nonce),
            code_hash: last(before.code_hash, self.code_hash),
        }
    }

    fn of(&self, before: &TrieAccount) -> TrieAccount {
        TrieAccount {
            nonce: self.nonce.first().copied().unwrap_or(before.nonce),
            balance: self.balance.first().copied().unwrap_or(before.balance),
            storage_root: before.storage_root,
            code_hash: self.code_hash.first().copied().unwrap_or(before.code_hash),
        }
    }
}

/// The fields of the account that lists have changed.
fn fields_of(values: &AccountValues) -> Fields {
    Fields {
        balance: values.balance.into_iter().collect(),
        nonce: values.nonce.into_iter().collect(),
        code_hash: values.code.iter().map(|(hash, _)| *hash).collect(),
    }
}
