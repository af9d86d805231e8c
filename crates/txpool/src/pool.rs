//! The pool's interface for the rest of the node.
//!
//! Signatures, proofs and state are checked before the lock is taken, so that it is held for microseconds. An addition
//! that finds a new head under the lock repeats the checks that depend on the head.

mod add;

use crate::best::BestTransactions;
use crate::blobs::BlobStats;
use crate::config::{PoolConfig, PoolMode};
use crate::dump::{Restored, read_dump, write_dump};
use crate::events::{DropReason, EventQueue, PoolEvent, lock};
use crate::flows::Flows;
use crate::head::{Head, HeadUpdate, SharedView};
use crate::sender::{SenderAccount, SenderQueue};
use crate::sidecar::{PooledBlob, Sidecar};
use crate::store::Store;
use crate::transaction::{Origin, PooledTransaction, SignedTransaction};
use niwaki_crypto::KzgError;
use niwaki_primitives::{
    Address, B256, Bytes, Fault, Fork, Header, TxEnvelope,
    map::{HashMap, HashSet},
};
use niwaki_rules::{BlockRules, ChainSpec};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// The transaction pool.
#[derive(Debug)]
pub struct Pool {
    spec: Arc<ChainSpec>,
    config: Arc<PoolConfig>,
    store: RwLock<Store>,
    events: EventQueue,
    rejected: Mutex<BTreeMap<(&'static str, Origin), u64>>,
    /// The fork of the block after the last head; locked while the head changes.
    head_change: Mutex<Fork>,
    next_seq: AtomicU64,
    /// The current minimum; the option in `config` is only the initial one.
    min_gas_price: RwLock<u128>,
    /// The columns that the consensus client keeps; all until it says which.
    custody_columns: RwLock<u128>,
    sender_filter: SenderFilter,
}

type PermitsSender = Box<dyn Fn(&Address, &TxEnvelope) -> bool + Send + Sync>;

/// Says whether an account may send a transaction; unset if all may.
#[derive(Default)]
struct SenderFilter(OnceLock<PermitsSender>);

impl std::fmt::Debug for SenderFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SenderFilter").finish_non_exhaustive()
    }
}

/// Transactions of one sender, by nonce.
#[derive(Clone, Debug, Default)]
pub struct SenderContent {
    /// Those that blocks could include, in order.
    pub pending: Vec<Arc<PooledTransaction>>,
    /// Those that wait for an earlier nonce or for funds.
    pub queued: Vec<Arc<PooledTransaction>>,
}

impl SenderContent {
    fn of(queue: &SenderQueue) -> Self {
        let mut content = Self::default();
        for slot in queue.slots.values() {
            let side = match slot.pending {
                true => &mut content.pending,
                false => &mut content.queued,
            };
            side.push(Arc::clone(&slot.tx));
        }
        content
    }
}

/// Statistics of a pool: its contents, and counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Transactions that the next block could include.
    pub pending: usize,
    /// The other transactions.
    pub queued: usize,
    /// Transactions by EIP-2718 type.
    pub by_type: [usize; 5],
    /// The same of those that are queued.
    pub queued_by_type: [usize; 5],
    /// Local transactions.
    pub local: usize,
    /// Senders.
    pub senders: usize,
    /// Bytes of all transactions, without blobs.
    pub bytes: usize,
    /// The same of those that are queued.
    pub queued_bytes: usize,
    /// Bytes of the blobs of all transactions.
    pub blob_bytes: usize,
    /// Blobs of included transactions, and versioned hashes.
    pub blobs: BlobStats,
    /// Transactions added, promoted and removed so far.
    pub flows: Flows,
    /// Score points that transactions have lost so far.
    pub penalized: u64,
    /// Transactions refused so far, by [`PoolError::name`](crate::PoolError::name) and where they came from.
    pub rejected: BTreeMap<(&'static str, Origin), u64>,
}

