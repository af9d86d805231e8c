//! Worker threads that live from block to block and work in parallel with their caller.
//!
//! To start a thread takes longer than much of the work that a block has for it, so each purpose has a
//! [`WorkerPool`] whose threads sleep between blocks. A pool is a rayon pool with one thing added. The kernel may
//! put a thread that is woken on the CPU of the thread that woke it, although another CPU is idle: on virtual
//! machines a halted CPU does not count as idle. The worker then waits for milliseconds until the kernel
//! balances the load. So a worker may not run on its caller's CPU until it has begun:
//!
//! ```text
//! caller on CPU 0: spawn --> affinity of idle workers: all CPUs but 0 --> wake
//! worker on CPU 1: begins --> affinity: all CPUs that the caller may use --> work
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `affinity` | CPU affinity of the workers, on Linux |
//! | `affinity_noop` | the same where affinity can't be set: does nothing |
//! | `cpu_load` | how many CPUs are idle |

#[cfg_attr(not(target_os = "linux"), path = "affinity_noop.rs")]
mod affinity;
mod cpu_load;

use affinity::{CallerCpus, WorkerAffinity};
pub use cpu_load::free_processors;
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All pools, by purpose and number of threads.
static POOLS: Mutex<BTreeMap<(&str, usize), Arc<WorkerPool>>> = Mutex::new(BTreeMap::new());

/// Locks `mutex`, also after a thread has panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Worker threads for one purpose.
#[derive(Debug)]
pub struct WorkerPool {
    pool: ThreadPool,
    affinity: Arc<WorkerAffinity>,
}

/// The index of the calling thread in its pool, or in another rayon pool; `None` if it is no worker.
pub fn worker_index() -> Option<usize> {
    rayon_core::current_thread_index()
}

/// Spawns work that may borrow from the caller, which waits for it; see [`WorkerPool::scope`].
#[expect(missing_debug_implementations, reason = "a scope of the pool")]
pub struct Scope<'a, 's> {
    workers: &'a WorkerPool,
    scope: &'a rayon_core::Scope<'s>,
}

impl WorkerPool {
    /// The pool for this purpose with this many threads, which are named after the purpose: the same pool at
    /// every call. `None` for no threads, or if the system gives none. A pool with more threads than it has
    /// work would keep CPUs from threads that have some.
    pub fn named(purpose: &'static str, threads: usize) -> Option<Arc<Self>> {
        if threads == 0 {
            return None;
        }
        let mut pools = lock(&POOLS);
        if let Some(workers) = pools.get(&(purpose, threads)) {
            return Some(Arc::clone(workers));
        }
        let affinity = Arc::new(WorkerAffinity::default());
        let own = Arc::clone(&affinity);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(move |number| format!("{purpose}-{number}"))
            .start_handler(move |_| own.add_this_thread())
            // Work without a scope has no caller to panic: one that misses its result does the work again.
            .panic_handler(drop);
        let pool = pool.build().ok()?;
        let workers = Arc::new(Self { pool, affinity });
        pools.insert((purpose, threads), Arc::clone(&workers));
        Some(workers)
    }

    /// Runs `work` on this thread, then waits until everything that it has spawned is done, also behind work
    /// that others have spawned before. Must not be called by a worker of the same pool.
    ///
    /// # Panics
    /// If `work` or anything that it has spawned panics.
    pub fn scope<'s, T>(&self, work: impl FnOnce(&Scope<'_, 's>) -> T) -> T {
        let workers = self;
        self.pool
            .in_place_scope(|scope| work(&Scope { workers, scope }))
    }

    /// Runs `here` on this thread and `there` on a worker, and waits for both as [`WorkerPool::scope`] does.
    ///
    /// # Panics
    /// If one of them does.
    pub fn join<A: Send, B>(
        &self,
        there: impl FnOnce() -> A + Send,
        here: impl FnOnce() -> B,
    ) -> (A, B) {
        let mut result = None;
        let own = self.pool.in_place_scope(|scope| {
            let (result, cpus) = (&mut result, self.affinity.keep_off_this_cpu());
            scope.spawn(move |_| {
                let _busy = self.affinity.begin(cpus);
                *result = Some(there());
            });
            here()
        });
        (result.expect("the scope has waited for it"), own)
    }

    /// Runs `work` on one worker; the caller does not wait for it.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        let (affinity, cpus) = (
            Arc::clone(&self.affinity),
            self.affinity.keep_off_this_cpu(),
        );
        self.pool.spawn(move || {
            let _busy = affinity.begin(cpus);
            work();
        });
    }

    /// Runs `work` on this many workers; the caller does not wait for them.
    pub fn spawn_many(&self, threads: usize, work: impl FnOnce() + Clone + Send + 'static) {
        for work in jobs(&self.affinity, threads, work) {
            self.pool.spawn(work);
        }
    }
}

