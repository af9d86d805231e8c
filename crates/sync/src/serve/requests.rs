//! What peers ask, and when it is answered: peers get equal shares of the bytes, and all of them together no more than a rate.
//!
//! What answers cost is paid by the node's blocks: an answer of 2 MiB is read, proved, compressed and encrypted on the same processors. One
//! that waits in a peer's queue would be compressed and encrypted while a block is imported, so the rate counts here, before it is made.

use super::fair_queue::FairQueue;
use niwaki_network::InboundRequest;
use niwaki_network::peers::ConnId;
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Requests for threads that answer them.
#[derive(Debug)]
pub struct Requests {
    /// Held by the thread that waits for the next one.
    receiver: Mutex<mpsc::Receiver<InboundRequest>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: FairQueue<ConnId, InboundRequest>,
    pace: Pace,
}

/// A line on which each answer takes the time of its bytes at a rate.
#[derive(Debug)]
struct Pace {
    /// Bytes a second.
    rate: Option<NonZeroU64>,
    /// When all that was answered has had its time.
    free_at: Instant,
}

impl Pace {
    /// How long the next answer has to wait.
    fn wait(&self, now: Instant) -> Duration {
        self.free_at.saturating_duration_since(now)
    }

    fn count(&mut self, bytes: u64, now: Instant) {
        if let Some(rate) = self.rate {
            let took = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate);
            self.free_at = self.free_at.max(now) + took;
        }
    }
}

impl Requests {
    /// Those that come from the network. `rate` is in bytes of answers a second; `None` is no bound.
    pub fn new(receiver: mpsc::Receiver<InboundRequest>, rate: Option<NonZeroU64>) -> Self {
        Self {
            receiver: Mutex::new(receiver),
            state: Mutex::new(State {
                queue: FairQueue::default(),
                pace: Pace {
                    rate,
                    free_at: Instant::now(),
                },
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Waits for the next request and its time. `None` once the senders are gone, and with them who would read an answer.
    pub(super) fn next(&self) -> Option<InboundRequest> {
        let mut receiver = self.receiver.lock().expect("no panic while it is held");
        loop {
            let mut state = self.state();
            while let Ok(request) = receiver.try_recv() {
                state.queue.push(request.peer, request);
            }
            if receiver.is_closed() {
                return None;
            }
            let wait = state.pace.wait(Instant::now());
            if wait.is_zero()
                && let Some((_, request)) = state.queue.pop()
            {
                return Some(request);
            }
            let is_empty = state.queue.is_empty();
            drop(state);
            if is_empty {
                let request = receiver.blocking_recv()?;
                self.state().queue.push(request.peer, request);
            } else {
                sleep(wait);
            }
        }
    }

    /// Counts the bytes of an answer, before it is sent.
    pub(super) fn answered(&self, peer: ConnId, bytes: usize) {
        let bytes = bytes as u64;
        let mut state = self.state();
        state.queue.answered(peer, bytes);
        state.pace.count(bytes, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_their_time_and_a_line_that_was_free_saves_nothing_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pace = Pace {
            rate: NonZeroU64::new(32 << 20),
            free_at: start,
        };
        assert_eq!(pace.wait(start), Duration::ZERO);
        pace.count(16 << 20, start);
        pace.count(8 << 20, at(100));
        assert_eq!(pace.wait(at(100)), Duration::from_millis(650));
        assert_eq!(pace.wait(at(9000)), Duration::ZERO);
        pace.count(32 << 20, at(9000));
        assert_eq!(pace.wait(at(9000)), Duration::from_secs(1));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let start = Instant::now();
        let mut pace = Pace {
            rate: None,
            free_at: start,
        };
        pace.count(u64::MAX, start);
        assert_eq!(pace.wait(start), Duration::ZERO);
    }
}
