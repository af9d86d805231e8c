//! Checks a header against its parent.

use crate::bft::{BftRules, check_bft_fields};
use crate::chain_spec::{ChainSpec, SealKind};
use crate::difficulty::block_difficulty;
use crate::fees::next_excess_blob_gas;
use crate::invalid::InvalidHeader;
use alloy_primitives::{B256, U256};
use niwaki_primitives::{EMPTY_OMMER_ROOT_HASH, Fork, Header};

const GAS_LIMIT_ADJUSTMENT_FACTOR: u64 = 1024;
const GAS_LIMIT_MINIMUM: u64 = 5000;
const GAS_LIMIT_MAXIMUM: u64 = i64::MAX as u64;
const ELASTICITY_MULTIPLIER: u64 = 2;
const MAX_EXTRA_DATA_BYTES: usize = 32;
const DAO_EXTRA_DATA: &[u8] = b"dao-hard-fork";
const DAO_EXTRA_DATA_BLOCKS: u64 = 10;
const CLIQUE_VANITY_AND_SEAL_BYTES: usize = 97;
const CLIQUE_SIGNER_BYTES: usize = 20;

/// The parent of a header to check.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Its header.
    pub header: &'a Header,
    /// Its hash.
    pub hash: B256,
    /// Total difficulty up to and including it. If it is unknown (`None`), a child of difficulty zero is taken as proof
    /// of stake.
    pub total_difficulty: Option<U256>,
}

/// Checks a header against its parent, in the spec's order. The seal of a proof-of-work or proof-of-authority header is
/// not verified: the operator supplies the chain (from a file, a consensus client, a checkpoint), not a miner.
///
/// # Errors
/// The first rule that the header breaks.
///
/// Spec: execution-specs, `validate_header` of each fork's `fork.py`.
pub fn check_header(
    spec: &ChainSpec,
    header: &Header,
    parent: &Parent<'_>,
) -> Result<(), InvalidHeader> {
    let has_terminal = spec.terminal_total_difficulty.is_some();
    let merged = match parent.total_difficulty {
        Some(total) => spec.is_terminal(total),
        None => spec.is_merged(header),
    };
    let fork = spec.fork_at(header.number, header.timestamp, merged);
    if let Some(rules) = spec.bft_rules_of(header) {
        return check_bft_header(spec, rules, header, parent, fork);
    }
    let proof_of_stake = fork >= Fork::Paris;

    check_presence(header, fork)?;
    if has_terminal && !proof_of_stake && header.difficulty.is_zero() {
        return Err(InvalidHeader::DifficultyZeroBeforeParis);
    }
    check_excess_blob_gas(spec, header, parent.header, fork)?;

    let (got, limit) = (header.gas_used, header.gas_limit);
    if got > limit {
        return Err(InvalidHeader::GasUsedAboveLimit { got, limit });
    }

    if fork >= Fork::London {
        check_gas_limit(header, parent.header)?;
        check_base_fee(spec, header, parent.header)?;
    }

    let (got, before) = (header.timestamp, parent.header.timestamp);
    if got <= before {
        let parent = before;
        return Err(InvalidHeader::Timestamp { got, parent });
    }

    let (got, expected) = (header.number, parent.header.number.wrapping_add(1));
    if got != expected || got == 0 {
        return Err(InvalidHeader::Number { got, expected });
    }

    if fork < Fork::London {
        check_gas_limit(header, parent.header)?;
    }

    if proof_of_stake {
        check_extra_data_length(header)?;
        check_proof_of_stake_fields(header)?;
    } else {
        check_sealed_fields(spec, header, parent.header, fork)?;
    }

    let (got, expected) = (header.parent_hash, parent.hash);
    if got != expected {
        return Err(InvalidHeader::ParentHash { got, expected });
    }

    check_dao_extra_data(spec, header)
}

