//! How much gas the blocks of this validator use, so that all agree on them within a round.
//!
//! What the validators can execute and send in the time of a round may be less than a block's gas limit lets in. A round that is given up for
//! that costs more than it could have brought, so blocks get smaller after one, and larger again while they are agreed on fast:
//!
//! | the last block | the next one |
//! |---|---|
//! | a larger one was given up at its height | half of that one |
//! | took more than half of a round's timeout | three quarters of it |
//! | was near the bound, took less than a quarter | the bound grows by an eighth |
//!
//! A block of little gas that was slow or given up was so for another reason, such as validators that were not there.

use super::metrics;
use niwaki_primitives::{B256, Header};
use std::time::{Duration, Instant};
use tracing::info;

/// No bound is lower, and no block of less gas is too large.
const MIN_GAS: u64 = 10_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BlockSize {
    /// The bound; `None` while it is the gas limit.
    max_gas: Option<u64>,
    /// What was proposed at this height, and when it was first seen.
    proposed: Vec<(B256, u64, Instant)>,
    /// Gas of the last block. A block that is not larger was not given up for its size.
    last_gas: u64,
}

impl BlockSize {
    /// A valid block was proposed, by this validator or another.
    pub(super) fn note_proposed(&mut self, hash: B256, gas_used: u64, now: Instant) {
        if self.proposed.iter().all(|(known, ..)| *known != hash) {
            self.proposed.push((hash, gas_used, now));
        }
    }

    /// Gas of a block for this round.
    pub(super) fn max_gas(&self, round: u32) -> Option<u64> {
        match round {
            0 => self.max_gas,
            _ => self.after_given_up(|_| true).or(self.max_gas),
        }
    }

    /// Validators have agreed on a block.
    pub(super) fn note_sealed(
        &mut self,
        hash: &B256,
        header: &Header,
        timeout: Duration,
        now: Instant,
    ) {
        let (gas_used, gas_limit) = (header.gas_used, header.gas_limit);
        let sealed = self.proposed.iter().find(|(known, ..)| known == hash);
        let took = sealed.map(|(.., at)| now.saturating_duration_since(*at));
        let max_gas = self.max_gas.unwrap_or(gas_limit);
        let next = match (self.after_given_up(|known| known != hash), took) {
            (Some(half), _) => half,
            (None, Some(took)) if took > timeout / 2 && gas_used > MIN_GAS => gas_used / 4 * 3,
            (None, Some(took)) if took < timeout / 4 && gas_used >= max_gas / 4 * 3 => {
                max_gas.saturating_add(max_gas / 8)
            }
            (None, _) => max_gas,
        };
        let next = next.max(MIN_GAS);
        self.set(Some(next).filter(|next| *next < gas_limit));
        self.last_gas = gas_used;
        self.proposed.clear();
    }

    fn set(&mut self, max_gas: Option<u64>) {
        match (self.max_gas, max_gas) {
            (None, Some(max_gas)) => {
                info!(
                    max_gas,
                    "Validators take long to agree on blocks: own ones are smaller for now"
                );
            }
            (Some(_), None) => info!("Own blocks may be as large as the gas limit again"),
            _ => {}
        }
        metrics::gas_bound(max_gas.unwrap_or(0));
        self.max_gas = max_gas;
    }

