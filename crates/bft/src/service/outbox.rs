//! What leaves the machine: records are durable before what follows them is sent.

use super::{Job, ValidatorHost, metrics};
use crate::journal::Journal;
use crate::machine::{Candidate, Record};
use crate::wire::{Form, Message};
use niwaki_primitives::{Address, Header};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;
use tracing::error;

/// In the machine's order.
pub(super) enum Effect {
    Record(Record),
    Send {
        form: Form,
        to: Option<Address>,
        message: Arc<Message>,
    },
    Finish {
        candidate: Arc<Candidate>,
        header: Box<Header>,
    },
    Stop,
}

pub(super) struct Outbox {
    pub(super) journal: Journal,
    pub(super) host: Arc<dyn ValidatorHost>,
    pub(super) jobs: Sender<Job>,
}

impl Outbox {
    /// The thread's loop. If the journal can't be written nothing is sent any more.
    pub(super) fn run(mut self, effects: &Receiver<Effect>) {
        while let Ok(first) = effects.recv() {
            // Records that wait together are synced together.
            let mut waiting = vec![first];
            waiting.extend(effects.try_iter());
            let mut waiting = waiting.into_iter().peekable();
            while let Some(effect) = waiting.next() {
                let mut records = match effect {
                    Effect::Record(record) => vec![record],
                    Effect::Stop => return,
                    other => {
                        self.pass(other);
                        continue;
                    }
                };
                while let Some(Effect::Record(record)) =
                    waiting.next_if(|next| matches!(next, Effect::Record(_)))
                {
                    records.push(record);
                }
                let began = Instant::now();
                let appended = self.journal.append(&records);
                metrics::synced(began.elapsed());
                if let Err(fault) = appended {
                    error!(%fault, "The records of the validator can't be written: it signs nothing any more");
                    return;
                }
            }
        }
    }

    fn pass(&self, effect: Effect) {
        match effect {
            Effect::Send { form, to, message } => {
                let code = message.kind().code(form.protocol);
                let bytes = message.encode(form).into();
                self.host.send(form.protocol, to, code, &bytes);
            }
            Effect::Finish { candidate, header } => {
                // After a stop there is no receiver.
                let _ = self.jobs.send(Job::Finish { candidate, header });
            }
            Effect::Record(_) | Effect::Stop => {}
        }
    }
}
