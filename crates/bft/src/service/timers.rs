//! Timers of the machine.

use super::TimerKind;
use crate::machine::Timer;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the thread sleeps without any.
const IDLE: Duration = Duration::from_secs(60);

/// One of each kind.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeMap<TimerKind, (u64, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at_ms: u64) {
        self.0.insert(timer.kind, (at_ms, timer));
    }

    /// How long it is until the next one runs out.
    pub(super) fn wait(&self, now_ms: u64) -> Duration {
        let next = self.0.values().map(|(at_ms, _)| *at_ms).min();
        next.map_or(IDLE, |at_ms| {
            Duration::from_millis(at_ms.saturating_sub(now_ms))
        })
    }

    /// The earliest one that has run out; it is set no more.
    pub(super) fn next_due(&mut self, now_ms: u64) -> Option<Timer> {
        let due = self.0.iter().filter(|(_, (at_ms, _))| *at_ms <= now_ms);
        let kind = *due.min_by_key(|(_, (at_ms, _))| *at_ms)?.0;
        self.0.remove(&kind).map(|(_, timer)| timer)
    }
}
