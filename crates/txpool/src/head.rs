//! A new head: what it does to the pool.
//!
//! ```text
//! HeadUpdate { removed, included, changed }
//!   included   -> dropped as Included; other transactions of a used nonce as Stale
//!   changed    -> accounts are read again, and their pending transactions recomputed
//!   removed    -> transactions of the reorganized blocks are reinserted
//!   a new fork -> transactions that its rules exclude are dropped as Invalid
//! ```

use crate::admit::Entry;
use crate::error::PoolError;
use crate::events::DropReason;
use crate::sender::SenderAccount;
use crate::sidecar::{sidecar_version, version_of};
use crate::store::Store;
use crate::transaction::{Origin, PooledTransaction, SignedTransaction};
use niwaki_primitives::{
    Address, B256, Fork, Header, StateView, TxEnvelope,
    map::{HashMap, HashSet},
};
use niwaki_rules::{BlockRules, ChainSpec, GasAvailable, check_transaction, next_excess_blob_gas};
use std::sync::Arc;

/// A state view that threads share.
pub type SharedView = Arc<dyn StateView + Send + Sync>;

/// A new head, and how it differs from the one before.
pub struct HeadUpdate<'a> {
    /// Its header.
    pub header: Header,
    /// The state after it.
    pub view: SharedView,
    /// Transactions of blocks that left the canonical chain, with senders, oldest first.
    pub removed: &'a [(TxEnvelope, Address)],
    /// Transactions of blocks that joined it, with senders.
    pub included: &'a [(B256, Address)],
    /// All accounts that differ between the two heads. If `None`, the account of every sender in the pool is read.
    pub changed: Option<&'a [Address]>,
}

impl std::fmt::Debug for HeadUpdate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeadUpdate")
            .field("number", &self.header.number)
            .field("removed", &self.removed.len())
            .field("included", &self.included.len())
            .finish_non_exhaustive()
    }
}

/// The head that the pool is at.
pub(crate) struct Head {
    pub(crate) header: Header,
    pub(crate) view: SharedView,
    pub(crate) next_base_fee: u64,
    pub(crate) next_blob_base_fee: u128,
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Head")
            .field("number", &self.header.number)
            .finish_non_exhaustive()
    }
}

impl Head {
    pub(crate) fn new(spec: &ChainSpec, header: Header, view: SharedView, now: u64) -> Self {
        let (fork, timestamp) = next_fork(spec, &header, now);
        let has_base_fee = fork >= Fork::London;
        let blob_params = spec.blob_params_at(timestamp);
        Self {
            next_base_fee: match has_base_fee {
                true => spec.next_base_fee(&header),
                false => 0,
            },
            next_blob_base_fee: blob_params.map_or(0, |params| {
                params.base_fee(next_excess_blob_gas(&header, fork, &params))
            }),
            header,
            view,
        }
    }

    /// The rules of the next block if it is built at `now`. Fees are left out: a transaction that can't pay them now
    /// may be able to later.
    pub(crate) fn next_rules(&self, spec: &ChainSpec, now: u64) -> BlockRules {
        let (fork, timestamp) = next_fork(spec, &self.header, now);
        let number = self.header.number.saturating_add(1);
        BlockRules {
            fork,
            chain_id: spec.chain_id,
            base_fee: None,
            blob_base_fee: 0,
            blob_params: spec.blob_params_at(timestamp),
            max_gas_limit: spec.max_gas_limit(number, timestamp, fork),
            has_gas_price: spec.has_gas_price(number),
        }
    }
}

/// Fork and timestamp of a block on top of `header` that is built at `now`.
fn next_fork(spec: &ChainSpec, header: &Header, now: u64) -> (Fork, u64) {
    let timestamp = header.timestamp.saturating_add(1).max(now);
    let number = header.number.saturating_add(1);
    let fork = spec.fork_at(number, timestamp, spec.is_merged(header));
    (fork, timestamp)
}

