//! A transaction against its block, as far as no account is needed.

use crate::block_rules::BlockRules;
use crate::chain_spec::GAS_PER_BLOB;
use crate::invalid::InvalidTransaction;
use alloy_primitives::{B256, U256, uint};
use niwaki_primitives::{Fork, Transaction, TxEnvelope, Typed2718};

/// Most gas of one transaction from Osaka on (EIP-7825).
pub const TX_MAX_GAS_LIMIT: u64 = 1 << 24;

const TX_BASE_COST: u64 = 21_000;
const TX_CREATE_COST: u64 = 32_000;
const TX_DATA_ZERO: u64 = 4;
const TX_DATA_NON_ZERO_FRONTIER: u64 = 68;
const TX_DATA_NON_ZERO_ISTANBUL: u64 = 16;
const TX_ACCESS_LIST_ADDRESS: u64 = 2_400;
const TX_ACCESS_LIST_STORAGE_KEY: u64 = 1_900;
const INIT_CODE_WORD_COST: u64 = 2;
const PER_EMPTY_ACCOUNT_COST: u64 = 25_000;
const FLOOR_CALLDATA_TOKEN_COST: u64 = 10;
const MAX_CODE_BYTES: u64 = 24_576;
const MAX_BLOBS_PER_TX: usize = 6;
const VERSIONED_HASH_VERSION_KZG: u8 = 1;

const SECP256K1_N: U256 =
    uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);
pub(crate) const SECP256K1_HALF_N: U256 =
    uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

/// Gas that a transaction pays before its first instruction, and the least it pays in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntrinsicGas {
    /// Charged before execution.
    pub intrinsic: u64,
    /// Least gas used after refunds (EIP-7623); zero before Prague.
    pub floor: u64,
}

/// The intrinsic gas of `tx` under `fork`.
///
/// Spec: execution-specs `osaka/transactions.py`, `calculate_intrinsic_cost`; EIP-2, 2028, 2930,
/// 3860, 7623, 7702. Cost: linear in the calldata.
pub fn intrinsic_gas(tx: &TxEnvelope, fork: Fork) -> IntrinsicGas {
    let data = tx.input();
    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
    let zeros = data.iter().filter(|byte| **byte == 0).count();
    let zeros = u64::try_from(zeros).unwrap_or(u64::MAX);
    let others = length.saturating_sub(zeros);
    let per_other = if fork >= Fork::Istanbul {
        TX_DATA_NON_ZERO_ISTANBUL
    } else {
        TX_DATA_NON_ZERO_FRONTIER
    };
    let mut gas = TX_BASE_COST
        .saturating_add(zeros.saturating_mul(TX_DATA_ZERO))
        .saturating_add(others.saturating_mul(per_other));

    if tx.is_create() {
        if fork >= Fork::Homestead {
            gas = gas.saturating_add(TX_CREATE_COST);
        }
        if fork >= Fork::Shanghai {
            gas = gas.saturating_add(length.div_ceil(32).saturating_mul(INIT_CODE_WORD_COST));
        }
    }

    if let Some(list) = tx.access_list() {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let keys = count(list.storage_keys_count());
        gas = gas
            .saturating_add(count(list.len()).saturating_mul(TX_ACCESS_LIST_ADDRESS))
            .saturating_add(keys.saturating_mul(TX_ACCESS_LIST_STORAGE_KEY));
    }

    if let Some(authorizations) = tx.authorization_list() {
        let count = u64::try_from(authorizations.len()).unwrap_or(u64::MAX);
        gas = gas.saturating_add(count.saturating_mul(PER_EMPTY_ACCOUNT_COST));
    }

    let floor = if fork >= Fork::Prague {
        let tokens = zeros.saturating_add(others.saturating_mul(4));
        TX_BASE_COST.saturating_add(tokens.saturating_mul(FLOOR_CALLDATA_TOKEN_COST))
    } else {
        0
    };

    IntrinsicGas {
        intrinsic: gas,
        floor,
    }
}

/// Blob gas of `tx`: zero unless it is a blob transaction.
pub fn blob_gas_of(tx: &TxEnvelope) -> u64 {
    let blobs = tx.blob_versioned_hashes().map_or(0, <[B256]>::len);
    u64::try_from(blobs)
        .unwrap_or(u64::MAX)
        .saturating_mul(GAS_PER_BLOB)
}

/// What one gas of `tx` costs its sender in a block of this base fee, wei. `None` before London.
/// Only meaningful for a transaction that [`check_transaction`] has passed.
///
/// Spec: EIP-1559.
pub fn effective_gas_price(tx: &TxEnvelope, base_fee: Option<u64>) -> u128 {
    let Some(priority) = tx.max_priority_fee_per_gas() else {
        return tx.max_fee_per_gas();
    };
    let base_fee = u128::from(base_fee.unwrap_or(0));
    let room = tx.max_fee_per_gas().saturating_sub(base_fee);
    base_fee.saturating_add(priority.min(room))
}

