//! Checks a transaction against its block, as far as no account is needed.

use crate::block_rules::BlockRules;
use crate::chain_spec::GAS_PER_BLOB;
use crate::invalid::InvalidTransaction;
use alloy_primitives::{Address, B256, U256, uint};
use niwaki_primitives::{Fork, Transaction, TxEnvelope, Typed2718};

/// Most gas of one transaction from Osaka on (EIP-7825). From Amsterdam on it bounds the
/// execution gas; the rest is state gas (EIP-8037).
pub const TX_MAX_GAS_LIMIT: u64 = 1 << 24;

/// Most gas of one transaction from Amsterdam on, including state gas (EIP-8037).
const TX_MAX_TOTAL_GAS_LIMIT: u64 = u32::MAX as u64;

const MAX_BLOBS_PER_TX: usize = 6;
const VERSIONED_HASH_VERSION_KZG: u8 = 1;

const SECP256K1_N: U256 =
    uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);
pub(crate) const SECP256K1_HALF_N: U256 =
    uint!(0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0_U256);

/// Blob gas of `tx`: zero unless it is a blob transaction.
pub fn blob_gas_of(tx: &TxEnvelope) -> u64 {
    let blobs = tx.blob_versioned_hashes().map_or(0, <[B256]>::len);
    u64::try_from(blobs)
        .unwrap_or(u64::MAX)
        .saturating_mul(GAS_PER_BLOB)
}

/// The price per gas that the sender of `tx` pays in a block with this base fee, wei. The base fee is `None` before
/// London. Only meaningful for a transaction that passed [`check_transaction`].
///
/// Spec: EIP-1559.
pub fn effective_gas_price(tx: &TxEnvelope, base_fee: Option<u64>) -> u128 {
    let Some(priority) = tx.max_priority_fee_per_gas() else {
        return tx.max_fee_per_gas();
    };
    let base_fee = u128::from(base_fee.unwrap_or(0));
    let max_priority = tx.max_fee_per_gas().saturating_sub(base_fee);
    base_fee.saturating_add(priority.min(max_priority))
}

/// The most that `tx` can cost its sender, wei: gas, value and blobs at their maximum price.
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

/// Most bytes of init code of a creation, from Shanghai on (EIP-3860, EIP-7954). A chain's
/// `contractSizeLimit` does not change it.
pub const fn max_init_code_bytes(fork: Fork) -> usize {
    match fork as u8 >= Fork::Amsterdam as u8 {
        true => 131_072,
        false => 49_152,
    }
}

/// What the earlier transactions of a block have left of its gas limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GasAvailable {
    /// Execution gas.
    pub execution: u64,
    /// State gas; the same as execution gas before Amsterdam (EIP-8037).
    pub state: u64,
}

impl GasAvailable {
    /// The same amount in both dimensions.
    pub const fn both(gas: u64) -> Self {
        Self {
            execution: gas,
            state: gas,
        }
    }

    /// The most that a transaction with this gas limit may use of a dimension, and what is available of it, if that
    /// is not enough.
    ///
    /// Spec: EIP-8037; execution-specs `amsterdam/fork.py`, `check_transaction`.
    fn exceeded_by(&self, limit: u64, fork: Fork) -> Option<(u64, u64)> {
        let execution = match fork >= Fork::Amsterdam {
            true => limit.min(TX_MAX_GAS_LIMIT),
            false => limit,
        };
        let dimensions = [(execution, self.execution), (limit, self.state)];
        dimensions
            .into_iter()
            .find(|(got, available)| got > available)
    }
}

/// Checks `tx` of `sender` as far as no account is needed, in the spec's order, and returns its intrinsic gas.
///
/// `available` and `blob_gas_available` are what the transactions before it have left of the block's
/// limits. The caller that executes `tx` then checks nonce, balance and code of the sender
/// ([`InvalidTransaction::NonceTooLow`] and the variants after it).
///
/// # Errors
/// Any [`InvalidTransaction`] but those on the sender's account.
///
/// Spec: execution-specs `osaka/transactions.py`, `validate_transaction`, then `osaka/fork.py`,
/// `check_transaction`; Amsterdam has another order.
pub fn check_transaction(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    available: GasAvailable,
    blob_gas_available: u64,
) -> Result<IntrinsicGas, InvalidTransaction> {
    check_type(tx, rules.fork)?;
    if rules.fork >= Fork::Amsterdam {
        return check_amsterdam(tx, sender, rules, available, blob_gas_available);
    }
    let gas = check_before_signature(tx, sender, rules, available, blob_gas_available)?;
    check_signature(tx, rules)?;
    check_fees(tx, rules)?;
    check_blobs(tx, rules)?;
    check_authorizations(tx)?;
    Ok(gas)
}

