//! What GoQuorum's genesis files have beside geth's and Besu's keys: longer code, gas prices, and one list of `transitions` for all.
//!
//! What would change blocks in a way that this client does not support is refused by name.
//!
//! Source: GoQuorum 24.4.1, `params/config.go`, `consensus/istanbul/config.go`, `consensus/istanbul/backend/engine.go`.

use super::GenesisError;
use super::bft::{apply, apply_first, positive};
use crate::bft::{BftProtocol, BftRules, BftStart, ValidatorSet, ValidatorSource};
use crate::chain_spec::{ContractSizeLimit, Quorum};
use crate::json::Object;
use alloy_primitives::Address;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const PRIVATE: &str = "private transactions need a node of GoQuorum and its Tessera";

/// Keys of `config` that are not supported,
const REFUSED: [(&str, &str); 4] = [
    (
        "istanbul",
        "IBFT of GoQuorum; networks have left it for QBFT",
    ),
    ("ibft2", "GoQuorum knows no IBFT 2.0"),
    ("privacyEnhancementsBlock", PRIVATE),
    ("privacyPrecompileBlock", PRIVATE),
];

/// and those of a transition that must not be true.
const REFUSED_IF_TRUE: [(&str, &str); 3] = [
    ("privacyEnhancementsEnabled", PRIVATE),
    ("privacyPrecompileEnabled", PRIVATE),
    (
        "2FPlus1Enabled",
        "2F + 1 validators may seal two blocks of one number where there are not 3F + 1; two thirds of them seal",
    ),
];

/// KiB of code that a chain may allow.
const CODE_KIB: std::ops::RangeInclusive<u64> = 24..=128;

/// What `isQuorum` says; `None` on other chains.
pub(super) fn parse_quorum(config: &Object<'_>) -> Result<Option<Quorum>, GenesisError> {
    if config.bool("isQuorum")? != Some(true) {
        return Ok(None);
    }
    for (key, why) in REFUSED {
        if config.has(key) {
            return Err(unsupported(config, key, why));
        }
    }
    let mut gas_price_block = config.u64("enableGasPriceBlock")?;
    for transition in transitions(config)? {
        for (key, why) in REFUSED_IF_TRUE {
            if transition.object.bool(key)? == Some(true) {
                return Err(unsupported(&transition.object, key, why));
            }
        }
        match transition.object.bool("gasPriceEnabled")? {
            Some(true) => {
                let earlier = gas_price_block.unwrap_or(u64::MAX);
                gas_price_block = Some(earlier.min(transition.block));
            }
            Some(false) if gas_price_block.is_some_and(|first| first <= transition.block) => {
                let why = "gas prices that were enabled stay so";
                return Err(unsupported(&transition.object, "gasPriceEnabled", why));
            }
            _ => {}
        }
    }
    Ok(Some(Quorum { gas_price_block }))
}

/// The longest code from some blocks on, ascending: `maxCodeSizeConfig`, or `maxCodeSize`, then `contractsizelimit` of transitions.
pub(super) fn parse_code_limits(
    config: &Object<'_>,
) -> Result<Vec<ContractSizeLimit>, GenesisError> {
    let limit = |object: &Object<'_>, key: &str, from_block| match object.u64(key)? {
        None | Some(0) => Ok(None),
        Some(kib) if CODE_KIB.contains(&kib) => Ok(Some(ContractSizeLimit {
            from_block,
            bytes: kib.saturating_mul(1_024),
        })),
        Some(kib) => Err(GenesisError::Contradiction(format!(
            "{} = {kib} is not 24 to 128 (KiB)",
            object.path_of(key)
        ))),
    };
    let mut limits = Vec::new();
    for entry in config.objects("maxCodeSizeConfig")? {
        let Some(block) = entry.u64("block")? else {
            return Err(entry.contradiction("block is missing: from which one on does it hold"));
        };
        limits.extend(limit(&entry, "size", block)?);
    }
    let has_list = !limits.is_empty();
    if !has_list {
        let block = config.u64("maxCodeSizeChangeBlock")?.unwrap_or(0);
        limits.extend(limit(config, "maxCodeSize", block)?);
    }
    for transition in transitions(config)? {
        let own = limit(&transition.object, "contractSizeLimit", transition.block)?;
        if own.is_some() && has_list {
            let what = "contractSizeLimit can't be beside config.maxCodeSizeConfig";
            return Err(transition.object.contradiction(what));
        }
        limits.extend(own);
    }
    if !limits.is_sorted_by_key(|limit| limit.from_block) {
        return Err(config.contradiction("the blocks of maxCodeSizeConfig must ascend"));
    }
    Ok(limits)
}

