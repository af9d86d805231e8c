//! State gas: the second dimension of the gas meter, which pays for growth of the state (EIP-8037).
//!
//! State gas is charged to the reservoir first; what the reservoir lacks is taken from `gas_left`, the ordinary gas:
//!
//! ```text
//!                     reservoir   from_gas_left   used    gas_left
//! start                      30               0      0         100
//! charge 20                  10               0     20         100
//! charge 50                   0              40     70          60
//! refill 45                   5               0     25         100
//! ```

/// The state gas of one frame.
///
/// While a frame runs, `reservoir` or `from_gas_left` is zero.
///
/// Spec: EIP-8037; execution-specs `amsterdam/vm/gas.py`, `GasMeter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateGas {
    /// Gas set aside for state growth; a callee gets all of it.
    pub reservoir: i64,
    /// State gas that was taken from `gas_left` (`state_gas_from_gas_left` in EIP-8037).
    pub from_gas_left: i64,
    /// State gas charged less state gas refilled.
    pub used: i64,
}

impl StateGas {
    /// A full reservoir, and nothing used.
    pub const fn with_reservoir(reservoir: i64) -> Self {
        Self {
            reservoir,
            from_gas_left: 0,
            used: 0,
        }
    }

    /// Charges `amount` to the reservoir, and what it lacks to `left`, the ordinary gas. False, and nothing charged, if
    /// both together have less.
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
        self.from_gas_left += rest;
        self.used += amount;
        true
    }

    /// Returns `amount`: first to `left`, as far as it was taken from there, then to the reservoir.
    pub const fn refill(&mut self, amount: i64, left: &mut i64) {
        let returned = match amount < self.from_gas_left {
            true => amount,
            false => self.from_gas_left,
        };
        *left += returned;
        self.from_gas_left -= returned;
        self.reservoir += amount - returned;
        self.used -= amount;
    }

    /// Incorporates a callee that succeeded: its reservoir replaces this one, which it was given. What was taken from
    /// ordinary gas is returned from the reservoir, as far as that suffices.
    pub const fn incorporate(&mut self, callee: Self, left: &mut i64) {
        self.reservoir = callee.reservoir;
        self.from_gas_left += callee.from_gas_left;
        self.used += callee.used;
        let returned = match self.reservoir < self.from_gas_left {
            true => self.reservoir,
            false => self.from_gas_left,
        };
        *left += returned;
        self.from_gas_left -= returned;
        self.reservoir -= returned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gas(reservoir: i64, from_gas_left: i64, used: i64) -> StateGas {
        StateGas {
            reservoir,
            from_gas_left,
            used,
        }
    }

    #[test]
    fn charge_of_50_takes_10_from_reservoir_and_40_from_gas_left() {
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
    fn refill_returns_to_gas_left_before_reservoir() {
        let (mut state, mut left) = (StateGas::with_reservoir(30), 100);
        assert!(state.charge(50, &mut left));
        state.refill(15, &mut left);
        assert_eq!((state, left), (gas(0, 5, 35), 95));
        state.refill(35, &mut left);
        assert_eq!((state, left), (StateGas::with_reservoir(30), 100));
    }

    #[test]
    fn reservoir_of_callee_returns_70_to_gas_left_of_caller() {
        let (mut state, mut left) = (StateGas::default(), 100);
        assert!(state.charge(70, &mut left));
        let (mut callee, mut callee_left) = (StateGas::with_reservoir(state.reservoir), 10);
        callee.refill(70, &mut callee_left);
        assert_eq!((callee, callee_left), (gas(70, 0, -70), 10));
        state.incorporate(callee, &mut left);
        assert_eq!((state, left), (gas(0, 0, 0), 100));
    }
}
