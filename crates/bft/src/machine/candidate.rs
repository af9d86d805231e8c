//! A block that validators agree on, and its digests.
//!
//! ```text
//! hash of the block   extra data without round and seals       the same in each round
//! seal hash           extra data with the round, without seals what a seal signs
//! digest              one of the two: how prepares and commits name the block
//! ```
//!
//! Besu from 24.12 on writes the round of a proposal into its header and signs the seal hash as the digest; GoQuorum leaves round 0 in
//! the header and signs the hash of the block. Both name the same content, and the round stands beside the digest, so both are taken from
//! others; which one this validator writes is a setting of the network.

use crate::wire::{Message, PreparePayload, ProposalPayload, Signed};
use niwaki_crypto::keccak256;
use niwaki_primitives::{B256, Block, Bytes, Header};
use niwaki_rules::{BftExtra, BftExtraError, BftProtocol, Seal, bft_block_hash, bft_seal_hash};
use std::sync::Arc;

/// How a block is named in prepares and commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DigestForm {
    /// By what seals of the round sign: Besu.
    #[default]
    OwnRound,
    /// By its hash: GoQuorum. IBFT 2.0 does not know it.
    RoundZero,
}

/// A block without seals, and how it is named.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The block. The round in its header is that in which it was proposed, or 0.
    pub block: Arc<Block>,
    /// The RLP of its access list.
    pub access_list: Option<Bytes>,
    /// Its hash.
    pub hash: B256,
    protocol: BftProtocol,
    extra: BftExtra,
}

impl Candidate {
    /// A block whose header has the extra data of the protocol.
    ///
    /// # Errors
    /// [`BftExtraError`] if it has not.
    pub fn new(
        protocol: BftProtocol,
        block: Arc<Block>,
        access_list: Option<Bytes>,
    ) -> Result<Self, BftExtraError> {
        Ok(Self {
            hash: bft_block_hash(protocol, &block.header)?,
            extra: BftExtra::decode(protocol, &block.header.extra_data)?,
            block,
            access_list,
            protocol,
        })
    }

    /// Whose extra data its header has.
    pub fn protocol(&self) -> BftProtocol {
        self.protocol
    }

    /// The round in its header.
    pub fn header_round(&self) -> u32 {
        self.extra.round
    }

    /// What a seal of a round signs.
    pub fn seal_hash(&self, round: u32) -> B256 {
        let extra = BftExtra {
            round,
            ..self.extra.clone()
        };
        bft_seal_hash(self.protocol, &self.block.header, &extra)
    }

    /// Its name in a round.
    pub fn digest(&self, form: DigestForm, round: u32) -> B256 {
        match (self.protocol, form) {
            (BftProtocol::Qbft, DigestForm::RoundZero) => self.hash,
            _ => self.seal_hash(round),
        }
    }

    /// Whether others may name it so in a round.
    pub fn is_named(&self, digest: &B256, round: u32) -> bool {
        let is_hash = self.protocol == BftProtocol::Qbft && *digest == self.hash;
        is_hash || *digest == self.seal_hash(round)
    }

    /// The same block with another round in its header.
    pub(super) fn with_round(self: &Arc<Self>, round: u32) -> Arc<Self> {
        if self.extra.round == round {
            return Arc::clone(self);
        }
        let extra = BftExtra {
            round,
            ..self.extra.clone()
        };
        let mut block = Block::clone(&self.block);
        block.header.extra_data = extra.encode(self.protocol);
        Arc::new(Self {
            block: Arc::new(block),
            access_list: self.access_list.clone(),
            hash: self.hash,
            protocol: self.protocol,
            extra,
        })
    }

    /// The header of the block as validators finished it.
    pub fn sealed_header(&self, round: u32, seals: Vec<Seal>) -> Header {
        let extra = BftExtra {
            round,
            seals,
            ..self.extra.clone()
        };
        Header {
            extra_data: extra.encode(self.protocol),
            ..self.block.header.clone()
        }
    }
}

/// A block that a quorum has prepared, and what shows it.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The round in which it did.
    pub round: u32,
    /// The block.
    pub candidate: Arc<Candidate>,
    /// In IBFT 2.0 what the proposer signed: it stands for its prepare.
    pub proposal: Option<Signed<ProposalPayload>>,
    /// The prepares.
    pub prepares: Vec<Signed<PreparePayload>>,
}

/// By what a message is compared with another one of its author, height, round and kind. `None` if the block of a proposal is malformed.
pub(super) fn digest_of(protocol: BftProtocol, message: &Message) -> Option<B256> {
    Some(match message {
        Message::Prepare(prepare) => prepare.payload.digest,
        Message::Commit(commit) => commit.payload.digest,
        Message::RoundChange(change) => keccak256(change.signed.bytes()),
        Message::Proposal(proposal) => {
            let header = &proposal.block.header;
            match proposal.signed.payload.digest {
                Some(digest) => digest,
                None => bft_block_hash(protocol, header).ok()?,
            }
        }
    })
}
