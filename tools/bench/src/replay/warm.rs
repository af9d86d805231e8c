//! A witness with the values that a block reads in memory, like a node's caches.

use super::revm::AllValues;
use niwaki_primitives::map::{B256Map, HashMap};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256};
use niwaki_trie::WitnessState;
use std::sync::{Mutex, PoisonError};

/// The values that a block reads, by their plain keys.
#[derive(Debug, Default)]
struct ReadValues {
    accounts: HashMap<Address, Option<Account>>,
    slots: HashMap<(Address, U256), U256>,
    have_storage: HashMap<Address, bool>,
    codes: B256Map<Bytes>,
}

/// Records every value that is read from a witness.
pub(crate) struct ReadRecorder<'w> {
    witness: &'w WitnessState,
    values: Mutex<ReadValues>,
}

/// The recorded values, and the witness for all others.
pub(crate) struct WarmState<'w> {
    witness: &'w WitnessState,
    values: ReadValues,
}

impl<'w> ReadRecorder<'w> {
    pub(crate) fn new(witness: &'w WitnessState) -> Self {
        Self {
            witness,
            values: Mutex::default(),
        }
    }

    pub(crate) fn into_warm(self) -> WarmState<'w> {
        let values = self.values.into_inner();
        WarmState {
            witness: self.witness,
            values: values.unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn record(&self, record: impl FnOnce(&mut ReadValues)) {
        record(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl AllValues for WarmState<'_> {
    fn accounts(&self) -> Vec<(Address, Account, Bytes)> {
        let accounts = self.values.accounts.iter();
        let existing = accounts.filter_map(|(address, account)| Some((*address, (*account)?)));
        let with_code = existing.map(|(address, account)| {
            let code = self.code(&account.code_hash).unwrap_or_default();
            (address, account, code)
        });
        with_code.collect()
    }

    fn slots(&self) -> Vec<(Address, U256, U256)> {
        let slots = self.values.slots.iter();
        slots
            .map(|((address, slot), value)| (*address, *slot, *value))
            .collect()
    }
}

impl StateView for ReadRecorder<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let account = self.witness.account(address)?;
        self.record(|values| {
            values.accounts.insert(*address, account);
        });
        Ok(account)
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        let value = self.witness.storage(address, slot)?;
        self.record(|values| {
            values.slots.insert((*address, *slot), value);
        });
        Ok(value)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        let has_storage = self.witness.has_storage(address)?;
        self.record(|values| {
            values.have_storage.insert(*address, has_storage);
        });
        Ok(has_storage)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        let code = self.witness.code(code_hash)?;
        self.record(|values| {
            values.codes.insert(*code_hash, code.clone());
        });
        Ok(code)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.witness.block_hash(number)
    }
}

impl StateView for WarmState<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        match self.values.accounts.get(address) {
            Some(account) => Ok(*account),
            None => self.witness.account(address),
        }
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        match self.values.slots.get(&(*address, *slot)) {
            Some(value) => Ok(*value),
            None => self.witness.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        match self.values.have_storage.get(address) {
            Some(has_storage) => Ok(*has_storage),
            None => self.witness.has_storage(address),
        }
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.values.codes.get(code_hash) {
            Some(code) => Ok(code.clone()),
            None => self.witness.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.witness.block_hash(number)
    }
}