/// Why a transaction without a recoverable sender is invalid: the first error of [`check_transaction`] before it needs
/// the sender, or else that there is no sender.
pub fn reason_without_sender(
    tx: &TxEnvelope,
    rules: &BlockRules,
    available: GasAvailable,
    blob_gas_available: u64,
) -> InvalidTransaction {
    let check = || {
        check_type(tx, rules.fork)?;
        if rules.fork < Fork::Amsterdam {
            // Intrinsic gas does not depend on the sender yet.
            let sender = Address::ZERO;
            check_before_signature(tx, sender, rules, available, blob_gas_available)?;
        }
        check_signature(tx, rules)
    };
    check()
        .err()
        .unwrap_or(InvalidTransaction::SignatureRecovery)
}

/// The checks before Amsterdam that precede the recovery of the sender.
fn check_before_signature(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    available: GasAvailable,
    blob_gas_available: u64,
) -> Result<IntrinsicGas, InvalidTransaction> {
    let gas = check_intrinsic_gas(tx, sender, rules, TX_MAX_GAS_LIMIT)?;
    check_nonce(tx)?;
    check_init_code(tx, rules)?;
    check_gas_limit(tx, rules)?;
    check_gas_available(tx, rules, available, blob_gas_available)?;
    Ok(gas)
}

/// Spec: execution-specs `amsterdam/fork.py`, `check_transaction`, with `validate_transaction` of
/// `amsterdam/transactions.py`.
fn check_amsterdam(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    available: GasAvailable,
    blob_gas_available: u64,
) -> Result<IntrinsicGas, InvalidTransaction> {
    check_signature(tx, rules)?;
    check_nonce(tx)?;
    check_init_code(tx, rules)?;
    check_gas_limit(tx, rules)?;
    check_priority_fee(tx)?;
    check_blob_hashes(tx, rules)?;
    check_blob_target(tx)?;
    check_authorizations(tx)?;
    let gas = check_intrinsic_gas(tx, sender, rules, TX_MAX_GAS_LIMIT)?;
    check_gas_available(tx, rules, available, blob_gas_available)?;
    check_base_fee(tx, rules)?;
    check_blob_fee(tx, rules)?;
    Ok(gas)
}

fn check_gas_available(
    tx: &TxEnvelope,
    rules: &BlockRules,
    available: GasAvailable,
    blob_gas_available: u64,
) -> Result<(), InvalidTransaction> {
    if let Some((got, available)) = available.exceeded_by(tx.gas_limit(), rules.fork) {
        return Err(InvalidTransaction::GasAllowanceExceeded { got, available });
    }
    let (got, available) = (blob_gas_of(tx), blob_gas_available);
    match got > available {
        true => Err(InvalidTransaction::BlobGasAllowanceExceeded { got, available }),
        false => Ok(()),
    }
}

/// How a simulation deviates from the rules of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationLimits {
    /// Whether a transaction without a gas price need not reach the base fee, and one without a blob gas price need
    /// not reach the blob base fee.
    pub is_free_allowed: bool,
    /// The most intrinsic gas, from Amsterdam on.
    pub execution_cap: u64,
}

/// Checks an unsigned transaction of `sender` for a simulation: prices, blobs, authorizations, the sender's funds
/// (by `pays`) and gas. Returns its intrinsic gas.
///
/// # Errors
/// Any [`InvalidTransaction`] but those on signature, nonce, code and the block's limits.
pub fn check_unsigned(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    limits: SimulationLimits,
    pays: impl FnOnce() -> Result<(), InvalidTransaction>,
) -> Result<IntrinsicGas, InvalidTransaction> {
    check_type(tx, rules.fork)?;
    let tip = tx.max_priority_fee_per_gas().unwrap_or(0);
    if !limits.is_free_allowed || tx.max_fee_per_gas() > 0 || tip > 0 {
        check_fees(tx, rules)?;
    }
    let mut blob_rules = *rules;
    if limits.is_free_allowed && tx.max_fee_per_blob_gas() == Some(0) {
        blob_rules.blob_base_fee = 0;
    }
    check_blobs(tx, &blob_rules)?;
    check_authorizations(tx)?;
    pays()?;

    let gas = check_intrinsic_gas(tx, sender, rules, limits.execution_cap)?;
    check_init_code(tx, rules)?;
    Ok(gas)
}

/// The highest gas limit of a transaction (EIP-7825, EIP-8037).
pub(crate) const fn fork_gas_limit(fork: Fork) -> u64 {
    match fork as u8 {
        at if at >= Fork::Amsterdam as u8 => TX_MAX_TOTAL_GAS_LIMIT,
        at if at >= Fork::Osaka as u8 => TX_MAX_GAS_LIMIT,
        _ => u64::MAX,
    }
}

