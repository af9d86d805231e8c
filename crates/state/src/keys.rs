//! The hashes of what a diff changes: keys of the disk's rows.

use crate::{BlockId, View};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{Address, B256, Fault, StateDiff, U256};
use niwaki_trie::TrieAccount;

/// What a diff changes, in its order, with the keys of its rows. A block's root is begun some times before it
/// is made, each time with all that has changed by then, so most is as it was the last time.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The block whose state the diff changes.
    upon: Option<BlockId>,
    accounts: Vec<KeyedAccount>,
    slots: Vec<(U256, B256)>,
}

/// An account of a diff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedAccount {
    pub(crate) address: Address,
    /// The hash of that.
    pub(crate) key: B256,
    /// The account before the diff.
    pub(crate) prior: Option<TrieAccount>,
    /// Where its slots end.
    end: usize,
}

impl Keys {
    /// Those of `diff` upon `view`; what is among these is neither hashed again nor looked up.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub(crate) fn of(&self, view: &View, diff: &StateDiff) -> Result<Self, Fault> {
        let upon = Some(view.block());
        let mut keys = Self {
            upon,
            accounts: Vec::with_capacity(diff.accounts.len()),
            slots: Vec::with_capacity(self.slots.len()),
        };
        // Places of what is to be hashed.
        let (mut accounts, mut slots) = (Vec::new(), Vec::new());
        let mut known = self.each().peekable();
        for (address, change) in &diff.accounts {
            while known
                .next_if(|(known, _)| known.address < *address)
                .is_some()
            {}
            let held = known.next_if(|(known, _)| known.address == *address);
            if held.is_none() {
                accounts.push(keys.accounts.len());
            }
            let prior = match held.filter(|_| self.upon == upon) {
                Some((held, _)) => held.prior,
                None => view.trie_account(address)?,
            };
            let (key, held) = held.map_or((B256::ZERO, &[][..]), |(held, slots)| (held.key, slots));
            let mut held = held.iter().peekable();
            for (slot, _) in &change.slots {
                while held.next_if(|(held, _)| held < slot).is_some() {}
                let key = held.next_if(|(held, _)| held == slot).map(|(_, key)| *key);
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

    /// These and `newer`, which are upon the same block; else the newer ones alone.
    pub(crate) fn and(&self, newer: &Self) -> Self {
        let mut both = Self {
            upon: newer.upon,
            accounts: Vec::with_capacity(self.accounts.len() + newer.accounts.len()),
            slots: Vec::with_capacity(self.slots.len() + newer.slots.len()),
        };
        let old = (self.upon == newer.upon).then(|| self.each());
        let mut old = old.into_iter().flatten().peekable();
        for (account, slots) in newer.each() {
            while let Some((old, slots)) = old.next_if(|(old, _)| old.address < account.address) {
                both.push(old, slots, &[]);
            }
            let old = old.next_if(|(old, _)| old.address == account.address);
            both.push(account, old.map_or(&[], |(_, slots)| slots), slots);
        }
        old.for_each(|(old, slots)| both.push(old, slots, &[]));
        both
    }

    /// Puts an account behind all others, with the slots of both lists.
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

    /// Each account, and its slots with their hashes.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&KeyedAccount, &[(U256, B256)])> {
        let mut start = 0;
        self.accounts.iter().map(move |account| {
            let slots = &self.slots[start..account.end];
            start = account.end;
            (account, slots)
        })
    }
}
