//! Worker pools: one pool of threads with a bounded queue for each [`Lane`] of methods.
//!
//! A slow method must not delay a fast one, and a flood of calls must be refused, not stored. So each lane has
//! its own threads and its own queue of 1024 calls; a call that finds the queue full is refused. The workers of
//! lanes that anyone may call run at a lower priority than those that a consensus client waits for.
//!
//! ```text
//! HTTP, WebSocket, IPC          queue (1024)       threads
//!   eth_chainId ------ Inline                      answered by the I/O thread itself
//!   eth_call --------- Call -------------------->  one per core, at least 2 (or the I/O thread, see below)
//!   eth_getLogs ------ Heavy ------------------->  half as many as cores
//!   engine_newPayload  Engine ------------------>  1: in the order of arrival
//!   engine_getPayload  Payload ----------------->  2
//!   admin_backup ----- Long -------------------->  1
//! ```
//!
//! Handing a call to a worker costs more than most calls of the lane `Call` take. So the I/O thread that read
//! such a call may run it itself, if it takes an [`IoSlot`]. While one of them runs for more than 10 ms, and for a
//! minute after that, half of the I/O threads get no slot: they keep reading requests.

use crate::block_priority::{BlockPriority, MAX_WAIT, yield_to_blocks, yields_to_blocks};
use crate::lock;
use crate::methods::Lane;
use crate::metrics::Work;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

type Job = Box<dyn FnOnce() + Send>;

/// Calls that may wait for a worker of one lane.
const MAX_QUEUED: usize = 1024;

/// Bytes of parameters up to which an I/O thread may run a call. A single blob is four times as long.
const MAX_IO_THREAD_BYTES: usize = 64 << 10;

/// The workers of every lane. All servers of the node share them.
#[derive(Debug)]
pub struct WorkerPools {
    queues: [SyncSender<Job>; Lane::POOLED.len()],
    io_slots: IoSlots,
    block_priority: Arc<BlockPriority>,
}

/// Slots of the I/O threads of the public servers, one per thread. A thread that holds one runs a call instead of
/// reading requests. All slots are free to take while calls are short; while one takes long, and for a minute
/// after it, half of them stay free.
#[derive(Debug)]
struct IoSlots {
    since: Instant,
    /// When the call in each slot began, nanoseconds since `since`, or [`FREE`].
    began: Vec<AtomicU64>,
    /// Until when half of the slots stay free, nanoseconds since `since`.
    reserved_until: AtomicU64,
}

/// The value of a slot that no thread holds.
const FREE: u64 = u64::MAX;

/// A call that takes longer, nanoseconds, would have been better off with a worker. The bound is longer than a
/// time slice of the system, which a short call may have to wait for.
const LONG_CALL_NANOS: u64 = 10_000_000;

/// How long a long call keeps half of the slots free after its end, nanoseconds.
const LONG_CALL_MEMORY_NANOS: u64 = 60_000_000_000;

impl IoSlots {
    /// Slots for `count` I/O threads; none if there is but one, which must keep reading.
    fn new(count: usize) -> Self {
        let slots = if count > 1 { count } else { 0 };
        Self {
            since: Instant::now(),
            began: (0..slots).map(|_| AtomicU64::new(FREE)).collect(),
            reserved_until: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn acquire(&self, now: u64) -> Option<IoSlot<'_>> {
        let half = self.began.len().div_ceil(2);
        let is_reserved = now < self.reserved_until.load(Ordering::Relaxed);
        let (mut free, mut reserved) = (0, if is_reserved { half } else { 0 });
        for began in &self.began {
            match began.load(Ordering::Relaxed) {
                FREE => free += 1,
                began if now.saturating_sub(began) > LONG_CALL_NANOS => reserved = half,
                _ => {}
            }
        }
        if free <= reserved {
            return None;
        }
        let relaxed = Ordering::Relaxed;
        let acquire =
            |slot: &&AtomicU64| slot.compare_exchange(FREE, now, relaxed, relaxed).is_ok();
        let began = self.began.iter().find(acquire)?;
        Some(IoSlot { slots: self, began })
    }

    fn release(&self, slot: &AtomicU64, now: u64) {
        let began = slot.swap(FREE, Ordering::Relaxed);
        if now.saturating_sub(began) > LONG_CALL_NANOS {
            let until = now.saturating_add(LONG_CALL_MEMORY_NANOS);
            self.reserved_until.store(until, Ordering::Relaxed);
        }
    }
}

/// The right of an I/O thread to run a call, released when dropped.
#[derive(Debug)]
pub(crate) struct IoSlot<'a> {
    slots: &'a IoSlots,
    began: &'a AtomicU64,
}

impl Drop for IoSlot<'_> {
    fn drop(&mut self) {
        self.slots.release(self.began, self.slots.now());
    }
}

