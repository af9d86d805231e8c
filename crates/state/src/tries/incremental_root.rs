//! A state root that is computed in parts while its block is still executed.
//!
//! Most of the time of a root goes into hashing the nodes on the paths to what has changed. Much of that is known
//! before the block ends, so the commit thread pushes what has changed so far, a few times per block, and
//! workers move the tries there in small batches while execution goes on. The root after the last transaction
//! starts at tries that are almost where they should be:
//!
//! ```text
//! commit thread   execute ... push(part 1) ... push(part 2) ... push(last part)   finish(diff) -> ComputedRoot
//! workers                     apply_some       apply_some       apply_some        (closed)
//! tries           parent's state --------> so far --------> so far ------> +rest -> block's state
//! ```
//!
//! [`WorldState::begin_root`] begins the session, an [`IncrementalRoot`] that all threads share. Its one
//! [`RootFinisher`] closes it: with [`RootFinisher::finish`], or by being dropped if the block is refused.
//!
//! What must hold: a part only says where the tries move *on the way*. `finish` moves them to the state after `diff`,
//! wherever they are by then, so a part that was wrong, late, left out or failed costs time but never changes the
//! root. So errors and panics of a part end the session and are not reported.

use crate::commit::hashed_diff::HashedDiff;
use crate::tries::trie_cache::TrieCache;
use crate::views::layers::DiffLayers;
use crate::{ComputedRoot, View, WorldState};
use niwaki_primitives::{DirtyState, Fault, StateDiff};
use niwaki_threads::lock;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Accounts and slots that are applied to the tries at once, or one account with all its slots: a millisecond or
/// two of work, unless hundreds of slots of one account have changed.
const BATCH: usize = 512;

/// The same once the last part was pushed, because the root waits for the batch at hand.
const LAST_BATCH: usize = 32;

/// A root computed in parts; see the module. Shared by the commit thread, which pushes parts, and workers, which
/// apply them one at a time.
#[derive(Debug)]
pub struct IncrementalRoot<'a> {
    world: &'a WorldState,
    /// The parent's state.
    view: &'a View,
    batch: usize,
    pending: Mutex<VecDeque<PendingPart>>,
    /// Locked by the thread that applies parts.
    applying: Mutex<()>,
    is_closed: AtomicBool,
    /// Parts that were begun to be applied.
    parts: AtomicU32,
    has_last: AtomicBool,
}

#[derive(Debug)]
enum PendingPart {
    New(DirtyState),
    /// Hashed, and applied in part.
    Begun(HashedDiff),
}

impl WorldState {
    /// Begins the root of a block on top of `view`.
    pub fn begin_root<'a>(&'a self, view: &'a View) -> IncrementalRoot<'a> {
        IncrementalRoot::new(self, view, BATCH)
    }
}

impl<'a> IncrementalRoot<'a> {
    pub(crate) fn new(world: &'a WorldState, view: &'a View, batch: usize) -> Self {
        Self {
            world,
            view,
            batch,
            pending: Mutex::default(),
            applying: Mutex::default(),
            is_closed: AtomicBool::new(false),
            parts: AtomicU32::new(0),
            has_last: AtomicBool::new(false),
        }
    }

    /// Adds accounts and slots that the block has changed so far, as they are now. What an earlier part has listed
    /// and this one does not stays as it was there. An unchanged account or slot may be listed.
    pub fn push(&self, part: DirtyState, is_last: bool) {
        lock(&self.pending).push_back(PendingPart::New(part));
        self.has_last.store(is_last, Ordering::Relaxed);
    }

    /// Whether parts wait to be applied.
    pub fn is_pending(&self) -> bool {
        !self.is_closed() && !lock(&self.pending).is_empty()
    }

    /// Whether everything that was pushed is in the tries, as far as it will be.
    pub fn is_applied(&self) -> bool {
        !self.is_pending() && self.applying.try_lock().is_ok()
    }

    /// Applies one batch, if no other thread is doing so; `false` if there was none.
    pub fn apply_some(&self) -> bool {
        let applying = self.applying.try_lock();
        applying.is_ok_and(|_applying| self.apply_batch())
    }

