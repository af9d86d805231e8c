//! Ranges of accounts and slots checked against a root.

use super::remaining::KeyRange;
use crate::tries::disk_trie::row_key;
use niwaki_primitives::{B256, Bytes, U256};
use niwaki_storage::Batch;
use niwaki_trie::{Owner, Path, RangeError, TrieAccount, encode_slot_to, verify_range};

/// Rows of the trie nodes that verified ranges have between their ends.
#[derive(Debug, Default)]
pub struct TrieRows(pub(super) Batch);

/// Checks that these are all accounts of the state with this root from the first key of `keys` to the last of them, by hashed address;
/// without any, that it has none from there on. `proof` is as for [`verify_range`]. Returns whether there are more. Adds the rows of the
/// trie nodes that lie between the ends: all keys below them are in what is proven.
///
/// # Errors
/// [`RangeError`]: then nothing is proven, and `rows` are of no use.
pub fn verify_accounts(
    root: B256,
    keys: KeyRange,
    accounts: &[(B256, TrieAccount)],
    proof: &[Bytes],
    rows: &mut TrieRows,
) -> Result<bool, RangeError> {
    let mut leaves = Leaves::with_room_for(accounts.len());
    for (key, account) in accounts {
        leaves.bytes.extend_from_slice(&account.to_leaf());
        leaves.end(key);
    }
    leaves.verify(&None, root, keys, proof, rows)
}

/// As [`verify_accounts`], of the slots of an account, given by its hashed address, whose storage has this root, by hashed slot.
///
/// # Errors
/// [`RangeError`]: then nothing is proven, and `rows` are of no use.
pub fn verify_slots(
    account: B256,
    storage_root: B256,
    keys: KeyRange,
    slots: &[(B256, U256)],
    proof: &[Bytes],
    rows: &mut TrieRows,
) -> Result<bool, RangeError> {
    let mut leaves = Leaves::with_room_for(slots.len());
    for (key, value) in slots {
        encode_slot_to(value, &mut leaves.bytes);
        leaves.end(key);
    }
    leaves.verify(&Some(account), storage_root, keys, proof, rows)
}

/// Leaves of a trie.
struct Leaves {
    /// Their values, one after the other.
    bytes: Vec<u8>,
    /// Their keys, and where their values end.
    ends: Vec<(B256, usize)>,
}

impl Leaves {
    fn with_room_for(count: usize) -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
        }
    }

    /// The value of the leaf with this key ends here.
    fn end(&mut self, key: &B256) {
        self.ends.push((*key, self.bytes.len()));
    }

    fn verify(
        &self,
        owner: &Owner,
        root: B256,
        keys: KeyRange,
        proof: &[Bytes],
        rows: &mut TrieRows,
    ) -> Result<bool, RangeError> {
        let mut start = 0;
        let leaves = self.ends.iter().map(|(key, end)| {
            let value = &self.bytes[start..*end];
            start = *end;
            (*key, value)
        });
        let leaves: Vec<(B256, &[u8])> = leaves.collect();
        let mut put = |path: &Path, row: &[u8]| {
            let (segment, key) = row_key(owner, path);
            rows.0.put_parts(segment, &key, &[row]);
        };
        verify_range(root, keys.first..=keys.last, &leaves, proof, &mut put)
    }
}
