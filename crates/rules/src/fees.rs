//! Base fee and blob base fee.

use crate::chain_spec::{BlobParams, GAS_PER_BLOB};
use alloy_primitives::U256;
use niwaki_primitives::{Fork, Header};

/// Base fee of the first London block, wei (EIP-1559).
pub const INITIAL_BASE_FEE: u64 = 1_000_000_000;

const ELASTICITY_MULTIPLIER: u64 = 2;
const BASE_FEE_MAX_CHANGE_DENOMINATOR: u128 = 8;
const MIN_BLOB_BASE_FEE: u64 = 1;
/// Gas that a blob is deemed to cost to carry (EIP-7918).
const BLOB_BASE_COST: u64 = 1 << 13;

/// The base fee that a child of `parent` must have, wei; [`INITIAL_BASE_FEE`] if the parent has
/// none. Saturates at `u64::MAX`, which no chain can reach.
///
/// Spec: EIP-1559, execution-specs `london/fork.py`, `calculate_base_fee_per_gas`.
pub fn next_base_fee(parent: &Header) -> u64 {
    let Some(base_fee) = parent.base_fee_per_gas else {
        return INITIAL_BASE_FEE;
    };
    let target = parent.gas_limit / ELASTICITY_MULTIPLIER;
    let delta_of = |gas: u64| {
        u128::from(base_fee)
            .saturating_mul(u128::from(gas))
            .checked_div(u128::from(target))
            .unwrap_or(0)
            / BASE_FEE_MAX_CHANGE_DENOMINATOR
    };
    if parent.gas_used > target {
        let delta = delta_of(parent.gas_used.wrapping_sub(target)).max(1);
        base_fee.saturating_add(u64::try_from(delta).unwrap_or(u64::MAX))
    } else {
        // The target is at least the gas used, so the delta is at most an eighth of the fee.
        let delta = delta_of(target.wrapping_sub(parent.gas_used));
        base_fee.saturating_sub(u64::try_from(delta).unwrap_or(u64::MAX))
    }
}

/// `factor * e^(numerator / denominator)` by the Taylor series of EIP-4844, rounded down as the
/// series rounds; `u128::MAX` if the result does not fit. A denominator of zero counts as one.
///
/// Spec: EIP-4844, `fake_exponential`.
pub fn fake_exponential(factor: u64, numerator: u64, denominator: u64) -> u128 {
    let numerator = U256::from(numerator);
    let denominator = U256::from(denominator.max(1));
    let ceiling = U256::from(u128::MAX).saturating_mul(denominator);
    let mut output = U256::ZERO;
    let mut term = U256::from(factor).saturating_mul(denominator);
    let mut i = 1u64;
    while !term.is_zero() {
        output = output.saturating_add(term);
        if output > ceiling {
            return u128::MAX;
        }
        // The term is at most the output, so below 2^192, and the numerator is below 2^64.
        term = term
            .wrapping_mul(numerator)
            .wrapping_div(denominator.wrapping_mul(U256::from(i)));
        i = i.saturating_add(1);
    }
    u128::try_from(output.wrapping_div(denominator)).unwrap_or(u128::MAX)
}

/// Blob base fee in wei at `excess_blob_gas`; `u128::MAX` if it does not fit.
///
/// Spec: EIP-4844, `get_base_fee_per_blob_gas`; EIP-7840 for the parameters.
pub fn blob_base_fee(excess_blob_gas: u64, params: &BlobParams) -> u128 {
    fake_exponential(MIN_BLOB_BASE_FEE, excess_blob_gas, params.update_fraction)
}

