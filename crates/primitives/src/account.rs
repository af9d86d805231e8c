//! An account of the world state, as the EVM sees it.

use alloy_primitives::{B256, U256, b256};

/// Keccak-256 of no bytes: the code hash of an account without code.
pub const EMPTY_CODE_HASH: B256 =
    b256!("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470");

/// Keccak-256 of the RLP of the empty string: the root of a trie without leaves.
pub const EMPTY_ROOT_HASH: B256 =
    b256!("56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// Nonce, balance and code hash of one account.
///
/// The storage root is not here: the EVM never reads it, and the state layer, which does, has a type with it.
///
/// Spec: execution-specs `frontier/fork_types.py`, `Account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Transactions sent, or, for a contract, contracts created (plus one from EIP-161 on).
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Keccak-256 of the code; [`EMPTY_CODE_HASH`] where there is none.
    pub code_hash: B256,
}

impl Account {
    /// An account that exists and is empty.
    pub const EMPTY: Self = Self {
        nonce: 0,
        balance: U256::ZERO,
        code_hash: EMPTY_CODE_HASH,
    };

    /// No nonce, no balance, no code (EIP-161's definition of empty).
    pub fn is_empty(&self) -> bool {
        self.nonce == 0 && self.balance.is_zero() && self.code_hash == EMPTY_CODE_HASH
    }

    /// Whether the account has code.
    pub fn has_code(&self) -> bool {
        self.code_hash != EMPTY_CODE_HASH
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::EMPTY
    }
}
