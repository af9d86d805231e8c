//! What must hold in every run, seen from outside.

use super::chain::SimChain;
use niwaki_bft::machine::{Certificate, Head, Record};
use niwaki_bft::wire::{Kind, Message, Proposal, View};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256, Header};
use niwaki_rules::{BftProtocol, ValidatorSet};
use std::collections::{BTreeMap, BTreeSet};

/// What honest validators have done so far.
#[derive(Debug, Default)]
pub(super) struct Laws {
    decided: BTreeMap<u64, B256>,
    signed: BTreeMap<(Address, View, Kind), B256>,
    /// The last view in which a validator has signed.
    last: BTreeMap<Address, View>,
}

impl Laws {
    /// Blocks that honest nodes have finished.
    pub(super) fn decided(&self) -> u64 {
        self.decided.len() as u64
    }

    /// An honest node has finished a block.
    pub(super) fn finished(
        &mut self,
        chain: &SimChain,
        header: &Header,
        parent: &Head,
        round: u32,
    ) -> Result<(), String> {
        let (number, hash) = (header.number, chain.hash(header));
        let known = *self.decided.entry(number).or_insert(hash);
        if known != hash {
            return Err(format!("two blocks at height {number}: {known} and {hash}"));
        }
        let coinbase = Some(header.beneficiary);
        let mut rounds = 0..=round;
        let Head {
            rules,
            validators,
            coinbase: last,
            ..
        } = parent;
        match rounds.any(|round| rules.proposer(validators, last, round) == coinbase) {
            true => Ok(()),
            false => Err(format!(
                "block {number} by {}, who proposes in no round up to {round}",
                header.beneficiary
            )),
        }
    }

    /// A message of an honest validator leaves its node, whose durable records these are.
    pub(super) fn sent(
        &mut self,
        message: &Message,
        journal: &[Record],
        validators: &ValidatorSet,
    ) -> Result<(), String> {
        let (view, kind, author) = (message.view(), message.kind(), message.author());
        let digest = digest(message);
        let known = *self.signed.entry((author, view, kind)).or_insert(digest);
        if known != digest {
            return Err(format!("{author} signed two of {kind:?} at {view:?}"));
        }
        let last = self.last.entry(author).or_insert(view);
        if view.height == last.height && view.round < last.round {
            return Err(format!(
                "{author} signed {kind:?} at {view:?} after {last:?}"
            ));
        }
        *last = view.max(*last);
        let is_recorded = journal.iter().any(|record| {
            matches!(record, Record::Vote { view: at, kind: of, .. } if (*at, *of) == (view, kind))
        });
        if !is_recorded {
            return Err(format!("{kind:?} at {view:?} left before its record"));
        }
        if kind == Kind::Commit && !has_certificate(journal, view) {
            return Err(format!("commit at {view:?} without a durable certificate"));
        }
        match message {
            Message::Proposal(proposal) => check_justified(proposal, validators),
            _ => Ok(()),
        }
    }

    /// An honest validator records that a block is prepared.
    pub(super) fn prepared(
        certificate: &Certificate,
        protocol: BftProtocol,
        validators: &ValidatorSet,
    ) -> Result<(), String> {
        let Certificate {
            round,
            candidate,
            prepares,
            ..
        } = certificate;
        let named = prepares.iter();
        let named = named.filter(|prepare| candidate.is_named(&prepare.payload.digest, *round));
        let authors = distinct(named.map(|prepare| prepare.author()), validators);
        let needed = match protocol {
            BftProtocol::Qbft => validators.quorum(),
            BftProtocol::Ibft2 => validators.quorum() - 1,
        };
        match authors >= needed && prepares.len() == authors {
            true => Ok(()),
            false => Err(format!("certificate with {authors} prepares of {needed}")),
        }
    }
}

fn has_certificate(journal: &[Record], view: View) -> bool {
    journal.iter().any(|record| match record {
        Record::Certificate {
            height,
            certificate,
        } => (*height, certificate.round) == (view.height, view.round),
        _ => false,
    })
}

/// Distinct validators among these.
fn distinct(authors: impl Iterator<Item = Address>, validators: &ValidatorSet) -> usize {
    let authors: BTreeSet<Address> = authors.filter(|one| validators.contains(one)).collect();
    authors.len()
}

/// An honest proposal after round 0 shows a quorum of round changes, and what they say was prepared.
fn check_justified(proposal: &Proposal, validators: &ValidatorSet) -> Result<(), String> {
    let view = proposal.signed.payload.view;
    if view.round == 0 {
        return Ok(());
    }
    let changes = &proposal.round_changes;
    let authors = distinct(changes.iter().map(|change| change.author()), validators);
    if authors < validators.quorum() {
        return Err(format!("proposal at {view:?} with {authors} round changes"));
    }
    let prepared = changes.iter();
    let prepared = prepared.filter_map(|change| change.payload.prepared.as_ref());
    let Some(best) = prepared.max_by_key(|prepared| prepared.round) else {
        return Ok(());
    };
    let (prepares, needed) = match &best.certificate {
        Some((_, prepares)) => (prepares, validators.quorum() - 1),
        None => (&proposal.prepares, validators.quorum()),
    };
    let authors = distinct(prepares.iter().map(|prepare| prepare.author()), validators);
    match authors >= needed {
        true => Ok(()),
        false => Err(format!(
            "prepared block at {view:?} with {authors} prepares"
        )),
    }
}

/// What tells two messages apart.
fn digest(message: &Message) -> B256 {
    match message {
        Message::Prepare(prepare) => prepare.payload.digest,
        Message::Commit(commit) => commit.payload.digest,
        Message::RoundChange(change) => keccak256(change.signed.bytes()),
        Message::Proposal(proposal) => keccak256(proposal.signed.bytes()),
    }
}
