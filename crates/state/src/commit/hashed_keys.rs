//! The hashes of the addresses and slots of a diff: the keys of its rows.
//!
//! An incremental root hashes what a block has changed so far several times, and each time most keys are the ones
//! of the time before. So the keys of the last diff are kept, and only new ones are hashed, all in one
//! keccak batch.

use crate::{BlockId, View};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{AccountDiff, Address, B256, Fault, U256};
use niwaki_trie::TrieAccount;

/// The keys of a diff, in its order.
#[derive(Debug, Default)]
pub(crate) struct HashedKeys {
    /// The block whose state the diff changes; prior accounts are those of that state.
    base: Option<BlockId>,
    accounts: Vec<KeyedAccount>,
    /// Slots with their hashes, those of the first account first.
    slots: Vec<(U256, B256)>,
}

/// An account of a diff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedAccount {
    pub(crate) address: Address,
    /// Keccak-256 of the address.
    pub(crate) key: B256,
    /// The account before the diff.
    pub(crate) prior: Option<TrieAccount>,
    /// Where its slots end in [`HashedKeys::slots`].
    end: usize,
}

impl HashedKeys {
    /// The keys of `diff` on top of `view`. What is among `self` is not hashed again, and its prior account not
    /// read again if the base is the same.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub(crate) fn of_diff(
        &self,
        view: &View,
        diff: &[(Address, AccountDiff)],
    ) -> Result<Self, Fault> {
        let base = Some(view.block());
        let mut keys = Self {
            base,
            accounts: Vec::with_capacity(diff.len()),
            slots: Vec::with_capacity(self.slots.len()),
        };
        // Indices of what must be hashed.
        let (mut accounts, mut slots) = (Vec::new(), Vec::new());
        let mut known = self.iter().peekable();
        for (address, change) in diff {
            while known
                .next_if(|(known, _)| known.address < *address)
                .is_some()
            {}
            let cached = known.next_if(|(known, _)| known.address == *address);
            if cached.is_none() {
                accounts.push(keys.accounts.len());
            }
            let prior = match cached.filter(|_| self.base == base) {
                Some((cached, _)) => cached.prior,
                None => view.trie_account(address)?,
            };
            let (key, cached) =
                cached.map_or((B256::ZERO, &[][..]), |(cached, slots)| (cached.key, slots));
            let mut cached = cached.iter().peekable();
            for (slot, _) in &change.slots {
                while cached.next_if(|(cached, _)| cached < slot).is_some() {}
                let key = cached.next_if(|(cached, _)| cached == slot);
                let key = key.map(|(_, key)| *key);
                if key.is_none() {
                    slots.push(keys.slots.len());
                }
                keys.slots.push((*slot, key.unwrap_or_default()));
            }
            let end = keys.slots.len();
            keys.accounts.push(KeyedAccount {
                address: *address,
                key,
                prior,
                end,
            });
        }
        let words: Vec<&[u8]> = accounts
            .iter()
            .map(|at| keys.accounts[*at].address.as_slice())
            .collect();
        for (at, hash) in accounts.iter().zip(keccak256_batch(&words)) {
            keys.accounts[*at].key = hash;
        }
        let words: Vec<[u8; 32]> = slots
            .iter()
            .map(|at| keys.slots[*at].0.to_be_bytes())
            .collect();
        let words: Vec<&[u8]> = words.iter().map(<[u8; 32]>::as_slice).collect();
        for (at, hash) in slots.iter().zip(keccak256_batch(&words)) {
            keys.slots[*at].1 = hash;
        }
        Ok(keys)
    }

    /// These keys and the `newer` ones, if both have the same base; otherwise the newer ones alone.
    pub(crate) fn merged_with(&self, newer: &Self) -> Self {
        let mut both = Self {
            base: newer.base,
            accounts: Vec::with_capacity(self.accounts.len() + newer.accounts.len()),
            slots: Vec::with_capacity(self.slots.len() + newer.slots.len()),
        };
        let old = (self.base == newer.base).then(|| self.iter());
        let mut old = old.into_iter().flatten().peekable();
        for (account, slots) in newer.iter() {
            while let Some((old, slots)) = old.next_if(|(old, _)| old.address < account.address) {
                both.push(old, slots, &[]);
            }
            let old = old.next_if(|(old, _)| old.address == account.address);
            both.push(account, old.map_or(&[], |(_, slots)| slots), slots);
        }
        old.for_each(|(old, slots)| both.push(old, slots, &[]));
        both
    }

    /// Appends an account with the slots of both lists.
    fn push(&mut self, account: &KeyedAccount, old: &[(U256, B256)], new: &[(U256, B256)]) {
        let mut new = new.iter().peekable();
        for slot in old {
            while let Some(new) = new.next_if(|new| new.0 < slot.0) {
                self.slots.push(*new);
            }
            let _ = new.next_if(|new| new.0 == slot.0);
            self.slots.push(*slot);
        }
        self.slots.extend(new);
        let end = self.slots.len();
        self.accounts.push(KeyedAccount { end, ..*account });
    }

    /// Each account, with its slots and their hashes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&KeyedAccount, &[(U256, B256)])> {
        let mut start = 0;
        self.accounts.iter().map(move |account| {
            let slots = &self.slots[start..account.end];
            start = account.end;
            (account, slots)
        })
    }
}
