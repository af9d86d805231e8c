//! Results of precompiled contracts by their whole input, shared by all threads.
//!
//! What a contract gives depends on its input and nothing else, so a result is right on every chain
//! and in every state, and is never taken back. A transaction that runs again, ahead of its turn, in a
//! block after its simulation, pays for its curves once. Memory is bounded as for prepared code: each
//! shard has a young and an old generation, and forgets the old one when the young one is full.

use alloy_primitives::Bytes;
use alloy_primitives::map::{DefaultHashBuilder, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Which contract of which forks, and its input.
type Key = (usize, Bytes);

/// Shards, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Bytes of an entry beside its input and output.
const ENTRY_BYTES: usize = 160;

/// Bytes kept in all, unless [`set_precompile_result_bytes`] says otherwise.
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

/// Bounds the memory that results of precompiled contracts take, bytes; zero keeps none.
pub fn set_precompile_result_bytes(bytes: usize) {
    BUDGET_BYTES.store(bytes, Ordering::Relaxed);
    if bytes == 0 {
        forget_precompile_results();
    }
}

/// Forgets all results, and the points that pairings keep.
pub fn forget_precompile_results() {
    crate::bn254::forget();
    for shard in &RESULTS.shards {
        *lock(shard) = Shard::default();
    }
}

/// How many results were found so far, and how many were not.
pub fn precompile_result_look_ups() -> (u64, u64) {
    (HITS.load(Ordering::Relaxed), MISSES.load(Ordering::Relaxed))
}

/// The gas used and the output of `contract` for `input`, kept or made by `run`, which is asked if the
/// gas does not do, too: then it knows the error. What can't be paid for, and inputs longer than any
/// that the contract reads, are for the caller to keep away: looking costs time by their length.
pub(super) fn kept_or<E>(
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
    // The low bits choose the place within a map.
    let at = (RESULTS.hasher.hash_one(&key) >> 32) as usize % SHARDS;
    let shard = &RESULTS.shards[at];
    let budget = budget / SHARDS / 2;
    let kept = lock(shard).get(&key, budget);
    if let Some(result) = kept.filter(|(used, _)| *used <= gas_limit) {
        HITS.fetch_add(1, Ordering::Relaxed);
        return Ok(result);
    }
    MISSES.fetch_add(1, Ordering::Relaxed);
    let result = run()?;
    lock(shard).keep(key, result.clone(), budget);
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
        self.keep(key, result.clone(), budget);
        Some(result)
    }

    fn keep(&mut self, key: Key, result: (u64, Bytes), budget: usize) {
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

    type Ran = Result<(u64, Bytes), &'static str>;

    fn never() -> Ran {
        panic!("it was kept");
    }

    #[test]
    fn a_result_is_made_once_for_each_contract_and_input() {
        let made = || -> Ran { Ok((100, Bytes::from_static(&[1]))) };
        let other = || -> Ran { Ok((200, Bytes::from_static(&[2]))) };
        assert_eq!(kept_or(901, b"input", 100, made), made());
        assert_eq!(kept_or(901, b"input", 100, never), made());
        assert_eq!(kept_or(902, b"input", 200, other), other());
        assert_eq!(kept_or(901, b"inpus", 200, other), other());
        assert_eq!(kept_or(901, b"input", 100, never), made());
    }

    #[test]
    fn too_little_gas_is_no_success_because_another_had_more() {
        let made = || -> Ran { Ok((100, Bytes::new())) };
        assert!(kept_or(903, b"gas", 100, made).is_ok());
        assert_eq!(kept_or(903, b"gas", 99, || Err("gas")), Err("gas"));
        assert!(kept_or(903, b"gas", 100, never).is_ok());
    }

    #[test]
    fn failures_are_not_kept() {
        assert_eq!(kept_or(904, b"bad", 100, || Err("point")), Err("point"));
        assert_eq!(kept_or(904, b"bad", 100, || Err("again")), Err("again"));
    }

    #[test]
    fn a_shard_forgets_what_has_not_been_used_for_long() {
        let mut shard = Shard::default();
        let budget = 100_000;
        let key = |n: u32| (1, Bytes::from(n.to_be_bytes().repeat(100)));
        for n in 0..10_000 {
            shard.keep(key(n), (1, Bytes::new()), budget);
        }
        let kept = shard.young.len() + shard.old.len();
        assert!(kept * (400 + ENTRY_BYTES) <= 2 * (budget + 1000), "{kept}");
        assert!(shard.get(&key(9_999), budget).is_some());
        assert!(shard.get(&key(0), budget).is_none());
        let oldest = shard.old.keys().next().cloned();
        let oldest = oldest.expect("two generations");
        assert!(shard.get(&oldest, budget).is_some());
        assert!(shard.young.contains_key(&oldest));
    }
}
