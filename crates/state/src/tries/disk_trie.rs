//! The tries as the disk keeps them: inner nodes by path, leaves in the flat segments.
//!
//! There is no row for a leaf. A branch knows the hash of each child that is a leaf; the leaf itself is built
//! from the one flat row whose hashed key begins with the child's path:
//!
//! ```text
//! account_trie  path 3 1        branch, child a is a leaf with hash 0x9c..
//! accounts      keys 31a...     the only row in this range; its leaf must hash to 0x9c..
//! ```

use crate::commit::flat::{account_of_row, value_of_row};
use crate::commit::hashed_diff::HashedDiff;
use alloy_primitives::{hex, keccak256};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::map::B256Map;
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Database, Segment, Snapshot, corrupt};
use niwaki_trie::{Node, Owner, Path, TrieView, encode_slot};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Leaves by their hash, which is all that they depend on: those at which an absent key may be inserted.
pub(crate) type LeafCache = B256Map<Node>;

/// The segment and key, in parts, of the row at `path` of `owner`'s trie.
pub(crate) fn row_key<'a>(owner: &'a Owner, path: &'a Path) -> (Segment, [&'a [u8]; 2]) {
    match owner {
        None => (Segment::AccountTrie, [&[], path.as_slice()]),
        Some(owner) => (Segment::StorageTrie, [owner.as_slice(), path.as_slice()]),
    }
}

/// Where the rows of the head are read from.
#[derive(Clone, Copy)]
pub(crate) enum RowSource<'a> {
    /// From the database as it is; the head must not move in the meantime.
    Latest(&'a Database),
    /// As they were at a snapshot.
    Snapshot(&'a Snapshot),
    /// As they were at a snapshot, but for these.
    Overlaid(&'a NodeRows, &'a Snapshot),
}

/// Rows of trie nodes of another state than that of the disk.
#[derive(Debug, Default)]
pub(crate) struct NodeRows {
    accounts: RowsByKey,
    storage: RowsByKey,
    bytes: usize,
}

/// `None` where there is no node.
type RowsByKey = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

impl NodeRows {
    /// What an update of the tries has set and removed.
    pub(crate) fn of(batch: &Batch) -> Self {
        const ENTRY_BYTES: usize = 64;
        let mut rows = Self::default();
        for (segment, key, row) in batch.changes() {
            rows.bytes += key.len() + row.map_or(0, <[u8]>::len) + ENTRY_BYTES;
            let of_segment = match segment {
                Segment::AccountTrie => &mut rows.accounts,
                _ => &mut rows.storage,
            };
            of_segment.insert(key.into(), row.map(Box::from));
        }
        rows
    }

    /// About what they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, segment: Segment, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let rows = match segment {
            Segment::AccountTrie => &self.accounts,
            _ => &self.storage,
        };
        let row = rows.get(key)?;
        Some(row.as_ref().map(|row| row.to_vec()))
    }
}

impl RowSource<'_> {
    fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Latest(database) => database.get(segment, key),
            Self::Snapshot(snapshot) => snapshot.get(segment, key),
            Self::Overlaid(rows, snapshot) => match rows.get(segment, key) {
                Some(row) => Ok(row),
                None => snapshot.get(segment, key),
            },
        }
    }

    fn multi_get(&self, segment: Segment, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        match self {
            Self::Latest(database) => database.multi_get(segment, keys),
            Self::Snapshot(snapshot) => snapshot.multi_get(segment, keys),
            Self::Overlaid(..) => keys.iter().map(|key| self.get(segment, key)).collect(),
        }
    }

    fn range(
        &self,
        segment: Segment,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> niwaki_storage::RowIter<'_> {
        match self {
            Self::Latest(database) => database.range(segment, from, to),
            Self::Snapshot(snapshot) | Self::Overlaid(_, snapshot) => {
                snapshot.range(segment, from, to)
            }
        }
    }
}

/// The tries of the head on disk. Inner nodes are the head's; leaves may also be those of a state that is
/// `offset` away from the head's.
pub(crate) struct DiskTrie<'a> {
    rows: RowSource<'a>,
    /// From the head to the other state, step by step.
    offset: &'a [Arc<HashedDiff>],
    /// Leaves that were read before.
    known: Option<&'a LeafCache>,
    nodes_read: AtomicU64,
}

