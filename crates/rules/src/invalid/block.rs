//! Why a block is invalid, at any stage.

use super::{InvalidAccessList, InvalidBody, InvalidHeader, InvalidTransaction};
use alloy_primitives::{Address, B256};

/// Why a block is invalid, at any stage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum InvalidBlock {
    /// The name of the inner error.
    #[error("header: {0}")]
    Header(#[from] InvalidHeader),
    /// The name of the inner error.
    #[error("body: {0}")]
    Body(#[from] InvalidBody),
    /// The name of the inner error.
    #[error("transaction {index}: {reason}")]
    Transaction {
        /// Index in the block, from zero.
        index: usize,
        reason: InvalidTransaction,
    },
    /// `BlockException.INVALID_GAS_USED`
    #[error("gas used is {got} by execution, the header says {expected}")]
    GasUsed { got: u64, expected: u64 },
    /// `BlockException.INVALID_STATE_ROOT`
    #[error("state root is {got} by execution, the header says {expected}")]
    StateRoot { got: B256, expected: B256 },
    /// `BlockException.INVALID_RECEIPTS_ROOT`
    #[error("receipts root is {got} by execution, the header says {expected}")]
    ReceiptsRoot { got: B256, expected: B256 },
    /// `BlockException.INVALID_LOG_BLOOM`
    #[error("the bloom of the logs differs from the header's")]
    LogsBloom,
    /// `BlockException.INCORRECT_BLOB_GAS_USED`
    #[error("blob gas used is {got} by execution, the header says {expected}")]
    BlobGasUsed { got: u64, expected: u64 },
    /// `BlockException.INVALID_REQUESTS`
    #[error("requests hash is {got} by execution, the header says {expected}")]
    RequestsHash { got: B256, expected: B256 },
    /// The name of the inner error.
    #[error("block access list: {0}")]
    AccessList(#[from] InvalidAccessList),
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error("the hash of the block access list is {got} by execution, the header says {expected}")]
    BlockAccessListHash { got: B256, expected: B256 },
    /// `BlockException.INVALID_DEPOSIT_EVENT_LAYOUT`
    #[error("a log of the deposit contract does not have the layout of EIP-6110: {reason}")]
    DepositLayout { reason: &'static str },
    /// `BlockException.SYSTEM_CONTRACT_EMPTY`
    #[error("the system contract {address} has no code")]
    SystemContractEmpty { address: Address },
    /// `BlockException.SYSTEM_CONTRACT_CALL_FAILED`
    #[error("the call of the system contract {address} failed")]
    SystemContractCallFailed { address: Address },
    /// `BlockException.INVALID_BLOCK_HASH`
    #[error("block hash is {got} by the payload's fields, the payload says {expected}")]
    BlockHash { got: B256, expected: B256 },
    /// `BlockException.INVALID_VERSIONED_HASHES`
    #[error("{reason}")]
    VersionedHashes { reason: String },
    /// `BlockException.RLP_STRUCTURES_ENCODING`
    #[error("{what} can't be decoded: {reason}")]
    Encoding {
        /// Such as `transaction 3`.
        what: String,
        reason: String,
    },
    /// `BlockException.UNKNOWN_PARENT`
    #[error("the parent {parent} is not known")]
    UnknownParent { parent: B256 },
}

impl InvalidBlock {
    /// Whether only its seals are at fault: the hash of a BFT block leaves them out, so another copy of the same block may be valid.
    pub const fn is_of_seals(&self) -> bool {
        let Self::Header(reason) = self else {
            return false;
        };
        matches!(
            reason,
            InvalidHeader::BftSealer { .. } | InvalidHeader::BftSeals { .. }
        )
    }

    /// The execution-spec-tests name of this error, without the class before the dot.
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::Header(reason) => reason.spec_name(),
            Self::Body(reason) => reason.spec_name(),
            Self::Transaction { reason, .. } => reason.spec_name(),
            Self::GasUsed { .. } => "INVALID_GAS_USED",
            Self::StateRoot { .. } => "INVALID_STATE_ROOT",
            Self::ReceiptsRoot { .. } => "INVALID_RECEIPTS_ROOT",
            Self::LogsBloom => "INVALID_LOG_BLOOM",
            Self::BlobGasUsed { .. } => "INCORRECT_BLOB_GAS_USED",
            Self::RequestsHash { .. } => "INVALID_REQUESTS",
            Self::AccessList(reason) => reason.spec_name(),
            Self::BlockAccessListHash { .. } => "INVALID_BLOCK_ACCESS_LIST",
            Self::DepositLayout { .. } => "INVALID_DEPOSIT_EVENT_LAYOUT",
            Self::SystemContractEmpty { .. } => "SYSTEM_CONTRACT_EMPTY",
            Self::SystemContractCallFailed { .. } => "SYSTEM_CONTRACT_CALL_FAILED",
            Self::BlockHash { .. } => "INVALID_BLOCK_HASH",
            Self::VersionedHashes { .. } => "INVALID_VERSIONED_HASHES",
            Self::Encoding { .. } => "RLP_STRUCTURES_ENCODING",
            Self::UnknownParent { .. } => "UNKNOWN_PARENT",
        }
    }
}
