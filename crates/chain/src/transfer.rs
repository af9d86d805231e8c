//! The errors of exports and imports of a state or of trie logs.

use crate::OpenError;
use niwaki_primitives::{B256, Fault};
use niwaki_state::LoadError;
use std::fmt;

/// Why an export or import of a state or of trie logs was not done.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The file to write is there already.
    #[error("{path} exists already; name another file with --to")]
    Exists {
        /// The file.
        path: String,
    },
    /// The file is something else.
    #[error("{path} is not {what} of this version; name another file with --from")]
    NotOurs {
        /// The file.
        path: String,
        /// What was looked for.
        what: &'static str,
    },
    /// The file is not what was written.
    #[error(
        "{path} is damaged before or in the chunk at byte {at}: {reason}; nothing of it is in \
         force; export it again"
    )]
    Damaged {
        /// The file.
        path: String,
        /// Where.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file is of another chain.
    #[error(
        "the file is of the chain with {found}, the given one has {given}; name its --network or \
         --genesis-file"
    )]
    OtherChain {
        /// Genesis or chain id of the file.
        found: String,
        /// That of the requested chain.
        given: String,
    },
    /// A data path that is to be filled has a chain already.
    #[error("the data path holds a chain already; a state is imported into an empty one")]
    NotEmpty,
    /// The accounts and slots are not those of the header.
    #[error(
        "the accounts and slots of the file have state root {got}, the header of block {number} \
         says {expected}; nothing of it is in force; export it again from a database that \
         'niwaki storage check' finds right"
    )]
    Root {
        /// Computed.
        got: B256,
        /// By the header.
        expected: B256,
        /// The block.
        number: u64,
    },
    /// The validators are not known without older blocks than a state has.
    #[error(
        "the validators of this chain follow from votes since block {first}, and the file of a state \
         has the last {blocks} blocks only; nothing was written; copy all with 'niwaki storage backup'"
    )]
    Votes {
        /// The first block that may have a vote.
        first: u64,
        /// How many blocks are written.
        blocks: u64,
    },
    /// A trie log that can't be put back.
    #[error("the trie log of block {number} {hash} is refused: {reason}; nothing was imported")]
    Log {
        /// The block.
        number: u64,
        /// Its hash.
        hash: B256,
        /// Why.
        reason: String,
    },
    /// A requested block has no trie log.
    #[error(
        "there is no trie log of block {0}; 'niwaki storage trie-log count' says what is there"
    )]
    NoLog(B256),
    /// The range is empty.
    #[error("there are no trie logs of the requested blocks")]
    Nothing,
    /// The caller asked to stop.
    #[error("stopped on request")]
    Stopped,
    /// The chain did not open.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl TransferError {
    /// The file is of the chain with `found`, the requested chain has `given`.
    pub(crate) fn other_chain<T: fmt::Display>(what: &str, found: T, given: T) -> Self {
        Self::OtherChain {
            found: format!("{what} {found}"),
            given: format!("{what} {given}"),
        }
    }
}

impl From<OpenError> for TransferError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Stopped => Self::Stopped,
            OpenError::Fault(fault) => Self::Fault(fault),
            other => Self::Open(Box::new(other)),
        }
    }
}

impl From<LoadError> for TransferError {
    fn from(error: LoadError) -> Self {
        OpenError::from(error).into()
    }
}
