//! Roots of lists: transactions, receipts, withdrawals. The key of an item is the RLP of its index.

use crate::{
    LeafUpdate, Node, Owner, Path, Trie, TrieUpdate, TrieView, UpdateOptions, update_tries,
};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};
use std::ops::Range;

/// The root of the trie of `items`. `encode` appends the bytes of an item to the buffer.
///
/// Spec: Yellow Paper, equation 33; execution-specs `blocks.py`, the three tries of a block.
pub fn ordered_root<T>(items: &[T], encode: impl FnMut(&T, &mut Vec<u8>)) -> B256 {
    let mut trie = OrderedTrie::default();
    trie.extend(items, encode);
    trie.root()
}

/// The trie of a list that grows; see [`ordered_root`].
#[derive(Debug)]
pub struct OrderedTrie {
    trie: Trie,
    items: Items,
}

/// The items so far.
#[derive(Debug, Default)]
struct Items {
    /// The bytes of items that were added together.
    chunks: Vec<Vec<u8>>,
    spans: Vec<ItemSpan>,
}

/// Where the bytes of an item are.
#[derive(Debug)]
struct ItemSpan {
    key: Path,
    chunk: usize,
    range: Range<usize>,
}

/// Room for an item: receipts of `niwaki-bench gen-chain` have 478 bytes in the mean, transactions 216.
const ITEM_BYTES: usize = 512;

impl Items {
    fn bytes(&self, span: &ItemSpan) -> &[u8] {
        &self.chunks[span.chunk][span.range.clone()]
    }
}

impl Default for OrderedTrie {
    fn default() -> Self {
        Self {
            trie: Trie::new(EMPTY_ROOT_HASH),
            items: Items::default(),
        }
    }
}

impl OrderedTrie {
    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.spans.is_empty()
    }

    /// Appends items. `encode` appends the bytes of an item to the buffer.
    pub fn extend<T>(&mut self, items: &[T], mut encode: impl FnMut(&T, &mut Vec<u8>)) {
        if items.is_empty() {
            return;
        }
        let first = self.len();
        let Items { chunks, spans } = &mut self.items;
        let mut bytes = Vec::with_capacity(ITEM_BYTES * items.len());
        spans.reserve(items.len());
        for index in in_key_order(first..first + items.len()) {
            let key =
                Path::of_key(&alloy_rlp::encode(index)).expect("the RLP of an index is short");
            let start = bytes.len();
            encode(&items[index - first], &mut bytes);
            let range = start..bytes.len();
            let chunk = chunks.len();
            spans.push(ItemSpan { key, chunk, range });
        }
        chunks.push(bytes);
        let items = &self.items;
        let leaf = |span: &ItemSpan| LeafUpdate {
            key: span.key,
            value: Some(items.bytes(span)),
            replaces: false,
        };
        let leaves: Vec<LeafUpdate<'_>> = items.spans[first..].iter().map(leaf).collect();
        let update = TrieUpdate {
            owner: None,
            trie: &mut self.trie,
            leaves: &leaves,
        };
        let (threads, clock) = (1, 0);
        let no_rows = |(): &mut (), _: &Owner, _: &Path, _: Option<&[u8]>| {};
        update_tries(
            items,
            vec![update],
            UpdateOptions { threads, clock },
            &no_rows,
        )
        .expect("all inner nodes are in memory, all leaves among the items");
    }

    /// The root of the trie of all items so far.
    pub fn root(&self) -> B256 {
        self.trie.root()
    }
}

/// Indices in the order of their keys: the RLP of 0 is 0x80, between that of 127 and that of 128; all others ascend.
fn in_key_order(indices: Range<usize>) -> impl Iterator<Item = usize> {
    let Range { start, end } = indices;
    let zero = 0..usize::from(start == 0 && end > 0);
    (start.max(1)..end.min(0x80))
        .chain(zero)
        .chain(start.max(0x80)..end)
}

/// The nodes that are not in the trie's memory: leaves that were added earlier.
impl TrieView for Items {
    fn node(&self, _: &Owner, _: &Path, _: &B256) -> Result<Option<Node>, Fault> {
        Ok(None)
    }

    fn leaf(&self, _: &Owner, path: &Path, _: &B256) -> Result<Node, Fault> {
        let is_below = |key: &Path| key.as_slice().starts_with(path.as_slice());
        let found = self.spans.iter().find(|span| is_below(&span.key));
        let span = found.ok_or_else(|| Fault::Missing {
            segment: "list",
            key: path.to_string(),
        })?;
        Ok(Node::Leaf {
            path: span.key.skip(path.len()),
            value: self.bytes(span).to_vec(),
        })
    }
}
