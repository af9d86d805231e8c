//! Everything behind the pool's lock: transactions, senders, orders and totals, always changed together.
//!
//! [`Store::link`] and [`Store::unlink`] are the only functions that add a transaction to the tables or remove it, so
//! that no table disagrees with another. After each of them the caller runs [`Store::update_run`], which decides which
//! transactions of the sender are pending:
//!
//! ```text
//!             nonce:   5     6     7     9          account: nonce 5
//! sender A           [tx]  [tx]  [tx]  [tx]
//!                    `--- pending ---'  queued (nonce 8 is missing)
//! heads (what blocks take first):  A by the bid of 5
//! tails (what is evicted first):   A by the lowest bid of 5..=7
//! ```
//!
//! The store knows no signature, no state and no clock.

use crate::blobs::BlobStore;
use crate::config::{PoolConfig, PoolMode};
use crate::events::{DropReason, PoolEvent};
use crate::flows::Flows;
use crate::head::Head;
use crate::order::FeeOrder;
use crate::sender::{SenderAccount, SenderQueue, Slot};
use crate::transaction::{Origin, PooledTransaction};
use niwaki_primitives::{Address, B256, map::HashMap};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Removed transactions whose senders are remembered.
const RECENT_SENDERS: usize = 1 << 14;

/// Worst first: tip (none where order is by arrival), then the youngest.
type QueuedKey = (u128, Reverse<u64>);
/// Worst first: blob fee, tip, then the youngest.
pub(crate) type BlobKey = (u128, u128, Reverse<u64>);

/// The contents of a pool.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) config: Arc<PoolConfig>,
    pub(crate) head: Arc<Head>,
    pub(crate) txs: HashMap<B256, Arc<PooledTransaction>>,
    pub(crate) senders: HashMap<Address, Box<SenderQueue>>,
    /// Senders by their first pending transaction: the order in which blocks take them.
    pub(crate) heads: FeeOrder,
    /// Senders by the lowest bid of their pending transactions: the order in which they lose the last one.
    pub(crate) tails: FeeOrder,
    /// Queued transactions that may be evicted.
    pub(crate) queued: BTreeMap<QueuedKey, B256>,
    /// Blob transactions that may be evicted.
    pub(crate) blob_order: BTreeMap<BlobKey, B256>,
    pub(crate) by_age: BTreeMap<u64, B256>,
    pub(crate) blobs: BlobStore,
    /// How many transactions of the pool set the code of an account (EIP-7702).
    pub(crate) authorities: HashMap<Address, u64>,
    pub(crate) recent: RecentSenders,
    pub(crate) totals: Totals,
    pub(crate) counters: Counters,
    /// The events since the lock was taken.
    pub(crate) events: Vec<PoolEvent>,
}

/// Sums over all transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) queued: usize,
    pub(crate) bytes: usize,
    pub(crate) queued_bytes: usize,
    pub(crate) queued_by_type: [usize; 5],
    pub(crate) blob_bytes: usize,
    pub(crate) priority: usize,
    pub(crate) priority_bytes: usize,
    pub(crate) priority_blob_bytes: usize,
    pub(crate) local: usize,
    pub(crate) by_type: [usize; 5],
}

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) flows: Flows,
    pub(crate) penalized: u64,
}

impl Store {
    pub(crate) fn new(config: Arc<PoolConfig>, head: Arc<Head>) -> Self {
        let (mut heads, mut tails) = (FeeOrder::default(), FeeOrder::default());
        heads.set_base_fee(head.next_base_fee);
        tails.set_base_fee(head.next_base_fee);
        Self {
            config,
            head,
            txs: HashMap::default(),
            senders: HashMap::default(),
            heads,
            tails,
            queued: BTreeMap::new(),
            blob_order: BTreeMap::new(),
            by_age: BTreeMap::new(),
            blobs: BlobStore::default(),
            authorities: HashMap::default(),
            recent: RecentSenders::default(),
            totals: Totals::default(),
            counters: Counters::default(),
            events: Vec::new(),
        }
    }

    pub(crate) fn by_arrival(&self) -> bool {
        self.config.mode == PoolMode::Sequenced
    }

    /// Adds a transaction to all tables, as a queued one. The caller must run [`Store::update_run`] for its sender.
    pub(crate) fn link(&mut self, tx: &Arc<PooledTransaction>, account: SenderAccount) {
        let queue = self.senders.entry(tx.sender).or_default();
        if queue.slots.is_empty() {
            queue.account = account;
        }
        let slot = Box::new(Slot::new(Arc::clone(tx)));
        queue.slots.insert(tx.nonce(), slot);
        self.txs.insert(tx.hash, Arc::clone(tx));
        self.by_age.insert(tx.seq, tx.hash);
        self.totals.add(tx);
        self.totals.enqueue(tx);
        for authority in &tx.authorities {
            *self.authorities.entry(*authority).or_default() += 1;
        }
        if !tx.priority {
            self.queued.insert(self.queued_key(tx), tx.hash);
            if tx.blob_bytes > 0 {
                self.blob_order.insert(blob_key(tx), tx.hash);
            }
        }
    }

