//! Requests that wait for an answer: those of a peer in order, and peers by the bytes that they got.
//!
//! A request begins where its peer's last answer ended, on a line of bytes that each peer has for itself, and the request that begins
//! earliest is next. A peer that asked for nothing begins where the others are: it has saved nothing up, and waits behind no queue.
//!
//! Source: P. Goyal, H. Vin, H. Cheng, "Start-time fair queueing", 1996.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The requests of all peers. Their number is bounded where they come from: a peer has few that are open.
#[derive(Debug)]
pub(super) struct FairQueue<P, R> {
    peers: HashMap<P, PeerQueue<R>>,
    /// Where the request that was taken last began.
    position: u64,
    /// Requests that ever came.
    arrived: u64,
}

#[derive(Debug)]
struct PeerQueue<R> {
    /// With the number of the arrival.
    waiting: VecDeque<(u64, R)>,
    /// Where the next one begins.
    begins: u64,
}

impl<P, R> Default for FairQueue<P, R> {
    fn default() -> Self {
        Self {
            peers: HashMap::new(),
            position: 0,
            arrived: 0,
        }
    }
}

impl<P: Copy + Eq + Hash, R> FairQueue<P, R> {
    fn of_peer(&mut self, peer: P) -> &mut PeerQueue<R> {
        let begins = self.position;
        self.peers.entry(peer).or_insert_with(|| PeerQueue {
            waiting: VecDeque::new(),
            begins,
        })
    }

    pub(super) fn push(&mut self, peer: P, request: R) {
        self.arrived += 1;
        let (arrival, position) = (self.arrived, self.position);
        let queue = self.of_peer(peer);
        if queue.waiting.is_empty() {
            queue.begins = queue.begins.max(position);
        }
        queue.waiting.push_back((arrival, request));
    }

    /// Takes the next one; of two that begin at the same place the one that came first.
    pub(super) fn pop(&mut self) -> Option<(P, R)> {
        let of_peers = self.peers.iter();
        let first = of_peers.filter_map(|(peer, queue)| {
            let (arrival, _) = queue.waiting.front()?;
            Some((queue.begins, *arrival, *peer))
        });
        let (begins, _, peer) = first.min_by_key(|(begins, arrival, _)| (*begins, *arrival))?;
        self.position = begins;
        let (_, request) = self.of_peer(peer).waiting.pop_front()?;
        // Those that have nothing to make up for begin with the others when they ask again.
        self.peers
            .retain(|_, queue| !queue.waiting.is_empty() || queue.begins > begins);
        if self.is_empty() {
            // All begin at the same place again.
            let ends = self.peers.drain().map(|(_, queue)| queue.begins);
            self.position = ends.max().unwrap_or(begins);
        }
        Some((peer, request))
    }

    /// Counts the bytes of an answer.
    pub(super) fn answered(&mut self, peer: P, bytes: u64) {
        let queue = self.of_peer(peer);
        queue.begins = queue.begins.saturating_add(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.values().all(|queue| queue.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The peers whose requests were taken, each answered with so many bytes before the next is taken.
    fn taken(queue: &mut FairQueue<u8, u8>, bytes: u64, count: usize) -> Vec<u8> {
        let next = || {
            let (peer, _) = queue.pop()?;
            queue.answered(peer, bytes);
            Some(peer)
        };
        std::iter::from_fn(next).take(count).collect()
    }

    #[test]
    fn a_peer_that_asks_for_little_waits_behind_one_answer_and_not_behind_a_queue() {
        let mut queue = FairQueue::default();
        (0..8).for_each(|request| queue.push(1, request));
        assert_eq!(taken(&mut queue, 2 << 20, 3), [1, 1, 1]);
        queue.push(2, 0);
        assert_eq!(taken(&mut queue, 100, 6), [2, 1, 1, 1, 1, 1]);
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn who_was_away_gets_no_more_than_the_others() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|request| queue.push(1, request));
        taken(&mut queue, 1000, 50);
        (0..100).for_each(|request| queue.push(2, request));
        let peers = taken(&mut queue, 1000, 20);
        let of_second = peers.iter().filter(|peer| **peer == 2).count();
        assert!((10..=11).contains(&of_second), "{peers:?}");
    }

    #[test]
    fn peers_that_are_gone_are_forgotten() {
        let mut queue = FairQueue::default();
        for peer in 0..1000_u32 {
            queue.push(peer, ());
            queue.pop().unwrap();
            queue.answered(peer, 10);
        }
        assert!(queue.peers.len() <= 2, "{}", queue.peers.len());
    }

    #[test]
    fn they_are_forgotten_while_another_peer_has_a_queue() {
        let mut queue = FairQueue::default();
        (0..2000).for_each(|_| queue.push(0, ()));
        for peer in 1..1000_u32 {
            queue.push(peer, ());
            for _ in 0..2 {
                let (taken, ()) = queue.pop().unwrap();
                queue.answered(taken, 10);
            }
            assert!(queue.peers.len() <= 4, "{}", queue.peers.len());
        }
    }

    proptest! {
        #[test]
        fn all_are_taken_in_the_order_of_their_peer_and_bytes_are_shared(
            sizes in prop::collection::vec(1_u64..1000, 3),
            rounds in 1_usize..60,
        ) {
            let mut queue = FairQueue::default();
            for request in 0..rounds {
                for peer in 0..sizes.len() {
                    queue.push(peer, request);
                }
            }
            let mut got = vec![(0, 0_u64); sizes.len()];
            while let Some((peer, request)) = queue.pop() {
                prop_assert_eq!(request, got[peer].0);
                // A peer that still waits is not behind by more than one answer.
                let behind = got.iter().filter(|(taken, _)| *taken < rounds);
                let least = behind.map(|(_, bytes)| *bytes).min().unwrap();
                prop_assert!(got[peer].1 <= least + sizes.iter().max().unwrap());
                got[peer] = (request + 1, got[peer].1 + sizes[peer]);
                queue.answered(peer, sizes[peer]);
            }
            prop_assert!(got.iter().all(|(taken, _)| *taken == rounds));
        }
    }
}
