//! What the next block is offered: best first, in nonce order for each sender.

use crate::order::Rank;
use crate::sender::Candidate;
use crate::store::Store;
use crate::transaction::PooledTransaction;
use niwaki_primitives::{Address, B256, map::HashSet};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The transactions that a block with certain fees could take, from a snapshot of the pool: best
/// first, and each sender's by nonce. It holds no lock.
#[derive(Debug)]
pub struct Best {
    /// First transactions of senders, best first.
    heads: std::vec::IntoIter<Place>,
    /// What follows transactions that were given out.
    next: BinaryHeap<Place>,
    /// The transaction given out last; what follows it is not in `next` yet.
    last: Option<Place>,
    given: Vec<(B256, Address)>,
    skipped: HashSet<Address>,
    base_fee: u64,
    blob_base_fee: u128,
    left: usize,
    left_by_type: [usize; 5],
}

/// A place in the run of one sender.
#[derive(Clone, Debug)]
struct Place {
    rank: Rank,
    run: Arc<[Candidate]>,
    at: usize,
}

impl Place {
    fn of(run: Arc<[Candidate]>, at: usize, base_fee: u64) -> Option<Self> {
        let rank = run.get(at)?.bid.rank(base_fee);
        Some(Self { rank, run, at })
    }

    fn tx(&self) -> Option<&Arc<PooledTransaction>> {
        self.run.get(self.at).map(|candidate| &candidate.tx)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

fn can_pay(tx: &PooledTransaction, base_fee: u64, blob_base_fee: u128) -> bool {
    tx.max_fee() >= u128::from(base_fee)
        && (tx.type_index() != 3 || tx.max_blob_fee() >= blob_base_fee)
}

impl Store {
    /// A snapshot for a block with the base fee that the heads are ordered by, and this blob base
    /// fee. Cost: linear in the senders that can be offered, at most as many as a block is offered
    /// transactions, and in those before them that can't pay.
    pub(crate) fn best(&self, blob_base_fee: u128) -> Best {
        let base_fee = self.heads.base_fee();
        let by_arrival = self.by_arrival();
        let left = self.config.max_prioritized;
        let mut left_by_type = self.config.max_prioritized_by_type;
        let mut heads = Vec::new();
        for (rank, sender) in self.heads.best_first() {
            if heads.len() >= left {
                break;
            }
            let Some(queue) = self.senders.get(&sender) else {
                continue;
            };
            let Some((_, first)) = queue.slots.first_key_value() else {
                continue;
            };
            let of_type = &mut left_by_type[first.tx.type_index()];
            if *of_type == 0 || !can_pay(&first.tx, base_fee, blob_base_fee) {
                continue;
            }
            *of_type = of_type.saturating_sub(1);
            let run = queue.candidates(by_arrival);
            heads.push(Place { rank, run, at: 0 });
        }
        Best {
            heads: heads.into_iter(),
            next: BinaryHeap::new(),
            last: None,
            given: Vec::new(),
            skipped: HashSet::default(),
            base_fee,
            blob_base_fee,
            left,
            left_by_type: self.config.max_prioritized_by_type,
        }
    }
}

impl Best {
    /// Gives no more transactions of whoever sent `hash`: that one could not be taken, and those
    /// after it can't be without it.
    pub fn skip_sender_of(&mut self, hash: &B256) {
        let mut given = self.given.iter().rev();
        if let Some((_, sender)) = given.find(|(known, _)| known == hash) {
            self.skipped.insert(*sender);
        }
    }

    /// Brings what follows the last one given out into the order.
    fn advance(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        let Some(place) = Place::of(last.run, last.at.saturating_add(1), self.base_fee) else {
            return;
        };
        let payable = |tx: &Arc<_>| can_pay(tx, self.base_fee, self.blob_base_fee);
        if place.tx().is_some_and(payable) {
            self.next.push(place);
        }
    }

    fn best_place(&mut self) -> Option<Place> {
        let head = self.heads.as_slice().first();
        if head.is_some_and(|head| self.next.peek().is_none_or(|next| head > next)) {
            self.heads.next()
        } else {
            self.next.pop()
        }
    }
}

impl Iterator for Best {
    type Item = Arc<PooledTransaction>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance();
        while self.left > 0 {
            let place = self.best_place()?;
            let tx = Arc::clone(place.tx()?);
            let of_type = &mut self.left_by_type[tx.type_index()];
            if *of_type == 0 || self.skipped.contains(&tx.sender) {
                continue;
            }
            *of_type = of_type.saturating_sub(1);
            self.left = self.left.saturating_sub(1);
            self.given.push((tx.hash, tx.sender));
            self.last = Some(place);
            return Some(tx);
        }
        None
    }
}
