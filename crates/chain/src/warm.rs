//! What the next block may take, run before it comes, for what that reads.

use crate::{Candidate, Chain};
use niwaki_execution::{Executor, TransactionError};
use niwaki_primitives::{Fault, Header};

/// What was run ahead of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmedUp {
    /// Transactions that could be run.
    pub transactions: u64,
    /// Gas that they used.
    pub gas: u64,
    /// Whether something else than the candidates' end has ended it.
    pub is_cut: bool,
}

impl Chain {
    /// Runs `candidates` upon the head as if the block of `header`, of [`Chain::next_header`], had them,
    /// until they have used `most_gas`, a block comes, or the head is not the parent of `header`; the
    /// transaction at hand is run to its end. The accounts, slots and code that they read are in the caches
    /// then, and the ways to them through the tries in memory. Nothing else comes of it. Nonces are not
    /// looked at: what comes before may have been run by another call.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn warm_up(
        &self,
        header: &Header,
        candidates: &mut dyn Iterator<Item = Candidate>,
        most_gas: u64,
    ) -> Result<WarmedUp, Fault> {
        let mut warmed = WarmedUp::default();
        let mut view = self.view_at_head()?;
        if view.block().hash != header.parent_hash {
            warmed.is_cut = true;
            return Ok(warmed);
        }
        let is_over = || self.is_handling();
        self.world()
            .with_trie_prefetch_until(&mut view, &is_over, |view| {
                let mut executor = Executor::new(self.spec(), header, view);
                loop {
                    let is_head = self.head().id.hash == header.parent_hash;
                    warmed.is_cut = warmed.gas >= most_gas || is_over() || !is_head;
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
