//! Whether a transaction may join those that are here, and what must go for it.

use crate::config::PoolMode;
use crate::error::PoolError;
use crate::events::{DropReason, PoolEvent};
use crate::sender::SenderAccount;
use crate::sidecar::Sidecar;
use crate::store::{Store, blob_key};
use crate::transaction::{Origin, PooledTransaction};
use niwaki_primitives::{Address, B256, Transaction};
use std::sync::Arc;

/// What became of a transaction that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its hash.
    pub hash: B256,
    /// Whether a block could take it now; if not, it waits.
    pub pending: bool,
    /// The one that it replaced.
    pub replaced: Option<B256>,
}

/// How a transaction comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// From a user or a peer.
    New,
    /// From a block that left the chain: what was good enough for a block may be several at once.
    Returning,
}

impl Store {
    /// Checks `tx` against its sender's `account` and all that is here, and gives the one that it
    /// would replace.
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
            self.check_bump(old, tx)?;
        } else if entry == Entry::New {
            self.check_delegation(tx, account)?;
        }
        if entry == Entry::New {
            self.check_authorities(tx)?;
        }
        self.check_overdraft(tx, account)?;
        self.check_room(tx)?;
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

    /// A replacement pays more in everything that is paid for.
    fn check_bump(
        &self,
        old: &PooledTransaction,
        new: &PooledTransaction,
    ) -> Result<(), PoolError> {
        let percent = if old.blob_bytes > 0 {
            self.config.blob_price_bump_percent
        } else {
            self.config.price_bump_percent
        };
        let bumped = |old: u128, new: u128| {
            // Rounded up: one wei less is too little.
            let bump = old.div_ceil(100).saturating_mul(u128::from(percent));
            let exact = old
                .checked_mul(u128::from(percent))
                .map(|p| p.div_ceil(100));
            let least = old.saturating_add(exact.unwrap_or(bump));
            new >= least && (percent == 0 || new > old)
        };
        let blobs = old.blob_bytes == 0 || bumped(old.max_blob_fee(), new.max_blob_fee());
        if bumped(old.tip(), new.tip()) && bumped(old.max_fee(), new.max_fee()) && blobs {
            Ok(())
        } else {
            Err(PoolError::ReplacementUnderpriced)
        }
    }

    /// An account whose balance others can move has few transactions in flight: one call could
    /// make all of them worthless (EIP-7702).
    fn check_delegation(
        &self,
        tx: &PooledTransaction,
        account: &SenderAccount,
    ) -> Result<(), PoolError> {
        if !account.delegates && !self.authorities.contains_key(&tx.sender) {
            return Ok(());
        }
        let queue = self.senders.get(&tx.sender);
        let held = queue.map_or(0, |queue| queue.slots.len());
        if u64::try_from(held).unwrap_or(u64::MAX) >= self.config.max_delegated_in_flight {
            return Err(PoolError::InFlightLimit);
        }
        let next = queue.map_or(account.nonce, |queue| queue.run_end);
        if tx.nonce() > next {
            return Err(PoolError::GappedDelegated);
        }
        Ok(())
    }

    /// Whoever is about to delegate has few transactions in flight too.
    fn check_authorities(&self, tx: &PooledTransaction) -> Result<(), PoolError> {
        let held = |authority: &Address| {
            let queue = self.senders.get(authority);
            let held = queue.map_or(0, |queue| queue.slots.len());
            u64::try_from(held).unwrap_or(u64::MAX)
        };
        let limit = self.config.max_delegated_in_flight;
        if tx
            .authorities
            .iter()
            .any(|authority| held(authority) > limit)
        {
            return Err(PoolError::AuthorityReserved);
        }
        Ok(())
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
        let queued = queue.cost_beside(tx.nonce());
        if queued.saturating_add(tx.cost) > account.balance {
            return Err(PoolError::Overdraft {
                balance: account.balance,
                queued,
                cost: tx.cost,
            });
        }
        Ok(())
    }

    /// What is never evicted must not fill the pool.
    fn check_room(&self, tx: &PooledTransaction) -> Result<(), PoolError> {
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

    /// When there is no room for more blobs, the worst are not worth their proofs being checked.
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

    /// Takes `tx` in, if it may join; whatever has no room any more goes.
    ///
    /// # Errors
    /// As [`Store::admit`]; [`PoolError::Underpriced`] or [`PoolError::Full`] if it is itself what
    /// has no room.
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
        let told = self.events.len();
        self.recount(tx.sender, tx.nonce());
        let pending = self.is_pending(&tx);
        self.tell_added(&tx, pending, told);

        let kept = (replaced.is_some() || tx.priority).then_some(tx.hash);
        self.evict(kept, replaced.is_some());
        // A replacement stays until the next addition makes room: the one before it is gone.
        if replaced.is_none() && self.is_over() {
            self.remove(&tx.hash, DropReason::Evicted);
        }
        if !self.txs.contains_key(&tx.hash) {
            self.forget(&tx.hash);
            return Err(match self.config.mode {
                PoolMode::Layered if pending => PoolError::Underpriced,
                _ => PoolError::Full,
            });
        }
        let added = match tx.origin {
            Origin::Local => &mut self.counters.added_local,
            Origin::Remote => &mut self.counters.added_remote,
        };
        *added = added.saturating_add(1);
        Ok(Added {
            hash: tx.hash,
            pending: self.is_pending(&tx),
            replaced,
        })
    }

    /// Says that `tx` came in, in place of its own promotion, before what follows from it.
    fn tell_added(&mut self, tx: &Arc<PooledTransaction>, pending: bool, told: usize) {
        let hash = tx.hash;
        let own =
            |event: &PoolEvent| matches!(event, PoolEvent::Promoted { tx } if tx.hash == hash);
        let at = self.events.iter().skip(told).position(own);
        if let Some(at) = at {
            self.events.remove(told + at);
        }
        let tx = Arc::clone(tx);
        self.events.insert(told, PoolEvent::Added { tx, pending });
    }

    /// Takes back what was said of a transaction that did not stay.
    fn forget(&mut self, hash: &B256) {
        self.events.retain(|event| match event {
            PoolEvent::Added { tx, .. } | PoolEvent::Promoted { tx } => tx.hash != *hash,
            PoolEvent::Dropped { tx, .. } => tx.hash != *hash,
            PoolEvent::Missed { .. } => true,
        });
        if let Some(evicted) = self.counters.removed.get_mut(&DropReason::Evicted) {
            *evicted = evicted.saturating_sub(1);
        }
    }
}