/// As [`check_header`], for a block that validators agreed on.
fn check_bft_header(
    spec: &ChainSpec,
    rules: &BftRules,
    header: &Header,
    parent: &Parent<'_>,
    fork: Fork,
) -> Result<(), InvalidHeader> {
    let (got, expected) = (header.parent_hash, parent.hash);
    if got != expected {
        return Err(InvalidHeader::ParentHash { got, expected });
    }
    let (got, expected) = (header.number, parent.header.number.wrapping_add(1));
    if got != expected || got == 0 {
        return Err(InvalidHeader::Number { got, expected });
    }
    check_bft_presence(header, fork)?;
    let (got, limit) = (header.gas_used, header.gas_limit);
    if got > limit {
        return Err(InvalidHeader::GasUsedAboveLimit { got, limit });
    }
    // Validators of GoQuorum choose any limit.
    if spec.quorum.is_none() {
        check_gas_limit(header, parent.header)?;
    }
    check_excess_blob_gas(spec, header, parent.header, fork)?;
    check_bft_fields(rules, header, parent.header)
}

/// Slot numbers are of proof of stake. Early chains of Shanghai have no withdrawals' root.
fn check_bft_presence(header: &Header, fork: Fork) -> Result<(), InvalidHeader> {
    for (field, since, is_present) in OPTIONAL_FIELDS {
        let is_known = fork >= since && field != "slot_number";
        match (is_known, is_present(header)) {
            (true, false) if field != "withdrawals_root" => {
                return Err(InvalidHeader::MissingField { field, fork });
            }
            (false, true) => return Err(InvalidHeader::UnexpectedField { field, fork }),
            _ => {}
        }
    }
    Ok(())
}

/// The optional fields of a header, each with the fork that introduced it.
#[rustfmt::skip]
const OPTIONAL_FIELDS: [OptionalField; 8] = [
    ("base_fee_per_gas", Fork::London, |header| header.base_fee_per_gas.is_some()),
    ("withdrawals_root", Fork::Shanghai, |header| header.withdrawals_root.is_some()),
    ("blob_gas_used", Fork::Cancun, |header| header.blob_gas_used.is_some()),
    ("excess_blob_gas", Fork::Cancun, |header| header.excess_blob_gas.is_some()),
    ("parent_beacon_block_root", Fork::Cancun, |header| header.parent_beacon_block_root.is_some()),
    ("requests_hash", Fork::Prague, |header| header.requests_hash.is_some()),
    ("block_access_list_hash", Fork::Amsterdam, |header| header.block_access_list_hash.is_some()),
    ("slot_number", Fork::Amsterdam, |header| header.slot_number.is_some()),
];

