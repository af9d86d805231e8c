//! A job as its caller holds it: answers come out, what the caller found in them goes back in.

use super::ask::{GivenUp, JobId, Outcome};
use super::task::Shared;
use crate::peer::{PeerAnswer, Room};
use crate::peers::ConnId;
use crate::wire::Answer;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Names an answer when its outcome is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryId {
    /// The peer that answered.
    pub conn: ConnId,
    /// The router's number of the request.
    pub(super) request: u64,
    /// Bytes of the message.
    pub(super) bytes: usize,
}

/// An answer to a part of a job, not checked yet. While it is held, its bytes count towards what the network may hold in memory.
#[derive(Debug)]
pub struct Delivery {
    /// Its name, and who sent it.
    pub id: DeliveryId,
    /// The items that were asked for, by their index in the job.
    pub items: Range<u32>,
    /// What came, as the peer sent it.
    pub answer: Answer,
    _room: Room,
}

impl Delivery {
    pub(super) fn new(id: DeliveryId, items: Range<u32>, arrived: PeerAnswer) -> Self {
        Self {
            id,
            items,
            answer: arrived.answer,
            _room: arrived.room,
        }
    }
}

/// What a job says to its caller.
#[derive(Debug)]
pub enum JobEvent {
    /// An answer came: [`Job::outcome`] is due within 30 s. Items may come twice, of two peers.
    Answer(Delivery),
    /// The job has ended: its items are there, but for these.
    Done(Vec<GivenUp>),
}

/// A job. Dropping it cancels the job.
#[derive(Debug)]
pub struct Job {
    id: JobId,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    is_done: bool,
}

impl Job {
    pub(super) fn new(id: JobId, shared: Arc<Shared>, mailbox: Arc<Mailbox>) -> Self {
        Self {
            id,
            shared,
            mailbox,
            is_done: false,
        }
    }

    /// Blocks a plain thread until the next event, at most so long. `None` after [`JobEvent::Done`].
    pub fn next(&mut self, timeout: Duration) -> Option<JobEvent> {
        if self.is_done {
            return None;
        }
        let event = self.mailbox.wait(timeout)?;
        Some(self.pass_on(event))
    }

    /// The next event; `None` after [`JobEvent::Done`].
    pub async fn recv(&mut self) -> Option<JobEvent> {
        if self.is_done {
            return None;
        }
        let event = self.mailbox.recv().await;
        Some(self.pass_on(event))
    }

    fn pass_on(&mut self, event: JobEvent) -> JobEvent {
        self.is_done = matches!(event, JobEvent::Done(_));
        event
    }

    /// How an answer turned out. Another peer is asked for what is missing in it.
    pub fn outcome(&self, delivery: &DeliveryId, outcome: Outcome) {
        self.shared.outcome(delivery, outcome);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.shared.cancel(self.id);
    }
}

/// The events of a job that its caller has not taken: no more than its open requests, and its end.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    events: Mutex<VecDeque<JobEvent>>,
    for_threads: Condvar,
    for_tasks: Notify,
}

impl Mailbox {
    fn events(&self) -> MutexGuard<'_, VecDeque<JobEvent>> {
        self.events.lock().expect("no panic while it is held")
    }

    pub(super) fn put(&self, event: JobEvent) {
        self.events().push_back(event);
        self.for_threads.notify_one();
        self.for_tasks.notify_one();
    }

    fn wait(&self, timeout: Duration) -> Option<JobEvent> {
        let deadline = Instant::now().checked_add(timeout);
        let mut events = self.events();
        loop {
            if let Some(event) = events.pop_front() {
                return Some(event);
            }
            let left = match deadline {
                Some(deadline) => deadline.checked_duration_since(Instant::now())?,
                None => timeout,
            };
            let woken = self.for_threads.wait_timeout(events, left);
            events = woken.expect("no panic while it is held").0;
        }
    }

    async fn recv(&self) -> JobEvent {
        loop {
            if let Some(event) = self.events().pop_front() {
                return event;
            }
            self.for_tasks.notified().await;
        }
    }
}
