//! How long syncs and their parts take. Pure: the changes of state come with the time.

use crate::progress::SyncState;
use std::collections::VecDeque;
use std::time::Duration;

/// Most times that wait to be read; the oldest go.
const MAX_WAITING: usize = 256;

/// A time that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncTime {
    /// One stay in a state in which something is asked for or executed.
    Task(SyncState, Duration),
    /// Headers and blocks of a sync that reached its target.
    Download(Duration),
    /// All of it, pauses included.
    Total(Duration),
}

/// Measures.
#[derive(Debug, Default)]
pub(crate) struct Times {
    state: SyncState,
    since_ms: u64,
    /// When the present sync began.
    began_ms: Option<u64>,
    download_ms: u64,
    measured: VecDeque<SyncTime>,
}

impl Times {
    /// Another state, or the same one again.
    pub(crate) fn enter(&mut self, state: SyncState, now_ms: u64) {
        if state == self.state {
            return;
        }
        let took_ms = now_ms.saturating_sub(self.since_ms);
        if is_task(self.state) {
            self.push(SyncTime::Task(self.state, Duration::from_millis(took_ms)));
        }
        if matches!(self.state, SyncState::Headers | SyncState::Blocks) {
            self.download_ms = self.download_ms.saturating_add(took_ms);
        }
        (self.state, self.since_ms) = (state, now_ms);
        match state {
            SyncState::Idle => (self.began_ms, self.download_ms) = (None, 0),
            state if is_task(state) => {
                self.began_ms.get_or_insert(now_ms);
            }
            _ => {}
        }
    }

    /// The target is reached.
    pub(crate) fn reach(&mut self, now_ms: u64) {
        self.enter(SyncState::Waiting, now_ms);
        if let Some(began_ms) = self.began_ms {
            let total_ms = now_ms.saturating_sub(began_ms);
            self.push(SyncTime::Download(Duration::from_millis(self.download_ms)));
            self.push(SyncTime::Total(Duration::from_millis(total_ms)));
        }
        self.enter(SyncState::Idle, now_ms);
    }

    /// What was measured since the last call.
    pub(crate) fn take(&mut self) -> Vec<SyncTime> {
        self.measured.drain(..).collect()
    }

    fn push(&mut self, time: SyncTime) {
        if self.measured.len() >= MAX_WAITING {
            self.measured.pop_front();
        }
        self.measured.push_back(time);
    }
}

fn is_task(state: SyncState) -> bool {
    !matches!(state, SyncState::Idle | SyncState::Waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_sync_is_timed_by_its_parts_and_a_pause_counts_for_the_whole_only() {
        let mut times = Times::default();
        for (state, at_s) in [
            (SyncState::Waiting, 0),
            (SyncState::Locate, 10),
            (SyncState::Headers, 11),
            (SyncState::Headers, 12),
            (SyncState::Waiting, 14),
            (SyncState::Blocks, 44),
        ] {
            times.enter(state, at_s * 1_000);
        }
        times.reach(50_000);
        times.enter(SyncState::Idle, 51_000);
        let expected = [
            SyncTime::Task(SyncState::Locate, seconds(1)),
            SyncTime::Task(SyncState::Headers, seconds(3)),
            SyncTime::Task(SyncState::Blocks, seconds(6)),
            SyncTime::Download(seconds(9)),
            SyncTime::Total(seconds(40)),
        ];
        assert_eq!(times.take(), expected);
        // A head whose block came otherwise is no sync.
        times.reach(60_000);
        assert_eq!(times.take(), []);
    }

    #[test]
    fn a_sync_that_lost_its_target_has_no_total_and_256_times_are_kept() {
        let mut times = Times::default();
        for round in 0..300 {
            times.enter(SyncState::Locate, 2_000 * round);
            times.enter(SyncState::Idle, 2_000 * round + 1_000);
        }
        times.reach(700_000);
        let measured = times.take();
        assert_eq!(measured.len(), MAX_WAITING);
        let locate = SyncTime::Task(SyncState::Locate, seconds(1));
        assert!(measured.iter().all(|time| *time == locate));
    }
}
