//! Why a block was not imported.

use crate::BlockId;
use niwaki_execution::ExecuteError;
use niwaki_primitives::{B256, Fault};
use niwaki_rules::InvalidBlock;

/// Why a block was not imported. The chain is as it was before.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// The block breaks the protocol.
    #[error("block {number} ({hash}) is invalid: {reason}")]
    Invalid {
        /// Its number.
        number: u64,
        /// Its hash.
        hash: B256,
        /// The rule it breaks.
        reason: Box<InvalidBlock>,
    },
    /// Its parent is not stored.
    #[error("block {number} ({hash}): its parent {parent} is not known; import that first")]
    UnknownParent {
        /// Its number.
        number: u64,
        /// Its hash.
        hash: B256,
        /// The parent's hash.
        parent: B256,
    },
    /// The state after its parent is too far from the head.
    #[error(
        "block {number} ({hash}): the state after its parent {parent} is no longer within reach \
         of the head"
    )]
    OutOfReach {
        /// Its number.
        number: u64,
        /// Its hash.
        hash: B256,
        /// The parent's hash.
        parent: B256,
    },
    /// The machine failed; whether the block is valid is not known.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The same, without the block.
pub(crate) enum ImportFailure {
    Invalid(Box<InvalidBlock>),
    UnknownParent,
    OutOfReach,
    Fault(Fault),
}

impl ImportFailure {
    /// The error of the block `id`.
    pub(crate) fn at_block(self, id: BlockId, parent: B256) -> ImportError {
        let BlockId { number, hash } = id;
        match self {
            Self::Invalid(reason) => ImportError::Invalid {
                number,
                hash,
                reason,
            },
            Self::UnknownParent => ImportError::UnknownParent {
                number,
                hash,
                parent,
            },
            Self::OutOfReach => ImportError::OutOfReach {
                number,
                hash,
                parent,
            },
            Self::Fault(fault) => ImportError::Fault(fault),
        }
    }
}

impl<E: Into<InvalidBlock>> From<E> for ImportFailure {
    fn from(reason: E) -> Self {
        Self::Invalid(Box::new(reason.into()))
    }
}

pub(crate) fn fault(fault: Fault) -> ImportFailure {
    ImportFailure::Fault(fault)
}

pub(super) fn execute_error(error: ExecuteError) -> ImportFailure {
    match error {
        ExecuteError::Invalid(reason) => reason.into(),
        ExecuteError::Fault(fault) => ImportFailure::Fault(fault),
    }
}
