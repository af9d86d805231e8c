//! Where threads run.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The threads of a crew, each with whether it is at work.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<(Pid, bool)>>);

/// Where the caller of a crew may run; `None` if that has not become known, or is one processor.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place(Option<CpuSet>);

/// A thread of a crew is at work until this is dropped.
pub(crate) struct AtWork<'a>(&'a Places);

impl Places {
    /// The calling thread belongs to the crew.
    pub(crate) fn add_this_thread(&self) {
        self.threads().push((gettid(), false));
    }

    /// Keeps those who are not at work from the processor of the calling thread until they
    /// [begin](Self::begin). Whatever fails, threads stay where they are.
    pub(crate) fn send_away(&self) -> Place {
        let Ok(all) = sched_getaffinity(None) else {
            return Place(None);
        };
        let mut others = all;
        others.unset(sched_getcpu());
        if others.count() == 0 {
            return Place(None);
        }
        for (thread, _) in self.threads().iter().filter(|(_, at_work)| !at_work) {
            let _ = sched_setaffinity(Some(*thread), &others);
        }
        Place(Some(all))
    }

    /// The calling thread, which has been given a processor, begins, and may go wherever its caller may.
    pub(crate) fn begin(&self, place: Place) -> AtWork<'_> {
        self.mark(true);
        if let Some(all) = place.0 {
            let _ = sched_setaffinity(None, &all);
        }
        AtWork(self)
    }

    fn mark(&self, is_at_work: bool) {
        let id = gettid();
        if let Some((_, at_work)) = self.threads().iter_mut().find(|(thread, _)| *thread == id) {
            *at_work = is_at_work;
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<(Pid, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.mark(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Crew;
    use std::sync::{Arc, Barrier};

    fn masks(crew: &Crew) -> Vec<CpuSet> {
        let threads = crew.places.threads();
        let mask = |(id, _): &(Pid, bool)| sched_getaffinity(Some(*id)).unwrap();
        threads.iter().map(mask).collect()
    }

    #[test]
    fn whoever_is_called_keeps_from_this_processor_until_it_begins() {
        let crew = Crew::of("places", 2).unwrap();
        let all = sched_getaffinity(None).unwrap();
        let here = || sched_getaffinity(None).unwrap();
        // All threads are there once both have been at work at once.
        crew.scope(|beside| {
            let meet = Arc::new(Barrier::new(2));
            beside.call(2, move || {
                meet.wait();
            });
        });
        assert_eq!(crew.join(here, || ()).0, all);
        let (begun, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let both = (Arc::clone(&begun), Arc::clone(&go));
        crew.call(1, move || {
            both.0.wait();
            both.1.wait();
        });
        begun.wait();
        crew.places.send_away();
        let away = all.count() - u32::from(all.count() > 1);
        let mut counts: Vec<u32> = masks(&crew).iter().map(CpuSet::count).collect();
        counts.sort_unstable();
        // The one at work stays; the other is sent away.
        assert_eq!(counts, [away, all.count()]);
        go.wait();
        for _ in 0..4 {
            assert_eq!(crew.join(here, || ()).0, all);
        }
    }
}
