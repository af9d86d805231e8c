//! What was read or written lately, shared by all views of the head and bounded in bytes.

use crate::changes::{AccountChange, Changes};
use niwaki_primitives::map::HashMap;
use niwaki_primitives::{Address, B256, Bytes, U256};
use niwaki_trie::TrieAccount;
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A map that forgets what was not asked for lately. Two generations: when the young one would
/// outgrow half of the limit it becomes the old one, and what was old is dropped.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// What the values of the young generation own beside their own size.
    young_heap_bytes: usize,
    limit_bytes: usize,
    rate: HitRate,
}

/// How often what was asked for was held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitRate {
    /// It was.
    pub hits: u64,
    /// It was not.
    pub misses: u64,
}

impl HitRate {
    pub(crate) fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }

    /// What has come since it was `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
        }
    }
}

/// What the caches of a state hold, and how often it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Accounts, absent ones included.
    pub accounts: HitRate,
    /// Slots, absent ones included.
    pub slots: HitRate,
    /// Code by hash.
    pub codes: HitRate,
    /// Trie nodes read from the storage since the state was opened.
    pub trie_nodes_read: u64,
    /// Bytes of trie nodes in memory.
    pub trie_bytes: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// What a place in the map takes: key, value and a byte of its own.
    const PLACE_BYTES: usize = size_of::<(K, V)>() + 1;

    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            young_heap_bytes: 0,
            limit_bytes,
            rate: HitRate::default(),
        }
    }

    /// Sees the value of `key` through `look`, if it is held.
    pub(crate) fn with<T>(
        &mut self,
        key: &K,
        heap_bytes: impl Fn(&V) -> usize,
        look: impl Fn(&V) -> T,
    ) -> Option<T> {
        if let Some(value) = self.young.get(key) {
            self.rate.hits += 1;
            return Some(look(value));
        }
        let Some(value) = self.old.remove(key) else {
            self.rate.misses += 1;
            return None;
        };
        self.rate.hits += 1;
        let seen = look(&value);
        let bytes = heap_bytes(&value);
        self.insert(*key, value, bytes);
        Some(seen)
    }

    /// Whether `key` is held; nobody has asked for it.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    /// A copy of the value of `key`, if it is held; for values without memory of their own.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.with(key, |_| 0, V::clone)
    }

    /// Holds `value`, which owns `heap_bytes` beside its own size.
    pub(crate) fn insert(&mut self, key: K, value: V, heap_bytes: usize) {
        let table = Self::table_bytes(self.young.len() + 1);
        if table + self.young_heap_bytes + heap_bytes > self.limit_bytes / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_heap_bytes = 0;
        }
        self.young.insert(key, value);
        self.young_heap_bytes += heap_bytes;
    }

    /// What a map with so many entries takes: its places are a power of two, of which an eighth
    /// stays free, and never given back.
    fn table_bytes(entries: usize) -> usize {
        let places = (entries.max(7) * 8).div_ceil(7).next_power_of_two();
        places * Self::PLACE_BYTES
    }

    /// Forgets the keys that `is_kept` does not want. O(entries).
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }
}

/// Parts that are locked on their own, so that threads at work on different accounts do not wait
/// for each other.
const SHARDS: usize = 16;

/// Changes that may wait for the shards.
const MOST_BEHIND: usize = 8;

/// What is cached of some accounts, and which head it speaks of. By address and slot as execution
/// names them, so that what is held is found without hashing.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Counts commits. A view made before the last one must not look here.
    version: u64,
    pub(crate) accounts: Cache<Address, Option<TrieAccount>>,
    pub(crate) slots: Cache<(Address, U256), U256>,
}

/// All caches.
#[derive(Debug)]
pub(crate) struct Caches {
    shards: [Mutex<Shard>; SHARDS],
    codes: Mutex<Cache<B256, Bytes>>,
    /// Changes that not all shards have followed yet, oldest first, each with the version that it
    /// leads to. Locked after a shard.
    behind: Mutex<VecDeque<(u64, Arc<Changes>)>>,
}

