//! From when on workers help with a block.

use super::scheduler::{Scheduler, TRANSFER_GAS};

/// Gas between two looks at the clock.
pub const CLOCK_CHECK_GAS: u64 = 250_000;

/// A block is executed sequentially for at least this long, until its speed is known, ns.
pub const MIN_SEQUENTIAL_NS: u64 = 150_000;

/// Workers are woken if the rest of a block is expected to take at least this long, ns.
pub const MIN_REMAINING_NS: u64 = 1_200_000;

/// Decides when the rest of a block is worth waking workers.
pub(super) struct ParallelThreshold {
    clock: Option<fn() -> u64>,
    /// When the first transaction began, ns.
    began: u64,
    /// The gas that was used when the clock was read last.
    checked_gas: u64,
}

impl ParallelThreshold {
    /// The first transaction begins now. Without a clock, workers are woken at once.
    pub(super) fn new(clock: Option<fn() -> u64>) -> Self {
        Self {
            clock,
            began: clock.map_or(0, |now| now()),
            checked_gas: 0,
        }
    }

    /// Whether the rest of a block that has used `gas` is expected to take at least [`MIN_REMAINING_NS`]: by its speed
    /// so far, and the gas that its header says it uses beyond a transfer's for each transaction.
    pub(super) fn is_reached(&mut self, gas: u64, scheduler: &Scheduler<'_>) -> bool {
        let Some(now) = self.clock else {
            return true;
        };
        if gas.saturating_sub(self.checked_gas) < CLOCK_CHECK_GAS {
            return false;
        }
        self.checked_gas = gas;
        let took = now().saturating_sub(self.began);
        let remaining = scheduler.slots.remaining() as u64;
        let transfers = remaining.saturating_mul(TRANSFER_GAS);
        let rest = scheduler
            .block_gas_used()
            .saturating_sub(gas.saturating_add(transfers));
        let expected = u128::from(took).saturating_mul(rest.into());
        let least = u128::from(MIN_REMAINING_NS).saturating_mul(gas.into());
        took >= MIN_SEQUENTIAL_NS && expected >= least
    }
}