/// The most that `tx` can take from its sender, wei: gas, value and blobs at their maximum price.
/// `None` if that is 2^256 or more, which no account holds.
///
/// Spec: execution-specs `osaka/fork.py`, `check_transaction` (`max_gas_fee + tx.value`).
pub fn upfront_cost(tx: &TxEnvelope) -> Option<U256> {
    // Both products are below 2^192.
    let gas = U256::from(tx.gas_limit()).checked_mul(U256::from(tx.max_fee_per_gas()))?;
    let blob_fee = tx.max_fee_per_blob_gas().unwrap_or(0);
    let blobs = U256::from(blob_gas_of(tx)).checked_mul(U256::from(blob_fee))?;
    gas.checked_add(blobs)?.checked_add(tx.value())
}

/// Most bytes of init code of a creation, from Shanghai on.
pub fn max_init_code_bytes(rules: &BlockRules) -> usize {
    let code = rules.contract_size_limit.unwrap_or(MAX_CODE_BYTES);
    usize::try_from(code.saturating_mul(2)).unwrap_or(usize::MAX)
}

/// Checks `tx` as far as that needs no account, in the spec's order, and gives its intrinsic gas.
///
/// `gas_available` and `blob_gas_available` are what the transactions before it have left of the
/// block's limits. Whoever executes `tx` then compares nonce, balance and code of the sender
/// ([`InvalidTransaction::NonceTooLow`] and the variants after it).
///
/// # Errors
/// Any [`InvalidTransaction`] but those on the sender's account.
///
/// Spec: execution-specs `osaka/transactions.py`, `validate_transaction`, then `osaka/fork.py`,
/// `check_transaction`.
pub fn check_transaction(
    tx: &TxEnvelope,
    rules: &BlockRules,
    gas_available: u64,
    blob_gas_available: u64,
) -> Result<IntrinsicGas, InvalidTransaction> {
    check_type(tx, rules.fork)?;
    let gas = check_gas(tx, rules)?;

    if tx.gas_limit() > gas_available {
        return Err(InvalidTransaction::GasAllowanceExceeded {
            got: tx.gas_limit(),
            available: gas_available,
        });
    }
    let blob_gas = blob_gas_of(tx);
    if blob_gas > blob_gas_available {
        return Err(InvalidTransaction::BlobGasAllowanceExceeded {
            got: blob_gas,
            available: blob_gas_available,
        });
    }

    check_signature(tx, rules)?;
    check_fees(tx, rules)?;
    check_blobs(tx, rules)?;
    check_authorizations(tx)?;
    Ok(gas)
}

/// Checks a transaction that nobody has signed, as far as a simulation asks for it: prices, blobs,
/// authorizations, what `pays` says of the sender's funds, and gas. Gives its intrinsic gas.
///
/// If `is_free_allowed`, one without any price need not reach the base fee, and one without a price
/// of blob gas not that of blobs.
///
/// # Errors
/// Any [`InvalidTransaction`] but those on signature, nonce, code and the block's limits.
pub fn check_unsigned(
    tx: &TxEnvelope,
    rules: &BlockRules,
    is_free_allowed: bool,
    pays: impl FnOnce() -> Result<(), InvalidTransaction>,
) -> Result<IntrinsicGas, InvalidTransaction> {
    check_type(tx, rules.fork)?;
    let tip = tx.max_priority_fee_per_gas().unwrap_or(0);
    if !is_free_allowed || tx.max_fee_per_gas() > 0 || tip > 0 {
        check_fees(tx, rules)?;
    }
    let free_blobs = BlockRules {
        blob_base_fee: 0,
        ..*rules
    };
    check_blobs(
        tx,
        match tx.max_fee_per_blob_gas() {
            Some(0) if is_free_allowed => &free_blobs,
            _ => rules,
        },
    )?;
    check_authorizations(tx)?;
    pays()?;

    let gas = check_intrinsic_gas(tx, rules)?;
    check_init_code(tx, rules)?;
    Ok(gas)
}

fn check_init_code(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let (got, max) = (tx.input().len(), max_init_code_bytes(rules));
    if rules.fork >= Fork::Shanghai && tx.is_create() && got > max {
        return Err(InvalidTransaction::InitCodeTooLarge { got, max });
    }
    Ok(())
}

fn check_type(tx: &TxEnvelope, fork: Fork) -> Result<(), InvalidTransaction> {
    let since = match tx.ty() {
        0 => Fork::Frontier,
        1 => Fork::Berlin,
        2 => Fork::London,
        3 => Fork::Cancun,
        _ => Fork::Prague,
    };
    if fork < since {
        return Err(InvalidTransaction::TypeNotSupported {
            tx_type: tx.ty(),
            fork,
        });
    }
    Ok(())
}

