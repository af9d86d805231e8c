//! CPU affinity of worker threads: an idle worker is kept off its caller's CPU until it has begun.

use crate::lock;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::Mutex;

/// The threads of a pool, each with whether it is busy.
#[derive(Debug, Default)]
pub(crate) struct WorkerAffinity(Mutex<Vec<(Pid, bool)>>);

/// The CPUs that the caller may use; `None` if they could not be read, or are only one.
#[derive(Clone, Copy, Default)]
pub(crate) struct CallerCpus(Option<CpuSet>);

/// A worker is busy until this is dropped.
pub(crate) struct BusyWorker<'a>(&'a WorkerAffinity);

impl WorkerAffinity {
    /// Adds the calling thread to the pool.
    pub(crate) fn add_this_thread(&self) {
        lock(&self.0).push((gettid(), false));
    }

    /// Keeps idle workers off the CPU of the calling thread until they [begin](Self::begin). If a system call
    /// fails, affinities stay as they are.
    pub(crate) fn keep_off_this_cpu(&self) -> CallerCpus {
        let Ok(all) = sched_getaffinity(None) else {
            return CallerCpus(None);
        };
        let mut others = all;
        others.unset(sched_getcpu());
        if others.count() == 0 {
            return CallerCpus(None);
        }
        for (thread, _) in lock(&self.0).iter().filter(|(_, is_busy)| !is_busy) {
            let _ = sched_setaffinity(Some(*thread), &others);
        }
        CallerCpus(Some(all))
    }

    /// The calling worker, which runs on some CPU by now, is busy and may use all CPUs of its caller.
    pub(crate) fn begin(&self, cpus: CallerCpus) -> BusyWorker<'_> {
        self.set_busy(true);
        if let Some(all) = cpus.0 {
            let _ = sched_setaffinity(None, &all);
        }
        BusyWorker(self)
    }

    fn set_busy(&self, is_busy: bool) {
        let id = gettid();
        if let Some((_, busy)) = lock(&self.0).iter_mut().find(|(thread, _)| *thread == id) {
            *busy = is_busy;
        }
    }
}

impl Drop for BusyWorker<'_> {
    fn drop(&mut self) {
        self.0.set_busy(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerPool;
    use std::sync::{Arc, Barrier};

    fn masks(pool: &WorkerPool) -> Vec<CpuSet> {
        let threads = lock(&pool.affinity.0);
        let mask = |(id, _): &(Pid, bool)| sched_getaffinity(Some(*id)).unwrap();
        threads.iter().map(mask).collect()
    }

    #[test]
    fn an_idle_worker_is_kept_off_the_callers_cpu_until_it_begins() {
        let pool = WorkerPool::named("affinity", 2).unwrap();
        let all = sched_getaffinity(None).unwrap();
        let here = || sched_getaffinity(None).unwrap();
        // Both threads have started once both have been busy at the same time.
        pool.scope(|scope| {
            let meet = Arc::new(Barrier::new(2));
            scope.spawn_many(2, move || {
                meet.wait();
            });
        });
        assert_eq!(pool.join(here, || ()).0, all);
        let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let both = (Arc::clone(&begun), Arc::clone(&go));
        pool.spawn_many(1, move || {
            both.0.wait();
            both.1.wait();
        });
        begun.wait();
        pool.affinity.keep_off_this_cpu();
        let away = all.count() - u32::from(all.count() > 1);
        let mut counts: Vec<u32> = masks(&pool).iter().map(CpuSet::count).collect();
        counts.sort_unstable();
        // The busy worker keeps all CPUs; the idle one loses the caller's.
        assert_eq!(counts, [away, all.count()]);
        go.wait();
        for _ in 0..4 {
            assert_eq!(pool.join(here, || ()).0, all);
        }
    }
}