impl Pool {
    /// An empty pool at the head with this header and state. `now`, here and below, is in seconds since 1970.
    pub fn new(
        config: PoolConfig,
        spec: Arc<ChainSpec>,
        header: Header,
        view: SharedView,
        now: u64,
    ) -> Self {
        let min_gas_price = RwLock::new(config.min_gas_price);
        let config = Arc::new(config);
        let head = Arc::new(Head::new(&spec, header, view, now));
        let fork = head.next_rules(&spec, now).fork;
        Self {
            store: RwLock::new(Store::new(Arc::clone(&config), head)),
            spec,
            config,
            events: EventQueue::default(),
            rejected: Mutex::default(),
            head_change: Mutex::new(fork),
            next_seq: AtomicU64::new(0),
            min_gas_price,
            custody_columns: RwLock::new(u128::MAX),
            sender_filter: SenderFilter::default(),
        }
    }

    /// The options it was created with.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Takes only transactions for which, and for whose senders, `permits` holds, from now on. It may be set once.
    pub fn set_sender_filter(
        &self,
        permits: impl Fn(&Address, &TxEnvelope) -> bool + Send + Sync + 'static,
    ) {
        let _ = self.sender_filter.0.set(Box::new(permits));
    }

    /// Whether an account may send a transaction now. What it sent before may be in the pool still, until a block is built.
    pub fn permits(&self, sender: &Address, tx: &TxEnvelope) -> bool {
        let filter = self.sender_filter.0.get();
        filter.is_none_or(|permits| permits(sender, tx))
    }

