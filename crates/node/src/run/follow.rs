//! The thread that follows the head. For each new head, in order and after the import has answered: it updates
//! the pool, logs reorganisations and forks, notifies subscribers, and fuses code that has become hot.
//!
//! ```text
//! import --(head change)--> queue --> follow-head thread: pool, log, subscriptions, code fusion
//! ```
//!
//! If the state of a head is no longer available (a reorganisation was faster), its changes are merged into those
//! of the next head: [`PendingPoolUpdate`].

use super::head_log::HeadLog;
use eyre::{Result, WrapErr};
use niwaki_chain::{BlockId, Chain, HeadChange};
use niwaki_primitives::{Address, B256, Fault, RecoveredBlock, TxEnvelope};
use niwaki_rpc::Backend;
use niwaki_rules::recover_sender;
use niwaki_txpool::{HeadUpdate, Pool};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::{error, warn};

/// Capacity of the queue of heads; the next head makes up for one that does not fit.
const QUEUE_CAPACITY: usize = 16 << 10;

/// The thread that follows the head.
pub(super) struct Follower {
    stop: SyncSender<Option<Arc<HeadChange>>>,
    thread: JoinHandle<()>,
}

impl Follower {
    pub(super) fn start(
        chain: &Arc<Chain>,
        backend: Arc<Backend>,
        pool: &Arc<Pool>,
        reorg_threshold: u64,
    ) -> Result<Self> {
        // The interpreter only marks hot code while it executes a block; this thread fuses it.
        niwaki_evm::defer_fusing();
        let (sender, heads) = sync_channel(QUEUE_CAPACITY);
        let events = Arc::clone(&backend);
        pool.listen(move |event| events.events().notify_pool(event));
        let stop = sender.clone();
        chain.on_head(Box::new(move |change| {
            if let Err(TrySendError::Full(_)) = sender.try_send(Some(Arc::new(change.clone()))) {
                warn!("The pool can't follow the head; it will catch up");
            }
        }));
        let mut worker = HeadWorker {
            chain: Arc::clone(chain),
            backend,
            pool: Arc::clone(pool),
            log: HeadLog::new(chain, reorg_threshold),
        };
        let thread = thread::Builder::new()
            .name("follow-head".to_owned())
            .spawn(move || worker.run(&heads))
            .wrap_err("can't start the thread that follows the head")?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after it has handled all queued heads.
    pub(super) fn stop(self) {
        let _ = self.stop.send(None);
        let _ = self.thread.join();
    }
}

/// Delay before a head that arrives alone is handled, so that the thread that answers the consensus client gets a
/// processor first: the scheduler takes milliseconds to preempt a running thread for one that was just woken.
const GRACE: Duration = Duration::from_millis(3);

/// The next head; `None` when the thread is to end.
fn next(heads: &Receiver<Option<Arc<HeadChange>>>) -> Option<Arc<HeadChange>> {
    match heads.try_recv() {
        Ok(change) => change,
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            let change = heads.recv().ok()??;
            thread::sleep(GRACE);
            Some(change)
        }
    }
}

/// Head changes that the pool has not processed yet.
#[derive(Default)]
struct PendingPoolUpdate {
    /// Blocks that left the canonical chain since the pool's last update, lowest first.
    removed: Vec<BlockId>,
    /// Blocks that joined it, lowest first.
    added: Vec<BlockId>,
    /// The accounts that changed, known only if a single change is pending.
    changed: Option<Arc<[Address]>>,
}

impl PendingPoolUpdate {
    fn add(&mut self, change: &HeadChange) {
        let is_first = self.removed.is_empty() && self.added.is_empty();
        self.changed = change.changed.clone().filter(|_| is_first);
        // The pool never saw a block that was added and removed in between.
        for id in &change.removed {
            match self.added.iter().position(|added| added == id) {
                Some(at) => drop(self.added.remove(at)),
                None => self.removed.insert(0, *id),
            }
        }
        self.added.extend(&change.added);
    }
}

struct HeadWorker {
    chain: Arc<Chain>,
    backend: Arc<Backend>,
    pool: Arc<Pool>,
    log: HeadLog,
}

impl HeadWorker {
    fn run(&mut self, heads: &Receiver<Option<Arc<HeadChange>>>) {
        let mut pending = PendingPoolUpdate::default();
        while let Some(change) = next(heads) {
            self.backend.head_moved();
            pending.add(&change);
            match self.update_pool(&change, &pending) {
                Ok(true) => pending = PendingPoolUpdate::default(),
                Ok(false) => {} // The next head tries again.
                Err(fault) => error!(%fault, "The pool can't follow the head"),
            }
            self.log.write(&self.chain, &change);
            self.backend.events().notify_head(change);
            niwaki_evm::fuse_hot_codes();
        }
    }

