//! Write-behind: batches are pending in memory, and one thread writes them to the engine in groups.
//!
//! The commit thread must not wait for RocksDB, so [`Queue::push`] only appends the batch to the pending ones,
//! where readers find it (`pending`). The *storage writer* thread takes all pending batches, keeps the last
//! change of each key, and writes them as one engine batch:
//!
//! ```text
//! commit thread   --push-->  pending: [ 41 | 42 | 43 | 44 ]  --group-->  storage writer  -->  RocksDB
//! readers         <--find--                                  <--range--                  <--
//! ```
//!
//! A group is written when it has 8 batches or 8 MiB, when its oldest batch is a second old, or when a caller
//! waits for the engine or the disk. While it has none to write, the writer completes and indexes large batches.
//!
//! What holds: batches reach the engine in the order of `push`, each whole, so a crash loses only the
//! newest ones. When too much is pending, `push` blocks. After the first failure nothing is accepted any more:
//! pending batches stay readable and every call returns that failure.

use crate::Batch;
use crate::batch::DeferredRows;
use crate::engine::EngineWrite;
use crate::fault::engine_fault;
use crate::key_filter::{KeyFilter, MAX_PENDING_BATCHES};
use crate::pending::{FilterSlot, PendingBatch, PendingBatches, clear_filter};
use crate::snapshot::EngineSnapshot;
use niwaki_primitives::Fault;
use rocksdb::DB;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A group of this many batches is written at once.
const GROUP_BATCHES: usize = 8;
/// A group of this many bytes is written at once.
const GROUP_BYTES: usize = 8 << 20;
/// No batch waits longer than this for others to join its group.
const GROUP_TIME: Duration = Duration::from_secs(1);
/// A batch of this many bytes is indexed by the writer before its group is due, so that readers need not.
const READY_BYTES: usize = 64 << 10;

/// The pending batches of an engine and their writer.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Arc<DB>,
    max_bytes: usize,
    /// Bytes of all batches in memory: of pending ones, and of those that only snapshots keep.
    bytes_in_memory: Arc<AtomicUsize>,
    /// Over the pending batches.
    key_filter: Arc<KeyFilter>,
    state: Mutex<State>,
    /// Wakes the writer.
    work: Condvar,
    /// Wakes callers: a group was written, or the writer failed.
    done: Condvar,
}

struct State {
    batches: PendingBatches,
    /// Of `batches`.
    bytes: usize,
    /// When the oldest of `batches` was pushed.
    since: Instant,
    /// How many batches were ever pushed, have reached the engine, and have reached the disk.
    pushed: u64,
    written: u64,
    synced: u64,
    /// Bytes of those that have reached the engine.
    written_bytes: u64,
    /// How many of them callers wait for to be written, and to be synced.
    write_requested: u64,
    sync_requested: u64,
    failure: Option<Fault>,
    is_closing: bool,
}

impl Queue {
    /// An empty queue before `engine`, with at most `max_bytes` (and one batch) pending.
    pub(crate) fn new(engine: Arc<DB>, max_bytes: usize) -> Result<Self, Fault> {
        let state = State {
            batches: PendingBatches::default(),
            bytes: 0,
            since: Instant::now(),
            pushed: 0,
            written: 0,
            synced: 0,
            written_bytes: 0,
            write_requested: 0,
            sync_requested: 0,
            failure: None,
            is_closing: false,
        };
        let shared = Arc::new(Shared {
            engine,
            max_bytes,
            bytes_in_memory: Arc::default(),
            key_filter: Arc::new(KeyFilter::new()),
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let for_writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("storage writer".to_owned())
            .spawn(move || for_writer.run_writer())
            .map_err(|error| engine_fault("start writer", "all", &error.to_string()))?;
        let writer = Some(writer);
        Ok(Self { shared, writer })
    }

    /// Makes `batch`, completed by `deferred`, visible to readers and pending; blocks while too much is
    /// pending. With `durable` it survives a power cut when this returns.
    pub(crate) fn push(
        &self,
        batch: Batch,
        deferred: DeferredRows,
        durable: bool,
    ) -> Result<(), Fault> {
        let mut state = self.lock_with_room()?;
        let slot = FilterSlot {
            filter: Arc::clone(&self.shared.key_filter),
            number: state.pushed,
        };
        let total = &self.shared.bytes_in_memory;
        let batch = Arc::new(PendingBatch::new(batch, deferred, slot, total));
        let bytes = batch.bytes();
        if state.batches.is_empty() {
            state.since = Instant::now();
        }
        Arc::make_mut(&mut state.batches).push(batch);
        state.bytes += bytes;
        state.pushed += 1;
        let own = state.pushed;
        if durable {
            return self.shared.wait_until(state, own, own);
        }
        // The first batch starts the writer's clock.
        if state.batches.len() == 1 || bytes >= READY_BYTES || state.is_due() {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Returns when a push would not block.
    pub(crate) fn wait_for_room(&self) -> Result<(), Fault> {
        self.lock_with_room().map(drop)
    }

    fn lock_with_room(&self) -> Result<MutexGuard<'_, State>, Fault> {
        let is_full = |state: &State| {
            state.bytes > self.shared.max_bytes || state.batches.len() >= MAX_PENDING_BATCHES
        };
        let mut state = self.shared.lock();
        while state.failure.is_none() && is_full(&state) {
            state = self.shared.wait(state);
        }
        state.check_failure()?;
        Ok(state)
    }

    /// Returns when the engine has all that was pushed; with `durable`, the disk too.
    pub(crate) fn flush(&self, durable: bool) -> Result<(), Fault> {
        let state = self.shared.lock();
        let all = state.pushed;
        let synced = if durable { all } else { 0 };
        self.shared.wait_until(state, all, synced)
    }

    /// Bytes of the batches that have reached the engine.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.shared.lock().written_bytes
    }

    /// The pending batches.
    pub(crate) fn batches(&self) -> PendingBatches {
        Arc::clone(&self.shared.lock().batches)
    }

    /// The pending batches and a snapshot of the engine below them. While snapshots keep more bytes in
    /// memory than may be pending, everything is written to the engine first and no batch is kept.
    pub(crate) fn snapshot(&self) -> (PendingBatches, EngineSnapshot) {
        let shared = &self.shared;
        let mut state = shared.lock();
        while !state.batches.is_empty() && shared.pinned_bytes(&state) > shared.max_bytes {
            let all = state.pushed;
            let written = shared.wait_until(state, all, 0);
            state = shared.lock();
            if written.is_err() {
                // Nothing is accepted any more, so the pending batches do not grow.
                break;
            }
        }
        (
            Arc::clone(&state.batches),
            EngineSnapshot::new(&shared.engine),
        )
    }

    /// Bytes of batches that are in the engine and still in memory, because snapshots keep them.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.shared.pinned_bytes(&self.shared.lock())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().is_closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was reported by its own message, and callers got `failure`.
            let _ = writer.join();
        }
    }
}

