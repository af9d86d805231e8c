//! When others are called for help with a block.

use super::run::{PLAIN_GAS, Run};

/// So much gas is used between two looks at the clock.
pub const LOOK_GAS: u64 = 250_000;

/// So long a block runs on one thread before it is known whether it is worth others, nanoseconds.
pub const ALONE: u64 = 150_000;

/// What is left of a block must be expected to take so long, nanoseconds.
pub const LEAST_REST: u64 = 1_200_000;

/// When others are called for help.
pub(super) struct Call {
    clock: Option<fn() -> u64>,
    /// When the first transaction was begun.
    began: u64,
    /// The gas that was used when the clock was read last.
    gas_looked_at: u64,
}

impl Call {
    /// The first transaction begins now.
    pub(super) fn new(clock: Option<fn() -> u64>) -> Self {
        Self {
            clock,
            began: clock.map_or(0, |now| now()),
            gas_looked_at: 0,
        }
    }

    /// Whether what is left of a block that has used so much gas must be expected to take long enough,
    /// by the gas that it says it uses beyond that of its transactions' own.
    pub(super) fn is_due(&mut self, gas: u64, run: &Run<'_>) -> bool {
        let Some(now) = self.clock else {
            return true;
        };
        if gas.saturating_sub(self.gas_looked_at) < LOOK_GAS {
            return false;
        }
        self.gas_looked_at = gas;
        let took = now().saturating_sub(self.began);
        let left = run.places.left() as u64;
        let gas_used = run.gas_used();
        let rest = gas_used.saturating_sub(gas.saturating_add(left.saturating_mul(PLAIN_GAS)));
        let expected = u128::from(took).saturating_mul(rest.into());
        let least = u128::from(LEAST_REST).saturating_mul(gas.into());
        took >= ALONE && expected >= least
    }
}
