//! What a consensus client chose and this node lacks: which block a sync has to get, and what follows when it has it, or when
//! that is invalid.

use super::{Consensus, ForkChoice, ForkChoiceError, MAX_INVALID, MissingHead, Verdict};
use niwaki_primitives::{B256, Fault, Header};
use niwaki_rules::InvalidBlock;
use niwaki_threads::lock;

/// A fork choice that could not be followed, since blocks are missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingChoice {
    pub(super) head: MissingHead,
    pub(super) choice: ForkChoice,
}

/// The block that has to come before a chosen head can be followed: the head itself, or the parent of the lowest block that
/// waits below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingBlock {
    /// Its hash.
    pub hash: B256,
    /// Its number, if a child of it waits.
    pub number: Option<u64>,
    /// The head that was chosen.
    pub head: MissingHead,
}

impl Consensus {
    /// The head of the last fork choice, if its ancestors are missing.
    pub fn missing_head(&self) -> Option<MissingHead> {
        lock(&self.pending).map(|pending| pending.head)
    }

    /// The header of a block that waits for its ancestors.
    pub fn waiting_header(&self, hash: &B256) -> Option<Header> {
        let waiting = lock(&self.waiting);
        let block = waiting.blocks.get(hash);
        block.map(|(block, _)| block.header.clone())
    }

    /// The block that is missing below the head of the last fork choice. It is stored already if only the blocks above it have
    /// to be imported ([`Consensus::retry_fork_choice`]). `None` also if it, or the head, is known to be invalid.
    pub fn missing_block(&self) -> Option<MissingBlock> {
        let head = self.missing_head()?;
        let (mut hash, mut number) = (head.hash, None);
        {
            let waiting = lock(&self.waiting);
            while let Some((block, _)) = waiting.blocks.get(&hash) {
                number = block.header.number.checked_sub(1);
                hash = block.header.parent_hash;
            }
        }
        let is_invalid = self.rejected(&hash).or_else(|| self.rejected(&head.hash));
        is_invalid
            .is_none()
            .then_some(MissingBlock { hash, number, head })
    }

    /// Follows the last fork choice again, if blocks were missing: imports the blocks that wait below its head. `None` if there
    /// is no such fork choice.
    ///
    /// # Errors
    /// As [`Consensus::fork_choice`]. A fork choice that is inconsistent or too deep is not tried again.
    pub fn retry_fork_choice(&self) -> Result<Option<Verdict>, ForkChoiceError> {
        let Some(PendingChoice { choice, .. }) = *lock(&self.pending) else {
            return Ok(None);
        };
        let followed = self.fork_choice(choice).map(Some);
        if let Err(ForkChoiceError::Inconsistent { .. } | ForkChoiceError::TooDeep(_)) = followed {
            lock(&self.pending).take_if(|pending| pending.choice == choice);
        }
        followed
    }

    /// Remembers that the block `hash`, a child of the valid block `parent`, is invalid, and with it as many of its
    /// `descendants` as are remembered, the first ones.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn reject_branch(
        &self,
        parent: B256,
        hash: B256,
        reason: &InvalidBlock,
        descendants: impl IntoIterator<Item = B256>,
    ) -> Result<(), Fault> {
        if let Verdict::Invalid(rejected) = self.reject(parent, hash, reason)? {
            let mut invalid = lock(&self.invalid);
            // The block itself must not be forgotten over them.
            for descendant in descendants.into_iter().take(MAX_INVALID / 2) {
                invalid.put(descendant, rejected.clone());
            }
        }
        Ok(())
    }

    /// Whether the block is known to be invalid.
    pub fn is_rejected(&self, hash: &B256) -> bool {
        self.rejected(hash).is_some()
    }
}
