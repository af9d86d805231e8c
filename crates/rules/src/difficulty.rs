//! The difficulty of a proof-of-work block.

use alloy_primitives::U256;
use niwaki_primitives::{EMPTY_OMMER_ROOT_HASH, Fork, Header};

const MINIMUM_DIFFICULTY: U256 = U256::from_limbs([131_072, 0, 0, 0]);
const BOMB_PERIOD_BLOCKS: u64 = 100_000;

/// Blocks by which each fork delayed the difficulty bomb.
const fn bomb_delay_blocks(fork: Fork) -> u64 {
    match fork {
        Fork::GrayGlacier => 11_400_000,
        Fork::ArrowGlacier => 10_700_000,
        Fork::London => 9_700_000,
        Fork::MuirGlacier | Fork::Berlin => 9_000_000,
        Fork::Constantinople | Fork::Petersburg | Fork::Istanbul => 5_000_000,
        Fork::Byzantium => 3_000_000,
        _ => 0,
    }
}

/// The difficulty of block `number` at `timestamp` (seconds) by the rules of `fork`, which must
/// be before Paris; for a later fork it is that of Gray Glacier. Saturates at 2^256 - 1.
///
/// Spec: execution-specs `frontier`, `homestead`, `byzantium` `/fork.py`,
/// `calculate_block_difficulty`; EIP-2, 100, 649, 1234, 2384, 3554, 4345, 5133 for the bomb.
pub fn block_difficulty(fork: Fork, number: u64, timestamp: u64, parent: &Header) -> U256 {
    let fork = fork.min(Fork::GrayGlacier);
    let unit = parent.difficulty.wrapping_shr(11);
    let elapsed = timestamp.saturating_sub(parent.timestamp);

    let moved = if fork < Fork::Homestead {
        if elapsed < 13 {
            parent.difficulty.saturating_add(unit)
        } else {
            parent.difficulty.saturating_sub(unit)
        }
    } else {
        let (start, slices) = match fork {
            f if f < Fork::Byzantium => (1u64, elapsed / 10),
            _ if parent.ommers_hash == EMPTY_OMMER_ROOT_HASH => (1, elapsed / 9),
            _ => (2, elapsed / 9),
        };
        if slices <= start {
            let up = U256::from(start.wrapping_sub(slices));
            parent.difficulty.saturating_add(unit.saturating_mul(up))
        } else {
            let down = U256::from(slices.wrapping_sub(start).min(99));
            parent.difficulty.saturating_sub(unit.saturating_mul(down))
        }
    };

    // The bomb is added before the floor is applied. Two old clients did it the other way round, which makes no
    // difference at the difficulties of real chains.
    let periods = number.saturating_sub(bomb_delay_blocks(fork)) / BOMB_PERIOD_BLOCKS;
    let bomb = match periods.checked_sub(2) {
        Some(exponent) if exponent < 256 => {
            U256::ONE.wrapping_shl(usize::try_from(exponent).expect("below 256"))
        }
        Some(_) => U256::MAX,
        None => U256::ZERO,
    };
    moved.saturating_add(bomb).max(MINIMUM_DIFFICULTY)
}

#[cfg(test)]
mod tests;
