//! Where threads run.

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::sync::{Mutex, PoisonError};

/// The threads of a crew.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<Pid>>);

/// Where the caller of a crew may run; `None` if that has not become known, or is one processor.
#[derive(Clone, Copy)]
pub(crate) struct Place(Option<CpuSet>);

impl Places {
    /// The calling thread belongs to the crew.
    pub(crate) fn add_this_thread(&self) {
        self.threads().push(gettid());
    }

    /// Keeps the crew from the processor of the calling thread until [`Place::leave`]. Whatever fails,
    /// threads stay where they are.
    pub(crate) fn send_away(&self) -> Place {
        let Ok(all) = sched_getaffinity(None) else {
            return Place(None);
        };
        let mut others = all;
        others.unset(sched_getcpu());
        if others.count() == 0 {
            return Place(None);
        }
        for thread in self.threads().iter() {
            let _ = sched_setaffinity(Some(*thread), &others);
        }
        Place(Some(all))
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<Pid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Lets the calling thread, which has been given a processor, go wherever its caller may.
    pub(crate) fn leave(self) {
        if let Some(all) = self.0 {
            let _ = sched_setaffinity(None, &all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_is_sent_away_keeps_from_this_processor_until_it_leaves() {
        let places = std::sync::Arc::new(Places::default());
        let (go, gone) = (channel::<Place>(), channel());
        let own = std::sync::Arc::clone(&places);
        let thread = std::thread::spawn(move || {
            own.add_this_thread();
            gone.0.send(gettid()).unwrap();
            go.1.recv().unwrap().leave();
            sched_getaffinity(None).unwrap()
        });
        let id = gone.1.recv().unwrap();
        let before = sched_getaffinity(None).unwrap();
        let place = places.send_away();
        let away = sched_getaffinity(Some(id)).unwrap();
        match before.count() {
            1 => assert_eq!(away, before),
            count => assert_eq!(away.count(), count - 1),
        }
        go.0.send(place).unwrap();
        assert_eq!(thread.join().unwrap(), before);
    }
}
