//! Why blocks are not taken in.

use niwaki_execution::ExecuteError;
use niwaki_primitives::{B256, Fault};
use niwaki_rules::InvalidBlock;

/// Why a block was not taken in. The chain is as it was before.
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
    /// The machine failed; nothing is known of the block.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why a block has no result, before its number and hash are put to it.
pub(super) enum Refusal {
    Invalid(Box<InvalidBlock>),
    UnknownParent,
    OutOfReach,
    Fault(Fault),
}

impl Refusal {
    /// Put to the block that was refused.
    pub(super) fn of(self, (number, hash): (u64, B256), parent: B256) -> ImportError {
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

impl<E: Into<InvalidBlock>> From<E> for Refusal {
    fn from(reason: E) -> Self {
        Self::Invalid(Box::new(reason.into()))
    }
}

pub(super) fn fault(fault: Fault) -> Refusal {
    Refusal::Fault(fault)
}

pub(super) fn execute_error(error: ExecuteError) -> Refusal {
    match error {
        ExecuteError::Invalid(reason) => reason.into(),
        ExecuteError::Fault(fault) => Refusal::Fault(fault),
    }
}
