//! Why the pool refuses a transaction, in the words that wallets and libraries match on.
//!
//! Where geth has a message it is geth's; Besu's names are in [`PoolError::name`].

use niwaki_crypto::KzgError;
use niwaki_primitives::{Address, B256, Fault, Fork, U256};
use niwaki_rules::InvalidTransaction;

/// Why a transaction is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named by the texts above them")]
pub enum PoolError {
    /// It is in the pool already.
    #[error("already known")]
    AlreadyKnown,
    /// The bytes can't be decoded.
    #[error("malformed transaction: {reason}")]
    Malformed { reason: String },
    /// The signature recovers to no address, or its values are out of range.
    #[error("invalid sender")]
    InvalidSender,
    /// Its sender is not on the operator's list.
    #[error("Sender account not authorized to send transactions")]
    SenderNotPermitted,
    /// It is signed for another chain.
    #[error("invalid sender: invalid chain id for signer: have {got} want {expected}")]
    ChainId { got: u64, expected: u64 },
    /// It has no chain id, which the operator requires of local transactions (EIP-155).
    #[error("only replay-protected (EIP-155) transactions allowed over RPC")]
    ReplayProtectionRequired,
    /// The fork of the next block does not have its type.
    #[error("transaction type not supported: type {tx_type} rejected, pool not yet in {since}")]
    TypeNotSupported { tx_type: u8, since: Fork },
    /// It is too long to be propagated.
    #[error("oversized data: transaction size {got}, limit {limit}")]
    Oversized { got: usize, limit: usize },
    /// Its init code is too long.
    #[error("max initcode size exceeded: code size {got}, limit {limit}")]
    InitCodeTooLarge { got: usize, limit: usize },
    /// Its gas limit is above the next block's.
    #[error("exceeds block gas limit")]
    ExceedsBlockGasLimit { got: u64, limit: u64 },
    /// Its gas limit is above the cap for transactions (EIP-7825).
    #[error("transaction gas limit too high (cap: {cap}, tx: {got})")]
    GasLimitTooHigh { got: u64, cap: u64 },
    /// Its gas limit is below its intrinsic gas.
    #[error("intrinsic gas too low: gas {got}, minimum needed {needed}")]
    IntrinsicGasTooLow { got: u64, needed: u64 },
    /// Its gas limit is below the floor for its calldata (EIP-7623).
    #[error("insufficient gas for floor data gas cost: gas {got}, minimum needed {needed}")]
    FloorGasTooLow { got: u64, needed: u64 },
    /// Its nonce is 2^64 - 1 (EIP-2681).
    #[error("nonce has max value")]
    NonceMax,
    /// Its tip is above its fee.
    #[error(
        "max priority fee per gas higher than max fee per gas: maxPriorityFeePerGas: {tip}, \
         maxFeePerGas: {max_fee}"
    )]
    TipAboveFeeCap { tip: u128, max_fee: u128 },
    /// Its fee is below the operator's minimum.
    #[error("transaction underpriced: gas fee cap {got}, minimum needed {needed}")]
    GasPriceTooLow { got: u128, needed: u128 },
    /// Its blob fee is below the protocol's minimum.
    #[error("transaction underpriced: blob fee cap {got}, minimum needed {needed}")]
    BlobFeeTooLow { got: u128, needed: u128 },
    /// A local transaction may cost more than the operator allows.
    #[error("tx fee ({} ether) exceeds the configured cap ({} ether)", ether(.fee), ether(.cap))]
    FeeCapExceeded { fee: U256, cap: U256 },
    /// Its nonce was used.
    #[error("nonce too low: next nonce {next}, tx nonce {got}")]
    NonceTooLow { got: u64, next: u64 },
    /// Its nonce is further ahead than a sender may queue.
    #[error("nonce too high: tx nonce {got}, next nonce {next}, at most {window} ahead are kept")]
    NonceTooDistant { got: u64, next: u64, window: u64 },
    /// Its sender can't pay for it.
    #[error(
        "insufficient funds for gas * price + value: balance {balance}, tx cost {cost}, \
         overshot {}", .cost.saturating_sub(*.balance)
    )]
    InsufficientFunds { balance: U256, cost: U256 },
    /// Its sender can't pay for it together with its other transactions in the pool.
    #[error(
        "insufficient funds for gas * price + value: balance {balance}, queued cost {queued}, \
         tx cost {cost}, overshot {}", .queued.saturating_add(*.cost).saturating_sub(*.balance)
    )]
    Overdraft {
        balance: U256,
        queued: U256,
        cost: U256,
    },
    /// Its sender has code that is no delegation (EIP-3607).
    #[error("sender not an eoa: address {sender}, codehash: {code_hash}")]
    SenderNotEoa { sender: Address, code_hash: B256 },
    /// It does not bid enough more than the transaction with the same nonce.
    #[error("replacement transaction underpriced")]
    ReplacementUnderpriced,
    /// The pool is full of transactions that bid more.
    #[error("transaction underpriced")]
    Underpriced,
    /// The pool is full.
    #[error("txpool is full")]
    Full,
    /// Its sender is delegated (EIP-7702) and has as many transactions in flight as allowed.
    #[error("in-flight transaction limit reached for delegated accounts")]
    InFlightLimit,
    /// Its sender is delegated (EIP-7702) and its nonce leaves a gap.
    #[error("gapped-nonce tx from delegated accounts")]
    GappedDelegated,
    /// It sets the code of an account that has transactions in the pool.
    #[error("authority already reserved")]
    AuthorityReserved,
    /// A blob transaction without blobs.
    #[error("blobless blob transaction")]
    NoBlobs,
    /// It has too many blobs.
    #[error("blob limit exceeded: blob count {got}, limit {limit}")]
    TooManyBlobs { got: usize, limit: usize },
    /// A blob transaction that creates a contract.
    #[error("blob transaction of type create")]
    BlobCreate,
    /// A blob transaction without its sidecar, as in blocks.
    #[error("missing sidecar in blob transaction")]
    MissingSidecar,
    /// The sidecar has the version of another fork.
    #[error("sidecar format error: unexpected sidecar version, want: {expected}, got: {got}")]
    SidecarVersion { got: u8, expected: u8 },
    /// Blobs, commitments, proofs and versioned hashes do not match in number.
    #[error(
        "sidecar format error: {hashes} blob hashes with {blobs} blobs, {commitments} commitments \
         and {proofs} proofs"
    )]
    SidecarCounts {
        hashes: usize,
        blobs: usize,
        commitments: usize,
        proofs: usize,
    },
    /// A commitment does not match the versioned hash.
    #[error("blob {index}: computed hash {got} mismatches transaction one {expected}")]
    BlobHash {
        index: usize,
        got: B256,
        expected: B256,
    },
    /// A KZG proof is invalid.
    #[error("KZG verification error: {0}")]
    Kzg(KzgError),
    /// A set-code transaction without authorizations.
    #[error("set code tx must have at least one authorization tuple")]
    NoAuthorizations,
    /// A set-code transaction that creates a contract.
    #[error("EIP-7702 transaction cannot be used to create contract")]
    SetCodeCreate,
    /// It breaks another rule of the protocol.
    #[error(transparent)]
    Invalid(InvalidTransaction),
    /// The state could not be read: this says nothing about the transaction.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Wei as ether with two decimals, as geth has it.
