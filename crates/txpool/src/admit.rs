//! Admission: whether a transaction may join the pool, and what must leave for it.
//!
//! [`Store::admit`] checks without changing anything: nonce window, balance, replacement price, delegation limits,
//! capacity. [`Store::insert`] checks again, adds the transaction, and evicts until the limits hold; if the new
//! transaction itself is what must go, the pool is as it was before.

use crate::config::PoolMode;
use crate::error::PoolError;
use crate::events::{DropReason, PoolEvent};
use crate::sender::SenderAccount;
use crate::sidecar::Sidecar;
use crate::store::{Store, blob_key};
use crate::transaction::PooledTransaction;
use niwaki_primitives::{Address, B256, Transaction};
use std::sync::Arc;

/// The result of adding a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its hash.
    pub hash: B256,
    /// Whether the next block could include it; if not, it is queued.
    pub pending: bool,
    /// The transaction that it replaced.
    pub replaced: Option<B256>,
}

/// How a transaction enters the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// From a user or a peer.
    New,
    /// From a block that left the canonical chain: exempt from the limits on delegated accounts.
    Reinserted,
}

impl Store {
    /// Checks `tx` against its sender's `account` and the pool. Returns the transaction that it would replace.
    ///
    /// # Errors
    /// The variants of [`PoolError`] that depend on state and on the pool's contents.
    pub(crate) fn admit(
        &self,
        tx: &PooledTransaction,
        account: &SenderAccount,
        entry: Entry,
    ) -> Result<Option<B256>, PoolError> {
        if self.txs.contains_key(&tx.hash) {
            return Err(PoolError::AlreadyKnown);
        }
        self.check_nonce(tx, account)?;
        if tx.cost > account.balance {
            return Err(PoolError::InsufficientFunds {
                balance: account.balance,
                cost: tx.cost,
            });
        }
        let replaced = self.slot(&tx.sender, tx.nonce()).map(|slot| &slot.tx);
        if let Some(old) = replaced {
            self.check_replacement(old, tx)?;
        } else if entry == Entry::New {
            self.check_delegation(tx, account)?;
        }
        if entry == Entry::New {
            self.check_authorities(tx)?;
        }
        self.check_overdraft(tx, account)?;
        self.check_priority_capacity(tx)?;
        if replaced.is_none() {
            self.check_blob_price(tx)?;
        }
        Ok(replaced.map(|old| old.hash))
    }

    fn check_nonce(
        &self,
        tx: &PooledTransaction,
        account: &SenderAccount,
    ) -> Result<(), PoolError> {
        let (got, next) = (tx.nonce(), account.nonce);
        let Some(ahead) = got.checked_sub(next) else {
            return Err(PoolError::NonceTooLow { got, next });
        };
        let window = self.config.nonce_window();
        if ahead >= window {
            return Err(PoolError::NonceTooDistant { got, next, window });
        }
        Ok(())
    }

    /// A replacement must bid more by the configured percentage: in fee, tip and, with blobs, blob fee.
    fn check_replacement(
        &self,
        old: &PooledTransaction,
        new: &PooledTransaction,
    ) -> Result<(), PoolError> {
        let percent = u128::from(match old.blob_bytes > 0 {
            true => self.config.blob_price_bump_percent,
            false => self.config.price_bump_percent,
        });
        let bumped = |old: u128, new: u128| {
            // Rounded up: one wei less is not enough.
            let exact = old.checked_mul(percent).map(|p| p.div_ceil(100));
            let bump = exact.unwrap_or_else(|| old.div_ceil(100).saturating_mul(percent));
            let least = old.saturating_add(bump);
            new >= least && (percent == 0 || new > old)
        };
        let blobs = old.blob_bytes == 0 || bumped(old.max_blob_fee(), new.max_blob_fee());
        if bumped(old.tip(), new.tip()) && bumped(old.max_fee(), new.max_fee()) && blobs {
            Ok(())
        } else {
            Err(PoolError::ReplacementUnderpriced)
        }
    }

    /// A delegated account may have few transactions in flight: a single call of anyone could move its balance and
    /// invalidate them all (EIP-7702).
    fn check_delegation(
        &self,
        tx: &PooledTransaction,
        account: &SenderAccount,
    ) -> Result<(), PoolError> {
        if !account.delegates && !self.authorities.contains_key(&tx.sender) {
            return Ok(());
        }
        if self.in_flight(&tx.sender) >= self.config.max_delegated_in_flight {
            return Err(PoolError::InFlightLimit);
        }
        let queue = self.senders.get(&tx.sender);
        let next = queue.map_or(account.nonce, |queue| queue.run_end);
        if tx.nonce() > next {
            return Err(PoolError::GappedDelegated);
        }
        Ok(())
    }

    /// The same holds for an account that `tx` is about to delegate.
    fn check_authorities(&self, tx: &PooledTransaction) -> Result<(), PoolError> {
        let limit = self.config.max_delegated_in_flight;
        let mut authorities = tx.authorities.iter();
        match authorities.any(|authority| self.in_flight(authority) > limit) {
            true => Err(PoolError::AuthorityReserved),
            false => Ok(()),
        }
    }

