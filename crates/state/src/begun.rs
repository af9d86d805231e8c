//! Roots that are begun while a block is still executed: the tries move to what it has changed by then, and its
//! root has less to do.

use crate::{View, WorldState};
use niwaki_primitives::{Fault, StateDiff};

/// So many accounts and slots, or one account with all its slots, go into the tries at once: in a
/// millisecond or so, as long as nobody has changed thousands of slots of one account.
pub(crate) const LOT: usize = if cfg!(test) { 8 } else { 512 };

impl WorldState {
    /// Moves the tries to the state that `diff` makes of `view`'s, on this thread alone: a state on the way to
    /// one that is prepared later, which has less to do then. Whether it did, some of it at least: no further
    /// once that `is_over`, and not where the head has moved, nor when so many rows have changed that the way
    /// would have to begin again.
    ///
    /// # Errors
    /// As [`WorldState::prepare`].
    pub fn begin_root(
        &self,
        view: &View,
        diff: &StateDiff,
        is_over: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        if is_over() {
            return Ok(false);
        }
        let own = self.hashed(view, diff)?;
        let mut tries = self.tries();
        if self.head() != Some(view.head()) {
            return Ok(false);
        }
        let before = view.overlay().map(|overlay| &overlay.layers);
        let begun = tries.last_step_upon(before).unwrap_or_default();
        let mut done = 0;
        // Whoever waits for the end of it waits for one lot.
        for end in own.lots(LOT) {
            if is_over() || tries.have_moved_far() {
                break;
            }
            let step = own.first(end, &begun);
            tries.alone(|tries| self.prepare_upon(view, tries, step, diff))?;
            done = end;
        }
        Ok(done > 0)
    }
}
