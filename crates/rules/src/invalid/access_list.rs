//! Why a block access list is invalid.

use alloy_primitives::{Address, U256};

/// Why no block could have this block access list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum InvalidAccessList {
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error("account {address} does not come after the one before it")]
    AccountOrder { address: Address },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error(
        "account {address}: slot {slot:#x} of its storage {what} does not come after the one before it"
    )]
    SlotOrder {
        address: Address,
        /// `changes` or `reads`.
        what: &'static str,
        slot: U256,
    },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error("account {address}: slot {slot:#x} is among its storage changes and its storage reads")]
    SlotChangedAndRead { address: Address, slot: U256 },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error("account {address}: slot {slot:#x} is among its storage changes and has none")]
    SlotWithoutChange { address: Address, slot: U256 },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error(
        "account {address}: index {index} of its {what} changes does not come after the one before it"
    )]
    IndexOrder {
        address: Address,
        /// `storage`, `balance`, `nonce` or `code`.
        what: &'static str,
        index: u64,
    },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error(
        "account {address}: index {index} of its {what} changes is above {max}, the block's last"
    )]
    IndexTooHigh {
        address: Address,
        /// `storage`, `balance`, `nonce` or `code`.
        what: &'static str,
        index: u64,
        /// The index after the last transaction.
        max: u64,
    },
    /// `BlockException.INVALID_BLOCK_ACCESS_LIST`
    #[error(
        "account {address}: a code of {got} bytes is among its changes, at most {max} are allowed"
    )]
    CodeTooLarge {
        address: Address,
        got: u64,
        max: u64,
    },
    /// `BlockException.BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED`
    #[error("{got} accounts and slots, at most {max} are allowed by the block's gas limit")]
    TooManyItems {
        got: u64,
        /// One for every 2,000 gas of the limit.
        max: u64,
    },
}

impl InvalidAccessList {
    /// The execution-spec-tests name of this error, without the class before the dot.
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::TooManyItems { .. } => "BLOCK_ACCESS_LIST_GAS_LIMIT_EXCEEDED",
            _ => "INVALID_BLOCK_ACCESS_LIST",
        }
    }
}
