//! Accounts and slots added by their hashed keys, each once.

use super::{ACCOUNT, GenesisLoad, ITSELF, SLOT};
use crate::commit::flat::{account_of_row, encode_account, encode_value, value_of_row};
use niwaki_primitives::{Address, B256, EMPTY_ROOT_HASH, Fault, U256};
use niwaki_storage::{Segment, corrupt};
use niwaki_trie::TrieAccount;

impl GenesisLoad<'_> {
    /// Adds an account by its key, in its flat form; its storage root is computed from its slots. Each key may be added
    /// once.
    ///
    /// # Errors
    /// [`Fault::Corrupt`] if it is not a key and an account, or a [`Fault`] of the disk.
    pub fn add_flat_account(&mut self, key: &[u8], slim: &[u8]) -> Result<(), Fault> {
        let flat = TrieAccount {
            storage_root: EMPTY_ROOT_HASH,
            ..account_of_row(key, slim)?
        };
        if key.len() != 32 {
            return Err(corrupt(Segment::Accounts, key, "the key is not 32 bytes"));
        }
        self.push_flat_account(key, &flat)
    }

    /// Adds a slot by its key, in its flat form. Each key may be added once.
    ///
    /// # Errors
    /// [`Fault::Corrupt`] if it is not a key and a value, or a [`Fault`] of the disk.
    pub fn add_flat_slot(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        value_of_row(key, value)?;
        match key.split_at_checked(32) {
            Some((owner, slot)) if slot.len() == 32 => {
                self.sorter.push(&[&[ACCOUNT], owner, &[SLOT], slot], value)
            }
            _ => Err(corrupt(Segment::Slots, key, "the key is not 64 bytes")),
        }
    }

    /// As [`GenesisLoad::add_flat_account`], by its hashed address.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn add_hashed_account(&mut self, key: &B256, account: &TrieAccount) -> Result<(), Fault> {
        let flat = TrieAccount {
            storage_root: EMPTY_ROOT_HASH,
            ..*account
        };
        self.push_flat_account(key.as_slice(), &flat)
    }

    /// As [`GenesisLoad::add_flat_slot`], by its hashed keys; zero is no value.
    ///
    /// # Errors
    /// A [`Fault`] of the disk.
    pub fn add_hashed_slot(
        &mut self,
        account: &B256,
        slot: &B256,
        value: &U256,
    ) -> Result<(), Fault> {
        if value.is_zero() {
            return Ok(());
        }
        let key = [&[ACCOUNT][..], account.as_slice(), &[SLOT], slot.as_slice()];
        self.sorter.push(&key, &encode_value(value))
    }

    fn push_flat_account(&mut self, key: &[u8], flat: &TrieAccount) -> Result<(), Fault> {
        // The address is not known, and it is not needed for an account that is added once.
        let value = [Address::ZERO.as_slice(), &encode_account(flat)].concat();
        self.sorter.push(&[&[ACCOUNT], key, &[ITSELF]], &value)
    }
}
