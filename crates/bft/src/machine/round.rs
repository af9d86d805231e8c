//! A round: proposal, prepares, commits.

use super::{
    Action, Candidate, Certificate, DigestForm, Guard, Machine, Phase, Record, Turn, Verdict,
    candidate, checks, height::Round,
};
use crate::wire::{
    CommitPayload, KeyError, Kind, Message, PreparePayload, Proposal, ProposalPayload, RoundChange,
    Signed, View,
};
use niwaki_primitives::{B256, Block, Bytes};
use niwaki_rules::{BftProtocol, recover_seal};
use std::collections::btree_map::Entry;
use std::sync::Arc;

impl Machine {
    /// Proposes if it is this validator's turn: what was prepared before, or a new block.
    pub(super) fn propose_if_due(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        let view = self.height.view();
        let is_due = self.height.phase == Phase::AwaitProposal
            && self.height.proposer(view.round) == Some(self.own())
            && self.height.round.asked_with.is_none()
            && self.ballots.vote(view, Kind::Proposal).is_none();
        if !is_due {
            return Ok(());
        }
        let changes: Vec<RoundChange> = match view.round {
            0 => Vec::new(),
            round => self.height.changes_to(round).cloned().collect(),
        };
        if view.round > 0 && changes.len() < self.quorum_of_changes() {
            return Ok(());
        }
        if let Some(candidate) = self.prepared_before(&changes) {
            return self.propose(turn, candidate, changes);
        }
        self.height.round.asked_with = Some(changes);
        let head = &self.height.head;
        let earliest = match head.rules.period_ms {
            Some(_) => head.timestamp,
            None => head.timestamp.saturating_add(head.rules.period_s),
        };
        let timestamp = earliest.max(turn.now_ms / 1_000);
        turn.act(Action::Build { view, timestamp });
        Ok(())
    }

    /// The block that was prepared in the latest round, of those that round changes have.
    fn prepared_before(&self, changes: &[RoundChange]) -> Option<Arc<Candidate>> {
        if !self.has(Guard::PreparedBlock) {
            return None;
        }
        let change = latest_prepared(changes)?;
        let (protocol, block) = (self.protocol(), change.block.clone()?);
        Candidate::new(protocol, block, change.access_list.clone())
            .ok()
            .map(Arc::new)
    }

    pub(super) fn on_built(
        &mut self,
        turn: &mut Turn<'_>,
        view: View,
        built: Option<(Arc<Block>, Option<Bytes>)>,
    ) -> Result<(), KeyError> {
        let is_awaited = view == self.height.view() && self.height.phase == Phase::AwaitProposal;
        let (Some(changes), Some((block, access_list)), true) =
            (self.height.round.asked_with.clone(), built, is_awaited)
        else {
            return Ok(());
        };
        let Ok(candidate) = Candidate::new(self.protocol(), block, access_list) else {
            return Ok(());
        };
        self.height.verdicts.insert(candidate.hash, Verdict::Valid);
        self.propose(turn, Arc::new(candidate), changes)
    }

    fn propose(
        &mut self,
        turn: &mut Turn<'_>,
        candidate: Arc<Candidate>,
        changes: Vec<RoundChange>,
    ) -> Result<(), KeyError> {
        let view = self.height.view();
        let candidate = candidate.with_round(match self.settings.digest {
            DigestForm::OwnRound => view.round,
            DigestForm::RoundZero => 0,
        });
        let digest = candidate.digest(self.settings.digest, view.round);
        let signer = &self.settings.signer;
        let access_list = candidate.access_list.clone();
        let signed = signer.proposal(view, &candidate.block, access_list.as_ref(), digest)?;
        let prepares = latest_prepared(&changes).map(|change| change.prepares.clone());
        let proposal = Proposal {
            signed: signed.clone(),
            block: Arc::clone(&candidate.block),
            access_list,
            round_changes: changes.into_iter().map(|change| change.signed).collect(),
            prepares: prepares.unwrap_or_default(),
        };
        if self.say(turn, Message::Proposal(Box::new(proposal))) {
            self.height.round.asked_with.get_or_insert_default();
            let signed = self.is_kept().then_some(signed);
            return self.accept(turn, candidate, signed);
        }
        Ok(())
    }

