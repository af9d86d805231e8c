//! Which block is the head, and what changes when another one becomes it; which blocks are safe and final.

use crate::chain::SideBlock;
use crate::events::HeadChange;
use crate::indices::{index_canonical, unindex_canonical};
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::{Address, B256, BlockBody, Fault};
use niwaki_rules::SealKind;
use niwaki_storage::{Batch, Database, Segment, corrupt, missing};
use niwaki_threads::lock;
use std::sync::Arc;

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

/// The row of `meta` with the hashes of the safe and the finalized block.
const SAFE_FINALIZED: &[u8] = b"safe and finalized";

/// The safe and the finalized block; zero where there is none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SafeFinalized {
    pub(crate) safe: B256,
    pub(crate) finalized: B256,
}

impl SafeFinalized {
    pub(crate) fn read(database: &Database) -> Result<Self, Fault> {
        let Some(row) = database.get(Segment::Meta, SAFE_FINALIZED)? else {
            return Ok(Self::default());
        };
        let (safe, finalized) = row
            .split_at_checked(32)
            .filter(|(_, finalized)| finalized.len() == 32)
            .ok_or_else(|| corrupt(Segment::Meta, SAFE_FINALIZED, "two hashes have 64 bytes"))?;
        Ok(Self {
            safe: B256::from_slice(safe),
            finalized: B256::from_slice(finalized),
        })
    }

    fn write(&self, batch: &mut Batch) {
        let row = [self.safe.as_slice(), self.finalized.as_slice()].concat();
        batch.put(Segment::Meta, SAFE_FINALIZED, &row);
    }
}

/// The way of the canonical chain from one head to another: the blocks it loses, highest first, and those it gains,
/// lowest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReorgPath {
    pub(crate) removed: Vec<BlockId>,
    pub(crate) added: Vec<BlockId>,
    /// The accounts that the added block changes, if it is a single one and they are known.
    pub(crate) changed: Option<Arc<[Address]>>,
}

