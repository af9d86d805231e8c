//! Requests of ours, by what they ask for: how many are in flight, how long answers take, how many come late or are wrong.

use super::{Count, Stats};
use crate::wire::RequestKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a time was measured of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// An answer to a request, from the moment in which the request was handed to the connection.
    Request(RequestKind),
    /// A look-up of discovery v5.
    Lookup,
}

/// Gets the times that are measured.
pub(super) type Timer = Box<dyn Fn(Timed, Duration) + Send + Sync>;

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestStats {
    /// Whose answers are awaited.
    pub in_flight: u64,
    /// With an answer, whatever it was.
    pub answered: u64,
    /// Without an answer in time.
    pub timeouts: u64,
    /// With an answer that breaks the protocol or is proved wrong.
    pub wrong: u64,
}

#[derive(Debug, Default)]
struct Row {
    in_flight: Count,
    answered: Count,
    timeouts: Count,
    wrong: Count,
}

#[derive(Debug, Default)]
pub(super) struct Requests([Row; RequestKind::ALL.len()]);

impl Requests {
    fn row(&self, kind: RequestKind) -> &Row {
        &self.0[kind.index()]
    }

    pub(super) fn of(&self, kind: RequestKind) -> RequestStats {
        let row = self.row(kind);
        RequestStats {
            in_flight: row.in_flight.get(),
            answered: row.answered.get(),
            timeouts: row.timeouts.get(),
            wrong: row.wrong.get(),
        }
    }
}

impl Stats {
    /// A request goes out. It counts as in flight until the result is dropped.
    pub(crate) fn begin_request(self: &Arc<Self>, kind: RequestKind) -> Timing {
        self.requests.row(kind).in_flight.add(1);
        Timing {
            stats: Arc::clone(self),
            kind,
            begun: Instant::now(),
        }
    }

    pub(crate) fn count_timeout(&self, kind: RequestKind) {
        self.requests.row(kind).timeouts.add(1);
    }

    pub(crate) fn count_wrong(&self, kind: RequestKind) {
        self.requests.row(kind).wrong.add(1);
    }
}

/// A request whose answer is awaited.
#[derive(Debug)]
pub(crate) struct Timing {
    stats: Arc<Stats>,
    kind: RequestKind,
    begun: Instant,
}

impl Timing {
    /// The answer came.
    pub(crate) fn answered(self) {
        let (kind, took) = (self.kind, self.begun.elapsed());
        self.stats.requests.row(kind).answered.add(1);
        self.stats.time(Timed::Request(kind), took);
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.stats.requests.row(self.kind).in_flight.take(1);
    }
}
