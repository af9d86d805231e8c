//! Senders of a block's transactions, recovered beside its execution.
//!
//! Threads that have nothing else to do recover them in the order of the block. Whoever needs one that is
//! not there yet recovers one itself: nobody waits for those threads, or for their being there.

use crate::executor::{ExecuteError, Executor};
use crate::parallel::crew;
use niwaki_primitives::{Address, RecoveredBlock};
use niwaki_rules::{InvalidBlock, reason_without_sender, recover_sender, recover_senders};
use std::sync::Arc;

/// So many senders are recovered together: a multiple of the lanes, half a millisecond at most.
const LOT: usize = 16;

/// A thread is woken for each lot and half of one: who executes recovers the first lot in any case.
const LEAST_FOR_HELP: usize = LOT / 2;

/// Others recover senders of a block until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Recovering(Arc<RecoveredBlock>);

impl Drop for Recovering {
    fn drop(&mut self) {
        self.0.senders.stop();
    }
}

/// Has up to `threads` threads, the one that asks included, recover the senders of a block that are not
/// known, where those are enough to be worth it. At once; nothing waits for them.
pub fn recover_beside(block: &Arc<RecoveredBlock>, threads: usize) -> Recovering {
    let helpers = threads.saturating_sub(1);
    let missing = block.senders.missing().saturating_sub(LEAST_FOR_HELP);
    let wanted = helpers.min(missing.checked_div(LOT).unwrap_or_default());
    if wanted > 0
        && let Some(crew) = crew(helpers)
    {
        let block = Arc::clone(block);
        crew.spawn_many(wanted, move || {
            while !block.senders.is_left_to_workers() && recover_next(&block) {}
        });
    }
    Recovering(Arc::clone(block))
}

/// Recovers the next senders that nobody has taken, and makes them known; whether there were any.
pub(crate) fn recover_next(block: &RecoveredBlock) -> bool {
    let next = std::iter::from_fn(|| block.senders.claim_next());
    let lot: Vec<usize> = next.take(LOT).collect();
    let transactions = &block.block.body.transactions;
    let senders = recover_senders(lot.iter().map(|index| &transactions[*index]));
    for (index, sender) in lot.iter().zip(senders) {
        if let Ok(sender) = sender {
            block.senders.put(*index, sender);
        }
    }
    !lot.is_empty()
}

/// Recovers a sender and makes it known; `None` if nobody has signed the transaction.
fn recover(block: &RecoveredBlock, index: usize) -> Option<Address> {
    let sender = recover_sender(block.block.body.transactions.get(index)?).ok()?;
    block.senders.put(index, sender);
    Some(sender)
}

/// The sender of a transaction before its turn.
pub(crate) fn sender_ahead(block: &RecoveredBlock, index: usize) -> Option<Address> {
    let known = block.senders.get(index);
    known.or_else(|| recover(block, index))
}

/// The sender of the transaction whose turn it is.
fn sender_in_turn(block: &RecoveredBlock, index: usize) -> Option<Address> {
    let senders = &block.senders;
    let work = || {
        // Another thread may be at it: meanwhile the next that nobody has, of which this one is the first if not.
        recover_next(block);
        sender_ahead(block, index)
    };
    let known = senders.get(index);
    known.or_else(|| senders.blocking(work))
}

impl Executor<'_> {
    /// The sender of the transaction at `index`, whose turn it is.
    ///
    /// # Errors
    /// [`InvalidBlock::Transaction`] if there is none: with that or with what the specification asks first.
    pub(crate) fn sender(
        &mut self,
        block: &RecoveredBlock,
        index: usize,
    ) -> Result<Address, ExecuteError> {
        if let Some(sender) = sender_in_turn(block, index) {
            return Ok(sender);
        }
        let tx = &block.block.body.transactions[index];
        let (room, blob_gas) = (self.gas_room(), self.blob_gas_available());
        let reason = reason_without_sender(tx, &self.rules, room, blob_gas);
        Err(InvalidBlock::Transaction { index, reason }.into())
    }
}
