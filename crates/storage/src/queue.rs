//! Writing behind: batches wait in memory and one thread brings them to the engine, several as one.
//!
//! Order is kept, and each batch is there whole or not at all after a crash, with all before it.
//! Whoever reads sees the waiting batches (`pending`). When too much waits, writers wait too. After
//! a failure nothing is taken any more: what waits stays readable, and every write tells why.

use crate::batch::ChangeRef;
use crate::database::engine_fault;
use crate::marks::{MOST_BATCHES, Marks};
use crate::pending::{Pending, Place, Stack, clear_marks};
use crate::snapshot::Moment;
use crate::{Batch, Later, Segment};
use niwaki_primitives::Fault;
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many batches are worth a write.
const GROUP_BATCHES: usize = 8;
/// So many bytes are worth a write.
const GROUP_BYTES: usize = 8 << 20;
/// No batch waits longer than this for others to join it.
const GROUP_TIME: Duration = Duration::from_secs(1);
/// A batch of so many bytes is worth waking the writer, who makes it ready for readers.
const READY_BYTES: usize = 64 << 10;

/// The batches on their way to an engine.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Arc<DB>,
    most_bytes: usize,
    /// Bytes of all batches in memory: of those that wait, and of those that snapshots keep.
    held_bytes: Arc<AtomicUsize>,
    /// Of the batches that wait.
    marks: Arc<Marks>,
    state: Mutex<State>,
    /// Something may be due.
    work: Condvar,
    /// Something was written or failed.
    done: Condvar,
}

struct State {
    stack: Stack,
    bytes: usize,
    /// When the oldest of the stack came.
    since: Instant,
    /// Batches that were ever taken, and of them those in the engine, and on the disk for sure.
    taken: u64,
    written: u64,
    synced: u64,
    /// Bytes of those in the engine.
    batched_bytes: u64,
    /// Up to where somebody waits for the engine, and for the disk.
    write_wanted: u64,
    sync_wanted: u64,
    failure: Option<Fault>,
    closing: bool,
}

impl Queue {
    /// A queue before `engine` that holds at most `most_bytes` (and one batch).
    pub(crate) fn new(engine: Arc<DB>, most_bytes: usize) -> Result<Self, Fault> {
        let state = State {
            stack: Stack::default(),
            bytes: 0,
            since: Instant::now(),
            taken: 0,
            written: 0,
            synced: 0,
            batched_bytes: 0,
            write_wanted: 0,
            sync_wanted: 0,
            failure: None,
            closing: false,
        };
        let shared = Arc::new(Shared {
            engine,
            most_bytes,
            held_bytes: Arc::default(),
            marks: Arc::new(Marks::new()),
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let for_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("storage writer".to_owned())
            .spawn(move || for_writer.work())
            .map_err(|error| engine_fault("start writer", "all", &error.to_string()))?;
        let writer = Some(writer);
        Ok(Self { shared, writer })
    }

    /// Takes `batch`, to be completed by `later`; readers see all of it when this returns. With
    /// `durable` it survives a power cut by then.
    pub(crate) fn push(&self, batch: Batch, later: Later, durable: bool) -> Result<(), Fault> {
        let mut state = self.room()?;
        let place = Place {
            marks: Arc::clone(&self.shared.marks),
            number: state.taken,
        };
        let batch = Arc::new(Pending::new(batch, later, place, &self.shared.held_bytes));
        let bytes = batch.bytes();
        if state.stack.is_empty() {
            state.since = Instant::now();
        }
        Arc::make_mut(&mut state.stack).push(batch);
        state.bytes += bytes;
        state.taken += 1;
        let own = state.taken;
        if durable {
            return self.shared.settle(state, own, own);
        }
        // The first one starts the writer's clock.
        if state.stack.len() == 1 || bytes >= READY_BYTES || state.is_due() {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Returns when there is room for a batch.
    pub(crate) fn wait_for_room(&self) -> Result<(), Fault> {
        self.room().map(drop)
    }

    fn room(&self) -> Result<MutexGuard<'_, State>, Fault> {
        let is_full = |state: &State| {
            state.bytes > self.shared.most_bytes || state.stack.len() >= MOST_BATCHES
        };
        let mut state = self.shared.lock();
        while state.failure.is_none() && is_full(&state) {
            state = self.shared.wait(state);
        }
        state.fail()?;
        Ok(state)
    }

    /// Returns when the engine has all that was taken; with `durable`, the disk too.
    pub(crate) fn flush(&self, durable: bool) -> Result<(), Fault> {
        let state = self.shared.lock();
        let all = state.taken;
        let synced = if durable { all } else { 0 };
        self.shared.settle(state, all, synced)
    }

    /// Bytes of the batches that reached the engine.
    pub(crate) fn batched_bytes(&self) -> u64 {
        self.shared.lock().batched_bytes
    }

    /// The batches that wait now.
    pub(crate) fn stack(&self) -> Stack {
        Arc::clone(&self.shared.lock().stack)
    }

    /// The batches that wait now, and the engine below them. None wait while snapshots keep more
    /// in memory than may wait: then the engine has all of them first.
    pub(crate) fn snapshot(&self) -> (Stack, Moment) {
        let shared = &self.shared;
        let mut state = shared.lock();
        while !state.stack.is_empty() && shared.pinned_bytes(&state) > shared.most_bytes {
            let all = state.taken;
            let settled = shared.settle(state, all, 0);
            state = shared.lock();
            if settled.is_err() {
                // Nothing is taken any more, so the stack does not grow.
                break;
            }
        }
        (Arc::clone(&state.stack), Moment::of(&shared.engine))
    }

    /// Bytes of batches that are in the engine and still in memory.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.shared.pinned_bytes(&self.shared.lock())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic there was reported by its own message, and `failure` says so to writers.
            let _ = writer.join();
        }
    }
}

impl Shared {
    /// Asks for batches up to `written` and `synced`, and waits for it.
    fn settle(
        &self,
        mut state: MutexGuard<'_, State>,
        written: u64,
        synced: u64,
    ) -> Result<(), Fault> {
        state.write_wanted = state.write_wanted.max(written);
        state.sync_wanted = state.sync_wanted.max(synced);
        self.work.notify_one();
        while state.written < written || state.synced < synced {
            state.fail()?;
            state = self.wait(state);
        }
        Ok(())
    }

