//! Blob pool: the sidecars of pending and of recently included transactions, and their blobs by versioned hash.
//!
//! A sidecar is kept while its transaction is in the pool. After a block has included the transaction, the sidecar
//! stays for `engine_getBlobs` and for reorganizations, within `included_blob_bytes`; the oldest go first.

use crate::cells::CellCache;
use crate::sidecar::{PooledBlob, Sidecar, sidecar_bytes};
use niwaki_primitives::{B256, map::HashMap};
use std::collections::VecDeque;
use std::sync::Arc;

/// Sidecars by transaction, blobs by versioned hash.
#[derive(Debug, Default)]
pub(crate) struct BlobStore {
    sidecars: HashMap<B256, StoredSidecar>,
    by_versioned_hash: HashMap<B256, Vec<(B256, usize)>>,
    /// Included transactions, oldest first; entries of transactions that came back are stale.
    included: VecDeque<(B256, u64)>,
    included_bytes: usize,
    next_inclusion: u64,
    pub(crate) cells: Arc<CellCache>,
}

#[derive(Debug)]
struct StoredSidecar {
    sidecar: Arc<Sidecar>,
    versioned_hashes: Box<[B256]>,
    bytes: usize,
    /// Its number in `included`, if the transaction is not in the pool.
    included: Option<u64>,
}

/// The blobs of a pool besides those of its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobStats {
    /// Sidecars of included transactions.
    pub included_sidecars: usize,
    /// Their bytes.
    pub included_bytes: usize,
    /// Versioned hashes with a blob.
    pub versioned_hashes: usize,
}

impl BlobStore {
    /// Stores the sidecar of a transaction of the pool.
    pub(crate) fn insert(&mut self, tx: B256, hashes: &[B256], sidecar: Arc<Sidecar>) {
        self.remove(&tx);
        for (index, hash) in hashes.iter().enumerate() {
            let owners = self.by_versioned_hash.entry(*hash).or_default();
            owners.push((tx, index));
        }
        let stored = StoredSidecar {
            bytes: sidecar_bytes(&sidecar),
            sidecar,
            versioned_hashes: hashes.into(),
            included: None,
        };
        self.sidecars.insert(tx, stored);
    }

    /// Removes the sidecar of a transaction.
    pub(crate) fn remove(&mut self, tx: &B256) {
        let Some(stored) = self.sidecars.remove(tx) else {
            return;
        };
        if stored.included.is_some() {
            self.included_bytes = self.included_bytes.saturating_sub(stored.bytes);
        }
        for hash in &stored.versioned_hashes {
            let Some(owners) = self.by_versioned_hash.get_mut(hash) else {
                continue;
            };
            owners.retain(|(owner, _)| owner != tx);
            if owners.is_empty() {
                self.by_versioned_hash.remove(hash);
            }
        }
    }

    /// Marks the sidecar's transaction as included; the sidecars of included transactions are bounded by `limit` bytes,
    /// the oldest go.
    pub(crate) fn include(&mut self, tx: &B256, limit: usize) {
        let inclusion = self.next_inclusion;
        let Some(stored) = self.sidecars.get_mut(tx) else {
            return;
        };
        if stored.included.is_none() {
            self.included_bytes = self.included_bytes.saturating_add(stored.bytes);
        }
        stored.included = Some(inclusion);
        self.next_inclusion = inclusion.wrapping_add(1);
        self.included.push_back((*tx, inclusion));
        while self.included_bytes > limit {
            let Some((oldest, inclusion)) = self.included.pop_front() else {
                break;
            };
            if self.is_included_as(&oldest, inclusion) {
                self.remove(&oldest);
            }
        }
        self.drop_stale_inclusions();
    }

    /// Takes the sidecar of an included transaction that returns to the pool.
    pub(crate) fn reinsert(&mut self, tx: &B256) -> Option<Arc<Sidecar>> {
        let stored = self.sidecars.get(tx)?;
        stored.included?;
        let sidecar = Arc::clone(&stored.sidecar);
        self.remove(tx);
        self.drop_stale_inclusions();
        Some(sidecar)
    }

    fn is_included_as(&self, tx: &B256, inclusion: u64) -> bool {
        let stored = self.sidecars.get(tx);
        stored.is_some_and(|stored| stored.included == Some(inclusion))
    }

    fn drop_stale_inclusions(&mut self) {
        while let Some((tx, inclusion)) = self.included.front() {
            if self.is_included_as(tx, *inclusion) {
                return;
            }
            self.included.pop_front();
        }
    }

    /// The sidecar of a pending or recently included transaction.
    pub(crate) fn get(&self, tx: &B256) -> Option<&Arc<Sidecar>> {
        self.sidecars.get(tx).map(|stored| &stored.sidecar)
    }

    /// A blob by its versioned hash, whole if one of its transactions has it so.
    pub(crate) fn blob(&self, versioned_hash: &B256) -> Option<PooledBlob> {
        let owners = self.by_versioned_hash.get(versioned_hash)?.iter();
        let owners = owners.filter_map(|(tx, index)| Some((self.sidecars.get(tx)?, index)));
        let (stored, index) = owners.max_by_key(|(stored, _)| stored.sidecar.is_whole())?;
        Some(PooledBlob {
            sidecar: Arc::clone(&stored.sidecar),
            index: *index,
            cells: Arc::clone(&self.cells),
        })
    }

    pub(crate) fn stats(&self) -> BlobStats {
        let included = self.sidecars.values().filter(|h| h.included.is_some());
        BlobStats {
            included_sidecars: included.count(),
            included_bytes: self.included_bytes,
            versioned_hashes: self.by_versioned_hash.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_crypto::Blob;

    fn sidecar(blobs: usize) -> Arc<Sidecar> {
        let sidecar = alloy_eips::eip4844::BlobTransactionSidecar {
            blobs: vec![Blob::ZERO; blobs],
            ..Default::default()
        };
        Arc::new(Sidecar::Eip4844(sidecar))
    }

    #[test]
    fn included_sidecars_are_bounded_and_returned_once() {
        let mut store = BlobStore::default();
        let [a, b, c] = [1, 2, 3].map(B256::with_last_byte);
        for tx in [a, b, c] {
            store.insert(tx, &[tx, B256::ZERO], sidecar(1));
        }
        let one = sidecar_bytes(&sidecar(1));
        for tx in [a, b, c] {
            store.include(&tx, 2 * one);
        }
        assert!(store.get(&a).is_none(), "the oldest went");
        assert_eq!(store.stats().included_bytes, 2 * one);
        assert!(
            store.blob(&B256::ZERO).is_some(),
            "others have that blob too"
        );
        assert!(store.reinsert(&b).is_some());
        assert!(store.reinsert(&b).is_none());
        assert!(store.reinsert(&a).is_none());
        store.insert(b, &[b, B256::ZERO], sidecar(1));
        store.include(&b, 2 * one);
        store.remove(&c);
        store.remove(&b);
        assert_eq!(store.stats(), BlobStats::default());
        assert!(store.blob(&B256::ZERO).is_none());
    }
}
