//! Where a long answer goes while it is still being made.
//!
//! A worker sends what it has whenever that is much, and waits for whoever reads it: of an answer
//! of any length no more than a few parts are held. Once a part has gone out, what fails later can
//! only be told by ending without the last one.

use crate::RpcError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

/// Bytes from which on a part is sent.
const PART_BYTES: usize = 256 << 10;
/// Parts that may wait to be read.
const UNREAD: usize = 4;

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Part {
    /// There is more to come.
    More(Vec<u8>),
    /// The end.
    Last(Vec<u8>),
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Outlet {
    sender: Sender<Part>,
    has_begun: AtomicBool,
}

impl Outlet {
    /// Both ends.
    pub(crate) fn new() -> (Self, Receiver<Part>) {
        let (sender, receiver) = channel(UNREAD);
        let has_begun = AtomicBool::new(false);
        (Self { sender, has_begun }, receiver)
    }

    /// Whether anything has gone out.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends what `out` holds, if that is much, and leaves it empty.
    ///
    /// # Errors
    /// If nobody reads it until `deadline`.
    pub(crate) fn flush(&self, out: &mut Vec<u8>, deadline: Instant) -> Result<(), RpcError> {
        if out.len() < PART_BYTES {
            return Ok(());
        }
        let part = std::mem::replace(out, Vec::with_capacity(PART_BYTES * 5 / 4));
        self.has_begun.store(true, Ordering::Relaxed);
        self.send(Part::More(part), deadline)
    }

    /// Sends the end.
    ///
    /// # Errors
    /// If nobody reads it until `deadline`.
    pub(crate) fn finish(&self, out: Vec<u8>, deadline: Instant) -> Result<(), RpcError> {
        self.send(Part::Last(out), deadline)
    }

    fn send(&self, mut part: Part, deadline: Instant) -> Result<(), RpcError> {
        loop {
            part = match self.sender.try_send(part) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => {
                    return Err(RpcError::server("nobody reads the answer any more"));
                }
                Err(TrySendError::Full(part)) => part,
            };
            if Instant::now() > deadline {
                return Err(RpcError::server("the answer was read too slowly"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn little_stays_and_much_goes_out_in_order() {
        let (outlet, mut parts) = Outlet::new();
        let mut out = vec![1; 10];
        outlet.flush(&mut out, soon()).unwrap();
        assert_eq!((out.len(), outlet.has_begun()), (10, false));
        out.resize(PART_BYTES, 2);
        outlet.flush(&mut out, soon()).unwrap();
        assert_eq!((out.len(), outlet.has_begun()), (0, true));
        outlet.finish(vec![3], soon()).unwrap();
        assert!(matches!(parts.try_recv(), Ok(Part::More(part)) if part.len() == PART_BYTES));
        assert!(matches!(parts.try_recv(), Ok(Part::Last(part)) if part == [3]));
    }

    #[test]
    fn a_reader_that_is_slow_or_gone_ends_the_answer() {
        let (outlet, parts) = Outlet::new();
        let much = || vec![0; PART_BYTES];
        for _ in 0..UNREAD {
            outlet.flush(&mut much(), soon()).unwrap();
        }
        let slow = outlet.flush(&mut much(), soon()).unwrap_err();
        assert!(slow.message.contains("too slowly"));
        drop(parts);
        assert!(outlet.is_closed());
        let gone = outlet.flush(&mut much(), soon()).unwrap_err();
        assert!(gone.message.contains("nobody"));
    }
}
