//! Several blocks imported together: each is validated and executed, the state root is computed after the last.
//!
//! Nodes of the tries that many blocks change are hashed once. It is for blocks far below a head that is known to be of the chain: the
//! headers lead to it by their hashes, so a wrong state root between them would be its author's, and the states between can't be
//! reached afterwards.
//!
//! ```text
//! head's state -> block 1 -> .. -> block 64 -> root == header 64's -> one commit
//!                 (on the changes of those before, in memory)   \-> else, or if any block fails: one by one, which names the first
//! ```

use super::error::{ImportFailure, execute_error, fault};
use super::tasks::receipt_root::{ReceiptRootBuilder, Runner};
use super::validate::{body_roots, compare};
use super::{
    ImportError, ImportOptions, ImportRequest, ImportStatus, Imported, PhaseClock, Timings,
    WriteStats,
};
use crate::bft::Seals;
use crate::forkchoice::ReorgPath;
use crate::indices::index_canonical;
use crate::persist::BlockRows;
use crate::tree::StoredHeader;
use crate::{BlockId, Chain, nanoseconds};
use niwaki_execution::{BlockProgress, Overlay, RecoveringBlock, recover_in_background};
use niwaki_primitives::{Address, B256, Bytes, Fork};
use niwaki_rules::{BodyRoots, ChainSpec, InvalidBlock, ValidatorSource};
use niwaki_state::{ReadStats, View};
use niwaki_storage::Batch;
use std::sync::Arc;
use std::time::Instant;

/// A block of a batch.
struct BatchBlock {
    block: Arc<RecoveringBlock>,
    roots: BodyRoots,
}

impl BatchBlock {
    fn of(request: ImportRequest<'_>, spec: &ChainSpec) -> Self {
        let ImportRequest {
            block, hash, hints, ..
        } = request;
        let hash = hash.unwrap_or_else(|| spec.header_hash(&block.header));
        let roots = hints.roots.unwrap_or_else(|| body_roots(&block.body));
        let block = RecoveringBlock::new(block, hash, hints.senders).timed(nanoseconds);
        Self {
            block: Arc::new(block),
            roots,
        }
    }
}

/// A block that was executed in a batch.
struct Executed {
    rows: BlockRows,
    /// The code that it deployed.
    codes: Vec<(B256, Bytes)>,
    imported: Imported,
}

impl Chain {
    /// Imports blocks, each a child of the one before, as [`Chain::import`] does one after the other, but for the state roots
    /// between: only the last one is computed. The last result may be an error; then the blocks after it were not looked at.
    pub fn import_batch(
        &self,
        blocks: Vec<ImportRequest<'_>>,
    ) -> Vec<Result<Imported, ImportError>> {
        let blocks = blocks.into_iter();
        let blocks: Vec<BatchBlock> = blocks
            .map(|block| BatchBlock::of(block, self.spec()))
            .collect();
        let _guard = self.begin_import();
        let _writer = self.writer();
        if self.can_batch(&blocks)
            && let Ok(imported) = self.import_as_one(&blocks)
        {
            return imported.into_iter().map(Ok).collect();
        }
        let mut results = Vec::with_capacity(blocks.len());
        for BatchBlock { block, roots } in blocks {
            let options = ImportOptions {
                roots: Some(roots),
                access_list: None,
                write_ahead: None,
                canonicalize: true,
            };
            let imported = self.import_recovering(&block, options);
            let is_failed = imported.is_err();
            results.push(imported);
            if is_failed {
                break;
            }
        }
        results
    }

    /// Whether the blocks continue the head's chain, and need no state between them.
    fn can_batch(&self, blocks: &[BatchBlock]) -> bool {
        let StoredHeader { id, header, .. } = self.head();
        let (mut parent, mut time) = (id.hash, header.timestamp);
        let is_linked = blocks.iter().all(|BatchBlock { block, .. }| {
            let header = &block.block.header;
            let is_child = header.parent_hash == parent;
            let reads_state = self.reads_validators(header.number, time);
            (parent, time) = (block.hash, header.timestamp);
            is_child && !reads_state
        });
        let is_late = |block: &BatchBlock| {
            let block = &block.block.block;
            let is_late = self.spec().fork_of(&block.header) >= Fork::Byzantium;
            is_late && block.body.ommers.is_empty()
        };
        blocks.len() > 1 && is_linked && !self.world().is_archive() && blocks.iter().all(is_late)
    }

    /// Whether the validators of a block are in the state of its parent, which has this time.
    fn reads_validators(&self, number: u64, parent_time: u64) -> bool {
        let rules = self.spec().bft_rules_at(number, parent_time);
        rules.is_some_and(|rules| matches!(rules.source, ValidatorSource::Contract(_)))
    }

