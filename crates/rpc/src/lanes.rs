//! Workers for the calls that take longer than reading them.
//!
//! Each [`Lane`] has threads and a bounded queue of its own: what is slow never delays what is
//! not, and a flood of calls is refused instead of remembered. The workers of calls that anybody
//! may make run at a lower priority than those that a consensus client waits for.

use crate::methods::Lane;
use crate::precedence::{LONGEST_WAIT, Precedence, yield_to_blocks};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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

/// Threads that read requests, and may answer calls themselves. All of them while calls are short; for a
/// while after a long one, half of them go on reading.
#[derive(Debug)]
struct Readers {
    free: AtomicUsize,
    half: usize,
    since: Instant,
    /// Until when half of them go on reading, nanoseconds from `since`.
    long_until: AtomicU64,
}

/// A call that took so long would have been better off with a worker. Several slices of the system's: a
/// short one may have to wait for its processor.
const LONG_CALL: Duration = Duration::from_millis(10);

/// How long it is remembered.
const LONG_CALL_KEPT: Duration = Duration::from_secs(60);

impl Readers {
    fn new(count: usize) -> Self {
        Self {
            free: AtomicUsize::new(count),
            half: count.div_ceil(2),
            since: Instant::now(),
            long_until: AtomicU64::new(0),
        }
    }

    fn take(&self) -> Option<ReaderPlace<'_>> {
        let relaxed = Ordering::Relaxed;
        let began = self.since.elapsed();
        let is_for_all = began.as_nanos() >= u128::from(self.long_until.load(relaxed));
        let kept = if is_for_all { 0 } else { self.half };
        let one_less = |free: usize| (free > kept).then(|| free - 1);
        let taken = self.free.fetch_update(relaxed, relaxed, one_less);
        taken.ok().map(|_| ReaderPlace {
            readers: self,
            began,
        })
    }

    fn give_back(&self, began: Duration) {
        let ended = self.since.elapsed();
        if ended.saturating_sub(began) > LONG_CALL {
            let until = (ended + LONG_CALL_KEPT).as_nanos();
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            self.long_until.store(until, Ordering::Relaxed);
        }
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

/// A place taken by [`Lanes::run_by_reader`], given back with it.
#[derive(Debug)]
pub(crate) struct ReaderPlace<'a> {
    readers: &'a Readers,
    began: Duration,
}

impl Drop for ReaderPlace<'_> {
    fn drop(&mut self) {
        self.readers.give_back(self.began);
    }
}

impl Lanes {
    /// Starts workers for `cores` processors.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(cores: usize) -> std::io::Result<Self> {
        let mut queues = Vec::new();
        let precedence = Arc::new(Precedence::new(cores, LONGEST_WAIT));
        for lane in Lane::QUEUED {
            let (sender, receiver) = sync_channel(QUEUED);
            let jobs = Arc::new(Mutex::new(receiver));
            for index in 0..workers(lane, cores) {
                let (jobs, precedence) = (Arc::clone(&jobs), Arc::clone(&precedence));
                thread::Builder::new()
                    .name(format!("rpc-{lane:?}-{index}").to_lowercase())
                    .spawn(move || work(lane, &jobs, &precedence))?;
            }
            queues.push(sender);
        }
        let queues = queues.try_into().expect("one for each lane");
        Ok(Self {
            queues,
            readers: Readers::new(cores),
            precedence,
        })
    }

    /// Where the calling thread serves what no block waits for, waits while one is handled.
    pub(crate) async fn give_way(&self) {
        self.precedence.give_way().await;
    }

    /// Lets the thread that read a request of `lane` answer it: most take less than handing them to
    /// a worker does. Not a request with many `bytes` of parameters: checking blobs takes milliseconds,
    /// and seconds while the trusted setup is being loaded.
    pub(crate) fn run_by_reader(&self, lane: Lane, bytes: usize) -> Option<ReaderPlace<'_>> {
        let is_short = lane == Lane::Call && bytes <= SHORT_BYTES;
        is_short.then(|| self.readers.take())?
    }

    /// Has a worker of `lane` do `job`, those of one lane in the order in which they are given;
    /// `false` if too many wait already, or `lane` has no workers.
    pub(crate) fn run(&self, lane: Lane, job: Job) -> bool {
        let queue = Lane::QUEUED.iter().position(|queued| *queued == lane);
        let Some(queue) = queue.and_then(|index| self.queues.get(index)) else {
            return false;
        };
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

fn work(lane: Lane, jobs: &Mutex<Receiver<Job>>, precedence: &Precedence) {
    if matches!(lane, Lane::Call | Lane::Heavy | Lane::Long) {
        yield_to_blocks();
    }
    loop {
        // One idle worker waits at the queue, the others for it.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) if lane == Lane::Engine => precedence.over_others(job),
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        for lane in [Lane::Heavy, Lane::Engine, Lane::Payload, Lane::Long] {
            assert!(lanes.run_by_reader(lane, 0).is_none(), "{lane:?}");
        }
        assert!(lanes.run_by_reader(Lane::Call, SHORT_BYTES + 1).is_none());
        let first = lanes.run_by_reader(Lane::Call, SHORT_BYTES);
        let second = lanes.run_by_reader(Lane::Call, 0);
        assert!(first.is_some() && second.is_some());
        assert!(lanes.run_by_reader(Lane::Call, 0).is_none());
        drop(first);
        assert!(lanes.run_by_reader(Lane::Call, 0).is_some());
    }

    #[test]
    fn after_a_long_call_half_of_the_readers_go_on_reading() {
        for (count, may_answer) in [(4, 2), (3, 1), (1, 0)] {
            let readers = Readers::new(count);
            let answering = || {
                let places: Vec<_> = std::iter::from_fn(|| readers.take()).collect();
                places.len()
            };
            assert_eq!(answering(), count);
            let began = readers.since.elapsed();
            std::thread::sleep(LONG_CALL + Duration::from_millis(1));
            drop(readers.take());
            assert_eq!(answering(), count, "the call that ended now was short");
            std::mem::forget(readers.take());
            readers.give_back(began);
            assert_eq!(answering(), may_answer, "of {count}");
            readers.long_until.store(0, Ordering::Relaxed);
            assert_eq!(answering(), count, "it is forgotten");
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
