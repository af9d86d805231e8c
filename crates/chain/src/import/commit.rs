//! A valid block written: on top of the head, on a side branch, or as a reorganisation.

use crate::chain::SideBlock;
use crate::forkchoice::ReorgPath;
use crate::indices::index_canonical;
use crate::persist::BlockRows;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, ImportStatus};
use niwaki_execution::ExecutedBlock;
use niwaki_primitives::{Address, B256, Block, Bytes, Fault};
use niwaki_state::{ComputedRoot, View};
use niwaki_storage::{Batch, DeferredRows};
use std::sync::Arc;

/// A block that is valid, and what is written of it.
pub(crate) struct ValidBlock {
    pub(crate) block: Arc<Block>,
    pub(crate) hash: B256,
    /// The state after its parent.
    pub(crate) view: View,
    pub(crate) executed: ExecutedBlock,
    /// RLP of its block access list, from Amsterdam on.
    pub(crate) access_list: Option<Bytes>,
    pub(crate) root: ComputedRoot,
}

impl ValidBlock {
    pub(super) fn id(&self) -> BlockId {
        BlockId {
            number: self.block.header.number,
            hash: self.hash,
        }
    }
}

impl Chain {
    /// Writes a valid block, and makes it the head if that is allowed and it is better than the head.
    pub(super) fn commit_block(
        &self,
        valid: ValidBlock,
        parent: &StoredHeader,
        canonicalize: bool,
    ) -> Result<ImportStatus, Fault> {
        let id = valid.id();
        let ValidBlock {
            block,
            view,
            executed,
            access_list,
            root,
            ..
        } = valid;
        let header = &block.header;
        let stored = StoredHeader {
            id,
            total_difficulty: parent.total_difficulty.saturating_add(header.difficulty),
            header: header.clone(),
        };
        let accounts = executed.diff.accounts.iter();
        let changed: Arc<[Address]> = accounts.map(|(address, _)| *address).collect();
        let rows = BlockRows {
            header: stored.clone(),
            block: Arc::clone(&block),
            executed,
            access_list,
        };
        let mut batch = Batch::new();
        if !canonicalize || !self.is_better(&stored) {
            // Encoded by the thread that writes to the disk, after the caller has its answer.
            let log = self
                .world()
                .stage_side_block(&view, &root, id, parent.id.hash);
            let later = DeferredRows::new(rows.bytes() + root.trie_log_bytes(), move |batch| {
                rows.add_to(batch);
                log(batch);
            });
            self.database().write_deferred(batch, later, false)?;
            *self.side_block() = Some(SideBlock {
                header: stored,
                root,
                changed,
            });
            return Ok(ImportStatus::Side);
        }
        rows.add_to(&mut batch);
        drop((view, rows));
        let mut path = ReorgPath::default();
        if self.head().id == parent.id {
            path.changed = Some(changed);
        } else {
            path = self.reorg_to(parent, &mut batch)?;
        }
        path.added.push(id);
        index_canonical(&id, &block.body, &mut batch);
        self.world()
            .commit(root, id, parent.id.hash, batch, false)?;
        self.put_head(stored, path);
        Ok(ImportStatus::Canonical)
    }
}
