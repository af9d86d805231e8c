//! Threads that stay from block to block, and work beside whoever calls them.
//!
//! To start a thread takes longer than much of what a block gives it to do. And a thread that is
//! started or woken may be put on the processor of whoever does that, although another one has
//! nothing to do: where processors are virtual, one that has halted does not count as idle. There it
//! waits for milliseconds, until the system evens out the load. So a crew that is called may not run
//! on the caller's processor, until it does.

mod load;
#[cfg_attr(not(target_os = "linux"), path = "anywhere.rs")]
mod place;

pub use load::free_processors;
use place::{Place, Places};
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Crews by what they do and how many threads they have.
static CREWS: Mutex<BTreeMap<(&str, usize), Arc<Crew>>> = Mutex::new(BTreeMap::new());

/// Threads for one purpose.
#[derive(Debug)]
pub struct Crew {
    pool: ThreadPool,
    places: Arc<Places>,
}

/// The number of the calling thread in its crew, or in another pool of the same kind.
pub fn number() -> Option<usize> {
    rayon_core::current_thread_index()
}

/// What a crew does while whoever called it waits.
#[expect(missing_debug_implementations, reason = "a scope of the pool")]
pub struct Beside<'a, 's> {
    crew: &'a Crew,
    scope: &'a rayon_core::Scope<'s>,
}

impl Crew {
    /// So many threads, named after their purpose, always the same ones; `None` for none, or if the
    /// system gives none. A crew of more threads than there is work would keep processors from who
    /// has some.
    pub fn of(purpose: &'static str, threads: usize) -> Option<Arc<Self>> {
        if threads == 0 {
            return None;
        }
        let mut crews = CREWS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crew) = crews.get(&(purpose, threads)) {
            return Some(Arc::clone(crew));
        }
        let places = Arc::new(Places::default());
        let own = Arc::clone(&places);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(move |number| format!("{purpose}-{number}"))
            .start_handler(move |_| own.add_this_thread())
            // What panics by itself has nobody to tell: whoever misses its work does it again.
            .panic_handler(drop);
        let pool = pool.build().ok()?;
        let crew = Arc::new(Self { pool, places });
        crews.insert((purpose, threads), Arc::clone(&crew));
        Some(crew)
    }

    /// Does `work` on this thread, and waits until all that it has called the crew for is done, also if
    /// others have called it before. Not for a thread of the same crew.
    ///
    /// # Panics
    /// If any of that panics, or `work`.
    pub fn scope<'s, T>(&self, work: impl FnOnce(&Beside<'_, 's>) -> T) -> T {
        let crew = self;
        self.pool
            .in_place_scope(|scope| work(&Beside { crew, scope }))
    }

    /// Does `here` on this thread and `there` on one of the crew, and waits as [`Crew::scope`] does.
    ///
    /// # Panics
    /// If one of them does.
    pub fn join<A: Send, B>(
        &self,
        there: impl FnOnce() -> A + Send,
        here: impl FnOnce() -> B,
    ) -> (A, B) {
        let mut given = None;
        let own = self.pool.in_place_scope(|scope| {
            let (given, place) = (&mut given, self.places.send_away());
            scope.spawn(move |_| {
                let _at_work = self.places.begin(place);
                *given = Some(there());
            });
            here()
        });
        (given.expect("the scope has waited for it"), own)
    }

    /// Has one thread do `work`, which nobody waits for.
    pub fn begin(&self, work: impl FnOnce() + Send + 'static) {
        let (places, place) = (Arc::clone(&self.places), self.places.send_away());
        self.pool.spawn(move || {
            let _at_work = places.begin(place);
            work();
        });
    }

    /// Has as many threads do `work`, which nobody waits for.
    pub fn call(&self, threads: usize, work: impl FnOnce() + Clone + Send + 'static) {
        for work in jobs(&self.places, threads, work) {
            self.pool.spawn(work);
        }
    }
}

/// `work`, so many times, for threads that begin on other processors than this.
fn jobs<'s>(
    places: &Arc<Places>,
    threads: usize,
    work: impl FnOnce() + Clone + Send + 's,
) -> impl Iterator<Item = impl FnOnce() + Send + 's> {
    let place = match threads {
        0 => Place::default(),
        _ => places.send_away(),
    };
    (0..threads).map(move |_| {
        let (places, work) = (Arc::clone(places), work.clone());
        move || {
            let _at_work = places.begin(place);
            work();
        }
    })
}

impl<'s> Beside<'_, 's> {
    /// Has one thread do `work`.
    pub fn begin(&self, work: impl FnOnce() + Send + 's) {
        let places = Arc::clone(&self.crew.places);
        let place = places.send_away();
        self.scope.spawn(move |_| {
            let _at_work = places.begin(place);
            work();
        });
    }

    /// Has as many threads do `work`.
    pub fn call(&self, threads: usize, work: impl FnOnce() + Clone + Send + 's) {
        for work in jobs(&self.crew.places, threads, work) {
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
    fn a_scope_ends_when_all_that_was_called_is_done() {
        let crew = Crew::of("scope", 3).unwrap();
        assert_eq!(number(), None);
        let (caller, done) = (std::thread::current().id(), AtomicUsize::new(0));
        for round in 1..=50 {
            let given = crew.scope(|beside| {
                beside.call(5, || {
                    assert_ne!(std::thread::current().id(), caller);
                    assert!(number().is_some_and(|number| number < 3));
                    done.fetch_add(1, Ordering::Relaxed);
                });
                round
            });
            assert_eq!(given, round);
            assert_eq!(done.load(Ordering::Relaxed), 5 * round);
        }
    }

    #[test]
    fn both_sides_of_a_join_give_what_they_give() {
        let crew = Crew::of("join", 1).unwrap();
        let mut own = Vec::new();
        let here = || {
            own.push(1);
            own.len()
        };
        let there = || String::from("there");
        assert_eq!(crew.join(there, here), (String::from("there"), 1));
        let fails = || -> () { panic!("as it should") };
        assert!(catch_unwind(AssertUnwindSafe(|| crew.join(fails, || ()))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| crew.join(|| (), fails))).is_err());
        assert_eq!(crew.join(|| 1, || 2), (1, 2));
    }

    #[test]
    fn the_same_crew_comes_for_the_same_purpose_and_number() {
        let first = Crew::of("same", 2).unwrap();
        assert!(Arc::ptr_eq(&first, &Crew::of("same", 2).unwrap()));
        assert!(!Arc::ptr_eq(&first, &Crew::of("same", 1).unwrap()));
        assert!(!Arc::ptr_eq(&first, &Crew::of("other", 2).unwrap()));
        assert!(Crew::of("same", 0).is_none());
    }

    #[test]
    fn a_panic_comes_to_who_waits_and_the_crew_goes_on() {
        let crew = Crew::of("panics", 1).unwrap();
        let scope = || crew.scope(|beside| beside.call(1, || panic!("as it should")));
        assert!(catch_unwind(AssertUnwindSafe(scope)).is_err());
        crew.call(1, || panic!("nobody hears of it"));
        let (sender, receiver) = channel();
        crew.call(2, move || sender.send(()).unwrap());
        assert_eq!(receiver.iter().count(), 2);
    }
}
