//! Log lines about what does not happen: a consensus client that does not call, blocks that do not arrive.
//!
//! The main thread calls [`Watch::check`] 20 times a second; [`Silence`] and [`Reminder`] decide from the time alone
//! what is logged.

use niwaki_rpc::human::Age;
use niwaki_rpc::{Backend, MAX_CONSENSUS_SILENCE, SyncStatus};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval between warnings while the consensus client is silent.
const SILENCE_REMINDER: Duration = Duration::from_secs(300);

/// Interval between lines while blocks are missing.
const SYNC_REMINDER: Duration = Duration::from_secs(60);

/// The state of both watches.
#[derive(Default)]
pub(super) struct Watch {
    silence: Silence,
    syncing: Reminder,
}

impl Watch {
    /// Logs what is due at `now`.
    pub(super) fn check(&mut self, backend: &Backend, now: Instant) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self.silence.after(backend.consensus_silence()) {
            Some(ClientNotice::Silent(silence)) => warn!(
                since = %Age(ms(silence)),
                "No consensus client has called: is it running, and does it call this node's Engine API \
                 address with the same secret?"
            ),
            Some(ClientNotice::Back(silence)) => {
                info!(after = %Age(ms(silence)), "The consensus client is back");
            }
            None => {}
        }
        // With peers the sync says itself how far it is.
        let is_alone = backend.operator().peers().is_none();
        let is_behind = is_alone && matches!(backend.sync_status(), SyncStatus::Behind(_));
        if self.syncing.is_due(is_behind, now) {
            backend.log_syncing();
        }
    }
}

/// A line about the consensus client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientNotice {
    /// It has not called for this long.
    Silent(Duration),
    /// It calls again after this long.
    Back(Duration),
}

/// How long the consensus client has been silent, and when that was last logged.
#[derive(Default)]
struct Silence {
    /// The longest silence so far, since the last call.
    longest: Duration,
    /// The silence at which the last line was logged; zero if none was.
    reported: Duration,
}

impl Silence {
    /// The line to log after this much silence.
    fn after(&mut self, silence: Duration) -> Option<ClientNotice> {
        if silence < self.longest {
            let was_reported = !self.reported.is_zero();
            let longest = std::mem::take(self).longest;
            self.longest = silence;
            return was_reported.then_some(ClientNotice::Back(longest));
        }
        self.longest = silence;
        let due = match self.reported.is_zero() {
            true => MAX_CONSENSUS_SILENCE,
            false => self.reported + SILENCE_REMINDER,
        };
        if silence < due {
            return None;
        }
        self.reported = silence;
        Some(ClientNotice::Silent(silence))
    }
}

/// Repeats a line while a condition lasts. The first line is not due here: the code that detects the condition
/// has logged it.
#[derive(Default)]
struct Reminder(Option<Instant>);

impl Reminder {
    fn is_due(&mut self, lasts: bool, now: Instant) -> bool {
        if !lasts {
            self.0 = None;
            return false;
        }
        let last = *self.0.get_or_insert(now);
        let is_due = now.saturating_duration_since(last) >= SYNC_REMINDER;
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_client_is_logged_after_120_s_and_every_300_s() {
        let mut silence = Silence::default();
        let reported: Vec<u64> = (0..=800)
            .filter(|second| silence.after(s(*second)).is_some())
            .collect();
        assert_eq!(reported, [120, 420, 720]);
    }

    #[test]
    fn a_client_that_is_back_is_logged_only_if_its_silence_was() {
        let mut silence = Silence::default();
        assert_eq!(silence.after(s(100)), None);
        assert_eq!(silence.after(s(1)), None);
        assert_eq!(silence.after(s(119)), None);
        assert_eq!(silence.after(s(130)), Some(ClientNotice::Silent(s(130))));
        assert_eq!(silence.after(s(0)), Some(ClientNotice::Back(s(130))));
        assert_eq!(silence.after(s(119)), None);
        assert_eq!(silence.after(s(120)), Some(ClientNotice::Silent(s(120))));
    }

    #[test]
    fn missing_blocks_are_logged_every_60_s() {
        let (mut reminder, start) = (Reminder::default(), Instant::now());
        let mut due = |second, lasts| reminder.is_due(lasts, start + s(second));
        assert!(!due(0, true) && !due(59, true) && due(60, true) && !due(61, true));
        assert!(due(120, true) && !due(121, false) && !due(190, true) && due(250, true));
    }
}