/// The rules of `config.qbft` and of the transitions, by the block they begin at. A transition at a block says who the validators of the
/// next one are, and holds for the block itself in all else.
pub(super) fn parse_quorum_rules(config: &Object<'_>) -> Result<Vec<BftRules>, GenesisError> {
    let transitions = transitions(config)?;
    let Some(first) = config.object("qbft")? else {
        return match transitions.is_empty() {
            true => Ok(Vec::new()),
            false => Err(GenesisError::Missing {
                key: "config.qbft",
                why: "transitions change what it says",
            }),
        };
    };
    let mut rules = BftRules {
        period_s: 5,
        request_timeout_s: 10,
        is_quorum: true,
        ..BftRules::new(BftProtocol::Qbft)
    };
    apply_first(&first, &mut rules)?;
    apply(&first, &mut rules)?;
    rules.beneficiary = first_beneficiary(&first, &rules)?;
    if first.u64("ceil2Nby3Block")?.is_some_and(|block| block > 0) {
        let why = "2F + 1 validators may seal two blocks of one number; two thirds of them seal";
        return Err(unsupported(&first, "ceil2Nby3Block", why));
    }
    let mut choice = Choice::default();
    choice.apply(&first)?;
    rules.source = choice.source(&first)?;

    let mut changes: BTreeMap<u64, Change<'_>> = BTreeMap::new();
    changes.entry(0).or_default();
    list(&mut changes, 0, &first)?;
    for Transition { block, object } in &transitions {
        changes.entry(*block).or_default().of_block.push(object);
        let next = changes.entry(block.saturating_add(1)).or_default();
        next.of_validators.push(object);
        list(&mut changes, *block, object)?;
    }
    let mut all = Vec::new();
    for (block, change) in changes {
        rules.from = BftStart::Block(block);
        change.apply(&mut rules, &mut choice)?;
        all.push(rules.clone());
    }
    Ok(all)
}

/// A list of validators at a block counts for the next one, and again for the one after it, whatever was voted in between.
fn list(
    changes: &mut BTreeMap<u64, Change<'_>>,
    block: u64,
    object: &Object<'_>,
) -> Result<(), GenesisError> {
    let listed = object.addresses("validators")?.unwrap_or_default();
    for after in [1, 2] {
        if !listed.is_empty() {
            let change = changes.entry(block.saturating_add(after)).or_default();
            change.listed.clone_from(&listed);
        }
    }
    Ok(())
}

/// What changes at a block.
#[derive(Default)]
struct Change<'a> {
    /// Transitions at it,
    of_block: Vec<&'a Object<'a>>,
    /// and at the block before.
    of_validators: Vec<&'a Object<'a>>,
    /// Its validators, if they are listed.
    listed: Vec<Address>,
}

impl Change<'_> {
    fn apply(&self, rules: &mut BftRules, choice: &mut Choice) -> Result<(), GenesisError> {
        for transition in &self.of_block {
            apply_transition(transition, rules)?;
        }
        let before = rules.source;
        for transition in &self.of_validators {
            choice.apply(transition)?;
            rules.source = choice.source(transition)?;
        }
        let is_by_headers = rules.source == ValidatorSource::Headers;
        let is_listed = is_by_headers && !self.listed.is_empty();
        rules.validators = is_listed.then(|| ValidatorSet::new(self.listed.iter().copied()));
        if let Some(transition) = self.of_validators.last()
            && is_by_headers
            && before != ValidatorSource::Headers
            && rules.validators.is_none()
        {
            let what = "validatorSelectionMode = blockheader needs validators: the first ones";
            return Err(transition.contradiction(what));
        }
        Ok(())
    }
}

