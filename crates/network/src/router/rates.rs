//! How much a peer delivers in a second, and how long it takes, of each kind of request: moving averages in which a new measurement
//! counts a tenth.
//!
//! A request is as large as the peer delivers in one second. A peer that was never measured gets a small one.

use crate::wire::{RequestKind, SnapKind};
use std::collections::BTreeMap;

/// What a new measurement counts.
const WEIGHT: f64 = 0.1;
/// A request is for what is delivered in this time.
const TARGET_S: f64 = 1.0;
/// A little more is asked for than was delivered, so that a peer can show that it got faster.
const GROWTH: f64 = 1.01;
/// Round trip of a peer that was never measured: its time-out is 5 s.
const UNKNOWN_RTT_MS: f64 = 5_000.0 / RTTS;
/// A request times out after so many round trips.
const RTTS: f64 = 3.0;
const MIN_TIMEOUT_MS: f64 = 2_000.0;
const MAX_TIMEOUT_MS: f64 = 15_000.0;
/// A peer that was never measured is asked for this part of the largest request.
const UNKNOWN_PART: u32 = 8;

impl RequestKind {
    /// Most items of one request of this node's: answers of this size stay well below what other clients serve.
    pub fn most(self) -> u32 {
        match self {
            Self::Headers => 192,
            Self::Receipts | Self::PooledTransactions => 256,
            Self::Bodies
            | Self::AccessLists
            | Self::Cells
            | Self::Snap(SnapKind::StorageRanges) => 128,
            Self::Snap(SnapKind::AccountRange) => 1,
            Self::Snap(SnapKind::ByteCodes) => 84,
            Self::Snap(SnapKind::TrieNodes) => 1024,
            Self::Snap(SnapKind::AccessLists) => 28,
        }
    }

    /// The name that metrics give to such requests: Besu's where Besu has one.
    pub fn task_name(self) -> &'static str {
        match self {
            Self::Headers => "GetHeadersFromPeerTask",
            Self::Bodies => "GetBodiesFromPeerTask",
            Self::Receipts => "GetReceiptsFromPeerTask",
            Self::PooledTransactions => "GetPooledTransactionsFromPeerTask",
            Self::AccessLists => "GetBlockAccessListsFromPeerTask",
            Self::Cells => "GetCellsFromPeerTask",
            Self::Snap(SnapKind::AccountRange) => "GetAccountRangeFromPeerTask",
            Self::Snap(SnapKind::StorageRanges) => "GetStorageRangeFromPeerTask",
            Self::Snap(SnapKind::ByteCodes) => "GetBytecodeFromPeerTask",
            Self::Snap(SnapKind::TrieNodes) => "GetTrieNodeFromPeerTask",
            Self::Snap(SnapKind::AccessLists) => "GetSnapBlockAccessListsFromPeerTask",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Items in a second.
    items: f64,
    rtt_ms: f64,
}

/// The rates of a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates(BTreeMap<RequestKind, Rate>);

impl Rates {
    /// An answer with so many items came after so long. One without any says that the peer has none, not that it is slow.
    pub(super) fn measure(&mut self, kind: RequestKind, items: u32, elapsed_ms: u64) {
        let elapsed_ms = elapsed_ms.max(1) as f64;
        let measured = Rate {
            items: f64::from(items) * 1000.0 / elapsed_ms,
            rtt_ms: elapsed_ms,
        };
        let rate = self.0.entry(kind).or_insert(measured);
        rate.items += WEIGHT * (measured.items - rate.items);
        rate.rtt_ms += WEIGHT * (measured.rtt_ms - rate.rtt_ms);
    }

    /// No answer came in this time.
    pub(super) fn time_out(&mut self, kind: RequestKind, elapsed_ms: u64) {
        self.measure(kind, 0, elapsed_ms);
    }

    /// How many items the peer is asked for at a time: at least one.
    pub(super) fn capacity(&self, kind: RequestKind) -> u32 {
        let most = kind.most();
        match self.0.get(&kind) {
            None => most.div_ceil(UNKNOWN_PART),
            Some(rate) => floor((rate.items * TARGET_S * GROWTH).clamp(1.0, f64::from(most))),
        }
    }

    /// After how long a request is given up.
    pub(super) fn timeout_ms(&self, kind: RequestKind) -> u64 {
        let rtt_ms = self.0.get(&kind).map_or(UNKNOWN_RTT_MS, |rate| rate.rtt_ms);
        u64::from(floor((rtt_ms * RTTS).clamp(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS)))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the callers clamp it")]
fn floor(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIND: RequestKind = RequestKind::Bodies;

    #[test]
    fn a_peer_that_was_never_measured_is_asked_for_an_eighth_within_5_seconds() {
        let rates = Rates::default();
        assert_eq!(rates.capacity(KIND), 16);
        assert_eq!(rates.capacity(RequestKind::Snap(SnapKind::AccountRange)), 1);
        assert_eq!(rates.timeout_ms(KIND), 5_000);
    }

    #[test]
    fn a_new_measurement_counts_a_tenth_and_the_first_one_all() {
        let mut rates = Rates::default();
        rates.measure(KIND, 10, 1_000);
        assert_eq!(rates.capacity(KIND), 10);
        rates.measure(KIND, 20, 1_000);
        assert_eq!(rates.capacity(KIND), 11);
        assert_eq!(rates.timeout_ms(KIND), 3_000);
    }

    #[test]
    fn a_request_is_for_one_second_and_times_out_after_three_round_trips() {
        let mut rates = Rates::default();
        rates.measure(KIND, 50, 500);
        assert_eq!(rates.capacity(KIND), 101);
        assert_eq!(rates.timeout_ms(KIND), 2_000);
        rates.measure(KIND, 100, 1);
        assert_eq!(rates.capacity(KIND), 128);
    }

    #[test]
    fn time_outs_shrink_requests_and_lengthen_the_wait_up_to_15_seconds() {
        let mut rates = Rates::default();
        rates.measure(KIND, 100, 1_000);
        for _ in 0..100 {
            rates.time_out(KIND, rates.timeout_ms(KIND));
        }
        assert_eq!(rates.capacity(KIND), 1);
        assert_eq!(rates.timeout_ms(KIND), 15_000);
    }

    proptest! {
        #[test]
        fn sizes_and_times_stay_within_their_bounds(
            measured in prop::collection::vec((any::<u32>(), any::<u64>()), 0..50)
        ) {
            for (kind, most) in RequestKind::ALL.map(|kind| (kind, kind.most())) {
                let mut rates = Rates::default();
                for (items, elapsed_ms) in &measured {
                    rates.measure(kind, *items, *elapsed_ms);
                    prop_assert!((1..=most).contains(&rates.capacity(kind)));
                    prop_assert!((2_000..=15_000).contains(&rates.timeout_ms(kind)));
                }
            }
        }
    }
}
