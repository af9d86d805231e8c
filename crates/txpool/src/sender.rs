//! The transactions of one sender, by nonce: pending ones, which blocks can include now, and queued ones.
//!
//! The pending transactions are a run from the account's nonce without a gap, as long as the balance pays for all of
//! them. Everything after the run is queued.

use crate::error::PoolError;
use crate::order::{Bid, clamp_fee};
use crate::transaction::PooledTransaction;
use niwaki_primitives::{Address, EMPTY_CODE_HASH, Fault, Fork, StateView, U256};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The initial score of a transaction.
pub(crate) const BEST_SCORE: i8 = i8::MAX;

/// The account of a sender in the head's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SenderAccount {
    pub(crate) nonce: u64,
    pub(crate) balance: U256,
    /// Whether its code is delegated to another account's (EIP-7702).
    pub(crate) delegates: bool,
}

impl SenderAccount {
    /// Reads the account of `sender`.
    ///
    /// # Errors
    /// [`PoolError::SenderNotEoa`] (EIP-3607), [`PoolError::Fault`].
    pub(crate) fn read(
        view: &dyn StateView,
        sender: &Address,
        fork: Fork,
    ) -> Result<Self, PoolError> {
        let Some(account) = view.account(sender)? else {
            return Ok(Self::default());
        };
        let mut found = Self {
            nonce: account.nonce,
            balance: account.balance,
            delegates: false,
        };
        if account.code_hash != EMPTY_CODE_HASH {
            let code = view.code(&account.code_hash)?;
            let is_delegation = code.len() == 23 && code.starts_with(&[0xef, 0x01, 0x00]);
            if fork < Fork::Prague || !is_delegation {
                return Err(PoolError::SenderNotEoa {
                    sender: *sender,
                    code_hash: account.code_hash,
                });
            }
            found.delegates = true;
        }
        Ok(found)
    }

    /// As [`SenderAccount::read`], for a sender with transactions in the pool: an account that got code since then is
    /// no error, but its transactions become stale.
    ///
    /// # Errors
    /// A [`Fault`] of the state.
    pub(crate) fn read_again(
        view: &dyn StateView,
        sender: &Address,
        fork: Fork,
    ) -> Result<Self, Fault> {
        match Self::read(view, sender, fork) {
            Ok(account) => Ok(account),
            Err(PoolError::Fault(fault)) => Err(fault),
            // Contracts can't send transactions (EIP-3607): the highest nonce makes all of them stale.
            Err(_) => Ok(Self {
                nonce: u64::MAX,
                ..Self::default()
            }),
        }
    }
}

/// A transaction in the queue of its sender.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) tx: Arc<PooledTransaction>,
    pub(crate) score: i8,
    /// Whether it is pending.
    pub(crate) pending: bool,
    /// The totals of the pending transactions up to this one.
    run: RunTotals,
}

impl Slot {
    pub(crate) fn new(tx: Arc<PooledTransaction>) -> Self {
        Self {
            tx,
            score: BEST_SCORE,
            pending: false,
            run: RunTotals::EMPTY,
        }
    }

    fn bid(&self, by_arrival: bool) -> Bid {
        let (tip, fee) = if by_arrival {
            (0, i64::MAX)
        } else {
            (clamp_fee(self.tx.tip()), clamp_fee(self.tx.max_fee()))
        };
        Bid {
            priority: self.tx.priority,
            score: self.score,
            tip,
            fee,
            seq: self.tx.seq,
        }
    }
}

/// Of a prefix of the run: the total cost, and the lowest score, tip and fee.
#[derive(Clone, Copy, Debug)]
struct RunTotals {
    cost: U256,
    score: i8,
    tip: i64,
    fee: i64,
}

impl RunTotals {
    const EMPTY: Self = Self {
        cost: U256::ZERO,
        score: i8::MAX,
        tip: i64::MAX,
        fee: i64::MAX,
    };