    /// Half of the smallest block that may have been given up for its size.
    fn after_given_up(&self, is_given_up: impl Fn(&B256) -> bool) -> Option<u64> {
        let given_up = self.proposed.iter().filter(|(hash, ..)| is_given_up(hash));
        let gas = given_up.map(|(_, gas, _)| *gas);
        let least = self.last_gas.max(MIN_GAS);
        let half = gas.filter(|gas| *gas > least).min()? / 2;
        Some(self.max_gas.map_or(half, |max| half.min(max)).max(MIN_GAS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that what follows is in thousandths of it.
    const UNIT: u64 = 1_000_000;
    const LIMIT: u64 = 1_000 * UNIT;
    const TIMEOUT: Duration = Duration::from_secs(4);

    fn header(gas_used: u64) -> Header {
        Header {
            gas_used,
            gas_limit: LIMIT,
            ..Header::default()
        }
    }

    fn hash(number: u8) -> B256 {
        B256::repeat_byte(number)
    }

    /// Proposed and sealed after so long.
    fn seal(size: &mut BlockSize, gas: u64, took: Duration) -> Option<u64> {
        let now = Instant::now();
        size.note_proposed(hash(1), gas, now);
        size.note_sealed(&hash(1), &header(gas), TIMEOUT, now + took);
        size.max_gas(0)
    }

    #[test]
    fn blocks_that_are_agreed_on_fast_have_no_bound() {
        let mut size = BlockSize::default();
        for gas in [0, 500 * UNIT, LIMIT] {
            assert_eq!(seal(&mut size, gas, TIMEOUT / 5), None);
            assert_eq!(seal(&mut size, gas, TIMEOUT / 3), None);
        }
    }

    #[test]
    fn a_slow_block_is_followed_by_smaller_ones_that_grow_while_they_are_full_and_fast() {
        let mut size = BlockSize::default();
        assert_eq!(seal(&mut size, 800 * UNIT, TIMEOUT), Some(600 * UNIT));
        assert_eq!(seal(&mut size, 600 * UNIT, TIMEOUT / 3), Some(600 * UNIT));
        assert_eq!(seal(&mut size, 100 * UNIT, TIMEOUT / 5), Some(600 * UNIT));
        assert_eq!(seal(&mut size, 600 * UNIT, TIMEOUT / 5), Some(675 * UNIT));
        for _ in 0..4 {
            let max = size.max_gas(0).unwrap();
            seal(&mut size, max, TIMEOUT / 5);
        }
        assert_eq!(size.max_gas(0), None, "the limit is reached");
    }

    #[test]
    fn a_block_that_was_given_up_halves_those_of_later_rounds_and_heights() {
        let mut size = BlockSize::default();
        let now = Instant::now();
        size.note_proposed(hash(2), 900 * UNIT, now);
        size.note_proposed(hash(2), 900 * UNIT, now);
        assert_eq!(size.max_gas(1), Some(450 * UNIT));
        size.note_proposed(hash(3), 450 * UNIT, now);
        assert_eq!(size.max_gas(2), Some(225 * UNIT));
        size.note_sealed(&hash(3), &header(450 * UNIT), TIMEOUT, now);
        assert_eq!(size.max_gas(0), Some(450 * UNIT));
    }

    #[test]
    fn small_blocks_and_silent_proposers_leave_the_bound() {
        let mut size = BlockSize::default();
        seal(&mut size, 500 * UNIT, TIMEOUT / 5);
        assert_eq!(size.max_gas(1), None, "nothing was proposed");
        let now = Instant::now();
        size.note_proposed(hash(2), 500 * UNIT, now);
        assert_eq!(size.max_gas(1), None, "no larger than the last one");
        size.note_sealed(&hash(9), &header(500 * UNIT), TIMEOUT, now);
        assert_eq!(size.max_gas(0), None);
    }

    #[test]
    fn a_slow_block_of_little_gas_bounds_nothing_and_no_bound_is_below_the_least() {
        let mut size = BlockSize::default();
        assert_eq!(seal(&mut size, 0, 9 * TIMEOUT), None);
        assert_eq!(seal(&mut size, MIN_GAS, 9 * TIMEOUT), None);
        assert_eq!(seal(&mut size, MIN_GAS + UNIT, 9 * TIMEOUT), Some(MIN_GAS));
        let now = Instant::now();
        size.note_proposed(hash(2), MIN_GAS + 2 * UNIT, now);
        assert_eq!(size.max_gas(3), Some(MIN_GAS));
        size.note_sealed(&hash(9), &header(0), TIMEOUT, now);
        let grown = seal(&mut size, MIN_GAS, TIMEOUT / 5);
        assert_eq!(grown, Some(MIN_GAS + MIN_GAS / 8));
    }
}
