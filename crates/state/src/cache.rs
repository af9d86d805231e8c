//! What was read or written lately, shared by all views of the head and bounded in bytes.

use niwaki_primitives::map::HashMap;
use niwaki_primitives::{B256, Bytes, U256};
use niwaki_trie::{Owner, Path, TrieAccount};
use std::hash::Hash;

/// A map that forgets what was not asked for lately. Two generations: when the young one has
/// reached half of the limit it becomes the old one, and what was old is dropped.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_bytes: usize,
    limit_bytes: usize,
}

impl<K: Hash + Eq + Copy, V: Clone> Cache<K, V> {
    /// What the map itself needs for an entry beside key and value.
    const OVERHEAD_BYTES: usize = 16;

    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            young_bytes: 0,
            limit_bytes,
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
            return Some(look(value));
        }
        let value = self.old.remove(key)?;
        let seen = look(&value);
        let bytes = heap_bytes(&value);
        self.insert(*key, value, bytes);
        Some(seen)
    }

    /// A copy of the value of `key`, if it is held; for values without memory of their own.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        self.with(key, |_| 0, V::clone)
    }

    /// Holds `value`, which owns `heap_bytes` beside its own size.
    pub(crate) fn insert(&mut self, key: K, value: V, heap_bytes: usize) {
        let bytes = size_of::<K>() + size_of::<V>() + Self::OVERHEAD_BYTES + heap_bytes;
        self.young.insert(key, value);
        self.young_bytes += bytes;
        if self.young_bytes > self.limit_bytes / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

/// A stored trie row, or `None` for a path that has none.
pub(crate) type CachedRow = Option<Box<[u8]>>;

/// All caches, and which head they speak of.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Counts commits. A view made before the last one must not look here.
    pub(crate) version: u64,
    pub(crate) accounts: Cache<B256, Option<TrieAccount>>,
    pub(crate) slots: Cache<(B256, B256), U256>,
    pub(crate) rows: Cache<(Owner, Path), CachedRow>,
    pub(crate) codes: Cache<B256, Bytes>,
}

impl Caches {
    /// Splits `budget_bytes`: half for trie rows, a quarter for slots, an eighth each for accounts
    /// and code.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            version: 0,
            accounts: Cache::new(budget_bytes / 8),
            slots: Cache::new(budget_bytes / 4),
            rows: Cache::new(budget_bytes / 2),
            codes: Cache::new(budget_bytes / 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn a_cache_keeps_what_is_asked_for_and_stays_within_its_bytes() {
        let mut cache = Cache::<u64, u64>::new(32 * 100);
        cache.insert(0, 1000, 0);
        for key in 1..10_000 {
            cache.insert(key, key, 0);
            assert_eq!(cache.get(&0), Some(1000), "after {key}");
            assert!(cache.young.len() + cache.old.len() <= 101);
        }
        assert_eq!(cache.get(&1), None);
        cache.insert(0, 2000, 0);
        assert_eq!(cache.get(&0), Some(2000));
    }
}
