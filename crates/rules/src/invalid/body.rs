//! Why a body is invalid.

use super::InvalidHeader;
use alloy_primitives::B256;
use niwaki_primitives::Fork;

/// Why a body does not match its header, or is invalid by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum InvalidBody {
    /// `BlockException.RLP_BLOCK_LIMIT_EXCEEDED`
    #[error("block has {got} bytes of RLP, at most {max} are allowed (EIP-7934)")]
    RlpTooLong { got: usize, max: usize },
    /// `BlockException.INVALID_TRANSACTIONS_ROOT`
    #[error("transactions root is {got} by the body, the header says {expected}")]
    TransactionsRoot { got: B256, expected: B256 },
    /// `BlockException.INVALID_UNCLES_HASH`
    #[error("ommers hash is {got} by the body, the header says {expected}")]
    OmmersHash { got: B256, expected: B256 },
    /// `BlockException.INVALID_WITHDRAWALS_ROOT`
    #[error("withdrawals root is {got} by the body, the header says {expected}")]
    WithdrawalsRoot { got: B256, expected: B256 },
    /// `BlockException.RLP_WITHDRAWALS_NOT_READ`
    #[error("the body has no list of withdrawals, {fork} requires one")]
    WithdrawalsMissing { fork: Fork },
    /// `BlockException.INCORRECT_BLOCK_FORMAT`
    #[error("the body has a list of withdrawals, {fork} does not know them")]
    WithdrawalsUnexpected { fork: Fork },
    /// `BlockException.IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS`
    #[error("the body has {got} ommers, none are allowed from Paris on")]
    OmmersAfterParis { got: usize },
    /// `BlockException.INCORRECT_BLOB_GAS_USED`
    #[error("blob gas used is {got} by the body, the header says {expected}")]
    BlobGasUsed { got: u64, expected: u64 },
    /// `BlockException.TOO_MANY_UNCLES`
    #[error("the body has {got} ommers, at most 2 are allowed")]
    TooManyOmmers { got: usize },
    /// `BlockException.UNCLE_IN_CHAIN`
    #[error("ommer {hash} was rewarded before, or is listed twice")]
    OmmerInChain { hash: B256 },
    /// `BlockException.UNCLE_IS_ANCESTOR`
    #[error("ommer {hash} is an ancestor of the block")]
    OmmerIsAncestor { hash: B256 },
    /// `BlockException.UNCLE_IS_BROTHER`
    #[error("ommer {hash} has the same parent as the block")]
    OmmerIsBrother { hash: B256 },
    /// `BlockException.UNCLE_PARENT_INCORRECT`
    #[error("the parent of ommer {hash} is none of the {depth} last ancestors")]
    OmmerParent { hash: B256, depth: u64 },
    /// The name of the inner error.
    #[error("ommer {hash}: {reason}")]
    OmmerHeader { hash: B256, reason: InvalidHeader },
}

impl InvalidBody {
    /// The execution-spec-tests name of this error, without `BlockException.`.
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::RlpTooLong { .. } => "RLP_BLOCK_LIMIT_EXCEEDED",
            Self::TransactionsRoot { .. } => "INVALID_TRANSACTIONS_ROOT",
            Self::OmmersHash { .. } => "INVALID_UNCLES_HASH",
            Self::WithdrawalsRoot { .. } => "INVALID_WITHDRAWALS_ROOT",
            Self::WithdrawalsMissing { .. } => "RLP_WITHDRAWALS_NOT_READ",
            Self::WithdrawalsUnexpected { .. } => "INCORRECT_BLOCK_FORMAT",
            Self::OmmersAfterParis { .. } => "IMPORT_IMPOSSIBLE_UNCLES_OVER_PARIS",
            Self::BlobGasUsed { .. } => "INCORRECT_BLOB_GAS_USED",
            Self::TooManyOmmers { .. } => "TOO_MANY_UNCLES",
            Self::OmmerInChain { .. } => "UNCLE_IN_CHAIN",
            Self::OmmerIsAncestor { .. } => "UNCLE_IS_ANCESTOR",
            Self::OmmerIsBrother { .. } => "UNCLE_IS_BROTHER",
            Self::OmmerParent { .. } => "UNCLE_PARENT_INCORRECT",
            Self::OmmerHeader { reason, .. } => reason.spec_name(),
        }
    }
}
