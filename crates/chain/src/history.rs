//! Old blocks: a chain that began with the state of a late block gets those below it afterwards, the highest first; and those of proof
//! of work can be removed, the lowest first. At any time the blocks from the first one up to the head are there, and the genesis block.

use crate::indices::{index_number, unindex_canonical};
use crate::persist::{TABLE_BYTES, add_header};
use crate::tree::{FIRST_BLOCK, StoredHeader};
use crate::{BlockId, Chain, DownloadedBlock};
use niwaki_primitives::Fault;
use niwaki_storage::{Batch, Segment, missing};

/// A batch of removals of blocks is written once it has so many bytes: what blocks above the head write does not wait long for it.
const BATCH_BYTES: usize = 4 << 20;
/// So many blocks below the head are never removed: a reorganisation goes back up to 512 blocks, and from there BLOCKHASH reads 256.
const KEPT_BLOCKS: u64 = 1_024;

impl Chain {
    /// The lowest stored block above the genesis block, if blocks between the two are not stored. Only its parent can be added.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn history_end(&self) -> Result<Option<StoredHeader>, Fault> {
        let first = self.first_block()?;
        if first <= self.genesis_number()?.saturating_add(1) {
            return Ok(None);
        }
        let header = self.header_at(first)?;
        let header = header.ok_or_else(|| missing(Segment::Canonical, &first.to_be_bytes()))?;
        Ok(Some(header))
    }

    /// Adds blocks below the lowest one that is stored. `blocks` are the lowest first, and the last one is the parent of
    /// [`Chain::history_end`]. The parts of many are written as tables, so that they go neither through the log nor through compactions. A
    /// kill leaves all of them, or none; then perhaps parts that no header names.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If the blocks do not link to what is stored.
    pub fn add_history(&self, blocks: &[DownloadedBlock]) -> Result<(), Fault> {
        self.add_history_by(blocks, TABLE_BYTES)
    }

    /// The same, where parts of blocks with so many bytes are written as tables.
    pub(crate) fn add_history_by(
        &self,
        blocks: &[DownloadedBlock],
        table_bytes: usize,
    ) -> Result<(), Fault> {
        let Some(mut child) = self.history_end()?.map(|end| end.header) else {
            assert!(blocks.is_empty(), "all blocks are stored");
            return Ok(());
        };
        let (mut parts, mut rows) = (Batch::new(), Batch::new());
        for block in blocks.iter().rev() {
            let id = block.header.id;
            assert_eq!(id.hash, child.parent_hash, "block {id} does not link");
            block.add_parts_to(&mut parts);
            add_header(&block.header, &mut rows);
            index_number(&id, &mut rows);
            child = block.header.header.clone();
        }
        let Some(lowest) = blocks.first() else {
            return Ok(());
        };
        match parts.bytes() >= table_bytes {
            true => {
                self.database().ingest(parts)?;
                self.database().remove_staging_dir()?;
            }
            false => rows.append(parts),
        }
        self.write_history(lowest.header.id, rows)
    }

    /// Writes rows of blocks of which `lowest` is the lowest.
    fn write_history(&self, lowest: BlockId, mut batch: Batch) -> Result<(), Fault> {
        let _writer = self.writer();
        self.strike_logs_below(self.first_block()?, &mut batch)?;
        match lowest.number <= self.genesis_number()?.saturating_add(1) {
            true => batch.delete(Segment::Meta, FIRST_BLOCK),
            false => batch.put(Segment::Meta, FIRST_BLOCK, &lowest.number.to_be_bytes()),
        }
        self.database().write(batch, false)
    }

    fn genesis_number(&self) -> Result<u64, Fault> {
        Ok(self.number_of(&self.genesis_hash())?.unwrap_or(0))
    }
}

/// What a removal of old blocks has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrunedBlocks {
    /// Canonical blocks that were removed.
    pub blocks: u64,
    /// The lowest stored block above the genesis block.
    pub first: u64,
    /// Whether the caller stopped it before the end.
    pub is_stopped: bool,
}

impl Chain {
    /// Removes all blocks of proof of work but the genesis block and those within 1,024 blocks of the head, the lowest first. Nothing, if
    /// the head is one of them. `report` gets each block's number; `false` stops it, and another call goes on.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn prune_pre_merge_blocks(
        &self,
        report: &mut dyn FnMut(u64) -> bool,
    ) -> Result<PrunedBlocks, Fault> {
        self.prune_proof_of_work(KEPT_BLOCKS, report)
    }

    pub(crate) fn prune_proof_of_work(
        &self,
        kept: u64,
        report: &mut dyn FnMut(u64) -> bool,
    ) -> Result<PrunedBlocks, Fault> {
        let _writer = self.writer();
        let above_genesis = self.genesis_number()?.saturating_add(1);
        let mut pruned = PrunedBlocks {
            first: self.first_block()?.max(above_genesis),
            ..PrunedBlocks::default()
        };
        let (spec, head) = (self.spec(), self.head());
        if !spec.is_proof_of_stake(&head.header) {
            return Ok(pruned);
        }
        let mut batch = Batch::new();
        while let Some(block) = self.header_at(pruned.first)? {
            let is_near = block.id.number.saturating_add(kept) >= head.id.number;
            if is_near || spec.is_proof_of_stake(&block.header) {
                break;
            }
            if !report(block.id.number) {
                pruned.is_stopped = true;
                break;
            }
            unindex_canonical(&block.id, &self.read_body(&block.id)?, &mut batch);
            self.remove_height(block.id.number, &mut batch)?;
            pruned.blocks += 1;
            pruned.first += 1;
            if batch.bytes() >= BATCH_BYTES {
                self.write_pruned(pruned.first, std::mem::take(&mut batch))?;
            }
        }
        if !batch.is_empty() {
            self.write_pruned(pruned.first, batch)?;
        }
        Ok(pruned)
    }

    /// Removes the rows of all blocks of a height, canonical or not.
    fn remove_height(&self, number: u64, batch: &mut Batch) -> Result<(), Fault> {
        for row in self
            .database()
            .prefix(Segment::Headers, &number.to_be_bytes())
        {
            let (key, _) = row?;
            for segment in [
                Segment::Headers,
                Segment::Bodies,
                Segment::Receipts,
                Segment::AccessLists,
            ] {
                batch.delete(segment, &key);
            }
            batch.delete(Segment::Numbers, key.get(8..).unwrap_or_default());
        }
        Ok(())
    }

    fn write_pruned(&self, first: u64, mut batch: Batch) -> Result<(), Fault> {
        self.remove_logs_below(first, &mut batch)?;
        batch.put(Segment::Meta, FIRST_BLOCK, &first.to_be_bytes());
        self.database().write(batch, false)
    }
}