/// What a transition changes at its own block.
fn apply_transition(transition: &Object<'_>, rules: &mut BftRules) -> Result<(), GenesisError> {
    let beneficiary = rules.beneficiary;
    apply(transition, rules)?;
    let named = rules.beneficiary;
    rules.beneficiary = match transition.text("beneficiaryMode") {
        Some("validators" | "validator") => None,
        None | Some("fixed") if transition.has("miningBeneficiary") => named,
        None | Some("fixed" | "list" | "") => beneficiary,
        Some(_) => {
            let what = "beneficiaryMode must be fixed or validators";
            return Err(transition.contradiction(what));
        }
    };
    let contract = transition.address("validatorContractAddress")?;
    if contract.is_some_and(|at| !at.is_zero())
        && transition.text("validatorSelectionMode") != Some("contract")
    {
        let what = "validatorContractAddress needs validatorSelectionMode = contract beside it";
        return Err(transition.contradiction(what));
    }
    if let Some(seconds) = positive(transition, "requestTimeoutSeconds")? {
        rules.request_timeout_s = seconds;
    }
    if positive(transition, "epochLength")?.is_some_and(|blocks| blocks != rules.epoch_blocks) {
        let why = "the length of epochs is the same from block 0 on";
        return Err(unsupported(transition, "epochLength", why));
    }
    match transition.text("algorithm") {
        Some(name) if !name.is_empty() && !name.eq_ignore_ascii_case("qbft") => {
            let why = "IBFT of GoQuorum; networks have left it for QBFT";
            Err(unsupported(transition, "algorithm", why))
        }
        _ => Ok(()),
    }
}

/// Who gets the fees and rewards by `config.qbft`.
fn first_beneficiary(
    first: &Object<'_>,
    rules: &BftRules,
) -> Result<Option<Address>, GenesisError> {
    match first.text("beneficiaryMode") {
        None => Ok(rules.beneficiary),
        Some(mode) if mode.eq_ignore_ascii_case("validator") => Ok(None),
        Some(mode) if mode.eq_ignore_ascii_case("fixed") => {
            Ok(Some(rules.beneficiary.unwrap_or(Address::ZERO)))
        }
        Some(_) => Err(first.contradiction("beneficiaryMode must be fixed or validator")),
    }
}

/// Who names the validators: the last mode and the last contract that were written.
#[derive(Default)]
struct Choice {
    is_by_contract: bool,
    contract: Option<Address>,
}

impl Choice {
    fn apply(&mut self, object: &Object<'_>) -> Result<(), GenesisError> {
        match object.text("validatorSelectionMode") {
            None | Some("") => {}
            Some("contract") => self.is_by_contract = true,
            Some("blockheader") => self.is_by_contract = false,
            Some(_) => {
                let what = "validatorSelectionMode must be blockheader or contract";
                return Err(object.contradiction(what));
            }
        }
        let contract = object.address("validatorContractAddress")?;
        self.contract = contract.filter(|at| !at.is_zero()).or(self.contract);
        Ok(())
    }

    fn source(&self, object: &Object<'_>) -> Result<ValidatorSource, GenesisError> {
        match (self.is_by_contract, self.contract) {
            (false, _) => Ok(ValidatorSource::Headers),
            (true, Some(contract)) => Ok(ValidatorSource::Contract(contract)),
            (true, None) => {
                let what = "validatorSelectionMode = contract needs validatorContractAddress";
                Err(object.contradiction(what))
            }
        }
    }
}

struct Transition<'a> {
    block: u64,
    object: Object<'a>,
}

/// `config.transitions`, in the order of their blocks.
fn transitions<'a>(config: &Object<'a>) -> Result<Vec<Transition<'a>>, GenesisError> {
    let mut all: Vec<Transition<'a>> = Vec::new();
    for object in config.objects("transitions")? {
        let Some(block) = object.u64("block")? else {
            return Err(object.contradiction("block is missing: from which one on does it hold"));
        };
        if all.last().is_some_and(|before| before.block > block) {
            let what = format!("block = {block} is below that of the transition before it");
            return Err(object.contradiction(&what));
        }
        all.push(Transition { block, object });
    }
    Ok(all)
}

fn unsupported(object: &Object<'_>, key: &str, why: &'static str) -> GenesisError {
    GenesisError::Unsupported {
        key: object.path_of(key),
        why,
    }
}
