//! The messages of validators.
//!
//! What a validator signs is a payload; around it is what others need to judge it: blocks, and what validators signed before.
//!
//! | message | says | signed | around it |
//! |---|---|---|---|
//! | proposal | this is the block | height, round, block (IBFT 2.0: its digest) | why it may be this one, in rounds after the first |
//! | prepare | it is valid | height, round, digest | |
//! | commit | a quorum prepared it | height, round, digest, seal | |
//! | round change | no block came in time | height, round, what a quorum prepared before | that block and the prepares |
//!
//! | file | what it is |
//! |---|---|
//! | `signed` | payloads with their signatures |
//! | `signer` | the messages of this node, signed |
//! | `votes` | prepares and commits |
//! | `qbft` | the form of QBFT, `istanbul/100` |
//! | `ibft2` | the form of IBFT 2.0, `IBF/1` |
//! | `fields` | lists of RLP, read item by item |
//!
//! Besu from 26.1 on writes the block's access list into proposals and round changes; GoQuorum, and Besu before, do not know it. Both
//! forms are read; [`Form`] says which one is written.

mod fields;
mod ibft2;
mod qbft;
mod signed;
mod signer;
mod votes;

pub(crate) use fields::{Fields, ReadError, item, list};
pub(crate) use ibft2::read_proposal_payload;
use niwaki_primitives::{Address, B256, Block, Bytes};
use niwaki_rules::{BadSeal, BftProtocol, Seal};
pub use signed::{KeyError, Signed};
pub use signer::Signer;
use std::sync::Arc;
pub(crate) use votes::read_prepare;

/// A height and a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// The number of the block that is agreed on.
    pub height: u64,
    /// The attempt, from 0 on.
    pub round: u32,
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A block.
    Proposal,
    /// It is valid.
    Prepare,
    /// A quorum prepared it.
    Commit,
    /// Another round.
    RoundChange,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::Proposal,
        Self::Prepare,
        Self::Commit,
        Self::RoundChange,
    ];

    /// The number of the message in its protocol.
    pub fn code(self, protocol: BftProtocol) -> u8 {
        let first = match protocol {
            BftProtocol::Ibft2 => 0,
            BftProtocol::Qbft => 0x12,
        };
        first + self as u8
    }

    /// The kind with this number.
    pub fn of_code(protocol: BftProtocol, code: u8) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.code(protocol) == code)
    }
}

/// What a proposer signs; in QBFT the block too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalPayload {
    /// Where it belongs.
    pub view: View,
    /// The digest of the block, in IBFT 2.0.
    pub digest: Option<B256>,
}

/// What a validator signs of a block that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparePayload {
    /// Where it belongs.
    pub view: View,
    /// The digest of the block.
    pub digest: B256,
}

/// What a validator signs of a block that a quorum has prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPayload {
    /// Where it belongs.
    pub view: View,
    /// The digest of the block.
    pub digest: B256,
    /// Its signature for the header.
    pub seal: Seal,
}

/// What a validator signs when it gives a round up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundChangePayload {
    /// The round that it wants.
    pub view: View,
    /// The last block that a quorum prepared, as far as it knows.
    pub prepared: Option<Prepared>,
}

/// A block that a quorum has prepared in a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The round.
    pub round: u32,
    /// The digest of the block.
    pub digest: B256,
    /// In IBFT 2.0, what shows it: the proposal, and the prepares of all but its author.
    pub certificate: Option<(Signed<ProposalPayload>, Vec<Signed<PreparePayload>>)>,
}

/// A proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// What the proposer signed.
    pub signed: Signed<ProposalPayload>,
    /// The block, without seals.
    pub block: Arc<Block>,
    /// The RLP of its access list.
    pub access_list: Option<Bytes>,
    /// The round changes that led here.
    pub round_changes: Vec<Signed<RoundChangePayload>>,
    /// In QBFT, the prepares of the block, if it was prepared in an earlier round.
    pub prepares: Vec<Signed<PreparePayload>>,
}

/// A round change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundChange {
    /// What the validator signed.
    pub signed: Signed<RoundChangePayload>,
    /// The prepared block.
    pub block: Option<Arc<Block>>,
    /// The RLP of its access list.
    pub access_list: Option<Bytes>,
    /// In QBFT, its prepares.
    pub prepares: Vec<Signed<PreparePayload>>,
}

/// A message of a validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A block.
    Proposal(Box<Proposal>),
    /// It is valid.
    Prepare(Signed<PreparePayload>),
    /// A quorum prepared it.
    Commit(Signed<CommitPayload>),
    /// Another round.
    RoundChange(Box<RoundChange>),
}

