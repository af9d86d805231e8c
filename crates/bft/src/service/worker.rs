//! One event after the other through the machine, and its timers.

use super::door::Door;
use super::metrics;
use super::outbox::Effect;
use super::relays::{Relay, Relays};
use super::timers::Timers;
use super::{Input, Job, Options, Status, ValidatorHost, lock, now_ms, settings};
use crate::machine::{Action, Event, Head, Machine};
use crate::wire::{KeyError, Message, View};
use niwaki_primitives::Address;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};

/// The machine's thread.
pub(super) struct Worker {
    pub(super) options: Options,
    pub(super) machine: Machine,
    pub(super) timers: Timers,
    pub(super) relays: Relays,
    pub(super) connected: BTreeSet<Address>,
    pub(super) is_level: bool,
    pub(super) effects: Sender<Effect>,
    pub(super) jobs: Sender<Job>,
    pub(super) host: Arc<dyn ValidatorHost>,
    pub(super) door: Arc<Door>,
    pub(super) status: Arc<Mutex<Status>>,
    /// The height whose first block came last, by a message or built, and when.
    pub(super) proposed: Option<(u64, Instant)>,
}

impl Worker {
    /// The thread's loop.
    pub(super) fn run(mut self, events: &Receiver<Input>) {
        loop {
            self.pass_on();
            // Before messages, however many wait.
            let event = match self.timers.next_due(now_ms()) {
                Some(timer) => Event::Timer(timer),
                None => match events.recv_timeout(self.wait(now_ms())) {
                    Ok(Input::Event(event)) => event,
                    Ok(Input::Message { message, relay }) => self.take(message, *relay),
                    Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => continue,
                },
            };
            if let Err(reason) = self.step(event) {
                error!(%reason, "The validator stops");
                return;
            }
        }
    }

    fn take(&mut self, message: Box<Message>, relay: Relay) -> Event {
        let bytes = relay.bytes.len();
        self.door.taken();
        self.relays.add(now_ms(), relay);
        Event::Message { message, bytes }
    }

    /// How long nothing is due.
    fn wait(&self, now_ms: u64) -> Duration {
        let timers = self.timers.wait(now_ms);
        match self.relays.next_ms() {
            Some(at_ms) => timers.min(Duration::from_millis(at_ms.saturating_sub(now_ms))),
            None => timers,
        }
    }

    /// Passes on what is due to all validators that may lack it.
    fn pass_on(&mut self) {
        let height = self.machine.view().height;
        for relay in self.relays.due(now_ms(), height) {
            for peer in &self.connected {
                if ![relay.author, relay.from].contains(peer) {
                    let to = Some(*peer);
                    self.host.send(relay.protocol, to, relay.code, &relay.bytes);
                }
            }
        }
    }

    fn step(&mut self, event: Event) -> Result<(), KeyError> {
        match &event {
            Event::PeerUp(peer) => drop(self.connected.insert(*peer)),
            Event::PeerDown(peer) => drop(self.connected.remove(peer)),
            Event::Level(is_level) => {
                self.is_level = *is_level;
                let was_lost = self.machine.ballots().is_lost();
                self.feed(event)?;
                if was_lost && let Some(height) = self.machine.ballots().unknown_to() {
                    warn!(
                        folder = %self.options.folder.display(),
                        height,
                        "What this validator has signed is not known: up to this height it signs nothing; if it never has, \
                         --bft-accept-missing-journal says so"
                    );
                }
                return Ok(());
            }
            Event::Head(head) => {
                self.door
                    .set_validators(head.rules.protocol, &head.validators);
                lock(&self.status).validators = head.validators.clone();
                if head.rules.protocol != self.machine.form().protocol {
                    return self.migrate(Head::clone(head));
                }
            }
            _ => {}
        }
        self.feed(event)
    }

