//! Threads that stay from block to block.

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Pools by how many threads they have. A pool of more threads than there is work would keep the
/// processor from who has some.
static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// So many threads beside the one that asks; `None` for none, or if the system gives none.
pub(crate) fn pool(threads: usize) -> Option<Arc<ThreadPool>> {
    if threads == 0 {
        return None;
    }
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&threads) {
        return Some(Arc::clone(pool));
    }
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    let pool = builder
        .thread_name(|number| format!("ahead-{number}"))
        // What recovers senders has nobody to tell: whoever needs one that is missing panics itself.
        .panic_handler(drop);
    let pool = Arc::new(pool.build().ok()?);
    pools.insert(threads, Arc::clone(&pool));
    Some(pool)
}
