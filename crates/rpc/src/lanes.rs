//! Workers for the calls that take longer than reading them.
//!
//! Each [`Lane`] has threads and a bounded queue of its own: what is slow never delays what is
//! not, and a flood of calls is refused instead of remembered. The workers of calls that anybody
//! may make run at a lower priority than those that a consensus client waits for.

use crate::methods::Lane;
use crate::precedence::{LONGEST_WAIT, Precedence, yield_to_blocks, yields};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

type Job = Box<dyn FnOnce() + Send>;

/// How many calls may wait for a worker of a lane.
const QUEUED: usize = 1024;

/// Bytes of parameters up to which a call may be answered by the thread that read it. A blob alone
/// is four times as long.
const SHORT_BYTES: usize = 64 << 10;

/// The workers of every lane; shared by all ways in.
#[derive(Debug)]
pub struct Lanes {
    queues: [SyncSender<Job>; Lane::QUEUED.len()],
    readers: Readers,
    precedence: Arc<Precedence>,
}

/// The threads that read what anybody may ask, and may answer calls themselves. All of them while calls are
/// short; while one takes long, and for some time after it, half of them go on reading.
#[derive(Debug)]
struct Readers {
    since: Instant,
    /// Of each that answers a call, when it began: nanoseconds from `since`, or [`FREE`].
    began: Vec<AtomicU64>,
    /// Until when half of them go on reading, nanoseconds from `since`.
    long_until: AtomicU64,
}

/// Of a place that nobody has.
const FREE: u64 = u64::MAX;

/// A call that takes so long, nanoseconds, would have been better off with a worker. It is longer than the
/// slices of the system, for whose end a short one may have to wait.
const LONG_CALL: u64 = 10_000_000;

/// How long it is remembered, nanoseconds.
const LONG_CALL_KEPT: u64 = 60_000_000_000;

impl Readers {
    /// So many threads; a single one goes on reading.
    fn new(count: usize) -> Self {
        let places = if count > 1 { count } else { 0 };
        Self {
            since: Instant::now(),
            began: (0..places).map(|_| AtomicU64::new(FREE)).collect(),
            long_until: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn take(&self, now: u64) -> Option<ReaderPlace<'_>> {
        let (mut free, mut kept) = (0, 0);
        let half = self.began.len().div_ceil(2);
        if now < self.long_until.load(Ordering::Relaxed) {
            kept = half;
        }
        for began in &self.began {
            match began.load(Ordering::Relaxed) {
                FREE => free += 1,
                began if now.saturating_sub(began) > LONG_CALL => kept = half,
                _ => {}
            }
        }
        if free <= kept {
            return None;
        }
        let relaxed = Ordering::Relaxed;
        let take = |place: &&AtomicU64| place.compare_exchange(FREE, now, relaxed, relaxed).is_ok();
        let place = self.began.iter().find(take)?;
        Some(ReaderPlace {
            readers: self,
            place,
        })
    }

    fn give_back(&self, place: &AtomicU64, now: u64) {
        let began = place.swap(FREE, Ordering::Relaxed);
        if now.saturating_sub(began) > LONG_CALL {
            let until = now.saturating_add(LONG_CALL_KEPT);
            self.long_until.store(until, Ordering::Relaxed);
        }
    }
}

/// A place taken by [`Lanes::run_by_reader`], given back with it.
#[derive(Debug)]
pub(crate) struct ReaderPlace<'a> {
    readers: &'a Readers,
    place: &'a AtomicU64,
}

impl Drop for ReaderPlace<'_> {
    fn drop(&mut self) {
        self.readers.give_back(self.place, self.readers.now());
    }
}

