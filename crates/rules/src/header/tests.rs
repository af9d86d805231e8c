//! Each header check on both sides of its limit.

use super::*;
use crate::chain_spec::{Activation, DaoFork, GAS_PER_BLOB};
use alloy_primitives::{B64, Bytes};

/// A parent and a child that follow every rule of `fork`.
fn pair(spec: &ChainSpec, fork: Fork) -> (Header, Header) {
    let since = |f: Fork| fork >= f;
    let common = Header {
        gas_limit: 1_024_000,
        gas_used: 512_000,
        difficulty: if since(Fork::Paris) {
            U256::ZERO
        } else {
            U256::from(2048 * 1000)
        },
        base_fee_per_gas: since(Fork::London).then_some(1000),
        withdrawals_root: since(Fork::Shanghai).then_some(B256::ZERO),
        blob_gas_used: since(Fork::Cancun).then_some(0),
        excess_blob_gas: since(Fork::Cancun).then_some(0),
        parent_beacon_block_root: since(Fork::Cancun).then_some(B256::ZERO),
        requests_hash: since(Fork::Prague).then_some(B256::ZERO),
        ..Header::default()
    };
    let parent = Header {
        number: 9,
        timestamp: 1000,
        ..common.clone()
    };
    let mut child = Header {
        number: 10,
        timestamp: 1012,
        parent_hash: parent.hash_slow(),
        ..common
    };
    if !since(Fork::Paris) {
        child.difficulty = block_difficulty(fork, 10, 1012, &parent);
    }
    assert_eq!(verdict(spec, &child, &parent), Ok(()), "{fork}");
    (parent, child)
}

fn verdict(spec: &ChainSpec, child: &Header, parent: &Header) -> Result<(), &'static str> {
    let total_difficulty = match spec.terminal_total_difficulty {
        Some(ttd) if parent.difficulty.is_zero() => Some(ttd),
        _ => Some(parent.difficulty),
    };
    let parent = Parent {
        header: parent,
        hash: parent.hash_slow(),
        total_difficulty,
    };
    check_header(spec, child, &parent).map_err(|error| error.spec_name())
}

/// The result for a valid child after `change`.
fn after(fork: Fork, change: impl FnOnce(&mut Header)) -> Result<(), &'static str> {
    let spec = ChainSpec::single(1, fork);
    let (parent, mut child) = pair(&spec, fork);
    change(&mut child);
    verdict(&spec, &child, &parent)
}

const SOME: [Fork; 5] = [
    Fork::Frontier,
    Fork::Byzantium,
    Fork::London,
    Fork::Paris,
    Fork::Osaka,
];

#[test]
fn number_and_parent_hash_must_follow_the_parent() {
    for fork in SOME {
        let number = after(fork, |h| h.number = 11);
        assert_eq!(number, Err("INVALID_BLOCK_NUMBER"), "{fork}");
        let hash = after(fork, |h| h.parent_hash = B256::ZERO);
        assert_eq!(hash, Err("UNKNOWN_PARENT"), "{fork}");
    }
}

#[test]
fn the_timestamp_must_be_after_the_parents() {
    for fork in SOME {
        let refused = after(fork, |h| h.timestamp = 1000);
        assert_eq!(refused, Err("INVALID_BLOCK_TIMESTAMP_OLDER_THAN_PARENT"));
    }
    assert_eq!(after(Fork::Paris, |h| h.timestamp = 1001), Ok(()));
}

#[test]
fn the_gas_limit_moves_by_less_than_a_1024th() {
    for fork in SOME {
        assert_eq!(after(fork, |h| h.gas_limit = 1_024_999), Ok(()));
        assert_eq!(
            after(fork, |h| h.gas_limit = 1_025_000),
            Err("INVALID_GASLIMIT")
        );
        assert_eq!(after(fork, |h| h.gas_limit = 1_023_001), Ok(()));
        assert_eq!(
            after(fork, |h| h.gas_limit = 1_023_000),
            Err("INVALID_GASLIMIT")
        );
        assert_eq!(
            after(fork, |h| h.gas_limit = 1 << 63),
            Err("GASLIMIT_TOO_BIG")
        );
    }
}

#[test]
fn the_gas_limit_is_at_least_5000() {
    let spec = ChainSpec::single(1, Fork::Frontier);
    let (mut parent, mut child) = pair(&spec, Fork::Frontier);
    (parent.gas_limit, child.gas_limit, child.gas_used) = (5003, 5000, 0);
    child.parent_hash = parent.hash_slow();
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
    child.gas_limit = 4999;
    assert_eq!(verdict(&spec, &child, &parent), Err("INVALID_GASLIMIT"));
}

#[test]
fn gas_used_stays_within_the_limit() {
    for fork in SOME {
        assert_eq!(after(fork, |h| h.gas_used = h.gas_limit), Ok(()));
        let refused = after(fork, |h| h.gas_used = h.gas_limit + 1);
        assert_eq!(refused, Err("INVALID_GAS_USED_ABOVE_LIMIT"));
    }
}

