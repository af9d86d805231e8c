//! Why a transaction is invalid.

use alloy_primitives::{Address, B256, U256};
use niwaki_primitives::Fork;

/// Why a transaction is invalid in a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTransaction {
    /// `TransactionException.TYPE_n_TX_PRE_FORK`
    #[error("transaction type {tx_type} is not known to {fork}")]
    TypeNotSupported {
        /// EIP-2718 type.
        tx_type: u8,
        /// The fork of the block.
        fork: Fork,
    },
    /// `TransactionException.INTRINSIC_GAS_TOO_LOW`
    #[error("gas limit {got} is below the intrinsic gas {needed}")]
    IntrinsicGasTooLow {
        /// The transaction's gas limit.
        got: u64,
        /// The intrinsic gas.
        needed: u64,
    },
    /// `TransactionException.INTRINSIC_GAS_BELOW_FLOOR_GAS_COST`
    #[error("gas limit {got} is below the calldata floor {floor} (EIP-7623)")]
    GasBelowFloor {
        /// The transaction's gas limit.
        got: u64,
        /// The floor.
        floor: u64,
    },
    /// `TransactionException.NONCE_IS_MAX`
    #[error("nonce is 2^64 - 1 (EIP-2681)")]
    NonceIsMax,
    /// `TransactionException.INITCODE_SIZE_EXCEEDED`
    #[error("init code has {got} bytes, at most {max} are allowed (EIP-3860)")]
    InitCodeTooLarge {
        /// Bytes of init code.
        got: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// `TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM`
    #[error("gas limit {got} is above the cap of {max} per transaction (EIP-7825)")]
    GasLimitAboveCap {
        /// The transaction's gas limit.
        got: u64,
        /// The cap.
        max: u64,
    },
    /// `TransactionException.GAS_LIMIT_EXCEEDS_MAXIMUM`
    #[error("{needed} gas is spent before execution, a transaction may take {max} (EIP-8037)")]
    IntrinsicGasAboveCap {
        /// The intrinsic gas, or the floor if that is more.
        needed: u64,
        /// The cap.
        max: u64,
    },
    /// `TransactionException.GAS_ALLOWANCE_EXCEEDED`
    #[error("gas limit {got} is above the {available} gas left in the block")]
    GasAllowanceExceeded {
        /// The transaction's gas limit.
        got: u64,
        /// Gas left in the block.
        available: u64,
    },
    /// `TransactionException.TYPE_3_TX_MAX_BLOB_GAS_ALLOWANCE_EXCEEDED`
    #[error("blob gas {got} is above the {available} blob gas left in the block")]
    BlobGasAllowanceExceeded {
        /// The transaction's blob gas.
        got: u64,
        /// Blob gas left in the block.
        available: u64,
    },
    /// `TransactionException.INVALID_CHAINID`
    #[error("chain id is {got}, this chain's is {expected}")]
    ChainId {
        /// The transaction's chain id.
        got: u64,
        /// The chain's.
        expected: u64,
    },
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
    PriorityAboveMaxFee {
        /// Max priority fee per gas, wei.
        priority: u128,
        /// Max fee per gas, wei.
        max_fee: u128,
    },
    /// `TransactionException.INSUFFICIENT_MAX_FEE_PER_GAS`
    #[error("max fee {got} is below the base fee {base_fee}")]
    MaxFeeBelowBaseFee {
        /// Max fee per gas (or gas price), wei.
        got: u128,
        /// The block's base fee, wei.
        base_fee: u64,
    },
    /// `TransactionException.TYPE_3_TX_ZERO_BLOBS`
    #[error("a blob transaction without blobs")]
    ZeroBlobs,
    /// `TransactionException.TYPE_3_TX_BLOB_COUNT_EXCEEDED`
    #[error("{got} blobs, at most {max} are allowed per transaction")]
    BlobCountExceeded {
        /// Blobs of the transaction.
        got: usize,
        /// Blobs allowed.
        max: usize,
    },
    /// `TransactionException.TYPE_3_TX_INVALID_BLOB_VERSIONED_HASH`
    #[error("blob versioned hash {got} does not begin with 0x01")]
    BlobVersionedHash {
        /// The hash.
        got: B256,
    },
    /// `TransactionException.INSUFFICIENT_MAX_FEE_PER_BLOB_GAS`
    #[error("max fee per blob gas {got} is below the blob base fee {blob_base_fee}")]
    MaxFeeBelowBlobBaseFee {
        /// Max fee per blob gas, wei.
        got: u128,
        /// The block's blob base fee, wei.
        blob_base_fee: u128,
    },
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
    NonceTooLow {
        /// The transaction's nonce.
        got: u64,
        /// The account's nonce.
        expected: u64,
    },
    /// `TransactionException.NONCE_MISMATCH_TOO_HIGH`
    #[error("nonce {got} is above the sender's {expected}")]
    NonceTooHigh {
        /// The transaction's nonce.
        got: u64,
        /// The account's nonce.
        expected: u64,
    },
    /// `TransactionException.INSUFFICIENT_ACCOUNT_FUNDS`
    #[error("the sender has {balance} wei, the transaction may cost {}", cost_text(.cost))]
    InsufficientFunds {
        /// The sender's balance, wei.
        balance: U256,
        /// What the transaction may cost, wei; `None` if that is 2^256 or more.
        cost: Option<U256>,
    },
    /// `TransactionException.SENDER_NOT_EOA`
    #[error("the sender {sender} has code (EIP-3607)")]
    SenderNotEoa {
        /// The sender.
        sender: Address,
    },
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
