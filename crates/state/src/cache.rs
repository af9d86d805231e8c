//! What was read or written lately, shared by all views of the head and bounded in bytes.

use crate::changes::Changes;
use niwaki_primitives::map::HashMap;
use niwaki_primitives::{B256, Bytes, U256};
use niwaki_trie::{Branch, Node, Owner, Path, RowUpdates, TrieAccount};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The node at a path of a trie, or `None` for a path that has no row.
pub(crate) type CachedNode = Option<Arc<Node>>;

/// Parts that are locked on their own, so that threads at work on different accounts do not wait
/// for each other.
const SHARDS: usize = 16;

/// What is cached of some accounts, and which head it speaks of.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Counts commits. A view made before the last one must not look here.
    version: u64,
    pub(crate) accounts: Cache<B256, Option<TrieAccount>>,
    pub(crate) slots: Cache<(B256, B256), U256>,
    pub(crate) nodes: Cache<(Owner, Path), CachedNode>,
}

/// All caches.
#[derive(Debug)]
pub(crate) struct Caches {
    shards: [Mutex<Shard>; SHARDS],
    codes: Mutex<Cache<B256, Bytes>>,
}

impl Caches {
    /// Splits `budget_bytes`: half for trie nodes, a quarter for slots, an eighth each for accounts
    /// and code.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let shard = || {
            let budget_bytes = budget_bytes / SHARDS;
            Mutex::new(Shard {
                version: 0,
                accounts: Cache::new(budget_bytes / 8),
                slots: Cache::new(budget_bytes / 4),
                nodes: Cache::new(budget_bytes / 2),
            })
        };
        Self {
            shards: std::array::from_fn(|_| shard()),
            codes: Mutex::new(Cache::new(budget_bytes / 8)),
        }
    }

    /// The shard of the account with this hashed address, if it speaks of `version`.
    pub(crate) fn of_account(&self, key: &B256, version: u64) -> Option<MutexGuard<'_, Shard>> {
        self.shard(key[0] >> 4, version)
    }

    /// The shard of a node, if it speaks of `version`.
    pub(crate) fn of_node(
        &self,
        owner: &Owner,
        path: &Path,
        version: u64,
    ) -> Option<MutexGuard<'_, Shard>> {
        let nibble = match owner {
            Some(owner) => owner[0] >> 4,
            None => path.as_slice().first().copied().unwrap_or_default(),
        };
        self.shard(nibble, version)
    }

    fn shard(&self, nibble: u8, version: u64) -> Option<MutexGuard<'_, Shard>> {
        let shard = lock(&self.shards[usize::from(nibble)]);
        (shard.version == version).then_some(shard)
    }

    pub(crate) fn codes(&self) -> MutexGuard<'_, Cache<B256, Bytes>> {
        lock(&self.codes)
    }

    /// Brings every shard from `version` to the next: nothing is forgotten, `total` and `rows` are
    /// what has changed.
    pub(crate) fn follow(&self, version: u64, total: &Changes, rows: Vec<(Owner, RowUpdates)>) {
        for shard in &self.shards {
            lock(shard).version = version + 1;
        }
        let alive = "the shard was just brought to this version";
        for account in &total.accounts {
            let mut shard = self.of_account(&account.key, version + 1).expect(alive);
            shard.accounts.insert(account.key, account.new, 0);
            for slot in &account.slots {
                shard.slots.insert((account.key, slot.key), slot.new, 0);
            }
        }
        for (owner, updates) in rows {
            for (path, row) in updates {
                let node = row.map(|row| Arc::new(row.node));
                let mut shard = self.of_node(&owner, &path, version + 1).expect(alive);
                let bytes = node_bytes(&node);
                shard.nodes.insert((owner, path), node, bytes);
            }
        }
    }
}

/// What a cached node owns on the heap.
pub(crate) fn node_bytes(node: &CachedNode) -> usize {
    match node.as_deref() {
        None => 0,
        Some(Node::Branch(branch)) => size_of::<Node>() + size_of::<Branch>() + branch.value.len(),
        Some(Node::Extension { .. }) => size_of::<Node>(),
        Some(Node::Leaf { value, .. }) => size_of::<Node>() + value.len(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
