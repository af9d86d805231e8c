//! Pooled transactions executed on top of the head before the next block comes, so that what it reads is in the caches.

use crate::{Candidate, Chain};
use niwaki_execution::{Executor, TransactionError};
use niwaki_primitives::{Fault, Header};

/// What was executed before a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prewarmed {
    /// Transactions that could be executed.
    pub transactions: u64,
    /// Gas that they used.
    pub gas: u64,
    /// Whether it ended before the candidates did.
    pub is_cut: bool,
}

impl Chain {
    /// Executes `candidates` on top of the head as if they were in the block of `header`, which comes from
    /// [`Chain::next_header`], until they have used `max_gas`, a block comes, or the head is not the parent of
    /// `header`. The current transaction is executed to its end. Then the accounts, slots and code that they read are
    /// in the caches, and the trie paths to them in memory; the results are dropped. Nonces are not checked: earlier
    /// calls may have executed the transactions before.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prewarm(
        &self,
        header: &Header,
        candidates: &mut dyn Iterator<Item = Candidate>,
        max_gas: u64,
    ) -> Result<Prewarmed, Fault> {
        let mut warmed = Prewarmed::default();
        let mut view = self.view_at_head()?;
        if view.block().hash != header.parent_hash {
            warmed.is_cut = true;
            return Ok(warmed);
        }
        let is_over = || self.is_importing();
        self.world()
            .with_trie_prefetch_until(&mut view, &is_over, |view| {
                let mut executor = Executor::new(self.spec(), header, view);
                loop {
                    let is_head = self.head().id.hash == header.parent_hash;
                    warmed.is_cut = warmed.gas >= max_gas || is_over() || !is_head;
                    if warmed.is_cut {
                        return Ok(warmed);
                    }
                    let Some(Candidate { tx, sender }) = candidates.next() else {
                        return Ok(warmed);
                    };
                    match executor.simulate_transaction(&tx, sender, false, None) {
                        Ok(result) => {
                            warmed.transactions += 1;
                            warmed.gas = warmed.gas.saturating_add(result.gas_used);
                        }
                        Err(TransactionError::Invalid(_)) => {}
                        Err(TransactionError::Fault(fault)) => return Err(fault),
                    }
                }
            })
    }
}
