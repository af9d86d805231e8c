//! From one round to the next.

use super::{Action, Guard, Machine, Phase, Record, Turn, checks};
use crate::wire::{KeyError, Message, Prepared, RoundChange, RoundChangePayload};
use niwaki_crypto::keccak256;
use niwaki_primitives::Address;
use niwaki_rules::BftProtocol;

impl Machine {
    /// Gives the current round up for a later one.
    pub(super) fn enter(&mut self, turn: &mut Turn<'_>, round: u32) -> Result<(), KeyError> {
        if round > super::MAX_ROUND {
            // There is no later one: this one goes on.
            self.height.round.is_timed = false;
            self.start_round_timer(turn);
            return Ok(());
        }
        self.move_to(turn, round);
        self.send_round_change(turn)?;
        self.take_later(turn)?;
        self.follow_others(turn)
    }

    /// Begins a round: nothing is signed for earlier ones any more.
    pub(super) fn move_to(&mut self, turn: &mut Turn<'_>, round: u32) {
        self.height.begin_round(round);
        let own = self.own();
        self.height.saw(own, round);
        let view = self.height.view();
        self.record(turn, Record::Round(view));
    }

    /// After a restart: goes on in the round in which the node was.
    pub(super) fn resume(&mut self, turn: &mut Turn<'_>, round: u32) -> Result<(), KeyError> {
        self.height.begin_round(round);
        let own = self.own();
        self.height.saw(own, round);
        if round > 0 {
            self.send_round_change(turn)?;
        }
        let prepared = self.ballots.certificate_to(round).cloned();
        if let Some(prepared) = prepared.filter(|prepared| prepared.round == round) {
            for prepare in prepared.prepares {
                let prepares = &mut self.height.round.prepares;
                prepares.insert(prepare.author(), prepare);
            }
            return self.accept(turn, prepared.candidate, prepared.proposal);
        }
        match round {
            0 => self.start_round(turn),
            _ => self.follow_others(turn),
        }
    }

    /// Says that this validator is in its round, with the last block that a quorum prepared before.
    pub(super) fn send_round_change(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        let (view, own) = (self.height.view(), self.own());
        let earlier = view.round.saturating_sub(1);
        let certificate = self.ballots.certificate_to(earlier).cloned();
        let protocol = self.settings.signer.form().protocol;
        let prepared = certificate.as_ref().and_then(|certificate| {
            let prepares = certificate.prepares.clone();
            let proposal = certificate.proposal.clone();
            let (candidate, round) = (&certificate.candidate, certificate.round);
            Some(Prepared {
                round,
                digest: candidate.digest(self.settings.digest, round),
                certificate: match protocol {
                    BftProtocol::Qbft => None,
                    BftProtocol::Ibft2 => Some((proposal?, prepares)),
                },
            })
        });
        let signer = &self.settings.signer;
        let signed = signer.round_change(RoundChangePayload { view, prepared })?;
        let shown = certificate.as_ref();
        let change = RoundChange {
            signed,
            block: shown.map(|certificate| certificate.candidate.block.clone()),
            access_list: shown.and_then(|certificate| certificate.candidate.access_list.clone()),
            prepares: match (protocol, certificate) {
                (BftProtocol::Qbft, Some(certificate)) => certificate.prepares,
                _ => Vec::new(),
            },
        };
        // Sent again, it is not said twice to those that connect.
        self.height
            .said
            .retain(|said| !matches!(**said, Message::RoundChange(_)));
        if self.say(turn, Message::RoundChange(Box::new(change.clone()))) {
            self.height.changes.insert(own, change);
        }
        self.set_resend(turn);
        Ok(())
    }

    pub(super) fn on_round_change(&mut self, turn: &mut Turn<'_>, change: RoundChange) {
        let (view, author) = (change.signed.payload.view, change.signed.author());
        if view.round < self.height.round.number || !self.is_newer(turn, author, &change) {
            return;
        }
        match checks::check_round_change(&self.height, &self.settings, &change) {
            Ok(()) => {
                self.height.changes.insert(author, change);
            }
            Err(reason) => turn.act(Action::Refused {
                author,
                view,
                reason,
            }),
        }
    }

    /// Whether a round change is for a later round than the last one of its author.
    fn is_newer(&mut self, turn: &mut Turn<'_>, author: Address, change: &RoundChange) -> bool {
        let Some(known) = self.height.changes.get(&author) else {
            return true;
        };
        let [last, new] = [known, change].map(|change| change.signed.payload.view.round);
        let hashes = [known, change].map(|change| keccak256(change.signed.bytes()));
        if last == new && hashes[0] != hashes[1] {
            let both = [known, change].map(|one| Message::RoundChange(Box::new(one.clone())));
            self.show_evidence(turn, both);
        }
        new > last
    }

    /// Goes where a quorum wants to go, or where more validators are than can be faulty; and proposes there if it is this one's turn.
    pub(super) fn follow_others(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        if matches!(self.height.phase, Phase::Idle | Phase::Committed) {
            return Ok(());
        }
        let validators = &self.height.head.validators;
        let (quorum, one_honest) = (validators.quorum(), validators.one_honest());
        let own = self.height.round.number;
        let wanted = self.height.wanted_round(quorum);
        let beyond = self.height.lowest_beyond(one_honest);
        let beyond = beyond.filter(|_| self.settings.guards.has(Guard::FollowAhead));
        let next = wanted.filter(|round| *round > own).or(beyond);
        if let Some(round) = next {
            return self.enter(turn, round);
        }
        if own > 0 && self.height.reached(own) >= quorum {
            self.start_round_timer(turn);
        }
        self.propose_if_due(turn)
    }
}