    /// The least accepted gas price, wei, for all but priority transactions.
    pub fn min_gas_price(&self) -> u128 {
        *self
            .min_gas_price
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes [`Pool::min_gas_price`] from now on; transactions in the pool stay.
    pub fn set_min_gas_price(&self, price: u128) {
        let mut least = self
            .min_gas_price
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *least = price;
    }

    /// The columns of cells that the consensus client keeps: bit `i` is set for column `i`. All until it says which (EIP-8070).
    pub fn custody_columns(&self) -> u128 {
        *self
            .custody_columns
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes [`Pool::custody_columns`] for transactions that come from now on; those in the pool keep what they have.
    pub fn set_custody_columns(&self, columns: u128) {
        let mut current = self
            .custody_columns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = columns;
    }

    /// Calls `listener` for all events from now on, in order, on the threads that change the pool. It must be quick; it
    /// may call the pool, but must not add listeners.
    pub fn listen(&self, listener: impl Fn(&PoolEvent) + Send + Sync + 'static) {
        self.events.listen(Box::new(listener));
    }

    /// The place of a new transaction in the order of arrival.
    fn next_seq(&self) -> u64 {
        self.next_seq.fetch_add(1, Ordering::Relaxed)
    }

    /// Moves to a new head: drops included and stale transactions, reinserts those of removed blocks, and recomputes
    /// which are pending. Cost: linear in the transactions of the senders that the update names; at a fork, in all
    /// transactions.
    ///
    /// # Errors
    /// The first [`Fault`] of the state. The pool has moved to the new head nevertheless, and keeps the last known
    /// state of the accounts that could not be read.
    pub fn update_head(&self, change: &HeadUpdate<'_>, now: u64) -> Result<(), Fault> {
        let mut fork = lock(&self.head_change);
        let view = Arc::clone(&change.view);
        let head = Arc::new(Head::new(&self.spec, change.header.clone(), view, now));
        let rules = head.next_rules(&self.spec, now);
        let touched = self.touched(change);
        let (mut accounts, mut fault) = (HashMap::default(), None);
        read_accounts(&head, &touched, &rules, &mut accounts, &mut fault);
        let reinserted = self.reinserted(change);

        self.write(|store| {
            // Senders that joined while the accounts above were read.
            let late = touched_in(store, change);
            read_accounts(&head, &late, &rules, &mut accounts, &mut fault);
            store.set_head(Arc::clone(&head), &accounts, change.included);
            for reinserted in reinserted {
                if let Some(account) = accounts.get(&reinserted.sender) {
                    store.reinsert(reinserted, *account, &rules, now);
                }
            }
            if *fork != rules.fork {
                store.drop_invalid(&rules);
            }
            if store.by_arrival() {
                store.expire(now.saturating_sub(self.config.retention_s));
            }
            store.evict(None, true);
        });
        *fork = rules.fork;
        fault.map_or(Ok(()), Err)
    }

    fn touched(&self, change: &HeadUpdate<'_>) -> HashSet<Address> {
        let mut touched = touched_in(&self.read(), change);
        touched.extend(change.removed.iter().map(|(_, sender)| *sender));
        touched
    }

    fn reinserted(&self, change: &HeadUpdate<'_>) -> Vec<SignedTransaction> {
        let included: HashSet<B256> = change.included.iter().map(|(hash, _)| *hash).collect();
        let gone = change.removed.iter();
        gone.filter(|(tx, _)| !included.contains(tx.tx_hash()))
            .map(|(tx, sender)| SignedTransaction::new(tx.clone(), *sender, self.next_seq()))
            .collect()
    }

    /// The transactions that a block with these fees could include, best first. The snapshot visits at most
    /// `max_prioritized` senders, under a read lock if the base fee is that of the next block; no lock is held when
    /// this returns.
    pub fn best(&self, base_fee: u64, blob_base_fee: u128) -> BestTransactions {
        let store = self.read();
        if store.heads.base_fee() == base_fee {
            return store.best(blob_base_fee);
        }
        drop(store);
        self.write(|store| {
            store.heads.set_base_fee(base_fee);
            store.best(blob_base_fee)
        })
    }

    /// Base fee and blob base fee of the next block, wei.
    pub fn next_fees(&self) -> (u64, u128) {
        let store = self.read();
        (store.head.next_base_fee, store.head.next_blob_base_fee)
    }

    /// Drops a transaction that turned out to be invalid at the head; the sender's later ones are queued. Returns
    /// whether it was in the pool.
    pub fn remove_invalid(&self, hash: &B256) -> bool {
        self.write(|store| store.remove_and_evict(hash, DropReason::Invalid))
    }

    /// Lowers the score of a valid transaction that could not be included in a block: others precede it from now on,
    /// whatever it bids. Returns whether it still is in the pool.
    pub fn penalize(&self, hash: &B256) -> bool {
        self.write(|store| store.penalize(hash))
    }

    /// A transaction by its hash.
    pub fn get(&self, hash: &B256) -> Option<Arc<PooledTransaction>> {
        self.read().txs.get(hash).cloned()
    }

    /// Whether a transaction is in the pool.
    pub fn contains(&self, hash: &B256) -> bool {
        self.read().txs.contains_key(hash)
    }

    /// Whether it has no transaction.
    pub fn is_empty(&self) -> bool {
        self.read().txs.is_empty()
    }

    /// The senders of those transactions that are in the pool or were recently, for block import.
    pub fn senders_of(&self, hashes: &[B256]) -> Vec<Option<Address>> {
        let store = self.read();
        let sender = |hash| match store.txs.get(hash) {
            Some(tx) => Some(tx.sender),
            None => store.recent.get(hash).map(|(sender, _)| sender),
        };
        hashes.iter().map(sender).collect()
    }

    /// The nonce after the last pending transaction of `sender`; `None` if it has none, then the account's nonce is the
    /// next.
    pub fn next_nonce(&self, sender: &Address) -> Option<u64> {
        let store = self.read();
        let queue = store.senders.get(sender)?;
        queue.head.map(|_| queue.run_end)
    }

    /// All transactions of one sender.
    pub fn content_of(&self, sender: &Address) -> SenderContent {
        let store = self.read();
        let queue = store.senders.get(sender);
        queue.map_or_else(SenderContent::default, |queue| SenderContent::of(queue))
    }

    /// All transactions of all senders. Cost: linear in all transactions.
    pub fn content(&self) -> BTreeMap<Address, SenderContent> {
        let store = self.read();
        let senders = store.senders.iter();
        let content = senders.map(|(sender, queue)| (*sender, SenderContent::of(queue)));
        content.collect()
    }

    /// All transactions, oldest first. Cost: linear in all transactions.
    pub fn all(&self) -> Vec<Arc<PooledTransaction>> {
        let store = self.read();
        let hashes = store.by_age.values();
        let txs = hashes.filter_map(|hash| store.txs.get(hash).cloned());
        txs.collect()
    }

    /// The sidecar of a transaction that is in the pool or was included recently.
    pub fn sidecar(&self, hash: &B256) -> Option<Arc<Sidecar>> {
        self.read().blobs.get(hash).cloned()
    }

    /// The cells of the blobs of such a transaction, as [`CellCache::cells_of`](crate::CellCache::cells_of) gives them; `None` also if its blobs have no cell proofs.
    ///
    /// # Errors
    /// Any [`KzgError`] of computing cells.
    pub fn cells(&self, hash: &B256, columns: u128) -> Result<Option<Vec<Bytes>>, KzgError> {
        let (sidecar, cells) = {
            let store = self.read();
            let sidecar = store.blobs.get(hash).cloned();
            (sidecar, Arc::clone(&store.blobs.cells))
        };
        match sidecar.filter(|sidecar| sidecar.has_cell_proofs()) {
            Some(sidecar) => cells.cells_of(&sidecar, columns),
            None => Ok(None),
        }
    }

    /// Blobs by versioned hash, in order, of transactions that are in the pool or were included recently.
    pub fn blobs(&self, versioned_hashes: &[B256]) -> Vec<Option<PooledBlob>> {
        let store = self.read();
        let blobs = versioned_hashes.iter().map(|hash| store.blobs.blob(hash));
        blobs.collect()
    }

    /// Whether pending transactions take less than half of their least room. Queued ones take none of it: they leave first.
    pub fn is_roomy(&self) -> bool {
        let store = self.read();
        match self.config.mode {
            PoolMode::Layered => {
                let pending = store.totals.bytes.saturating_sub(store.totals.queued_bytes);
                pending < self.config.layer_max_capacity_bytes / 2
            }
            PoolMode::Sequenced => {
                let pending = store.txs.len().saturating_sub(store.totals.queued);
                pending < self.config.max_size / 2
            }
        }
    }

    /// Transactions added so far, including those that have left.
    pub fn added(&self) -> u64 {
        self.read().counters.flows.added()
    }

    /// Statistics for metrics and `txpool_status`. Cost: linear in the blob transactions that were
    /// included recently.
    pub fn stats(&self) -> PoolStats {
        let rejected = lock(&self.rejected).clone();
        let store = self.read();
        let (totals, counters) = (&store.totals, &store.counters);
        PoolStats {
            pending: store.txs.len().saturating_sub(totals.queued),
            queued: totals.queued,
            by_type: totals.by_type,
            queued_by_type: totals.queued_by_type,
            local: totals.local,
            senders: store.senders.len(),
            bytes: totals.bytes,
            queued_bytes: totals.queued_bytes,
            blob_bytes: totals.blob_bytes,
            blobs: store.blobs.stats(),
            flows: counters.flows.clone(),
            penalized: counters.penalized,
            rejected,
        }
    }

    /// Whether transactions of this node's users precede others.
    pub fn has_local_priority(&self) -> bool {
        !self.config.no_local_priority
    }

    /// Senders of pending transactions, and senders of queued ones; one may be both. O(senders).
    pub fn senders_by_layer(&self) -> [usize; 2] {
        let store = self.read();
        let (mut pending, mut queued) = (0, 0);
        for sender in store.senders.values() {
            let mut slots = sender.slots.values();
            pending += usize::from(slots.next().is_some_and(|slot| slot.pending));
            let mut slots = sender.slots.values();
            queued += usize::from(slots.next_back().is_some_and(|slot| !slot.pending));
        }
        [pending, queued]
    }

    /// Writes all transactions but those that are sampled in the format of `txpool.dump`, and returns their number.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<usize> {
        let txs: Vec<_> = {
            let store = self.read();
            let txs = store.by_age.values().filter_map(|h| store.txs.get(h));
            let txs = txs.map(|tx| (Arc::clone(tx), store.blobs.get(&tx.hash).cloned()));
            let is_whole = |sidecar: &Arc<Sidecar>| sidecar.is_whole();
            txs.filter(|(_, sidecar)| sidecar.as_ref().is_none_or(is_whole))
                .collect()
        };
        write_dump(out, &txs)
    }

    /// Adds the transactions of a `txpool.dump`, each checked as any other: a quarter of a second for one of six blobs.
    /// Before each line `should_continue` gets the offset of its first byte; reading ends when it returns `false`.
    ///
    /// # Errors
    /// Errors of `input`; lines that can't be used are listed in the result instead.
    pub fn restore(
        &self,
        input: &mut dyn BufRead,
        now: u64,
        should_continue: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Restored> {
        read_dump(self, input, now, should_continue)
    }

    /// The lock is never held by a thread that panics halfway through a change: see [`Store`].
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut store);
        let events = std::mem::take(&mut store.events);
        let flows = &mut store.counters.flows;
        events.iter().for_each(|event| flows.count(event));
        if events.is_empty() {
            return result;
        }
        // Queued before the lock is released, so that events keep their order.
        self.events.push(events);
        drop(store);
        self.events.deliver();
        result
    }
}