impl Lanes {
    /// Starts workers for `cores` processors.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(cores: usize) -> std::io::Result<Self> {
        let mut queues = Vec::new();
        for lane in Lane::QUEUED {
            let (sender, receiver) = sync_channel(QUEUED);
            let jobs = Arc::new(Mutex::new(receiver));
            for index in 0..workers(lane, cores) {
                let jobs = Arc::clone(&jobs);
                thread::Builder::new()
                    .name(format!("rpc-{lane:?}-{index}").to_lowercase())
                    .spawn(move || work(lane, &jobs))?;
            }
            queues.push(sender);
        }
        let queues = queues.try_into().expect("one for each lane");
        Ok(Self {
            queues,
            readers: Readers::new(cores),
            precedence: Arc::new(Precedence::new(cores, LONGEST_WAIT)),
        })
    }

    /// Where the calling thread serves what no block waits for, waits while one is at hand.
    pub(crate) async fn give_way(&self) {
        self.precedence.give_way().await;
    }

    /// Lets the thread that read a request of `lane` answer it: most take less than handing them to a worker
    /// does. Not a thread that reads what a consensus client asks, nor a request with many `bytes` of
    /// parameters: checking blobs takes milliseconds, and seconds while the trusted setup is being loaded.
    pub(crate) fn run_by_reader(&self, lane: Lane, bytes: usize) -> Option<ReaderPlace<'_>> {
        if lane != Lane::Call || bytes > SHORT_BYTES || !yields() {
            return None;
        }
        self.readers.take(self.readers.now())
    }

    /// Has a worker of `lane` do `job`, those of one lane in the order in which they are given;
    /// `false` if too many wait already, or `lane` has no workers.
    pub(crate) fn run(&self, lane: Lane, job: Job) -> bool {
        let queue = Lane::QUEUED.iter().position(|queued| *queued == lane);
        let Some(queue) = queue.and_then(|index| self.queues.get(index)) else {
            return false;
        };
        let first = (lane == Lane::Engine).then(|| self.precedence.go_first());
        let job = Box::new(move || {
            job();
            drop(first);
        });
        match queue.try_send(job) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn workers(lane: Lane, cores: usize) -> usize {
    match lane {
        Lane::Call => cores.max(2),
        Lane::Heavy => cores.div_ceil(2),
        Lane::Payload => 2,
        Lane::Engine | Lane::Inline | Lane::Long => 1,
    }
}

fn work(lane: Lane, jobs: &Mutex<Receiver<Job>>) {
    if matches!(lane, Lane::Call | Lane::Heavy | Lane::Long) {
        yield_to_blocks();
    }
    loop {
        // One idle worker waits at the queue, the others for it.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precedence::YIELDS;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_of_the_engine_run_in_the_order_in_which_they_came() {
        let lanes = Lanes::new(4).unwrap();
        let (sender, receiver) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            assert!(lanes.run(Lane::Engine, Box::new(move || sender.send(number).unwrap())));
        }
        let order: Vec<i32> = receiver.iter().take(100).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn readers_answer_calls_within_a_size_and_nothing_else() {
        let lanes = Lanes::new(2).unwrap();
        YIELDS.set(false);
        let answers = |lane, bytes| lanes.run_by_reader(lane, bytes).is_some();
        assert!(!answers(Lane::Call, 0), "a consensus client's");
        YIELDS.set(true);
        for lane in [Lane::Heavy, Lane::Engine, Lane::Payload, Lane::Long] {
            assert!(!answers(lane, 0), "{lane:?}");
        }
        assert!(answers(Lane::Call, SHORT_BYTES));
        assert!(!answers(Lane::Call, SHORT_BYTES + 1));
    }

    /// How many more calls are answered at once.
    fn answered(readers: &Readers, now: u64) -> usize {
        let places: Vec<_> = std::iter::from_fn(|| readers.take(now)).collect();
        let count = places.len();
        for place in places {
            readers.give_back(place.place, now);
            std::mem::forget(place);
        }
        count
    }

    #[test]
    fn while_a_call_takes_long_and_after_it_half_of_the_readers_go_on_reading() {
        for (count, half) in [(4, 2), (3, 1), (2, 1)] {
            let readers = Readers::new(count);
            assert_eq!(answered(&readers, 0), count);
            let long = readers.take(0).unwrap();
            assert_eq!(answered(&readers, LONG_CALL), count - 1);
            let now = LONG_CALL + 1;
            assert_eq!(answered(&readers, now), half - 1, "beside the long one");
            readers.give_back(long.place, now);
            std::mem::forget(long);
            assert_eq!(answered(&readers, now), half, "of {count}");
            assert_eq!(answered(&readers, now + LONG_CALL_KEPT - 1), half);
            assert_eq!(answered(&readers, now + LONG_CALL_KEPT), count);
        }
        assert_eq!(answered(&Readers::new(1), 0), 0, "it must read");
    }

    #[test]
    fn a_place_is_given_back_with_what_stands_for_it() {
        let readers = Readers::new(2);
        let now = readers.now();
        let both = [readers.take(now), readers.take(now)];
        assert!(both.iter().all(Option::is_some) && readers.take(now).is_none());
        drop(both);
        let is_free = |began: &AtomicU64| began.load(Ordering::Relaxed) == FREE;
        assert!(readers.began.iter().all(is_free));
    }

    #[test]
    fn others_wait_from_when_a_block_is_handed_over() {
        let lanes = Lanes::new(2).unwrap();
        let (release, held) = channel::<()>();
        let hold = move || held.recv().unwrap();
        let (sender, is_done) = channel();
        assert!(lanes.run(Lane::Engine, Box::new(hold)));
        assert!(lanes.run(Lane::Engine, Box::new(move || sender.send(()).unwrap())));
        assert!(lanes.precedence.is_at_hand());
        release.send(()).unwrap();
        is_done.recv().unwrap();
        // A moment later; without that it never ends.
        while lanes.precedence.is_at_hand() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_lane_that_is_full_refuses_and_another_one_goes_on() {
        let lanes = Lanes::new(1).unwrap();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let hold = || {
            let held = Arc::clone(&held);
            Box::new(move || {
                let _ = held.lock().unwrap().recv();
            })
        };
        let taken = (0..QUEUED + 10)
            .take_while(|_| lanes.run(Lane::Heavy, hold()))
            .count();
        assert!((QUEUED..=QUEUED + 1).contains(&taken), "{taken}");
        let (sender, receiver) = channel();
        assert!(lanes.run(Lane::Engine, Box::new(move || sender.send(1).unwrap())));
        assert_eq!(receiver.recv(), Ok(1));
        drop(release);
    }
}