    fn with(self, tx: &PooledTransaction, score: i8) -> Self {
        Self {
            cost: self.cost.saturating_add(tx.cost),
            score: self.score.min(score),
            tip: self.tip.min(clamp_fee(tx.tip())),
            fee: self.fee.min(clamp_fee(tx.max_fee())),
        }
    }
}

/// A pending transaction with its bid.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) tx: Arc<PooledTransaction>,
    pub(crate) bid: Bid,
}

/// The transactions of one sender.
#[derive(Debug, Default)]
pub(crate) struct SenderQueue {
    pub(crate) account: SenderAccount,
    /// By nonce; boxed, since most senders have one and a map's node has room for eleven.
    pub(crate) slots: BTreeMap<u64, Box<Slot>>,
    /// One past the last nonce of the run; the account's nonce if the run is empty.
    pub(crate) run_end: u64,
    /// Its bid in the order of heads: that of the first pending transaction.
    pub(crate) head: Option<Bid>,
    /// Its bid in the order of tails: the lowest of the run, if the last transaction may be evicted.
    pub(crate) tail: Option<Bid>,
    list: OnceLock<Arc<[Candidate]>>,
}

impl SenderQueue {
    /// Recomputes which transactions are pending, from nonce `from` on, and returns those that changed. Cost: linear in
    /// the transactions from there on.
    pub(crate) fn update_run(&mut self, from: u64) -> Vec<(Arc<PooledTransaction>, bool)> {
        self.list = OnceLock::new();
        let before = self.slots.range(..from).next_back();
        let (mut run, mut next, mut is_pending) = match before {
            Some((nonce, slot)) if slot.pending => (slot.run, nonce.saturating_add(1), true),
            Some(_) => (RunTotals::EMPTY, self.run_end, false),
            None => (RunTotals::EMPTY, self.account.nonce, true),
        };
        let mut changed = Vec::new();
        for (nonce, slot) in self.slots.range_mut(from..) {
            let with = run.with(&slot.tx, slot.score);
            is_pending = is_pending && *nonce == next && with.cost <= self.account.balance;
            if is_pending {
                run = with;
                slot.run = with;
                next = nonce.saturating_add(1);
            }
            if slot.pending != is_pending {
                slot.pending = is_pending;
                changed.push((Arc::clone(&slot.tx), is_pending));
            }
        }
        self.run_end = next;
        changed
    }

    /// The bids of this sender in the orders of heads and of tails.
    pub(crate) fn bids(&self, by_arrival: bool) -> (Option<Bid>, Option<Bid>) {
        let Some((_, first)) = self.slots.first_key_value().filter(|(_, s)| s.pending) else {
            return (None, None);
        };
        let last = self.run_end.checked_sub(1).and_then(|n| self.slots.get(&n));
        let tail = last.filter(|slot| !slot.tx.priority).map(|slot| {
            let bid = slot.bid(by_arrival);
            let (tip, fee) = match by_arrival {
                true => (bid.tip, bid.fee),
                false => (slot.run.tip, slot.run.fee),
            };
            Bid {
                tip,
                fee,
                score: slot.run.score,
                ..bid
            }
        });
        (Some(first.bid(by_arrival)), tail)
    }

    /// The pending transactions, shared with block builders. Cost: linear after a change, else none.
    pub(crate) fn candidates(&self, by_arrival: bool) -> Arc<[Candidate]> {
        let list = self.list.get_or_init(|| {
            let run = self.slots.values().take_while(|slot| slot.pending);
            run.map(|slot| Candidate {
                tx: Arc::clone(&slot.tx),
                bid: slot.bid(by_arrival),
            })
            .collect()
        });
        Arc::clone(list)
    }

    /// The total cost of all transactions but the one with `nonce`, wei.
    pub(crate) fn cost_of_others(&self, nonce: u64) -> U256 {
        let others = self.slots.iter().filter(|(n, _)| **n != nonce);
        others.fold(U256::ZERO, |sum, (_, slot)| {
            sum.saturating_add(slot.tx.cost)
        })
    }
}
