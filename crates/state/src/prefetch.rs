//! Trie nodes brought into memory while a block is still executed.
//!
//! What execution reads past the caches is likely to change, and then its way through the tries is
//! needed for the root. A view that tells, tells it here, and a thread beside reads ahead. It never
//! decides anything: what it misses, or fails to read, the root reads by itself.

use crate::disk_trie::{DiskTrie, Rows};
use crate::{View, WorldState};
use niwaki_primitives::{Address, B256, U256};
use niwaki_threads::Crew;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
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

impl WorldState {
    /// Does `work` with `view`, while a thread beside brings into memory the trie nodes on the way
    /// to what `work` reads, until it is over or says that it has `ended`. Worth it for work of a
    /// millisecond or more. One at a time in a process: others that come meanwhile have nothing read ahead
    /// and wait for it, so never within `work` of another.
    pub fn with_prefetch<T>(
        &self,
        view: &mut View,
        ended: &AtomicBool,
        work: impl FnOnce(&View) -> T,
    ) -> T {
        self.prefetching("prefetch", view, (ended, None), work)
    }

    /// The same for work that is no block's. A block may be waiting for the tries: nothing is brought in any
    /// more once that `is_over`, nor while the tries hold more than they should.
    pub fn with_prefetch_until<T>(
        &self,
        view: &mut View,
        is_over: &(dyn Fn() -> bool + Sync),
        work: impl FnOnce(&View) -> T,
    ) -> T {
        let until = (&AtomicBool::new(false), Some(is_over));
        self.prefetching("warming", view, until, work)
    }

    fn prefetching<T>(
        &self,
        purpose: &'static str,
        view: &mut View,
        (ended, is_over): (&AtomicBool, Option<&(dyn Fn() -> bool + Sync)>),
        work: impl FnOnce(&View) -> T,
    ) -> T {
        let Some(crew) = Crew::of(purpose, 1) else {
            return work(view);
        };
        let (sender, touched) = sync_channel(QUEUE);
        let reader = &OnceLock::new();
        crew.scope(|beside| {
            beside.begin(move || {
                let _ = reader.set(thread::current());
                self.read_ahead(&touched, ended, is_over);
            });
            let telling = Telling::new(view, (sender, reader), ended);
            work(telling.view)
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
            let lot = changed.by_ref().take(LOT);
            // What can't be read is left out, and comes back to whoever needs it.
            let places = lot.filter_map(|(address, slot)| view.place_of(&address, slot).ok()?);
            let places: Vec<Touched> = places.collect();
            let mut tries = self.tries();
            let source = DiskTrie::new(Rows::Now(self.database()), &[]);
            // As below: what can't be read comes back to whoever needs it.
            let _ = tries.load(&source, &places);
            tries.count(&source);
        }
    }

    fn read_ahead(
        &self,
        touched: &Receiver<Touched>,
        ended: &AtomicBool,
        is_over: Option<&(dyn Fn() -> bool + Sync)>,
    ) {
        loop {
            let first = match touched.try_recv() {
                Ok(first) => first,
                Err(TryRecvError::Empty) => {
                    thread::park_timeout(LOOKS);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
            };
            if ended.load(Ordering::Relaxed) || is_over.is_some_and(|is_over| is_over()) {
                continue;
            }
            let lot = std::iter::once(first).chain(touched.try_iter().take(LOT));
            let lot: Vec<Touched> = lot.collect();
            let mut tries = self.tries();
            if is_over.is_some_and(|is_over| is_over() || tries.are_full()) {
                continue;
            }
            let source = DiskTrie::new(Rows::Now(self.database()), &[]);
            // What can't be read comes back to whoever needs it.
            let _ = tries.load(&source, &lot);
            tries.count(&source);
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
