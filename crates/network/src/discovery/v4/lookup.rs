//! One look-up: which node is asked next, and when there is none left.
//!
//! Of the nodes that it heard of, the 16 closest to the target count, without those that did not answer. At most 3 are asked at once,
//! the closest first; it ends when all 16 have answered, or after 64 queries, because a stranger can invent ever closer nodes.
//!
//! Spec: devp2p `discv4.md`, "Recursive Lookup".

use super::table::BUCKET_ENTRIES;
use super::{Contact, distance};
use crate::key::NodeId;
use niwaki_primitives::B256;
use std::collections::HashSet;

/// Most queries in flight.
pub(crate) const ALPHA: usize = 3;

const MAX_QUERIES: usize = 64;

/// Most nodes that a look-up remembers, of those that it may still ask.
const MAX_CANDIDATES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Asked,
    Answered,
}

#[derive(Clone, Debug)]
struct Candidate {
    distance: B256,
    contact: Contact,
    state: State,
}

/// A look-up.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    target: NodeId,
    position: B256,
    /// The closest first; nodes that failed are not in it.
    candidates: Vec<Candidate>,
    /// Nodes that are or were in it.
    heard_of: HashSet<NodeId>,
    queries: usize,
}

impl Lookup {
    /// A look-up of `target` that begins with these nodes.
    pub(crate) fn new(target: NodeId, first: Vec<Contact>) -> Self {
        let mut lookup = Self {
            target,
            position: target.position(),
            candidates: Vec::new(),
            heard_of: HashSet::new(),
            queries: 0,
        };
        lookup.add(first);
        lookup
    }

    /// What is looked for.
    pub(crate) fn target(&self) -> NodeId {
        self.target
    }

    fn add(&mut self, contacts: Vec<Contact>) {
        for contact in contacts {
            if self.heard_of.insert(contact.id) {
                self.candidates.push(Candidate {
                    distance: distance(&self.position, &contact.position),
                    contact,
                    state: State::Waiting,
                });
            }
        }
        self.candidates.sort_by_key(|candidate| candidate.distance);
        let mut waiting = 0;
        self.candidates.retain(|candidate| {
            waiting += usize::from(candidate.state == State::Waiting);
            candidate.state != State::Waiting || waiting <= MAX_CANDIDATES
        });
    }

    fn in_flight(&self) -> usize {
        let asked = self
            .candidates
            .iter()
            .filter(|candidate| candidate.state == State::Asked);
        asked.count()
    }

    /// The node to ask now; it counts as asked.
    pub(crate) fn next(&mut self) -> Option<Contact> {
        if self.in_flight() >= ALPHA || self.queries >= MAX_QUERIES {
            return None;
        }
        let mut closest = self.candidates.iter_mut().take(BUCKET_ENTRIES);
        let next = closest.find(|candidate| candidate.state == State::Waiting)?;
        next.state = State::Asked;
        self.queries += 1;
        Some(next.contact.clone())
    }

    /// Whether it is over: nothing is in flight and no node is left to ask.
    pub(crate) fn is_finished(&self) -> bool {
        let mut closest = self.candidates.iter().take(BUCKET_ENTRIES);
        let is_left = closest.any(|candidate| candidate.state == State::Waiting);
        self.in_flight() == 0 && (!is_left || self.queries >= MAX_QUERIES)
    }

    /// The nodes that it did not ask.
    pub(crate) fn unasked(&self) -> Vec<Contact> {
        let waiting = self.candidates.iter();
        let waiting = waiting.filter(|candidate| candidate.state == State::Waiting);
        waiting.map(|candidate| candidate.contact.clone()).collect()
    }

    /// A node answered with these.
    pub(crate) fn answered(&mut self, id: NodeId, contacts: Vec<Contact>) {
        let asked = self.candidates.iter_mut().find(|c| c.contact.id == id);
        if let Some(asked) = asked {
            asked.state = State::Answered;
        }
        self.add(contacts);
    }

    /// A node did not answer.
    pub(crate) fn failed(&mut self, id: NodeId) {
        self.candidates
            .retain(|candidate| candidate.contact.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::FixedBytes;

    fn contact(number: u16) -> Contact {
        let mut id = FixedBytes::ZERO;
        id[..2].copy_from_slice(&number.to_be_bytes());
        Contact::new(NodeId(id), ([127, 0, 0, 1], number).into(), 0)
    }

    fn target() -> NodeId {
        contact(u16::MAX).id
    }

    #[test]
    fn three_are_asked_at_once_and_the_closest_first() {
        let mut all: Vec<_> = (1..100).map(contact).collect();
        let mut lookup = Lookup::new(target(), all.clone());
        all.sort_by_key(|contact| distance(&target().position(), &contact.position));
        for expected in &all[..3] {
            assert_eq!(lookup.next().as_ref(), Some(expected));
        }
        assert_eq!(lookup.next(), None);
        lookup.answered(all[1].id, Vec::new());
        assert_eq!(lookup.next().as_ref(), Some(&all[3]));
        lookup.failed(all[0].id);
        assert_eq!(lookup.next().as_ref(), Some(&all[4]));
        assert_eq!(lookup.next(), None);
    }

    #[test]
    fn it_ends_with_answers_of_the_16_closest_that_answer() {
        let all: Vec<_> = (1..60).map(contact).collect();
        let silent = |contact: &Contact| contact.address.port().is_multiple_of(3);
        let mut lookup = Lookup::new(target(), all[..5].to_vec());
        let mut answered = Vec::new();
        while !lookup.is_finished() {
            let asked: Vec<_> = std::iter::from_fn(|| lookup.next()).collect();
            assert!(!asked.is_empty());
            for contact in asked {
                if silent(&contact) {
                    lookup.failed(contact.id);
                } else {
                    lookup.answered(contact.id, all.clone());
                    answered.push(contact.id);
                }
            }
        }
        let mut expected: Vec<_> = all.iter().filter(|contact| !silent(contact)).collect();
        expected.sort_by_key(|contact| distance(&target().position(), &contact.position));
        for contact in &expected[..16] {
            assert!(answered.contains(&contact.id));
        }
    }

    #[test]
    fn nodes_that_invent_ever_more_nodes_are_asked_64_times() {
        let mut lookup = Lookup::new(target(), vec![contact(1)]);
        let (mut number, mut queries) = (2, 0);
        while !lookup.is_finished() {
            while let Some(contact) = lookup.next() {
                queries += 1;
                let invented = (number..number + 16).map(self::contact).collect();
                number += 16;
                lookup.answered(contact.id, invented);
                assert!(lookup.candidates.len() <= MAX_CANDIDATES + MAX_QUERIES);
            }
        }
        assert!(queries <= MAX_QUERIES);
    }

    #[test]
    fn a_look_up_without_nodes_is_over() {
        let mut lookup = Lookup::new(target(), Vec::new());
        assert!(lookup.is_finished());
        assert_eq!(lookup.next(), None);
    }
}