    fn feed(&mut self, event: Event) -> Result<(), KeyError> {
        let before = self.machine.view();
        if matches!(event, Event::Built { built: Some(_), .. }) {
            self.note_proposal();
        }
        let mut actions = Vec::new();
        self.machine.step(now_ms(), event, &mut actions)?;
        actions.into_iter().for_each(|action| self.act(action));
        let view = self.machine.view();
        if view != before && view.round > 1 {
            self.log_round(view);
        }
        if view != before && view.round > 0 {
            metrics::round_changed();
        }
        let phase = self.machine.phase();
        let mut status = lock(&self.status);
        (status.view, status.phase) = (view, phase);
        if status.connected != self.connected {
            status.connected = self.connected.clone();
        }
        let validators = status.validators.as_slice();
        let is_there = |one: &&Address| self.connected.contains(*one);
        let connected = validators.iter().filter(is_there).count();
        metrics::place(
            view,
            phase,
            validators.len(),
            connected,
            self.door.waiting(),
        );
        Ok(())
    }

    /// The chain goes on with the other protocol: with a new machine, which knows what was signed.
    fn migrate(&mut self, head: Head) -> Result<(), KeyError> {
        let settings = settings(&self.options, head.rules.protocol)?;
        let ballots = self.machine.ballots().clone();
        info!(
            block = head.number + 1,
            protocol = head.rules.protocol.name(),
            "The protocol changes"
        );
        self.machine = Machine::new(settings, ballots, head);
        for peer in self.connected.clone() {
            self.feed(Event::PeerUp(peer))?;
        }
        match self.is_level {
            true => self.feed(Event::Level(true)),
            false => Ok(()),
        }
    }

    /// A block of this height has come.
    fn note_proposal(&mut self) {
        let height = self.machine.view().height;
        if self.proposed.is_none_or(|(of, _)| of != height) {
            self.proposed = Some((height, Instant::now()));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Record(record) => self.effect(Effect::Record(record)),
            Action::Send { to, message } => {
                let form = self.machine.form();
                metrics::sent(message.kind());
                self.effect(Effect::Send { form, to, message });
            }
            Action::Finish { candidate, header } => {
                if let Some((_, since)) = self.proposed.filter(|(of, _)| *of == header.number) {
                    metrics::agreed(since.elapsed());
                }
                self.effect(Effect::Finish { candidate, header });
            }
            Action::Set { timer, at_ms } => self.timers.set(timer, at_ms),
            Action::Build { view, timestamp } => self.job(Job::Build { view, timestamp }),
            Action::Judge(candidate) => {
                self.note_proposal();
                self.job(Job::Judge(candidate));
            }
            Action::Sync { to } => self.host.sync(to),
            Action::Evidence(messages) => log_evidence(&messages),
            Action::Refused {
                author,
                view,
                reason,
            } => {
                metrics::refused();
                debug!(validator = %author, height = view.height, round = view.round, %reason, "Refused a message")
            }
            Action::Stop(message) => error!(
                height = message.view().height,
                round = message.view().round,
                kind = ?message.kind(),
                "Another node signs with the key of this one: this validator signs nothing any more; stop one of the two"
            ),
        }
    }

    // After a stop there is no receiver.
    fn effect(&self, effect: Effect) {
        let _ = self.effects.send(effect);
    }

    fn job(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// From round 2 on, who is missing.
    fn log_round(&self, view: View) {
        let status = lock(&self.status).clone();
        let missing = status.validators.as_slice().iter();
        let missing =
            missing.filter(|one| **one != status.address && !self.connected.contains(*one));
        let missing: Vec<String> = missing.map(Address::to_string).collect();
        warn!(
            height = view.height,
            round = view.round,
            not_connected = missing.join(" "),
            "Validators do not agree yet"
        );
    }
}

fn log_evidence(messages: &[Message; 2]) {
    metrics::evidence();
    let [first, _] = messages;
    warn!(
        validator = %first.author(),
        height = first.view().height,
        round = first.view().round,
        kind = ?first.kind(),
        "A validator has signed two different messages"
    );
}
