//! Rate limit of log lines: one line per ten seconds is written, the others are counted.

use crate::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The least time between two lines of one kind.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Decides which lines of one kind are written.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<LimitState>);

#[derive(Debug, Default)]
struct LimitState {
    last: Option<Instant>,
    held_back: u64,
}

impl LogLimit {
    /// If a line may be written at `now`, the number of lines held back since the last one.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        let early = |last: Instant| now.saturating_duration_since(last) < MIN_INTERVAL;
        if state.last.is_some_and(early) {
            state.held_back = state.held_back.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_10_s_is_written_with_the_count_of_the_others() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let at = |seconds| limit.admit(start + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(0), at(5), at(9)], [None; 3]);
        assert_eq!(at(10), Some(3));
        assert_eq!(at(19), None);
        assert_eq!(at(40), Some(1));
    }
}
