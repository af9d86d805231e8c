//! Trie nodes brought into memory while a block is still executed.
//!
//! What execution reads past the caches is likely to change, and then its way through the tries is
//! needed for the root. A view that tells, tells it here, and a thread beside reads ahead. It never
//! decides anything: what it misses, or fails to read, the root reads by itself.

use crate::disk_trie::{DiskTrie, Rows};
use crate::tries::Tries;
use crate::{View, WorldState};
use niwaki_primitives::{Address, B256, U256};
use niwaki_threads::Crew;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// An account, or one of its slots, that was read from the storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// Hashed address.
    pub(crate) account: B256,
    /// Hashed slot, and the root of the storage that it is in.
    pub(crate) slot: Option<(B256, B256)>,
    /// Whether it is known that there is no such account, or that the slot is zero.
    pub(crate) is_absent: bool,
}

/// Where views tell what they read.
pub(crate) type Tell = SyncSender<Touched>;

/// What may wait to be read ahead; what comes while so much waits is left out.
const QUEUE: usize = 1 << 12;

/// So many ways are loaded together before others may have the tries.
const LOT: usize = 32;

/// How often it is looked whether anything waits: whoever executes a block is not to wake a thread for
/// each value that it reads.
const LOOKS: Duration = Duration::from_micros(300);

/// What is read ahead for the view of some work.
#[expect(missing_debug_implementations, reason = "a function")]
pub struct ReadingAhead<'a> {
    world: &'a WorldState,
    waiting: Mutex<Waiting>,
    until: Until<'a>,
    /// Whether the thread beside reads no more.
    is_left_to_others: AtomicBool,
}

/// Nothing is read ahead any more once that the flag is set, or the function says so.
#[derive(Clone, Copy)]
struct Until<'a> {
    ended: &'a AtomicBool,
    is_over: Option<&'a (dyn Fn() -> bool + Sync)>,
}

impl Until<'_> {
    fn is_over(&self, tries: &Tries) -> bool {
        let is_over = |is_over: &(dyn Fn() -> bool + Sync)| is_over() || tries.are_full();
        self.ended.load(Ordering::Relaxed) || self.is_over.is_some_and(is_over)
    }
}

/// What was told, and nobody has begun to read.
#[derive(Debug)]
struct Waiting {
    told: Receiver<Touched>,
    lot: Vec<Touched>,
}

impl Waiting {
    /// The next ones to read together, if there are at least so many.
    fn take(&mut self, least: usize) -> Vec<Touched> {
        let room = LOT.saturating_sub(self.lot.len());
        self.lot.extend(self.told.try_iter().take(room));
        match self.lot.len() >= least {
            true => std::mem::take(&mut self.lot),
            false => Vec::new(),
        }
    }
}

impl WorldState {
    /// Does `work` with `view`, while a thread beside brings into memory the trie nodes on the way
    /// to what `work` reads, until it is over or says that it has `ended`. Worth it for work of a
    /// millisecond or more. One at a time in a process: others that come meanwhile have nothing read ahead
    /// and wait for it, so never within `work` of another.
    pub fn with_prefetch<T>(
        &self,
        view: &mut View,
        ended: &AtomicBool,
        work: impl FnOnce(&View, &ReadingAhead<'_>) -> T,
    ) -> T {
        let is_over = None;
        self.prefetching("prefetch", view, Until { ended, is_over }, work)
    }

    /// The same for work that is no block's. A block may be waiting for the tries: nothing is brought in any
    /// more once that `is_over`, nor while the tries hold more than they should.
    pub fn with_prefetch_until<T>(
        &self,
        view: &mut View,
        is_over: &(dyn Fn() -> bool + Sync),
        work: impl FnOnce(&View) -> T,
    ) -> T {
        let (ended, is_over) = (&AtomicBool::new(false), Some(is_over));
        let work = |view: &View, _: &ReadingAhead<'_>| work(view);
        self.prefetching("warming", view, Until { ended, is_over }, work)
    }

    fn prefetching<T>(
        &self,
        purpose: &'static str,
        view: &mut View,
        until: Until<'_>,
        work: impl FnOnce(&View, &ReadingAhead<'_>) -> T,
    ) -> T {
        let (sender, told) = sync_channel(QUEUE);
        let reading = ReadingAhead {
            world: self,
            waiting: Mutex::new(Waiting {
                told,
                lot: Vec::new(),
            }),
            until,
            is_left_to_others: AtomicBool::new(false),
        };
        let Some(crew) = Crew::of(purpose, 1) else {
            return work(view, &reading);
        };
        let reader = &OnceLock::new();
        crew.scope(|beside| {
            beside.begin(|| {
                let _ = reader.set(thread::current());
                reading.read_to_the_end();
            });
            let telling = Telling::new(view, (sender, reader), until.ended);
            work(telling.view, &reading)
        })
    }

    /// Brings into memory the trie nodes on the way to accounts and slots that will have changed, as far as
    /// the state of the head has them, until `ended`.
    pub fn load_ways(
        &self,
        view: &View,
        changed: impl Iterator<Item = (Address, Option<U256>)>,
        ended: &AtomicBool,
    ) {
        let mut changed = changed.peekable();
        while changed.peek().is_some() && !ended.load(Ordering::Relaxed) {
            let lot: Vec<_> = changed.by_ref().take(LOT).collect();
            // What is left out comes back to whoever needs it.
            let places = view.places_of(&lot);
            let mut tries = self.tries();
            let source = DiskTrie::new(Rows::Now(self.database()), &[]);
            // As below: what can't be read comes back to whoever needs it.
            let _ = tries.load(&source, &places);
            tries.count(&source);
        }
    }
}

impl ReadingAhead<'_> {
    /// From here on the thread beside reads nothing: others [go on](Self::go_on) with it when they have time.
    pub fn leave_to_others(&self) {
        self.is_left_to_others.store(true, Ordering::Relaxed);
    }

    /// Reads some of what waits, if it is enough for a lot; whether it was, and nobody else was at it.
    pub fn go_on(&self) -> bool {
        self.read_some(LOT)
    }

    fn read_some(&self, least: usize) -> bool {
        let Ok(mut waiting) = self.waiting.try_lock() else {
            return false;
        };
        let lot = waiting.take(least);
        drop(waiting);
        if lot.is_empty() {
            return false;
        }
        let mut tries = self.world.tries();
        if self.until.is_over(&tries) {
            return true;
        }
        let source = DiskTrie::new(Rows::Now(self.world.database()), &[]);
        // What can't be read comes back to whoever needs it.
        let _ = tries.load(&source, &lot);
        tries.count(&source);
        true
    }

    /// Reads what is told, until it is over or others do that.
    fn read_to_the_end(&self) {
        while !self.until.ended.load(Ordering::Relaxed)
            && !self.is_left_to_others.load(Ordering::Relaxed)
        {
            if !self.read_some(1) {
                thread::park_timeout(LOOKS);
            }
        }
    }
}

/// A view that tells, until this is dropped.
struct Telling<'a> {
    view: &'a mut View,
    /// The thread that reads ahead, once it does.
    reader: &'a OnceLock<Thread>,
    ended: &'a AtomicBool,
}

impl<'a> Telling<'a> {
    fn new(
        view: &'a mut View,
        (tell, reader): (Tell, &'a OnceLock<Thread>),
        ended: &'a AtomicBool,
    ) -> Self {
        view.tell = Some(tell);
        Self {
            view,
            reader,
            ended,
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.view.tell = None;
        // Who begins later finds that nobody tells anything any more.
        if let Some(reader) = self.reader.get() {
            reader.unpark();
        }
    }
}
