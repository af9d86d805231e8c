//! Senders in the order of their bids, kept up to date as the base fee changes.
//!
//! A bid is worth the smaller of its tip and its fee minus the base fee. Bids limited by their tip are ordered by tip,
//! the others by fee; neither order depends on the base fee. So a new base fee moves only the bids whose limit changes
//! from one to the other, and the whole order is the two merged.
//!
//! ```text
//! base fee 10    A: tip 2, fee 20 -> 2 (by tip)    B: tip 5, fee 13 -> 3 (by fee)    order: B A
//! base fee 12    A: tip 2, fee 20 -> 2 (by tip)    B: tip 5, fee 13 -> 1 (by fee)    order: A B, nothing moved
//! ```
//!
//! Fees are clamped to 63 bits: above 9.2 ether per gas they count as equal.

use niwaki_primitives::Address;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The bid of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bid {
    /// Ranks before all bids without priority.
    pub(crate) priority: bool,
    /// Higher is better, before any fee.
    pub(crate) score: i8,
    /// Tip per gas, wei; see [`clamp_fee`].
    pub(crate) tip: i64,
    /// Fee per gas, wei; see [`clamp_fee`].
    pub(crate) fee: i64,
    /// Order of arrival; unique in an order.
    pub(crate) seq: u64,
}

/// The value of a bid; the greatest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    priority: bool,
    score: i8,
    /// Wei per gas; negative below the base fee.
    tip: i64,
    older: Reverse<u64>,
}

impl Bid {
    /// Its value at `base_fee`.
    pub(crate) fn rank(&self, base_fee: u64) -> Rank {
        let effective = self.fee.saturating_sub(clamp_fee(u128::from(base_fee)));
        self.rank_by(self.tip.min(effective))
    }

    fn rank_by(&self, tip: i64) -> Rank {
        Rank {
            priority: self.priority,
            score: self.score,
            tip,
            older: Reverse(self.seq),
        }
    }

    /// The base fee above which the fee, not the tip, limits the bid.
    fn turning_point(&self) -> i64 {
        self.fee.saturating_sub(self.tip)
    }
}

/// A fee, clamped to 63 bits.
pub(crate) fn clamp_fee(fee: u128) -> i64 {
    i64::try_from(fee).unwrap_or(i64::MAX)
}

/// Senders by their bids.
#[derive(Debug, Default)]
pub(crate) struct FeeOrder {
    base_fee: u64,
    by_tip: BTreeMap<Rank, (Bid, Address)>,
    by_fee: BTreeMap<Rank, (Bid, Address)>,
    by_turning_point: BTreeMap<(i64, u64), (Bid, Address)>,
}

impl FeeOrder {
    /// Adds a bid. Cost: logarithmic.
    pub(crate) fn insert(&mut self, bid: Bid, sender: Address) {
        let point = (bid.turning_point(), bid.seq);
        self.by_turning_point.insert(point, (bid, sender));
        self.insert_by_limit(bid, sender);
    }

    fn insert_by_limit(&mut self, bid: Bid, sender: Address) {
        if bid.turning_point() >= clamp_fee(u128::from(self.base_fee)) {
            self.by_tip.insert(bid.rank_by(bid.tip), (bid, sender));
        } else {
            self.by_fee.insert(bid.rank_by(bid.fee), (bid, sender));
        }
    }

    /// Removes a bid. Cost: logarithmic.
    pub(crate) fn remove(&mut self, bid: &Bid) {
        self.by_turning_point
            .remove(&(bid.turning_point(), bid.seq));
        if bid.turning_point() >= clamp_fee(u128::from(self.base_fee)) {
            self.by_tip.remove(&bid.rank_by(bid.tip));
        } else {
            self.by_fee.remove(&bid.rank_by(bid.fee));
        }
    }

    /// The base fee at which bids are compared.
    pub(crate) fn base_fee(&self) -> u64 {
        self.base_fee
    }

