//! Roots that are begun while a block is still executed: the tries move to what it has changed by then, and its
//! root has less to do.

use crate::changes::Changes;
use crate::layers::Layers;
use crate::tries::Tries;
use crate::{View, WorldState};
use niwaki_primitives::{Fault, StateDiff};

/// So many accounts and slots, or one account with all its slots, go into the tries at once: in a
/// millisecond or so, as long as nobody has changed thousands of slots of one account.
pub(crate) const LOT: usize = if cfg!(test) { 8 } else { 512 };

impl WorldState {
    /// Moves the tries on, on this thread alone, to how accounts and slots of `part` are in the state to come, of
    /// which `view` is the parent's: a state on the way to one that is prepared later, which has less to do
    /// then. What `part` does not list stays as an earlier part has left it. Whether it did, some of it at least:
    /// no further once that `is_over`, and not where the head has moved, nor when so many rows have changed that
    /// the way would have to begin again.
    ///
    /// # Errors
    /// As [`WorldState::prepare`].
    pub fn begin_root(
        &self,
        view: &View,
        part: &StateDiff,
        is_over: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        if is_over() {
            return Ok(false);
        }
        let mut left = self.hashed_part(view, part)?;
        let mut tries = self.tries();
        if self.head() != Some(view.head()) {
            return Ok(false);
        }
        let before = view.overlay().map(|overlay| overlay.layers.clone());
        let before = before.unwrap_or_default();
        let mut has_moved = false;
        // Whoever waits for the end of it waits for one lot.
        while !left.is_empty() && !is_over() && !tries.have_moved_far() {
            let lot = left.take_lot(LOT);
            tries.alone(|tries| self.move_on(tries, view, &before, lot))?;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Moves `tries` on by `part`, if they are one step from the state that is `before` away from the head's, and
    /// else to what `part` makes of that.
    fn move_on(
        &self,
        tries: &mut Tries,
        view: &View,
        before: &Layers,
        part: Changes,
    ) -> Result<(), Fault> {
        let Some(last) = tries.last_step_upon(before) else {
            let own = part.without_same();
            return self.move_to_step(tries, view, before, own).map(drop);
        };
        let moved = tries.move_on(self.database(), (before, last), &part);
        moved.inspect_err(|_| tries.reset(view.head().root))
    }
}