    fn import_as_one(&self, blocks: &[BatchBlock]) -> Result<Vec<Imported>, ImportFailure> {
        let view = self.world().view_at_head().map_err(fault)?;
        let mut parent = self.head();
        let mut state = Overlay::new(&view, parent.id.number);
        let mut all = Vec::with_capacity(blocks.len());
        for block in blocks {
            let executed = self.execute_on(&view, &mut state, block, &parent)?;
            parent = executed.rows.header.clone();
            all.push(executed);
        }
        let mut clock = PhaseClock(Instant::now());
        let mut diff = state.diff();
        // Also that of contracts which a later block has destroyed, as single blocks leave it.
        diff.codes = all.iter().flat_map(|one| one.codes.clone()).collect();
        diff.codes.sort_unstable_by_key(|(hash, _)| *hash);
        diff.codes.dedup_by_key(|(hash, _)| *hash);
        let root = self.world().compute_root(&view, &diff).map_err(fault)?;
        let (got, expected) = (root.root(), parent.header.state_root);
        if got != expected {
            return Err(InvalidBlock::StateRoot { got, expected }.into());
        }
        let root_took = clock.lap();

        let mut batch = Batch::new();
        let changed: Arc<[Address]> = diff.accounts.iter().map(|(address, _)| *address).collect();
        let mut path = ReorgPath {
            changed: Some(changed),
            ..ReorgPath::default()
        };
        let mut results = Vec::with_capacity(all.len());
        for Executed { rows, imported, .. } in all {
            rows.add_to(&mut batch);
            index_canonical(&imported.id, &rows.block.body, &mut batch);
            path.added.push(imported.id);
            results.push(imported);
        }
        let id = parent.id;
        drop(view);
        self.world().commit_batch(root, id, batch).map_err(fault)?;
        self.put_head(parent, path);
        if let Some(last) = results.last_mut() {
            last.timings.root += root_took;
            last.timings.commit = clock.lap();
        }
        Ok(results)
    }

    /// Validates a block, executes it on top of the changes of those before it, and adds its own.
    fn execute_on(
        &self,
        view: &View,
        state: &mut Overlay<'_>,
        block: &BatchBlock,
        parent: &StoredHeader,
    ) -> Result<Executed, ImportFailure> {
        let BatchBlock { block, roots } = block;
        let mut timings = Timings::default();
        let mut clock = PhaseClock(Instant::now());
        self.choose_block_threads();
        let _recovery = recover_in_background(block, self.sender_threads());
        self.validate(&block.block, roots, parent, Seals::Needed)?;
        timings.check = clock.lap();

        let mut receipts = ReceiptRootBuilder::new(self.tuning().receipt_batch);
        let on_progress =
            |progress: BlockProgress<'_>| receipts.progress(progress.receipts, Runner::Pool);
        // Blocks of forks with intermediate roots are in no batch.
        let (mut executed, tx_stats) = self
            .execution(block, None, &*state)
            .run(&mut self.observer(view, on_progress))
            .map_err(execute_error)?;
        let (receipts, ()) = receipts.finish_while(&executed.receipts, || ());
        timings.execute = clock.lap();
        timings.split_execution(tx_stats.ended, block.senders.blocking_ns());

        let header = &block.block.header;
        let access_list = compare(
            self.spec(),
            &block.block,
            &executed,
            header.state_root,
            &receipts,
        )?;
        timings.compare = clock.lap();
        let id = BlockId {
            number: header.number,
            hash: block.hash,
        };
        let writes = WriteStats::of(&executed.diff);
        let codes = executed.diff.codes.clone();
        state.apply(std::mem::take(&mut executed.diff));
        state.set_block_hash(id.number, id.hash);
        let imported = Imported {
            id,
            status: ImportStatus::Canonical,
            gas_used: executed.gas_used,
            transactions: block.block.body.transactions.len(),
            tx_stats,
            has_bal_root: false,
            root_flushes: 0,
            has_bal: false,
            bal: None,
            reads: ReadStats::default(),
            writes,
            waiting_batches: self.database().pending_batches(),
            timings,
        };
        let header = StoredHeader {
            id,
            total_difficulty: parent.total_difficulty.saturating_add(header.difficulty),
            header: header.clone(),
        };
        let block = Arc::clone(&block.block);
        let rows = BlockRows {
            header,
            block,
            executed,
            access_list,
        };
        Ok(Executed {
            rows,
            codes,
            imported,
        })
    }
}
