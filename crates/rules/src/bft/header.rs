//! The rules for a BFT header: what it says after its parent, and who made and sealed it.
//!
//! They are those of Besu's networks, no stricter: a stricter node leaves the chain. So the base fee is not compared, and PREVRANDAO is
//! the constant of all these headers.

use super::{
    BftExtra, BftProtocol, BftRules, ValidatorSet, ValidatorSource, bft_seal_hash, recover_seal,
};
use crate::chain_spec::ChainSpec;
use crate::header::check_base_fee;
use crate::invalid::InvalidHeader;
use alloy_primitives::{B256, U256, b256};
use niwaki_primitives::{EMPTY_OMMER_ROOT_HASH, Header};

/// The mix hash of every block of a BFT chain.
pub const BFT_MIX_HASH: B256 =
    b256!("63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365");

/// Bytes of a proposer's choice in the extra data, by convention.
pub const VANITY_BYTES: usize = 32;

/// Checks the fields that only BFT chains have rules for. `parent` is the parent's header.
pub(crate) fn check_bft_fields(
    rules: &BftRules,
    header: &Header,
    parent: &Header,
) -> Result<(), InvalidHeader> {
    let got = header.mix_hash;
    if got != BFT_MIX_HASH {
        return Err(InvalidHeader::BftMixHash { got });
    }
    let (got, expected) = (header.difficulty, U256::ONE);
    if got != expected {
        return Err(InvalidHeader::Difficulty { got, expected });
    }
    extra_of(rules, header)?;
    let (got, before, period_s) = (
        header.timestamp,
        parent.timestamp,
        rules.block_period_ms().div_euclid(1_000),
    );
    // Below a second there is no rule: blocks have equal timestamps then.
    if period_s > 0 && got < before.saturating_add(period_s) {
        let parent = before;
        return Err(InvalidHeader::BftPeriod {
            got,
            parent,
            period_s,
        });
    }
    match rules.protocol {
        BftProtocol::Qbft => Ok(()),
        BftProtocol::Ibft2 => check_unused(header),
    }
}

/// Fields of proof of work.
fn check_unused(header: &Header) -> Result<(), InvalidHeader> {
    let got = u64::from_be_bytes(header.nonce.0);
    if got != 0 {
        return Err(InvalidHeader::NonceNotZero { got });
    }
    let got = header.ommers_hash;
    match got == EMPTY_OMMER_ROOT_HASH {
        true => Ok(()),
        false => Err(InvalidHeader::OmmersHashNotEmpty { got }),
    }
}

fn extra_of(rules: &BftRules, header: &Header) -> Result<BftExtra, InvalidHeader> {
    BftExtra::decode(rules.protocol, &header.extra_data)
        .map_err(|error| InvalidHeader::BftExtraData(error.to_string()))
}

/// Checks who made a header and who sealed it: `validators` are those after its parent. About 30 us for each seal.
///
/// # Errors
/// The first rule that the header breaks.
pub fn check_bft_validators(
    rules: &BftRules,
    header: &Header,
    validators: &ValidatorSet,
) -> Result<(), InvalidHeader> {
    let extra = check_maker(rules, header, validators)?;
    let hash = bft_seal_hash(rules.protocol, header, &extra);
    let mut sealers = Vec::new();
    for seal in &extra.seals {
        let sealer = recover_seal(&hash, seal).ok();
        match sealer.filter(|one| validators.contains(one) && !sealers.contains(one)) {
            Some(sealer) => sealers.push(sealer),
            None => return Err(InvalidHeader::BftSealer { got: sealer }),
        }
    }
    let (got, expected) = (sealers.len(), validators.quorum());
    match got >= expected {
        true => Ok(()),
        false => Err(InvalidHeader::BftSeals { got, expected }),
    }
}

/// Checks who made a header that validators are to agree on: it has no seals yet. Stricter than a chain is, which a validator may be:
/// it only keeps its vote back.
///
/// # Errors
/// The first rule that the header breaks.
pub fn check_bft_proposal(
    spec: &ChainSpec,
    rules: &BftRules,
    header: &Header,
    parent: &Header,
    validators: &ValidatorSet,
) -> Result<(), InvalidHeader> {
    let extra = check_maker(rules, header, validators)?;
    if header.base_fee_per_gas.is_some() && spec.fixed_base_fee.is_none() {
        check_base_fee(spec, header, parent)?;
    }
    let (got, before) = (header.timestamp, parent.timestamp);
    if got < before {
        return Err(InvalidHeader::Timestamp {
            got,
            parent: before,
        });
    }
    let bytes = extra.vanity.len();
    if bytes != VANITY_BYTES {
        return Err(InvalidHeader::BftExtraData(format!(
            "{bytes} bytes of vanity, {VANITY_BYTES} are usual"
        )));
    }
    check_unused(header)
}

/// The list of validators and the coinbase.
fn check_maker(
    rules: &BftRules,
    header: &Header,
    validators: &ValidatorSet,
) -> Result<BftExtra, InvalidHeader> {
    let extra = extra_of(rules, header)?;
    let is_listed = match rules.source {
        ValidatorSource::Headers => extra.validators == validators.as_slice(),
        // GoQuorum's validators vote there too: such votes count nowhere.
        ValidatorSource::Contract(_) => {
            extra.validators.is_empty() && (rules.is_quorum || extra.vote.is_none())
        }
    };
    if !is_listed {
        let (got, expected) = (extra.validators.len(), validators.as_slice().len());
        return Err(InvalidHeader::BftValidators { got, expected });
    }
    let got = header.beneficiary;
    if !validators.contains(&got) {
        return Err(InvalidHeader::BftProposer { got });
    }
    Ok(extra)
}