    /// How many transactions of `sender` are in the pool.
    fn in_flight(&self, sender: &Address) -> u64 {
        let queue = self.senders.get(sender);
        queue.map_or(0, |queue| queue.slots.len() as u64)
    }

    fn check_overdraft(
        &self,
        tx: &PooledTransaction,
        account: &SenderAccount,
    ) -> Result<(), PoolError> {
        if !self.config.balance_check {
            return Ok(());
        }
        let Some(queue) = self.senders.get(&tx.sender) else {
            return Ok(());
        };
        let queued = queue.cost_of_others(tx.nonce());
        if queued.saturating_add(tx.cost) > account.balance {
            return Err(PoolError::Overdraft {
                balance: account.balance,
                queued,
                cost: tx.cost,
            });
        }
        Ok(())
    }

    /// Priority transactions are never evicted, so they must not fill the pool.
    fn check_priority_capacity(&self, tx: &PooledTransaction) -> Result<(), PoolError> {
        if !tx.priority {
            return Ok(());
        }
        let (totals, config) = (&self.totals, &self.config);
        let blobs = totals.priority_blob_bytes.saturating_add(tx.blob_bytes);
        let full = match config.mode {
            PoolMode::Layered => {
                let bytes = totals.priority_bytes.saturating_add(tx.bytes);
                bytes > config.layer_max_capacity_bytes
            }
            PoolMode::Sequenced => totals.priority >= config.max_size,
        };
        if full || blobs > config.blob_capacity_bytes {
            return Err(PoolError::Full);
        }
        Ok(())
    }

    /// If the blob capacity is used up, a transaction that bids no more than the worst is refused before its proofs are
    /// checked.
    fn check_blob_price(&self, tx: &PooledTransaction) -> Result<(), PoolError> {
        let blobs = self.totals.blob_bytes.saturating_add(tx.blob_bytes);
        if tx.priority || tx.blob_bytes == 0 || blobs <= self.config.blob_capacity_bytes {
            return Ok(());
        }
        match self.blob_order.first_key_value() {
            Some((worst, _)) if blob_key(tx) > *worst => Ok(()),
            _ => Err(PoolError::Underpriced),
        }
    }

    /// Adds `tx` if it is admitted, then evicts until the limits hold.
    ///
    /// # Errors
    /// As [`Store::admit`]; [`PoolError::Underpriced`] or [`PoolError::Full`] if `tx` itself is evicted.
    pub(crate) fn insert(
        &mut self,
        tx: Arc<PooledTransaction>,
        account: SenderAccount,
        sidecar: Option<Arc<Sidecar>>,
        entry: Entry,
    ) -> Result<Added, PoolError> {
        let replaced = self.admit(&tx, &account, entry)?;
        if let Some(old) = &replaced {
            self.unlink(old, DropReason::Replaced, Some(tx.hash));
        }
        self.link(&tx, account);
        if let Some(sidecar) = sidecar {
            let hashes = tx.tx.blob_versioned_hashes().unwrap_or_default();
            self.blobs.insert(tx.hash, hashes, sidecar);
        }
        let first_event = self.events.len();
        self.update_run(tx.sender, tx.nonce());
        let pending = self.is_pending(&tx);
        self.record_added(&tx, pending, first_event);

        let protected = (replaced.is_some() || tx.priority).then_some(tx.hash);
        self.evict(protected, replaced.is_some());
        // A replacement stays even if the limits are exceeded, until the next addition: the one before it is gone.
        if replaced.is_none() && self.exceeds_limits() {
            self.remove(&tx.hash, DropReason::Evicted);
        }
        if !self.txs.contains_key(&tx.hash) {
            self.retract_events(&tx.hash);
            return Err(match self.config.mode {
                PoolMode::Layered if pending => PoolError::Underpriced,
                _ => PoolError::Full,
            });
        }
        Ok(Added {
            hash: tx.hash,
            pending: self.is_pending(&tx),
            replaced,
        })
    }

    /// Records that `tx` was added, before the events that follow from it and instead of its own promotion.
    fn record_added(&mut self, tx: &Arc<PooledTransaction>, pending: bool, first_event: usize) {
        let hash = tx.hash;
        let own =
            |event: &PoolEvent| matches!(event, PoolEvent::Promoted { tx } if tx.hash == hash);
        let at = self.events.iter().skip(first_event).position(own);
        if let Some(at) = at {
            self.events.remove(first_event + at);
        }
        let tx = Arc::clone(tx);
        self.events
            .insert(first_event, PoolEvent::Added { tx, pending });
    }

    /// Removes the events of a transaction that did not stay.
    fn retract_events(&mut self, hash: &B256) {
        self.events.retain(|event| match event {
            PoolEvent::Added { tx, .. } | PoolEvent::Promoted { tx } => tx.hash != *hash,
            PoolEvent::Dropped { tx, .. } => tx.hash != *hash,
            PoolEvent::Missed { .. } => true,
        });
    }
}
