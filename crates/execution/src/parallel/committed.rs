//! The state after those transactions of a block that are done, for those that run ahead.

use niwaki_evm::Publisher;
use niwaki_primitives::{
    Account, Address, B256, Bytes, Fault, StateView, U256,
    map::{DefaultHashBuilder, HashMap},
};
use std::hash::{BuildHasher, Hash};
use std::sync::{PoisonError, RwLock};

/// A parent state, and upon it what has been published since. What is read may be a mixture of two
/// moments: whoever reads compares the values again when it is its turn.
pub(super) struct Committed<'v> {
    parent: &'v (dyn StateView + Sync),
    accounts: Sharded<Address, Option<Account>>,
    slots: Sharded<(Address, U256), U256>,
    codes: Sharded<B256, Bytes>,
}

/// A map in parts, so that who writes to one does not stop those who read others.
struct Sharded<K, V> {
    hasher: DefaultHashBuilder,
    shards: [RwLock<HashMap<K, V>>; SHARDS],
}

const SHARDS: usize = 16;

impl<K: Eq + Hash, V: Clone> Sharded<K, V> {
    fn new() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            shards: std::array::from_fn(|_| RwLock::default()),
        }
    }

    fn shard(&self, key: &K) -> &RwLock<HashMap<K, V>> {
        // The low bits choose the place within a map.
        let at = (self.hasher.hash_one(key) >> 32) as usize % SHARDS;
        &self.shards[at]
    }

    fn get(&self, key: &K) -> Option<V> {
        let shard = self.shard(key).read();
        let shard = shard.unwrap_or_else(PoisonError::into_inner);
        shard.get(key).cloned()
    }

    fn put(&self, key: K, value: V) {
        let shard = self.shard(&key).write();
        shard
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, value);
    }
}

impl<'v> Committed<'v> {
    pub(super) fn new(parent: &'v (dyn StateView + Sync)) -> Self {
        Self {
            parent,
            accounts: Sharded::new(),
            slots: Sharded::new(),
            codes: Sharded::new(),
        }
    }
}

impl Publisher for Committed<'_> {
    fn account(&self, address: Address, account: Option<Account>) {
        self.accounts.put(address, account);
    }

    fn slot(&self, address: Address, key: U256, value: U256) {
        self.slots.put((address, key), value);
    }

    fn code(&self, hash: B256, code: Bytes) {
        self.codes.put(hash, code);
    }
}

impl StateView for Committed<'_> {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        match self.accounts.get(address) {
            Some(account) => Ok(account),
            None => self.parent.account(address),
        }
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        match self.slots.get(&(*address, *slot)) {
            Some(value) => Ok(value),
            None => self.parent.storage(address, slot),
        }
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.parent.has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        match self.codes.get(code_hash) {
            Some(code) => Ok(code),
            None => self.parent.code(code_hash),
        }
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.parent.block_hash(number)
    }
}
