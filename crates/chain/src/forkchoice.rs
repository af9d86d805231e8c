//! Which block is the head, and what changes when another one becomes it; which blocks are safe and
//! final.

use crate::events::HeadChange;
use crate::indices::{abandon, adopt};
use crate::rows::{corrupt, missing};
use crate::tree::StoredHeader;
use crate::{BlockId, Chain};
use niwaki_primitives::{Address, B256, BlockBody, Fault};
use niwaki_storage::{Batch, Database, Segment};
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
const MARKS: &[u8] = b"safe and finalized";

/// The safe and the finalized block; zero where there is none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) safe: B256,
    pub(crate) finalized: B256,
}

impl Marks {
    pub(crate) fn read(database: &Database) -> Result<Self, Fault> {
        let Some(row) = database.get(Segment::Meta, MARKS)? else {
            return Ok(Self::default());
        };
        let (safe, finalized) = row
            .split_at_checked(32)
            .filter(|(_, finalized)| finalized.len() == 32)
            .ok_or_else(|| corrupt(Segment::Meta, MARKS, "two hashes have 64 bytes"))?;
        Ok(Self {
            safe: B256::from_slice(safe),
            finalized: B256::from_slice(finalized),
        })
    }

    fn write(&self, batch: &mut Batch) {
        let row = [self.safe.as_slice(), self.finalized.as_slice()].concat();
        batch.put(Segment::Meta, MARKS, &row);
    }
}

/// How the canonical chain comes from one head to another: what it loses, highest first, and what it
/// gains, lowest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Route {
    pub(crate) removed: Vec<BlockId>,
    pub(crate) added: Vec<BlockId>,
    /// The accounts that the one block that was added changes, if it is one and they are known.
    pub(crate) changed: Option<Arc<[Address]>>,
}

impl Chain {
    /// The block that the consensus client calls safe, if it has named one.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn safe(&self) -> Result<Option<StoredHeader>, Fault> {
        let hash = self.marks().safe;
        self.header(&hash)
    }

    /// The block that the consensus client calls finalized, if it has named one.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn finalized(&self) -> Result<Option<StoredHeader>, Fault> {
        let hash = self.marks().finalized;
        self.header(&hash)
    }

    /// Makes the stored block `hash` the head, and marks the safe and the finalized block.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed.
    pub(crate) fn set_head_and_marks(&self, hash: &B256, marks: Marks) -> Result<(), SetHeadError> {
        let _handling = self.handling();
        let _writer = self.writer();
        let block = self.header(hash)?.ok_or(SetHeadError::Unknown(*hash))?;
        self.lead_and_mark(block, marks)
    }

    /// Makes the stored `block` the head together with its marks, under the writer's lock.
    fn lead_and_mark(&self, block: StoredHeader, marks: Marks) -> Result<(), SetHeadError> {
        let mut batch = Batch::new();
        let changed = *self.marks() != marks;
        if changed {
            marks.write(&mut batch);
        }
        if block.id != self.head().id {
            self.lead_with(block, batch)?;
        } else if changed {
            self.database().write(batch, false)?;
        }
        *self.marks() = marks;
        Ok(())
    }

    /// Makes the stored block with this hash the head, wherever it stands: forward, back, or on
    /// another branch. One atomic write. What was canonical above the common ancestor stays
    /// stored. A safe or finalized block that is not the head or one before it is neither any longer.
    ///
    /// # Errors
    /// [`SetHeadError`]; then nothing changed.
    pub fn set_head(&self, hash: &B256) -> Result<(), SetHeadError> {
        let _handling = self.handling();
        let _writer = self.writer();
        let block = self.header(hash)?.ok_or(SetHeadError::Unknown(*hash))?;
        let mut marks = *self.marks();
        for mark in [&mut marks.safe, &mut marks.finalized] {
            if !mark.is_zero() && !self.leads_to(*mark, &block)? {
                *mark = B256::ZERO;
            }
        }
        self.lead_and_mark(block, marks)
    }

    /// Whether the block `hash` is stored, and is `head` or one before it.
    ///
    /// Cost: a read for each block from `head` down to the canonical chain.
    pub(crate) fn leads_to(&self, hash: B256, head: &StoredHeader) -> Result<bool, Fault> {
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

    /// Makes the stored `block` the head, for whoever holds the writer's lock.
    pub(crate) fn lead(&self, block: StoredHeader) -> Result<(), SetHeadError> {
        if block.id == self.head().id {
            return Ok(());
        }
        self.lead_with(block, Batch::new())
    }

    /// Makes the stored `block` the head, together with what `batch` holds.
    fn lead_with(&self, block: StoredHeader, mut batch: Batch) -> Result<(), SetHeadError> {
        let mut route = self.reroute(&block, &mut batch)?;
        let pending = self.pending().take().filter(|(side, prepared, _)| {
            side.id == block.id && self.world().is_committable(prepared)
        });
        match pending {
            Some((StoredHeader { id, .. }, prepared, changed)) => {
                // What was prepared is upon the head as it was.
                route.changed =
                    (route.removed.is_empty() && route.added == [id]).then_some(changed);
                let (own, parent_hash) = (id, block.header.parent_hash);
                self.world()
                    .commit(prepared, own, parent_hash, batch, false)?;
            }
            None => {
                let root = block.header.state_root;
                if !self.world().roll_to(block.id, root, batch, false)? {
                    return Err(SetHeadError::OutOfReach(block.id));
                }
            }
        }
        self.put_head(block, route);
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
    /// stored block `tip`, and says which blocks those are.
    pub(crate) fn reroute(&self, tip: &StoredHeader, batch: &mut Batch) -> Result<Route, Fault> {
        let mut adopted = Vec::new();
        let mut removed = Vec::new();
        let mut ancestor = tip.clone();
        while !self.is_canonical(&ancestor.id)? {
            let parent = self.parent_of(&ancestor)?;
            adopted.push(ancestor.id);
            ancestor = parent.ok_or_else(|| missing(Segment::Canonical, &0_u64.to_be_bytes()))?;
        }
        for number in ancestor.id.number + 1..=self.head().id.number {
            if let Some(hash) = self.canonical_hash(number)? {
                let id = BlockId { number, hash };
                self.with_body(&id, |body| abandon(&id, body, batch))?;
                removed.push(id);
            }
        }
        if !removed.is_empty() {
            self.strike_logs(ancestor.id.number.saturating_add(1), batch)?;
        }
        for id in &adopted {
            self.with_body(id, |body| adopt(id, body, batch))?;
        }
        removed.reverse();
        adopted.reverse();
        Ok(Route {
            removed,
            added: adopted,
            changed: None,
        })
    }

    /// Does `work` with the body of a stored block, which is read only if the block is none of those that were
    /// taken in last.
    fn with_body(&self, id: &BlockId, work: impl FnOnce(&BlockBody)) -> Result<(), Fault> {
        match self.recently_imported(&id.hash) {
            Some(recent) => work(&recent.block.body),
            None => work(&self.read_body(id)?),
        }
        Ok(())
    }

    /// Puts `head` in force and tells who listens; `route` is how the canonical chain came there.
    pub(crate) fn put_head(&self, head: StoredHeader, route: Route) {
        self.replace_head(head.clone());
        let Route {
            removed,
            added,
            changed,
        } = route;
        self.tell(&HeadChange {
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