/// The excess blob gas that a child of `parent` must have. `fork` and `params` are the child's.
///
/// Spec: EIP-4844 and EIP-7918, execution-specs `osaka/vm/gas.py`, `calculate_excess_blob_gas`.
pub fn next_excess_blob_gas(parent: &Header, fork: Fork, params: &BlobParams) -> u64 {
    // A parent before Cancun counts as one without blobs.
    let excess = parent.excess_blob_gas.unwrap_or(0);
    let used = parent.blob_gas_used.unwrap_or(0);
    let sum = excess.saturating_add(used);
    if sum < params.target_gas() {
        return 0;
    }

    let base_fee = parent.excess_blob_gas.and(parent.base_fee_per_gas);
    let base_fee = base_fee.unwrap_or(0);
    let execution_cost = U256::from(BLOB_BASE_COST).wrapping_mul(U256::from(base_fee));
    let blob_price =
        U256::from(GAS_PER_BLOB).saturating_mul(U256::from(blob_base_fee(excess, params)));
    if fork >= Fork::Osaka && execution_cost > blob_price {
        let above_target = params.max.saturating_sub(params.target);
        let scaled = u128::from(used)
            .saturating_mul(u128::from(above_target))
            .checked_div(u128::from(params.max))
            .unwrap_or(0);
        return excess.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX));
    }

    sum.wrapping_sub(params.target_gas())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parent(gas_limit: u64, gas_used: u64, base_fee: u64) -> Header {
        Header {
            gas_limit,
            gas_used,
            base_fee_per_gas: Some(base_fee),
            ..Header::default()
        }
    }

    #[test]
    fn base_fee_stays_at_the_target_and_moves_an_eighth_at_the_ends() {
        assert_eq!(next_base_fee(&parent(30_000_000, 15_000_000, 800)), 800);
        assert_eq!(next_base_fee(&parent(30_000_000, 30_000_000, 800)), 900);
        assert_eq!(next_base_fee(&parent(30_000_000, 0, 800)), 700);
    }

    #[test]
    fn base_fee_rises_by_at_least_one_wei_and_may_stay_when_it_would_fall() {
        assert_eq!(next_base_fee(&parent(30_000_000, 15_000_001, 7)), 8);
        assert_eq!(next_base_fee(&parent(30_000_000, 14_999_999, 7)), 7);
        assert_eq!(next_base_fee(&parent(30_000_000, 15_000_001, 0)), 1);
    }

    #[test]
    fn base_fee_survives_a_gas_limit_of_zero_and_the_greatest_fee() {
        assert_eq!(next_base_fee(&parent(0, 0, 5)), 5);
        assert_eq!(next_base_fee(&parent(2, 2, u64::MAX)), u64::MAX);
    }

    #[test]
    fn base_fee_after_a_parent_without_one_is_one_gwei() {
        assert_eq!(next_base_fee(&Header::default()), INITIAL_BASE_FEE);
    }

    #[test]
    fn fake_exponential_gives_the_values_of_the_eip() {
        // factor, numerator, denominator, result
        for (f, n, d, want) in [
            (1, 0, 1, 1),
            (38493, 0, 1000, 38493),
            (0, 1234, 2345, 0),
            (1, 2, 1, 6),
            (1, 4, 2, 6),
            (1, 3, 1, 16),
            (1, 6, 2, 18),
            (1, 4, 1, 49),
            (1, 8, 2, 50),
            (10, 8, 2, 542),
            (11, 8, 2, 596),
            (1, 5, 1, 136),
            (1, 5, 2, 11),
            (2, 5, 2, 23),
            (1, 50_000_000, 2_225_652, 5_709_098_764),
        ] {
            assert_eq!(fake_exponential(f, n, d), want, "{f} {n} {d}");
        }
    }

    #[test]
    fn fake_exponential_saturates_instead_of_overflowing() {
        assert_eq!(fake_exponential(1, u64::MAX, 1), u128::MAX);
        assert_eq!(fake_exponential(1, u64::MAX, 3_338_477), u128::MAX);
        assert_eq!(fake_exponential(1, 89, 1), u128::MAX);
        assert!(fake_exponential(1, 88, 1) < u128::MAX);
    }

    fn blob_parent(excess: u64, used: u64, base_fee: u64) -> Header {
        Header {
            excess_blob_gas: Some(excess),
            blob_gas_used: Some(used),
            base_fee_per_gas: Some(base_fee),
            ..Header::default()
        }
    }

    #[test]
    fn excess_blob_gas_is_what_exceeds_the_target() {
        let params = BlobParams::CANCUN;
        let next = |e, u| next_excess_blob_gas(&blob_parent(e, u, 1), Fork::Cancun, &params);
        assert_eq!(next(0, 3 * GAS_PER_BLOB - 1), 0);
        assert_eq!(next(0, 3 * GAS_PER_BLOB), 0);
        assert_eq!(next(0, 4 * GAS_PER_BLOB), GAS_PER_BLOB);
        assert_eq!(next(5 * GAS_PER_BLOB, 0), 2 * GAS_PER_BLOB);
    }

    #[test]
    fn excess_blob_gas_after_a_parent_without_blobs_is_zero() {
        let parent = parent(30_000_000, 1, u64::MAX);
        assert_eq!(
            next_excess_blob_gas(&parent, Fork::Osaka, &BlobParams::PRAGUE),
            0
        );
    }

    #[test]
    fn excess_blob_gas_is_scaled_from_osaka_on_while_execution_costs_more() {
        let params = BlobParams::PRAGUE;
        let used = 9 * GAS_PER_BLOB;
        // A blob base fee of 1 costs 2^17 wei per blob, and 2^13 gas cost that at a fee of 16.
        let at = |fee, fork| next_excess_blob_gas(&blob_parent(0, used, fee), fork, &params);
        assert_eq!(at(16, Fork::Osaka), 3 * GAS_PER_BLOB);
        assert_eq!(at(17, Fork::Osaka), used / 3);
        assert_eq!(at(17, Fork::Prague), 3 * GAS_PER_BLOB);
        let below = blob_parent(0, 0, u64::MAX);
        assert_eq!(next_excess_blob_gas(&below, Fork::Osaka, &params), 0);
    }

    proptest! {
        #[test]
        fn no_header_makes_the_fees_panic(
            limit: u64, used: u64, fee: u64, excess: u64, blob: u64,
            target: u64, max: u64, fraction: u64,
        ) {
            let header = Header {
                gas_limit: limit,
                gas_used: used,
                ..blob_parent(excess, blob, fee)
            };
            let params = BlobParams::new(target, max, fraction);
            next_base_fee(&header);
            next_excess_blob_gas(&header, Fork::Osaka, &params);
        }

        #[test]
        fn blob_base_fee_never_falls_as_the_excess_grows(a: u64, b: u64) {
            let (low, high) = (a.min(b), a.max(b));
            let fee = |excess| blob_base_fee(excess, &BlobParams::PRAGUE);
            prop_assert!(fee(low) <= fee(high));
        }
    }
}
