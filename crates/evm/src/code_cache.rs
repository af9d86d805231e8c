//! Prepared code by hash, kept across blocks and shared by all threads.
//!
//! Code is content-addressed, so an entry is right on every chain, branch and state, and nothing
//! ever has to be taken back. Memory is bounded: each shard keeps a young and an old generation,
//! and forgets the old one when the young one is full.

use crate::code::Code;
use niwaki_primitives::{B256, map::HashMap};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Shards, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Bytes kept in all, unless [`set_code_cache_bytes`] says otherwise.
static BUDGET_BYTES: AtomicUsize = AtomicUsize::new(64 << 20);

static CACHE: [Mutex<Shard>; SHARDS] = [const { Mutex::new(Shard::EMPTY) }; SHARDS];

/// Codes that have become hot and are not fused yet.
static HOT: Mutex<Vec<B256>> = Mutex::new(Vec::new());

/// As many may wait; what is beyond is noted again when it has run twice as often.
const MOST_HOT: usize = 4096;

struct Shard {
    young: Option<HashMap<B256, Arc<Code>>>,
    old: Option<HashMap<B256, Arc<Code>>>,
    young_bytes: usize,
}

/// Bounds the memory that prepared code takes beyond the blocks being executed, bytes.
pub fn set_code_cache_bytes(bytes: usize) {
    BUDGET_BYTES.store(bytes, Ordering::Relaxed);
}

/// Notes that the code with this hash is to be fused. Whatever has no hash of its own is not.
#[cfg(target_arch = "x86_64")]
#[cold]
pub(crate) fn note_hot(hash: B256) {
    let mut hot = HOT.lock().unwrap_or_else(PoisonError::into_inner);
    if hot.len() < MOST_HOT && !hash.is_zero() {
        hot.push(hash);
    }
}

/// Fuses the codes that have become hot since the last call, where [`crate::fuse_later`] has left that to
/// somebody who has time; how many there were.
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

/// The prepared code with this hash, if it is kept.
pub(crate) fn get(hash: &B256) -> Option<Arc<Code>> {
    // A thread that panicked between two map operations leaves both maps usable.
    let mut shard = shard(hash).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(code) = shard.young.as_ref().and_then(|young| young.get(hash)) {
        return Some(code.clone());
    }
    let code = shard.old.as_mut()?.remove(hash)?;
    shard.keep(code.clone());
    Some(code)
}

/// Keeps prepared code.
pub(crate) fn put(code: Arc<Code>) {
    let mut shard = shard(&code.hash())
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    shard.keep(code);
}

impl Shard {
    const EMPTY: Self = Self {
        young: None,
        old: None,
        young_bytes: 0,
    };

    fn keep(&mut self, code: Arc<Code>) {
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
    fn a_shard_evicts_the_least_recently_used_generation() {
        let code = |n: u32| {
            let mut bytes = vec![0; 24_576];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            Arc::new(Code::new(&bytes, keccak256(&bytes)))
        };
        let mut shard = Shard::EMPTY;
        let kept = |shard: &Shard| {
            let count = |map: &Option<HashMap<_, _>>| map.as_ref().map_or(0, HashMap::len);
            count(&shard.young) + count(&shard.old)
        };
        for n in 0..1000 {
            shard.keep(code(n));
        }
        let bound = BUDGET_BYTES.load(Ordering::Relaxed) / SHARDS / code(0).memory_bytes() + 4;
        assert!(
            kept(&shard) <= bound,
            "{} codes are kept, at most {bound} may be",
            kept(&shard)
        );
        let last = code(999).hash();
        assert!(shard.young.as_ref().unwrap().contains_key(&last));
    }
}