    pub(super) fn on_proposal(
        &mut self,
        turn: &mut Turn<'_>,
        proposal: Proposal,
    ) -> Result<(), KeyError> {
        let (view, own) = (proposal.signed.payload.view, self.height.view());
        let is_late = self.height.phase == Phase::Committed || view.round < own.round;
        if is_late || (view.round == own.round && self.height.round.candidate.is_some()) {
            return Ok(());
        }
        let author = proposal.signed.author();
        let candidate = match checks::check_proposal(&self.height, &self.settings, &proposal) {
            Ok(candidate) => candidate,
            Err(reason) => {
                turn.act(Action::Refused {
                    author,
                    view,
                    reason,
                });
                return Ok(());
            }
        };
        if view.round > own.round {
            self.move_to(turn, view.round);
        }
        if view.round == 0 {
            self.pace.saw_proposal(turn.now_ms);
        }
        let signed = self.is_kept().then_some(proposal.signed);
        self.accept(turn, candidate, signed)?;
        self.take_later(turn)
    }

    /// This is the block of the round.
    pub(super) fn accept(
        &mut self,
        turn: &mut Turn<'_>,
        candidate: Arc<Candidate>,
        signed: Option<Signed<ProposalPayload>>,
    ) -> Result<(), KeyError> {
        self.start_round_timer(turn);
        let known = self.height.verdicts.get(&candidate.hash).copied();
        let round = &mut self.height.round;
        round.candidate = Some(Arc::clone(&candidate));
        round.proposal = signed;
        self.height.phase = Phase::Validating;
        let early: Vec<_> = self.height.round.commits.values().cloned().collect();
        for commit in early {
            self.check_commit(&commit);
        }
        match known {
            Some(Verdict::Valid) => self.prepare(turn),
            Some(Verdict::Invalid) => Ok(()),
            _ if !self.has(Guard::Verdict) => self.prepare(turn),
            _ => {
                // It is made durable while the block is executed.
                if !self.is_spared() {
                    let digest = self.digest(&candidate);
                    self.may_say(turn, self.height.view(), Kind::Prepare, digest);
                }
                turn.act(Action::Judge(candidate));
                Ok(())
            }
        }
    }

    pub(super) fn on_judged(
        &mut self,
        turn: &mut Turn<'_>,
        hash: B256,
        verdict: Verdict,
    ) -> Result<(), KeyError> {
        if verdict != Verdict::Fault {
            self.height.verdicts.insert(hash, verdict);
        }
        let candidate = self.height.round.candidate.clone();
        let is_awaited = self.height.phase == Phase::Validating;
        let Some(candidate) = candidate.filter(|own| is_awaited && own.hash == hash) else {
            return self.advance(turn);
        };
        match verdict {
            Verdict::Valid => self.prepare(turn),
            Verdict::Invalid => Ok(()),
            Verdict::Fault => {
                turn.act(Action::Sync { to: None });
                if !std::mem::replace(&mut self.height.round.has_retried, true) {
                    turn.act(Action::Judge(candidate));
                }
                Ok(())
            }
        }
    }

    /// The block of the round is valid.
    fn prepare(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        self.height.phase = Phase::Accepted;
        let candidate = self.height.round.candidate.clone();
        if let Some(candidate) = candidate.filter(|_| !self.is_spared()) {
            let (view, digest) = (self.height.view(), self.digest(&candidate));
            let signer = &self.settings.signer;
            let prepare = signer.prepare(PreparePayload { view, digest })?;
            if self.say(turn, Message::Prepare(prepare.clone())) {
                let own = self.own();
                self.height.round.prepares.insert(own, prepare);
            }
        }
        self.advance(turn)
    }

    /// In IBFT 2.0 what the proposer signed shows with prepares that a block was prepared.
    fn is_kept(&self) -> bool {
        self.protocol() == BftProtocol::Ibft2
    }

    /// In IBFT 2.0 the proposal is its author's prepare.
    fn is_spared(&self) -> bool {
        self.protocol() == BftProtocol::Ibft2
            && self.height.proposer(self.height.round.number) == Some(self.own())
    }

    pub(super) fn on_prepare(&mut self, turn: &mut Turn<'_>, prepare: Signed<PreparePayload>) {
        let author = prepare.author();
        let view = prepare.payload.view;
        let is_proposers = self.height.proposer(view.round) == Some(author);
        let is_double = self.protocol() == BftProtocol::Ibft2 && is_proposers;
        if view.round < self.height.round.number || is_double {
            return;
        }
        match self.height.round.prepares.entry(author) {
            Entry::Vacant(entry) => {
                entry.insert(prepare);
            }
            Entry::Occupied(known) => {
                let known = known.get().clone();
                let digests = [known.payload.digest, prepare.payload.digest];
                let both = [Message::Prepare(known), Message::Prepare(prepare)];
                self.note_two(turn, digests, both);
            }
        }
    }

