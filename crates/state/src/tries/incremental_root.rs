//! Roots that are begun while a block is still executed: the tries move to what it has changed by then, and its
//! root has less to do.

use crate::commit::hashed_diff::HashedDiff;
use crate::tries::trie_cache::TrieCache;
use crate::views::layers::DiffLayers;
use crate::{View, WorldState};
use niwaki_primitives::{Fault, StateDiff};

/// So many accounts and slots, or one account with all its slots, go into the tries at once: in a millisecond
/// or two, as long as nobody has changed hundreds of slots of one account.
pub(crate) const BATCH: usize = if cfg!(test) { 8 } else { 512 };

/// The same when nothing more will come: whoever makes the root waits for no longer.
const LAST_BATCH: usize = 32;

/// What is yet to go into the tries of a part of what a block changes.
#[derive(Clone, Debug)]
pub struct BegunRoot {
    left: HashedDiff,
}

impl BegunRoot {
    /// Whether all of it is in the tries.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}

impl WorldState {
    /// How accounts and slots of `part` are in the state to come, of which `view` is the parent's, to go into the
    /// tries.
    ///
    /// # Errors
    /// As [`WorldState::compute_root`].
    pub fn begin_root(&self, view: &View, part: &StateDiff) -> Result<BegunRoot, Fault> {
        let left = self.hash_part(view, part)?;
        Ok(BegunRoot { left })
    }

    /// Moves the tries on by a batch of what was begun, on this thread alone: to a state on the way to one that is
    /// prepared later, which has less to do then. What is not listed stays as an earlier part has left it.
    /// Whether that may be done again. Nothing is done once that `is_over`, nor where the head has moved, nor when
    /// so many rows have changed that the way would have to begin again.
    ///
    /// # Errors
    /// As [`WorldState::compute_root`].
    pub fn go_on_with_root(
        &self,
        view: &View,
        begun: &mut BegunRoot,
        is_last: bool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        let mut tries = self.tries();
        // Whoever waits for the tries waits for one batch.
        if begun.is_done() || is_over() || self.head() != Some(view.head()) || tries.is_near_reset()
        {
            return Ok(false);
        }
        let before = view.layers();
        let batch = begun.left.take_batch(if is_last {
            LAST_BATCH.min(BATCH)
        } else {
            BATCH
        });
        tries.single_threaded(|tries| self.apply_part(tries, view, &before, batch))?;
        Ok(!begun.is_done())
    }

    /// Moves `tries` on by `part`, if they are one step from the state that is `before` away from the head's, and
    /// else to what `part` makes of that.
    fn apply_part(
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
        moved.inspect_err(|_| tries.reset(view.head().root))
    }
}