#[test]
fn extra_data_has_at_most_32_bytes() {
    for fork in SOME {
        assert_eq!(after(fork, |h| h.extra_data = vec![0; 32].into()), Ok(()));
        let refused = after(fork, |h| h.extra_data = vec![0; 33].into());
        assert_eq!(refused, Err("EXTRA_DATA_TOO_BIG"));
    }
}

#[test]
fn the_difficulty_is_the_formulas_until_paris_and_zero_from_then_on() {
    for fork in [Fork::Frontier, Fork::Byzantium, Fork::London] {
        let refused = after(fork, |h| h.difficulty += U256::ONE);
        assert_eq!(refused, Err("INVALID_DIFFICULTY"));
    }
    let refused = after(Fork::Paris, |h| h.difficulty = U256::ONE);
    assert_eq!(refused, Err("IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS"));
}

#[test]
fn nonce_and_ommers_are_empty_from_paris_on() {
    let nonce = after(Fork::Paris, |h| h.nonce = B64::from(1u64));
    assert_eq!(nonce, Err("INCORRECT_BLOCK_FORMAT"));
    let ommers = after(Fork::Paris, |h| h.ommers_hash = B256::ZERO);
    assert_eq!(ommers, Err("IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS"));
    assert_eq!(after(Fork::London, |h| h.nonce = B64::from(1u64)), Ok(()));
}

#[test]
fn the_base_fee_is_what_eip_1559_computes() {
    for fork in [Fork::London, Fork::Paris, Fork::Prague] {
        let refused = after(fork, |h| h.base_fee_per_gas = Some(1001));
        assert_eq!(refused, Err("INVALID_BASEFEE_PER_GAS"));
    }
}

#[test]
fn the_first_london_block_doubles_the_gas_limit_and_starts_at_one_gwei() {
    let mut spec = ChainSpec::single(1, Fork::Berlin);
    spec.set(Fork::London, Activation::Block(10));
    let (parent, mut child) = {
        let berlin = ChainSpec::single(1, Fork::Berlin);
        pair(&berlin, Fork::Berlin)
    };
    child.difficulty = block_difficulty(Fork::London, 10, 1012, &parent);
    child.base_fee_per_gas = Some(1_000_000_000);
    child.gas_limit = 2_048_000;
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
    child.gas_limit = 1_024_000;
    assert_eq!(verdict(&spec, &child, &parent), Err("INVALID_GASLIMIT"));
    child.gas_limit = 2_048_000;
    child.base_fee_per_gas = Some(999_999_999);
    assert_eq!(
        verdict(&spec, &child, &parent),
        Err("INVALID_BASEFEE_PER_GAS")
    );
}

#[test]
fn a_chain_of_zero_base_fee_refuses_any_other() {
    let mut spec = ChainSpec::single(1, Fork::London);
    let (mut parent, mut child) = pair(&spec, Fork::London);
    spec.zero_base_fee = true;
    assert_eq!(
        verdict(&spec, &child, &parent),
        Err("INVALID_BASEFEE_PER_GAS")
    );
    parent.base_fee_per_gas = Some(0);
    parent.gas_used = parent.gas_limit;
    child.base_fee_per_gas = Some(0);
    child.parent_hash = parent.hash_slow();
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
}

#[test]
fn excess_blob_gas_is_derived_from_the_parent() {
    let refused = after(Fork::Cancun, |h| h.excess_blob_gas = Some(GAS_PER_BLOB));
    assert_eq!(refused, Err("INCORRECT_EXCESS_BLOB_GAS"));
    let spec = ChainSpec::single(1, Fork::Cancun);
    let (mut parent, mut child) = pair(&spec, Fork::Cancun);
    parent.blob_gas_used = Some(4 * GAS_PER_BLOB);
    child.parent_hash = parent.hash_slow();
    child.excess_blob_gas = Some(GAS_PER_BLOB);
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
}

type Change = fn(&mut Header);

#[test]
fn header_fields_are_present_from_their_fork_on() {
    let cases: [(Fork, Change, Change); 6] = [
        (
            Fork::London,
            |h| h.base_fee_per_gas = None,
            |h| h.base_fee_per_gas = Some(1),
        ),
        (
            Fork::Shanghai,
            |h| h.withdrawals_root = None,
            |h| h.withdrawals_root = Some(B256::ZERO),
        ),
        (
            Fork::Cancun,
            |h| h.blob_gas_used = None,
            |h| h.blob_gas_used = Some(0),
        ),
        (
            Fork::Cancun,
            |h| h.excess_blob_gas = None,
            |h| h.excess_blob_gas = Some(0),
        ),
        (
            Fork::Cancun,
            |h| h.parent_beacon_block_root = None,
            |h| h.parent_beacon_block_root = Some(B256::ZERO),
        ),
        (
            Fork::Prague,
            |h| h.requests_hash = None,
            |h| h.requests_hash = Some(B256::ZERO),
        ),
    ];
    for (fork, take, give) in cases {
        let before = Fork::ALL[fork as usize - 1];
        assert_eq!(after(fork, take), Err("INCORRECT_BLOCK_FORMAT"), "{fork}");
        assert_eq!(
            after(before, give),
            Err("INCORRECT_BLOCK_FORMAT"),
            "{before}"
        );
    }
}