impl Store {
    /// Removes a transaction; the sender's later ones are queued, as far as the limits allow.
    fn remove_and_evict(&mut self, hash: &B256, reason: DropReason) -> bool {
        let removed = self.remove(hash, reason);
        self.evict(None, true);
        removed
    }

    fn penalize(&mut self, hash: &B256) -> bool {
        let Some(tx) = self.txs.get(hash).cloned() else {
            return false;
        };
        let slot = self
            .senders
            .get_mut(&tx.sender)
            .and_then(|queue| queue.slots.get_mut(&tx.nonce()));
        let Some(slot) = slot else {
            return false;
        };
        slot.score = slot.score.saturating_sub(1);
        self.counters.penalized = self.counters.penalized.saturating_add(1);
        if slot.score < self.config.min_score {
            self.remove_and_evict(hash, DropReason::Penalized);
            return false;
        }
        self.update_run(tx.sender, tx.nonce());
        true
    }
}

/// The senders in the pool that a new head may affect.
fn touched_in(store: &Store, change: &HeadUpdate<'_>) -> HashSet<Address> {
    let Some(changed) = change.changed else {
        return store.senders.keys().copied().collect();
    };
    let included = change.included.iter().map(|(_, sender)| sender);
    let removed = change.removed.iter().map(|(_, sender)| sender);
    let named = changed.iter().chain(included).chain(removed);
    let here = named.filter(|sender| store.senders.contains_key(*sender));
    here.copied().collect()
}

fn read_accounts(
    head: &Head,
    senders: &HashSet<Address>,
    rules: &BlockRules,
    accounts: &mut HashMap<Address, SenderAccount>,
    fault: &mut Option<Fault>,
) {
    for sender in senders {
        if accounts.contains_key(sender) {
            continue;
        }
        match SenderAccount::read_again(&*head.view, sender, rules.fork) {
            Ok(account) => {
                accounts.insert(*sender, account);
            }
            Err(failed) => {
                fault.get_or_insert(failed);
            }
        }
    }
}
