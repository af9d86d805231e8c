//! What is known of the current height.

use super::{Candidate, Head, Verdict};
use crate::wire::{
    CommitPayload, Message, PreparePayload, ProposalPayload, RoundChange, Signed, View,
};
use niwaki_primitives::{Address, B256};
use niwaki_rules::Seal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How far a validator is in its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes no part.
    Idle,
    /// The next block is not due yet.
    Waiting,
    /// There is no proposal yet.
    AwaitProposal,
    /// The proposed block is being executed.
    Validating,
    /// It is valid: prepares are gathered.
    Accepted,
    /// A quorum has prepared it: commits are gathered.
    Prepared,
    /// A quorum has committed it.
    Committed,
}

impl Phase {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::AwaitProposal => "await-proposal",
            Self::Validating => "validating",
            Self::Accepted => "accepted",
            Self::Prepared => "prepared",
            Self::Committed => "committed",
        }
    }
}

/// What is known of the block after the head.
#[derive(Debug)]
pub(super) struct Height {
    pub(super) head: Head,
    pub(super) phase: Phase,
    pub(super) round: Round,
    /// The last round before it that had a block: others may still commit that.
    pub(super) given_up: Option<Round>,
    /// By hash of the block.
    pub(super) verdicts: BTreeMap<B256, Verdict>,
    /// The last round change of each validator.
    pub(super) changes: BTreeMap<Address, RoundChange>,
    /// The last round in which each validator has signed anything.
    newest: BTreeMap<Address, u32>,
    /// What this validator has said in the current round.
    pub(super) said: Vec<Arc<Message>>,
    /// Those against whom there is evidence: once a height is enough.
    pub(super) liars: BTreeSet<Address>,
    /// The block time has passed, but there was no transaction.
    pub(super) is_empty_wait: bool,
}

/// What is known of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) candidate: Option<Arc<Candidate>>,
    /// In IBFT 2.0, what its proposer signed.
    pub(super) proposal: Option<Signed<ProposalPayload>>,
    pub(super) prepares: BTreeMap<Address, Signed<PreparePayload>>,
    pub(super) commits: BTreeMap<Address, Signed<CommitPayload>>,
    /// Those of the commits that are for the block and have been checked.
    pub(super) seals: BTreeMap<Address, Seal>,
    /// A block was asked for, with these round changes to be shown beside it.
    pub(super) asked_with: Option<Vec<RoundChange>>,
    /// Up to which block the others' were asked for: once, until the round change is sent again.
    pub(super) asked_to: u64,
    /// Its timer runs.
    pub(super) is_timed: bool,
    /// A block that this node could not execute has been tried again.
    pub(super) has_retried: bool,
}

impl Height {
    pub(super) fn new(head: Head) -> Self {
        Self {
            head,
            phase: Phase::Idle,
            round: Round::default(),
            given_up: None,
            verdicts: BTreeMap::new(),
            changes: BTreeMap::new(),
            newest: BTreeMap::new(),
            said: Vec::new(),
            liars: BTreeSet::new(),
            is_empty_wait: false,
        }
    }

    pub(super) fn view(&self) -> View {
        View {
            height: self.head.number.saturating_add(1),
            round: self.round.number,
        }
    }

    /// Gives the current round up.
    pub(super) fn begin_round(&mut self, number: u32) {
        let next = Round {
            number,
            ..Round::default()
        };
        let last = std::mem::replace(&mut self.round, next);
        if last.candidate.is_some() {
            self.given_up = Some(last);
        }
        self.said.clear();
        self.is_empty_wait = false;
        self.phase = Phase::AwaitProposal;
    }

    /// The current round, or the one that was given up with a block.
    pub(super) fn round_mut(&mut self, number: u32) -> Option<&mut Round> {
        match number == self.round.number {
            true => Some(&mut self.round),
            false => {
                let given_up = self.given_up.as_mut();
                given_up.filter(|round| round.number == number)
            }
        }
    }

    /// The validator that proposes in a round.
    pub(super) fn proposer(&self, round: u32) -> Option<Address> {
        let Head {
            rules,
            validators,
            coinbase,
            ..
        } = &self.head;
        rules.proposer(validators, coinbase, round)
    }

    /// A validator has signed something of a round.
    pub(super) fn saw(&mut self, validator: Address, round: u32) {
        let newest = self.newest.entry(validator).or_default();
        *newest = round.max(*newest);
    }

    /// How many validators are in a round or beyond.
    pub(super) fn reached(&self, round: u32) -> usize {
        let all = self.newest.values();
        all.filter(|newest| **newest >= round).count()
    }

    /// The lowest round beyond the current one in which a validator is, if so many are beyond it.
    pub(super) fn lowest_beyond(&self, validators: usize) -> Option<u32> {
        let beyond = self.newest.values();
        let beyond = beyond.filter(|newest| **newest > self.round.number);
        let count = beyond.clone().count();
        beyond.min().copied().filter(|_| count >= validators)
    }

    /// The round changes to a round.
    pub(super) fn changes_to(&self, round: u32) -> impl Iterator<Item = &RoundChange> {
        let all = self.changes.values();
        all.filter(move |change| change.signed.payload.view.round == round)
    }

    /// The highest round, at or beyond the current one, to which so many validators want to change.
    pub(super) fn wanted_round(&self, validators: usize) -> Option<u32> {
        let rounds = self.changes.values();
        let rounds = rounds.map(|change| change.signed.payload.view.round);
        rounds
            .filter(|round| *round >= self.round.number)
            .filter(|round| self.changes_to(*round).count() >= validators)
            .max()
    }
}
