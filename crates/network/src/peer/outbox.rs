//! Messages that wait for a peer's socket: five lanes, served in order, each bounded.
//!
//! | lane | holds | when it is full |
//! |---|---|---|
//! | control | pings, block ranges | cannot be: few of them, and a peer that does not read is cut |
//! | subprotocol | messages of the network's owner | the message is refused |
//! | answers | what the peer asked for | its open requests are bounded, and no more is read from it |
//! | requests | what we ask | the request is refused |
//! | gossip | transactions and announcements | the oldest is dropped |

use crate::rlpx::DisconnectReason;
use niwaki_primitives::Bytes;
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Most bytes of the lane of requests.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Most bytes of the lane of gossip.
const MAX_GOSSIP_BYTES: usize = 256 << 10;
/// Most bytes of the lane of registered protocols, but for one message: a consensus message holds a whole block.
const MAX_SUBPROTOCOL_BYTES: usize = 8 << 20;
/// Most messages of the lane of control.
const MAX_CONTROL: usize = 64;

/// A message for a peer. Its number counts from the connection's first.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) number: u8,
    pub(super) data: Vec<u8>,
    /// Of an answer: the place of its request, free again once this was written.
    _permit: Option<OwnedSemaphorePermit>,
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Next {
    Send(Outgoing),
    SendSubprotocol(u8, Bytes),
    Ping,
    Pong,
    Close(DisconnectReason),
}

#[derive(Debug, Default)]
struct Lanes {
    control: VecDeque<Next>,
    subprotocol: VecDeque<(u8, Bytes)>,
    subprotocol_bytes: usize,
    answers: VecDeque<Outgoing>,
    requests: VecDeque<Outgoing>,
    request_bytes: usize,
    gossip: VecDeque<Outgoing>,
    gossip_bytes: usize,
    closing: Option<DisconnectReason>,
}

/// The lanes of one peer.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lanes: Mutex<Lanes>,
    filled: Notify,
}

impl Outbox {
    fn change<T>(&self, change: impl FnOnce(&mut Lanes) -> T) -> T {
        let result = change(&mut self.lanes.lock().expect("no panic while it is held"));
        self.filled.notify_one();
        result
    }

    fn push_control(&self, next: Next) {
        self.change(|lanes| {
            if lanes.control.len() < MAX_CONTROL {
                lanes.control.push_back(next);
            }
        });
    }

    pub(super) fn control(&self, number: u8, data: Vec<u8>) {
        self.push_control(Next::Send(Outgoing::new(number, data)));
    }

    pub(super) fn ping(&self) {
        self.push_control(Next::Ping);
    }

    pub(super) fn pong(&self) {
        self.push_control(Next::Pong);
    }

    /// Returns whether there was room.
    pub(super) fn subprotocol(&self, id: u8, data: Bytes) -> bool {
        self.change(|lanes| {
            let bytes = lanes.subprotocol_bytes.saturating_add(data.len());
            let has_room = lanes.subprotocol.is_empty() || bytes <= MAX_SUBPROTOCOL_BYTES;
            if has_room {
                lanes.subprotocol_bytes = bytes;
                lanes.subprotocol.push_back((id, data));
            }
            has_room
        })
    }

    pub(super) fn answer(&self, number: u8, data: Vec<u8>, permit: OwnedSemaphorePermit) {
        let message = Outgoing {
            number,
            data,
            _permit: Some(permit),
        };
        self.change(|lanes| lanes.answers.push_back(message));
    }

    /// Returns whether there was room.
    pub(super) fn request(&self, number: u8, data: Vec<u8>) -> bool {
        self.change(|lanes| {
            let has_room = lanes.request_bytes + data.len() <= MAX_REQUEST_BYTES;
            if has_room {
                lanes.request_bytes += data.len();
                lanes.requests.push_back(Outgoing::new(number, data));
            }
            has_room
        })
    }

    pub(super) fn gossip(&self, number: u8, data: Vec<u8>) {
        self.change(|lanes| {
            lanes.gossip_bytes += data.len();
            lanes.gossip.push_back(Outgoing::new(number, data));
            while lanes.gossip_bytes > MAX_GOSSIP_BYTES && lanes.gossip.len() > 1 {
                let oldest = lanes.gossip.pop_front();
                lanes.gossip_bytes -= oldest.map_or(0, |message| message.data.len());
            }
        });
    }

    /// Ends the connection after what is being written. The first reason counts.
    pub(super) fn close(&self, reason: DisconnectReason) {
        self.change(|lanes| *lanes.closing.get_or_insert(reason));
    }

