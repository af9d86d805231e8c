//! Checks of a transaction that need neither an account nor the pool.

use crate::config::PoolConfig;
use crate::error::PoolError;
use crate::sidecar::{Sidecar, check_sidecar};
use crate::transaction::Origin;
use niwaki_primitives::{Address, Encodable2718, Transaction, TxEnvelope, U256};
use niwaki_rules::{BlockRules, GAS_PER_BLOB, GasAvailable, InvalidTransaction, check_transaction};

/// Most bytes of a transaction that is propagated.
const MAX_BYTES: usize = 128 << 10;
/// The same for a blob transaction, without its blobs.
const MAX_BLOB_TX_BYTES: usize = 1 << 20;
/// The lowest blob base fee (EIP-4844).
const MIN_BLOB_FEE: u128 = 1;

/// Checks `tx` against the rules of the next block, cheapest first. If `sender` is unknown, the cheapest one is
/// assumed. Cost: linear in the calldata, and one hash per blob.
///
/// # Errors
/// The variants of [`PoolError`] that need neither state nor pool.
pub(crate) fn check_stateless(
    tx: &TxEnvelope,
    sidecar: Option<&Sidecar>,
    sender: Option<Address>,
    rules: &BlockRules,
    gas_limit: u64,
) -> Result<(), PoolError> {
    let (got, limit) = (tx.encode_2718_len(), max_bytes(tx));
    if got > limit {
        return Err(PoolError::Oversized { got, limit });
    }
    // A transaction to its own sender has the least intrinsic gas (EIP-2780).
    let sender = sender.or_else(|| tx.to()).unwrap_or_default();
    check_gas(tx, sender, rules, gas_limit)?;
    let Some(hashes) = tx.blob_versioned_hashes() else {
        return Ok(());
    };
    let got = tx.max_fee_per_blob_gas().unwrap_or(0);
    if got < MIN_BLOB_FEE {
        let needed = MIN_BLOB_FEE;
        return Err(PoolError::BlobFeeTooLow { got, needed });
    }
    let sidecar = sidecar.ok_or(PoolError::MissingSidecar)?;
    check_sidecar(sidecar, hashes, rules.fork)
}

/// Checks `tx` of `sender` as an otherwise empty block would.
///
/// # Errors
/// As [`check_stateless`].
pub(crate) fn check_gas(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    gas_limit: u64,
) -> Result<(), PoolError> {
    let available = GasAvailable::both(gas_limit);
    let checked = check_transaction(tx, sender, rules, available, rules.max_blob_gas());
    checked.map(drop).map_err(blob_gas_as_count)
}

fn max_bytes(tx: &TxEnvelope) -> usize {
    match tx {
        TxEnvelope::Eip4844(_) => MAX_BLOB_TX_BYTES,
        _ => MAX_BYTES,
    }
}

/// Reports too much blob gas as too many blobs.
fn blob_gas_as_count(reason: InvalidTransaction) -> PoolError {
    let InvalidTransaction::BlobGasAllowanceExceeded { got, available } = reason else {
        return reason.into();
    };
    let blobs = |gas: u64| usize::try_from(gas / GAS_PER_BLOB).unwrap_or(usize::MAX);
    PoolError::TooManyBlobs {
        got: blobs(got),
        limit: blobs(available),
    }
}

/// Checks the operator's requirements on local transactions.
///
/// # Errors
/// [`PoolError::ReplayProtectionRequired`], [`PoolError::FeeCapExceeded`].
pub(crate) fn check_policy(
    tx: &TxEnvelope,
    origin: Origin,
    config: &PoolConfig,
) -> Result<(), PoolError> {
    if origin != Origin::Local {
        return Ok(());
    }
    if config.strict_replay_protection && tx.chain_id().is_none() {
        return Err(PoolError::ReplayProtectionRequired);
    }
    let fee = U256::from(tx.max_fee_per_gas()).saturating_mul(U256::from(tx.gas_limit()));
    let cap = config.tx_fee_cap;
    match !cap.is_zero() && fee > cap {
        true => Err(PoolError::FeeCapExceeded { fee, cap }),
        false => Ok(()),
    }
}

/// Checks that a transaction without priority pays the operator's minimum.
///
/// # Errors
/// [`PoolError::GasPriceTooLow`].
pub(crate) fn check_price(tx: &TxEnvelope, priority: bool, needed: u128) -> Result<(), PoolError> {
    let got = tx.max_fee_per_gas();
    if !priority && got < needed {
        return Err(PoolError::GasPriceTooLow { got, needed });
    }
    Ok(())
}
