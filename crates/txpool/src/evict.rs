//! Eviction: what leaves when the pool exceeds a limit.
//!
//! In order: blob transactions by blob fee, if blobs exceed their capacity; queued transactions by tip; then the last
//! pending transaction of the sender with the lowest bid, so that no nonce gap opens. Priority transactions stay.

use crate::config::PoolMode;
use crate::events::DropReason;
use crate::sender::SenderQueue;
use crate::store::Store;
use niwaki_primitives::{B256, map::HashMap};

impl Store {
    /// Evicts until all limits hold, or until only protected transactions are left: `protected`, priority transactions,
    /// and those before them of the same sender. With `deep` the latter are evicted too, so that the limits hold in any
    /// case.
    pub(crate) fn evict(&mut self, protected: Option<B256>, deep: bool) {
        while let Some(victim) = self.victim(protected, deep) {
            self.remove(&victim, DropReason::Evicted);
        }
    }

    /// Whether a limit is exceeded.
    pub(crate) fn exceeds_limits(&self) -> bool {
        let exceeded = self.exceeded_limits();
        exceeded.blobs || exceeded.queued || exceeded.all
    }

    fn exceeded_limits(&self) -> ExceededLimits {
        let (totals, config) = (&self.totals, &self.config);
        let blobs = totals.blob_bytes > config.blob_capacity_bytes;
        let layer = config.layer_max_capacity_bytes;
        let (queued, all) = match config.mode {
            PoolMode::Layered => (
                totals.queued_bytes > layer,
                totals.bytes > layer.saturating_mul(3),
            ),
            PoolMode::Sequenced => (false, self.txs.len() > config.max_size),
        };
        ExceededLimits { blobs, queued, all }
    }

    fn victim(&self, protected: Option<B256>, deep: bool) -> Option<B256> {
        let exceeded = self.exceeded_limits();
        if exceeded.blobs {
            return first_except(self.blob_order.values(), protected);
        }
        if !exceeded.queued && !exceeded.all {
            return None;
        }
        let queued = first_except(self.queued.values(), protected);
        if queued.is_some() || !exceeded.all {
            return queued;
        }
        let mut last_of_senders = self.tails.worst_first().filter_map(|(_, sender)| {
            let queue: &SenderQueue = self.senders.get(&sender)?;
            let last = queue.slots.get(&queue.run_end.checked_sub(1)?)?;
            Some(last.tx.hash)
        });
        let last = last_of_senders.find(|hash| Some(*hash) != protected);
        if last.is_some() || !deep {
            return last;
        }
        let exposed = |hash: &&B256| self.txs.get(*hash).is_some_and(|tx| !tx.priority);
        first_except(self.by_age.values().rev().filter(exposed), protected)
    }

    /// Removes the transactions that were added before `earliest`.
    pub(crate) fn expire(&mut self, earliest: u64) {
        let mut firsts: HashMap<_, u64> = HashMap::default();
        while let Some(hash) = self.by_age.first_key_value().map(|(_, hash)| *hash) {
            let old = |hash| self.txs.get(hash).is_some_and(|tx| tx.added_at < earliest);
            if !old(&hash) {
                break;
            }
            if let Some(tx) = self.unlink(&hash, DropReason::Expired, None) {
                let first = firsts.entry(tx.sender).or_insert(u64::MAX);
                *first = (*first).min(tx.nonce());
            }
        }
        for (sender, first) in firsts {
            self.update_run(sender, first);
        }
    }
}

fn first_except<'a>(
    hashes: impl Iterator<Item = &'a B256>,
    protected: Option<B256>,
) -> Option<B256> {
    hashes.copied().find(|hash| Some(*hash) != protected)
}

/// Which limits are exceeded.
struct ExceededLimits {
    blobs: bool,
    queued: bool,
    all: bool,
}
