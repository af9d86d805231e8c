//! The pivot moved to a later block by the access lists of the blocks between (EIP-7928, EIP-8189).
//!
//! The rows that are here become those of the later state; what is not here will come from it. That holds for any split of the keys:
//! a list has the last value of all that its block wrote, whatever was there before. Only the storage roots in the rows stay as they
//! were; the build finds the right ones.

use super::{StateDownload, UNKNOWN_STORAGE_ROOT, remove_remaining};
use crate::commit::flat::{encode_account, encode_value};
use crate::{LargeStorage, Remaining, StateHead};
use niwaki_crypto::keccak256;
use niwaki_primitives::{
    Account, Address, B256, BlockAccessList, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Fault, U256,
};
use niwaki_storage::{Batch, Segment};
use niwaki_trie::TrieAccount;
use std::collections::HashMap;

impl StateDownload<'_> {
    /// Moves the pivot. `lists` are those of the blocks after the present pivot up to `pivot`, in their order, each checked against
    /// its header. Parts that are written afterwards must be of the new state. Durable when this returns.
    ///
    /// # Errors
    /// A [`Fault`] of the storage; then the pivot has not moved.
    ///
    /// # Panics
    /// If the tries are built.
    pub fn move_pivot(&self, pivot: StateHead, lists: &[BlockAccessList]) -> Result<(), Fault> {
        assert_eq!(self.own_root(), None, "the tries do not fit other rows");
        let mut remaining = self.remaining();
        // A part that failed before it was marked may have left rows.
        remove_remaining(self.database(), &remaining)?;
        let mut rows = Batch::new();
        for (address, values) in last_values(lists) {
            let key = keccak256(address);
            self.change_account(&key, &values, &mut remaining, &mut rows)?;
        }
        self.change(rows, |saved| {
            saved.set_pivot(pivot);
            saved.remaining = remaining;
            saved.built_parts = 0;
        })
    }

    /// Adds the rows that change with these values, if the account is here.
    fn change_account(
        &self,
        key: &B256,
        values: &LastValues<'_>,
        remaining: &mut Remaining,
        rows: &mut Batch,
    ) -> Result<(), Fault> {
        if remaining.lacks_account(key) {
            return Ok(());
        }
        let before = self.account(key)?;
        let before = before.unwrap_or(TrieAccount::new(&Account::EMPTY, EMPTY_ROOT_HASH));
        let after = values.account(&before);
        if let Some(code) = values.code.filter(|code| !code.is_empty()) {
            rows.put(Segment::Code, after.code_hash.as_slice(), code);
        }
        let storages = remaining.storages.iter_mut();
        let mut coming: Vec<_> = storages.filter(|s| s.account == *key).collect();
        values.put_slots(key, &coming, rows);
        if !values.slots.is_empty() {
            let roots = coming.iter_mut().map(|storage| &mut storage.root);
            roots.for_each(|root| *root = UNKNOWN_STORAGE_ROOT);
        }
        match after.account().is_empty() {
            true => rows.delete(Segment::Accounts, key.as_slice()),
            false => {
                let slim = encode_account(&after);
                rows.put(Segment::Accounts, key.as_slice(), &slim);
            }
        }
        Ok(())
    }
}

/// The last value of all that several blocks wrote of an account.
#[derive(Default)]
struct LastValues<'l> {
    balance: Option<U256>,
    nonce: Option<u64>,
    code: Option<&'l Bytes>,
    slots: HashMap<U256, U256>,
}

fn last_values(lists: &[BlockAccessList]) -> HashMap<Address, LastValues<'_>> {
    let mut accounts = HashMap::<Address, LastValues<'_>>::new();
    let changed = lists.iter().flatten().filter(|list| list.has_changes());
    for changes in changed {
        let account = accounts.entry(changes.address).or_default();
        account.balance = changes.balance_post_state().or(account.balance);
        account.nonce = changes.nonce_post_state().or(account.nonce);
        account.code = changes.code_post_state().or(account.code);
        account.slots.extend(changes.storage_post_states());
    }
    accounts
}

impl LastValues<'_> {
    fn account(&self, before: &TrieAccount) -> TrieAccount {
        let code_hash = self.code.map(|code| match code.is_empty() {
            true => EMPTY_CODE_HASH,
            false => keccak256(code),
        });
        TrieAccount {
            nonce: self.nonce.unwrap_or(before.nonce),
            balance: self.balance.unwrap_or(before.balance),
            storage_root: before.storage_root,
            code_hash: code_hash.unwrap_or(before.code_hash),
        }
    }

    /// Adds the rows of the slots that are here; those of the storages that are `coming` may not be.
    fn put_slots(&self, account: &B256, coming: &[&mut LargeStorage], rows: &mut Batch) {
        for (slot, value) in &self.slots {
            let slot = keccak256(B256::from(*slot));
            if coming.iter().any(|storage| storage.lacks(&slot)) {
                continue;
            }
            let key = [account.as_slice(), slot.as_slice()];
            match value.is_zero() {
                true => rows.delete_parts(Segment::Slots, &key),
                false => rows.put_parts(Segment::Slots, &key, &[&encode_value(value)]),
            }
        }
    }
}
