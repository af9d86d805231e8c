//! Why a transaction is invalid.

use alloy_primitives::{Address, B256, U256};
use niwaki_primitives::Fork;

/// Why a transaction is invalid in a block. Fees and balances are in wei.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum InvalidTransaction {
    /// `TransactionException.TYPE_n_TX_PRE_FORK`
    #[error("transaction type {tx_type} is not known to {fork}")]
    TypeNotSupported { tx_type: u8, fork: Fork },
    /// `TransactionException.INTRINSIC_GAS_TOO_LOW`
    #[error("gas limit {got} is below the intrinsic gas {needed}")]
    IntrinsicGasTooLow { got: u64, needed: u64 },
    /// `TransactionException.INTRINSIC_GAS_BELOW_FLOOR_GAS_COST`
    #[error("gas limit {got} is below the calldata floor {floor} (EIP-7623)")]
    GasBelowFloor { got: u64, floor: u64 },
    /// `TransactionException.NONCE_IS_MAX`
    #[error("nonce is 2^64 - 1 (EIP-2681)")]
    NonceIsMax,
    /// `TransactionException.INITCODE_SIZE_EXCEEDED`
    #[error("init code has {got} bytes, at most {max} are allowed (EIP-3860)")]
    InitCodeTooLarge { got: usize, max: usize },
    /// `TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM`
    #[error("gas limit {got} is above the cap of {max} per transaction (EIP-7825)")]
    GasLimitAboveCap { got: u64, max: u64 },
    /// `TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM`
    #[error("{needed} gas is spent before execution, a transaction may take {max} (EIP-8037)")]
    IntrinsicGasAboveCap {
        /// The intrinsic gas, or the floor if that is more.
        needed: u64,
        max: u64,
    },
    /// `TransactionException.GAS_ALLOWANCE_EXCEEDED`
    #[error("gas limit {got} is above the {available} gas left in the block")]
    GasAllowanceExceeded { got: u64, available: u64 },
    /// `TransactionException.TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED`
    #[error("blob gas {got} is above the {available} blob gas left in the block")]
    BlobGasAllowanceExceeded { got: u64, available: u64 },
    /// `TransactionException.INVALID_CHAINID`
    #[error("chain id is {got}, this chain's is {expected}")]
    ChainId { got: u64, expected: u64 },
    /// `TransactionException.INVALID_SIGNATURE_VRS`
    #[error("signature value {value} is out of range")]
    SignatureRange {
        /// Which of v, r, s.
        value: &'static str,
    },
    /// `TransactionException.EC_RECOVERY_FAIL`
    #[error("no public key recovers from the signature")]
    SignatureRecovery,
    /// `TransactionException.PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS`
    #[error("max priority fee {priority} is above the max fee {max_fee}")]
    PriorityAboveMaxFee { priority: u128, max_fee: u128 },
    /// `TransactionException.INSUFFICIENT_MAX_FEE_PER_GAS`
    #[error("max fee {got} is below the base fee {base_fee}")]
    MaxFeeBelowBaseFee { got: u128, base_fee: u64 },
    /// A rule of GoQuorum.
    #[error("gas price {got} on a chain of GoQuorum without enableGasPriceBlock, where it is 0")]
    GasPriceNotZero { got: u128 },
    /// `TransactionException.TYPE_3_TX_ZERO_BLOBS`
    #[error("a blob transaction without blobs")]
    ZeroBlobs,
    /// `TransactionException.TYPE_3_TX_BLOB_COUNT_EXCEEDED`
    #[error("{got} blobs, at most {max} are allowed per transaction")]
    BlobCountExceeded { got: usize, max: usize },
    /// `TransactionException.TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH`
    #[error("blob versioned hash {got} does not begin with 0x01")]
    BlobVersionedHash { got: B256 },
    /// `TransactionException.INSUFFICIENT_MAX_FEE_PER_BLOB_GAS`
    #[error("max fee per blob gas {got} is below the blob base fee {blob_base_fee}")]
    MaxFeeBelowBlobBaseFee { got: u128, blob_base_fee: u128 },
    /// `TransactionException.TYPE_3_TX_CONTRACT_CREATION`
    #[error("a blob transaction can't create a contract")]
    BlobCreate,
    /// `TransactionException.TYPE_4_TX_CONTRACT_CREATION`
    #[error("a set-code transaction can't create a contract")]
    SetCodeCreate,
    /// `TransactionException.TYPE_4_EMPTY_AUTHORIZATION_LIST`
    #[error("a set-code transaction without authorizations")]
    EmptyAuthorizationList,
    /// `TransactionException.NONCE_MISMATCH_TOO_LOW`
    #[error("nonce {got} is below the sender's {expected}")]
    NonceTooLow { got: u64, expected: u64 },
    /// `TransactionException.NONCE_MISMATCH_TOO_HIGH`
    #[error("nonce {got} is above the sender's {expected}")]
    NonceTooHigh { got: u64, expected: u64 },
    /// `TransactionException.INSUFFICIENT_ACCOUNT_FUNDS`
    #[error("the sender has {balance} wei, the transaction may cost {}", cost_text(.cost))]
    InsufficientFunds {
        balance: U256,
        /// What the transaction may cost, wei; `None` if that is 2^256 or more.
        cost: Option<U256>,
    },
    /// `TransactionException.SENDER_NOT_EOA`
    #[error("the sender {sender} has code (EIP-3607)")]
    SenderNotEoa { sender: Address },
}