    /// Applies everything that is pending.
    pub fn apply_all(&self) {
        let _applying = lock(&self.applying);
        while self.apply_batch() {}
    }

    /// How many parts were begun to be applied.
    pub fn parts(&self) -> u32 {
        self.parts.load(Ordering::Relaxed)
    }

    /// Whether nothing more is applied: the root is being finished, the block was refused, or a part has failed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// What closes the session. Take it once.
    pub fn finisher(&self) -> RootFinisher<'_> {
        RootFinisher(self)
    }

    /// Applies one batch of the first pending part; `false` if there was none. The caller holds `applying`.
    fn apply_batch(&self) -> bool {
        if self.is_closed() {
            return false;
        }
        let Some(part) = lock(&self.pending).pop_front() else {
            return false;
        };
        match catch_unwind(AssertUnwindSafe(|| self.apply_part(part))) {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(rest))) => lock(&self.pending).push_front(PendingPart::Begun(rest)),
            // If it matters, `finish` fails in the same way.
            Ok(Err(_)) | Err(_) => self.close(),
        }
        true
    }

    /// Applies one batch of `part` and returns the rest, if it should be applied too.
    fn apply_part(&self, part: PendingPart) -> Result<Option<HashedDiff>, Fault> {
        let mut rest = match part {
            PendingPart::Begun(rest) => rest,
            PendingPart::New(part) => {
                self.parts.fetch_add(1, Ordering::Relaxed);
                self.world.hash_part(self.view, &part)?
            }
        };
        let batch = match self.has_last.load(Ordering::Relaxed) {
            true => LAST_BATCH.min(self.batch),
            false => self.batch,
        };
        let is_closed = || self.is_closed();
        let is_left = self
            .world
            .apply_to_tries(self.view, &mut rest, batch, &is_closed)?;
        Ok(is_left.then_some(rest))
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

/// Closes an [`IncrementalRoot`] when it is finished or dropped.
#[derive(Debug)]
pub struct RootFinisher<'a>(&'a IncrementalRoot<'a>);

impl RootFinisher<'_> {
    /// Computes the root of the state after `diff`, which must be the diff of the whole block. Workers apply
    /// pending parts until the keys of `diff` are hashed.
    ///
    /// # Errors
    /// As [`WorldState::compute_root`].
    pub fn finish(self, diff: &StateDiff) -> Result<ComputedRoot, Fault> {
        let IncrementalRoot { world, view, .. } = *self.0;
        let own = world.hash_diff(view, diff)?;
        drop(self);
        world.compute_with_tries(&mut world.tries(), view, own, &diff.codes)
    }
}

impl Drop for RootFinisher<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl WorldState {
    /// Applies one batch of `rest` to the tries, on the calling thread alone, and takes it out of `rest`; whether
    /// something is left and should be applied too. Does nothing if `is_closed()`, if the head has moved since
    /// `view` was made, or if the tries have collected so many rows that they would soon be reset.
    pub(crate) fn apply_to_tries(
        &self,
        view: &View,
        rest: &mut HashedDiff,
        batch: usize,
        is_closed: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        // Locked for one batch only: the root, and prefetching, wait for the tries.
        let mut tries = self.tries();
        if rest.is_empty() || is_closed() || self.head() != Some(view.head) || tries.is_near_reset()
        {
            return Ok(false);
        }
        let part = rest.take_batch(batch);
        let before = view.layers();
        tries.single_threaded(|tries| self.move_by_part(tries, view, &before, part))?;
        Ok(!rest.is_empty())
    }

    /// Moves `tries`, which may be of any state, to the parent's state changed by `part`; if they are one step from
    /// the parent's state already, that step stays.
    fn move_by_part(
        &self,
        tries: &mut TrieCache,
        view: &View,
        before: &DiffLayers,
        part: HashedDiff,
    ) -> Result<(), Fault> {
        let Some(last) = tries.last_step_from(before) else {
            let own = part.without_unchanged();
            return self.move_tries_to(tries, view, before, own).map(drop);
        };
        let moved = tries.apply_part(self.database(), before, last, &part);
        moved.inspect_err(|_| tries.reset(view.head.root))
    }
}