    pub(super) fn on_commit(&mut self, turn: &mut Turn<'_>, commit: Signed<CommitPayload>) {
        let Some(round) = self.height.round_mut(commit.payload.view.round) else {
            return;
        };
        match round.commits.entry(commit.author()) {
            Entry::Vacant(entry) => {
                entry.insert(commit.clone());
                self.check_commit(&commit);
            }
            Entry::Occupied(known) => {
                let known = known.get().clone();
                let digests = [known.payload.digest, commit.payload.digest];
                let both = [Message::Commit(known), Message::Commit(commit)];
                self.note_two(turn, digests, both);
            }
        }
    }

    /// Two votes of one kind in one round: if they are for two blocks, their author breaks the rules.
    fn note_two(&mut self, turn: &mut Turn<'_>, digests: [B256; 2], messages: [Message; 2]) {
        let number = messages[0].view().round;
        let Some(round) = self.height.round_mut(number) else {
            return;
        };
        let Some(candidate) = &round.candidate else {
            return;
        };
        let [one, other] = digests.map(|digest| candidate.is_named(&digest, number));
        if digests[0] != digests[1] && !(one && other) {
            self.show_evidence(turn, messages);
        }
    }

    /// The first evidence against a validator at this height.
    pub(super) fn show_evidence(&mut self, turn: &mut Turn<'_>, messages: [Message; 2]) {
        if self.height.liars.insert(messages[0].author()) {
            turn.act(Action::Evidence(Box::new(messages)));
        }
    }

    /// Takes the seal of a commit if the block is there and it is for this block.
    fn check_commit(&mut self, commit: &Signed<CommitPayload>) {
        let CommitPayload { view, digest, seal } = &commit.payload;
        let guards = self.settings.guards;
        let Some(round) = self.height.round_mut(view.round) else {
            return;
        };
        let Some(candidate) = &round.candidate else {
            return;
        };
        let is_named = candidate.is_named(digest, view.round) || !guards.has(Guard::Digest);
        let sealer = recover_seal(&candidate.seal_hash(view.round), seal);
        let is_sealed = sealer == Ok(commit.author()) || !guards.has(Guard::CommitSeal);
        if is_named && is_sealed {
            round.seals.insert(commit.author(), *seal);
        }
    }

