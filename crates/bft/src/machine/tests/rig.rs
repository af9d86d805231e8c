//! One machine among four validators, and what the others sign.

use super::super::*;
use crate::wire::{
    CommitPayload, Form, Kind, PreparePayload, Prepared, Proposal, RoundChange, RoundChangePayload,
    Signed,
};
use niwaki_primitives::{B256, Block, Header, U256};
use niwaki_rules::{BftExtra, BftProtocol, BftRules, ValidatorSet};
use std::sync::Arc;

pub(super) const GENESIS_S: u64 = 1_000;
/// The first block is due.
pub(super) const DUE_MS: u64 = (GENESIS_S + 1) * 1_000;

pub(super) fn signer(protocol: BftProtocol, number: u64) -> Signer {
    let form = Form {
        protocol,
        has_access_list: false,
    };
    Signer::new(form, B256::from(U256::from(number + 1))).unwrap()
}

/// Four validators in the order in which they propose; the machine is one of them.
pub(super) struct Rig {
    pub(super) protocol: BftProtocol,
    pub(super) signers: Vec<Signer>,
    pub(super) head: Head,
    pub(super) machine: Machine,
    pub(super) now_ms: u64,
}

pub(super) fn settings(signer: &Signer) -> Settings {
    Settings {
        signer: signer.clone(),
        digest: DigestForm::OwnRound,
        max_round_timeout_ms: 60_000,
        guards: Guards::default(),
    }
}

impl Rig {
    /// The machine proposes in round `turn` of the first block.
    pub(super) fn new(protocol: BftProtocol, turn: usize) -> Self {
        Self::with(protocol, turn, Ballots::default(), |_| {})
    }

    pub(super) fn with(
        protocol: BftProtocol,
        turn: usize,
        ballots: Ballots,
        change: impl FnOnce(&mut BftRules),
    ) -> Self {
        let mut signers: Vec<Signer> = (0..4).map(|number| signer(protocol, number)).collect();
        signers.sort_by_key(Signer::address);
        let mut rules = BftRules::new(protocol);
        change(&mut rules);
        let head = Head {
            number: 0,
            hash: B256::repeat_byte(7),
            timestamp: GENESIS_S,
            coinbase: Address::ZERO,
            validators: ValidatorSet::new(signers.iter().map(Signer::address)),
            rules: Arc::new(rules),
        };
        let machine = Machine::new(settings(&signers[turn]), ballots, head.clone());
        let now_ms = DUE_MS;
        Self {
            protocol,
            signers,
            head,
            machine,
            now_ms,
        }
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.machine.step(self.now_ms, event, &mut actions).unwrap();
        actions
    }

    pub(super) fn message(&mut self, message: Message) -> Vec<Action> {
        self.step(Event::Message {
            message: Box::new(message),
            bytes: 1_000,
        })
    }

    /// Connected and level: it waits for the block time.
    pub(super) fn begin(&mut self) -> Vec<Action> {
        for number in 0..4 {
            let address = self.signers[number].address();
            self.step(Event::PeerUp(address));
        }
        self.step(Event::Level(true))
    }

    pub(super) fn time(&mut self, kind: TimerKind) -> Vec<Action> {
        let view = self.machine.view();
        self.step(Event::Timer(Timer { kind, view }))
    }

    /// Until round 0 has begun.
    pub(super) fn begin_round(&mut self) -> Vec<Action> {
        self.begin();
        self.time(TimerKind::Block)
    }

    /// A block by one of the validators, with a round in its header.
    pub(super) fn block(&self, by: usize, round: u32) -> Arc<Candidate> {
        let extra = BftExtra {
            vanity: B256::ZERO.0.into(),
            validators: self.head.validators.as_slice().to_vec(),
            round,
            ..BftExtra::default()
        };
        let header = Header {
            number: self.head.number + 1,
            parent_hash: self.head.hash,
            timestamp: self.head.timestamp + 1,
            beneficiary: self.signers[by].address(),
            extra_data: extra.encode(self.protocol),
            ..Header::default()
        };
        let block = Block {
            header,
            body: Default::default(),
        };
        Arc::new(Candidate::new(self.protocol, Arc::new(block), None).unwrap())
    }

    pub(super) fn view(&self, round: u32) -> View {
        let height = self.head.number + 1;
        View { height, round }
    }

    pub(super) fn propose(&self, by: usize, round: u32, candidate: &Candidate) -> Proposal {
        let digest = candidate.seal_hash(round);
        let signed = self.signers[by].proposal(self.view(round), &candidate.block, None, digest);
        Proposal {
            signed: signed.unwrap(),
            block: candidate.block.clone(),
            access_list: None,
            round_changes: Vec::new(),
            prepares: Vec::new(),
        }
    }

