//! How much memory the messages of peers may take: permits in bytes, taken before the bytes are read.
//!
//! ```text
//! head of a frame -> room for the frame -> its body -> room for the message -> decompressed -> handled, or held by a caller
//!                    (until decompressed)              (until handled, or dropped by the caller)
//!                                            an answer -> room for its values -> read -> held by the asker until dropped
//! ```
//!
//! A reader without room waits, and TCP carries that back to its peer. What is read takes room of up to three pools, in this order: a
//! task that waits for one holds room of earlier ones only, and the holder of a later one never waits for room. So no two wait for each
//! other. Frames of up to 64 KiB need no room: a few peers that send large ones slowly hold up no gossip.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of large frames that are being read, of all peers.
const FRAMES_BYTES: usize = 32 << 20;
/// Bytes of messages that are not handled yet, of all peers.
const MESSAGES_BYTES: usize = 96 << 20;
/// Bytes of answers as values, of all peers. One that takes more is read while there is no other.
const ANSWERS_BYTES: usize = 128 << 20;
/// Bytes of one answer as a value: more than the largest message takes that an honest peer can send, one of authorizations only.
const ANSWER_BYTES: usize = 256 << 20;
/// Bytes of messages that are not handled yet, of one peer: one of the largest has room.
const PEER_BYTES: usize = 12 << 20;
/// A frame of this size or less needs no room.
const SMALL_BYTES: usize = 64 << 10;

const _: () = assert!(crate::rlpx::MAX_MESSAGE_BYTES <= PEER_BYTES);

/// What a message takes of the memory of the network, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    _of_peer: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

/// The memory of all peers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    frames: Arc<Semaphore>,
    messages: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            frames: Arc::new(Semaphore::new(FRAMES_BYTES)),
            messages: Arc::new(Semaphore::new(MESSAGES_BYTES)),
            answers: Arc::new(Semaphore::new(ANSWERS_BYTES)),
        }
    }
}

impl Budget {
    /// The part of one peer.
    pub(super) fn of_peer(&self) -> PeerBudget {
        PeerBudget {
            shared: self.clone(),
            own: Arc::new(Semaphore::new(PEER_BYTES)),
        }
    }
}

/// The memory of one peer.
#[derive(Debug)]
pub(super) struct PeerBudget {
    shared: Budget,
    own: Arc<Semaphore>,
}

impl PeerBudget {
    /// Waits for room for a frame of this size.
    pub(super) async fn frame(&self, bytes: usize) -> Room {
        if bytes <= SMALL_BYTES {
            return Room::default();
        }
        Room {
            _of_peer: None,
            _of_all: take(&self.shared.frames, bytes).await,
        }
    }

    /// Waits for room for a message of this size.
    pub(super) async fn message(&self, bytes: usize) -> Room {
        Room {
            _of_peer: take(&self.own, bytes).await,
            _of_all: take(&self.shared.messages, bytes).await,
        }
    }

    /// Waits for room for an answer that takes so many bytes once it is read. `None` if no answer may take so many.
    pub(super) async fn answer(&self, bytes: usize) -> Option<Room> {
        if bytes > ANSWER_BYTES {
            return None;
        }
        Some(Room {
            _of_peer: None,
            _of_all: take(&self.shared.answers, bytes.min(ANSWERS_BYTES)).await,
        })
    }
}

async fn take(pool: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
    // The pools are never closed.
    Arc::clone(pool).acquire_many_owned(permits).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    /// Whether it is ready without anything else happening.
    async fn is_ready<T>(future: impl Future<Output = T>) -> Option<T> {
        timeout(Duration::from_millis(1), future).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_has_room_for_12_mib_of_messages_until_they_are_dropped() {
        let budget = Budget::default().of_peer();
        let first = is_ready(budget.message(10 << 20)).await.unwrap();
        let _second = is_ready(budget.message(2 << 20)).await.unwrap();
        assert!(is_ready(budget.message(1)).await.is_none());
        drop(first);
        assert!(is_ready(budget.message(10 << 20)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn ten_peers_fill_the_room_of_all_and_another_one_waits() {
        let budget = Budget::default();
        let peers: Vec<PeerBudget> = (0..10).map(|_| budget.of_peer()).collect();
        let mut rooms = Vec::new();
        for peer in &peers[..9] {
            rooms.push(is_ready(peer.message(10 << 20)).await.unwrap());
        }
        assert!(is_ready(peers[9].message(10 << 20)).await.is_none());
        rooms.pop();
        assert!(is_ready(peers[9].message(10 << 20)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn answers_have_room_of_their_own() {
        let budget = Budget::default();
        let peer = budget.of_peer();
        let first = is_ready(peer.answer(64 << 20)).await.unwrap();
        let _second = is_ready(peer.answer(64 << 20)).await.unwrap();
        assert!(is_ready(peer.answer(1)).await.is_none());
        assert!(is_ready(peer.message(1 << 20)).await.is_some());
        drop(first);
        assert!(is_ready(peer.answer(1)).await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_very_large_answer_waits_until_it_is_the_only_one_and_none_may_take_more_than_256_mib()
     {
        let budget = Budget::default();
        let peer = budget.of_peer();
        assert!(peer.answer((256 << 20) + 1).await.is_none());
        let small = is_ready(peer.answer(1)).await.unwrap();
        assert!(is_ready(peer.answer(256 << 20)).await.is_none());
        drop(small);
        let _large = is_ready(peer.answer(256 << 20)).await.unwrap().unwrap();
        assert!(is_ready(peer.answer(1)).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn small_frames_need_no_room_while_large_ones_fill_it() {
        let budget = Budget::default();
        let peers: Vec<PeerBudget> = (0..4).map(|_| budget.of_peer()).collect();
        let mut rooms = Vec::new();
        for peer in &peers[..3] {
            rooms.push(is_ready(peer.frame(10 << 20)).await.unwrap());
        }
        assert!(is_ready(peers[3].frame(10 << 20)).await.is_none());
        assert!(is_ready(peers[3].frame(SMALL_BYTES)).await.is_some());
    }
}
