//! Validators that lie, together: they see all that is sent to one of them, and sign whatever may break a law.

use super::chain::INVALID_GAS;
use super::node::{SimNode, signer};
use super::scenario::Scenario;
use niwaki_bft::machine::{Candidate, DigestForm};
use niwaki_bft::wire::{
    CommitPayload, Message, PreparePayload, Prepared, Proposal, RoundChange, RoundChangePayload,
    Signed, Signer, View,
};
use niwaki_primitives::{B256, Block};
use niwaki_rules::{BftExtra, BftProtocol};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A message, and to whom it goes; `None`: to all.
type Lie = (Arc<Message>, Option<usize>);

/// Strangers whose keys the liars have too.
const STRANGERS: usize = 4;

pub(super) struct Liars {
    scenario: Scenario,
    strangers: Vec<Signer>,
    /// What was seen of the highest height.
    height: u64,
    /// The highest round of an honest validator.
    round: u32,
    changes: BTreeMap<(u32, niwaki_primitives::Address), RoundChange>,
    proposals: Vec<(u32, Arc<Candidate>)>,
}

impl Liars {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let strangers = (0..STRANGERS).map(|number| signer(900 + number, scenario));
        Self {
            strangers: strangers.collect(),
            height: 0,
            round: 0,
            changes: BTreeMap::new(),
            proposals: Vec::new(),
            scenario: scenario.clone(),
        }
    }

    /// One of them has got a message.
    pub(super) fn saw(&mut self, message: &Message) {
        let View { height, round } = message.view();
        if height > self.height {
            (self.height, self.round) = (height, 0);
            self.changes.clear();
            self.proposals.clear();
        }
        if height < self.height {
            return;
        }
        self.round = round.max(self.round);
        match message {
            Message::RoundChange(change) => {
                let key = (round, change.signed.author());
                self.changes.insert(key, RoundChange::clone(change));
            }
            Message::Proposal(proposal) => {
                let (block, list) = (proposal.block.clone(), proposal.access_list.clone());
                if let Ok(candidate) = Candidate::new(self.scenario.protocol, block, list) {
                    self.proposals.push((round, Arc::new(candidate)));
                }
            }
            _ => {}
        }
    }

    /// What one of them sends now.
    pub(super) fn lies(
        &mut self,
        liar: usize,
        nodes: &[SimNode],
        rng: &mut SmallRng,
        now_ms: u64,
    ) -> Vec<Lie> {
        let own = &nodes[liar];
        if self.height != own.chain.height() + 1 {
            return Vec::new();
        }
        let mut lying = Lying {
            liars: self,
            own,
            count: nodes.len(),
            rng,
            now_ms,
            made: Vec::new(),
        };
        let lies = match lying.rng.random_range(0..7) {
            0 => lying.two_proposals(),
            1 => lying.votes_for_all(),
            2 => lying.proposal_without_proof(),
            3 => lying.false_certificate(),
            4 => lying.bad_votes(),
            5 => lying.strange_votes(),
            _ => lying.many_rounds(),
        };
        // They vote for what they have proposed too.
        let made = lying.made;
        self.proposals.extend(made);
        lies
    }
}

/// One liar, at one time.
struct Lying<'a> {
    liars: &'a Liars,
    own: &'a SimNode,
    count: usize,
    rng: &'a mut SmallRng,
    now_ms: u64,
    /// Blocks that it has proposed, with their rounds.
    made: Vec<(u32, Arc<Candidate>)>,
}

