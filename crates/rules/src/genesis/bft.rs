//! The parameters of BFT chains: `config.qbft` and `config.ibft2` of a genesis file, with their transitions.

use super::GenesisError;
use crate::bft::{BftProtocol, BftRules, BftStart, ValidatorSet, ValidatorSource};
use crate::json::Object;

/// Numbers below are blocks in any case: 1 January 2023, before the first fork by time (as in Besu).
const EARLIEST_TIME: u64 = 1_672_531_200;

/// The rules of `config.ibft2` and `config.qbft` and of their transitions, in their order; none if the file has neither. With both,
/// QBFT applies from its `startBlock` on (a migration). `first_time` is the time of the first fork that has one.
pub(super) fn parse_bft_rules(
    config: &Object<'_>,
    first_time: Option<u64>,
) -> Result<Vec<BftRules>, GenesisError> {
    let ibft2 = protocol_rules(config, "ibft2", BftProtocol::Ibft2, first_time)?;
    let qbft = protocol_rules(config, "qbft", BftProtocol::Qbft, first_time)?;
    if ibft2.is_empty() || qbft.is_empty() {
        return Ok([ibft2, qbft].concat());
    }
    let start = match config.object("qbft")? {
        Some(qbft) => qbft.u64("startBlock")?.unwrap_or(0),
        None => 0,
    };
    let start_at = BftStart::Block(start);
    let mut all: Vec<BftRules> = ibft2;
    if let Some(BftStart::Time(time)) = all.last().map(|rules| rules.from) {
        return Err(GenesisError::Unsupported {
            key: format!("config.transitions.ibft2: block = {time}"),
            why: "it is a time; beside a migration to QBFT a transition of IBFT 2.0 needs the number of a block",
        });
    }
    all.retain(|rules| rules.from < start_at);
    let at_start = qbft.iter().rev().find(|rules| rules.from <= start_at);
    let at_start = at_start.map(|rules| BftRules {
        from: start_at,
        // They hold for the block of their transition alone.
        validators: rules.validators.clone().filter(|_| rules.from == start_at),
        ..rules.clone()
    });
    let later = qbft.iter().filter(|rules| rules.from > start_at);
    let migrated = at_start.into_iter().chain(later.cloned());
    all.extend(migrated.map(|rules| BftRules {
        epochs_from: start.saturating_sub(1),
        ..rules
    }));
    Ok(all)
}

/// The rules of one protocol: those of its object from genesis on, then each transition applied to the one before.
fn protocol_rules(
    config: &Object<'_>,
    key: &str,
    protocol: BftProtocol,
    first_time: Option<u64>,
) -> Result<Vec<BftRules>, GenesisError> {
    let Some(first) = config.object(key)? else {
        return Ok(Vec::new());
    };
    let mut rules = BftRules::new(protocol);
    apply_first(&first, &mut rules)?;
    apply(&first, &mut rules)?;
    if let Some(contract) = first.address("validatorContractAddress")? {
        rules.source = ValidatorSource::Contract(contract);
    }
    let mut all = vec![rules.clone()];
    let Some(transitions) = config.object("transitions")? else {
        return Ok(all);
    };
    let mut changes = Vec::new();
    for transition in transitions.objects(key)? {
        changes.push((start_of(&transition, first_time)?, transition));
    }
    changes.sort_by_key(|(start, _)| *start);
    for pair in changes.windows(2) {
        if let [(first, _), (second, transition)] = pair
            && first == second
        {
            return Err(transition.contradiction("another transition has this block"));
        }
    }
    for (start, transition) in changes {
        rules.from = start;
        rules.validators = None;
        apply(&transition, &mut rules)?;
        apply_validators(&transition, &mut rules)?;
        all.push(rules.clone());
    }
    Ok(all)
}

/// Where a transition begins. As in Besu its `block` is a time if it is not below the first fork by time.
fn start_of(transition: &Object<'_>, first_time: Option<u64>) -> Result<BftStart, GenesisError> {
    let Some(block) = positive(transition, "block")? else {
        return Err(transition.contradiction("block is missing: from which one on does it hold"));
    };
    match block >= EARLIEST_TIME && first_time.is_some_and(|time| block >= time) {
        true => Ok(BftStart::Time(block)),
        false => Ok(BftStart::Block(block)),
    }
}

