//! What the commit thread and the workers share, in every order in which they can meet, with what a weak memory model allows:
//! loom runs each test again and again. Two threads meet with up to three preemptions, three threads with one: with two, and a
//! slot more, five minutes were not enough.

#[path = "../src/parallel/append_log.rs"]
mod append_log;
#[path = "../src/parallel/tx_slots.rs"]
#[expect(dead_code, reason = "the commit loop reads the number of slots")]
mod tx_slots;

/// The types of the model, by the names that the two files use.
mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
    pub(super) use loom::thread::{Thread, park, yield_now};

    /// Small, so that some slots are skipped, and some are too far ahead.
    pub(super) const SPECULATION_WINDOW: usize = 3;
    pub(super) const HEAD_START: usize = 2;
    pub(super) const COPY_BATCH: usize = 1;

    /// No thread polls twice: that would be one more order of the same.
    #[derive(Default)]
    pub(super) struct SpinCounter(());

    impl SpinCounter {
        #[expect(clippy::unused_self, reason = "the real one counts")]
        pub(super) fn should_spin(&mut self) -> bool {
            false
        }
    }
}

use append_log::AppendLog;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use tx_slots::TxSlots;

/// Runs `test` in every order with at most so many preemptions.
fn in_every_order(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // A worker that finds nothing looks again after others have run.
    model.max_branches = 20_000;
    model.check(test);
}

/// Starts a worker that counts itself as ended: a thread that waits for that may be unparked for a slot meanwhile, which loom's `join`
/// does not allow.
fn worker(
    ended: &Arc<AtomicUsize>,
    work: impl FnOnce() + Send + 'static,
) -> thread::JoinHandle<()> {
    let ended = Arc::clone(ended);
    thread::spawn(move || {
        work();
        ended.fetch_add(1, Ordering::Release);
    })
}

fn join_all(workers: Vec<thread::JoinHandle<()>>, ended: &AtomicUsize) {
    while ended.load(Ordering::Acquire) < workers.len() {
        thread::yield_now();
    }
    for worker in workers {
        worker.join().expect("a worker ends");
    }
}

/// How often each slot was executed: speculatively and sequentially.
struct Done(Vec<[AtomicUsize; 2]>);

impl Done {
    fn count(&self, index: usize, how: usize) {
        self.0[index][how].fetch_add(1, Ordering::Relaxed);
    }
}

/// Commits `length` slots beside so many workers. Each is executed once, speculatively or sequentially, speculative results are
/// found, slots that are not worth it are executed sequentially, and all threads end.
fn commit_all(length: usize, workers: usize, is_worth_it: fn(usize) -> bool, speculate_all: bool) {
    commit_until(length, length, workers, is_worth_it, speculate_all);
}

/// The same, and workers claim nothing any more once `end` slots are committed.
fn commit_until(
    length: usize,
    end: usize,
    workers: usize,
    is_worth_it: fn(usize) -> bool,
    speculate_all: bool,
) {
    let slots = Arc::new(TxSlots::new(length, thread::current(), speculate_all));
    let none = || [AtomicUsize::new(0), AtomicUsize::new(0)];
    let done = Arc::new(Done((0..length).map(|_| none()).collect()));
    let speculate = |done: Arc<Done>| {
        move |index: usize| {
            done.count(index, 0);
            10 + index
        }
    };
    let ended = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..workers)
        .map(|_| {
            let (slots, done) = (Arc::clone(&slots), Arc::clone(&done));
            worker(&ended, move || {
                slots.work(is_worth_it, speculate(done), || false)
            })
        })
        .collect();
    for index in 0..length {
        if index == end {
            slots.close();
        }
        if slots.claim(index) {
            done.count(index, 1);
        } else {
            let found = slots.wait_for(index, is_worth_it, speculate(Arc::clone(&done)));
            assert_eq!(found, Some(10 + index));
        }
        slots.commit(index);
    }
    slots.close();
    join_all(workers, &ended);
    for (index, counts) in done.0.iter().enumerate() {
        let [speculative, sequential] = [0, 1].map(|how| counts[how].load(Ordering::Relaxed));
        assert_eq!(speculative + sequential, 1, "slot {index}");
        assert!(sequential == 1 || is_worth_it(index), "slot {index}");
    }
}

#[test]
fn every_slot_is_executed_once_with_1_worker() {
    in_every_order(3, || commit_all(3, 1, |_| true, false));
}

#[test]
fn every_slot_is_executed_once_with_2_workers() {
    in_every_order(1, || commit_all(2, 2, |_| true, false));
}

#[test]
fn a_slot_that_is_not_worth_it_is_executed_sequentially() {
    in_every_order(3, || commit_all(3, 1, |index| index != 1, false));
}

#[test]
fn slots_may_be_skipped_or_too_far_ahead() {
    in_every_order(2, || commit_all(4, 1, |_| true, false));
}

#[test]
fn a_claimed_slot_is_committed_after_the_slots_are_closed() {
    // As when too much gas was wasted.
    in_every_order(3, || commit_until(3, 1, 1, |_| true, false));
}

#[test]
fn all_slots_may_be_speculated_on_before_the_first_commit() {
    in_every_order(3, || commit_all(2, 1, |_| true, true));
}

#[test]
fn workers_end_after_the_slots_are_closed() {
    in_every_order(3, || {
        let slots: Arc<TxSlots<()>> = Arc::new(TxSlots::new(3, thread::current(), false));
        let (ended, own) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&slots));
        let worker = worker(&ended, move || own.work(|_| true, |_| (), || false));
        // As when the first transaction of a block is invalid.
        slots.close();
        join_all(vec![worker], &ended);
    });
}

#[test]
fn readers_see_a_prefix_of_the_log() {
    in_every_order(3, || {
        let log = Arc::new(AppendLog::with_capacity(0));
        let readers: Vec<_> = (0..2)
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
            log.append(item);
        }
        for reader in readers {
            reader.join().expect("a reader ends");
        }
        // One item at a time.
        assert_eq!([log.since(0), log.since(1)], [[0], [1]]);
    });
}