    pub(super) fn prepare(
        &self,
        by: usize,
        round: u32,
        candidate: &Candidate,
    ) -> Signed<PreparePayload> {
        let (view, digest) = (self.view(round), candidate.seal_hash(round));
        self.signers[by]
            .prepare(PreparePayload { view, digest })
            .unwrap()
    }

    pub(super) fn commit(&self, by: usize, round: u32, candidate: &Candidate) -> Message {
        let (view, digest) = (self.view(round), candidate.seal_hash(round));
        let seal = self.signers[by].seal(&digest).unwrap();
        let payload = CommitPayload { view, digest, seal };
        Message::Commit(self.signers[by].commit(payload).unwrap())
    }

    pub(super) fn bare_change(&self, by: usize, round: u32) -> RoundChange {
        let (view, prepared) = (self.view(round), None);
        let signed = self.signers[by].round_change(RoundChangePayload { view, prepared });
        RoundChange {
            signed: signed.unwrap(),
            block: None,
            access_list: None,
            prepares: Vec::new(),
        }
    }

    /// A round change with a block that these have prepared in an earlier round.
    pub(super) fn prepared_change(
        &self,
        by: usize,
        round: u32,
        candidate: &Candidate,
        prepared_by: &[usize],
    ) -> RoundChange {
        let earlier = candidate.header_round();
        let digest = candidate.seal_hash(earlier);
        let prepares = prepared_by.iter();
        let prepares: Vec<_> = prepares
            .map(|by| self.prepare(*by, earlier, candidate))
            .collect();
        let proposer = usize::try_from(earlier).unwrap();
        let is_qbft = self.protocol == BftProtocol::Qbft;
        let proposal = self.propose(proposer, earlier, candidate).signed;
        let prepared = Prepared {
            round: earlier,
            digest,
            certificate: (!is_qbft).then(|| (proposal, prepares.clone())),
        };
        let payload = RoundChangePayload {
            view: self.view(round),
            prepared: Some(prepared),
        };
        RoundChange {
            signed: self.signers[by].round_change(payload).unwrap(),
            block: Some(candidate.block.clone()),
            access_list: None,
            prepares: if is_qbft { prepares } else { Vec::new() },
        }
    }

    pub(super) fn judged(&mut self, candidate: &Candidate, verdict: Verdict) -> Vec<Action> {
        let hash = candidate.hash;
        self.step(Event::Judged { hash, verdict })
    }

    /// Until the machine has prepared the block of round 0, which is by validator 0.
    pub(super) fn until_prepared(&mut self) -> Arc<Candidate> {
        self.begin_round();
        let block = self.block(0, 0);
        let proposal = self.propose(0, 0, &block);
        self.message(Message::Proposal(Box::new(proposal)));
        self.judged(&block, Verdict::Valid);
        let own = self.machine.settings.signer.address();
        for by in 0..4 {
            let is_spared = self.protocol == BftProtocol::Ibft2 && by == 0;
            if self.signers[by].address() != own && !is_spared {
                let prepare = self.prepare(by, 0, &block);
                self.message(Message::Prepare(prepare));
            }
        }
        assert_eq!(self.machine.phase(), Phase::Prepared);
        block
    }
}

pub(super) const BOTH: [BftProtocol; 2] = [BftProtocol::Qbft, BftProtocol::Ibft2];

/// The kinds of what is sent to all.
pub(super) fn said(actions: &[Action]) -> Vec<Kind> {
    let sent = actions.iter().filter_map(|action| match action {
        Action::Send { to: None, message } => Some(message.kind()),
        _ => None,
    });
    sent.collect()
}

pub(super) fn message_of(actions: &[Action], kind: Kind) -> Option<Message> {
    actions.iter().find_map(|action| match action {
        Action::Send { message, .. } if message.kind() == kind => Some(Message::clone(message)),
        _ => None,
    })
}

pub(super) fn timer_of(actions: &[Action], kind: TimerKind) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Set { timer, at_ms } if timer.kind == kind => Some(*at_ms),
        _ => None,
    })
}

pub(super) fn refusal_of(actions: &[Action]) -> Option<&Refusal> {
    actions.iter().find_map(|action| match action {
        Action::Refused { reason, .. } => Some(reason),
        _ => None,
    })
}

pub(super) fn has(actions: &[Action], is_it: impl Fn(&Action) -> bool) -> bool {
    actions.iter().any(is_it)
}

pub(super) fn finished(actions: &[Action]) -> Option<&Header> {
    actions.iter().find_map(|action| match action {
        Action::Finish { header, .. } => Some(&**header),
        _ => None,
    })
}