impl Chain {
    /// The block that the consensus client calls safe, if it has named one; the head where validators make the blocks.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn safe(&self) -> Result<Option<StoredHeader>, Fault> {
        if self.spec().seal == SealKind::Bft {
            return Ok(Some(self.head()));
        }
        let hash = lock(&self.safe_finalized).safe;
        self.header(&hash)
    }

    /// The block that the consensus client calls finalized, if it has named one; the head where validators make the blocks: a quorum has
    /// sealed it, and no other one of its height can be.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn finalized(&self) -> Result<Option<StoredHeader>, Fault> {
        if self.spec().seal == SealKind::Bft {
            return Ok(Some(self.head()));
        }
        let hash = lock(&self.safe_finalized).finalized;
        self.header(&hash)
    }

    /// Makes the stored block `hash` the head, and sets the safe and the finalized block.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed.
    pub(crate) fn set_head_and_finality(
        &self,
        hash: &B256,
        finality: SafeFinalized,
    ) -> Result<(), SetHeadError> {
        let _guard = self.begin_import();
        let _writer = self.writer();
        let block = self.header(hash)?.ok_or(SetHeadError::Unknown(*hash))?;
        self.make_canonical_with_finality(block, finality)
    }

    /// Makes the stored `block` the head, and sets the safe and finalized block. The caller holds the writer's lock.
    fn make_canonical_with_finality(
        &self,
        block: StoredHeader,
        finality: SafeFinalized,
    ) -> Result<(), SetHeadError> {
        let mut batch = Batch::new();
        let changed = *lock(&self.safe_finalized) != finality;
        if changed {
            finality.write(&mut batch);
        }
        if block.id != self.head().id {
            self.make_canonical_with(block, batch)?;
        } else if changed {
            self.database().write(batch, false)?;
        }
        *lock(&self.safe_finalized) = finality;
        Ok(())
    }

    /// Makes the stored block with this hash the head, wherever it is: forward, back, or on
    /// another branch. One atomic write. What was canonical above the common ancestor stays
    /// stored. A safe or finalized block that is not the head or an ancestor of it is forgotten.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed.
    pub fn set_head(&self, hash: &B256) -> Result<(), SetHeadError> {
        let _guard = self.begin_import();
        let _writer = self.writer();
        let block = self.header(hash)?.ok_or(SetHeadError::Unknown(*hash))?;
        let mut finality = *lock(&self.safe_finalized);
        for hash in [&mut finality.safe, &mut finality.finalized] {
            if !hash.is_zero() && !self.is_ancestor(*hash, &block)? {
                *hash = B256::ZERO;
            }
        }
        self.make_canonical_with_finality(block, finality)
    }

    /// Whether the block `hash` is stored, and is `head` or one before it.
    ///
    /// Cost: a read for each block from `head` down to the canonical chain.
    pub(crate) fn is_ancestor(&self, hash: B256, head: &StoredHeader) -> Result<bool, Fault> {
        if hash == head.id.hash {
            return Ok(true);
        }
        let Some(ancestor) = self.header(&hash)? else {
            return Ok(false);
        };
        // Down the head's own branch, until it meets the canonical chain or the height is reached.
        let mut block = head.clone();
        while block.id.number > ancestor.id.number {
            if self.is_canonical(&block.id)? {
                return Ok(self.canonical_hash(ancestor.id.number)? == Some(hash));
            }
            match self.parent_of(&block)? {
                Some(parent) => block = parent,
                None => return Ok(false),
            }
        }
        Ok(block.id.hash == hash)
    }

    /// Makes the stored `block` the head. The caller holds the writer's lock.
    pub(crate) fn make_canonical(&self, block: StoredHeader) -> Result<(), SetHeadError> {
        if block.id == self.head().id {
            return Ok(());
        }
        self.make_canonical_with(block, Batch::new())
    }

    /// Makes the stored `block` the head, together with what `batch` holds.
    fn make_canonical_with(
        &self,
        block: StoredHeader,
        mut batch: Batch,
    ) -> Result<(), SetHeadError> {
        let mut path = self.reorg_to(&block, &mut batch)?;
        let is_current = |side: &SideBlock| {
            side.header.id == block.id && self.world().is_committable(&side.root)
        };
        let side_block = self.side_block().take().filter(is_current);
        match side_block {
            Some(SideBlock { root, changed, .. }) => {
                // Its root was computed on top of the head as it was.
                let is_next = path.removed.is_empty() && path.added == [block.id];
                path.changed = is_next.then_some(changed);
                let parent = block.header.parent_hash;
                self.world().commit(root, block.id, parent, batch, false)?;
            }
            None => {
                let root = block.header.state_root;
                if !self.world().roll_to(block.id, root, batch, false)? {
                    return Err(SetHeadError::OutOfReach(block.id));
                }
            }
        }
        self.put_head(block, path);
        Ok(())
    }

    /// Whether `block`, a child of `parent`, is to become the head: before the Merge if it is heavier, after it if it
    /// is higher. A chain of proof of stake never yields to one of proof of work.
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

    /// Adds to `batch` what the canonical indices lose and gain when the canonical chain comes to end in the stored
    /// block `tip`. Returns the blocks.
    pub(crate) fn reorg_to(
        &self,
        tip: &StoredHeader,
        batch: &mut Batch,
    ) -> Result<ReorgPath, Fault> {
        let mut added = Vec::new();
        let mut removed = Vec::new();
        let mut ancestor = tip.clone();
        while !self.is_canonical(&ancestor.id)? {
            let parent = self.parent_of(&ancestor)?;
            added.push(ancestor.id);
            ancestor = parent.ok_or_else(|| missing(Segment::Canonical, &0_u64.to_be_bytes()))?;
        }
        for number in ancestor.id.number + 1..=self.head().id.number {
            if let Some(hash) = self.canonical_hash(number)? {
                let id = BlockId { number, hash };
                self.with_body(&id, |body| unindex_canonical(&id, body, batch))?;
                removed.push(id);
            }
        }
        if !removed.is_empty() {
            self.strike_logs(ancestor.id.number.saturating_add(1), batch)?;
        }
        for id in &added {
            self.with_body(id, |body| index_canonical(id, body, batch))?;
        }
        removed.reverse();
        added.reverse();
        Ok(ReorgPath {
            removed,
            added,
            changed: None,
        })
    }

    /// Calls `work` with the body of a stored block, which is read from the disk only if the block is not a recent one.
    fn with_body(&self, id: &BlockId, work: impl FnOnce(&BlockBody)) -> Result<(), Fault> {
        match self.recent_block(&id.hash) {
            Some(recent) => work(&recent.block.body),
            None => work(&self.read_body(id)?),
        }
        Ok(())
    }

    /// Replaces the head and notifies the listeners; `path` is how the canonical chain came there.
    pub(crate) fn put_head(&self, head: StoredHeader, path: ReorgPath) {
        *lock(&self.head) = head.clone();
        let ReorgPath {
            removed,
            added,
            changed,
        } = path;
        self.notify_listeners(&HeadChange {
            head,
            removed,
            added,
            changed,
        });
    }

    /// Whether a block is the head or one before it. Reads nothing of blocks as high as that: what was written of
    /// them last may not be encoded yet.
    pub(crate) fn is_canonical(&self, block: &BlockId) -> Result<bool, Fault> {
        let head = self.head().id;
        if block.number >= head.number {
            return Ok(*block == head);
        }
        Ok(self.canonical_hash(block.number)? == Some(block.hash))
    }
}
