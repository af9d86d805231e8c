//! Rewards of BFT chains: `blockReward` and `miningBeneficiary` of a genesis file, with their transitions. Validators
//! are not read here.

use super::GenesisError;
use crate::chain_spec::BftPayment;
use crate::json::Object;

/// The payments of `config.ibft2` and `config.qbft` and of their transitions, ascending by block; none
/// if the file has neither. With both, QBFT applies from its `startBlock` on (a migration).
pub(super) fn parse_bft_payments(config: &Object<'_>) -> Result<Vec<BftPayment>, GenesisError> {
    let ibft2 = protocol_payments(config, "ibft2")?;
    let qbft = protocol_payments(config, "qbft")?;
    if ibft2.is_empty() || qbft.is_empty() {
        return Ok([ibft2, qbft].concat());
    }
    let start = match config.object("qbft")? {
        Some(qbft) => qbft.u64("startBlock")?.unwrap_or(0),
        None => 0,
    };
    let mut payments: Vec<BftPayment> = ibft2;
    payments.retain(|payment| payment.from_block < start);
    let at_start = qbft
        .iter()
        .rev()
        .find(|payment| payment.from_block <= start);
    payments.extend(at_start.map(|payment| BftPayment {
        from_block: start,
        ..*payment
    }));
    payments.extend(qbft.iter().filter(|payment| payment.from_block > start));
    Ok(payments)
}

/// The payments of one protocol: those of its object from genesis on, then each transition applied to the one before.
fn protocol_payments(config: &Object<'_>, protocol: &str) -> Result<Vec<BftPayment>, GenesisError> {
    let Some(first) = config.object(protocol)? else {
        return Ok(Vec::new());
    };
    let mut payment = BftPayment::default();
    apply(&first, &mut payment)?;
    let mut payments = vec![payment];
    let Some(transitions) = config.object("transitions")? else {
        return Ok(payments);
    };
    let mut changes = Vec::new();
    for transition in transitions.objects(protocol)? {
        if let Some(block) = transition.u64("block")? {
            changes.push((block, transition));
        }
    }
    changes.sort_by_key(|(block, _)| *block);
    for (block, transition) in changes {
        payment.from_block = block;
        apply(&transition, &mut payment)?;
        payments.push(payment);
    }
    Ok(payments)
}

/// Changes `payment` by the keys that are present. An empty beneficiary removes an earlier one.
fn apply(object: &Object<'_>, payment: &mut BftPayment) -> Result<(), GenesisError> {
    if let Some(reward) = object.u256("blockReward")? {
        payment.reward = reward;
    }
    match object.text("miningBeneficiary") {
        Some(text) if text.trim().is_empty() => payment.beneficiary = None,
        Some(_) => payment.beneficiary = object.address("miningBeneficiary")?,
        None => {}
    }
    Ok(())
}