    /// Compares at `base_fee` from now on. Cost: logarithmic for each bid that moves.
    pub(crate) fn set_base_fee(&mut self, base_fee: u64) {
        let (low, high) = (self.base_fee.min(base_fee), self.base_fee.max(base_fee));
        let point = |fee| (clamp_fee(u128::from(fee)), 0);
        let range = point(low)..point(high);
        let moved: Vec<_> = self
            .by_turning_point
            .range(range)
            .map(|(_, value)| *value)
            .collect();
        for (bid, _) in &moved {
            self.by_tip.remove(&bid.rank_by(bid.tip));
            self.by_fee.remove(&bid.rank_by(bid.fee));
        }
        self.base_fee = base_fee;
        for (bid, sender) in moved {
            self.insert_by_limit(bid, sender);
        }
    }

    /// All bids, best first.
    pub(crate) fn best_first(&self) -> impl Iterator<Item = (Rank, Address)> {
        let (tips, fees) = (self.by_tip.values().rev(), self.by_fee.values().rev());
        merged(tips, fees, self.base_fee, |tip, fee| tip > fee)
    }

    /// All bids, worst first.
    pub(crate) fn worst_first(&self) -> impl Iterator<Item = (Rank, Address)> {
        let (tips, fees) = (self.by_tip.values(), self.by_fee.values());
        merged(tips, fees, self.base_fee, |tip, fee| tip < fee)
    }
}

/// Merges two sorted lists of bids; `precedes` compares the next bid of the first with that of the second.
fn merged<'a>(
    tips: impl Iterator<Item = &'a (Bid, Address)>,
    fees: impl Iterator<Item = &'a (Bid, Address)>,
    base_fee: u64,
    precedes: impl Fn(Rank, Rank) -> bool,
) -> impl Iterator<Item = (Rank, Address)> {
    let (mut tips, mut fees) = (tips.peekable(), fees.peekable());
    std::iter::from_fn(move || {
        let rank = |bid: Option<&&(Bid, Address)>| bid.map(|(bid, _)| bid.rank(base_fee));
        let by_tip = match (rank(tips.peek()), rank(fees.peek())) {
            (Some(tip), Some(fee)) => precedes(tip, fee),
            (tip, _) => tip.is_some(),
        };
        let (bid, sender) = if by_tip { tips.next() } else { fees.next() }?;
        Some((bid.rank(base_fee), *sender))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(seq: u64) -> Address {
        Address::with_last_byte(seq.to_le_bytes()[0])
    }

    fn bids() -> impl Strategy<Value = Vec<Bid>> {
        let bid = (any::<bool>(), -1_i8..2, 0_i64..20, 0_i64..40);
        proptest::collection::vec(bid, 0..60).prop_map(|all| {
            let bid = |(seq, (priority, score, tip, more)): (usize, (bool, i8, i64, i64))| Bid {
                priority,
                score,
                tip,
                fee: tip + more,
                seq: seq as u64,
            };
            all.into_iter().enumerate().map(bid).collect()
        })
    }

    proptest! {
        #[test]
        fn the_order_equals_a_sort_at_any_base_fee(bids in bids(), fees: Vec<u8>, gone: usize) {
            let mut order = FeeOrder::default();
            for bid in &bids {
                order.insert(*bid, address(bid.seq));
            }
            let mut left = bids.clone();
            if !left.is_empty() {
                let bid = left.remove(gone % left.len());
                order.remove(&bid);
            }
            for fee in fees {
                let fee = u64::from(fee % 64);
                order.set_base_fee(fee);
                left.sort_by_key(|bid| Reverse(bid.rank(fee)));
                let sorted: Vec<_> = left
                    .iter()
                    .map(|bid| (bid.rank(fee), address(bid.seq)))
                    .collect();
                prop_assert_eq!(order.best_first().collect::<Vec<_>>(), sorted.clone());
                let reversed: Vec<_> = sorted.into_iter().rev().collect();
                prop_assert_eq!(order.worst_first().collect::<Vec<_>>(), reversed);
            }
        }
    }
}