/// In which form messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The protocol.
    pub protocol: BftProtocol,
    /// Whether proposals and round changes have a place for an access list.
    pub has_access_list: bool,
}

/// Why a message can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No message has this number.
    #[error("message {0:#x} is unknown")]
    Code(u8),
    /// It is not RLP of the form of its kind.
    #[error("a malformed {kind:?}: {reason}")]
    Malformed {
        /// Which.
        kind: Kind,
        /// What is wrong.
        reason: alloy_rlp::Error,
    },
    /// No key can have made a signature in it.
    #[error("a {kind:?}: {reason}")]
    Signature {
        /// Which.
        kind: Kind,
        /// What is wrong.
        reason: BadSeal,
    },
}

/// Who signed a message, without reading the rest of it.
///
/// # Errors
/// [`WireError`].
pub fn author_of(protocol: BftProtocol, code: u8, bytes: &[u8]) -> Result<Address, WireError> {
    let kind = Kind::of_code(protocol, code).ok_or(WireError::Code(code))?;
    let author = || match kind {
        Kind::Prepare | Kind::Commit => signed::read_author(protocol, kind, bytes),
        // What was signed comes first.
        Kind::Proposal | Kind::RoundChange => {
            signed::read_author(protocol, kind, Fields::of(bytes)?.raw()?)
        }
    };
    author().map_err(|error| error.of(kind))
}

impl Message {
    /// Reads a message, and recovers who signed it and what is in it.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn decode(protocol: BftProtocol, code: u8, bytes: &[u8]) -> Result<Self, WireError> {
        let kind = Kind::of_code(protocol, code).ok_or(WireError::Code(code))?;
        Self::read(protocol, kind, bytes).map_err(|error| error.of(kind))
    }

    fn read(protocol: BftProtocol, kind: Kind, bytes: &[u8]) -> Result<Self, fields::ReadError> {
        Ok(match (kind, protocol) {
            (Kind::Prepare, _) => Self::Prepare(votes::read_prepare(protocol, bytes)?),
            (Kind::Commit, _) => Self::Commit(votes::read_commit(protocol, bytes)?),
            (Kind::Proposal, BftProtocol::Ibft2) => {
                Self::Proposal(Box::new(ibft2::read_proposal(bytes)?))
            }
            (Kind::Proposal, BftProtocol::Qbft) => {
                Self::Proposal(Box::new(qbft::read_proposal(bytes)?))
            }
            (Kind::RoundChange, BftProtocol::Ibft2) => {
                Self::RoundChange(Box::new(ibft2::read_round_change(bytes)?))
            }
            (Kind::RoundChange, BftProtocol::Qbft) => {
                Self::RoundChange(Box::new(qbft::read_round_change(bytes)?))
            }
        })
    }

    /// The bytes of it.
    pub fn encode(&self, form: Form) -> Vec<u8> {
        let Form {
            protocol,
            has_access_list,
        } = form;
        match (self, protocol) {
            (Self::Prepare(prepare), _) => prepare.bytes().to_vec(),
            (Self::Commit(commit), _) => commit.bytes().to_vec(),
            (Self::Proposal(proposal), BftProtocol::Ibft2) => {
                ibft2::encode_proposal(proposal, has_access_list)
            }
            // Its access list is in what was signed.
            (Self::Proposal(proposal), BftProtocol::Qbft) => qbft::encode_proposal(proposal),
            (Self::RoundChange(change), BftProtocol::Ibft2) => {
                ibft2::encode_round_change(change, has_access_list)
            }
            (Self::RoundChange(change), BftProtocol::Qbft) => {
                qbft::encode_round_change(change, has_access_list)
            }
        }
    }

    /// What kind it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Proposal(_) => Kind::Proposal,
            Self::Prepare(_) => Kind::Prepare,
            Self::Commit(_) => Kind::Commit,
            Self::RoundChange(_) => Kind::RoundChange,
        }
    }

    /// Where it belongs.
    pub fn view(&self) -> View {
        match self {
            Self::Proposal(proposal) => proposal.signed.payload.view,
            Self::Prepare(prepare) => prepare.payload.view,
            Self::Commit(commit) => commit.payload.view,
            Self::RoundChange(change) => change.signed.payload.view,
        }
    }

    /// Who signed it.
    pub fn author(&self) -> Address {
        match self {
            Self::Proposal(proposal) => proposal.signed.author(),
            Self::Prepare(prepare) => prepare.author(),
            Self::Commit(commit) => commit.author(),
            Self::RoundChange(change) => change.signed.author(),
        }
    }
}

#[cfg(test)]
mod tests;