fn ether(wei: &U256) -> String {
    let cents = *wei / U256::from(10_000_000_000_000_000_u64);
    let (whole, rest) = cents.div_rem(U256::from(100));
    format!("{whole}.{rest:02}")
}

impl PoolError {
    /// Besu's name of the error, and its label in metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AlreadyKnown => "TRANSACTION_ALREADY_KNOWN",
            Self::Malformed { .. } => "MALFORMED_TRANSACTION",
            Self::InvalidSender => "INVALID_SIGNATURE",
            Self::SenderNotPermitted => "TX_SENDER_NOT_AUTHORIZED",
            Self::ChainId { .. } => "WRONG_CHAIN_ID",
            Self::ReplayProtectionRequired => "REPLAY_PROTECTED_SIGNATURE_REQUIRED",
            Self::TypeNotSupported { .. } => "INVALID_TRANSACTION_FORMAT",
            Self::Oversized { .. } => "OVERSIZED_DATA",
            Self::InitCodeTooLarge { .. } => "INITCODE_TOO_LARGE",
            Self::ExceedsBlockGasLimit { .. } => "EXCEEDS_BLOCK_GAS_LIMIT",
            Self::GasLimitTooHigh { .. } => "EXCEEDS_TRANSACTION_GAS_LIMIT",
            Self::IntrinsicGasTooLow { .. } | Self::FloorGasTooLow { .. } => {
                "INTRINSIC_GAS_EXCEEDS_GAS_LIMIT"
            }
            Self::NonceMax => "NONCE_OVERFLOW",
            Self::TipAboveFeeCap { .. } => "MAX_PRIORITY_FEE_PER_GAS_EXCEEDS_MAX_FEE_PER_GAS",
            Self::GasPriceTooLow { .. } => "GAS_PRICE_TOO_LOW",
            Self::BlobFeeTooLow { .. } => "BLOB_GAS_PRICE_BELOW_CURRENT_BLOB_BASE_FEE",
            Self::FeeCapExceeded { .. } => "TX_FEECAP_EXCEEDED",
            Self::NonceTooLow { .. } => "NONCE_TOO_LOW",
            Self::NonceTooDistant { .. } => "NONCE_TOO_FAR_IN_FUTURE_FOR_SENDER",
            Self::InsufficientFunds { .. } => "UPFRONT_COST_EXCEEDS_BALANCE",
            Self::Overdraft { .. } => "TX_POOL_BALANCE_CHECK_FAILED",
            Self::SenderNotEoa { .. } => "TX_SENDER_NOT_AUTHORIZED",
            Self::ReplacementUnderpriced => "TRANSACTION_REPLACEMENT_UNDERPRICED",
            Self::Underpriced => "TRANSACTION_UNDERPRICED",
            Self::Full => "TX_POOL_FULL",
            Self::InFlightLimit | Self::GappedDelegated => "DELEGATED_ACCOUNT_LIMIT",
            Self::AuthorityReserved => "AUTHORITY_RESERVED",
            Self::NoBlobs
            | Self::TooManyBlobs { .. }
            | Self::BlobCreate
            | Self::MissingSidecar
            | Self::SidecarVersion { .. }
            | Self::SidecarCounts { .. }
            | Self::BlobHash { .. }
            | Self::Kzg(_) => "INVALID_BLOBS",
            Self::NoAuthorizations => "EMPTY_CODE_DELEGATION",
            Self::SetCodeCreate => "INVALID_TRANSACTION_FORMAT",
            Self::Invalid(_) => "INVALID_TRANSACTION",
            Self::Fault(_) => "INTERNAL_ERROR",
        }
    }
}

