//! The tries as the disk keeps them: inner nodes by path, leaves in the flat segments.

use crate::changes::Changes;
use crate::flat::{decode_account, decode_value};
use crate::tries::Leaves;
use alloy_primitives::{hex, keccak256};
use niwaki_crypto::keccak256_batch;
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Database, Segment, Snapshot};
use niwaki_trie::{Node, Owner, Path, TrieView, encode_slot};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The segment and key, in parts, of the row at `path` of `owner`'s trie.
pub(crate) fn row_key<'a>(owner: &'a Owner, path: &'a Path) -> (Segment, [&'a [u8]; 2]) {
    match owner {
        None => (Segment::AccountTrie, [&[], path.as_slice()]),
        Some(owner) => (Segment::StorageTrie, [owner.as_slice(), path.as_slice()]),
    }
}

/// Where the rows of the head are read.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a> {
    /// As they are; the head must not move meanwhile.
    Now(&'a Database),
    /// As they were at one moment.
    At(&'a Snapshot),
}

impl Rows<'_> {
    fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Now(database) => database.get(segment, key),
            Self::At(snapshot) => snapshot.get(segment, key),
        }
    }

    fn multi_get(&self, segment: Segment, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        match self {
            Self::Now(database) => database.multi_get(segment, keys),
            Self::At(snapshot) => snapshot.multi_get(segment, keys),
        }
    }

    fn range(&self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> niwaki_storage::Rows<'_> {
        match self {
            Self::Now(database) => database.range(segment, from, to),
            Self::At(snapshot) => snapshot.range(segment, from, to),
        }
    }
}

/// The tries of the head as the disk keeps them. Nodes are the head's; leaves may also be those of
/// a state that differs from it.
pub(crate) struct DiskTrie<'a> {
    rows: Rows<'a>,
    /// From the head to the other state, step by step.
    ahead: &'a [Arc<Changes>],
    /// Leaves that were looked up before.
    known: Option<&'a Leaves>,
    nodes_read: AtomicU64,
}

impl<'a> DiskTrie<'a> {
    pub(crate) fn new(rows: Rows<'a>, ahead: &'a [Arc<Changes>]) -> Self {
        Self {
            rows,
            ahead,
            known: None,
            nodes_read: AtomicU64::new(0),
        }
    }

    /// The same, which looks among `known` leaves first.
    pub(crate) fn knowing(self, known: &'a Leaves) -> Self {
        let known = Some(known);
        Self { known, ..self }
    }

    /// How many nodes were read through here, leaves among them.
    pub(crate) fn nodes_read(&self) -> u64 {
        self.nodes_read.load(Ordering::Relaxed)
    }

    fn count_reads(&self, count: usize) {
        // A figure: no other memory hangs on it.
        self.nodes_read.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// As [`TrieView::node`], of many, in their order: one look-up for each segment.
    pub(crate) fn nodes(&self, wanted: &[(Owner, Path, B256)]) -> Result<Vec<Option<Node>>, Fault> {
        self.count_reads(wanted.len());
        let keys = wanted.iter().map(|(owner, path, _)| {
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
        let hashed = rows.iter().flatten().map(|row| hashed_part(row));
        let mut hashes = keccak256_batch(&hashed.collect::<Vec<_>>()).into_iter();
        let nodes = rows.iter().zip(&keys).zip(wanted);
        nodes
            .map(|((row, (segment, key)), (_, _, hash))| {
                let Some(row) = row else {
                    return Ok(None);
                };
                let is = hashes.next().unwrap_or_default();
                node_with(*segment, key, row, (is, hash)).map(Some)
            })
            .collect()
    }

    /// Looks for the leaf below `path` that hashes to `hash` among what differs from the head.
    fn leaf_ahead(&self, owner: &Owner, path: &Path, hash: &B256) -> Option<Node> {
        // Of the same leaf at several steps only the one that holds has this hash.
        let mut steps = self.ahead.iter().rev();
        steps.find_map(|changes| leaf_among(changes, owner, path, hash))
    }
}

/// Looks for the leaf below `path` that hashes to `hash` in the second state of `changes`.
fn leaf_among(changes: &Changes, owner: &Owner, path: &Path, hash: &B256) -> Option<Node> {
    let first = path.packed();
    let is_below = |key: &Path| key.as_slice().starts_with(path.as_slice());
    let found = |key: Path, value: Vec<u8>| leaf_of(key, path, value, hash);
    match owner {
        None => {
            let accounts = &changes.accounts;
            let start = accounts.partition_point(|account| account.key[..] < first[..]);
            let accounts = accounts[start..].iter();
            accounts
                .map(|account| (Path::of_hash(&account.key), account.new))
                .take_while(|(key, _)| is_below(key))
                .find_map(|(key, new)| found(key, new?.to_leaf()))
        }
        Some(owner) => {
            let slots = &changes.account(owner)?.slots;
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
            .or_else(|| self.leaf_ahead(owner, path, hash))
        {
            return Ok(leaf);
        }
        self.count_reads(1);
        let (segment, from, to) = range_below(owner, path);
        let owner_bytes = owner.map_or(0, |owner| owner.len());
        let mut last = None;
        for row in self.rows.range(segment, &from, to.as_deref()) {
            let (key, value) = row?;
            let own_key = key.get(owner_bytes..).and_then(Path::of_key);
            let own_key = own_key.filter(|own| own.as_slice().starts_with(path.as_slice()));
            let own_key = own_key.ok_or_else(|| corrupt(segment, &key, "its key is too long"))?;
            let value = match owner {
                None => decode_account(&value)
                    .map(|account| account.to_leaf())
                    .map_err(|error| corrupt(segment, &key, &error.to_string()))?,
                Some(_) => decode_value(&value)
                    .map(|value| encode_slot(&value))
                    .map_err(|reason| corrupt(segment, &key, reason))?,
            };
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

/// The node of `row`, which stands at `key` and must hash to `hash`.
pub(crate) fn node_of(
    segment: Segment,
    key: &[u8],
    row: &[u8],
    hash: &B256,
) -> Result<Node, Fault> {
    node_with(segment, key, row, (keccak256(hashed_part(row)), hash))
}

/// The part of a node's row that its hash is made of.
fn hashed_part(row: &[u8]) -> &[u8] {
    row.get(2..).unwrap_or_default()
}

/// As [`node_of`], of a row whose hash is made already: it `is` one, and must be the other.
fn node_with(
    segment: Segment,
    key: &[u8],
    row: &[u8],
    (is, hash): (B256, &B256),
) -> Result<Node, Fault> {
    if is != *hash {
        let reason = "it does not hash to what its parent names";
        return Err(corrupt(segment, key, reason));
    }
    Node::from_row(row).map_err(|error| corrupt(segment, key, &error.to_string()))
}

/// The leaf of `key` and `value` as it stands at `path`, if that hashes to `hash`.
pub(crate) fn leaf_of(key: Path, path: &Path, value: Vec<u8>, hash: &B256) -> Option<Node> {
    let node = Node::Leaf {
        path: key.skip(path.len()),
        value,
    };
    let mut rlp = Vec::new();
    node.encode(&mut rlp);
    (keccak256(&rlp) == *hash).then_some(node)
}

/// The fault of a row whose bytes are not what was written.
pub(crate) fn corrupt(segment: Segment, key: &[u8], reason: &str) -> Fault {
    Fault::Corrupt {
        segment: segment.name(),
        key: hex::encode(key),
        reason: reason.to_owned(),
    }
}
