//! The accumulator: the root that commits to the blocks of an archive, in ERA1 and Ere files.
//!
//! Spec: `hash_tree_root(List[HeaderRecord, 8192])` of SSZ, a record being the block's hash and its
//! total difficulty (ethereum/portal-network-specs, `header-record-accumulator`).

use niwaki_crypto::sha256;
use niwaki_primitives::{B256, U256};

/// The list's limit is 8192 records, so its tree has 13 levels.
const LEVELS: usize = 13;

/// The root over blocks as (hash, total difficulty), at most 8192 of them.
pub fn header_accumulator(records: impl Iterator<Item = (B256, U256)>) -> B256 {
    let mut level: Vec<B256> = records
        .map(|(hash, total)| pair(&hash, &B256::from(total.to_le_bytes())))
        .collect();
    let count = level.len();
    let mut absent = B256::ZERO;
    for _ in 0..LEVELS {
        level = level
            .chunks(2)
            .map(|nodes| pair(&nodes[0], nodes.get(1).unwrap_or(&absent)))
            .collect();
        absent = pair(&absent, &absent);
    }
    let root = level.first().unwrap_or(&absent);
    pair(root, &B256::from(U256::from(count).to_le_bytes()))
}

fn pair(left: &B256, right: &B256) -> B256 {
    sha256(&[left.as_slice(), right.as_slice()].concat())
}
