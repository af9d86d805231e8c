//! The sidecars of pending and of recently included transactions, and their blobs by hash.

use crate::sidecar::{PooledBlob, Sidecar, sidecar_bytes};
use niwaki_primitives::{B256, map::HashMap};
use std::collections::VecDeque;
use std::sync::Arc;

/// Sidecars by transaction, blobs by versioned hash.
#[derive(Debug, Default)]
pub(crate) struct BlobStore {
    sidecars: HashMap<B256, Held>,
    by_versioned_hash: HashMap<B256, Vec<(B256, usize)>>,
    /// Included transactions, oldest first; one that came back is still named here.
    included: VecDeque<(B256, u64)>,
    included_bytes: usize,
    next_mark: u64,
}

#[derive(Debug)]
struct Held {
    sidecar: Arc<Sidecar>,
    versioned_hashes: Box<[B256]>,
    bytes: usize,
    /// The place in `included`, while the transaction is not pending.
    included: Option<u64>,
}

/// How many blobs a pool holds beside those that it counts as pending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobFigures {
    /// Sidecars of included transactions.
    pub included_sidecars: usize,
    /// Their bytes.
    pub included_bytes: usize,
    /// Versioned hashes that lead to a blob.
    pub versioned_hashes: usize,
}

impl BlobStore {
    /// Keeps the sidecar of a pending transaction.
    pub(crate) fn insert(&mut self, tx: B256, hashes: &[B256], sidecar: Arc<Sidecar>) {
        self.remove(&tx);
        for (index, hash) in hashes.iter().enumerate() {
            let places = self.by_versioned_hash.entry(*hash).or_default();
            places.push((tx, index));
        }
        let held = Held {
            bytes: sidecar_bytes(&sidecar),
            sidecar,
            versioned_hashes: hashes.into(),
            included: None,
        };
        self.sidecars.insert(tx, held);
    }

    /// Forgets the sidecar of a transaction.
    pub(crate) fn remove(&mut self, tx: &B256) {
        let Some(held) = self.sidecars.remove(tx) else {
            return;
        };
        if held.included.is_some() {
            self.included_bytes = self.included_bytes.saturating_sub(held.bytes);
        }
        for hash in &held.versioned_hashes {
            let Some(places) = self.by_versioned_hash.get_mut(hash) else {
                continue;
            };
            places.retain(|(owner, _)| owner != tx);
            if places.is_empty() {
                self.by_versioned_hash.remove(hash);
            }
        }
    }

    /// Keeps the sidecar of a transaction that a block took, within `limit` bytes for all such;
    /// the oldest go.
    pub(crate) fn include(&mut self, tx: &B256, limit: usize) {
        let mark = self.next_mark;
        let Some(held) = self.sidecars.get_mut(tx) else {
            return;
        };
        if held.included.is_none() {
            self.included_bytes = self.included_bytes.saturating_add(held.bytes);
        }
        held.included = Some(mark);
        self.next_mark = mark.wrapping_add(1);
        self.included.push_back((*tx, mark));
        while self.included_bytes > limit {
            let Some((oldest, mark)) = self.included.pop_front() else {
                break;
            };
            if self.is_included_as(&oldest, mark) {
                self.remove(&oldest);
            }
        }
        self.drop_stale_marks();
    }

    /// A sidecar of a transaction that comes back into the pool.
    pub(crate) fn take_back(&mut self, tx: &B256) -> Option<Arc<Sidecar>> {
        let held = self.sidecars.get(tx)?;
        held.included?;
        let sidecar = Arc::clone(&held.sidecar);
        self.remove(tx);
        self.drop_stale_marks();
        Some(sidecar)
    }

    fn is_included_as(&self, tx: &B256, mark: u64) -> bool {
        let held = self.sidecars.get(tx);
        held.is_some_and(|held| held.included == Some(mark))
    }

    fn drop_stale_marks(&mut self) {
        while let Some((tx, mark)) = self.included.front() {
            if self.is_included_as(tx, *mark) {
                return;
            }
            self.included.pop_front();
        }
    }

    /// The sidecar of a pending or recently included transaction.
    pub(crate) fn get(&self, tx: &B256) -> Option<&Arc<Sidecar>> {
        self.sidecars.get(tx).map(|held| &held.sidecar)
    }

    /// A blob by its versioned hash.
    pub(crate) fn blob(&self, versioned_hash: &B256) -> Option<PooledBlob> {
        let (tx, index) = self.by_versioned_hash.get(versioned_hash)?.last()?;
        let held = self.sidecars.get(tx)?;
        Some(PooledBlob {
            sidecar: Arc::clone(&held.sidecar),
            index: *index,
        })
    }

    pub(crate) fn figures(&self) -> BlobFigures {
        let included = self.sidecars.values().filter(|h| h.included.is_some());
        BlobFigures {
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
    fn included_sidecars_are_kept_within_their_limit_and_come_back_once() {
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
        assert_eq!(store.figures().included_bytes, 2 * one);
        assert!(
            store.blob(&B256::ZERO).is_some(),
            "others have that blob too"
        );
        assert!(store.take_back(&b).is_some());
        assert!(store.take_back(&b).is_none());
        assert!(store.take_back(&a).is_none());
        store.insert(b, &[b, B256::ZERO], sidecar(1));
        store.include(&b, 2 * one);
        store.remove(&c);
        store.remove(&b);
        assert_eq!(store.figures(), BlobFigures::default());
        assert!(store.blob(&B256::ZERO).is_none());
    }
}
