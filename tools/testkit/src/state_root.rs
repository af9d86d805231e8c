//! The state root by `alloy-trie`, as a reference that is independent of this project's trie.

use crate::MemoryState;
use alloy_primitives::keccak256;
use alloy_trie::{TrieAccount, root};
use niwaki_primitives::B256;

/// Computes the state root of `state` from scratch. Cost: linear in the state.
pub fn state_root(state: &MemoryState) -> B256 {
    root::state_root_unhashed(state.accounts.iter().map(|(address, account)| {
        let slots = account
            .storage
            .iter()
            .map(|(slot, value)| (B256::from(*slot), *value));
        let leaf = TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: root::storage_root_unhashed(slots),
            code_hash: keccak256(account.code.as_ref()),
        };
        (*address, leaf)
    }))
}