impl Lying<'_> {
    fn protocol(&self) -> BftProtocol {
        self.liars.scenario.protocol
    }

    fn signer(&self) -> &Signer {
        &self.own.settings.signer
    }

    /// The current round, or one of the next ones.
    fn view(&mut self) -> View {
        View {
            height: self.liars.height,
            round: self.liars.round + self.rng.random_range(0..3),
        }
    }

    /// A block of its own, now and then one that breaks a rule, with a round in its header.
    fn block(&mut self, round: u32) -> Option<Arc<Candidate>> {
        let head = self.own.chain.head();
        let timestamp = (head.timestamp + 1).max(self.now_ms / 1_000);
        let vanity = self.rng.random();
        let mut block = self
            .own
            .chain
            .build(self.own.address(), timestamp, None, vanity);
        if self.rng.random_bool(0.2) {
            block.header.gas_used = INVALID_GAS;
        }
        self.with_round(block, round)
    }

    fn with_round(&self, mut block: Block, round: u32) -> Option<Arc<Candidate>> {
        let protocol = self.protocol();
        let mut extra = BftExtra::decode(protocol, &block.header.extra_data).ok()?;
        extra.round = match self.liars.scenario.digest {
            DigestForm::OwnRound => round,
            DigestForm::RoundZero => 0,
        };
        block.header.extra_data = extra.encode(protocol);
        Candidate::new(protocol, Arc::new(block), None)
            .ok()
            .map(Arc::new)
    }

    fn digest(&self, candidate: &Candidate, round: u32) -> B256 {
        candidate.digest(self.liars.scenario.digest, round)
    }

    fn proposal(
        &self,
        view: View,
        candidate: &Candidate,
        round_changes: Vec<Signed<RoundChangePayload>>,
        prepares: Vec<Signed<PreparePayload>>,
    ) -> Option<Arc<Message>> {
        let digest = self.digest(candidate, view.round);
        let signed = self
            .signer()
            .proposal(view, &candidate.block, None, digest)
            .ok()?;
        Some(Arc::new(Message::Proposal(Box::new(Proposal {
            signed,
            block: Arc::clone(&candidate.block),
            access_list: None,
            round_changes,
            prepares,
        }))))
    }

    /// Round changes that a proposal must show, as far as they were seen.
    fn seen_changes(&self, round: u32) -> Vec<RoundChange> {
        let seen = self.liars.changes.iter();
        let seen = seen.filter(|((own, _), _)| *own == round);
        seen.map(|(_, change)| change.clone()).collect()
    }

    /// One block for some, another one for the others.
    fn two_proposals(&mut self) -> Vec<Lie> {
        let view = View {
            height: self.liars.height,
            round: self.liars.round,
        };
        let shown = self.seen_changes(view.round);
        let shown: Vec<_> = shown.into_iter().map(|change| change.signed).collect();
        let blocks = [self.block(view.round), self.block(view.round)];
        let made = blocks.iter().flatten().cloned();
        self.made.extend(made.map(|block| (view.round, block)));
        let proposals = blocks.map(|block| {
            block.and_then(|block| self.proposal(view, &block, shown.clone(), Vec::new()))
        });
        let mut lies = Vec::new();
        let is_one = self.rng.random_bool(0.3);
        for to in 0..self.count {
            let chosen = match is_one || self.rng.random_bool(0.5) {
                true => proposals[0].clone(),
                false => proposals[1].clone(),
            };
            lies.extend(chosen.map(|proposal| (proposal, Some(to))));
        }
        lies
    }

    /// Prepares and commits for whatever was proposed, to some.
    fn votes_for_all(&mut self) -> Vec<Lie> {
        let mut lies = Vec::new();
        for (round, candidate) in &self.liars.proposals {
            for vote in self.votes(self.signer(), *round, candidate) {
                lies.push((vote, Some(self.rng.random_range(0..self.count))));
            }
        }
        lies
    }

    fn votes(&self, signer: &Signer, round: u32, candidate: &Candidate) -> Vec<Arc<Message>> {
        let height = self.liars.height;
        let (view, digest) = (View { height, round }, self.digest(candidate, round));
        let prepare = signer.prepare(PreparePayload { view, digest });
        let seal = signer.seal(&candidate.seal_hash(round));
        let commit = seal.and_then(|seal| signer.commit(CommitPayload { view, digest, seal }));
        let all = [prepare.map(Message::Prepare), commit.map(Message::Commit)];
        all.into_iter().flatten().map(Arc::new).collect()
    }

    /// A new block in a later round, or out of turn, with less than must be shown: the liar's own round change, several times or with those
    /// of strangers; or round changes of others, whatever they say was prepared.
    fn proposal_without_proof(&mut self) -> Vec<Lie> {
        let view = self.view();
        let Some(block) = self.block(view.round) else {
            return Vec::new();
        };
        self.made.push((view.round, Arc::clone(&block)));
        let bare = RoundChangePayload {
            view,
            prepared: None,
        };
        let own = self.signer().round_change(bare.clone()).ok();
        let shown: Vec<_> = match self.rng.random_range(0..4) {
            0 => own.into_iter().collect(),
            1 => own.into_iter().cycle().take(self.count).collect(),
            2 => {
                let strangers = self.liars.strangers.iter();
                let strange = strangers.flat_map(|signer| signer.round_change(bare.clone()));
                own.into_iter().chain(strange).collect()
            }
            _ => {
                let seen = self.seen_changes(view.round);
                let seen = seen.into_iter().map(|change| change.signed);
                seen.chain(own).collect()
            }
        };
        let proposal = self.proposal(view, &block, shown, Vec::new());
        proposal
            .into_iter()
            .map(|proposal| (proposal, None))
            .collect()
    }

    /// A round change that says a block was prepared which was not.
    fn false_certificate(&mut self) -> Vec<Lie> {
        let view = self.view();
        let Some(earlier) = view.round.checked_sub(1) else {
            return Vec::new();
        };
        let prepared = View {
            round: self.rng.random_range(0..=earlier),
            ..view
        };
        let Some(block) = self.block(prepared.round) else {
            return Vec::new();
        };
        let digest = self.digest(&block, prepared.round);
        let payload = PreparePayload {
            view: prepared,
            digest,
        };
        let own = self.signer().prepare(payload).ok();
        let prepares: Vec<_> = match self.rng.random_range(0..3) {
            0 => own.into_iter().collect(),
            1 => own.into_iter().cycle().take(self.count).collect(),
            _ => {
                let strangers = self.liars.strangers.iter();
                strangers
                    .flat_map(|signer| signer.prepare(payload))
                    .collect()
            }
        };
        let certificate = match self.protocol() {
            BftProtocol::Qbft => None,
            BftProtocol::Ibft2 => {
                let signed = self.signer().proposal(prepared, &block.block, None, digest);
                signed.ok().map(|signed| (signed, prepares.clone()))
            }
        };
        let prepared = Some(Prepared {
            round: prepared.round,
            digest,
            certificate,
        });
        let signed = self
            .signer()
            .round_change(RoundChangePayload { view, prepared });
        let Ok(signed) = signed else {
            return Vec::new();
        };
        let is_qbft = self.protocol() == BftProtocol::Qbft;
        let change = RoundChange {
            signed,
            block: Some(Arc::clone(&block.block)),
            access_list: None,
            prepares: if is_qbft { prepares } else { Vec::new() },
        };
        vec![(Arc::new(Message::RoundChange(Box::new(change))), None)]
    }

    /// Votes for another block than the proposed one, and commits with another one's seal.
    fn bad_votes(&mut self) -> Vec<Lie> {
        let height = self.liars.height;
        let mut lies = Vec::new();
        for (round, candidate) in self.liars.proposals.clone() {
            let Some(other) = self.block(round) else {
                continue;
            };
            let view = View { height, round };
            let digests = [&other, &candidate].map(|block| self.digest(block, round));
            let signer = self.signer();
            let prepare = signer.prepare(PreparePayload {
                view,
                digest: digests[0],
            });
            lies.extend(prepare.map(Message::Prepare));
            for (digest, sealed) in [(digests[0], &candidate), (digests[1], &other)] {
                let seal = signer.seal(&sealed.seal_hash(round));
                let commit = seal.map(|seal| CommitPayload { view, digest, seal });
                let commit = commit.and_then(|commit| signer.commit(commit));
                lies.extend(commit.map(Message::Commit));
            }
        }
        let all = lies.into_iter().map(Arc::new);
        all.map(|lie| (lie, Some(self.rng.random_range(0..self.count))))
            .collect()
    }

    /// Votes of strangers.
    fn strange_votes(&mut self) -> Vec<Lie> {
        let mut lies = Vec::new();
        for (round, candidate) in &self.liars.proposals {
            for stranger in &self.liars.strangers {
                lies.extend(self.votes(stranger, *round, candidate));
            }
        }
        lies.into_iter().map(|lie| (lie, None)).collect()
    }

    /// Round changes to rounds that are far away.
    fn many_rounds(&mut self) -> Vec<Lie> {
        let height = self.liars.height;
        let far = [1, 2, 3, 50, 999, 1_000, u32::MAX];
        let round = far.choose(self.rng).copied().unwrap_or(1);
        let view = View { height, round };
        let payload = RoundChangePayload {
            view,
            prepared: None,
        };
        let signed = self.signer().round_change(payload);
        let change = signed.map(|signed| RoundChange {
            signed,
            block: None,
            access_list: None,
            prepares: Vec::new(),
        });
        let change = change.map(|change| Message::RoundChange(Box::new(change)));
        change
            .into_iter()
            .map(|change| (Arc::new(change), None))
            .collect()
    }
}
