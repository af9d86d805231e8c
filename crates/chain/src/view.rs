//! Views of the state after a block of the chain.

use crate::Chain;
use niwaki_primitives::{B256, Bytes, Fault, StateDiff};
use niwaki_state::{BlockId, HistoricalView, StateHead, TRIE_LOGS_KEPT, View};
use niwaki_storage::Segment;

/// The state after a block; see [`niwaki_state::View`]. It may outlive the chain it is of.
pub type ChainView = View;

impl Chain {
    /// The state after the head.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn view_at_head(&self) -> Result<ChainView, Fault> {
        self.world().view_at_head()
    }

    /// The state after a block, laid over `base`, which must be a view of a head, be it a past one; `None` if the trie logs in between
    /// are not kept.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    ///
    /// # Panics
    /// If `base` is not of a head.
    pub fn view_over(&self, base: &ChainView, block: BlockId) -> Result<Option<ChainView>, Fault> {
        self.world().view_over(base, block)
    }

    /// The code with this hash; `None` if no account that this node ever had has it.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn code(&self, hash: &B256) -> Result<Option<Bytes>, Fault> {
        let code = self
            .world()
            .database()
            .get(Segment::Code, hash.as_slice())?;
        Ok(code.map(Bytes::from))
    }

    /// The state root after changes to `view` that belong to no block.
    ///
    /// # Errors
    /// A [`Fault`] of the storage, or if the head has moved so far that the state is out of reach.
    pub fn root_after(&self, view: &ChainView, diff: &StateDiff) -> Result<B256, Fault> {
        Ok(self.world().compute_root(view, diff)?.root())
    }

    /// Whether every past state is kept.
    pub fn is_archive(&self) -> bool {
        self.world().is_archive()
    }

    /// For how many blocks below the head a view can be made, unless the chain is an archive.
    pub fn state_window(&self) -> u64 {
        TRIE_LOGS_KEPT
    }

    /// The state after `past`, which must be a canonical block and its state root; `None` where
    /// past states are not kept.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn historical_view(&self, past: StateHead) -> Result<Option<HistoricalView>, Fault> {
        self.world().historical_view(past)
    }

    /// The state after the block with this hash; `None` if the block is not stored or its state is
    /// no longer within reach of the head.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn view_at(&self, hash: &B256) -> Result<Option<ChainView>, Fault> {
        match self.header(hash)? {
            Some(block) => self.world().view_at(block.id),
            None => Ok(None),
        }
    }
}
