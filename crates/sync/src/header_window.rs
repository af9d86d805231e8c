//! A window of headers, asked from the highest down, of many peers at a time: each header is accepted once its hash is what the
//! header above it names as its parent. Pure: answers in, outcomes and linked headers out.
//!
//! ```text
//!  expected hash --> [linked, linked, linked | ?, answer, answer, ?, answer]
//!                     top                      ^ the next to link
//! ```
//!
//! By number, peers answer with their own canonical chain, which may be another branch than the target's: what does not link is
//! dropped, and is no lie. What is not even linked in itself is one. Where peers are on other branches, the next window is asked by
//! hash ([`Approach::Hash`]): from one peer at a time, and every wrong answer is proved wrong.

use crate::source::MakeRequest;
use niwaki_network::peers::Conduct;
use niwaki_network::router::Outcome;
use niwaki_network::wire::{BlockId, Request};
use niwaki_primitives::{B256, Header};
use niwaki_rules::ChainSpec;
use std::ops::Range;

/// Most headers of one answer.
pub(crate) const MAX_ANSWER_HEADERS: u32 = 192;

/// A header with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedHeader {
    pub(crate) hash: B256,
    pub(crate) header: Header,
}

impl SealedHeader {
    /// A header of a chain with these rules.
    pub(crate) fn new(header: Header, spec: &ChainSpec) -> Self {
        let hash = spec.header_hash(&header);
        Self { hash, header }
    }
}

/// How headers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approach {
    /// By their numbers, each piece of another peer.
    Numbers,
    /// Down from the hash of the first: one request.
    Hash,
}

/// The window.
#[derive(Debug)]
pub(crate) struct HeaderWindow {
    /// The number of the first header; the others go down from it.
    top: u64,
    approach: Approach,
    /// The hash that the next header to link must have.
    expected: B256,
    slots: Vec<Option<SealedHeader>>,
    linked: usize,
    given_out: usize,
    has_unlinked: bool,
}

impl HeaderWindow {
    /// The headers from number `top`, whose hash is `expected`, down: `count` of them, or as many as there are.
    pub(crate) fn new(top: u64, expected: B256, count: u32, approach: Approach) -> Self {
        let count = match approach {
            Approach::Numbers => count,
            Approach::Hash => count.min(MAX_ANSWER_HEADERS),
        };
        let there_are = top.saturating_add(1);
        let count = u64::from(count.max(1)).min(there_are);
        Self {
            top,
            approach,
            expected,
            slots: (0..count).map(|_| None).collect(),
            linked: 0,
            given_out: 0,
            has_unlinked: false,
        }
    }

    /// How many items a job for it has.
    pub(crate) fn items(&self) -> u32 {
        match self.approach {
            Approach::Numbers => u32::try_from(self.slots.len()).unwrap_or(u32::MAX),
            Approach::Hash => 1,
        }
    }

    /// The requests of the job.
    pub(crate) fn request(&self) -> MakeRequest {
        let (top, expected, count) = (self.top, self.expected, self.slots.len() as u64);
        let headers = |start, limit| Request::Headers {
            start,
            limit,
            skip: 0,
            reverse: true,
        };
        match self.approach {
            Approach::Numbers => Box::new(move |items| {
                let start = BlockId::Number(top.saturating_sub(u64::from(items.start)));
                headers(start, items.len() as u64)
            }),
            Approach::Hash => Box::new(move |_| headers(BlockId::Hash(expected), count)),
        }
    }

    /// Takes an answer.
    pub(crate) fn take(&mut self, items: &Range<u32>, headers: Vec<SealedHeader>) -> Outcome {
        let all_missing = Outcome::Items {
            missing: vec![items.clone()],
        };
        let (start, asked) = match self.approach {
            Approach::Numbers => (items.start as usize, items.len()),
            Approach::Hash => (0, self.slots.len()),
        };
        if headers.len() > asked {
            return Outcome::Wrong(Conduct::BadMessage);
        }
        let Some(first) = headers.first() else {
            return all_missing;
        };
        if !self.is_linked_in_itself(start, &headers) {
            return Outcome::Wrong(Conduct::Lie);
        }
        if start == self.linked && first.hash != self.expected {
            return match self.approach {
                Approach::Hash => Outcome::Wrong(Conduct::Lie),
                Approach::Numbers => {
                    self.has_unlinked = true;
                    all_missing
                }
            };
        }
        let got = headers.len();
        let slots = self.slots.get_mut(start..).unwrap_or_default();
        for (slot, header) in slots.iter_mut().zip(headers) {
            // A repeated answer must not replace what is linked already, and given out.
            slot.get_or_insert(header);
        }
        self.link();
        let missing = match self.approach {
            Approach::Numbers if got < asked => {
                let from = items.end - u32::try_from(asked - got).unwrap_or(0);
                std::iter::once(from..items.end).collect()
            }
            _ => Vec::new(),
        };
        Outcome::Items { missing }
    }

    /// Whether the numbers go down by one from that of slot `start`, and each header is the parent of the one before it.
    fn is_linked_in_itself(&self, start: usize, headers: &[SealedHeader]) -> bool {
        let first = self.top.checked_sub(start as u64);
        let numbers = (0_u64..).map(|index| first.and_then(|first| first.checked_sub(index)));
        let is_numbered = headers
            .iter()
            .zip(numbers)
            .all(|(header, number)| Some(header.header.number) == number);
        let mut pairs = headers.windows(2);
        is_numbered
            && pairs.all(|pair| match pair {
                [child, parent] => child.header.parent_hash == parent.hash,
                _ => true,
            })
    }

    fn link(&mut self) {
        self.linked = self.linked.max(self.given_out);
        while let Some(Some(next)) = self.slots.get(self.linked) {
            if next.hash != self.expected {
                self.has_unlinked = true;
                self.drop_branch();
                return;
            }
            self.expected = next.header.parent_hash;
            self.linked += 1;
        }
    }

    /// Drops the headers from the next one to link down as far as they are linked with each other: they are of another branch.
    fn drop_branch(&mut self) {
        let mut parent = None;
        for slot in self.slots.iter_mut().skip(self.linked) {
            let is_of_branch = slot
                .as_ref()
                .is_some_and(|slot| parent.is_none_or(|parent| slot.hash == parent));
            if !is_of_branch {
                return;
            }
            parent = slot.take().map(|dropped| dropped.header.parent_hash);
        }
    }

    /// The headers that were linked since the last call, from the highest down.
    pub(crate) fn take_linked(&mut self) -> Vec<SealedHeader> {
        let range = self.given_out..self.linked;
        self.given_out = self.linked;
        let slots = self.slots.get_mut(range).unwrap_or_default();
        // The slots stay filled: an answer that is repeated finds them so.
        slots.iter().flatten().cloned().collect()
    }

    /// Whether all headers are linked.
    pub(crate) fn is_complete(&self) -> bool {
        self.linked == self.slots.len()
    }

    /// How many are linked.
    pub(crate) fn linked(&self) -> usize {
        self.linked
    }

    /// Whether an answer did not link to the header above it.
    pub(crate) fn has_unlinked(&self) -> bool {
        self.has_unlinked
    }
}

#[cfg(test)]
mod tests;