    /// Removes a transaction from all tables and records the event. The caller must run [`Store::update_run`] for its
    /// sender.
    pub(crate) fn unlink(
        &mut self,
        hash: &B256,
        reason: DropReason,
        replaced_by: Option<B256>,
    ) -> Option<Arc<PooledTransaction>> {
        let tx = self.txs.remove(hash)?;
        let queue = self.senders.get_mut(&tx.sender);
        let slot = queue.and_then(|queue| queue.slots.remove(&tx.nonce()));
        let pending = slot.is_none_or(|slot| slot.pending);
        if !pending {
            self.dequeue(&tx);
        }
        self.by_age.remove(&tx.seq);
        self.blob_order.remove(&blob_key(&tx));
        self.totals.subtract(&tx);
        for authority in &tx.authorities {
            if let Some(count) = self.authorities.get_mut(authority) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.authorities.remove(authority);
                }
            }
        }
        // If it is stale, a block that the pool has not seen may have included it.
        if matches!(reason, DropReason::Included | DropReason::Stale) {
            self.blobs.include(hash, self.config.included_blob_bytes);
        } else {
            self.blobs.remove(hash);
        }
        self.recent.record(*hash, tx.sender, tx.origin);
        self.events.push(PoolEvent::Dropped {
            tx: Arc::clone(&tx),
            reason,
            pending,
            replaced_by,
        });
        Some(tx)
    }

    /// Recomputes which transactions of `sender` are pending, from nonce `from` on, and its position in the orders.
    pub(crate) fn update_run(&mut self, sender: Address, from: u64) {
        let by_arrival = self.by_arrival();
        let Some(queue) = self.senders.get_mut(&sender) else {
            return;
        };
        if let Some(bid) = queue.head.take() {
            self.heads.remove(&bid);
        }
        if let Some(bid) = queue.tail.take() {
            self.tails.remove(&bid);
        }
        let changed = queue.update_run(from);
        if queue.slots.is_empty() {
            self.senders.remove(&sender);
            return;
        }
        let (head, tail) = queue.bids(by_arrival);
        if let Some(bid) = head {
            self.heads.insert(bid, sender);
        }
        if let Some(bid) = tail {
            self.tails.insert(bid, sender);
        }
        (queue.head, queue.tail) = (head, tail);
        for (tx, pending) in changed {
            if pending {
                self.dequeue(&tx);
                self.events.push(PoolEvent::Promoted { tx });
            } else {
                self.enqueue(&tx);
                self.counters.flows.count_demoted(&tx);
            }
        }
    }

    /// Removes a transaction and updates its sender.
    pub(crate) fn remove(&mut self, hash: &B256, reason: DropReason) -> bool {
        let Some(tx) = self.unlink(hash, reason, None) else {
            return false;
        };
        self.update_run(tx.sender, tx.nonce());
        true
    }

    fn queued_key(&self, tx: &PooledTransaction) -> QueuedKey {
        let tip = if self.by_arrival() { 0 } else { tx.tip() };
        (tip, Reverse(tx.seq))
    }

    fn enqueue(&mut self, tx: &PooledTransaction) {
        self.totals.enqueue(tx);
        if !tx.priority {
            self.queued.insert(self.queued_key(tx), tx.hash);
        }
    }

    fn dequeue(&mut self, tx: &PooledTransaction) {
        self.totals.dequeue(tx);
        self.queued.remove(&self.queued_key(tx));
    }

    pub(crate) fn is_pending(&self, tx: &PooledTransaction) -> bool {
        let slot = self.slot(&tx.sender, tx.nonce());
        slot.is_some_and(|slot| slot.pending && slot.tx.hash == tx.hash)
    }

    pub(crate) fn slot(&self, sender: &Address, nonce: u64) -> Option<&Slot> {
        self.senders.get(sender)?.slots.get(&nonce).map(Box::as_ref)
    }
}

pub(crate) fn blob_key(tx: &PooledTransaction) -> BlobKey {
    (tx.max_blob_fee(), tx.tip(), Reverse(tx.seq))
}

impl Totals {
    fn add(&mut self, tx: &PooledTransaction) {
        self.bytes += tx.bytes;
        self.blob_bytes += tx.blob_bytes;
        self.by_type[tx.type_index()] += 1;
        self.local += usize::from(tx.origin == Origin::Local);
        if tx.priority {
            self.priority += 1;
            self.priority_bytes += tx.bytes;
            self.priority_blob_bytes += tx.blob_bytes;
        }
    }

    fn enqueue(&mut self, tx: &PooledTransaction) {
        self.queued += 1;
        self.queued_bytes += tx.bytes;
        self.queued_by_type[tx.type_index()] += 1;
    }

    fn dequeue(&mut self, tx: &PooledTransaction) {
        self.queued = self.queued.saturating_sub(1);
        self.queued_bytes = self.queued_bytes.saturating_sub(tx.bytes);
        let of_type = &mut self.queued_by_type[tx.type_index()];
        *of_type = of_type.saturating_sub(1);
    }

    fn subtract(&mut self, tx: &PooledTransaction) {
        self.bytes = self.bytes.saturating_sub(tx.bytes);
        self.blob_bytes = self.blob_bytes.saturating_sub(tx.blob_bytes);
        let of_type = &mut self.by_type[tx.type_index()];
        *of_type = of_type.saturating_sub(1);
        let local = usize::from(tx.origin == Origin::Local);
        self.local = self.local.saturating_sub(local);
        if tx.priority {
            self.priority = self.priority.saturating_sub(1);
            self.priority_bytes = self.priority_bytes.saturating_sub(tx.bytes);
            self.priority_blob_bytes = self.priority_blob_bytes.saturating_sub(tx.blob_bytes);
        }
    }
}

/// Senders of removed transactions, for the blocks that include them. Bounded: the oldest go.
#[derive(Debug, Default)]
pub(crate) struct RecentSenders {
    known: HashMap<B256, (Address, Origin)>,
    order: VecDeque<B256>,
}

impl RecentSenders {
    pub(crate) fn record(&mut self, hash: B256, sender: Address, origin: Origin) {
        if self.known.insert(hash, (sender, origin)).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > RECENT_SENDERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, hash: &B256) -> Option<(Address, Origin)> {
        self.known.get(hash).copied()
    }
}
