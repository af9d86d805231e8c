//! A block whose seals are still to come: executed once, written when validators have agreed on it.
//!
//! The hash of a BFT block leaves its seals and its round out, so what an execution says of a proposal holds for the block that comes of it,
//! in whatever round. Until then it is in no table: readers do not see it, and it is gone with the process.

use super::{ImportOptions, Imported, ReadyBlock};
use crate::bft::Seals;
use crate::{BlockId, Chain, ImportError};
use niwaki_execution::RecoveringBlock;
use niwaki_primitives::{Address, Block, Fault, Header};
use std::sync::Arc;

/// A block that was executed and is valid, but for its seals.
pub struct JudgedBlock(Box<ReadyBlock>);

impl std::fmt::Debug for JudgedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.0.imported.id;
        f.debug_tuple("JudgedBlock").field(&id).finish()
    }
}

impl JudgedBlock {
    pub(crate) fn new(ready: ReadyBlock) -> Self {
        Self(Box::new(ready))
    }

    /// Number and hash.
    pub fn id(&self) -> BlockId {
        self.0.imported.id
    }
}

impl Chain {
    /// Validates and executes a block that validators are to agree on, with the rules for a proposal. Nothing is written. `senders` are
    /// those of the first transactions, as far as they are known.
    ///
    /// # Errors
    /// [`ImportError`].
    pub fn judge(
        &self,
        block: Block,
        senders: Vec<Option<Address>>,
    ) -> Result<JudgedBlock, ImportError> {
        let hash = self.spec().header_hash(&block.header);
        let (number, parent) = (block.header.number, block.header.parent_hash);
        let _guard = self.begin_import();
        let _writer = self.writer();
        let options = ImportOptions {
            roots: None,
            access_list: None,
            write_ahead: None,
            canonicalize: true,
        };
        let block = Arc::new(RecoveringBlock::new(block, hash, senders));
        let ready = self.make_ready(&block, options, Seals::ToCome);
        ready
            .map(JudgedBlock::new)
            .map_err(|failure| failure.at_block(BlockId { number, hash }, parent))
    }

    /// Writes a judged block under its header with seals, which are checked, and makes it the head. One whose parent is not the head
    /// any more, or whose header is that of another block, is imported as any other.
    ///
    /// # Errors
    /// [`ImportError`]; then the chain is as it was.
    pub fn commit_judged(
        &self,
        judged: JudgedBlock,
        header: Header,
    ) -> Result<Imported, ImportError> {
        let (id, mut ready) = (judged.id(), *judged.0);
        let parent = ready.parent.id;
        let block = Block {
            header,
            body: ready.valid.block.body.clone(),
        };
        let _guard = self.begin_import();
        let writer = self.writer();
        let is_same = self.spec().header_hash(&block.header) == id.hash;
        if !is_same || self.head().id != parent || self.header(&id.hash)?.is_some() {
            drop(writer);
            return self.import(block);
        }
        self.check_validators(&block.header, &ready.parent, Seals::Needed)
            .map_err(|failure| failure.at_block(id, parent.hash))?;
        ready.valid.block = Arc::new(block);
        ready.recovered.block = Arc::clone(&ready.valid.block);
        let imported = self.commit_ready(ready, true);
        imported.map_err(|fault: Fault| fault.into())
    }
}
