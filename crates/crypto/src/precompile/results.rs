//! A cache of results of precompiled contracts by their whole input, shared by all threads.
//!
//! A result depends on the input and nothing else, so it is correct on every chain and in every state and is never
//! invalidated. A transaction that is executed several times (simulated, speculatively, in a block) computes its
//! curves once. Memory is bounded: each shard has a young and an old generation, and drops the old one when the young
//! one is full.

use alloy_primitives::Bytes;
use alloy_primitives::map::{DefaultHashBuilder, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The contract of a span of forks, and its input.
type Key = (usize, Bytes);

/// Parts with a mutex of their own, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Bytes of an entry without its input and output.
const ENTRY_BYTES: usize = 160;

/// Bytes of all entries at most; [`set_precompile_result_bytes`] changes it.
static BUDGET_BYTES: AtomicUsize = AtomicUsize::new(16 << 20);

static HITS: AtomicU64 = AtomicU64::new(0);
static MISSES: AtomicU64 = AtomicU64::new(0);

static RESULTS: LazyLock<Results> = LazyLock::new(Results::default);

#[derive(Default)]
struct Results {
    hasher: DefaultHashBuilder,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    young: HashMap<Key, (u64, Bytes)>,
    old: HashMap<Key, (u64, Bytes)>,
    young_bytes: usize,
}

/// Bounds the memory of cached results of precompiled contracts, in bytes; zero caches none.
pub fn set_precompile_result_bytes(bytes: usize) {
    BUDGET_BYTES.store(bytes, Ordering::Relaxed);
    if bytes == 0 {
        forget_precompile_results();
    }
}

/// Drops all cached results, and the cached points of pairings.
pub fn forget_precompile_results() {
    crate::bn254::forget();
    for shard in &RESULTS.shards {
        *lock(shard) = Shard::default();
    }
}

/// How many lookups hit so far, and how many missed.
pub fn precompile_result_look_ups() -> (u64, u64) {
    (HITS.load(Ordering::Relaxed), MISSES.load(Ordering::Relaxed))
}

/// The gas used and the output of `contract` for `input`, from the cache or from `run`. With too little gas for the
/// cached result, `run` gives the error. The caller must not look up inputs that are longer than any that the
/// contract reads, or that can't be paid for: a lookup hashes the whole input.
pub(super) fn cached_or<E>(
    contract: usize,
    input: &[u8],
    gas_limit: u64,
    run: impl FnOnce() -> Result<(u64, Bytes), E>,
) -> Result<(u64, Bytes), E> {
    let budget = BUDGET_BYTES.load(Ordering::Relaxed);
    if budget == 0 {
        return run();
    }
    let key = (contract, Bytes::copy_from_slice(input));
    // The low bits choose the bucket within a map.
    let at = (RESULTS.hasher.hash_one(&key) >> 32) as usize % SHARDS;
    let shard = &RESULTS.shards[at];
    let budget = budget / SHARDS / 2;
    let cached = lock(shard).get(&key, budget);
    if let Some(result) = cached.filter(|(used, _)| *used <= gas_limit) {
        HITS.fetch_add(1, Ordering::Relaxed);
        return Ok(result);
    }
    MISSES.fetch_add(1, Ordering::Relaxed);
    let result = run()?;
    lock(shard).insert(key, result.clone(), budget);
    Ok(result)
}

/// A thread that panicked between two map operations leaves both maps usable.
fn lock(shard: &Mutex<Shard>) -> std::sync::MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn get(&mut self, key: &Key, budget: usize) -> Option<(u64, Bytes)> {
        if let Some(result) = self.young.get(key) {
            return Some(result.clone());
        }
        let (key, result) = self.old.remove_entry(key)?;
        self.insert(key, result.clone(), budget);
        Some(result)
    }

    fn insert(&mut self, key: Key, result: (u64, Bytes), budget: usize) {
        if self.young_bytes > budget {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += key.1.len() + result.1.len() + ENTRY_BYTES;
        self.young.insert(key, result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(u64, Bytes), &'static str>;

    fn never() -> Outcome {
        panic!("it was cached");
    }

    #[test]
    fn a_result_is_computed_once_per_contract_and_input() {
        let computed = || -> Outcome { Ok((100, Bytes::from_static(&[1]))) };
        let other = || -> Outcome { Ok((200, Bytes::from_static(&[2]))) };
        assert_eq!(cached_or(901, b"input", 100, computed), computed());
        assert_eq!(cached_or(901, b"input", 100, never), computed());
        assert_eq!(cached_or(902, b"input", 200, other), other());
        assert_eq!(cached_or(901, b"inpus", 200, other), other());
        assert_eq!(cached_or(901, b"input", 100, never), computed());
    }

    #[test]
    fn a_cached_result_with_too_little_gas_is_out_of_gas() {
        let computed = || -> Outcome { Ok((100, Bytes::new())) };
        assert!(cached_or(903, b"gas", 100, computed).is_ok());
        assert_eq!(cached_or(903, b"gas", 99, || Err("gas")), Err("gas"));
        assert!(cached_or(903, b"gas", 100, never).is_ok());
    }

    #[test]
    fn failures_are_not_cached() {
        assert_eq!(cached_or(904, b"bad", 100, || Err("point")), Err("point"));
        assert_eq!(cached_or(904, b"bad", 100, || Err("again")), Err("again"));
    }

    #[test]
    fn a_shard_evicts_the_least_recently_used_generation() {
        let mut shard = Shard::default();
        let budget = 100_000;
        let key = |n: u32| (1, Bytes::from(n.to_be_bytes().repeat(100)));
        for n in 0..10_000 {
            shard.insert(key(n), (1, Bytes::new()), budget);
        }
        let cached = shard.young.len() + shard.old.len();
        assert!(
            cached * (400 + ENTRY_BYTES) <= 2 * (budget + 1000),
            "{cached}"
        );
        assert!(shard.get(&key(9_999), budget).is_some());
        assert!(shard.get(&key(0), budget).is_none());
        let oldest = shard.old.keys().next().cloned();
        let oldest = oldest.expect("two generations");
        assert!(shard.get(&oldest, budget).is_some());
        assert!(shard.young.contains_key(&oldest));
    }
}
