//! What other nodes say this node's address is. A strict majority of at least ten hosts within five minutes decides.
//!
//! One public host has one vote, whatever its number of ports and ids. A node outside of our network can't vote for a private address.

use crate::address::{is_public, may_be_named_by};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// So long a vote counts.
const VOTE_MS: u64 = 5 * 60 * 1000;

/// With fewer votes nothing is decided.
const MIN_VOTES: usize = 10;

/// Most votes that are remembered; above it the oldest goes.
const MAX_VOTES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Vote {
    address: SocketAddr,
    at_ms: u64,
}

/// The votes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Votes {
    /// By voter: a public host without its port, another one with it, because many nodes may be behind one local address.
    votes: HashMap<(IpAddr, u16), Vote>,
}

impl Votes {
    /// The node at `by` says that it sees this node at `address`.
    pub(crate) fn add(&mut self, by: SocketAddr, address: SocketAddr, now_ms: u64) {
        let (by_ip, ip) = (by.ip().to_canonical(), address.ip().to_canonical());
        if address.port() == 0 || !may_be_named_by(ip, by_ip) {
            return;
        }
        let port = if is_public(by_ip) { 0 } else { by.port() };
        let address = SocketAddr::new(ip, address.port());
        let vote = Vote {
            address,
            at_ms: now_ms,
        };
        self.votes.insert((by_ip, port), vote);
        if self.votes.len() > MAX_VOTES {
            let oldest = self.votes.iter().min_by_key(|(_, vote)| vote.at_ms);
            if let Some(voter) = oldest.map(|(voter, _)| *voter) {
                self.votes.remove(&voter);
            }
        }
    }

    /// The address of a family that is decided on now, with the port if that has a majority too, else port 0.
    pub(crate) fn winner(&mut self, is_ipv6: bool, now_ms: u64) -> Option<SocketAddr> {
        self.votes
            .retain(|_, vote| now_ms.saturating_sub(vote.at_ms) < VOTE_MS);
        let votes = || {
            let addresses = self.votes.values().map(|vote| vote.address);
            addresses.filter(move |address| address.is_ipv6() == is_ipv6)
        };
        let count = votes().count();
        if count < MIN_VOTES {
            return None;
        }
        let ip = majority(votes().map(|address| address.ip()), count)?;
        let same = votes().filter(|address| address.ip() == ip);
        let port = majority(same.map(|address| address.port()), count);
        Some(SocketAddr::new(ip, port.unwrap_or(0)))
    }
}

/// The value that more than half of `count` have.
fn majority<T: std::hash::Hash + Eq>(values: impl Iterator<Item = T>, count: usize) -> Option<T> {
    let mut counted: HashMap<T, usize> = HashMap::new();
    values.for_each(|value| *counted.entry(value).or_default() += 1);
    let winner = counted.into_iter().find(|(_, votes)| votes * 2 > count);
    winner.map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voter(number: u8) -> SocketAddr {
        ([8, 8, number, 1], 30303).into()
    }

    const HOME: [u8; 4] = [9, 9, 9, 9];

    #[test]
    fn ten_votes_of_which_six_agree_decide_and_nine_do_not() {
        let mut votes = Votes::default();
        for number in 0..6 {
            votes.add(voter(number), (HOME, 30303).into(), 0);
        }
        for number in 6..9 {
            votes.add(voter(number), ([7, 7, 7, number], 30303).into(), 0);
        }
        assert_eq!(votes.winner(false, 0), None);
        votes.add(voter(9), ([7, 7, 7, 9], 30303).into(), 0);
        assert_eq!(votes.winner(false, 0), Some((HOME, 30303).into()));
        assert_eq!(votes.winner(true, 0), None);
        votes.add(voter(5), ([7, 7, 7, 7], 30303).into(), 0);
        assert_eq!(votes.winner(false, 0), None, "five of ten are no majority");
    }

    #[test]
    fn a_host_has_one_vote_and_a_vote_ends_after_five_minutes() {
        let mut votes = Votes::default();
        for port in 1..100 {
            let voter = ([8, 8, 8, 8], port).into();
            votes.add(voter, (HOME, 30303).into(), 0);
        }
        assert_eq!(votes.winner(false, 0), None);
        (0..10).for_each(|number| votes.add(voter(number), (HOME, 30303).into(), 1));
        assert!(votes.winner(false, VOTE_MS).is_some());
        assert!(votes.winner(false, VOTE_MS + 1).is_none());
        assert!(votes.votes.is_empty());
    }

    #[test]
    fn ports_that_differ_give_an_address_without_port() {
        let mut votes = Votes::default();
        (0..12).for_each(|number| {
            votes.add(voter(number), (HOME, 1000 + u16::from(number)).into(), 0);
        });
        assert_eq!(votes.winner(false, 0), Some((HOME, 0).into()));
    }

    #[test]
    fn strangers_can_not_vote_for_a_private_address_and_private_nodes_vote_by_port() {
        let mut votes = Votes::default();
        for number in 0..20 {
            votes.add(voter(number), ([192, 168, 0, 7], 30303).into(), 0);
            votes.add(voter(number), ([0, 0, 0, 0], 30303).into(), 0);
            votes.add(voter(number), (HOME, 0).into(), 0);
        }
        assert!(votes.votes.is_empty());
        for port in 1..=10 {
            let voter = ([192, 168, 0, 1], port).into();
            votes.add(voter, ([192, 168, 0, 7], 30303).into(), 0);
        }
        assert!(votes.winner(false, 0).is_some());
    }

    #[test]
    fn at_most_256_votes_are_remembered() {
        let mut votes = Votes::default();
        for number in 0..1000_u64 {
            let [.., a, b] = number.to_be_bytes();
            votes.add(([8, a, b, 1], 1).into(), (HOME, 1).into(), number);
        }
        assert_eq!(votes.votes.len(), MAX_VOTES);
        let oldest = votes.votes.values().map(|vote| vote.at_ms).min();
        assert_eq!(oldest, Some(1000 - MAX_VOTES as u64));
    }
}
