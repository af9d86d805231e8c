//! The pool: what the rest of the node calls. One short lock; signatures, proofs and state are
//! looked at before it is taken.

use crate::admit::{Added, Entry};
use crate::best::Best;
use crate::blobs::BlobFigures;
use crate::config::PoolConfig;
use crate::dump::{Restored, read_dump, write_dump};
use crate::error::PoolError;
use crate::events::{DropReason, Outbox, PoolEvent};
use crate::head::{Head, HeadChange, Returning, SharedView};
use crate::sender::{SenderAccount, SenderQueue};
use crate::sidecar::{PooledBlob, Sidecar, check_proofs, sidecar_bytes};
use crate::store::Store;
use crate::transaction::{Incoming, Origin, PooledTransaction, authorities, memory_bytes};
use crate::validate::{check_gas, check_policy, check_price, check_stateless};
use niwaki_primitives::{
    Address, B256, Fault, Fork, Header, TxEnvelope, U256,
    map::{HashMap, HashSet},
};
use niwaki_rules::{BlockRules, ChainSpec, recover_sender, upfront_cost};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// How often an addition reads an account anew because the head moved meanwhile, before it does
/// so with the lock held.
const HEAD_RETRIES: usize = 3;

/// Pending transactions.
#[derive(Debug)]
pub struct Pool {
    spec: Arc<ChainSpec>,
    config: Arc<PoolConfig>,
    store: RwLock<Store>,
    outbox: Outbox,
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    /// The fork of the next block at the last head; held while the head changes.
    head_change: Mutex<Fork>,
    next_seq: AtomicU64,
    /// In the place of the option, which is what it was at the beginning.
    min_gas_price: RwLock<u128>,
}

/// Transactions of one sender, by nonce.
#[derive(Clone, Debug, Default)]
pub struct SenderContent {
    /// Those that blocks could take, one after the other.
    pub pending: Vec<Arc<PooledTransaction>>,
    /// Those that wait for a nonce or for funds.
    pub queued: Vec<Arc<PooledTransaction>>,
}

impl SenderContent {
    fn of(queue: &SenderQueue) -> Self {
        let mut content = Self::default();
        for slot in queue.slots.values() {
            let side = if slot.pending {
                &mut content.pending
            } else {
                &mut content.queued
            };
            side.push(Arc::clone(&slot.tx));
        }
        content
    }
}

/// How much a pool holds, and what has happened to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Transactions that blocks could take.
    pub pending: usize,
    /// Transactions that wait.
    pub queued: usize,
    /// Transactions by EIP-2718 type.
    pub by_type: [usize; 5],
    /// Transactions of this node's users.
    pub local: usize,
    /// Senders.
    pub senders: usize,
    /// Bytes of all transactions, without blobs.
    pub bytes: usize,
    /// Bytes of the blobs of all transactions.
    pub blob_bytes: usize,
    /// Blobs of included transactions, and hashes that lead to blobs.
    pub blobs: BlobFigures,
    /// Transactions added so far, of this node's users.
    pub added_local: u64,
    /// Transactions added so far, of peers.
    pub added_remote: u64,
    /// Points of score that transactions lost so far.
    pub penalized: u64,
    /// Transactions removed so far, by reason.
    pub removed: BTreeMap<DropReason, u64>,
    /// Transactions refused so far, by [`PoolError::name`].
    pub rejected: BTreeMap<&'static str, u64>,
}

