//! What a caller asks the chain to import, and how.

use super::WriteAhead;
use crate::StreamedBlock;
use niwaki_primitives::{Address, B256, Block, BlockAccessList, RecoveredBlock};
use niwaki_rules::BodyRoots;
use std::sync::Arc;

/// What came with a block and spares work. Senders and roots are trusted; the access list is verified.
#[derive(Clone, Debug, Default)]
pub struct PayloadHints {
    /// The senders that are known, one entry for each transaction or fewer; those are not recovered again.
    pub senders: Vec<Option<Address>>,
    /// The roots of the body, if the caller has computed them.
    pub roots: Option<BodyRoots>,
    /// The block access list that the block came with (EIP-7928).
    pub access_list: Option<BlockAccessList>,
}

impl From<Vec<Option<Address>>> for PayloadHints {
    fn from(senders: Vec<Option<Address>>) -> Self {
        Self {
            senders,
            ..Self::default()
        }
    }
}

/// A block to import, made from a [`Block`], a [`RecoveredBlock`] or a [`StreamedBlock`].
#[expect(missing_debug_implementations, reason = "a function")]
pub struct ImportRequest<'w> {
    /// The block.
    pub block: Block,
    /// Its hash, if it has been computed.
    pub hash: Option<B256>,
    /// What came with it.
    pub hints: PayloadHints,
    /// Whether it becomes the head if it is better than the present one: heavier before the Merge, higher after it. Otherwise it
    /// is stored as a side block, and [`Chain::set_head`](crate::Chain::set_head) may make it the head.
    pub canonicalize: bool,
    /// What must be done before the block is written; see [`WriteAhead`].
    pub write_ahead: Option<WriteAhead<'w>>,
}

impl ImportRequest<'_> {
    /// A block whose hash has been computed.
    pub fn with_hash(block: Block, hash: B256) -> Self {
        Self {
            hash: Some(hash),
            ..Self::from(block)
        }
    }
}

impl From<Block> for ImportRequest<'_> {
    fn from(block: Block) -> Self {
        Self {
            block,
            hash: None,
            hints: PayloadHints::default(),
            canonicalize: true,
            write_ahead: None,
        }
    }
}

impl From<RecoveredBlock> for ImportRequest<'_> {
    fn from(block: RecoveredBlock) -> Self {
        let senders: Vec<_> = block.senders.into_iter().map(Some).collect();
        Self {
            hints: senders.into(),
            ..Self::with_hash(Arc::unwrap_or_clone(block.block), block.hash)
        }
    }
}

impl From<StreamedBlock> for ImportRequest<'_> {
    fn from(streamed: StreamedBlock) -> Self {
        let senders = streamed.senders.unwrap_or_default();
        let senders: Vec<_> = senders.into_iter().map(Some).collect();
        Self {
            hints: senders.into(),
            ..Self::with_hash(streamed.block, streamed.hash)
        }
    }
}
