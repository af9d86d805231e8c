//! What happens when the head has moved: the pool stands upon it, subscribers hear of it, a line
//! says what the block was, code that has become hot is fused. Behind the import, in order, on a thread of its own.

use super::head_log::HeadLog;
use eyre::{Result, WrapErr};
use niwaki_chain::{BlockId, Chain, HeadChange};
use niwaki_primitives::{Address, B256, Fault, RecoveredBlock, Senders, TxEnvelope};
use niwaki_rpc::Backend;
use niwaki_rules::recover_sender;
use niwaki_txpool::{HeadUpdate, Pool};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::{error, warn};

/// Heads that may wait; one that does not fit is made up for by the next.
const WAITING: usize = 16 << 10;

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
        // Code becomes hot while blocks are executed; this thread has the time to fuse it.
        niwaki_evm::defer_fusing();
        let (sender, heads) = sync_channel(WAITING);
        let events = Arc::clone(&backend);
        pool.listen(move |event| events.events().notify_pool(event));
        let stop = sender.clone();
        chain.on_head(Box::new(move |change| {
            if let Err(TrySendError::Full(_)) = sender.try_send(Some(Arc::new(change.clone()))) {
                warn!("The pool can't follow the head; it will catch up");
            }
        }));
        let mut follow = Following {
            chain: Arc::clone(chain),
            backend,
            pool: Arc::clone(pool),
            log: HeadLog::new(chain, reorg_threshold),
        };
        let thread = thread::Builder::new()
            .name("follow-head".to_owned())
            .spawn(move || follow.run(&heads))
            .wrap_err("can't start the thread that follows the head")?;
        Ok(Self { stop, thread })
    }

    /// Ends after all that has happened.
    pub(super) fn stop(self) {
        let _ = self.stop.send(None);
        let _ = self.thread.join();
    }
}

/// So long nothing is done about a head that comes by itself: whoever chose it is to have a processor for the answer
/// first. It takes milliseconds until a thread that runs gives way to one that has just been woken.
const GRACE: Duration = Duration::from_millis(3);

/// The next head; `None` after the last.
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

/// What the pool has not been told yet.
#[derive(Default)]
struct Owed {
    /// Lowest first.
    removed: Vec<BlockId>,
    added: Vec<BlockId>,
    /// Of one change only.
    changed: Option<Arc<[Address]>>,
}

impl Owed {
    fn add(&mut self, change: &HeadChange) {
        let is_first = self.removed.is_empty() && self.added.is_empty();
        self.changed = change.changed.clone().filter(|_| is_first);
        // What came and went meanwhile was never told.
        for id in &change.removed {
            match self.added.iter().position(|added| added == id) {
                Some(at) => drop(self.added.remove(at)),
                None => self.removed.insert(0, *id),
            }
        }
        self.added.extend(&change.added);
    }
}

struct Following {
    chain: Arc<Chain>,
    backend: Arc<Backend>,
    pool: Arc<Pool>,
    log: HeadLog,
}

impl Following {
    fn run(&mut self, heads: &Receiver<Option<Arc<HeadChange>>>) {
        let mut owed = Owed::default();
        while let Some(change) = next(heads) {
            self.backend.head_moved();
            owed.add(&change);
            match self.tell_pool(&change, &owed) {
                Ok(true) => owed = Owed::default(),
                Ok(false) => {} // Told with the next head.
                Err(fault) => error!(%fault, "The pool can't follow the head"),
            }
            self.log.write(&self.chain, &change);
            self.backend.events().notify_head(change);
            niwaki_evm::fuse_hot_codes();
        }
    }

    /// Says whether the state after the head was still there to stand on.
    fn tell_pool(&self, change: &HeadChange, owed: &Owed) -> Result<bool, Fault> {
        let Some(view) = self.chain.view_at(&change.head.id.hash)? else {
            return Ok(false);
        };
        let mut removed: Vec<(TxEnvelope, Address)> = Vec::new();
        for id in &owed.removed {
            let block = self.recovered(id)?;
            removed.extend(signed(&block).map(|(tx, sender)| (tx.clone(), sender)));
        }
        let mut included: Vec<(B256, Address)> = Vec::new();
        for id in &owed.added {
            let block = self.recovered(id)?;
            included.extend(signed(&block).map(|(tx, sender)| (*tx.tx_hash(), sender)));
        }
        let change = HeadUpdate {
            header: change.head.header.clone(),
            view: Arc::new(view),
            removed: &removed,
            included: &included,
            changed: owed.changed.as_deref(),
        };
        self.pool.update_head(&change, super::now())?;
        Ok(true)
    }

    /// A block with its senders: as it was taken in, or else from its rows, and those of the pool where it
    /// knows them.
    fn recovered(&self, id: &BlockId) -> Result<Arc<RecoveredBlock>, Fault> {
        if let Some(block) = self.chain.recent_block(&id.hash) {
            return Ok(block);
        }
        let block = self.chain.block(&id.hash)?.unwrap_or_default();
        let transactions = &block.body.transactions;
        let hashes: Vec<B256> = transactions.iter().map(|tx| *tx.tx_hash()).collect();
        let senders = Senders::new(transactions.len(), self.pool.senders_of(&hashes));
        for (index, tx) in transactions.iter().enumerate() {
            if senders.get(index).is_none()
                && let Ok(sender) = recover_sender(tx)
            {
                senders.put(index, sender);
            }
        }
        Ok(Arc::new(RecoveredBlock {
            block,
            hash: id.hash,
            senders,
        }))
    }
}

/// The transactions of a block, with their senders.
fn signed(block: &RecoveredBlock) -> impl Iterator<Item = (&TxEnvelope, Address)> {
    let transactions = block.block.body.transactions.iter().enumerate();
    transactions.filter_map(|(index, tx)| Some((tx, block.senders.get(index)?)))
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
    fn what_came_and_went_untold_is_not_told_and_all_else_is_in_order() {
        let mut owed = Owed::default();
        owed.add(&change(&[id(2, 2), id(1, 1)], &[id(1, 11), id(2, 12)]));
        assert!(owed.changed.is_some());
        owed.add(&change(&[id(2, 12)], &[id(2, 22), id(3, 23)]));
        assert_eq!(owed.removed, [id(1, 1), id(2, 2)]);
        assert_eq!(owed.added, [id(1, 11), id(2, 22), id(3, 23)]);
        assert!(owed.changed.is_none(), "of two changes nothing is known");
        owed.add(&change(
            &[id(3, 23), id(2, 22), id(1, 11), id(0, 7)],
            &[id(0, 8)],
        ));
        assert_eq!(owed.removed, [id(0, 7), id(1, 1), id(2, 2)]);
        assert_eq!(owed.added, [id(0, 8)]);
    }
}
