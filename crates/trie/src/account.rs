//! The values of the leaves: of the account trie and of a storage trie.

use alloy_primitives::{B256, U256};
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::Account;

/// The value of a leaf of the account trie.
///
/// Spec: Yellow Paper, section 4.1; execution-specs `frontier/fork_types.py`, `encode_account`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, RlpEncodable, RlpDecodable)]
pub struct TrieAccount {
    /// Nonce.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Root of the account's storage trie.
    pub storage_root: B256,
    /// Keccak-256 of the code.
    pub code_hash: B256,
}

impl TrieAccount {
    /// `account` with its storage root.
    pub fn new(account: &Account, storage_root: B256) -> Self {
        Self {
            nonce: account.nonce,
            balance: account.balance,
            storage_root,
            code_hash: account.code_hash,
        }
    }

    /// The account without its storage root.
    pub fn account(&self) -> Account {
        Account {
            nonce: self.nonce,
            balance: self.balance,
            code_hash: self.code_hash,
        }
    }

    /// The RLP in the leaf.
    pub fn to_leaf(&self) -> Vec<u8> {
        alloy_rlp::encode(self)
    }

    /// Reads the RLP of a leaf.
    ///
    /// # Errors
    /// The RLP error if the bytes are anything but one account.
    pub fn from_leaf(leaf: &[u8]) -> Result<Self, alloy_rlp::Error> {
        alloy_rlp::decode_exact(leaf)
    }
}

/// The value of a leaf of a storage trie: the RLP of `value` without leading zeros.
pub fn encode_slot(value: &U256) -> Vec<u8> {
    let mut leaf = Vec::new();
    encode_slot_to(value, &mut leaf);
    leaf
}

/// Appends to `out` what [`encode_slot`] returns.
pub fn encode_slot_to(value: &U256, out: &mut Vec<u8>) {
    alloy_rlp::Encodable::encode(value, out);
}

/// Reads the value of a leaf of a storage trie.
///
/// # Errors
/// The RLP error if the bytes are anything but one integer.
pub fn decode_slot(leaf: &[u8]) -> Result<U256, alloy_rlp::Error> {
    alloy_rlp::decode_exact(leaf)
}
