//! Accounts, slots and code in memory: what was read or written lately, bounded in bytes.
//!
//! All views of the head share the caches. They are split into 16 shards by address, each behind its own mutex,
//! so that threads at work on different accounts do not wait for each other. Keys are address and slot as
//! execution names them, so a hit costs no keccak.
//!
//! Each shard has a *version*, which counts commits. A view only uses a shard of its own version: one that was
//! made before the last commit reads the disk through its snapshot. A commit does not update the shards itself.
//! It appends its diff to a backlog, and a shard applies what it has missed when it is next used, or when the
//! storage writer calls [`Caches::catch_up`] after the commit:
//!
//! ```text
//! backlog:  [ 17: diff ] [ 18: diff ]
//! shard 3:  version 16   --used by a view of version 18-->  applies 17 and 18, its accounts only
//! ```

use crate::commit::hashed_diff::{HashedAccountDiff, HashedDiff};
use niwaki_primitives::map::HashMap;
use niwaki_primitives::{Address, B256, Bytes, U256};
use niwaki_threads::lock;
use niwaki_trie::TrieAccount;
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

/// A map that forgets entries that were not used lately. It has two generations: when the young one would outgrow
/// half of the limit it becomes the old one, and the old one is dropped. A hit in the old generation moves the
/// entry to the young one.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Heap bytes that the values of the young generation own.
    young_heap_bytes: usize,
    /// The same of the old generation when it became old.
    old_heap_bytes: usize,
    limit_bytes: usize,
    rate: HitRate,
    evictions: Evictions,
}

/// How often a cache had what was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitRate {
    /// It had it.
    pub hits: u64,
    /// It had not.
    pub misses: u64,
    /// Misses of values that the storage does not have either.
    pub absent: u64,
}

impl HitRate {
    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.absent += other.absent;
    }

    /// The hits and misses since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
            absent: self.absent.saturating_sub(before.absent),
        }
    }
}

/// What a cache has forgotten because it was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Entries.
    pub entries: u64,
    /// Bytes that their values owned, at most.
    pub bytes: u64,
}

/// Look-ups in the value caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStats {
    /// Accounts, absent ones included.
    pub accounts: HitRate,
    /// Slots, absent ones included.
    pub slots: HitRate,
    /// Code by hash.
    pub codes: HitRate,
}

impl ReadStats {
    /// The look-ups since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            accounts: self.accounts.since(before.accounts),
            slots: self.slots.since(before.slots),
            codes: self.codes.since(before.codes),
        }
    }

    /// Accounts and slots together.
    pub fn values(&self) -> HitRate {
        let mut both = self.accounts;
        both.add(self.slots);
        both
    }
}

/// Statistics of the caches of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Look-ups since the state was opened.
    pub reads: ReadStats,
    /// Codes in the cache.
    pub codes: usize,
    /// Codes that it has forgotten since the state was opened.
    pub code_evictions: Evictions,
    /// Trie nodes read from the storage since the state was opened.
    pub trie_nodes_read: u64,
    /// Bytes of trie nodes in memory.
    pub trie_bytes: usize,
    /// Bytes of accounts, slots and code in memory.
    pub value_bytes: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// Bytes of an entry of the map: key, value and a control byte.
    const ENTRY_BYTES: usize = size_of::<(K, V)>() + 1;

    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            young_heap_bytes: 0,
            old_heap_bytes: 0,
            limit_bytes,
            rate: HitRate::default(),
            evictions: Evictions::default(),
        }
    }

    /// What `read` gives of the value of `key`, if that is cached.
    pub(crate) fn with<T>(
        &mut self,
        key: &K,
        heap_bytes: impl Fn(&V) -> usize,
        read: impl Fn(&V) -> T,
    ) -> Option<T> {
        if let Some(value) = self.young.get(key) {
            self.rate.hits += 1;
            return Some(read(value));
        }
        let Some(value) = self.old.remove(key) else {
            self.rate.misses += 1;
            return None;
        };
        self.rate.hits += 1;
        let result = read(&value);
        let bytes = heap_bytes(&value);
        self.insert(*key, value, bytes);
        Some(result)
    }

    /// Whether `key` is cached, without counting as a use of it.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    /// The storage does not have what was looked up last either.
    pub(crate) fn note_absent(&mut self) {
        self.rate.absent += 1;
    }

    /// A copy of the value of `key`, if it is cached; for values that own no heap memory.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.with(key, |_| 0, V::clone)
    }

    /// Caches `value`, which owns `heap_bytes` on the heap.
    pub(crate) fn insert(&mut self, key: K, value: V, heap_bytes: usize) {
        let table = Self::table_bytes(self.young.len() + 1);
        if table + self.young_heap_bytes + heap_bytes > self.limit_bytes / 2 {
            self.evictions.entries += self.old.len() as u64;
            self.evictions.bytes += self.old_heap_bytes as u64;
            self.old = std::mem::take(&mut self.young);
            self.old_heap_bytes = std::mem::take(&mut self.young_heap_bytes);
        }
        self.young.insert(key, value);
        self.young_heap_bytes += heap_bytes;
    }

    /// Bytes of a map with this many entries: its capacity is a power of two of which an eighth stays free, and
    /// it never shrinks.
    fn table_bytes(entries: usize) -> usize {
        let places = (entries.max(7) * 8).div_ceil(7).next_power_of_two();
        places * Self::ENTRY_BYTES
    }

    /// Bytes of memory, at most.
    fn bytes(&self) -> usize {
        let tables = [&self.young, &self.old].map(|map| map.capacity() * Self::ENTRY_BYTES);
        tables.iter().sum::<usize>() + self.young_heap_bytes + self.old_heap_bytes
    }

    /// Entries.
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Forgets the keys for which `is_kept` is false. O(entries).
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }
}