impl Pool {
    /// An empty pool upon the block with this header, and the state after it. `now` here and
    /// below is in seconds since 1970.
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
            outbox: Outbox::default(),
            rejected: Mutex::default(),
            head_change: Mutex::new(fork),
            next_seq: AtomicU64::new(0),
            min_gas_price,
        }
    }

    /// The options that it was made with.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// The least price of gas that is taken, wei, for all but priority transactions.
    pub fn min_gas_price(&self) -> u128 {
        *self
            .min_gas_price
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it from now on; transactions that are here stay.
    pub fn set_min_gas_price(&self, price: u128) {
        let mut least = self
            .min_gas_price
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *least = price;
    }

    /// Hears of everything that happens from now on, in order, on the threads that change the
    /// pool. A listener must be quick; it may ask the pool things and add to it, and must not add
    /// listeners.
    pub fn listen(&self, listener: impl Fn(&PoolEvent) + Send + Sync + 'static) {
        self.outbox.listen(Box::new(listener));
    }

    /// Checks a transaction and takes it in. About 40 us, and 2 to 10 ms for each blob.
    ///
    /// # Errors
    /// Any [`PoolError`]; the pool is then as it was.
    pub fn add(&self, incoming: Incoming, origin: Origin, now: u64) -> Result<Added, PoolError> {
        let added = self.try_add(incoming, origin, now);
        if let Err(reason) = &added {
            let mut rejected = lock(&self.rejected);
            let count = rejected.entry(reason.name()).or_default();
            *count = count.saturating_add(1);
        }
        added
    }

    fn try_add(&self, incoming: Incoming, origin: Origin, now: u64) -> Result<Added, PoolError> {
        let hash = *incoming.tx.tx_hash();
        let (mut head, known_sender) = {
            let store = self.read();
            if store.txs.contains_key(&hash) {
                return Err(PoolError::AlreadyKnown);
            }
            (Arc::clone(&store.head), store.recent.get(&hash))
        };
        let rules = head.next_rules(&self.spec, now);
        let (tx, sidecar) = (&incoming.tx, incoming.sidecar.as_deref());
        let limit = head.header.gas_limit;
        let known_sender = known_sender.map(|(sender, _)| sender);
        check_stateless(tx, sidecar, known_sender, &rules, limit)?;
        let sender = match known_sender {
            Some(sender) => sender,
            None => {
                let sender = recover_sender(tx).map_err(|_| PoolError::InvalidSender)?;
                check_gas(tx, sender, &rules, limit)?;
                sender
            }
        };
        let priority = self.config.has_priority(origin == Origin::Local, &sender);
        check_policy(tx, origin, &self.config)?;
        check_price(tx, priority, self.min_gas_price())?;

        let mut account = SenderAccount::read(&*head.view, &sender, rules.fork)?;
        let (sidecar, tx) = self.pooled(incoming, sender, origin, now);
        self.read().admit(&tx, &account, Entry::New)?;
        if let Some(sidecar) = &sidecar {
            check_proofs(sidecar)?;
        }

        for _ in 0..HEAD_RETRIES {
            let current = self.write(|store| {
                if Arc::ptr_eq(&store.head, &head) {
                    return Ok(store.insert_settled(&tx, account, sidecar.clone()));
                }
                Err(Arc::clone(&store.head))
            });
            head = match current {
                Ok(added) => return added,
                Err(moved) => moved,
            };
            account = self.check_again(&tx, sidecar.as_deref(), &head, now)?;
        }
        self.write(|store| {
            let head = Arc::clone(&store.head);
            let account = self.check_again(&tx, sidecar.as_deref(), &head, now)?;
            store.insert_settled(&tx, account, sidecar)
        })
    }

    /// Checks against a head that came meanwhile what depends on it, and reads the account anew.
    fn check_again(
        &self,
        tx: &PooledTransaction,
        sidecar: Option<&Sidecar>,
        head: &Head,
        now: u64,
    ) -> Result<SenderAccount, PoolError> {
        let rules = head.next_rules(&self.spec, now);
        let limit = head.header.gas_limit;
        check_stateless(&tx.tx, sidecar, Some(tx.sender), &rules, limit)?;
        SenderAccount::read(&*head.view, &tx.sender, rules.fork)
    }

    fn pooled(
        &self,
        incoming: Incoming,
        sender: Address,
        origin: Origin,
        now: u64,
    ) -> (Option<Arc<Sidecar>>, Arc<PooledTransaction>) {
        let Incoming { tx, sidecar } = incoming;
        let sidecar = sidecar.filter(|_| matches!(tx, TxEnvelope::Eip4844(_)));
        let authorities = authorities(&tx, sender);
        let pooled = PooledTransaction {
            hash: *tx.tx_hash(),
            sender,
            origin,
            added_at: now,
            priority: self.config.has_priority(origin == Origin::Local, &sender),
            seq: self.next_seq.fetch_add(1, Ordering::Relaxed),
            cost: upfront_cost(&tx).unwrap_or(U256::MAX),
            bytes: memory_bytes(&tx, &authorities),
            blob_bytes: sidecar.as_deref().map_or(0, sidecar_bytes),
            authorities,
            tx,
        };
        (sidecar, Arc::new(pooled))
    }

    /// Stands on a new head: drops what was included or is stale, takes back what left the chain,
    /// and finds out anew what blocks could take. Cost: linear in the senders that the change
    /// names and in their transactions; in all of the pool at a fork.
    ///
    /// # Errors
    /// The first [`Fault`] of the state. The pool stands on the new head nevertheless, and keeps
    /// what it knew of the accounts that could not be read.
    pub fn head_changed(&self, change: &HeadChange<'_>, now: u64) -> Result<(), Fault> {
        let mut fork = lock(&self.head_change);
        let view = Arc::clone(&change.view);
        let head = Arc::new(Head::new(&self.spec, change.header.clone(), view, now));
        let rules = head.next_rules(&self.spec, now);
        let touched = self.touched(change);
        let (mut accounts, mut fault) = (HashMap::default(), None);
        read_accounts(&head, &touched, &rules, &mut accounts, &mut fault);
        let returning = self.returning(change);

        self.write(|store| {
            // Those who came while the accounts above were read.
            let late = touched_in(store, change);
            read_accounts(&head, &late, &rules, &mut accounts, &mut fault);
            store.enter_head(Arc::clone(&head), &accounts, change.included);
            for returning in returning {
                if let Some(account) = accounts.get(&returning.sender) {
                    store.take_back(returning, *account, &rules, now);
                }
            }
            if *fork != rules.fork {
                store.sweep(&rules);
            }
            if store.by_arrival() {
                store.expire(now.saturating_sub(self.config.retention_s));
            }
            store.evict(None, true);
        });
        *fork = rules.fork;
        fault.map_or(Ok(()), Err)
    }

    fn touched(&self, change: &HeadChange<'_>) -> HashSet<Address> {
        let mut touched = touched_in(&self.read(), change);
        touched.extend(change.removed.iter().map(|(_, sender)| *sender));
        touched
    }

    fn returning(&self, change: &HeadChange<'_>) -> Vec<Returning> {
        let included: HashSet<B256> = change.included.iter().map(|(hash, _)| *hash).collect();
        let gone = change.removed.iter();
        gone.filter(|(tx, _)| !included.contains(tx.tx_hash()))
            .map(|(tx, sender)| Returning {
                authorities: authorities(tx, *sender),
                tx: tx.clone(),
                sender: *sender,
                seq: self.next_seq.fetch_add(1, Ordering::Relaxed),
            })
            .collect()
    }

    /// What a block with these fees could take, best first. The snapshot costs at most a look at
    /// `max_prioritized` senders, beside other readers if the base fee is that of the next block;
    /// the pool is free again when this returns.
    pub fn best(&self, base_fee: u64, blob_base_fee: u128) -> Best {
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

    /// Drops a transaction that turned out not to be valid upon the head. Those after it wait.
    /// Says whether it was here.
    pub fn remove_invalid(&self, hash: &B256) -> bool {
        self.write(|store| store.remove_alone(hash, DropReason::Invalid))
    }

    /// Lowers the score of a transaction that could not be put into a block though it was valid:
    /// others go before it from now on, whatever it pays. Says whether it is still here.
    pub fn penalize(&self, hash: &B256) -> bool {
        self.write(|store| store.penalize(hash))
    }

    /// A transaction by its hash.
    pub fn get(&self, hash: &B256) -> Option<Arc<PooledTransaction>> {
        self.read().txs.get(hash).cloned()
    }

    /// Whether a transaction is here.
    pub fn contains(&self, hash: &B256) -> bool {
        self.read().txs.contains_key(hash)
    }

    /// Which of `hashes` are not here, for announcements of peers.
    pub fn unknown(&self, hashes: &[B256]) -> Vec<B256> {
        let store = self.read();
        let unknown = |hash: &&B256| !store.txs.contains_key(*hash);
        hashes.iter().filter(unknown).copied().collect()
    }

    /// Who sent a transaction that is here, or was recently: for the import of blocks.
    pub fn sender_of(&self, hash: &B256) -> Option<Address> {
        self.senders_of(std::slice::from_ref(hash)).pop().flatten()
    }

    /// As [`Pool::sender_of`], for all transactions of a block at once.
    pub fn senders_of(&self, hashes: &[B256]) -> Vec<Option<Address>> {
        let store = self.read();
        let sender = |hash| match store.txs.get(hash) {
            Some(tx) => Some(tx.sender),
            None => store.recent.get(hash).map(|(sender, _)| sender),
        };
        hashes.iter().map(sender).collect()
    }

    /// The nonce after the last one that blocks could take of `sender`; `None` if they could take
    /// nothing, and then it is the account's.
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
        senders
            .map(|(sender, queue)| (*sender, SenderContent::of(queue)))
            .collect()
    }

    /// All transactions, oldest first. Cost: linear in all transactions.
    pub fn all(&self) -> Vec<Arc<PooledTransaction>> {
        let store = self.read();
        let hashes = store.by_age.values();
        hashes
            .filter_map(|hash| store.txs.get(hash).cloned())
            .collect()
    }

    /// The blobs of a transaction that is here, or was included recently.
    pub fn sidecar(&self, hash: &B256) -> Option<Arc<Sidecar>> {
        self.read().blobs.get(hash).cloned()
    }

    /// Blobs by versioned hash, in order: of transactions that are here or were included recently.
    pub fn blobs(&self, versioned_hashes: &[B256]) -> Vec<Option<PooledBlob>> {
        let store = self.read();
        let blobs = versioned_hashes.iter().map(|hash| store.blobs.blob(hash));
        blobs.collect()
    }

    /// Transactions taken in so far, those that have left again among them.
    pub fn added(&self) -> u64 {
        let counters = &self.read().counters;
        counters.added_local.saturating_add(counters.added_remote)
    }

    /// Figures for metrics and `txpool_status`. Cost: linear in the blob transactions that were
    /// included recently.
    pub fn figures(&self) -> PoolFigures {
        let rejected = lock(&self.rejected).clone();
        let store = self.read();
        let (totals, counters) = (&store.totals, &store.counters);
        PoolFigures {
            pending: store.txs.len().saturating_sub(totals.waiting),
            queued: totals.waiting,
            by_type: totals.by_type,
            local: totals.local,
            senders: store.senders.len(),
            bytes: totals.bytes,
            blob_bytes: totals.blob_bytes,
            blobs: store.blobs.figures(),
            added_local: counters.added_local,
            added_remote: counters.added_remote,
            penalized: counters.penalized,
            removed: counters.removed.clone(),
            rejected,
        }
    }

    /// Writes all transactions as `txpool.dump` has them, and says how many.
    ///
    /// # Errors
    /// What `out` says.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<usize> {
        let txs: Vec<_> = {
            let store = self.read();
            let txs = store.by_age.values().filter_map(|h| store.txs.get(h));
            txs.map(|tx| (Arc::clone(tx), store.blobs.get(&tx.hash).cloned()))
                .collect()
        };
        write_dump(out, &txs)
    }

    /// Adds the transactions of a `txpool.dump`, each checked as any other: a quarter of a second for one
    /// of six blobs. Before each line `goes_on` is given the byte where the line begins, and ends the
    /// reading by `false`.
    ///
    /// # Errors
    /// What `input` says; lines that can't be used are named in the outcome instead.
    pub fn restore(
        &self,
        input: &mut dyn BufRead,
        now: u64,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Restored> {
        read_dump(self, input, now, goes_on)
    }

    /// The lock is never held by a thread that panics halfway through a change: see [`Store`].
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<R>(&self, change: impl FnOnce(&mut Store) -> R) -> R {
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut store);
        let events = std::mem::take(&mut store.events);
        if events.is_empty() {
            return result;
        }
        // Before the lock goes, so that events stand in the order of what they tell.
        self.outbox.push(events);
        drop(store);
        self.outbox.deliver();
        result
    }
}

impl Store {
    /// As [`Store::insert`], once what is here of the sender is held against its account.
    fn insert_settled(
        &mut self,
        tx: &Arc<PooledTransaction>,
        account: SenderAccount,
        sidecar: Option<Arc<Sidecar>>,
    ) -> Result<Added, PoolError> {
        self.settle(tx.sender, account, &HashSet::default());
        self.insert(Arc::clone(tx), account, sidecar, Entry::New)
    }

    /// Takes one transaction out; those after it wait, as far as there is room.
    fn remove_alone(&mut self, hash: &B256, reason: DropReason) -> bool {
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
            self.remove_alone(hash, DropReason::Penalized);
            return false;
        }
        self.recount(tx.sender, tx.nonce());
        true
    }
}

/// The senders in the pool that a new head may concern.
fn touched_in(store: &Store, change: &HeadChange<'_>) -> HashSet<Address> {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
