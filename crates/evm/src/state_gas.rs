//! State gas: the second dimension of the meter, which pays for growth of the state (EIP-8037).

/// The state gas of one frame, gas. Execution gas stands beside it and lends where it ends.
///
/// Of reservoir and loan, one is zero whenever a frame runs.
///
/// Spec: EIP-8037; execution-specs `amsterdam/vm/gas.py`, `GasMeter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateGas {
    /// Set aside for the state; a callee gets all of it.
    pub reservoir: i64,
    /// Execution gas that the frame has lent to the state.
    pub lent: i64,
    /// What has been charged less what was given back.
    pub used: i64,
}

impl StateGas {
    /// With so much set aside, and nothing used.
    pub const fn with_reservoir(reservoir: i64) -> Self {
        Self {
            reservoir,
            lent: 0,
            used: 0,
        }
    }

    /// Takes `amount` from the reservoir and the rest from the execution gas `left`. False, and
    /// nothing taken, if both together have less.
    #[must_use]
    pub const fn charge(&mut self, amount: i64, left: &mut i64) -> bool {
        let rest = match amount - self.reservoir {
            ..=0 => 0,
            rest => rest,
        };
        if *left < rest {
            return false;
        }
        *left -= rest;
        self.reservoir -= amount - rest;
        self.lent += rest;
        self.used += amount;
        true
    }

    /// Gives `amount` back, first where the last of it was taken.
    pub const fn refill(&mut self, amount: i64, left: &mut i64) {
        let returned = match amount < self.lent {
            true => amount,
            false => self.lent,
        };
        *left += returned;
        self.lent -= returned;
        self.reservoir += amount - returned;
        self.used -= amount;
    }

    /// Takes over what a callee that succeeded has left: its reservoir in the place of this one, which
    /// it was given. A loan is paid back from the reservoir as far as that goes.
    pub const fn take_over(&mut self, callee: Self, left: &mut i64) {
        self.reservoir = callee.reservoir;
        self.lent += callee.lent;
        self.used += callee.used;
        let returned = match self.reservoir < self.lent {
            true => self.reservoir,
            false => self.lent,
        };
        *left += returned;
        self.lent -= returned;
        self.reservoir -= returned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gas(reservoir: i64, lent: i64, used: i64) -> StateGas {
        StateGas {
            reservoir,
            lent,
            used,
        }
    }

    #[test]
    fn the_reservoir_pays_first_and_execution_lends_the_rest() {
        let (mut state, mut left) = (StateGas::with_reservoir(30), 100);
        assert!(state.charge(20, &mut left));
        assert_eq!((state, left), (gas(10, 0, 20), 100));
        assert!(state.charge(50, &mut left));
        assert_eq!((state, left), (gas(0, 40, 70), 60));
        assert!(!state.charge(61, &mut left));
        assert_eq!((state, left), (gas(0, 40, 70), 60), "nothing was taken");
        assert!(state.charge(60, &mut left));
        assert_eq!((state, left), (gas(0, 100, 130), 0));
    }

    #[test]
    fn what_comes_back_goes_where_the_last_of_it_came_from() {
        let (mut state, mut left) = (StateGas::with_reservoir(30), 100);
        assert!(state.charge(50, &mut left));
        state.refill(15, &mut left);
        assert_eq!((state, left), (gas(0, 5, 35), 95));
        state.refill(35, &mut left);
        assert_eq!((state, left), (StateGas::with_reservoir(30), 100));
    }

    #[test]
    fn what_a_callee_refilled_pays_the_callers_loan_back() {
        let (mut state, mut left) = (StateGas::default(), 100);
        assert!(state.charge(70, &mut left));
        let (mut callee, mut callee_left) = (StateGas::with_reservoir(state.reservoir), 10);
        callee.refill(70, &mut callee_left);
        assert_eq!((callee, callee_left), (gas(70, 0, -70), 10));
        state.take_over(callee, &mut left);
        assert_eq!((state, left), (gas(0, 0, 0), 100));
    }
}
