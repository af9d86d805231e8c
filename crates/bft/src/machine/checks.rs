//! What a proposal and a round change must show.
//!
//! They are checked in the order of Besu; the first rule that is broken is the answer. What the block itself must be (its header after the
//! parent, its transactions, its state root) the execution says, once for each block.
//!
//! ```text
//! proposal, round 0     the block, by the proposer, without anything else
//! proposal, round r     a quorum of round changes to r; if one of them names a prepared block, the block of the latest round among these,
//!                       and in QBFT a quorum of its prepares
//! round change          in QBFT: round and digest, the block, a quorum of its prepares
//!                       in IBFT 2.0: the proposal that was signed and a quorum of prepares with it, in what is signed; the block
//! ```

use super::height::Height;
use super::{Candidate, Guard, Settings};
use crate::wire::{
    PreparePayload, Prepared, Proposal, ProposalPayload, RoundChange, RoundChangePayload, Signed,
    View,
};
use niwaki_primitives::{Address, B256};
use niwaki_rules::BftProtocol;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which rule a message breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another validator proposes in that round.
    #[error("not from the proposer of the round")]
    Proposer,
    /// The block is for another height or another parent.
    #[error("a block that does not follow the head")]
    Parent,
    /// Its extra data can't be read.
    #[error("{0}")]
    ExtraData(String),
    /// The header has another round than it may have.
    #[error("round {got} in the header of a block of round {round}")]
    HeaderRound {
        /// The round in the header.
        got: u32,
        /// The round of the message.
        round: u32,
    },
    /// What was signed names another block.
    #[error("a digest of another block")]
    Digest,
    /// A new block has another coinbase than its proposer.
    #[error("a new block whose coinbase is not its proposer")]
    Coinbase,
    /// Round 0 needs no proof, or a block is not shown as it must be.
    #[error("something is shown that is not asked for, or the other way round")]
    Shown,
    /// Too few round changes.
    #[error("{got} round changes, {expected} are needed")]
    RoundChanges {
        /// How many.
        got: usize,
        /// How many there must be.
        expected: usize,
    },
    /// Too few prepares.
    #[error("{got} prepares, {expected} are needed")]
    Prepares {
        /// How many.
        got: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The author of a part is no validator, or is that of two.
    #[error("a part by {0}, who is no validator or counts twice")]
    Author(Address),
    /// A part is of another height, round or block.
    #[error("a part that belongs to another round or block")]
    Part,
    /// A block was prepared, but another one is proposed.
    #[error("a block other than the one that was prepared")]
    Prepared,
}

/// What the latest of the prepared blocks is that round changes name.
pub(super) fn latest_prepared<'c>(
    changes: impl Iterator<Item = &'c Signed<RoundChangePayload>>,
) -> Option<&'c Prepared> {
    changes
        .filter_map(|change| change.payload.prepared.as_ref())
        .max_by_key(|prepared| prepared.round)
}

/// Checks a proposal for the current or a later round.
pub(super) fn check_proposal(
    height: &Height,
    settings: &Settings,
    proposal: &Proposal,
) -> Result<Arc<Candidate>, Refusal> {
    let checks = Checks::new(height, settings);
    let (view, author) = (proposal.signed.payload.view, proposal.signed.author());
    if checks.has(Guard::Proposer) && height.proposer(view.round) != Some(author) {
        return Err(Refusal::Proposer);
    }
    let access_list = proposal.access_list.clone();
    let candidate = Candidate::new(checks.protocol, proposal.block.clone(), access_list)
        .map_err(|error| Refusal::ExtraData(error.to_string()))?;
    checks.check_parent(&candidate)?;
    let (got, round) = (candidate.header_round(), view.round);
    let may_be_zero = checks.protocol == BftProtocol::Qbft;
    if got != round && !(got == 0 && may_be_zero) {
        return Err(Refusal::HeaderRound { got, round });
    }
    let digest = proposal.signed.payload.digest;
    if digest.is_some_and(|digest| digest != candidate.seal_hash(round)) {
        return Err(Refusal::Digest);
    }
    let prepared = match round {
        0 if proposal.round_changes.is_empty() => None,
        0 => return Err(Refusal::Shown),
        _ => checks.check_changes(view, &proposal.round_changes)?,
    };
    let is_by_author = candidate.block.header.beneficiary == author;
    match prepared {
        Some(_) if !checks.has(Guard::PreparedBlock) => {}
        Some(prepared) => checks.check_reproposed(&candidate, proposal, prepared)?,
        None if !proposal.prepares.is_empty() => return Err(Refusal::Shown),
        None if !is_by_author => return Err(Refusal::Coinbase),
        None => {}
    }
    Ok(Arc::new(candidate))
}

/// Checks a round change to the current or a later round.
pub(super) fn check_round_change(
    height: &Height,
    settings: &Settings,
    change: &RoundChange,
) -> Result<(), Refusal> {
    let checks = Checks::new(height, settings);
    let RoundChangePayload { view, prepared } = &change.signed.payload;
    if view.round == 0 {
        return Err(Refusal::Part);
    }
    let (Some(prepared), Some(block)) = (prepared, &change.block) else {
        let is_bare = prepared.is_none() && change.block.is_none() && change.prepares.is_empty();
        return is_bare.then_some(()).ok_or(Refusal::Shown);
    };
    checks.check_prepared(*view, prepared)?;
    let candidate = Candidate::new(checks.protocol, block.clone(), None)
        .map_err(|error| Refusal::ExtraData(error.to_string()))?;
    checks.check_parent(&candidate)?;
    if !candidate.is_named(&prepared.digest, prepared.round) {
        return Err(Refusal::Digest);
    }
    match checks.protocol {
        BftProtocol::Qbft => checks.check_prepares(&candidate, prepared.round, &change.prepares),
        BftProtocol::Ibft2 => Ok(()),
    }
}