/// Sets what transitions do not change.
pub(super) fn apply_first(object: &Object<'_>, rules: &mut BftRules) -> Result<(), GenesisError> {
    if object.u64("policy")?.is_some_and(|policy| policy > 0) {
        return Err(GenesisError::Unsupported {
            key: object.path_of("policy"),
            why: "proposers take turns (0); GoQuorum's other policies are not known here",
        });
    }
    if let Some(blocks) = positive(object, "epochLength")? {
        rules.epoch_blocks = blocks;
    }
    if let Some(seconds) = positive(object, "requestTimeoutSeconds")? {
        rules.request_timeout_s = seconds;
    }
    Ok(())
}

/// Changes `rules` by the keys that are present.
pub(super) fn apply(object: &Object<'_>, rules: &mut BftRules) -> Result<(), GenesisError> {
    if let Some(limit) = object.u64("perTxGasLimit")? {
        rules.tx_gas_limit = Some(limit);
    }
    check_whole(object, "blockPeriodSeconds")?;
    if let Some(seconds) = positive(object, "blockPeriodSeconds")? {
        rules.period_s = seconds;
    }
    if let Some(ms) = object.u64("xBlockPeriodMilliseconds")? {
        rules.period_ms = Some(ms).filter(|ms| *ms > 0);
    }
    let empty = object.first_u64("emptyBlockPeriodSeconds", "xEmptyBlockPeriodSeconds")?;
    if let Some(seconds) = empty {
        rules.empty_period_s = seconds;
    }
    if let Some(reward) = object.u256("blockReward")? {
        rules.reward = reward;
    }
    // An empty one removes an earlier one.
    match object.text("miningBeneficiary") {
        Some(text) if text.trim().is_empty() => rules.beneficiary = None,
        Some(_) => rules.beneficiary = object.address("miningBeneficiary")?,
        None => {}
    }
    Ok(())
}

/// Validators of a transition, and who names those after it: only the mode changes that.
fn apply_validators(object: &Object<'_>, rules: &mut BftRules) -> Result<(), GenesisError> {
    let validators = object.addresses("validators")?;
    if validators.as_ref().is_some_and(Vec::is_empty) {
        return Err(object.contradiction("validators must name one or more"));
    }
    if let (Some(_), BftStart::Time(time)) = (&validators, rules.from) {
        return Err(GenesisError::Unsupported {
            key: format!("{} at {time}", object.path_of("validators")),
            why: "block is a time, and a list of validators needs the number of a block",
        });
    }
    rules.validators = validators.map(ValidatorSet::new);
    let Some(mode) = object.text("validatorSelectionMode") else {
        return Ok(());
    };
    if rules.protocol == BftProtocol::Ibft2 {
        return Ok(());
    }
    let contract = object.address("validatorContractAddress")?;
    rules.source = if mode.eq_ignore_ascii_case("blockheader") {
        if rules.validators.is_none() {
            let what = "validatorSelectionMode = blockheader needs validators: the first ones";
            return Err(object.contradiction(what));
        }
        ValidatorSource::Headers
    } else if mode.eq_ignore_ascii_case("contract") {
        let what = "validatorSelectionMode = contract needs validatorContractAddress";
        ValidatorSource::Contract(contract.ok_or_else(|| object.contradiction(what))?)
    } else {
        let what = "validatorSelectionMode must be blockheader or contract";
        return Err(object.contradiction(what));
    };
    Ok(())
}

/// A period below a second has another key.
fn check_whole(object: &Object<'_>, key: &str) -> Result<(), GenesisError> {
    let text = object.text(key).unwrap_or_default();
    match text.parse::<f64>() {
        Ok(seconds) if seconds.fract() != 0.0 => Err(object.contradiction(&format!(
            "{key} = {text} is no whole number of seconds; write xBlockPeriodMilliseconds = {:.0} instead",
            seconds * 1e3
        ))),
        _ => Ok(()),
    }
}

/// A number that must not be zero.
pub(super) fn positive(object: &Object<'_>, key: &str) -> Result<Option<u64>, GenesisError> {
    match object.u64(key)? {
        Some(0) => Err(object.contradiction(&format!("{key} must be 1 or more"))),
        number => Ok(number),
    }
}
