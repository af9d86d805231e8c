//! What goes when the pool is full: first what waits, then the ends of the worst runs.

use crate::config::PoolMode;
use crate::events::DropReason;
use crate::sender::SenderQueue;
use crate::store::Store;
use niwaki_primitives::{B256, map::HashMap};

impl Store {
    /// Evicts until all limits hold, or until only what is protected is left: `kept`, what has
    /// priority, and what such transactions of the same sender need before them. With `deep` the
    /// last of these goes too, so that the limits hold in any case.
    pub(crate) fn evict(&mut self, kept: Option<B256>, deep: bool) {
        while let Some(victim) = self.victim(kept, deep) {
            self.remove(&victim, DropReason::Evicted);
        }
    }

    /// Whether there is more than the limits allow.
    pub(crate) fn is_over(&self) -> bool {
        let over = self.over();
        over.blobs || over.waiting || over.all
    }

    fn over(&self) -> Over {
        let (totals, config) = (&self.totals, &self.config);
        let blobs = totals.blob_bytes > config.blob_capacity_bytes;
        let layer = config.layer_max_capacity_bytes;
        let (waiting, all) = match config.mode {
            PoolMode::Layered => (
                totals.waiting_bytes > layer,
                totals.bytes > layer.saturating_mul(3),
            ),
            PoolMode::Sequenced => (false, self.txs.len() > config.max_size),
        };
        Over {
            blobs,
            waiting,
            all,
        }
    }

    fn victim(&self, kept: Option<B256>, deep: bool) -> Option<B256> {
        let over = self.over();
        if over.blobs {
            return first_but(self.blob_order.values(), kept);
        }
        if !over.waiting && !over.all {
            return None;
        }
        let waiting = first_but(self.waiting.values(), kept);
        if waiting.is_some() || !over.all {
            return waiting;
        }
        let mut last_of_runs = self.tails.worst_first().filter_map(|(_, sender)| {
            let queue: &SenderQueue = self.senders.get(&sender)?;
            let last = queue.slots.get(&queue.run_end.checked_sub(1)?)?;
            Some(last.tx.hash)
        });
        let last = last_of_runs.find(|hash| Some(*hash) != kept);
        if last.is_some() || !deep {
            return last;
        }
        let exposed = |hash: &&B256| self.txs.get(*hash).is_some_and(|tx| !tx.priority);
        first_but(self.by_age.values().rev().filter(exposed), kept)
    }

    /// Removes what was added before `earliest`.
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
            self.recount(sender, first);
        }
    }
}

fn first_but<'a>(hashes: impl Iterator<Item = &'a B256>, kept: Option<B256>) -> Option<B256> {
    hashes.copied().find(|hash| Some(*hash) != kept)
}

/// Which limits are broken.
struct Over {
    blobs: bool,
    waiting: bool,
    all: bool,
}
