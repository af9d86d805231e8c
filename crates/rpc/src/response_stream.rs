//! Response streams: a long response goes to the client while its method still runs.
//!
//! A trace of a block can have gigabytes of JSON. A worker that runs such a method (lane `Heavy`, over HTTP) writes
//! into a buffer as all methods do, and calls [`ResponseStream::flush`] between items: once the buffer has 256 KiB,
//! it becomes a chunk. At most four chunks wait to be sent; then the worker waits for the client, until the deadline
//! of the request. So a response of any length takes the memory of a few chunks.
//!
//! ```text
//! worker:  write, flush -> [More][More][More]   channel of 4   -> HTTP body (chunked, maybe gzip)
//!          finish ------> [Last]
//! ```
//!
//! Once a chunk is sent, the status and the envelope are on the wire: a method that fails later can only end the
//! stream without [`Chunk::Last`], which the client sees as a body that breaks off.

use crate::RpcError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

/// Bytes from which on a buffer is sent as a chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that may wait to be sent to the client.
const MAX_QUEUED_CHUNKS: usize = 4;

/// A piece of a response.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Not the last one.
    More(Vec<u8>),
    /// The last one.
    Last(Vec<u8>),
}

/// The worker's end of a stream.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    sender: Sender<Chunk>,
    has_started: AtomicBool,
}

impl ResponseStream {
    /// Both ends of a new stream.
    pub(crate) fn new() -> (Self, Receiver<Chunk>) {
        let (sender, receiver) = channel(MAX_QUEUED_CHUNKS);
        let has_started = AtomicBool::new(false);
        let stream = Self {
            sender,
            has_started,
        };
        (stream, receiver)
    }

    /// Whether a chunk was sent.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Relaxed)
    }

    /// Whether the client has gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends what `out` holds if it has the size of a chunk, and leaves it empty.
    ///
    /// # Errors
    /// -32000 if the client has gone, or does not take it before `deadline`.
    pub(crate) fn flush(&self, out: &mut Vec<u8>, deadline: Instant) -> Result<(), RpcError> {
        if out.len() < CHUNK_BYTES {
            return Ok(());
        }
        let chunk = std::mem::replace(out, Vec::with_capacity(CHUNK_BYTES * 5 / 4));
        self.has_started.store(true, Ordering::Relaxed);
        self.send(Chunk::More(chunk), deadline)
    }

    /// Sends the last chunk.
    ///
    /// # Errors
    /// -32000 if the client has gone, or does not take it before `deadline`.
    pub(crate) fn finish(&self, out: Vec<u8>, deadline: Instant) -> Result<(), RpcError> {
        self.send(Chunk::Last(out), deadline)
    }

    fn send(&self, mut chunk: Chunk, deadline: Instant) -> Result<(), RpcError> {
        loop {
            chunk = match self.sender.try_send(chunk) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => {
                    return Err(RpcError::server("the client has gone"));
                }
                Err(TrySendError::Full(chunk)) => chunk,
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
    fn less_than_256_kib_stays_and_chunks_arrive_in_order() {
        let (stream, mut chunks) = ResponseStream::new();
        let mut out = vec![1; 10];
        stream.flush(&mut out, soon()).unwrap();
        assert_eq!((out.len(), stream.has_started()), (10, false));
        out.resize(CHUNK_BYTES, 2);
        stream.flush(&mut out, soon()).unwrap();
        assert_eq!((out.len(), stream.has_started()), (0, true));
        stream.finish(vec![3], soon()).unwrap();
        assert!(matches!(chunks.try_recv(), Ok(Chunk::More(chunk)) if chunk.len() == CHUNK_BYTES));
        assert!(matches!(chunks.try_recv(), Ok(Chunk::Last(chunk)) if chunk == [3]));
    }

    #[test]
    fn a_slow_or_closed_client_ends_the_stream() {
        let (stream, chunks) = ResponseStream::new();
        let much = || vec![0; CHUNK_BYTES];
        for _ in 0..MAX_QUEUED_CHUNKS {
            stream.flush(&mut much(), soon()).unwrap();
        }
        let slow = stream.flush(&mut much(), soon()).unwrap_err();
        assert!(slow.message.contains("too slowly"));
        drop(chunks);
        assert!(stream.is_closed());
        let gone = stream.flush(&mut much(), soon()).unwrap_err();
        assert!(gone.message.contains("gone"));
    }
}
