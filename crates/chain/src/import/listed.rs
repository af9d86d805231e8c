//! Blocks whose access lists are applied in the place of an execution (EIP-7928): a list holds every value after its block.
//!
//! For blocks far below a head that the caller trusts, as one does that begins with the state of a late block: the headers lead to it by
//! their hashes. A list that is not what the execution gives leads to another state root, which the last header tells; only what no root
//! covers, such as requests, is taken from the headers as it is.
//!
//! ```text
//! head's state -> list 1 -> .. -> list 128 -> root == header 128's -> one commit
//! ```

use super::error::{ImportFailure, fault};
use super::tasks::bal_root::changed;
use super::{BodyRoots, ImportError};
use crate::bft::Seals;
use crate::forkchoice::ReorgPath;
use crate::indices::index_canonical;
use crate::persist::add_block;
use crate::{Chain, DownloadedBlock, StoredHeader};
use niwaki_execution::{Overlay, bal_state_diff};
use niwaki_primitives::{Address, B256, Block, BlockAccessList, Bytes, Receipt, StateDiff};
use niwaki_rules::{InvalidBlock, access_list_hash, decode_access_list};
use niwaki_state::View;
use niwaki_storage::Batch;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Threads that read values into the caches. They wait for the disk more than they work.
const READERS: usize = 4;

/// A block with its list.
struct ListedBlock {
    header: StoredHeader,
    block: Block,
    receipts: Vec<Receipt>,
    rlp: Bytes,
    list: BlockAccessList,
}

impl ListedBlock {
    fn new(block: DownloadedBlock) -> Result<Self, ImportFailure> {
        let rlp = block.access_list.unwrap_or_default();
        let (got, header) = (access_list_hash(&rlp), &block.header.header);
        match header.block_access_list_hash {
            Some(expected) if got == expected => {}
            expected => {
                let expected = expected.unwrap_or_default();
                return Err(InvalidBlock::BlockAccessListHash { got, expected }.into());
            }
        }
        Ok(Self {
            list: decode_access_list(&rlp)?,
            block: Block {
                header: block.header.header.clone(),
                body: block.body,
            },
            header: block.header,
            receipts: block.receipts,
            rlp,
        })
    }
}

impl Chain {
    /// Makes the last of some blocks the head by their access lists. Each is a child of the one before, the first one of the head.
    /// There are no states between them afterwards. Nothing is written unless the lists lead to the state root of the last block.
    ///
    /// # Errors
    /// [`ImportError`]; an invalid block is named as the last one: which one it is, an execution tells.
    ///
    /// # Panics
    /// If the chain is an archive, which needs the states between.
    pub fn import_by_access_lists(&self, blocks: Vec<DownloadedBlock>) -> Result<(), ImportError> {
        assert!(!self.is_archive(), "an archive has the state of each block");
        let Some(last) = blocks.last() else {
            return Ok(());
        };
        let (id, parent) = (last.header.id, last.header.header.parent_hash);
        let _guard = self.begin_import();
        let _writer = self.writer();
        let imported = self.import_listed(blocks);
        imported.map_err(|failure| failure.at_block(id, parent))
    }

    fn import_listed(&self, blocks: Vec<DownloadedBlock>) -> Result<(), ImportFailure> {
        let blocks = blocks.into_iter().map(ListedBlock::new);
        let blocks: Vec<ListedBlock> = blocks.collect::<Result<_, _>>()?;
        let view = self.world().view_at_head().map_err(fault)?;
        let diff = self.diff_of_lists(&view, &blocks)?;
        let root = self.world().compute_root(&view, &diff).map_err(fault)?;
        let Some(last) = blocks.last().map(|block| block.header.clone()) else {
            return Ok(());
        };
        let (got, expected) = (root.root(), last.header.state_root);
        if got != expected {
            return Err(InvalidBlock::StateRoot { got, expected }.into());
        }
        drop(view);
        let mut batch = Batch::new();
        let changed: Arc<[Address]> = diff.accounts.iter().map(|(address, _)| *address).collect();
        let mut path = ReorgPath {
            changed: Some(changed),
            ..ReorgPath::default()
        };
        for listed in &blocks {
            let (header, body) = (&listed.header, &listed.block.body);
            add_block(
                header,
                body,
                &listed.receipts,
                Some(&listed.rlp),
                &mut batch,
            );
            index_canonical(&header.id, body, &mut batch);
            path.added.push(header.id);
        }
        self.world()
            .commit_batch(root, last.id, batch)
            .map_err(fault)?;
        self.put_head(last, path);
        Ok(())
    }

    /// What all lists together change. Other threads read what it will need meanwhile.
    fn diff_of_lists(
        &self,
        view: &View,
        blocks: &[ListedBlock],
    ) -> Result<StateDiff, ImportFailure> {
        let is_known = &AtomicBool::new(false);
        let values = || blocks.iter().flat_map(|block| changed(&block.list));
        std::thread::scope(|scope| {
            scope.spawn(move || self.world().prefetch_trie_paths(view, values(), is_known));
            for first in 0..READERS {
                let values = values().skip(first).step_by(READERS);
                scope.spawn(move || view.prefetch_values(values, is_known));
            }
            let diff = self.validated_diff(view, blocks);
            is_known.store(true, Ordering::Relaxed);
            diff
        })
    }

    fn validated_diff(
        &self,
        view: &View,
        blocks: &[ListedBlock],
    ) -> Result<StateDiff, ImportFailure> {
        let mut parent = self.head();
        let mut state = Overlay::new(view, parent.id.number);
        let mut codes = BTreeMap::<B256, Bytes>::new();
        for listed in blocks {
            let header = &listed.block.header;
            if header.parent_hash != parent.id.hash {
                return Err(ImportFailure::UnknownParent);
            }
            // The parts were compared with the header when they came.
            let roots = BodyRoots {
                transactions: header.transactions_root,
                withdrawals: header.withdrawals_root,
            };
            self.validate(&listed.block, &roots, &parent, Seals::Needed)?;
            let diff = bal_state_diff(&listed.list, &state, &|| false).map_err(fault)?;
            // No list deletes an account with storage: an execution says what is wrong.
            let diff = diff.ok_or(ImportFailure::OutOfReach)?;
            codes.extend(diff.codes.iter().cloned());
            state.apply(diff);
            parent = listed.header.clone();
        }
        Ok(StateDiff {
            codes: codes.into_iter().collect(),
            ..state.diff()
        })
    }
}
