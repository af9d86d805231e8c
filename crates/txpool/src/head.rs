//! The head that the pool stands on, and what a new one does to its transactions.

use crate::admit::Entry;
use crate::error::PoolError;
use crate::events::DropReason;
use crate::sender::SenderAccount;
use crate::sidecar::{sidecar_bytes, sidecar_version, version_of};
use crate::store::Store;
use crate::transaction::{Origin, PooledTransaction, memory_bytes};
use niwaki_primitives::{
    Address, B256, Fork, Header, StateView, TxEnvelope, U256,
    map::{HashMap, HashSet},
};
use niwaki_rules::{
    BlockRules, ChainSpec, GasRoom, check_transaction, next_base_fee, next_excess_blob_gas,
    upfront_cost,
};
use std::sync::Arc;

/// A state that threads share.
pub type SharedView = Arc<dyn StateView + Send + Sync>;

/// A new head, and the way there from the one before.
pub struct HeadChange<'a> {
    /// Its header.
    pub header: Header,
    /// The state after it.
    pub view: SharedView,
    /// Transactions of blocks that left the canonical chain, with their senders, oldest first.
    pub removed: &'a [(TxEnvelope, Address)],
    /// Transactions of blocks that entered it, with their senders.
    pub included: &'a [(B256, Address)],
    /// All accounts that differ between the two heads; `None` if that is not known, and then the
    /// account of every sender in the pool is read.
    pub changed: Option<&'a [Address]>,
}

impl std::fmt::Debug for HeadChange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeadChange")
            .field("number", &self.header.number)
            .field("removed", &self.removed.len())
            .field("included", &self.included.len())
            .finish_non_exhaustive()
    }
}

/// A head.
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
        let has_base_fee = fork >= Fork::London && !spec.zero_base_fee;
        let blob_params = spec.blob_params_at(timestamp);
        Self {
            next_base_fee: if has_base_fee {
                next_base_fee(&header)
            } else {
                0
            },
            next_blob_base_fee: blob_params.map_or(0, |params| {
                params.base_fee(next_excess_blob_gas(&header, fork, &params))
            }),
            header,
            view,
        }
    }

    /// The rules of the block that follows, if it is made at `now`. Fees are left out: what a
    /// transaction can't pay now it may pay later.
    pub(crate) fn next_rules(&self, spec: &ChainSpec, now: u64) -> BlockRules {
        let (fork, timestamp) = next_fork(spec, &self.header, now);
        BlockRules {
            fork,
            chain_id: spec.chain_id,
            base_fee: None,
            blob_base_fee: 0,
            blob_params: spec.blob_params_at(timestamp),
        }
    }
}

/// Fork and timestamp of a block upon `header` that is made at `now`.
fn next_fork(spec: &ChainSpec, header: &Header, now: u64) -> (Fork, u64) {
    let timestamp = header.timestamp.saturating_add(1).max(now);
    let merged = spec
        .terminal_total_difficulty
        .is_some_and(|ttd| ttd.is_zero() || header.difficulty.is_zero());
    let fork = spec.fork_at(header.number.saturating_add(1), timestamp, merged);
    (fork, timestamp)
}

/// A transaction of a block that left the chain.
pub(crate) struct Returning {
    pub(crate) tx: TxEnvelope,
    pub(crate) sender: Address,
    pub(crate) authorities: Box<[Address]>,
    pub(crate) seq: u64,
}

/// Whether some block of these rules could hold the transaction.
fn fits(tx: &TxEnvelope, sender: Address, rules: &BlockRules) -> bool {
    check_transaction(tx, sender, rules, GasRoom::both(u64::MAX), u64::MAX).is_ok()
}

impl Store {
    /// Stands on `head`: drops what was included or is stale, recounts every sender whose account
    /// is in `accounts`.
    pub(crate) fn enter_head(
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
                self.recent.note(*hash, *sender, Origin::Remote);
            }
        }
        for (sender, account) in accounts {
            self.settle(*sender, *account, &hashes);
        }
        for (hash, _) in included {
            self.remove(hash, DropReason::Included);
        }
    }

    /// Holds what is here of `sender` against its account. Cost: none if nothing changed, else
    /// linear in its transactions.
    pub(crate) fn settle(
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
            let reason = if included.contains(&hash) {
                DropReason::Included
            } else {
                DropReason::Stale
            };
            self.unlink(&hash, reason, None);
        }
        self.recount(sender, 0);
    }

    /// Takes a transaction of a block that left the chain back in. One that can't be in the next
    /// block, or whose blobs are gone, stays out.
    pub(crate) fn take_back(
        &mut self,
        returning: Returning,
        account: SenderAccount,
        rules: &BlockRules,
        now: u64,
    ) {
        let Returning { tx, sender, .. } = &returning;
        let hash = *tx.tx_hash();
        if self.txs.contains_key(&hash) || !fits(tx, *sender, rules) {
            return;
        }
        let sidecar = self.blobs.take_back(&hash);
        let has_blobs = matches!(tx, TxEnvelope::Eip4844(_));
        let version = sidecar.as_deref().map(sidecar_version);
        if has_blobs && version != Some(version_of(rules.fork)) {
            return;
        }
        let recent = self.recent.get(&hash);
        let origin = recent.map_or(Origin::Remote, |(_, origin)| origin);
        let priority = self.config.has_priority(origin == Origin::Local, sender);
        let pooled = PooledTransaction {
            hash,
            sender: *sender,
            origin,
            added_at: now,
            priority,
            seq: returning.seq,
            cost: upfront_cost(tx).unwrap_or(U256::MAX),
            bytes: memory_bytes(tx, &returning.authorities),
            blob_bytes: sidecar.as_deref().map_or(0, sidecar_bytes),
            authorities: returning.authorities,
            tx: returning.tx,
        };
        // One that was replaced meanwhile, or that its sender can't pay any more, stays out too.
        let _: Result<_, PoolError> =
            self.insert(Arc::new(pooled), account, sidecar, Entry::Returning);
    }

    /// Drops what no block of the new fork can hold. Cost: linear in all transactions.
    pub(crate) fn sweep(&mut self, rules: &BlockRules) {
        let version = version_of(rules.fork);
        let unfit = |tx: &&Arc<PooledTransaction>| {
            let sidecar = self.blobs.get(&tx.hash);
            let stale = sidecar.is_some_and(|sidecar| sidecar_version(sidecar) != version);
            stale || !fits(&tx.tx, tx.sender, rules)
        };
        let unfit = self.txs.values().filter(unfit);
        let unfit: Vec<B256> = unfit.map(|tx| tx.hash).collect();
        for hash in unfit {
            self.remove(&hash, DropReason::Invalid);
        }
    }
}
