//! Requests of ours that wait for an answer.
//!
//! Ids rise by one, so an answer is to an open request, late (its request was given up), or to a request that was never
//! made, which ends the connection.

use super::Room;
use crate::wire::{Answer, Request, RequestKind};
use std::collections::{HashMap, HashSet};
use tokio::sync::oneshot;

/// Most open requests to one peer; what asks more is wrong.
const MAX_OPEN: usize = 64;

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The connection ended.
    #[error("the peer is gone")]
    Gone,
    /// The peer reads too slowly, or has too many open requests.
    #[error("the peer is busy")]
    Busy,
    /// The version of the connection has no such request.
    #[error("the peer does not speak this")]
    NotSpoken,
}

/// An answer of a peer.
#[derive(Debug)]
pub struct PeerAnswer {
    /// What it says.
    pub answer: Answer,
    /// Bytes of the message.
    pub bytes: usize,
    /// What it takes of the memory of the network, until it is dropped.
    pub(crate) room: Room,
}

/// An answer that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unasked;

#[derive(Debug)]
struct Open {
    kind: RequestKind,
    most: usize,
    sender: oneshot::Sender<Result<PeerAnswer, AskError>>,
}

/// The open requests to one peer.
#[derive(Debug, Default)]
pub(super) struct Pending {
    next_id: u64,
    open: HashMap<u64, Open>,
    /// Of which kinds there ever was a request.
    asked: HashSet<RequestKind>,
    /// The connection ended.
    is_closed: bool,
}

impl Pending {
    /// A new request: its id, and where its answer comes out.
    pub(super) fn add(
        &mut self,
        request: &Request,
    ) -> Result<(u64, oneshot::Receiver<Result<PeerAnswer, AskError>>), AskError> {
        if self.is_closed {
            return Err(AskError::Gone);
        }
        self.open.retain(|_, open| !open.sender.is_closed());
        if self.open.len() >= MAX_OPEN {
            return Err(AskError::Busy);
        }
        let (sender, receiver) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        self.asked.insert(request.kind());
        let open = Open {
            kind: request.kind(),
            most: request.most_items(),
            sender,
        };
        self.open.insert(id, open);
        Ok((id, receiver))
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Gives an answer to its asker. Its kind must be that of the request, and it may hold no more than was asked for.
    pub(super) fn complete(
        &mut self,
        kind: RequestKind,
        id: u64,
        answer: PeerAnswer,
    ) -> Result<(), Unasked> {
        if id >= self.next_id {
            return Err(Unasked);
        }
        let Some(open) = self.open.remove(&id) else {
            return Ok(());
        };
        if open.kind != kind || answer.answer.count() > open.most {
            return Err(Unasked);
        }
        // The asker may have given it up.
        let _ = open.sender.send(Ok(answer));
        Ok(())
    }

    /// Whether an answer of this kind may come, be it late.
    pub(super) fn has_asked(&self, kind: RequestKind) -> bool {
        self.asked.contains(&kind)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The connection ended.
    pub(super) fn fail_all(&mut self) {
        self.is_closed = true;
        for (_, open) in self.open.drain() {
            let _ = open.sender.send(Err(AskError::Gone));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{B256, Bytes};

    fn request() -> Request {
        Request::PooledTransactions(vec![B256::ZERO; 2])
    }

    fn answer(count: usize) -> PeerAnswer {
        of(Answer::PooledTransactions(vec![Bytes::new(); count]))
    }

    fn of(answer: Answer) -> PeerAnswer {
        PeerAnswer {
            answer,
            bytes: 0,
            room: Room::default(),
        }
    }

    const KIND: RequestKind = RequestKind::PooledTransactions;

    #[test]
    fn an_answer_reaches_its_asker_and_a_late_one_is_ignored() {
        let mut pending = Pending::default();
        let (first, mut receiver) = pending.add(&request()).unwrap();
        let (second, given_up) = pending.add(&request()).unwrap();
        assert_eq!((first, second), (0, 1));
        assert_eq!(pending.complete(KIND, first, answer(2)), Ok(()));
        let received = receiver.try_recv().unwrap().unwrap();
        assert_eq!(received.answer, answer(2).answer);
        drop(given_up);
        assert_eq!(pending.complete(KIND, second, answer(2)), Ok(()));
        assert_eq!(pending.complete(KIND, first, answer(2)), Ok(()));
    }

    #[test]
    fn an_answer_never_asked_for_of_another_kind_or_too_long_is_a_breach() {
        let mut pending = Pending::default();
        assert_eq!(pending.complete(KIND, 0, answer(0)), Err(Unasked));
        let (id, _receiver) = pending.add(&request()).unwrap();
        assert_eq!(pending.complete(KIND, id, answer(3)), Err(Unasked));
        let (id, _receiver) = pending.add(&request()).unwrap();
        let other = of(Answer::Bodies(vec![]));
        assert_eq!(
            pending.complete(RequestKind::Bodies, id, other),
            Err(Unasked)
        );
    }

    #[test]
    fn open_requests_are_bounded_and_fail_when_the_peer_goes() {
        let mut pending = Pending::default();
        let mut all: Vec<_> = (0..MAX_OPEN)
            .map(|_| pending.add(&request()).unwrap().1)
            .collect();
        assert_eq!(pending.add(&request()).unwrap_err(), AskError::Busy);
        all.pop();
        assert!(pending.add(&request()).is_ok());
        pending.fail_all();
        assert_eq!(all[0].try_recv().unwrap().unwrap_err(), AskError::Gone);
        assert_eq!(pending.add(&request()).unwrap_err(), AskError::Gone);
    }
}