impl Caches {
    /// Splits `budget_bytes`: half for slots, a quarter each for accounts and code.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let shard = || {
            let budget_bytes = budget_bytes / SHARDS;
            Mutex::new(Shard {
                version: 0,
                accounts: Cache::new(budget_bytes / 4),
                slots: Cache::new(budget_bytes / 2),
            })
        };
        Self {
            shards: std::array::from_fn(|_| shard()),
            codes: Mutex::new(Cache::new(budget_bytes / 4)),
            behind: Mutex::default(),
        }
    }

    /// The shard of the account at `address`, if it speaks of `version`.
    pub(crate) fn of(&self, address: &Address, version: u64) -> Option<MutexGuard<'_, Shard>> {
        let number = shard_of(address);
        let mut shard = lock(&self.shards[number]);
        if shard.version < version {
            self.bring_up(number, &mut shard);
        }
        (shard.version == version).then_some(shard)
    }

    pub(crate) fn codes(&self) -> MutexGuard<'_, Cache<B256, Bytes>> {
        lock(&self.codes)
    }

    /// What was asked for so far.
    pub(crate) fn figures(&self) -> CacheFigures {
        let mut figures = CacheFigures {
            codes: self.codes().rate,
            ..CacheFigures::default()
        };
        for shard in &self.shards {
            let shard = lock(shard);
            figures.accounts.add(shard.accounts.rate);
            figures.slots.add(shard.slots.rate);
        }
        figures
    }

    /// Says that `total` is what has changed from the version before to `version`. A shard follows
    /// when it is next asked, or in [`Caches::catch_up`].
    pub(crate) fn follow(&self, version: u64, total: Arc<Changes>) {
        lock(&self.behind).push_back((version, total));
    }

    /// Brings all shards to the last version.
    pub(crate) fn catch_up(&self) {
        let last = lock(&self.behind).back().map(|(version, _)| *version);
        for (number, shard) in self.shards.iter().enumerate() {
            self.bring_up(number, &mut lock(shard));
        }
        lock(&self.behind).retain(|(version, _)| Some(*version) > last);
    }

    /// Whether changes wait because nobody lets the shards catch up.
    pub(crate) fn is_far_behind(&self) -> bool {
        lock(&self.behind).len() > MOST_BEHIND
    }

    fn bring_up(&self, number: usize, shard: &mut Shard) {
        let behind: Vec<_> = {
            let behind = lock(&self.behind);
            let is_new = |(version, _): &&(u64, _)| *version > shard.version;
            behind.iter().filter(is_new).cloned().collect()
        };
        for (version, changes) in behind {
            let accounts = changes.accounts.iter();
            for account in accounts.filter(|account| shard_of(&account.address) == number) {
                shard.follow(account);
            }
            shard.version = version;
        }
    }
}

impl Shard {
    fn follow(&mut self, account: &AccountChange) {
        let address = account.address;
        self.accounts.insert(address, account.new, 0);
        for slot in &account.slots {
            if let Some(number) = slot.slot {
                self.slots.insert((address, number), slot.new, 0);
            }
        }
        // Of destroyed storage it is not known which slots it had.
        if account.slots.iter().any(|slot| slot.slot.is_none()) {
            self.slots.retain(|(owner, _)| *owner != address);
        }
    }
}

fn shard_of(address: &Address) -> usize {
    usize::from(address[19]) % SHARDS
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{Cache, HashMap};

    #[test]
    fn a_cache_keeps_what_is_asked_for_and_stays_within_its_bytes() {
        const LIMIT_BYTES: usize = 10_000;
        let mut cache = Cache::<u64, u64>::new(LIMIT_BYTES);
        let bytes = |map: &HashMap<u64, u64>| map.capacity() * 8 / 7 * 17;
        cache.insert(0, 1000, 0);
        let mut most = 0;
        for key in 1..10_000 {
            cache.insert(key, key, 0);
            assert_eq!(cache.get(&0), Some(1000), "after {key}");
            let taken = bytes(&cache.young) + bytes(&cache.old);
            assert!(taken <= LIMIT_BYTES, "{taken}");
            most = most.max(taken);
        }
        assert!(most > LIMIT_BYTES / 2, "{most}");
        assert_eq!(cache.get(&1), None);
        cache.insert(0, 2000, 0);
        assert_eq!(cache.get(&0), Some(2000));
    }

    #[test]
    fn what_values_own_counts() {
        let mut cache = Cache::<u64, Vec<u8>>::new(100_000);
        for key in 0..1000 {
            cache.insert(key, vec![0; 1000], 1000);
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert!(cache.young.len() + cache.old.len() > 50);
    }
}
