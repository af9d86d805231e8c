//! A world state in maps: the simplest [`StateView`] that a block can execute on.

use alloy_primitives::keccak256;
use niwaki_primitives::{
    Account, Address, B256, Bytes, EMPTY_CODE_HASH, Fault, StateDiff, StateView, U256,
};
use std::collections::BTreeMap;

/// One account with its code and storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryAccount {
    /// Nonce.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Code, empty if none.
    pub code: MemoryCode,
    /// Slots that are not zero.
    pub storage: BTreeMap<U256, U256>,
}

/// Code with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCode {
    bytes: Bytes,
    hash: B256,
}

impl From<Bytes> for MemoryCode {
    fn from(bytes: Bytes) -> Self {
        Self {
            hash: keccak256(&bytes),
            bytes,
        }
    }
}

impl Default for MemoryCode {
    fn default() -> Self {
        Self {
            bytes: Bytes::new(),
            hash: EMPTY_CODE_HASH,
        }
    }
}

impl std::ops::Deref for MemoryCode {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// A world state in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// Accounts that exist.
    pub accounts: BTreeMap<Address, MemoryAccount>,
    /// Code by hash.
    pub codes: BTreeMap<B256, Bytes>,
    /// Hashes of ancestor blocks, for BLOCKHASH.
    pub block_hashes: BTreeMap<u64, B256>,
}

impl FromIterator<(Address, MemoryAccount)> for MemoryState {
    fn from_iter<I: IntoIterator<Item = (Address, MemoryAccount)>>(accounts: I) -> Self {
        let mut state = Self::default();
        for (address, account) in accounts {
            state.insert(address, account);
        }
        state
    }
}

impl MemoryState {
    /// Inserts or replaces an account.
    pub fn insert(&mut self, address: Address, account: MemoryAccount) {
        if !account.code.is_empty() {
            self.codes
                .insert(account.code.hash, account.code.bytes.clone());
        }
        self.accounts.insert(address, account);
    }

    /// Applies a diff and checks every `prior` value in it.
    ///
    /// # Panics
    /// If a `prior` differs: the diff was made on another state.
    pub fn apply(&mut self, diff: &StateDiff) {
        for (hash, code) in &diff.codes {
            self.codes.insert(*hash, code.clone());
        }
        for (address, change) in &diff.accounts {
            let before = self.account(address).expect("memory does not fail");
            assert_eq!(before, change.prior, "prior of {address}");
            for (slot, value) in &change.slots {
                let stored = self.storage(address, slot).expect("memory does not fail");
                assert_eq!(stored, value.prior, "prior of {address} slot {slot:#x}");
            }
            let Some(new) = change.new else {
                self.accounts.remove(address);
                continue;
            };
            let code = if new.has_code() {
                self.codes[&new.code_hash].clone()
            } else {
                Bytes::new()
            };
            let account = self.accounts.entry(*address).or_default();
            account.nonce = new.nonce;
            account.balance = new.balance;
            account.code = code.into();
            if change.storage_wiped {
                account.storage.clear();
            }
            for (slot, value) in &change.slots {
                if value.new.is_zero() {
                    account.storage.remove(slot);
                } else {
                    account.storage.insert(*slot, value.new);
                }
            }
        }
    }
}

impl StateView for MemoryState {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        Ok(self.accounts.get(address).map(|a| Account {
            nonce: a.nonce,
            balance: a.balance,
            code_hash: a.code.hash,
        }))
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let account = self.accounts.get(address);
        Ok(account
            .and_then(|a| a.storage.get(slot))
            .copied()
            .unwrap_or_default())
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        Ok(self
            .accounts
            .get(address)
            .is_some_and(|a| !a.storage.is_empty()))
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.codes
            .get(code_hash)
            .cloned()
            .ok_or_else(|| Fault::Missing {
                segment: "code",
                key: code_hash.to_string(),
            })
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.block_hashes
            .get(&number)
            .copied()
            .ok_or_else(|| Fault::Missing {
                segment: "block hashes",
                key: number.to_string(),
            })
    }
}
