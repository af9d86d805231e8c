//! Watches for what does not happen: a consensus client that does not call, blocks that do not come.
//!
//! The main thread looks 20 times a second; [`Silence`] and [`Repeat`] decide what is written, from the
//! time alone.

use niwaki_rpc::human::Age;
use niwaki_rpc::{Backend, MAX_CONSENSUS_SILENCE, SyncStatus};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often the silence of a consensus client is told again.
const REMINDER: Duration = Duration::from_secs(300);

/// How often it is told what is missing.
const STILL_SYNCING: Duration = Duration::from_secs(60);

/// What was written last.
#[derive(Default)]
pub(super) struct Watch {
    silence: Silence,
    syncing: Repeat,
}

impl Watch {
    /// Writes what is to be written at `now`.
    pub(super) fn look(&mut self, backend: &Backend, now: Instant) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self.silence.after(backend.consensus_silence()) {
            Some(Heard::Nothing(silence)) => warn!(
                since = %Age(ms(silence)),
                "No consensus client has called: is it running, and does it call this node's Engine API \
                 address with the same secret?"
            ),
            Some(Heard::Again(silence)) => {
                info!(after = %Age(ms(silence)), "The consensus client is back");
            }
            None => {}
        }
        let is_behind = matches!(backend.sync_status(), SyncStatus::Behind(_));
        if self.syncing.is_due(is_behind, now) {
            backend.log_syncing();
        }
    }
}

/// What is to be said of the consensus client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It has not called for so long.
    Nothing(Duration),
    /// It calls again, after so long.
    Again(Duration),
}

/// How long the consensus client has been silent, and what was said of it.
#[derive(Default)]
struct Silence {
    /// The longest silence so far, since the last call.
    longest: Duration,
    /// The silence at which it was told last; zero if it was not.
    told: Duration,
}

impl Silence {
    /// What is to be said when it has been silent for so long.
    fn after(&mut self, silence: Duration) -> Option<Heard> {
        if silence < self.longest {
            let was_told = !self.told.is_zero();
            let longest = std::mem::take(self).longest;
            self.longest = silence;
            return was_told.then_some(Heard::Again(longest));
        }
        self.longest = silence;
        let due = match self.told.is_zero() {
            true => MAX_CONSENSUS_SILENCE,
            false => self.told + REMINDER,
        };
        if silence < due {
            return None;
        }
        self.told = silence;
        Some(Heard::Nothing(silence))
    }
}

/// A line that is written again and again while something lasts, but not when it begins: the one who
/// noticed that has written it.
#[derive(Default)]
struct Repeat(Option<Instant>);

impl Repeat {
    fn is_due(&mut self, lasts: bool, now: Instant) -> bool {
        if !lasts {
            self.0 = None;
            return false;
        }
        let last = *self.0.get_or_insert(now);
        let is_due = now.saturating_duration_since(last) >= STILL_SYNCING;
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
    fn a_silent_client_is_told_of_after_120_s_and_each_300_s_more() {
        let mut silence = Silence::default();
        let told: Vec<u64> = (0..=800)
            .filter(|second| silence.after(s(*second)).is_some())
            .collect();
        assert_eq!(told, [120, 420, 720]);
    }

    #[test]
    fn a_client_that_calls_again_is_told_of_only_if_its_silence_was() {
        let mut silence = Silence::default();
        assert_eq!(silence.after(s(100)), None);
        assert_eq!(silence.after(s(1)), None);
        assert_eq!(silence.after(s(119)), None);
        assert_eq!(silence.after(s(130)), Some(Heard::Nothing(s(130))));
        assert_eq!(silence.after(s(0)), Some(Heard::Again(s(130))));
        assert_eq!(silence.after(s(119)), None);
        assert_eq!(silence.after(s(120)), Some(Heard::Nothing(s(120))));
    }

    #[test]
    fn what_is_missing_is_told_again_each_60_s_while_it_is() {
        let (mut repeat, start) = (Repeat::default(), Instant::now());
        let mut due = |second, lasts| repeat.is_due(lasts, start + s(second));
        assert!(!due(0, true) && !due(59, true) && due(60, true) && !due(61, true));
        assert!(due(120, true) && !due(121, false) && !due(190, true) && due(250, true));
    }
}