    fn pinned_bytes(&self, state: &State) -> usize {
        let held = self.held_bytes.load(Ordering::Relaxed);
        held.saturating_sub(state.bytes)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.done
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer's thread.
    fn work(&self) {
        let _ended = Ended(self);
        loop {
            let mut state = self.lock();
            while !state.is_due() {
                if state.closing {
                    return;
                }
                if let Some(batch) = state.raw() {
                    drop(state);
                    batch.make_ready();
                    state = self.lock();
                    continue;
                }
                let rest = GROUP_TIME.saturating_sub(state.since.elapsed());
                state = match state.stack.is_empty() {
                    true => self
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner),
                    false => {
                        let waited = self.work.wait_timeout(state, rest);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
            let group = Arc::clone(&state.stack);
            let sync = state.sync_wanted > state.synced;
            drop(state);

            let outcome = self.write(&group, sync);

            if outcome.is_ok() {
                // While they still count as waiting, so that nobody else has their bits.
                clear_marks(&group);
            }
            let mut state = self.lock();
            if let Err(fault) = outcome {
                state.failure = Some(fault);
                return;
            }
            let rest = state.stack[group.len()..].to_vec();
            state.stack = Arc::new(rest);
            state.bytes -= group.iter().map(|batch| batch.bytes()).sum::<usize>();
            state.since = Instant::now();
            state.written += group.len() as u64;
            let batches = group.iter().map(|batch| batch.batch());
            state.batched_bytes += batches.map(|batch| batch.bytes() as u64).sum::<u64>();
            if sync {
                state.synced = state.written;
            }
            drop(state);
            self.done.notify_all();
        }
    }

    /// Writes `group` as one, of each key the last change only.
    fn write(&self, group: &[Arc<Pending>], sync: bool) -> Result<(), Fault> {
        let fault = |error: rocksdb::Error| engine_fault("write batch", "all", error.as_ref());
        if group.is_empty() {
            return self.engine.flush_wal(true).map_err(fault);
        }
        let bytes: usize = group.iter().map(|batch| room(batch.batch())).sum();
        let mut writes = WriteBatch::with_capacity_bytes(bytes);
        let families = families(&self.engine);
        for (at, batch) in group.iter().enumerate() {
            batch.make_ready();
            let later = &group[at + 1..];
            for (index, change) in (0..).zip(batch.batch().changes()) {
                if batch.holds(index, later) {
                    add(&mut writes, &families, change);
                }
            }
        }
        write(&self.engine, writes, sync).map_err(fault)
    }
}

impl State {
    /// Whether the writer has something to do now.
    fn is_due(&self) -> bool {
        let wanted = self.write_wanted > self.written || self.sync_wanted > self.synced;
        let waits = !self.stack.is_empty();
        let enough = self.stack.len() >= GROUP_BATCHES || self.bytes >= GROUP_BYTES;
        wanted || waits && (enough || self.closing || self.since.elapsed() >= GROUP_TIME)
    }

    /// A batch that is large enough to be made ready before it is due.
    fn raw(&self) -> Option<Arc<Pending>> {
        let is_raw = |batch: &&Arc<Pending>| batch.bytes() >= READY_BYTES && batch.is_raw();
        self.stack.iter().find(is_raw).cloned()
    }

    fn fail(&self) -> Result<(), Fault> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Tells whoever waits that the writer has ended, even by a panic.
struct Ended<'a>(&'a Shared);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let ended = || engine_fault("write batch", "all", "the writer has ended");
        state.failure.get_or_insert_with(ended);
        drop(state);
        self.0.done.notify_all();
    }
}

/// Bytes that the engine needs for `batch`: 16 a row cover its own lengths and tags.
fn room(batch: &Batch) -> usize {
    batch.bytes() + 16 * batch.len() + 16
}

type Families<'a> = [&'a rocksdb::ColumnFamily; Segment::ALL.len()];

fn families(engine: &DB) -> Families<'_> {
    Segment::ALL.map(|segment| crate::database::family(engine, segment))
}

fn add(writes: &mut WriteBatch, families: &Families<'_>, (segment, key, value): ChangeRef<'_>) {
    let family = families[segment as usize];
    match value {
        Some(value) => writes.put_cf(family, key, value),
        None => writes.delete_cf(family, key),
    }
}

fn write(engine: &DB, writes: WriteBatch, sync: bool) -> Result<(), rocksdb::Error> {
    let mut options = WriteOptions::default();
    options.set_sync(sync);
    engine.write_opt(writes, &options)
}

/// Writes `batch` at once, past any queue.
pub(crate) fn write_now(engine: &DB, batch: &Batch) -> Result<(), Fault> {
    let mut writes = WriteBatch::with_capacity_bytes(room(batch));
    let families = families(engine);
    batch
        .changes()
        .for_each(|change| add(&mut writes, &families, change));
    let written = write(engine, writes, false);
    written.map_err(|error| engine_fault("write batch", "all", error.as_ref()))
}