fn check_init_code(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let (got, max) = (tx.input().len(), max_init_code_bytes(rules.fork));
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
    let tx_type = tx.ty();
    match fork < since {
        true => Err(InvalidTransaction::TypeNotSupported { tx_type, fork }),
        false => Ok(()),
    }
}

/// The gas that is spent before any code runs, and the floor of EIP-7623, within the limit.
fn check_intrinsic_gas(
    tx: &TxEnvelope,
    sender: Address,
    rules: &BlockRules,
    execution_cap: u64,
) -> Result<IntrinsicGas, InvalidTransaction> {
    let gas = intrinsic_gas(tx, sender, rules.fork);
    let IntrinsicGas { intrinsic, floor } = gas;
    let got = tx.gas_limit();
    if intrinsic > got {
        let needed = intrinsic;
        return Err(InvalidTransaction::IntrinsicGasTooLow { got, needed });
    }
    if floor > got {
        return Err(InvalidTransaction::GasBelowFloor { got, floor });
    }
    let (needed, max) = (intrinsic.max(floor), execution_cap);
    if rules.fork >= Fork::Amsterdam && needed > max {
        return Err(InvalidTransaction::IntrinsicGasAboveCap { needed, max });
    }
    Ok(gas)
}

fn check_nonce(tx: &TxEnvelope) -> Result<(), InvalidTransaction> {
    match tx.nonce() {
        u64::MAX => Err(InvalidTransaction::NonceIsMax),
        _ => Ok(()),
    }
}

fn check_gas_limit(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let (got, max) = (tx.gas_limit(), rules.max_gas_limit);
    match got > max {
        true => Err(InvalidTransaction::GasLimitAboveCap { got, max }),
        false => Ok(()),
    }
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
    check_priority_fee(tx)?;
    check_base_fee(tx, rules)
}

fn check_priority_fee(tx: &TxEnvelope) -> Result<(), InvalidTransaction> {
    let max_fee = tx.max_fee_per_gas();
    if let Some(priority) = tx.max_priority_fee_per_gas()
        && max_fee < priority
    {
        return Err(InvalidTransaction::PriorityAboveMaxFee { priority, max_fee });
    }
    Ok(())
}

fn check_base_fee(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let got = tx.max_fee_per_gas();
    if got > 0 && !rules.has_gas_price {
        return Err(InvalidTransaction::GasPriceNotZero { got });
    }
    match rules.base_fee {
        Some(base_fee) if got < u128::from(base_fee) => {
            Err(InvalidTransaction::MaxFeeBelowBaseFee { got, base_fee })
        }
        _ => Ok(()),
    }
}

fn check_blobs(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    check_blob_hashes(tx, rules)?;
    check_blob_fee(tx, rules)?;
    check_blob_target(tx)
}

/// Spec: EIP-4844; EIP-7594 for the limit per transaction.
fn check_blob_hashes(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    let Some(hashes) = tx.blob_versioned_hashes() else {
        return Ok(());
    };
    if hashes.is_empty() {
        return Err(InvalidTransaction::ZeroBlobs);
    }
    let (got, max) = (hashes.len(), MAX_BLOBS_PER_TX);
    if rules.fork >= Fork::Osaka && got > max {
        return Err(InvalidTransaction::BlobCountExceeded { got, max });
    }
    if let Some(got) = hashes.iter().find(|h| h[0] != VERSIONED_HASH_VERSION_KZG) {
        return Err(InvalidTransaction::BlobVersionedHash { got: *got });
    }
    Ok(())
}

fn check_blob_fee(tx: &TxEnvelope, rules: &BlockRules) -> Result<(), InvalidTransaction> {
    if tx.blob_versioned_hashes().is_none() {
        return Ok(());
    }
    let got = tx.max_fee_per_blob_gas().unwrap_or(0);
    let blob_base_fee = rules.blob_base_fee;
    match got < blob_base_fee {
        true => Err(InvalidTransaction::MaxFeeBelowBlobBaseFee { got, blob_base_fee }),
        false => Ok(()),
    }
}

fn check_blob_target(tx: &TxEnvelope) -> Result<(), InvalidTransaction> {
    match tx.blob_versioned_hashes().is_some() && tx.is_create() {
        true => Err(InvalidTransaction::BlobCreate),
        false => Ok(()),
    }
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

mod intrinsic;
pub use intrinsic::{IntrinsicGas, intrinsic_gas};

#[cfg(test)]
mod tests;
