//! Recovery of a block's senders in the background of its execution.
//!
//! Threads of the worker pool recover them in batches, in the order of the block. A thread that needs a sender which is not
//! there yet recovers it itself: no thread ever waits for another's recovery.

use crate::executor::{ExecuteError, Executor};
use crate::parallel::worker_pool;
use crate::sender_queue::SenderQueue;
use niwaki_primitives::{Address, B256, Block, RecoveredBlock};
use niwaki_rules::{InvalidBlock, reason_without_sender, recover_sender, recover_senders};
use std::sync::Arc;

/// Senders recovered together: a multiple of the SIMD lanes, half a millisecond at most.
const BATCH: usize = 16;

/// A worker is woken for each batch beyond half of one: the commit thread recovers the first batch in any case.
const MIN_FOR_WORKER: usize = BATCH / 2;

/// A block whose senders are recovered while it is executed.
#[derive(Debug)]
pub struct RecoveringBlock {
    /// The block.
    pub block: Arc<Block>,
    /// Keccak-256 of the RLP of the header.
    pub hash: B256,
    /// One sender per transaction, as far as they are known.
    pub senders: SenderQueue,
}

impl RecoveringBlock {
    /// A block and the senders that are known: one entry for each transaction, or fewer.
    pub fn new(
        block: impl Into<Arc<Block>>,
        hash: B256,
        known: impl IntoIterator<Item = Option<Address>>,
    ) -> Self {
        let block = block.into();
        let senders = SenderQueue::new(block.body.transactions.len(), known);
        Self {
            block,
            hash,
            senders,
        }
    }

    /// The same, with [`SenderQueue::blocking_ns`] measured by `clock`, a monotonic clock in nanoseconds.
    pub fn timed(self, clock: fn() -> u64) -> Self {
        Self {
            senders: self.senders.timed(clock),
            ..self
        }
    }

    /// The block with its senders, if all are known, as they are once it has been executed.
    pub fn recovered(&self) -> Option<RecoveredBlock> {
        let senders: Vec<_> = self.senders.known().collect();
        (senders.len() == self.block.body.transactions.len()).then(|| RecoveredBlock {
            block: Arc::clone(&self.block),
            hash: self.hash,
            senders,
        })
    }
}

impl From<RecoveredBlock> for RecoveringBlock {
    fn from(recovered: RecoveredBlock) -> Self {
        let RecoveredBlock {
            block,
            hash,
            senders,
        } = recovered;
        Self::new(block, hash, senders.into_iter().map(Some))
    }
}

/// Stops the background recovery of a block's senders when dropped.
#[derive(Debug)]
#[must_use]
pub struct SenderRecovery(Arc<RecoveringBlock>);

impl Drop for SenderRecovery {
    fn drop(&mut self) {
        self.0.senders.stop();
    }
}

/// Starts recovering the missing senders of a block on up to `threads` threads, the caller's included, where they are enough to
/// be worth it. Returns at once.
pub fn recover_in_background(block: &Arc<RecoveringBlock>, threads: usize) -> SenderRecovery {
    let workers = threads.saturating_sub(1);
    let missing = block.senders.missing().saturating_sub(MIN_FOR_WORKER);
    let wanted = workers.min(missing.checked_div(BATCH).unwrap_or_default());
    if wanted > 0
        && let Some(pool) = worker_pool(workers)
    {
        let block = Arc::clone(block);
        pool.spawn_many(wanted, move || {
            while !block.senders.is_left_to_workers() && recover_next_batch(&block) {}
        });
    }
    SenderRecovery(Arc::clone(block))
}

/// Recovers the next batch of senders that no thread has taken. Returns whether there was any.
pub(crate) fn recover_next_batch(block: &RecoveringBlock) -> bool {
    let next = std::iter::from_fn(|| block.senders.claim_next());
    let batch: Vec<usize> = next.take(BATCH).collect();
    let transactions = &block.block.body.transactions;
    let senders = recover_senders(batch.iter().map(|index| &transactions[*index]));
    for (index, sender) in batch.iter().zip(senders) {
        if let Ok(sender) = sender {
            block.senders.put(*index, sender);
        }
    }
    !batch.is_empty()
}

/// The sender of a transaction, recovered by the calling thread if need be; `None` if the signature is not valid.
pub(crate) fn sender_of(block: &RecoveringBlock, index: usize) -> Option<Address> {
    block.senders.get(index).or_else(|| {
        let sender = recover_sender(block.block.body.transactions.get(index)?).ok()?;
        block.senders.put(index, sender);
        Some(sender)
    })
}

impl Executor<'_> {
    /// The sender of the transaction at `index`, the next to be committed.
    ///
    /// # Errors
    /// [`InvalidBlock::Transaction`] if there is none: with that, or with what the specification checks before.
    pub(crate) fn sender(
        &mut self,
        block: &RecoveringBlock,
        index: usize,
    ) -> Result<Address, ExecuteError> {
        let recover = || {
            // A whole batch: it begins with this one, or another thread has this one and the batch is needed next.
            recover_next_batch(block);
            sender_of(block, index)
        };
        let senders = &block.senders;
        if let Some(sender) = senders.get(index).or_else(|| senders.blocking(recover)) {
            return Ok(sender);
        }
        let tx = &block.block.body.transactions[index];
        let (room, blob_gas) = (self.gas_available(), self.blob_gas_available());
        let reason = reason_without_sender(tx, &self.rules, room, blob_gas);
        Err(InvalidBlock::Transaction { index, reason }.into())
    }
}
