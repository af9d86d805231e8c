//! Which block is the head, and what changes when another one becomes it.

use crate::indices::{abandon, adopt};
use crate::rows::missing;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::{Batch, Segment};

/// Why the head was not moved.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SetHeadError {
    /// The block is not stored.
    #[error("block {0} is not known; import it first")]
    Unknown(B256),
    /// A trie log between the head and the block is no longer kept.
    #[error("the state of block {0} is no longer within reach of the head")]
    OutOfReach(BlockId),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Chain {
    /// Makes the stored block with this hash the head, wherever it stands: forward, back, or on
    /// another branch. One atomic write. What was canonical above the common ancestor stays
    /// stored.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed.
    pub fn set_head(&self, hash: &B256) -> Result<(), SetHeadError> {
        let _writer = self.writer();
        let block = self.header(hash)?.ok_or(SetHeadError::Unknown(*hash))?;
        self.lead(block)
    }

    /// Makes the stored `block` the head, for whoever holds the writer's lock.
    pub(crate) fn lead(&self, block: StoredHeader) -> Result<(), SetHeadError> {
        if block.id == self.head().id {
            return Ok(());
        }
        let mut batch = Batch::new();
        self.reroute(&block, &mut batch)?;
        let pending = self
            .pending()
            .take()
            .filter(|(id, prepared)| *id == block.id && self.world().is_current(prepared));
        match pending {
            Some((id, prepared)) => {
                let ids = (id, block.header.parent_hash);
                self.world().commit(prepared, ids, batch, false)?;
            }
            None => {
                let root = block.header.state_root;
                if !self.world().move_to(block.id, root, batch, false)? {
                    return Err(SetHeadError::OutOfReach(block.id));
                }
            }
        }
        self.put_head(block);
        Ok(())
    }

    /// Whether `block`, a child of `parent`, is to become the head: before the Merge if it is
    /// heavier, after it if it is higher. A chain of proof of stake never yields to one of proof
    /// of work.
    pub(crate) fn is_better(&self, block: &StoredHeader) -> bool {
        let head = self.head();
        let is_stake = |block: &StoredHeader| self.spec().is_proof_of_stake(&block.header);
        match (is_stake(&head), is_stake(block)) {
            (false, false) => block.total_difficulty > head.total_difficulty,
            (false, true) => true,
            (true, false) => false,
            (true, true) => block.id.number > head.id.number,
        }
    }

    /// Adds to `batch` what the canonical indices lose and gain when they come to end in the
    /// stored block `tip`.
    pub(crate) fn reroute(&self, tip: &StoredHeader, batch: &mut Batch) -> Result<(), Fault> {
        let mut adopted = Vec::new();
        let mut ancestor = tip.clone();
        while !self.is_canonical(&ancestor.id)? {
            let parent = self.parent_of(&ancestor)?;
            adopted.push(ancestor.id);
            ancestor = parent.ok_or_else(|| missing(Segment::Canonical, &0_u64.to_be_bytes()))?;
        }
        for number in ancestor.id.number + 1..=self.head().id.number {
            if let Some(hash) = self.canonical_hash(number)? {
                let id = BlockId { number, hash };
                abandon(&id, &self.read_body(&id)?, batch);
            }
        }
        for id in adopted {
            adopt(&id, &self.read_body(&id)?, batch);
        }
        Ok(())
    }

    fn is_canonical(&self, block: &BlockId) -> Result<bool, Fault> {
        Ok(self.canonical_hash(block.number)? == Some(block.hash))
    }
}