    pub(super) fn is_closing(&self) -> bool {
        let lanes = self.lanes.lock().expect("no panic while it is held");
        lanes.closing.is_some()
    }

    fn pop(&self) -> Option<Next> {
        let mut lanes = self.lanes.lock().expect("no panic while it is held");
        if let Some(reason) = lanes.closing {
            return Some(Next::Close(reason));
        }
        if let Some(next) = lanes.control.pop_front() {
            return Some(next);
        }
        if let Some((id, data)) = lanes.subprotocol.pop_front() {
            lanes.subprotocol_bytes -= data.len();
            return Some(Next::SendSubprotocol(id, data));
        }
        if let Some(answer) = lanes.answers.pop_front() {
            return Some(Next::Send(answer));
        }
        if let Some(request) = lanes.requests.pop_front() {
            lanes.request_bytes -= request.data.len();
            return Some(Next::Send(request));
        }
        let gossip = lanes.gossip.pop_front()?;
        lanes.gossip_bytes -= gossip.data.len();
        Some(Next::Send(gossip))
    }

    /// Waits for the next message. There is one caller, the writer.
    pub(super) async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.pop() {
                return next;
            }
            self.filled.notified().await;
        }
    }
}

impl Outgoing {
    fn new(number: u8, data: Vec<u8>) -> Self {
        Self {
            number,
            data,
            _permit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    fn number(next: Option<Next>) -> Option<u8> {
        match next {
            Some(Next::Send(message)) => Some(message.number),
            Some(Next::SendSubprotocol(id, _)) => Some(id),
            _ => None,
        }
    }

    #[tokio::test]
    async fn lanes_are_served_in_order_and_a_close_overtakes_them() {
        let outbox = Outbox::default();
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        outbox.gossip(5, vec![]);
        outbox.request(4, vec![]);
        outbox.answer(3, vec![], permit);
        assert!(outbox.subprotocol(2, Bytes::new()));
        outbox.control(1, vec![]);
        for expected in 1..=5 {
            assert_eq!(number(outbox.pop()), Some(expected));
        }
        assert!(outbox.pop().is_none());
        outbox.control(1, vec![]);
        outbox.close(DisconnectReason::UselessPeer);
        outbox.close(DisconnectReason::Requested);
        assert!(matches!(
            outbox.next().await,
            Next::Close(DisconnectReason::UselessPeer)
        ));
    }

    #[test]
    fn gossip_loses_its_oldest_and_requests_are_refused() {
        let outbox = Outbox::default();
        for number in 0..5 {
            outbox.gossip(number, vec![0; MAX_GOSSIP_BYTES / 3]);
        }
        assert_eq!(number(outbox.pop()), Some(2));
        outbox.gossip(9, vec![0; 2 * MAX_GOSSIP_BYTES]);
        assert_eq!(number(outbox.pop()), Some(9));
        assert!(outbox.pop().is_none());
        assert!(outbox.request(1, vec![0; MAX_REQUEST_BYTES]));
        assert!(!outbox.request(2, vec![0]));
        assert_eq!(number(outbox.pop()), Some(1));
        assert!(outbox.request(3, vec![0]));
    }

    #[test]
    fn a_message_of_the_owner_is_refused_while_8_mib_wait_unless_it_is_the_first() {
        let outbox = Outbox::default();
        let large = Bytes::from(vec![0; MAX_SUBPROTOCOL_BYTES + 1]);
        assert!(outbox.subprotocol(1, large));
        assert!(!outbox.subprotocol(2, Bytes::new()));
        assert_eq!(number(outbox.pop()), Some(1));
        let half = Bytes::from(vec![0; MAX_SUBPROTOCOL_BYTES / 2]);
        assert!(outbox.subprotocol(3, half.clone()) && outbox.subprotocol(4, half));
        assert!(!outbox.subprotocol(5, Bytes::from_static(&[0])));
        assert_eq!(number(outbox.pop()), Some(3));
        assert!(outbox.subprotocol(6, Bytes::from_static(&[0])));
    }

    #[tokio::test]
    async fn an_answer_frees_its_place_when_it_was_written() {
        let (outbox, places) = (Outbox::default(), Arc::new(Semaphore::new(1)));
        let permit = Arc::clone(&places).acquire_owned().await.unwrap();
        outbox.answer(1, vec![], permit);
        assert_eq!(places.available_permits(), 0);
        let next = outbox.next().await;
        assert_eq!(places.available_permits(), 0);
        drop(next);
        assert_eq!(places.available_permits(), 1);
    }
}