    /// Moves the pool to the new head. Returns false if the state of that head is no longer available.
    fn update_pool(&self, change: &HeadChange, pending: &PendingPoolUpdate) -> Result<bool, Fault> {
        let Some(view) = self.chain.view_at(&change.head.id.hash)? else {
            return Ok(false);
        };
        let mut removed: Vec<(TxEnvelope, Address)> = Vec::new();
        for id in &pending.removed {
            let block = self.recovered(id)?;
            removed.extend(
                block
                    .transactions()
                    .map(|(tx, sender)| (tx.clone(), sender)),
            );
        }
        let mut included: Vec<(B256, Address)> = Vec::new();
        for id in &pending.added {
            self.add_included(id, &mut included)?;
        }
        let change = HeadUpdate {
            header: change.head.header.clone(),
            view: Arc::new(view),
            removed: &removed,
            included: &included,
            changed: pending.changed.as_deref(),
        };
        self.pool.update_head(&change, super::now())?;
        Ok(true)
    }

    /// Adds the transactions of a block with their senders. Of a block that a sync has imported together with others, only those that
    /// the pool knows: no sender is recovered for the others.
    fn add_included(&self, id: &BlockId, included: &mut Vec<(B256, Address)>) -> Result<(), Fault> {
        if let Some(block) = self.chain.recent_block(&id.hash) {
            let all = block.transactions();
            included.extend(all.map(|(tx, sender)| (*tx.tx_hash(), sender)));
            return Ok(());
        }
        if self.pool.is_empty() {
            return Ok(());
        }
        let body = self.chain.body(&id.hash)?.unwrap_or_default();
        let hashes = body.transactions.iter().map(|tx| *tx.tx_hash());
        let hashes: Vec<B256> = hashes.collect();
        let senders = self.pool.senders_of(&hashes);
        let known = hashes.into_iter().zip(senders);
        included.extend(known.filter_map(|(hash, sender)| Some((hash, sender?))));
        Ok(())
    }

    /// A block with its senders: as it was imported if that is still in memory, else from the database, with
    /// senders from the pool or recovered.
    fn recovered(&self, id: &BlockId) -> Result<Arc<RecoveredBlock>, Fault> {
        if let Some(block) = self.chain.recent_block(&id.hash) {
            return Ok(block);
        }
        let block = self.chain.block(&id.hash)?.unwrap_or_default();
        let transactions = &block.body.transactions;
        let hashes: Vec<B256> = transactions.iter().map(|tx| *tx.tx_hash()).collect();
        let known = self.pool.senders_of(&hashes);
        // The signatures of a stored block are valid.
        let senders = transactions
            .iter()
            .zip(known)
            .map(|(tx, sender)| sender.unwrap_or_else(|| recover_sender(tx).unwrap_or_default()));
        Ok(Arc::new(RecoveredBlock {
            senders: senders.collect(),
            block: block.into(),
            hash: id.hash,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_chain::StoredHeader;
    use niwaki_primitives::{Header, U256};

    fn id(number: u64, mark: u8) -> BlockId {
        BlockId {
            number,
            hash: B256::repeat_byte(mark),
        }
    }

    fn change(removed: &[BlockId], added: &[BlockId]) -> HeadChange {
        HeadChange {
            head: StoredHeader {
                id: added[added.len() - 1],
                header: Header::default(),
                total_difficulty: U256::ZERO,
            },
            removed: removed.to_vec(),
            added: added.to_vec(),
            changed: Some(Arc::from([Address::ZERO])),
        }
    }

    #[test]
    fn pending_updates_drop_blocks_that_were_added_and_removed_and_stay_sorted() {
        let mut pending = PendingPoolUpdate::default();
        pending.add(&change(&[id(2, 2), id(1, 1)], &[id(1, 11), id(2, 12)]));
        assert!(pending.changed.is_some());
        pending.add(&change(&[id(2, 12)], &[id(2, 22), id(3, 23)]));
        assert_eq!(pending.removed, [id(1, 1), id(2, 2)]);
        assert_eq!(pending.added, [id(1, 11), id(2, 22), id(3, 23)]);
        assert!(
            pending.changed.is_none(),
            "two changes: the accounts are unknown"
        );
        pending.add(&change(
            &[id(3, 23), id(2, 22), id(1, 11), id(0, 7)],
            &[id(0, 8)],
        ));
        assert_eq!(pending.removed, [id(0, 7), id(1, 1), id(2, 2)]);
        assert_eq!(pending.added, [id(0, 8)]);
    }
}