fn cost_text(cost: &Option<U256>) -> String {
    match cost {
        Some(wei) => format!("{wei} wei"),
        None => "2^256 wei or more".to_owned(),
    }
}

impl InvalidTransaction {
    /// The execution-spec-tests name of this error, without `TransactionException.`.
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::TypeNotSupported { tx_type: 1, .. } => "TYPE_1_TX_PRE_FORK",
            Self::TypeNotSupported { tx_type: 2, .. } => "TYPE_2_TX_PRE_FORK",
            Self::TypeNotSupported { tx_type: 3, .. } => "TYPE_3_TX_PRE_FORK",
            Self::TypeNotSupported { tx_type: 4, .. } => "TYPE_4_TX_PRE_FORK",
            Self::TypeNotSupported { .. } => "TYPE_NOT_SUPPORTED",
            Self::IntrinsicGasTooLow { .. } => "INTRINSIC_GAS_TOO_LOW",
            Self::GasBelowFloor { .. } => "INTRINSIC_GAS_BELOW_FLOOR_GAS_COST",
            Self::NonceIsMax => "NONCE_IS_MAX",
            Self::InitCodeTooLarge { .. } => "INITCODE_SIZE_EXCEEDED",
            Self::GasLimitAboveCap { .. } | Self::IntrinsicGasAboveCap { .. } => {
                "GAS_LIMIT_EXCEEDS_MAXIMUM"
            }
            Self::GasAllowanceExceeded { .. } => "GAS_ALLOWANCE_EXCEEDED",
            Self::BlobGasAllowanceExceeded { .. } => "TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED",
            Self::ChainId { .. } => "INVALID_CHAINID",
            Self::SignatureRange { .. } => "INVALID_SIGNATURE_VRS",
            Self::SignatureRecovery => "EC_RECOVERY_FAIL",
            Self::PriorityAboveMaxFee { .. } => "PRIORITY_GREATER_THAN_MAX_FEE_PER_GAS",
            Self::MaxFeeBelowBaseFee { .. } => "INSUFFICIENT_MAX_FEE_PER_GAS",
            Self::GasPriceNotZero { .. } => "GASPRICE_NOT_ZERO",
            Self::ZeroBlobs => "TYPE_3_TX_ZERO_BLOBS",
            Self::BlobCountExceeded { .. } => "TYPE_3_TX_BLOB_COUNT_EXCEEDED",
            Self::BlobVersionedHash { .. } => "TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH",
            Self::MaxFeeBelowBlobBaseFee { .. } => "INSUFFICIENT_MAX_FEE_PER_BLOB_GAS",
            Self::BlobCreate => "TYPE_3_TX_CONTRACT_CREATION",
            Self::SetCodeCreate => "TYPE_4_TX_CONTRACT_CREATION",
            Self::EmptyAuthorizationList => "TYPE_4_EMPTY_AUTHORIZATION_LIST",
            Self::NonceTooLow { .. } => "NONCE_MISMATCH_TOO_LOW",
            Self::NonceTooHigh { .. } => "NONCE_MISMATCH_TOO_HIGH",
            Self::InsufficientFunds { .. } => "INSUFFICIENT_ACCOUNT_FUNDS",
            Self::SenderNotEoa { .. } => "SENDER_NOT_EOA",
        }
    }
}
