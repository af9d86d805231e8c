//! Roots of lists: transactions, receipts, withdrawals.

use crate::{Path, TrieBuilder};
use alloy_primitives::B256;

/// The root of the trie that holds each item's bytes under the RLP of its index. `encode` appends
/// the bytes of an item to an empty buffer.
///
/// Spec: Yellow Paper, equation 33; execution-specs `blocks.py`, the three tries of a block.
pub fn ordered_root<T>(items: &[T], mut encode: impl FnMut(&T, &mut Vec<u8>)) -> B256 {
    let mut no_rows = |_: &Path, _: &[u8]| {};
    let mut builder = TrieBuilder::new(&mut no_rows);
    let mut add = |index: usize| {
        let key = Path::of_key(&alloy_rlp::encode(index)).expect("the RLP of an index is short");
        let mut value = Vec::new();
        encode(&items[index], &mut value);
        builder.add(key, value);
    };
    // The RLP of 0 is 0x80, between that of 127 and that of 128; from there on it ascends.
    let small = items.len().min(0x80);
    (1..small).for_each(&mut add);
    (0..items.len().min(1)).for_each(&mut add);
    (small.max(1)..items.len()).for_each(&mut add);
    builder.finish()
}
