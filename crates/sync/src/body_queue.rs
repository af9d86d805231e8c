//! Bodies on their way to the import: headers in order go in, answers of peers in any order, whole blocks in order come out. Pure.
//!
//! A body is known by the three fields of the header that follow from it: the roots of transactions and withdrawals, and the hash of
//! the ommers. A body that fits none of the headers it was asked for is a lie. Bodies that can be nothing but empty are not asked for.

use crate::header_window::SealedHeader;
use niwaki_chain::body_roots;
use niwaki_network::peers::Conduct;
use niwaki_network::router::Outcome;
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{
    B256, BlockBody, EMPTY_OMMER_ROOT_HASH, EMPTY_ROOT_HASH, Header, Withdrawals,
};
use niwaki_rules::BodyRoots;
use std::collections::VecDeque;
use std::ops::Range;

/// A body in memory is about so many times its RLP.
const MEMORY_OF_RLP: usize = 2;
/// Answers with fewer bodies are checked on the calling thread.
const MIN_PARALLEL: usize = 4;

/// A body and what a header says of it.
#[derive(Clone, Debug)]
pub(crate) struct CheckedBody {
    pub(crate) body: BlockBody,
    pub(crate) roots: BodyRoots,
    pub(crate) ommers: B256,
    /// Of memory, estimated.
    pub(crate) bytes: usize,
}

impl CheckedBody {
    pub(crate) fn new(body: BlockBody) -> Self {
        Self {
            roots: body_roots(&body),
            ommers: match body.ommers.is_empty() {
                true => EMPTY_OMMER_ROOT_HASH,
                false => body.calculate_ommers_root(),
            },
            bytes: MEMORY_OF_RLP * body.length(),
            body,
        }
    }

    /// Computes the roots of an answer's bodies on `threads` threads.
    pub(crate) fn of_answer(bodies: Vec<BlockBody>, threads: usize) -> Vec<Self> {
        if bodies.len() < MIN_PARALLEL || threads < 2 {
            return bodies.into_iter().map(Self::new).collect();
        }
        let each = bodies.len().div_ceil(threads);
        let mut parts = Vec::new();
        let mut bodies = bodies.into_iter();
        loop {
            let part: Vec<_> = bodies.by_ref().take(each).collect();
            if part.is_empty() {
                break;
            }
            parts.push(part);
        }
        std::thread::scope(|scope| {
            let check = |part: Vec<BlockBody>| part.into_iter().map(Self::new).collect::<Vec<_>>();
            let threads: Vec<_> = parts
                .into_iter()
                .map(|part| scope.spawn(move || check(part)))
                .collect();
            let parts = threads.into_iter();
            parts
                .flat_map(|thread| thread.join().expect("roots of a decoded body do not panic"))
                .collect()
        })
    }

    pub(crate) fn fits(&self, header: &Header) -> bool {
        self.roots.transactions == header.transactions_root
            && self.roots.withdrawals == header.withdrawals_root
            && self.ommers == header.ommers_hash
    }

    /// The body of a header that says that it is empty.
    fn empty(header: &Header) -> Option<Self> {
        let has_no_withdrawals = header
            .withdrawals_root
            .is_none_or(|root| root == EMPTY_ROOT_HASH);
        let is_empty = header.transactions_root == EMPTY_ROOT_HASH
            && header.ommers_hash == EMPTY_OMMER_ROOT_HASH
            && has_no_withdrawals;
        is_empty.then(|| {
            Self::new(BlockBody {
                transactions: Vec::new(),
                ommers: Vec::new(),
                withdrawals: header.withdrawals_root.map(|_| Withdrawals::default()),
            })
        })
    }
}

#[derive(Debug)]
struct Slot {
    header: SealedHeader,
    body: Option<CheckedBody>,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct BodyQueue {
    slots: VecDeque<Slot>,
    /// How many blocks have come out.
    popped: usize,
    /// The items of the present job, as places: counted from the first block that ever went in.
    asked: Vec<usize>,
    bytes: usize,
}

impl BodyQueue {
    /// Appends the next header.
    pub(crate) fn push(&mut self, header: SealedHeader) {
        let body = CheckedBody::empty(&header.header);
        self.bytes += body.as_ref().map_or(0, |body| body.bytes);
        self.slots.push_back(Slot { header, body });
    }

    /// How many blocks are in it, with or without body.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the bodies in it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Chooses the items of a new job: up to `most` blocks without body, lowest first. Their hashes.
    pub(crate) fn plan(&mut self, most: usize) -> Vec<B256> {
        let lacking = self.slots.iter().enumerate();
        let lacking = lacking.filter(|(_, slot)| slot.body.is_none()).take(most);
        let (places, hashes) = lacking
            .map(|(index, slot)| (self.popped + index, slot.header.hash))
            .unzip();
        self.asked = places;
        hashes
    }

    /// Takes an answer to the present job.
    pub(crate) fn take(&mut self, items: &Range<u32>, bodies: Vec<CheckedBody>) -> Outcome {
        if bodies.len() > items.len() {
            return Outcome::Wrong(Conduct::BadMessage);
        }
        let mut left = items.clone();
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for body in bodies {
            // An answer keeps the order of the request and leaves out what the peer lacks.
            let from = left.start;
            let Some(item) = left.find(|item| self.is_of(*item, &body)) else {
                return Outcome::Wrong(Conduct::Lie);
            };
            found.push((item, body));
            if from < item {
                missing.push(from..item);
            }
        }
        if !left.is_empty() {
            missing.push(left);
        }
        for (item, body) in found {
            self.put(item, body);
        }
        Outcome::Items { missing }
    }

    /// Whether the body is that of an item. One that has come out already fits every body: it is not looked at again.
    fn is_of(&self, item: u32, body: &CheckedBody) -> bool {
        let Some(place) = self.asked.get(item as usize) else {
            return false;
        };
        match place.checked_sub(self.popped) {
            None => true,
            Some(index) => {
                let slot = self.slots.get(index);
                slot.is_some_and(|slot| body.fits(&slot.header.header))
            }
        }
    }

    fn put(&mut self, item: u32, body: CheckedBody) {
        let place = self.asked.get(item as usize);
        let index = place.and_then(|place| place.checked_sub(self.popped));
        let slot = index.and_then(|index| self.slots.get_mut(index));
        if let Some(slot) = slot.filter(|slot| slot.body.is_none()) {
            self.bytes += body.bytes;
            slot.body = Some(body);
        }
    }

    /// The lowest block, if its body is there.
    pub(crate) fn pop(&mut self) -> Option<(SealedHeader, CheckedBody)> {
        let body = self.slots.front_mut()?.body.take()?;
        let slot = self.slots.pop_front()?;
        self.popped += 1;
        self.bytes = self.bytes.saturating_sub(body.bytes);
        Some((slot.header, body))
    }

    /// Whether the bodies have at most so many bytes. If the lowest block waits for its body, nothing can come out: then bodies above it
    /// are dropped, highest first, until they have.
    pub(crate) fn make_room(&mut self, most_bytes: usize) -> bool {
        let is_stuck = self.slots.front().is_some_and(|slot| slot.body.is_none());
        for slot in self.slots.iter_mut().rev().filter(|_| is_stuck) {
            if self.bytes <= most_bytes {
                break;
            }
            let dropped = slot.body.take().map_or(0, |body| body.bytes);
            self.bytes = self.bytes.saturating_sub(dropped);
        }
        self.bytes <= most_bytes
    }
}

#[cfg(test)]
mod tests;
