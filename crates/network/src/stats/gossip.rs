//! Transactions and announcements of peers that came to nothing.

use super::{Count, Stats};
use std::sync::Arc;

/// A message of gossip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GossipMessage {
    /// Whole transactions.
    Transactions,
    /// Their hashes.
    Announcement,
}

impl GossipMessage {
    const ALL: [Self; 2] = [Self::Transactions, Self::Announcement];

    fn name(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Announcement => "new_pooled_transaction_hashes",
        }
    }
}

/// How many transactions of one kind of message this node had already.
pub(crate) type SeenCounts = [u64; GossipMessage::ALL.len()];

/// What came to nothing of one kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GossipStats {
    /// The message, as Besu's metrics name it.
    pub message: &'static str,
    /// Messages that were dropped because gossip was behind.
    pub dropped: u64,
    /// Transactions, or hashes of some, that this node had already.
    pub already_seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct GossipTable([[Count; 2]; GossipMessage::ALL.len()]);

/// A request by `snap` of a peer counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct ServingSnap(Arc<Stats>);

impl Drop for ServingSnap {
    fn drop(&mut self) {
        self.0.serving_snap.take(1);
    }
}

impl Stats {
    /// What came to nothing, by message.
    pub fn gossip(&self) -> [GossipStats; GossipMessage::ALL.len()] {
        GossipMessage::ALL.map(|message| {
            let [dropped, seen] = &self.gossip.0[message as usize];
            GossipStats {
                message: message.name(),
                dropped: dropped.get(),
                already_seen: seen.get(),
            }
        })
    }

    /// Requests by `snap` of peers that have no answer yet.
    pub fn serving_snap(&self) -> u64 {
        self.serving_snap.get()
    }

    pub(crate) fn count_dropped_gossip(&self, message: GossipMessage) {
        self.gossip.0[message as usize][0].add(1);
    }

    pub(crate) fn set_seen_gossip(&self, counts: SeenCounts) {
        for ([_, seen], count) in self.gossip.0.iter().zip(counts) {
            seen.set(count);
        }
    }

    pub(crate) fn begin_serving_snap(self: &Arc<Self>) -> ServingSnap {
        self.serving_snap.add(1);
        ServingSnap(Arc::clone(self))
    }
}