    /// Goes as far as the votes of the round allow.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        let round = self.height.round.number;
        let quorum = self.height.head.validators.quorum();
        let Some(candidate) = self.height.round.candidate.clone() else {
            self.finish_if_committed(turn, quorum);
            self.ask_if_committed(turn, quorum);
            return Ok(());
        };
        if self.height.phase == Phase::Accepted {
            let prepares = self.height.round.prepares.values();
            let is_any = !self.has(Guard::Digest);
            let prepares = prepares
                .filter(|prepare| is_any || candidate.is_named(&prepare.payload.digest, round));
            let prepares: Vec<_> = prepares.cloned().collect();
            let needed = match self.protocol() {
                BftProtocol::Qbft => quorum,
                BftProtocol::Ibft2 => quorum.saturating_sub(1),
            };
            if prepares.len() >= needed || !self.has(Guard::CommitAfterPrepares) {
                self.commit(turn, &candidate, prepares)?;
            }
        }
        self.finish_if_committed(turn, quorum);
        Ok(())
    }

    /// A quorum has committed a valid block, in this round or in the one that was given up. Its seals are final in whatever round this
    /// validator is.
    fn finish_if_committed(&mut self, turn: &mut Turn<'_>, quorum: usize) {
        if matches!(self.height.phase, Phase::Idle | Phase::Committed) {
            return;
        }
        let needed = match self.has(Guard::CommitQuorum) {
            true => quorum,
            false => 1,
        };
        let is_done = |round: &&Round| {
            let candidate = round.candidate.as_ref();
            let verdict = candidate.and_then(|own| self.height.verdicts.get(&own.hash));
            let is_valid = verdict == Some(&Verdict::Valid) || !self.has(Guard::Verdict);
            is_valid && round.seals.len() >= needed
        };
        let rounds = [Some(&self.height.round), self.height.given_up.as_ref()];
        let Some(round) = rounds.into_iter().flatten().find(is_done) else {
            return;
        };
        let Some(candidate) = round.candidate.clone() else {
            return;
        };
        let seals = round.seals.values().copied().collect();
        let header = Box::new(candidate.sealed_header(round.number, seals));
        self.height.phase = Phase::Committed;
        turn.act(Action::Finish { candidate, header });
    }

    /// A quorum has prepared the block.
    fn commit(
        &mut self,
        turn: &mut Turn<'_>,
        candidate: &Arc<Candidate>,
        prepares: Vec<Signed<PreparePayload>>,
    ) -> Result<(), KeyError> {
        self.height.phase = Phase::Prepared;
        let (view, own) = (self.height.view(), self.own());
        let certificate = Certificate {
            round: view.round,
            candidate: Arc::clone(candidate),
            proposal: self.height.round.proposal.clone(),
            prepares,
        };
        let height = view.height;
        self.record(
            turn,
            Record::Certificate {
                height,
                certificate,
            },
        );
        let digest = self.digest(candidate);
        let signer = &self.settings.signer;
        let seal = signer.seal(&candidate.seal_hash(view.round))?;
        let commit = signer.commit(CommitPayload { view, digest, seal })?;
        if self.say(turn, Message::Commit(commit.clone())) {
            self.height.round.commits.insert(own, commit);
            self.height.round.seals.insert(own, seal);
        }
        Ok(())
    }

    /// A quorum has committed a block that this validator never saw.
    fn ask_if_committed(&mut self, turn: &mut Turn<'_>, quorum: usize) {
        let height = self.height.view().height;
        let is_missed =
            self.height.round.commits.len() >= quorum && self.height.round.asked_to < height;
        if is_missed {
            self.height.round.asked_to = height;
            turn.act(Action::Sync { to: Some(height) });
        }
    }

    /// Takes the votes of this round that came before it.
    pub(super) fn take_later(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        for (message, bytes) in self.later.take_view(self.height.view()) {
            self.on_message(turn, message, bytes)?;
        }
        Ok(())
    }

    /// Records a message and sends it to all, unless this validator has signed another one in its place.
    pub(super) fn say(&mut self, turn: &mut Turn<'_>, message: Message) -> bool {
        let digest = candidate::digest_of(self.protocol(), &message);
        let (view, kind) = (message.view(), message.kind());
        let may = digest.is_some_and(|digest| self.may_say(turn, view, kind, digest));
        if may {
            let message = Arc::new(message);
            self.height.said.push(Arc::clone(&message));
            turn.act(Action::Send { to: None, message });
        }
        may
    }

    /// Whether this may be signed; it is recorded if so.
    fn may_say(&mut self, turn: &mut Turn<'_>, view: View, kind: Kind, digest: B256) -> bool {
        let signed = self.ballots.vote(view, kind).copied();
        let is_other = signed.is_some_and(|signed| signed != digest);
        if is_other && self.has(Guard::OneVote) {
            return false;
        }
        let entered = self.ballots.round_at(view.height).unwrap_or_default();
        if view.round < entered && self.has(Guard::RoundsRise) {
            return false;
        }
        if signed != Some(digest) {
            self.record(turn, Record::Vote { view, kind, digest });
        }
        true
    }

    pub(super) fn record(&mut self, turn: &mut Turn<'_>, record: Record) {
        self.ballots.add(&record);
        turn.act(Action::Record(record));
    }

    fn digest(&self, candidate: &Candidate) -> B256 {
        candidate.digest(self.settings.digest, self.height.round.number)
    }

    fn quorum_of_changes(&self) -> usize {
        match self.has(Guard::RoundChangeQuorum) {
            true => self.height.head.validators.quorum(),
            false => 1,
        }
    }

    fn protocol(&self) -> BftProtocol {
        self.settings.signer.form().protocol
    }

    pub(super) fn has(&self, guard: Guard) -> bool {
        self.settings.guards.has(guard)
    }
}

/// That of some round changes whose block was prepared in the latest round.
fn latest_prepared(changes: &[RoundChange]) -> Option<&RoundChange> {
    let round = |change: &&RoundChange| {
        let prepared = change.signed.payload.prepared.as_ref();
        prepared.map(|prepared| prepared.round)
    };
    changes
        .iter()
        .filter(|change| round(change).is_some())
        .max_by_key(round)
}