struct Checks<'a> {
    height: &'a Height,
    settings: &'a Settings,
    protocol: BftProtocol,
}

impl<'a> Checks<'a> {
    fn new(height: &'a Height, settings: &'a Settings) -> Self {
        Self {
            height,
            settings,
            protocol: settings.signer.form().protocol,
        }
    }

    fn has(&self, guard: Guard) -> bool {
        self.settings.guards.has(guard)
    }

    fn check_parent(&self, candidate: &Candidate) -> Result<(), Refusal> {
        let (header, head) = (&candidate.block.header, &self.height.head);
        let is_next = header.number == self.height.view().height;
        match is_next && header.parent_hash == head.hash {
            true => Ok(()),
            false => Err(Refusal::Parent),
        }
    }

    /// Checks the round changes of a proposal, and gives what was prepared last.
    fn check_changes<'c>(
        &self,
        view: View,
        changes: &'c [Signed<RoundChangePayload>],
    ) -> Result<Option<&'c Prepared>, Refusal> {
        self.check_authors(changes.iter().map(Signed::author))?;
        for change in changes {
            if change.payload.view != view {
                return Err(Refusal::Part);
            }
            if let Some(prepared) = &change.payload.prepared {
                self.check_prepared(view, prepared)?;
            }
        }
        let (got, expected) = (changes.len(), self.height.head.validators.quorum());
        if got < expected && self.has(Guard::RoundChangeQuorum) {
            return Err(Refusal::RoundChanges { got, expected });
        }
        Ok(latest_prepared(changes.iter()))
    }

    /// Checks what a round change says was prepared; in IBFT 2.0 it shows it.
    fn check_prepared(&self, view: View, prepared: &Prepared) -> Result<(), Refusal> {
        if prepared.round >= view.round {
            return Err(Refusal::Part);
        }
        match (self.protocol, &prepared.certificate) {
            (BftProtocol::Qbft, None) => Ok(()),
            (BftProtocol::Ibft2, Some((proposal, prepares))) => {
                self.check_certificate(view, proposal, prepares)
            }
            _ => Err(Refusal::Shown),
        }
    }

    /// IBFT 2.0: a proposal, and the prepares of all others of a quorum.
    fn check_certificate(
        &self,
        view: View,
        proposal: &Signed<ProposalPayload>,
        prepares: &[Signed<PreparePayload>],
    ) -> Result<(), Refusal> {
        let prepared = proposal.payload.view;
        let (author, digest) = (proposal.author(), proposal.payload.digest);
        if prepared.height != view.height {
            return Err(Refusal::Part);
        }
        if self.height.proposer(prepared.round) != Some(author) {
            return Err(Refusal::Proposer);
        }
        let is_named = |got: &B256| Some(*got) == digest;
        self.check_votes(prepared, prepares, is_named)?;
        if prepares.iter().any(|prepare| prepare.author() == author) {
            return Err(Refusal::Author(author));
        }
        let quorum = self.height.head.validators.quorum();
        self.check_count(prepares.len(), quorum.saturating_sub(1))
    }

    /// A block that is proposed again is the one that was prepared last, as the round changes say.
    fn check_reproposed(
        &self,
        candidate: &Candidate,
        proposal: &Proposal,
        prepared: &Prepared,
    ) -> Result<(), Refusal> {
        let named = proposal.round_changes.iter();
        let named = named.filter_map(|change| change.payload.prepared.as_ref());
        let mut latest = named.filter(|named| named.round == prepared.round);
        if !latest.all(|named| candidate.is_named(&named.digest, named.round)) {
            return Err(Refusal::Prepared);
        }
        match self.protocol {
            BftProtocol::Qbft => self.check_prepares(candidate, prepared.round, &proposal.prepares),
            BftProtocol::Ibft2 => Ok(()),
        }
    }

    /// A quorum of prepares of a block in a round.
    fn check_prepares(
        &self,
        candidate: &Candidate,
        round: u32,
        prepares: &[Signed<PreparePayload>],
    ) -> Result<(), Refusal> {
        let height = self.height.view().height;
        let view = View { height, round };
        self.check_votes(view, prepares, |digest| candidate.is_named(digest, round))?;
        let quorum = self.height.head.validators.quorum();
        self.check_count(prepares.len(), quorum)
    }

    fn check_votes(
        &self,
        view: View,
        prepares: &[Signed<PreparePayload>],
        is_named: impl Fn(&B256) -> bool,
    ) -> Result<(), Refusal> {
        self.check_authors(prepares.iter().map(Signed::author))?;
        let mut payloads = prepares.iter().map(|prepare| &prepare.payload);
        match payloads.all(|payload| payload.view == view && is_named(&payload.digest)) {
            true => Ok(()),
            false => Err(Refusal::Part),
        }
    }

    fn check_count(&self, got: usize, expected: usize) -> Result<(), Refusal> {
        match got >= expected || !self.has(Guard::PrepareQuorum) {
            true => Ok(()),
            false => Err(Refusal::Prepares { got, expected }),
        }
    }

    /// All are validators, and each is there once.
    fn check_authors(&self, authors: impl Iterator<Item = Address>) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        for author in authors {
            let is_validator = self.height.head.validators.contains(&author);
            let is_twice = !seen.insert(author) && self.has(Guard::DistinctAuthors);
            if is_twice || (!is_validator && self.has(Guard::Validators)) {
                return Err(Refusal::Author(author));
            }
        }
        Ok(())
    }
}
