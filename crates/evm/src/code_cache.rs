//! The code cache: prepared code by hash, kept across blocks and shared by all threads.
//!
//! Code is content-addressed, so an entry is right on every chain, branch and state, and is never invalidated. Memory
//! is bounded by [`set_code_cache_bytes`] (64 MiB by default): each of 16 shards has a young and an old generation. A
//! hit in the old one moves the code to the young one; when the young one is full it becomes the old one, and the old
//! one is dropped.
//!
//! The queue of hot codes is here too: code that has run [`crate::set_hot_threshold`] times is queued by its hash, and
//! the node fuses the queue between blocks ([`fuse_hot_codes`]).

use crate::code::Code;
use niwaki_primitives::{B256, map::HashMap};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Shards, so that threads seldom contend for a lock.
const SHARDS: usize = 16;

/// Bytes of all shards together; see [`set_code_cache_bytes`].
static BUDGET_BYTES: AtomicUsize = AtomicUsize::new(64 << 20);

static CACHE: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard::EMPTY) }; SHARDS];

/// Hashes of codes that are hot and not fused yet.
static HOT: Mutex<Vec<B256>> = Mutex::new(Vec::new());

/// Longest queue; code that finds it full is queued again after twice as many runs.
const MAX_QUEUED: usize = 4096;

struct Shard {
    young: Option<HashMap<B256, Arc<Code>>>,
    old: Option<HashMap<B256, Arc<Code>>>,
    young_bytes: usize,
}

/// Sets the memory bound of the cache, bytes. Blocks that are executing hold their codes besides.
pub fn set_code_cache_bytes(bytes: usize) {
    BUDGET_BYTES.store(bytes, Ordering::Relaxed);
}

/// Queues the code with this hash for fusing. Init code has no hash (zero) and is not queued.
#[cfg(target_arch = "x86_64")]
#[cold]
pub(crate) fn queue_hot(hash: B256) {
    let mut hot = HOT.lock().unwrap_or_else(PoisonError::into_inner);
    if hot.len() < MAX_QUEUED && !hash.is_zero() {
        hot.push(hash);
    }
}

/// Fuses the codes that have become hot since the last call, after [`crate::defer_fusing`]; returns how many there
/// were.
pub fn fuse_hot_codes() -> usize {
    let hot = std::mem::take(&mut *HOT.lock().unwrap_or_else(PoisonError::into_inner));
    #[cfg(target_arch = "x86_64")]
    for code in hot.iter().filter_map(get) {
        code.fuse();
    }
    hot.len()
}

fn shard(hash: &B256) -> &'static Mutex<Shard> {
    &CACHE[usize::from(hash[0]) % SHARDS]
}

/// The prepared code with this hash, if it is cached.
pub(crate) fn get(hash: &B256) -> Option<Arc<Code>> {
    // A thread that panicked between two map operations leaves both maps usable.
    let mut shard = shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = shard.young.as_ref().and_then(|young| young.get(hash)) {
        return Some(code.clone());
    }
    let code = shard.old.as_mut()?.remove(hash)?;
    shard.insert(code.clone());
    Some(code)
}

/// Caches prepared code.
pub(crate) fn put(code: Arc<Code>) {
    let mut shard = shard(&code.hash())
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    shard.insert(code);
}

impl Shard {
    const EMPTY: Self = Self {
        young: None,
        old: None,
        young_bytes: 0,
    };

    fn insert(&mut self, code: Arc<Code>) {
        let budget = BUDGET_BYTES.load(Ordering::Relaxed) / SHARDS / 2;
        if self.young_bytes > budget {
            self.old = self.young.take();
            self.young_bytes = 0;
        }
        self.young_bytes += code.memory_bytes();
        self.young.get_or_insert_default().insert(code.hash(), code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_crypto::keccak256;

    #[test]
    fn shard_stays_within_budget_after_1000_codes_of_24_kib() {
        let code = |n: u32| {
            let mut bytes = vec![0; 24_576];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            Arc::new(Code::new(&bytes, keccak256(&bytes)))
        };
        let mut shard = Shard::EMPTY;
        let count = |shard: &Shard| {
            let len = |map: &Option<HashMap<_, _>>| map.as_ref().map_or(0, HashMap::len);
            len(&shard.young) + len(&shard.old)
        };
        for n in 0..1000 {
            shard.insert(code(n));
        }
        let bound = BUDGET_BYTES.load(Ordering::Relaxed) / SHARDS / code(0).memory_bytes() + 4;
        assert!(
            count(&shard) <= bound,
            "{} codes are cached, at most {bound} may be",
            count(&shard)
        );
        let last = code(999).hash();
        assert!(shard.young.as_ref().unwrap().contains_key(&last));
    }
}