impl<'a> DiskTrie<'a> {
    pub(crate) fn new(rows: RowSource<'a>, offset: &'a [Arc<HashedDiff>]) -> Self {
        Self {
            rows,
            offset,
            known: None,
            nodes_read: AtomicU64::new(0),
        }
    }

    /// Looks among `known` leaves first.
    pub(crate) fn with_known_leaves(self, known: &'a LeafCache) -> Self {
        let known = Some(known);
        Self { known, ..self }
    }

    /// How many nodes were read through here, leaves among them.
    pub(crate) fn nodes_read(&self) -> u64 {
        self.nodes_read.load(Ordering::Relaxed)
    }

    fn count_reads(&self, count: usize) {
        // A statistic: no other memory is published by it.
        self.nodes_read.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// As [`TrieView::node`], of many, in their order: one multi-get per segment, one keccak batch.
    pub(crate) fn nodes(
        &self,
        requested: &[(Owner, Path, B256)],
    ) -> Result<Vec<Option<Node>>, Fault> {
        self.count_reads(requested.len());
        let keys = requested.iter().map(|(owner, path, _)| {
            let (segment, key) = row_key(owner, path);
            (segment, key.concat())
        });
        let keys: Vec<(Segment, Vec<u8>)> = keys.collect();
        let mut rows: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        for segment in [Segment::AccountTrie, Segment::StorageTrie] {
            let own = || (0_usize..).zip(&keys).filter(|(_, key)| key.0 == segment);
            let own_keys: Vec<&[u8]> = own().map(|(_, key)| &key.1[..]).collect();
            if own_keys.is_empty() {
                continue;
            }
            let found = self.rows.multi_get(segment, &own_keys)?;
            for ((at, _), row) in own().zip(found) {
                rows[at] = row;
            }
        }
        let hashed = rows.iter().flatten().map(|row| node_rlp(row));
        let mut hashes = keccak256_batch(&hashed.collect::<Vec<_>>()).into_iter();
        let nodes = rows.iter().zip(&keys).zip(requested);
        nodes
            .map(|((row, (segment, key)), (_, _, hash))| {
                let Some(row) = row else {
                    return Ok(None);
                };
                let actual = hashes.next().unwrap_or_default();
                decode_node(*segment, key, row, &actual, hash).map(Some)
            })
            .collect()
    }

    /// Looks for the leaf below `path` that hashes to `hash` among what the offset changes.
    fn leaf_in_offset(&self, owner: &Owner, path: &Path, hash: &B256) -> Option<Node> {
        // Of several versions of the leaf only the valid one has this hash.
        let mut steps = self.offset.iter().rev();
        steps.find_map(|diff| leaf_in_diff(diff, owner, path, hash))
    }
}

/// Looks for the leaf below `path` that hashes to `hash` in the second state of `diff`.
fn leaf_in_diff(diff: &HashedDiff, owner: &Owner, path: &Path, hash: &B256) -> Option<Node> {
    let first = path.packed();
    let is_below = |key: &Path| key.as_slice().starts_with(path.as_slice());
    let found = |key: Path, value: Vec<u8>| leaf_of(key, path, value, hash);
    match owner {
        None => {
            let accounts = &diff.accounts;
            let start = accounts.partition_point(|account| account.key[..] < first[..]);
            let accounts = accounts[start..].iter();
            accounts
                .map(|account| (Path::of_hash(&account.key), account.new))
                .take_while(|(key, _)| is_below(key))
                .find_map(|(key, new)| found(key, new?.to_leaf()))
        }
        Some(owner) => {
            let slots = &diff.account(owner)?.slots;
            let start = slots.partition_point(|slot| slot.key[..] < first[..]);
            let slots = slots[start..].iter();
            slots
                .map(|slot| (Path::of_hash(&slot.key), slot.new))
                .take_while(|(key, _)| is_below(key))
                .filter(|(_, new)| !new.is_zero())
                .find_map(|(key, new)| found(key, encode_slot(&new)))
        }
    }
}

impl TrieView for DiskTrie<'_> {
    fn node(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault> {
        self.count_reads(1);
        let (segment, key) = row_key(owner, path);
        let key = key.concat();
        let Some(row) = self.rows.get(segment, &key)? else {
            return Ok(None);
        };
        node_of(segment, &key, &row, hash).map(Some)
    }

    fn leaf(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Node, Fault> {
        let known = self.known.and_then(|known| known.get(hash));
        if let Some(leaf) = known
            .cloned()
            .or_else(|| self.leaf_in_offset(owner, path, hash))
        {
            return Ok(leaf);
        }
        self.count_reads(1);
        let (segment, from, to) = range_below(owner, path);
        let mut last = None;
        for row in self.rows.range(segment, &from, to.as_deref()) {
            let (key, value) = row?;
            let (own_key, value) = leaf_of_row(owner, &key, &value)?;
            if let Some(leaf) = leaf_of(own_key, path, value, hash) {
                return Ok(leaf);
            }
            last = Some(key);
        }
        Err(match last {
            Some(key) => corrupt(segment, &key, "it does not hash to what the trie names"),
            None => Fault::Missing {
                segment: segment.name(),
                key: format!("{} (a leaf below path {path})", hex::encode(&from)),
            },
        })
    }
}

/// The flat segment that has the leaves of `owner`'s trie, and the range of those at or below
/// `path`.
pub(crate) fn range_below(owner: &Owner, path: &Path) -> (Segment, Vec<u8>, Option<Vec<u8>>) {
    let (segment, prefix) = match owner {
        None => (Segment::Accounts, &[][..]),
        Some(owner) => (Segment::Slots, owner.as_slice()),
    };
    let key = |path: Path| [prefix, &path.packed()].concat();
    let to = path.next().map(key);
    let next_owner = || Path::of_hash(&(*owner)?).next().map(|next| next.packed());
    (segment, key(*path), to.or_else(next_owner))
}

/// The leaf of `owner`'s trie that a flat row gives: its key and value.
pub(crate) fn leaf_of_row(
    owner: &Owner,
    key: &[u8],
    value: &[u8],
) -> Result<(Path, Vec<u8>), Fault> {
    let (segment, owner_bytes) = match owner {
        None => (Segment::Accounts, 0),
        Some(owner) => (Segment::Slots, owner.len()),
    };
    let own_key = key.get(owner_bytes..).and_then(Path::of_key);
    let own_key = own_key.filter(|own_key| own_key.len() == Path::MAX);
    let own_key = own_key.ok_or_else(|| corrupt(segment, key, "its key has another length"))?;
    let value = match owner {
        None => account_of_row(key, value)?.to_leaf(),
        Some(_) => encode_slot(&value_of_row(key, value)?),
    };
    Ok((own_key, value))
}

/// The node of the row at `key`, which must hash to `hash`.
pub(crate) fn node_of(
    segment: Segment,
    key: &[u8],
    row: &[u8],
    hash: &B256,
) -> Result<Node, Fault> {
    decode_node(segment, key, row, &keccak256(node_rlp(row)), hash)
}

/// The RLP in a node's row, which is what is hashed.
pub(crate) fn node_rlp(row: &[u8]) -> &[u8] {
    row.get(2..).unwrap_or_default()
}

/// As [`node_of`], of a row whose `actual` hash is known already.
fn decode_node(
    segment: Segment,
    key: &[u8],
    row: &[u8],
    actual: &B256,
    expected: &B256,
) -> Result<Node, Fault> {
    if actual != expected {
        let reason = "it does not hash to what its parent names";
        return Err(corrupt(segment, key, reason));
    }
    Node::from_row(row).map_err(|error| corrupt(segment, key, error))
}

/// The leaf of `key` and `value` below `path`, if it hashes to `hash`.
pub(crate) fn leaf_of(key: Path, path: &Path, value: Vec<u8>, hash: &B256) -> Option<Node> {
    let node = Node::Leaf {
        path: key.skip(path.len()),
        value,
    };
    let mut rlp = Vec::new();
    node.encode(&mut rlp);
    (keccak256(&rlp) == *hash).then_some(node)
}