impl Shared {
    /// Requests the first `written` batches to be written and the first `synced` to be synced, and waits.
    fn wait_until(
        &self,
        mut state: MutexGuard<'_, State>,
        written: u64,
        synced: u64,
    ) -> Result<(), Fault> {
        state.write_requested = state.write_requested.max(written);
        state.sync_requested = state.sync_requested.max(synced);
        self.work.notify_one();
        while state.written < written || state.synced < synced {
            state.check_failure()?;
            state = self.wait(state);
        }
        Ok(())
    }

    fn pinned_bytes(&self, state: &State) -> usize {
        let in_memory = self.bytes_in_memory.load(Ordering::Relaxed);
        in_memory.saturating_sub(state.bytes)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.done
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The storage writer's loop, until the queue is closing and empty, or a write fails.
    fn run_writer(&self) {
        let _guard = WriterGuard(self);
        loop {
            let mut state = self.lock();
            while !state.is_due() {
                if state.is_closing {
                    return;
                }
                if let Some(batch) = state.unindexed() {
                    drop(state);
                    batch.make_ready();
                    state = self.lock();
                    continue;
                }
                let rest = GROUP_TIME.saturating_sub(state.since.elapsed());
                state = match state.batches.is_empty() {
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
            let group = Arc::clone(&state.batches);
            let sync = state.sync_requested > state.synced;
            drop(state);

            let outcome = self.write_group(&group, sync);

            if outcome.is_ok() {
                // Before they leave the pending batches, so that no later batch has their bits yet.
                clear_filter(&group);
            }
            let mut state = self.lock();
            if let Err(fault) = outcome {
                state.failure = Some(fault);
                return;
            }
            let rest = state.batches[group.len()..].to_vec();
            state.batches = Arc::new(rest);
            state.bytes -= group.iter().map(|batch| batch.bytes()).sum::<usize>();
            state.since = Instant::now();
            state.written += group.len() as u64;
            let batches = group.iter().map(|batch| batch.batch());
            state.written_bytes += batches.map(|batch| batch.bytes() as u64).sum::<u64>();
            if sync {
                state.synced = state.written;
            }
            drop(state);
            self.done.notify_all();
        }
    }

    /// Writes `group` as one engine batch with the last change of each key; an empty group syncs the log.
    fn write_group(&self, group: &[Arc<PendingBatch>], sync: bool) -> Result<(), Fault> {
        if group.is_empty() {
            let fault = |error: rocksdb::Error| engine_fault("write batch", "all", error.as_ref());
            return self.engine.flush_wal(true).map_err(fault);
        }
        let batches = group.iter().map(|batch| batch.batch());
        let mut write = EngineWrite::with_room_for(&self.engine, batches);
        for (at, batch) in group.iter().enumerate() {
            batch.make_ready();
            let newer = &group[at + 1..];
            for (index, change) in (0..).zip(batch.batch().changes()) {
                if batch.is_last_change(index, newer) {
                    write.add(change);
                }
            }
        }
        write.write(sync)
    }
}

impl State {
    /// Whether the writer has a group to write now.
    fn is_due(&self) -> bool {
        let is_requested = self.write_requested > self.written || self.sync_requested > self.synced;
        let is_pending = !self.batches.is_empty();
        let is_group = self.batches.len() >= GROUP_BATCHES || self.bytes >= GROUP_BYTES;
        is_requested
            || is_pending && (is_group || self.is_closing || self.since.elapsed() >= GROUP_TIME)
    }

    /// A large batch that is not indexed yet.
    fn unindexed(&self) -> Option<Arc<PendingBatch>> {
        let is_unindexed =
            |batch: &&Arc<PendingBatch>| batch.bytes() >= READY_BYTES && batch.is_unindexed();
        self.batches.iter().find(is_unindexed).cloned()
    }

    fn check_failure(&self) -> Result<(), Fault> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// Sets `failure` and wakes all callers when the writer ends, even by a panic.
struct WriterGuard<'a>(&'a Shared);

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let ended = || engine_fault("write batch", "all", "the writer has ended");
        state.failure.get_or_insert_with(ended);
        drop(state);
        self.0.done.notify_all();
    }
}