type OptionalField = (&'static str, Fork, fn(&Header) -> bool);

/// Each optional field must be present from its fork on, and not before.
fn check_presence(header: &Header, fork: Fork) -> Result<(), InvalidHeader> {
    for (field, since, is_present) in OPTIONAL_FIELDS {
        match (fork >= since, is_present(header)) {
            (true, false) => return Err(InvalidHeader::MissingField { field, fork }),
            (false, true) => return Err(InvalidHeader::UnexpectedField { field, fork }),
            _ => {}
        }
    }
    Ok(())
}

/// Spec: execution-specs `cancun/fork.py`, `validate_header`.
fn check_excess_blob_gas(
    spec: &ChainSpec,
    header: &Header,
    parent: &Header,
    fork: Fork,
) -> Result<(), InvalidHeader> {
    let (Some(got), Some(params)) = (
        header.excess_blob_gas,
        spec.blob_params_at(header.timestamp),
    ) else {
        return Ok(());
    };
    let expected = next_excess_blob_gas(parent, fork, &params);
    if got != expected {
        return Err(InvalidHeader::ExcessBlobGas { got, expected });
    }
    Ok(())
}

/// Spec: execution-specs `frontier/fork.py`, `check_gas_limit`. At the first London block the
/// parent's limit counts twice (EIP-1559).
fn check_gas_limit(header: &Header, parent: &Header) -> Result<(), InvalidHeader> {
    let got = header.gas_limit;
    if got > GAS_LIMIT_MAXIMUM {
        return Err(InvalidHeader::GasLimitTooBig { got });
    }
    let first_london = header.base_fee_per_gas.is_some() && parent.base_fee_per_gas.is_none();
    let parent = if first_london {
        parent.gas_limit.saturating_mul(ELASTICITY_MULTIPLIER)
    } else {
        parent.gas_limit
    };
    let bound = parent / GAS_LIMIT_ADJUSTMENT_FACTOR;
    if got.abs_diff(parent) >= bound || got < GAS_LIMIT_MINIMUM {
        return Err(InvalidHeader::GasLimit { got, parent, bound });
    }
    Ok(())
}

/// The gas limit of a child of a block with the limit `parent`, moved as far towards `target` as allowed.
///
/// Spec: execution-specs `frontier/fork.py`, `check_gas_limit`.
pub fn next_gas_limit(parent: u64, target: u64) -> u64 {
    let step = (parent / GAS_LIMIT_ADJUSTMENT_FACTOR).saturating_sub(1);
    let target = target.clamp(GAS_LIMIT_MINIMUM, GAS_LIMIT_MAXIMUM);
    target.clamp(parent.saturating_sub(step), parent.saturating_add(step))
}

/// Spec: EIP-1559.
pub(crate) fn check_base_fee(
    spec: &ChainSpec,
    header: &Header,
    parent: &Header,
) -> Result<(), InvalidHeader> {
    let expected = spec.next_base_fee(parent);
    match header.base_fee_per_gas {
        Some(got) if got != expected => Err(InvalidHeader::BaseFee { got, expected }),
        _ => Ok(()),
    }
}

fn check_extra_data_length(header: &Header) -> Result<(), InvalidHeader> {
    let (got, max) = (header.extra_data.len(), MAX_EXTRA_DATA_BYTES);
    match got > max {
        true => Err(InvalidHeader::ExtraDataTooBig { got, max }),
        false => Ok(()),
    }
}

/// Spec: EIP-3675, execution-specs `paris/fork.py`, `validate_header`.
fn check_proof_of_stake_fields(header: &Header) -> Result<(), InvalidHeader> {
    let got = header.difficulty;
    if !got.is_zero() {
        return Err(InvalidHeader::DifficultyNotZero { got });
    }
    let got = u64::from_be_bytes(header.nonce.0);
    if got != 0 {
        return Err(InvalidHeader::NonceNotZero { got });
    }
    let got = header.ommers_hash;
    if got != EMPTY_OMMER_ROOT_HASH {
        return Err(InvalidHeader::OmmersHashNotEmpty { got });
    }
    Ok(())
}

/// Extra data and difficulty of a sealed header.
fn check_sealed_fields(
    spec: &ChainSpec,
    header: &Header,
    parent: &Header,
    fork: Fork,
) -> Result<(), InvalidHeader> {
    let got = header.difficulty;
    let expected = match spec.seal {
        SealKind::Ethash { .. } | SealKind::None => {
            check_extra_data_length(header)?;
            let by_fork = || block_difficulty(fork, header.number, header.timestamp, parent);
            match spec.seal {
                SealKind::Ethash { fixed_difficulty } => fixed_difficulty.map(U256::from),
                _ => None,
            }
            .unwrap_or_else(by_fork)
        }
        SealKind::Clique { .. } => {
            let got = header.extra_data.len();
            let signers = got.checked_sub(CLIQUE_VANITY_AND_SEAL_BYTES);
            if !signers.is_some_and(|bytes| bytes.is_multiple_of(CLIQUE_SIGNER_BYTES)) {
                return Err(InvalidHeader::ExtraDataClique { got });
            }
            // 2 from the signer whose turn it is, 1 from another.
            match header.difficulty == U256::ONE {
                true => U256::ONE,
                false => U256::from(2),
            }
        }
        SealKind::Bft => U256::ONE,
    };
    match got == expected {
        true => Ok(()),
        false => Err(InvalidHeader::Difficulty { got, expected }),
    }
}

/// Spec: execution-specs `dao_fork/fork.py`, `validate_header`; EIP-779.
fn check_dao_extra_data(spec: &ChainSpec, header: &Header) -> Result<(), InvalidHeader> {
    let Some(dao) = spec.dao_fork else {
        return Ok(());
    };
    let blocks = dao.block..dao.block.saturating_add(DAO_EXTRA_DATA_BLOCKS);
    if !blocks.contains(&header.number) {
        return Ok(());
    }
    if (header.extra_data.as_ref() == DAO_EXTRA_DATA) != dao.support {
        return Err(InvalidHeader::ExtraDataDao {
            number: header.number,
            must: if dao.support { "" } else { "not " },
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