#[test]
fn dao_extra_data_marks_ten_blocks_on_the_chain_that_forked() {
    let mut spec = ChainSpec::single(1, Fork::Homestead);
    let (parent, child) = pair(&spec, Fork::Homestead);
    let mut marked = child.clone();
    marked.extra_data = Bytes::from_static(b"dao-hard-fork");
    for (block, support, plain, with) in [
        (11, true, Ok(()), Ok(())),
        (10, true, Err("EXTRA_DATA_INVALID_DAO"), Ok(())),
        (1, true, Err("EXTRA_DATA_INVALID_DAO"), Ok(())),
        (0, true, Ok(()), Ok(())),
        (10, false, Ok(()), Err("EXTRA_DATA_INVALID_DAO")),
    ] {
        spec.dao_fork = Some(DaoFork { block, support });
        assert_eq!(verdict(&spec, &child, &parent), plain, "{block}");
        assert_eq!(verdict(&spec, &marked, &parent), with, "{block}");
    }
}

#[test]
fn the_merge_comes_when_the_parent_has_reached_the_terminal_difficulty() {
    let mut spec = ChainSpec::single(1, Fork::London);
    let (work_parent, work) = pair(&spec, Fork::London);
    spec.terminal_total_difficulty = Some(U256::from(100));
    spec.set(Fork::Paris, Activation::TotalDifficulty);
    let mut stake = work.clone();
    stake.difficulty = U256::ZERO;
    let check = |header: &Header, total: Option<u64>| {
        let parent = Parent {
            header: &work_parent,
            hash: work_parent.hash_slow(),
            total_difficulty: total.map(U256::from),
        };
        check_header(&spec, header, &parent).map_err(|e| e.spec_name())
    };
    assert_eq!(check(&work, Some(99)), Ok(()));
    assert_eq!(
        check(&stake, Some(99)),
        Err("IMPORT_IMPOSSIBLE_PARIS_WRONG_POS")
    );
    assert_eq!(check(&stake, Some(100)), Ok(()));
    assert_eq!(
        check(&work, Some(100)),
        Err("IMPORT_IMPOSSIBLE_DIFFICULTY_OVER_PARIS")
    );
    assert_eq!(check(&work, None), Ok(()));
    assert_eq!(check(&stake, None), Ok(()));
}

#[test]
fn clique_headers_carry_vanity_signers_and_seal() {
    let mut spec = ChainSpec::single(1, Fork::Berlin);
    let (parent, mut child) = pair(&spec, Fork::Berlin);
    spec.seal = SealKind::Clique {
        period_s: 1,
        epoch_blocks: 30_000,
    };
    child.difficulty = U256::from(2);
    child.extra_data = vec![0; 97 + 40].into();
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
    child.difficulty = U256::from(3);
    assert_eq!(verdict(&spec, &child, &parent), Err("INVALID_DIFFICULTY"));
    for bytes in [0, 96, 98] {
        child.extra_data = vec![0; bytes].into();
        assert_eq!(
            verdict(&spec, &child, &parent),
            Err("INCORRECT_BLOCK_FORMAT")
        );
    }
}

#[test]
fn a_fixed_difficulty_is_the_same_at_every_block() {
    let mut spec = ChainSpec::single(1, Fork::London);
    let (parent, mut child) = pair(&spec, Fork::London);
    spec.seal = SealKind::Ethash {
        fixed_difficulty: Some(100),
    };
    assert_eq!(verdict(&spec, &child, &parent), Err("INVALID_DIFFICULTY"));
    child.difficulty = U256::from(100);
    assert_eq!(verdict(&spec, &child, &parent), Ok(()));
}

#[test]
fn a_gas_limit_goes_towards_its_target_by_less_than_a_1024th() {
    assert_eq!(next_gas_limit(200_000_000, 60_000_000), 0x0be8_c711);
    assert_eq!(next_gas_limit(30_000_000, 60_000_000), 30_029_295);
    assert_eq!(next_gas_limit(30_000_000, 30_000_100), 30_000_100);
    assert_eq!(next_gas_limit(30_000_000, 30_000_000), 30_000_000);
    assert_eq!(next_gas_limit(5_000, 0), 5_000);
    assert_eq!(next_gas_limit(0, 7), 0);
}
