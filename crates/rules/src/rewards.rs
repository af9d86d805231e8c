//! Rewards of proof-of-work blocks. [`ChainSpec::base_reward`](crate::ChainSpec::base_reward) has the base reward of a
//! given chain.

use alloy_primitives::U256;
use niwaki_primitives::Fork;

/// The rewards of one block, wei.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReward {
    /// To the coinbase, including its share for ommers.
    pub coinbase: U256,
    /// The base reward, from which [`ommer_reward`] computes that of ommers.
    pub base: U256,
}

impl BlockReward {
    /// The rewards of a block with `ommers` ommers whose base reward is `base`.
    pub fn of(base: U256, ommers: usize) -> Self {
        let share = base.wrapping_shr(5).saturating_mul(U256::from(ommers));
        Self {
            coinbase: base.saturating_add(share),
            base,
        }
    }
}

/// The base reward of a block of `fork`, wei; `None` from Paris on.
///
/// Spec: execution-specs `frontier/fork.py`, `pay_rewards`; EIP-649 and EIP-1234.
pub fn base_reward(fork: Fork) -> Option<U256> {
    let ether: u64 = match fork {
        f if f >= Fork::Paris => return None,
        f if f >= Fork::Constantinople => 2,
        f if f >= Fork::Byzantium => 3,
        _ => 5,
    };
    Some(U256::from(ether.wrapping_mul(1_000_000_000_000_000_000)))
}

/// The reward of an ommer's coinbase if block `number` includes the ommer with `ommer_number`,
/// wei; zero beyond eight generations.
///
/// Spec: execution-specs `frontier/fork.py`, `pay_rewards`.
pub fn ommer_reward(base: U256, number: u64, ommer_number: u64) -> U256 {
    let age = number.saturating_sub(ommer_number);
    let eighths = 8u64.saturating_sub(age);
    U256::from(eighths).saturating_mul(base).wrapping_shr(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ether(thousandths: u64) -> U256 {
        U256::from(thousandths) * U256::from(1_000_000_000_000_000u64)
    }

    #[test]
    fn the_reward_falls_from_five_to_three_to_two_and_ends_with_paris() {
        assert_eq!(base_reward(Fork::SpuriousDragon), Some(ether(5000)));
        assert_eq!(base_reward(Fork::Byzantium), Some(ether(3000)));
        assert_eq!(base_reward(Fork::Constantinople), Some(ether(2000)));
        assert_eq!(base_reward(Fork::GrayGlacier), Some(ether(2000)));
        assert_eq!(base_reward(Fork::Paris), None);
    }

    #[test]
    fn the_coinbase_gets_a_32nd_more_per_ommer() {
        let two = BlockReward::of(ether(5000), 2);
        assert_eq!(two.coinbase, ether(5000) + ether(5000) / U256::from(16));
    }

    #[test]
    fn an_ommer_gets_an_eighth_less_per_generation() {
        assert_eq!(ommer_reward(ether(8000), 10, 9), ether(7000));
        assert_eq!(ommer_reward(ether(8000), 10, 4), ether(2000));
        assert_eq!(ommer_reward(ether(8000), 10, 1), U256::ZERO);
    }
}