/// Whether a block under these rules could include the transaction.
fn fits(tx: &TxEnvelope, sender: Address, rules: &BlockRules) -> bool {
    check_transaction(tx, sender, rules, GasAvailable::both(u64::MAX), u64::MAX).is_ok()
}

impl Store {
    /// Moves to `head`: updates every sender in `accounts`, drops included and stale transactions.
    pub(crate) fn set_head(
        &mut self,
        head: Arc<Head>,
        accounts: &HashMap<Address, SenderAccount>,
        included: &[(B256, Address)],
    ) {
        self.heads.set_base_fee(head.next_base_fee);
        self.tails.set_base_fee(head.next_base_fee);
        self.head = head;
        let hashes: HashSet<B256> = included.iter().map(|(hash, _)| *hash).collect();
        for (hash, sender) in included {
            if !self.txs.contains_key(hash) && self.recent.get(hash).is_none() {
                self.recent.record(*hash, *sender, Origin::Remote);
            }
        }
        for (sender, account) in accounts {
            self.update_account(*sender, *account, &hashes);
        }
        for (hash, _) in included {
            self.remove(hash, DropReason::Included);
        }
    }

    /// Sets the account of `sender`: drops transactions with used nonces and recomputes the pending ones. Cost: none if
    /// the account is the same, else linear in the sender's transactions.
    pub(crate) fn update_account(
        &mut self,
        sender: Address,
        account: SenderAccount,
        included: &HashSet<B256>,
    ) {
        let Some(queue) = self.senders.get_mut(&sender) else {
            return;
        };
        if queue.account == account {
            return;
        }
        queue.account = account;
        let used = queue.slots.range(..account.nonce);
        let used: Vec<B256> = used.map(|(_, slot)| slot.tx.hash).collect();
        for hash in used {
            let reason = match included.contains(&hash) {
                true => DropReason::Included,
                false => DropReason::Stale,
            };
            self.unlink(&hash, reason, None);
        }
        self.update_run(sender, 0);
    }

    /// Reinserts a transaction of a block that left the chain, unless it can't be in the next block or its sidecar is
    /// gone.
    pub(crate) fn reinsert(
        &mut self,
        reinserted: SignedTransaction,
        account: SenderAccount,
        rules: &BlockRules,
        now: u64,
    ) {
        let SignedTransaction { tx, sender, .. } = &reinserted;
        let hash = *tx.tx_hash();
        if self.txs.contains_key(&hash) || !fits(tx, *sender, rules) {
            return;
        }
        let sidecar = self.blobs.reinsert(&hash);
        let has_blobs = matches!(tx, TxEnvelope::Eip4844(_));
        let version = sidecar.as_deref().map(sidecar_version);
        if has_blobs && version != Some(version_of(rules.fork)) {
            return;
        }
        let recent = self.recent.get(&hash);
        let origin = recent.map_or(Origin::Remote, |(_, origin)| origin);
        let pooled = reinserted.pooled(&self.config, origin, sidecar.as_deref(), now);
        // A transaction that was replaced meanwhile, or that its sender can't pay any more, is not reinserted either.
        let _: Result<_, PoolError> =
            self.insert(Arc::new(pooled), account, sidecar, Entry::Reinserted);
    }

    /// Drops the transactions that no block of a new fork can include. Cost: linear in all transactions.
    pub(crate) fn drop_invalid(&mut self, rules: &BlockRules) {
        let version = version_of(rules.fork);
        let invalid = |tx: &&Arc<PooledTransaction>| {
            let sidecar = self.blobs.get(&tx.hash);
            let stale = sidecar.is_some_and(|sidecar| sidecar_version(sidecar) != version);
            stale || !fits(&tx.tx, tx.sender, rules)
        };
        let invalid = self.txs.values().filter(invalid);
        let invalid: Vec<B256> = invalid.map(|tx| tx.hash).collect();
        for hash in invalid {
            self.remove(&hash, DropReason::Invalid);
        }
    }
}
