//! How a validator agrees with the others on the next block: a state machine.
//!
//! [`Machine::step`] takes what happened and when, and says what is to be done. There is no clock, no IO and no randomness in here, and all
//! maps are ordered: the same events lead to the same actions. So a simulator can try what networks do to it, crashes among it, with the
//! code that a validator runs.
//!
//! ```text
//! Waiting --block timer--> AwaitProposal --proposal--> Validating --valid--> Accepted --q prepares--> Prepared --q commits--> Committed
//!                              ^                                                                                                |
//!                              +------------- round timer, or round changes of others: the next round --------------------------+
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `events` | what comes in and what goes out |
//! | `candidate` | a block that is agreed on, and its digests |
//! | `height` | what is known of the current height |
//! | `round` | proposals, prepares, commits |
//! | `change` | from one round to the next |
//! | `checks` | what a proposal and a round change must show |
//! | `timers` | how long a round lasts, when a block is due |
//! | `later` | messages that came too early |
//! | `ballots` | what this validator has signed, so that it never signs twice |
//! | `guards` | rules that the simulator takes out, one at a time, to see that each is needed |
//!
//! What must hold, whatever the others do, as long as at most a third is faulty: one block at each height; never two digests signed for one
//! height, round and kind of message; each signature is recorded before it is sent.
//!
//! Only validators count: a message of another node is dropped. Actions are carried out in their order: what follows a
//! [`Action::Record`] leaves the node once that record is durable.
//!
//! Spec: EEA QBFT specification and its Dafny text; IBFT 2.0 (arXiv:1909.10194), Besu's encodings and order.

mod ballots;
mod candidate;
mod change;
mod checks;
mod events;
mod guards;
mod height;
mod later;
mod round;
mod timers;

use crate::wire::{Form, KeyError, Message, Signer, View};
pub use ballots::{Ballots, Record};
pub use candidate::{Candidate, Certificate, DigestForm};
pub use checks::Refusal;
pub use events::{Action, Event, Head, Timer, TimerKind, Verdict};
pub use guards::{Guard, Guards};
use height::Height;
pub use height::Phase;
use later::Later;
use niwaki_primitives::Address;
use std::collections::{BTreeMap, BTreeSet};
use timers::Pace;

/// No round beyond this one is entered or taken from others, as in Besu.
pub const MAX_ROUND: u32 = 1_000;

/// What does not change while a machine lives.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Signs for this validator, in the form of the network.
    pub signer: Signer,
    /// How blocks are named in what it signs.
    pub digest: DigestForm,
    /// The longest timeout of a round, milliseconds.
    pub max_round_timeout_ms: u64,
    /// All, but in the simulator.
    pub guards: Guards,
}

/// A validator, from one event to the next.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    ballots: Ballots,
    height: Height,
    later: Later,
    pace: Pace,
    connected: BTreeSet<Address>,
    /// The last height at which a validator was heard.
    heard: BTreeMap<Address, u64>,
    is_level: bool,
    has_work: bool,
    is_stopped: bool,
}

/// One step: its time, and what it has led to.
struct Turn<'a> {
    now_ms: u64,
    actions: &'a mut Vec<Action>,
}

impl Turn<'_> {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }
}

impl Machine {
    /// A validator whose chain ends at `head`, and which has signed what is in `ballots`. It does nothing until it is told that it is level
    /// with the others ([`Event::Level`]).
    pub fn new(settings: Settings, ballots: Ballots, head: Head) -> Self {
        let height = Height::new(head);
        Self {
            settings,
            ballots,
            later: Later::new(height.view().height),
            height,
            pace: Pace::default(),
            connected: BTreeSet::new(),
            heard: BTreeMap::new(),
            is_level: false,
            has_work: false,
            is_stopped: false,
        }
    }

    /// Takes an event, and appends what is to be done.
    ///
    /// # Errors
    /// [`KeyError`] if the signer's key is none.
    pub fn step(
        &mut self,
        now_ms: u64,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), KeyError> {
        let turn = &mut Turn { now_ms, actions };
        match event {
            Event::Head(head) => self.on_head(turn, *head),
            Event::Message { message, bytes } => self.on_message(turn, *message, bytes),
            Event::Timer(timer) => self.on_timer(turn, timer),
            Event::Judged { hash, verdict } => self.on_judged(turn, hash, verdict),
            Event::Built { view, built } => self.on_built(turn, view, built),
            Event::PeerUp(peer) => self.on_peer(turn, peer),
            Event::PeerDown(peer) => {
                self.connected.remove(&peer);
                Ok(())
            }
            Event::Work(has_work) => self.on_work(turn, has_work),
            Event::Level(is_level) => self.on_level(turn, is_level),
        }
    }

    /// Where it is.
    pub fn view(&self) -> View {
        self.height.view()
    }

    /// How far it is in its round.
    pub fn phase(&self) -> Phase {
        self.height.phase
    }

    /// In which form it writes messages.
    pub fn form(&self) -> Form {
        self.settings.signer.form()
    }

    /// What it has signed.
    pub fn ballots(&self) -> &Ballots {
        &self.ballots
    }

    /// Bytes of messages that wait for later rounds and heights.
    pub fn waiting_bytes(&self) -> usize {
        self.later.bytes()
    }

    fn own(&self) -> Address {
        self.settings.signer.address()
    }

    /// Whether it signs at the current height.
    fn takes_part(&self) -> bool {
        let next = self.height.view().height;
        self.is_level
            && !self.is_stopped
            && self.ballots.may_take_part(next)
            && self.height.head.validators.contains(&self.own())
    }

