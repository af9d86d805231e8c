//! Roots of lists: transactions, receipts, withdrawals.

use crate::{LeafUpdate, Node, Owner, Path, Trie, TrieUpdate, TrieView, Work, update_tries};
use alloy_primitives::B256;
use niwaki_primitives::{EMPTY_ROOT_HASH, Fault};
use std::ops::Range;

/// The root of the trie that holds each item's bytes under the RLP of its index. `encode` appends
/// the bytes of an item to what is there.
///
/// Spec: Yellow Paper, equation 33; execution-specs `blocks.py`, the three tries of a block.
pub fn ordered_root<T>(items: &[T], encode: impl FnMut(&T, &mut Vec<u8>)) -> B256 {
    let mut trie = OrderedTrie::default();
    trie.extend(items, encode);
    trie.root()
}

/// The trie of a list whose items come one after the other; see [`ordered_root`].
#[derive(Debug)]
pub struct OrderedTrie {
    trie: Trie,
    items: Items,
}

/// The items that are there.
#[derive(Debug, Default)]
struct Items {
    /// The bytes of items that came together, one after the other.
    lots: Vec<Vec<u8>>,
    places: Vec<Place>,
}

/// An item's key, its lot, and where it stands in there.
type Place = (Path, usize, Range<usize>);

/// Room for an item: receipts of `niwaki-bench gen-chain` have 478 bytes in the mean, transactions 216.
const ITEM_BYTES: usize = 512;

impl Items {
    fn bytes(&self, (_, lot, range): &Place) -> &[u8] {
        &self.lots[*lot][range.clone()]
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
    /// How many items are there.
    pub fn len(&self) -> usize {
        self.items.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.places.is_empty()
    }

    /// Adds items behind those that are there. `encode` appends the bytes of one to what is there.
    pub fn extend<T>(&mut self, items: &[T], mut encode: impl FnMut(&T, &mut Vec<u8>)) {
        if items.is_empty() {
            return;
        }
        let first = self.len();
        let Items { lots, places } = &mut self.items;
        let mut bytes = Vec::with_capacity(ITEM_BYTES * items.len());
        places.reserve(items.len());
        for index in in_order(first..first + items.len()) {
            let key =
                Path::of_key(&alloy_rlp::encode(index)).expect("the RLP of an index is short");
            let start = bytes.len();
            encode(&items[index - first], &mut bytes);
            places.push((key, lots.len(), start..bytes.len()));
        }
        lots.push(bytes);
        let items = &self.items;
        let leaf = |place: &Place| LeafUpdate {
            key: place.0,
            value: Some(items.bytes(place)),
            replaces: false,
        };
        let leaves: Vec<LeafUpdate<'_>> = items.places[first..].iter().map(leaf).collect();
        let update = TrieUpdate {
            owner: None,
            trie: &mut self.trie,
            leaves: &leaves,
        };
        let (threads, clock) = (1, 0);
        let no_rows = |(): &mut (), _: &Owner, _: &Path, _: Option<&[u8]>| {};
        update_tries(items, vec![update], Work { threads, clock }, &no_rows)
            .expect("all inner nodes are in memory, all leaves among the items");
    }

    /// The root of the trie of what is there.
    pub fn root(&self) -> B256 {
        self.trie.root()
    }
}

/// Indices by their keys: the RLP of 0 is 0x80, between that of 127 and that of 128; from there on it ascends.
fn in_order(indices: Range<usize>) -> impl Iterator<Item = usize> {
    let Range { start, end } = indices;
    let zero = 0..usize::from(start == 0 && end > 0);
    (start.max(1)..end.min(0x80))
        .chain(zero)
        .chain(start.max(0x80)..end)
}

/// What is not in the trie's memory: leaves that were there before others.
impl TrieView for Items {
    fn node(&self, _: &Owner, _: &Path, _: &B256) -> Result<Option<Node>, Fault> {
        Ok(None)
    }

    fn leaf(&self, _: &Owner, path: &Path, _: &B256) -> Result<Node, Fault> {
        let is_below = |key: &Path| key.as_slice().starts_with(path.as_slice());
        let found = self.places.iter().find(|(key, ..)| is_below(key));
        let place = found.ok_or_else(|| Fault::Missing {
            segment: "list",
            key: path.to_string(),
        })?;
        Ok(Node::Leaf {
            path: place.0.skip(path.len()),
            value: self.bytes(place).to_vec(),
        })
    }
}
