//! The tries as the disk keeps them: inner nodes by path, leaves in the flat segments.

use crate::cache::node_bytes;
use crate::flat::{decode_account, decode_value};
use crate::view::View;
use alloy_primitives::{hex, keccak256};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::Segment;
use niwaki_trie::{Node, Owner, Path, TrieView, encode_slot};
use std::sync::Arc;

/// The segment and key of the row at `path` of `owner`'s trie.
pub(crate) fn row_key(owner: &Owner, path: &Path) -> (Segment, Vec<u8>) {
    match owner {
        None => (Segment::AccountTrie, path.as_slice().to_vec()),
        Some(owner) => {
            let key = [owner.as_slice(), path.as_slice()].concat();
            (Segment::StorageTrie, key)
        }
    }
}

/// The tries of the head, read through a view of it.
pub(crate) struct DiskTrie<'a>(pub(crate) &'a View<'a>);

impl TrieView for DiskTrie<'_> {
    fn node(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Option<Node>, Fault> {
        let held = self.0.caches().of_node(owner, path, self.0.version());
        let held = held.and_then(|mut shard| {
            let node = shard.nodes.with(&(*owner, *path), node_bytes, Clone::clone);
            drop(shard);
            node
        });
        if let Some(node) = held {
            return Ok(node.map(|node| Node::clone(&node)));
        }
        let (segment, key) = row_key(owner, path);
        let row = self.0.snapshot().get(segment, &key)?;
        // Rows from the disk are checked once, nodes from the cache never again.
        if let Some(row) = &row
            && keccak256(row.get(2..).unwrap_or_default()) != *hash
        {
            return Err(corrupt(
                segment,
                &key,
                "it does not hash to what its parent names",
            ));
        }
        let decode = |row: &[u8]| {
            Node::from_row(row).map_err(|error| corrupt(segment, &key, &error.to_string()))
        };
        let node = row.as_deref().map(decode).transpose()?;
        if let Some(mut shard) = self.0.caches().of_node(owner, path, self.0.version()) {
            let node = node.clone().map(Arc::new);
            let bytes = node_bytes(&node);
            shard.nodes.insert((*owner, *path), node, bytes);
        }
        Ok(node)
    }

    fn leaf(&self, owner: &Owner, path: &Path, hash: &B256) -> Result<Node, Fault> {
        let packed = path.packed();
        let (segment, prefix) = match owner {
            None => (Segment::Accounts, packed),
            Some(owner) => (Segment::Slots, [owner.as_slice(), &packed].concat()),
        };
        let missing = || Fault::Missing {
            segment: segment.name(),
            key: format!("{} (a leaf below path {path})", hex::encode(&prefix)),
        };
        let row = self.0.snapshot().range(segment, &prefix, None).next();
        let (key, value) = row.transpose()?.ok_or_else(missing)?;
        let own_key = match owner {
            None => &key[..],
            Some(owner) => key.strip_prefix(owner.as_slice()).ok_or_else(missing)?,
        };
        let full = Path::of_key(own_key).ok_or_else(missing)?;
        if !full.as_slice().starts_with(path.as_slice()) {
            return Err(missing());
        }
        let value = match owner {
            None => decode_account(&value)
                .map(|account| account.to_leaf())
                .map_err(|error| corrupt(segment, &key, &error.to_string()))?,
            Some(_) => decode_value(&value)
                .map(|value| encode_slot(&value))
                .map_err(|reason| corrupt(segment, &key, reason))?,
        };
        let node = Node::Leaf {
            path: full.skip(path.len()),
            value,
        };
        let mut rlp = Vec::new();
        node.encode(&mut rlp);
        if keccak256(&rlp) != *hash {
            return Err(corrupt(
                segment,
                &key,
                "it does not hash to what the trie names",
            ));
        }
        Ok(node)
    }
}

/// The fault of a row whose bytes are not what was written.
pub(crate) fn corrupt(segment: Segment, key: &[u8], reason: &str) -> Fault {
    Fault::Corrupt {
        segment: segment.name(),
        key: hex::encode(key),
        reason: reason.to_owned(),
    }
}
