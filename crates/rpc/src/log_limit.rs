//! Keeps a line of the log from filling it: one in ten seconds is written, the others are counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(10);

/// Says which lines of one kind are written.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    last: Option<Instant>,
    held_back: u64,
}

impl LogLimit {
    /// Whether a line may be written at `now`, and then how many were held back since the one before.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = written
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < EVERY);
        if is_early {
            written.held_back = written.held_back.saturating_add(1);
            return None;
        }
        written.last = Some(now);
        Some(std::mem::take(&mut written.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_is_written_and_tells_how_many_were_not() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let at = |seconds| limit.admit(start + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!([at(0), at(5), at(9)], [None; 3]);
        assert_eq!(at(10), Some(3));
        assert_eq!(at(19), None);
        assert_eq!(at(40), Some(1));
    }
}