/// `work`, this many times, for workers that begin on other CPUs than this one.
fn jobs<'s>(
    affinity: &Arc<WorkerAffinity>,
    threads: usize,
    work: impl FnOnce() + Clone + Send + 's,
) -> impl Iterator<Item = impl FnOnce() + Send + 's> {
    let cpus = match threads {
        0 => CallerCpus::default(),
        _ => affinity.keep_off_this_cpu(),
    };
    (0..threads).map(move |_| {
        let (affinity, work) = (Arc::clone(affinity), work.clone());
        move || {
            let _busy = affinity.begin(cpus);
            work();
        }
    })
}

impl<'s> Scope<'_, 's> {
    /// Runs `work` on one worker.
    pub fn spawn(&self, work: impl FnOnce() + Send + 's) {
        let affinity = Arc::clone(&self.workers.affinity);
        let cpus = affinity.keep_off_this_cpu();
        self.scope.spawn(move |_| {
            let _busy = affinity.begin(cpus);
            work();
        });
    }

    /// Runs `work` on this many workers.
    pub fn spawn_many(&self, threads: usize, work: impl FnOnce() + Clone + Send + 's) {
        for work in jobs(&self.workers.affinity, threads, work) {
            self.scope.spawn(|_| work());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn a_scope_waits_for_all_250_spawned_jobs() {
        let pool = WorkerPool::named("scope", 3).unwrap();
        assert_eq!(worker_index(), None);
        let (caller, done) = (std::thread::current().id(), AtomicUsize::new(0));
        for round in 1..=50 {
            let result = pool.scope(|scope| {
                scope.spawn_many(5, || {
                    assert_ne!(std::thread::current().id(), caller);
                    assert!(worker_index().is_some_and(|number| number < 3));
                    done.fetch_add(1, Ordering::Relaxed);
                });
                round
            });
            assert_eq!(result, round);
            assert_eq!(done.load(Ordering::Relaxed), 5 * round);
        }
    }

    #[test]
    fn join_returns_both_results_and_passes_panics_on() {
        let pool = WorkerPool::named("join", 1).unwrap();
        let mut own = Vec::new();
        let here = || {
            own.push(1);
            own.len()
        };
        let there = || String::from("there");
        assert_eq!(pool.join(there, here), (String::from("there"), 1));
        let fails = || -> () { panic!("as it should") };
        assert!(catch_unwind(AssertUnwindSafe(|| pool.join(fails, || ()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| pool.join(|| (), fails))).is_err());
        assert_eq!(pool.join(|| 1, || 2), (1, 2));
    }

    #[test]
    fn a_pool_is_shared_by_purpose_and_number_of_threads() {
        let first = WorkerPool::named("same", 2).unwrap();
        assert!(Arc::ptr_eq(&first, &WorkerPool::named("same", 2).unwrap()));
        assert!(!Arc::ptr_eq(&first, &WorkerPool::named("same", 1).unwrap()));
        assert!(!Arc::ptr_eq(
            &first,
            &WorkerPool::named("other", 2).unwrap()
        ));
        assert!(WorkerPool::named("same", 0).is_none());
    }

    #[test]
    fn a_panic_reaches_the_waiting_caller_and_the_pool_stays_usable() {
        let pool = WorkerPool::named("panics", 1).unwrap();
        let scope = || pool.scope(|scope| scope.spawn_many(1, || panic!("as it should")));
        assert!(catch_unwind(AssertUnwindSafe(scope)).is_err());
        pool.spawn_many(1, || panic!("no caller waits for it"));
        let (sender, receiver) = channel();
        pool.spawn_many(2, move || sender.send(()).unwrap());
        assert_eq!(receiver.iter().count(), 2);
    }
}