    fn on_head(&mut self, turn: &mut Turn<'_>, head: Head) -> Result<(), KeyError> {
        if head.number <= self.height.head.number {
            return Ok(());
        }
        self.height = Height::new(head);
        let next = self.height.view().height;
        self.later.forget_below(next);
        let validators = &self.height.head.validators;
        self.heard.retain(|author, _| validators.contains(author));
        self.begin(turn)
    }

    fn on_level(&mut self, turn: &mut Turn<'_>, is_level: bool) -> Result<(), KeyError> {
        let was_level = std::mem::replace(&mut self.is_level, is_level);
        match (was_level, is_level) {
            (false, true) => {
                let is_validator = self.height.head.validators.contains(&self.own());
                let view = self.height.view();
                if self.ballots.reach(view.height, is_validator) {
                    // The next start knows it too.
                    self.record(turn, Record::Round(view));
                }
                self.begin(turn)
            }
            (true, false) => {
                self.height.phase = Phase::Idle;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Begins with the current height: where it was when the node stopped, or with round 0.
    fn begin(&mut self, turn: &mut Turn<'_>) -> Result<(), KeyError> {
        if !self.takes_part() || self.waits_for_others(turn) {
            return Ok(());
        }
        let height = self.height.view().height;
        self.ballots.forget_below(height);
        let entered = self.ballots.round_at(height);
        match entered.filter(|_| self.has(Guard::RoundsRise)) {
            Some(round) => self.resume(turn, round)?,
            None => self.await_block_time(turn),
        }
        for (message, bytes) in self.later.take_height(height) {
            self.on_message(turn, message, bytes)?;
        }
        Ok(())
    }

    /// A message of a validator, this one among them.
    fn on_message(
        &mut self,
        turn: &mut Turn<'_>,
        message: Message,
        bytes: usize,
    ) -> Result<(), KeyError> {
        let (author, view, own) = (message.author(), message.view(), self.height.view());
        if author == self.own() {
            self.on_own_message(turn, message);
            return Ok(());
        }
        if view.height < own.height || view.round > MAX_ROUND {
            return Ok(());
        }
        let validators = &self.height.head.validators;
        let is_validator = validators.contains(&author) || !self.has(Guard::Validators);
        if is_validator {
            let heard = self.heard.entry(author).or_default();
            *heard = view.height.max(*heard);
        }
        if view.height > own.height || self.height.phase == Phase::Idle {
            self.later.add(message, bytes, validators);
            self.look_ahead(turn);
            return Ok(());
        }
        if !is_validator {
            return Ok(());
        }
        self.height.saw(author, view.round);
        match message {
            Message::Proposal(proposal) => self.on_proposal(turn, *proposal)?,
            Message::RoundChange(change) => self.on_round_change(turn, *change),
            vote if view.round > own.round => {
                self.later.add(vote, bytes, &self.height.head.validators);
            }
            Message::Prepare(prepare) => self.on_prepare(turn, prepare),
            Message::Commit(commit) => self.on_commit(turn, commit),
        }
        self.advance(turn)?;
        self.follow_others(turn)
    }

    /// A message that this validator seems to have signed. If it did not, another one has its key.
    fn on_own_message(&mut self, turn: &mut Turn<'_>, message: Message) {
        let protocol = self.settings.signer.form().protocol;
        let Some(digest) = candidate::digest_of(protocol, &message) else {
            return;
        };
        let (view, kind) = (message.view(), message.kind());
        if self.ballots.is_strange(view, kind, &digest) {
            self.is_stopped = true;
            self.height.phase = Phase::Idle;
            turn.act(Action::Stop(Box::new(message)));
        }
    }

    /// Asks for blocks if more validators than can be faulty are beyond the next height; from round 1 on, if they are at the one after it,
    /// for then their commits of the next block have been missed.
    fn look_ahead(&mut self, turn: &mut Turn<'_>) {
        let validators = &self.height.head.validators;
        let View { height, round } = self.height.view();
        let first = height.saturating_add(u64::from(round == 0));
        let mut heights: Vec<u64> = self.heard.values().copied().collect();
        heights.sort_unstable_by(|one, other| other.cmp(one));
        let reached = heights.get(validators.one_honest().saturating_sub(1));
        let missing = reached.and_then(|height| height.checked_sub(1));
        if let Some(to) = missing.filter(|to| *to >= first && *to > self.height.round.asked_to) {
            self.height.round.asked_to = to;
            turn.act(Action::Sync { to: Some(to) });
        }
    }

    /// A validator is connected. It gets what this one has said at this height: it may have started again, or never got it.
    fn on_peer(&mut self, turn: &mut Turn<'_>, peer: Address) -> Result<(), KeyError> {
        self.connected.insert(peer);
        for message in &self.height.said {
            let message = message.clone();
            turn.act(Action::Send {
                to: Some(peer),
                message,
            });
        }
        let is_waiting = self.pace.is_waiting();
        match is_waiting && self.takes_part() {
            true => self.begin(turn),
            false => Ok(()),
        }
    }

    /// Transactions wait, or none.
    fn on_work(&mut self, turn: &mut Turn<'_>, has_work: bool) -> Result<(), KeyError> {
        self.has_work = has_work;
        match has_work && self.height.phase == Phase::Waiting && self.height.is_empty_wait {
            true => self.start_round(turn),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