/// The gas that is spent before any code runs, and the floor of EIP-7623, within the limit.
fn check_intrinsic_gas(
    tx: &TxEnvelope,
    rules: &BlockRules,
) -> Result<IntrinsicGas, InvalidTransaction> {
    let gas = intrinsic_gas(tx, rules.fork);
    let limit = tx.gas_limit();
    if gas.intrinsic > limit {
        return Err(InvalidTransaction::IntrinsicGasTooLow {
            got: limit,
            needed: gas.intrinsic,
        });
    }
    if gas.floor > limit {
        return Err(InvalidTransaction::GasBelowFloor {
            got: limit,
            floor: gas.floor,
        });
    }
    Ok(gas)
}

/// Spec: execution-specs `osaka/transactions.py`, `validate_transaction`.
fn check_gas(tx: &TxEnvelope, rules: &BlockRules) -> Result<IntrinsicGas, InvalidTransaction> {
    let gas = check_intrinsic_gas(tx, rules)?;

    if tx.nonce() == u64::MAX {
        return Err(InvalidTransaction::NonceIsMax);
    }

    check_init_code(tx, rules)?;

    let limit = tx.gas_limit();
    if rules.fork >= Fork::Osaka && limit > TX_MAX_GAS_LIMIT {
        return Err(InvalidTransaction::GasLimitAboveCap {
            got: limit,
            max: TX_MAX_GAS_LIMIT,
        });
    }
    Ok(gas)
}

/// Spec: execution-specs `osaka/transactions.py`, `recover_sender`; EIP-2 and EIP-155.
fn check_signature(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let (r, s) = (tx.signature().r(), tx.signature().s());
    let out_of_range = |value| Err(InvalidTransaction::SignatureRange { value });
    if r.is_zero() || r >= SECP256K1_N {
        return out_of_range("r");
    }
    let s_too_high = if rules.fork >= Fork::Homestead {
        s > SECP256K1_HALF_N
    } else {
        s >= SECP256K1_N
    };
    if s.is_zero() || s_too_high {
        return out_of_range("s");
    }

    match tx.chain_id() {
        // Before EIP-155, a v that names a chain is simply not 27 or 28.
        Some(_) if tx.is_legacy() && rules.fork < Fork::SpuriousDragon => out_of_range("v"),
        Some(got) if got != rules.chain_id => Err(InvalidTransaction::ChainId {
            got,
            expected: rules.chain_id,
        }),
        _ => Ok(()),
    }
}

fn check_fees(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let max_fee = tx.max_fee_per_gas();
    if let Some(priority) = tx.max_priority_fee_per_gas()
        && max_fee < priority
    {
        return Err(InvalidTransaction::PriorityAboveMaxFee { priority, max_fee });
    }
    if let Some(base_fee) = rules.base_fee
        && max_fee < u128::from(base_fee)
    {
        return Err(InvalidTransaction::MaxFeeBelowBaseFee {
            got: max_fee,
            base_fee,
        });
    }
    Ok(())
}

/// Spec: EIP-4844; EIP-7594 for the limit per transaction.
fn check_blobs(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let Some(hashes) = tx.blob_versioned_hashes() else {
        return Ok(());
    };
    if hashes.is_empty() {
        return Err(InvalidTransaction::ZeroBlobs);
    }
    if rules.fork >= Fork::Osaka && hashes.len() > MAX_BLOBS_PER_TX {
        return Err(InvalidTransaction::BlobCountExceeded {
            got: hashes.len(),
            max: MAX_BLOBS_PER_TX,
        });
    }
    if let Some(got) = hashes.iter().find(|h| h[0] != VERSIONED_HASH_VERSION_KZG) {
        return Err(InvalidTransaction::BlobVersionedHash { got: *got });
    }
    let got = tx.max_fee_per_blob_gas().unwrap_or(0);
    if got < rules.blob_base_fee {
        return Err(InvalidTransaction::MaxFeeBelowBlobBaseFee {
            got,
            blob_base_fee: rules.blob_base_fee,
        });
    }
    if tx.is_create() {
        return Err(InvalidTransaction::BlobCreate);
    }
    Ok(())
}

/// Spec: EIP-7702.
fn check_authorizations(tx: &TxEnvelope) -> Result<(), InvalidTransaction> {
    let Some(authorizations) = tx.authorization_list() else {
        return Ok(());
    };
    if tx.is_create() {
        return Err(InvalidTransaction::SetCodeCreate);
    }
    if authorizations.is_empty() {
        return Err(InvalidTransaction::EmptyAuthorizationList);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
