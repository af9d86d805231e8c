//! Roots of lists: transactions, receipts, withdrawals.

use crate::{LeafUpdate, Node, Owner, Path, Trie, TrieUpdate, TrieView, Work, update_tries};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};

/// The root of the trie that holds each item's bytes under the RLP of its index. `encode` appends
/// the bytes of an item to what is there.
///
/// Spec: Yellow Paper, equation 33; execution-specs `blocks.py`, the three tries of a block.
pub fn ordered_root<T>(items: &[T], mut encode: impl FnMut(&T, &mut Vec<u8>)) -> B256 {
    // The RLP of 0 is 0x80, between that of 127 and that of 128; from there on it ascends.
    let small = items.len().min(0x80);
    let zero = 0..items.len().min(1);
    let order = (1..small).chain(zero).chain(small.max(1)..items.len());

    let (mut bytes, mut keys) = (Vec::new(), Vec::with_capacity(items.len()));
    for index in order {
        let key = Path::of_key(&alloy_rlp::encode(index)).expect("the RLP of an index is short");
        let start = bytes.len();
        encode(&items[index], &mut bytes);
        keys.push((key, start..bytes.len()));
    }
    let leaf = |(key, value): (Path, std::ops::Range<usize>)| LeafUpdate {
        key,
        value: Some(&bytes[value]),
        replaces: false,
    };
    let leaves: Vec<LeafUpdate<'_>> = keys.into_iter().map(leaf).collect();
    let mut trie = Trie::new(EMPTY_ROOT_HASH);
    let update = TrieUpdate {
        owner: None,
        trie: &mut trie,
        leaves: &leaves,
    };
    let (threads, clock) = (1, 0);
    let no_rows = |(): &mut (), _: &Owner, _: &Path, _: Option<&[u8]>| {};
    update_tries(&Nothing, vec![update], Work { threads, clock }, &no_rows)
        .expect("nothing is read below an empty root");
    trie.root()
}

/// What lies below an empty root.
#[derive(Debug)]
struct Nothing;

impl TrieView for Nothing {
    fn node(&self, _: &Owner, _: &Path, _: &B256) -> Result<Option<Node>, Fault> {
        Ok(None)
    }

    fn leaf(&self, _: &Owner, path: &Path, _: &B256) -> Result<Node, Fault> {
        Err(Fault::Missing {
            segment: "empty trie",
            key: path.to_string(),
        })
    }
}