impl WorkerPools {
    /// Starts workers for `cores` processors.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn new(cores: usize) -> std::io::Result<Self> {
        let mut queues = Vec::new();
        for lane in Lane::POOLED {
            let (sender, receiver) = sync_channel(MAX_QUEUED);
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
            io_slots: IoSlots::new(cores),
            block_priority: Arc::new(BlockPriority::new(cores, MAX_WAIT)),
        })
    }

    /// Waits while a block is handled, if the calling thread serves requests that no block waits for.
    pub(crate) async fn wait_for_block(&self) {
        self.block_priority.wait_for_block().await;
    }

    /// Lets the I/O thread that read a request of `lane` run it: most calls take less time than handing them to a
    /// worker. `None` for the I/O threads of the Engine API, and for a request with many `bytes` of parameters:
    /// checking blobs takes milliseconds, and seconds while the trusted setup is being loaded.
    pub(crate) fn try_on_io_thread(&self, lane: Lane, bytes: usize) -> Option<IoSlot<'_>> {
        if lane != Lane::Call || bytes > MAX_IO_THREAD_BYTES || !yields_to_blocks() {
            return None;
        }
        self.io_slots.acquire(self.io_slots.now())
    }

    /// Queues `job` for a worker of `lane`; the jobs of one lane start in the order in which they are queued.
    /// Returns `false` if the queue is full, or if `lane` has no workers.
    pub(crate) fn run(&self, lane: Lane, job: Job) -> bool {
        let queue = Lane::POOLED.iter().position(|queued| *queued == lane);
        let Some(queue) = queue.and_then(|index| self.queues.get(index)) else {
            return false;
        };
        let guard = (lane == Lane::Engine).then(|| self.block_priority.begin_block());
        let job = Box::new(move || {
            job();
            drop(guard);
            Work::Completed.record();
        });
        let is_queued = queue.try_send(job).is_ok();
        let work = match is_queued {
            true => Work::Submitted,
            false => Work::Rejected,
        };
        work.record();
        is_queued
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
        // One idle worker waits for a job, the others wait for the lock.
        let job = lock(jobs).recv();
        let Ok(job) = job else { return };
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_priority::YIELDS_TO_BLOCKS;
    use std::sync::mpsc::channel;

    #[test]
    fn engine_jobs_run_in_order_of_arrival() {
        let pools = WorkerPools::new(4).unwrap();
        let (sender, receiver) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            assert!(pools.run(Lane::Engine, Box::new(move || sender.send(number).unwrap())));
        }
        let order: Vec<i32> = receiver.iter().take(100).collect();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn io_threads_run_only_calls_of_up_to_64_kib() {
        let pools = WorkerPools::new(2).unwrap();
        YIELDS_TO_BLOCKS.set(false);
        let runs = |lane, bytes| pools.try_on_io_thread(lane, bytes).is_some();
        assert!(!runs(Lane::Call, 0), "a consensus client's");
        YIELDS_TO_BLOCKS.set(true);
        for lane in [Lane::Heavy, Lane::Engine, Lane::Payload, Lane::Long] {
            assert!(!runs(lane, 0), "{lane:?}");
        }
        assert!(runs(Lane::Call, MAX_IO_THREAD_BYTES));
        assert!(!runs(Lane::Call, MAX_IO_THREAD_BYTES + 1));
    }

    /// How many slots can be acquired.
    fn available(slots: &IoSlots, now: u64) -> usize {
        let acquired: Vec<_> = std::iter::from_fn(|| slots.acquire(now)).collect();
        let count = acquired.len();
        for slot in acquired {
            slots.release(slot.began, now);
            std::mem::forget(slot);
        }
        count
    }

    #[test]
    fn half_of_the_slots_stay_free_during_a_long_call_and_60_s_after() {
        for (count, half) in [(4, 2), (3, 1), (2, 1)] {
            let slots = IoSlots::new(count);
            assert_eq!(available(&slots, 0), count);
            let long = slots.acquire(0).unwrap();
            assert_eq!(available(&slots, LONG_CALL_NANOS), count - 1);
            let now = LONG_CALL_NANOS + 1;
            assert_eq!(available(&slots, now), half - 1, "while the long call runs");
            slots.release(long.began, now);
            std::mem::forget(long);
            assert_eq!(available(&slots, now), half, "of {count}");
            assert_eq!(available(&slots, now + LONG_CALL_MEMORY_NANOS - 1), half);
            assert_eq!(available(&slots, now + LONG_CALL_MEMORY_NANOS), count);
        }
        assert_eq!(available(&IoSlots::new(1), 0), 0, "it must read");
    }

    #[test]
    fn a_dropped_slot_is_free_again() {
        let slots = IoSlots::new(2);
        let now = slots.now();
        let both = [slots.acquire(now), slots.acquire(now)];
        assert!(both.iter().all(Option::is_some) && slots.acquire(now).is_none());
        drop(both);
        let is_free = |began: &AtomicU64| began.load(Ordering::Relaxed) == FREE;
        assert!(slots.began.iter().all(is_free));
    }

    #[test]
    fn a_queued_block_is_active_until_its_job_has_run() {
        let pools = WorkerPools::new(2).unwrap();
        let (release, held) = channel::<()>();
        let hold = move || held.recv().unwrap();
        let (sender, is_done) = channel();
        assert!(pools.run(Lane::Engine, Box::new(hold)));
        assert!(pools.run(Lane::Engine, Box::new(move || sender.send(()).unwrap())));
        let is_active = || pools.block_priority.has_active.load(Ordering::Relaxed);
        assert!(is_active());
        release.send(()).unwrap();
        is_done.recv().unwrap();
        // A moment later; without that it never ends.
        while is_active() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_full_lane_refuses_jobs_and_other_lanes_still_run() {
        let pools = WorkerPools::new(1).unwrap();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let hold = || {
            let held = Arc::clone(&held);
            Box::new(move || {
                let _ = held.lock().unwrap().recv();
            })
        };
        let taken = (0..MAX_QUEUED + 10)
            .take_while(|_| pools.run(Lane::Heavy, hold()))
            .count();
        assert!((MAX_QUEUED..=MAX_QUEUED + 1).contains(&taken), "{taken}");
        let (sender, receiver) = channel();
        assert!(pools.run(Lane::Engine, Box::new(move || sender.send(1).unwrap())));
        assert_eq!(receiver.recv(), Ok(1));
        drop(release);
    }
}
