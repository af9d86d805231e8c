//! The transactions for the next block: best first, in nonce order for each sender.
//!
//! Two sources are merged: `heads`, the first pending transaction of each sender, sorted once; and `next`, a heap of
//! the transactions that follow those already returned.
//!
//! ```text
//! heads:  A5 (tip 9)  B0 (tip 7)  C3 (tip 2)
//! returns A5, then puts A6 (tip 8) into `next`; returns A6, then B0, ...
//! ```

use crate::order::Rank;
use crate::sender::Candidate;
use crate::store::Store;
use crate::transaction::PooledTransaction;
use niwaki_primitives::{Address, B256, map::HashSet};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The transactions that a block with given fees could include, from a snapshot of the pool: best first, and each
/// sender's by nonce. It holds no lock.
#[derive(Debug)]
pub struct BestTransactions {
    /// The first transactions of senders, best first.
    heads: std::vec::IntoIter<Cursor>,
    /// The transactions that follow those already returned.
    next: BinaryHeap<Cursor>,
    /// The transaction returned last; the one that follows it is not in `next` yet.
    last: Option<Cursor>,
    returned: Vec<(B256, Address)>,
    skipped: HashSet<Address>,
    base_fee: u64,
    blob_base_fee: u128,
    left: usize,
    left_by_type: [usize; 5],
}

/// A position in the pending transactions of one sender.
#[derive(Clone, Debug)]
struct Cursor {
    rank: Rank,
    run: Arc<[Candidate]>,
    at: usize,
}

impl Cursor {
    fn of(run: Arc<[Candidate]>, at: usize, base_fee: u64) -> Option<Self> {
        let rank = run.get(at)?.bid.rank(base_fee);
        Some(Self { rank, run, at })
    }

    fn tx(&self) -> Option<&Arc<PooledTransaction>> {
        self.run.get(self.at).map(|candidate| &candidate.tx)
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Cursor {}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

fn can_pay(tx: &PooledTransaction, base_fee: u64, blob_base_fee: u128) -> bool {
    tx.max_fee() >= u128::from(base_fee)
        && (tx.type_index() != 3 || tx.max_blob_fee() >= blob_base_fee)
}

impl Store {
    /// A snapshot for a block with the base fee that `heads` are ordered by, and this blob base fee. Cost: linear in
    /// the senders that can pay, up to `max_prioritized` of them, and in those before them that can't.
    pub(crate) fn best(&self, blob_base_fee: u128) -> BestTransactions {
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
            heads.push(Cursor { rank, run, at: 0 });
        }
        BestTransactions {
            heads: heads.into_iter(),
            next: BinaryHeap::new(),
            last: None,
            returned: Vec::new(),
            skipped: HashSet::default(),
            base_fee,
            blob_base_fee,
            left,
            left_by_type: self.config.max_prioritized_by_type,
        }
    }
}

impl BestTransactions {
    /// Skips all further transactions of the sender of `hash`: that one could not be included, so those after it can't
    /// be.
    pub fn skip_sender_of(&mut self, hash: &B256) {
        let mut returned = self.returned.iter().rev();
        if let Some((_, sender)) = returned.find(|(known, _)| known == hash) {
            self.skipped.insert(*sender);
        }
    }

    /// Puts the transaction that follows the last returned one into `next`.
    fn advance(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        let Some(cursor) = Cursor::of(last.run, last.at.saturating_add(1), self.base_fee) else {
            return;
        };
        let payable = |tx: &Arc<_>| can_pay(tx, self.base_fee, self.blob_base_fee);
        if cursor.tx().is_some_and(payable) {
            self.next.push(cursor);
        }
    }

    fn best_cursor(&mut self) -> Option<Cursor> {
        let head = self.heads.as_slice().first();
        if head.is_some_and(|head| self.next.peek().is_none_or(|next| head > next)) {
            self.heads.next()
        } else {
            self.next.pop()
        }
    }
}

impl Iterator for BestTransactions {
    type Item = Arc<PooledTransaction>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance();
        while self.left > 0 {
            let cursor = self.best_cursor()?;
            let tx = Arc::clone(cursor.tx()?);
            let of_type = &mut self.left_by_type[tx.type_index()];
            if *of_type == 0 || self.skipped.contains(&tx.sender) {
                continue;
            }
            *of_type = of_type.saturating_sub(1);
            self.left = self.left.saturating_sub(1);
            self.returned.push((tx.hash, tx.sender));
            self.last = Some(cursor);
            return Some(tx);
        }
        None
    }
}
