//! Ranges of accounts and slots checked against a root.

use niwaki_primitives::{B256, Bytes, U256};
use niwaki_trie::{RangeError, TrieAccount, encode_slot, verify_range};

/// Checks that these are all accounts of the state with this root from `origin` to the last of them, by hashed address; without any, that
/// it has none from `origin` on. `proof` is as for [`verify_range`]. Returns whether there are more.
///
/// # Errors
/// [`RangeError`]: then nothing is proven.
pub fn verify_accounts(
    root: B256,
    origin: B256,
    accounts: &[(B256, TrieAccount)],
    proof: &[Bytes],
) -> Result<bool, RangeError> {
    let leaves = accounts
        .iter()
        .map(|(key, account)| (*key, account.to_leaf()));
    verify(root, origin, leaves.collect(), proof)
}

/// As [`verify_accounts`], of the slots in the storage with this root, by hashed slot.
///
/// # Errors
/// [`RangeError`]: then nothing is proven.
pub fn verify_slots(
    storage_root: B256,
    origin: B256,
    slots: &[(B256, U256)],
    proof: &[Bytes],
) -> Result<bool, RangeError> {
    let leaves = slots.iter().map(|(key, value)| (*key, encode_slot(value)));
    verify(storage_root, origin, leaves.collect(), proof)
}

fn verify(
    root: B256,
    origin: B256,
    leaves: Vec<(B256, Vec<u8>)>,
    proof: &[Bytes],
) -> Result<bool, RangeError> {
    let leaves: Vec<(B256, &[u8])> = leaves.iter().map(|(key, leaf)| (*key, &leaf[..])).collect();
    verify_range(root, origin, &leaves, proof)
}
