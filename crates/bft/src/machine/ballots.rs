//! What this validator has signed, so that it never signs twice.
//!
//! Two different prepares or commits of one validator in one round can lead to two blocks at one height. So each vote is recorded, and the
//! record is durable before the vote leaves the node; a node that starts again reads them and signs nothing else where it has signed.
//!
//! Votes for heights that are decided are forgotten.

use super::Certificate;
use crate::wire::{Kind, View};
use niwaki_primitives::B256;
use std::collections::BTreeMap;

/// What is made durable before what follows it leaves the node.
#[derive(Clone, Debug)]
pub enum Record {
    /// A round was entered: nothing is signed below it any more.
    Round(View),
    /// A vote.
    Vote {
        /// Where.
        view: View,
        /// Which.
        kind: Kind,
        /// For what.
        digest: B256,
    },
    /// A quorum has prepared a block at this height.
    Certificate {
        /// The height.
        height: u64,
        /// The block and its prepares.
        certificate: Certificate,
    },
}

impl Record {
    /// The height that it is of.
    pub fn height(&self) -> u64 {
        match self {
            Self::Round(view) | Self::Vote { view, .. } => view.height,
            Self::Certificate { height, .. } => *height,
        }
    }
}

/// A node that has lost its records signs nothing at so many heights, from the first one on that is next when it is level with the others. It
/// may have been one of few that had a block which the others have not, and have signed at the next height; and it is level if it is two blocks
/// behind.
const UNKNOWN_HEIGHTS: u64 = 4;

/// The votes at one height.
#[derive(Clone, Debug, Default)]
pub struct Ballots {
    height: u64,
    round: u32,
    votes: BTreeMap<(u32, Kind), B256>,
    /// By round, the two last ones.
    certificates: Vec<Certificate>,
    /// What was signed up to this height is not known.
    unknown_to: Option<u64>,
    /// The records are lost: how far is not known either.
    is_lost: bool,
}

impl Ballots {
    /// Those of a node whose records are lost. It signs nothing until the chain has passed four heights from the one on that follows when it
    /// is level with the others; but at once if that is the first one, as in a new network, or if it is no validator then.
    pub fn unknown() -> Self {
        Self {
            is_lost: true,
            ..Self::default()
        }
    }

    /// The node is level with the others, and this height is next. One that is no validator there has not signed. Returns whether a node
    /// without records knows all that it has signed from now on, which is nothing yet.
    pub(super) fn reach(&mut self, height: u64, is_validator: bool) -> bool {
        let was_lost = std::mem::take(&mut self.is_lost);
        if was_lost && is_validator && height > 1 {
            let last = height.saturating_add(UNKNOWN_HEIGHTS - 1);
            self.unknown_to = self.unknown_to.max(Some(last));
        }
        was_lost && self.unknown_to.is_none()
    }

    /// Whether the records are lost, and the node has not been level with the others since.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Up to where it signs nothing, as it does not know what it has signed.
    pub fn unknown_to(&self) -> Option<u64> {
        self.unknown_to
    }

    /// Adds what was recorded, in its order.
    pub fn add(&mut self, record: &Record) {
        if record.height() < self.height {
            return;
        }
        self.forget_below(record.height());
        match record {
            Record::Round(view) => self.round = self.round.max(view.round),
            Record::Vote { view, kind, digest } => {
                self.votes.insert((view.round, *kind), *digest);
                self.round = self.round.max(view.round);
            }
            Record::Certificate { certificate, .. } => {
                // One that is gathered again after a restart is the same.
                let is_new = |last: &Certificate| last.round < certificate.round;
                if self.certificates.last().is_none_or(is_new) {
                    let kept = self.certificates.len().min(1);
                    self.certificates.drain(..self.certificates.len() - kept);
                    self.certificates.push(certificate.clone());
                }
            }
        }
    }

    /// Forgets what was signed below a height.
    pub fn forget_below(&mut self, height: u64) {
        if height > self.height {
            *self = Self {
                height,
                unknown_to: self.unknown_to.filter(|to| *to >= height),
                is_lost: self.is_lost,
                ..Self::default()
            };
        }
    }

    /// Whether it may sign at a height: it knows what it has signed there, and has signed nothing above.
    pub(super) fn may_take_part(&self, height: u64) -> bool {
        let is_known = !self.is_lost && self.unknown_to.is_none_or(|to| height > to);
        height >= self.height && is_known
    }

    /// The last round that was entered at a height.
    pub(crate) fn round_at(&self, height: u64) -> Option<u32> {
        let has_signed = !self.votes.is_empty() || self.round > 0;
        (height == self.height && has_signed).then_some(self.round)
    }

    /// What was voted for.
    pub(super) fn vote(&self, view: View, kind: Kind) -> Option<&B256> {
        let is_here = view.height == self.height;
        self.votes.get(&(view.round, kind)).filter(|_| is_here)
    }

    /// The last certificate of a round at or below this one.
    pub(super) fn certificate_to(&self, round: u32) -> Option<&Certificate> {
        let mut latest_first = self.certificates.iter().rev();
        latest_first.find(|certificate| certificate.round <= round)
    }

    /// A message that has this node's signature: whether it did not make it. While it does not know, it takes it for its own, and signs
    /// nothing up to there.
    pub(super) fn is_strange(&mut self, view: View, kind: Kind, digest: &B256) -> bool {
        if self.is_lost || self.unknown_to.is_some() {
            self.unknown_to = self.unknown_to.max(Some(view.height));
            return false;
        }
        match view.height < self.height {
            true => false,
            false => self.vote(view, kind) != Some(digest),
        }
    }
}
