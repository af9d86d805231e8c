//! What threads share while transactions run ahead of their turn, in every order in which they can meet,
//! with what a weak memory may show: loom runs each of these again and again. Two threads meet with up to
//! three switches that neither asked for, three threads with one: with two and a place more, five minutes
//! were not enough.

#[path = "../src/parallel/log.rs"]
mod log;
#[path = "../src/parallel/places.rs"]
#[expect(dead_code, reason = "who runs transactions asks how many there are")]
mod places;

/// The model's, by the names that the two files use.
mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(super) use loom::thread::{Thread, park, yield_now};

    /// Few, so that some places are leapt over, and some are too far ahead.
    pub(super) const WINDOW: usize = 3;
    pub(super) const LEAP: usize = 2;
    pub(super) const AT_A_TIME: usize = 1;

    /// Nobody looks twice: that would be one more order of the same.
    #[derive(Default)]
    pub(super) struct LookAgain(());

    impl LookAgain {
        #[expect(clippy::unused_self, reason = "the real one counts")]
        pub(super) fn soon(&mut self) -> bool {
            false
        }
    }
}

use log::Log;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use places::Places;

/// Runs `test` in every order with at most so many switches that nobody asked for.
fn in_every_order(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // A helper that finds nothing looks again after others have run.
    model.max_branches = 20_000;
    model.check(test);
}

/// A thread's work, and that it has ended: whoever waits for that may be told of a place meanwhile, which the
/// model does not know of `join`.
fn helper(
    ended: &Arc<AtomicUsize>,
    work: impl FnOnce() + Send + 'static,
) -> thread::JoinHandle<()> {
    let ended = Arc::clone(ended);
    thread::spawn(move || {
        work();
        ended.fetch_add(1, Ordering::Release);
    })
}

fn join_all(helpers: Vec<thread::JoinHandle<()>>, ended: &AtomicUsize) {
    while ended.load(Ordering::Acquire) < helpers.len() {
        thread::yield_now();
    }
    for helper in helpers {
        helper.join().expect("a helper ends");
    }
}

/// What was done with each place: run ahead and run in turn.
struct Done(Vec<[AtomicUsize; 2]>);

impl Done {
    fn note(&self, index: usize, how: usize) {
        self.0[index][how].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts `length` places with so many threads ahead. Each is done once, ahead or in turn, what was put ahead
/// is found, those that nobody wants are done in turn, and all come to an end.
fn count_all(length: usize, helpers: usize, is_wanted: fn(usize) -> bool, all_ahead: bool) {
    count_until(length, (length, helpers), is_wanted, all_ahead);
}

/// The same, and nothing is taken ahead any more once `end` places count.
fn count_until(
    length: usize,
    (end, helpers): (usize, usize),
    is_wanted: fn(usize) -> bool,
    all_ahead: bool,
) {
    let places = Arc::new(Places::new(length, thread::current(), all_ahead));
    let none = || [AtomicUsize::new(0), AtomicUsize::new(0)];
    let done = Arc::new(Done((0..length).map(|_| none()).collect()));
    let ahead = |done: Arc<Done>| {
        move |index: usize| {
            done.note(index, 0);
            10 + index
        }
    };
    let ended = Arc::new(AtomicUsize::new(0));
    let helpers: Vec<_> = (0..helpers)
        .map(|_| {
            let (places, done) = (Arc::clone(&places), Arc::clone(&done));
            helper(&ended, move || {
                places.work(is_wanted, ahead(done), || false)
            })
        })
        .collect();
    for index in 0..length {
        if index == end {
            places.end();
        }
        if places.take(index) {
            done.note(index, 1);
        } else {
            let found = places.wait_for(index, is_wanted, ahead(Arc::clone(&done)));
            assert_eq!(found, Some(10 + index));
        }
        places.count(index);
    }
    places.end();
    join_all(helpers, &ended);
    for (index, counts) in done.0.iter().enumerate() {
        let [ahead, in_turn] = [0, 1].map(|how| counts[how].load(Ordering::Relaxed));
        assert_eq!(ahead + in_turn, 1, "place {index}");
        assert!(in_turn == 1 || is_wanted(index), "place {index}");
    }
}

#[test]
fn every_transaction_counts_once_beside_one_helper() {
    in_every_order(3, || count_all(3, 1, |_| true, false));
}

#[test]
fn every_transaction_counts_once_beside_two_helpers() {
    in_every_order(1, || count_all(2, 2, |_| true, false));
}

#[test]
fn what_nobody_wants_ahead_waits_for_its_turn() {
    in_every_order(3, || count_all(3, 1, |index| index != 1, false));
}

#[test]
fn places_are_leapt_over_and_too_far_ahead() {
    in_every_order(2, || count_all(4, 1, |_| true, false));
}

#[test]
fn what_somebody_is_at_counts_though_nothing_more_is_taken() {
    // As when too much was run for nothing.
    in_every_order(3, || count_until(3, (1, 1), |_| true, false));
}

#[test]
fn all_may_be_ahead() {
    in_every_order(3, || count_all(2, 1, |_| true, true));
}

#[test]
fn after_the_end_helpers_go_home() {
    in_every_order(3, || {
        let places: Arc<Places<()>> = Arc::new(Places::new(3, thread::current(), false));
        let (ended, ahead) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&places));
        let helper = helper(&ended, move || ahead.work(|_| true, |_| (), || false));
        // As when a block is refused at its first transaction.
        places.end();
        join_all(vec![helper], &ended);
    });
}

#[test]
fn followers_see_a_beginning_of_the_log() {
    in_every_order(3, || {
        let log = Arc::new(Log::with_capacity(0));
        let followers: Vec<_> = (0..2)
            .map(|_| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    let mut seen = log.since(0);
                    seen.extend(log.since(seen.len()));
                    assert!(seen.iter().copied().eq(0..seen.len()));
                })
            })
            .collect();
        for item in 0..2 {
            log.add(item);
        }
        for follower in followers {
            follower.join().expect("a follower ends");
        }
        // One at a time.
        assert_eq!([log.since(0), log.since(1)], [[0], [1]]);
    });
}