impl From<InvalidTransaction> for PoolError {
    fn from(reason: InvalidTransaction) -> Self {
        use InvalidTransaction as Rule;
        match reason {
            Rule::TypeNotSupported { tx_type, .. } => Self::TypeNotSupported {
                tx_type,
                since: first_fork_of(tx_type),
            },
            Rule::IntrinsicGasTooLow { got, needed } => Self::IntrinsicGasTooLow { got, needed },
            Rule::GasBelowFloor { got, floor: needed } => Self::FloorGasTooLow { got, needed },
            Rule::NonceIsMax => Self::NonceMax,
            Rule::InitCodeTooLarge { got, max: limit } => Self::InitCodeTooLarge { got, limit },
            Rule::GasLimitAboveCap { got, max: cap } => Self::GasLimitTooHigh { got, cap },
            Rule::GasAllowanceExceeded { got, available } => Self::ExceedsBlockGasLimit {
                got,
                limit: available,
            },
            Rule::ChainId { got, expected } => Self::ChainId { got, expected },
            Rule::SignatureRange { .. } | Rule::SignatureRecovery => Self::InvalidSender,
            Rule::PriorityAboveMaxFee { priority, max_fee } => Self::TipAboveFeeCap {
                tip: priority,
                max_fee,
            },
            Rule::ZeroBlobs => Self::NoBlobs,
            Rule::BlobCountExceeded { got, max: limit } => Self::TooManyBlobs { got, limit },
            Rule::BlobCreate => Self::BlobCreate,
            Rule::SetCodeCreate => Self::SetCodeCreate,
            Rule::EmptyAuthorizationList => Self::NoAuthorizations,
            other => Self::Invalid(other),
        }
    }
}

const fn first_fork_of(tx_type: u8) -> Fork {
    match tx_type {
        1 => Fork::Berlin,
        2 => Fork::London,
        3 => Fork::Cancun,
        _ => Fork::Prague,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_geth() {
        let funds = PoolError::InsufficientFunds {
            balance: U256::ZERO,
            cost: U256::from(21_000),
        };
        assert_eq!(
            funds.to_string(),
            "insufficient funds for gas * price + value: balance 0, tx cost 21000, overshot 21000"
        );
        let overdraft = PoolError::Overdraft {
            balance: U256::from(10),
            queued: U256::from(8),
            cost: U256::from(5),
        };
        assert_eq!(
            overdraft.to_string(),
            "insufficient funds for gas * price + value: balance 10, queued cost 8, tx cost 5, \
             overshot 3"
        );
        let nonce = PoolError::NonceTooLow { got: 3, next: 5 };
        assert_eq!(nonce.to_string(), "nonce too low: next nonce 5, tx nonce 3");
        let cap = PoolError::FeeCapExceeded {
            fee: U256::from(1_509_000_000_000_000_000_u64),
            cap: U256::from(1_000_000_000_000_000_000_u64),
        };
        assert_eq!(
            cap.to_string(),
            "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)"
        );
    }
}