/// Parts of the caches with a mutex of their own.
const SHARDS: usize = 16;

/// Diffs that may be in the backlog before a commit updates the shards itself.
const MAX_BACKLOG: usize = 8;

/// The cached values of one sixteenth of all accounts.
#[derive(Debug)]
pub(crate) struct Shard {
    /// The commit up to which diffs are applied. Only a view of the same version may use the shard.
    version: u64,
    pub(crate) accounts: Cache<Address, Option<TrieAccount>>,
    pub(crate) slots: Cache<(Address, U256), U256>,
}

/// All caches.
#[derive(Debug)]
pub(crate) struct Caches {
    shards: [Mutex<Shard>; SHARDS],
    codes: Mutex<Cache<B256, Bytes>>,
    /// Diffs that not all shards have applied yet, oldest first, each with the version that it leads to. Locked
    /// after a shard.
    backlog: Mutex<VecDeque<(u64, Arc<HashedDiff>)>>,
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
            backlog: Mutex::default(),
        }
    }

    /// The shard of the account at `address`, if it is of `version` or can be brought to it.
    pub(crate) fn of(&self, address: &Address, version: u64) -> Option<MutexGuard<'_, Shard>> {
        let number = shard_of(address);
        let mut shard = lock(&self.shards[number]);
        if shard.version < version {
            self.catch_up_shard(number, &mut shard);
        }
        (shard.version == version).then_some(shard)
    }

    pub(crate) fn codes(&self) -> MutexGuard<'_, Cache<B256, Bytes>> {
        lock(&self.codes)
    }

    /// Hits and misses so far.
    pub(crate) fn stats(&self) -> ReadStats {
        let mut stats = ReadStats {
            codes: self.codes().rate,
            ..ReadStats::default()
        };
        for shard in &self.shards {
            let shard = lock(shard);
            stats.accounts.add(shard.accounts.rate);
            stats.slots.add(shard.slots.rate);
        }
        stats
    }

    /// Codes that are cached, and those that were forgotten.
    pub(crate) fn code_stats(&self) -> (usize, Evictions) {
        let codes = self.codes();
        (codes.len(), codes.evictions)
    }

    /// Bytes of memory, at most.
    pub(crate) fn bytes(&self) -> usize {
        let shards = self.shards.iter().map(|shard| {
            let shard = lock(shard);
            shard.accounts.bytes() + shard.slots.bytes()
        });
        shards.sum::<usize>() + self.codes().bytes()
    }

    /// Appends `diff`, which leads from the version before to `version`, to the backlog.
    pub(crate) fn push_diff(&self, version: u64, diff: Arc<HashedDiff>) {
        lock(&self.backlog).push_back((version, diff));
    }

    /// Forgets accounts and slots: those of `version` are of another state.
    pub(crate) fn clear(&self, version: u64) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.version = version;
            shard.accounts.retain(|_| false);
            shard.slots.retain(|_| false);
        }
        lock(&self.backlog).clear();
    }

    /// Brings all shards to the latest version and empties the backlog.
    pub(crate) fn catch_up(&self) {
        let last = lock(&self.backlog).back().map(|(version, _)| *version);
        for (number, shard) in self.shards.iter().enumerate() {
            self.catch_up_shard(number, &mut lock(shard));
        }
        lock(&self.backlog).retain(|(version, _)| Some(*version) > last);
    }

    /// Whether the backlog is long because [`Caches::catch_up`] is not called.
    pub(crate) fn is_far_behind(&self) -> bool {
        lock(&self.backlog).len() > MAX_BACKLOG
    }

    fn catch_up_shard(&self, number: usize, shard: &mut Shard) {
        let backlog: Vec<_> = {
            let backlog = lock(&self.backlog);
            let is_new = |(version, _): &&(u64, _)| *version > shard.version;
            backlog.iter().filter(is_new).cloned().collect()
        };
        for (version, diff) in backlog {
            let accounts = diff.accounts.iter();
            for account in accounts.filter(|account| shard_of(&account.address) == number) {
                shard.apply(account);
            }
            shard.version = version;
        }
    }
}

impl Shard {
    fn apply(&mut self, account: &HashedAccountDiff) {
        let address = account.address;
        self.accounts.insert(address, account.new, 0);
        for slot in &account.slots {
            if let Some(number) = slot.slot {
                self.slots.insert((address, number), slot.new, 0);
            }
        }
        // Destroyed slots are known by their hashes only, so all slots of the account are forgotten.
        if account.slots.iter().any(|slot| slot.slot.is_none()) {
            self.slots.retain(|(owner, _)| *owner != address);
        }
    }
}

fn shard_of(address: &Address) -> usize {
    usize::from(address[19]) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::{Cache, HashMap};

    #[test]
    fn a_cache_keeps_what_is_used_and_stays_within_its_limit() {
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
    fn heap_bytes_of_values_count() {
        let mut cache = Cache::<u64, Vec<u8>>::new(100_000);
        for key in 0..1000 {
            cache.insert(key, vec![0; 1000], 1000);
            assert!(cache.young.len() + cache.old.len() <= 100);
        }
        assert!(cache.young.len() + cache.old.len() > 50);
    }
}
