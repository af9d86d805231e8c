//! The table: nodes that answered, in buckets by the distance of their positions from ours.
//!
//! ```text
//! bucket 16   half of all nodes: their first bit is not ours           each bucket: 16 entries, which answered and are
//! bucket 15   a quarter                                                             asked and named to others, and
//! ...                                                                               10 replacements, which answered, and of
//! bucket 0    the 2^-16 whose first 16 bits are ours                                which one takes a removed entry's place
//! ```
//!
//! A full bucket keeps its entries as long as they answer: who has been there long is likely to stay, and a flood of new nodes can't
//! push them out. Of one subnet (/24, /64) at most 2 are in a bucket and 10 in the table; private addresses are not counted.

use super::{Contact, distance};
use crate::key::NodeId;
use crate::subnet::{Subnet, Width};
use niwaki_primitives::B256;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Nodes in a bucket, and in an answer to FindNode.
pub(crate) const BUCKET_ENTRIES: usize = 16;

const BUCKETS: usize = 17;
const BUCKET_REPLACEMENTS: usize = 10;
const SUBNET_PER_BUCKET: usize = 2;
const SUBNET_PER_TABLE: usize = 10;

/// So many queries in a row without an answer, and the node is removed.
const MAX_FAILED_QUERIES: u8 = 5;

/// A check that fails leaves a third of the passed ones; a node with none is removed.
const FAILED_CHECK_DIVISOR: u32 = 3;

#[derive(Clone, Debug)]
struct Entry {
    contact: Contact,
    /// Checks that it passed since it entered, less after a failed one.
    checks: u32,
    failed_queries: u8,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// The oldest first.
    replacements: VecDeque<Entry>,
}

impl Bucket {
    fn contacts(&self) -> impl Iterator<Item = &Contact> {
        let all = self.entries.iter().chain(&self.replacements);
        all.map(|entry| &entry.contact)
    }
}

/// What became of a node that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It was not in the table.
    New,
    /// It was.
    Known,
    /// Its bucket is full: it may replace a node.
    Replacement,
    /// It is ours, or its subnet has enough nodes.
    Refused,
}

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    own: B256,
    buckets: [Bucket; BUCKETS],
}

impl Table {
    /// The empty table of the node with this id.
    pub(crate) fn new(own: NodeId) -> Self {
        Self {
            own: own.position(),
            buckets: Default::default(),
        }
    }

    fn index(&self, position: &B256) -> usize {
        let shared = distance(&self.own, position);
        let zeros = shared.iter().position(|byte| *byte != 0);
        let zeros = zeros.map_or(256, |at| at * 8 + shared[at].leading_zeros() as usize);
        (BUCKETS - 1).saturating_sub(zeros)
    }

    fn bucket_mut(&mut self, position: &B256) -> &mut Bucket {
        let index = self.index(position);
        &mut self.buckets[index]
    }

    fn entry(&self, id: NodeId, position: &B256) -> Option<&Entry> {
        let bucket = &self.buckets[self.index(position)];
        bucket.entries.iter().find(|entry| entry.contact.id == id)
    }

    fn entry_mut(&mut self, contact: &Contact) -> Option<&mut Entry> {
        let mut entries = self.bucket_mut(&contact.position).entries.iter_mut();
        entries.find(|entry| entry.contact.id == contact.id)
    }

    /// The entry of a node.
    pub(crate) fn get(&self, id: NodeId, position: &B256) -> Option<&Contact> {
        self.entry(id, position).map(|entry| &entry.contact)
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        let lengths = self.buckets.iter().map(|bucket| bucket.entries.len());
        lengths.sum()
    }

    /// Whether the subnet of `address` has room for `contact`, which is not counted itself.
    fn subnet_has_room(&self, contact: &Contact, address: SocketAddr) -> bool {
        let Some(subnet) = Subnet::of(address.ip(), Width::TABLE) else {
            return true;
        };
        let same = |bucket: &Bucket| {
            let others = bucket.contacts().filter(|other| other.id != contact.id);
            let same =
                others.filter(|other| Subnet::of(other.address.ip(), Width::TABLE) == Some(subnet));
            same.count()
        };
        same(&self.buckets[self.index(&contact.position)]) < SUBNET_PER_BUCKET
            && self.buckets.iter().map(same).sum::<usize>() < SUBNET_PER_TABLE
    }

    /// Whether a node that is not in the table would become an entry if it answered.
    pub(crate) fn has_room(&self, contact: &Contact) -> bool {
        let bucket = &self.buckets[self.index(&contact.position)];
        contact.position != self.own
            && bucket.entries.len() < BUCKET_ENTRIES
            && !bucket.contacts().any(|other| other.id == contact.id)
            && self.subnet_has_room(contact, contact.address)
    }

    /// Takes a node that just answered at this address. A known one gets the new address, port and record.
    pub(crate) fn insert(&mut self, contact: Contact) -> Inserted {
        if contact.position == self.own || !self.subnet_has_room(&contact, contact.address) {
            return Inserted::Refused;
        }
        let entry = |contact| Entry {
            contact,
            checks: 0,
            failed_queries: 0,
        };
        let bucket = self.bucket_mut(&contact.position);
        let known = bucket.entries.iter_mut();
        if let Some(known) = known
            .map(|entry| &mut entry.contact)
            .find(|known| known.id == contact.id)
        {
            *known = contact;
            return Inserted::Known;
        }
        bucket
            .replacements
            .retain(|known| known.contact.id != contact.id);
        if bucket.entries.len() < BUCKET_ENTRIES {
            bucket.entries.push(entry(contact));
            return Inserted::New;
        }
        if bucket.replacements.len() == BUCKET_REPLACEMENTS {
            bucket.replacements.pop_front();
        }
        bucket.replacements.push_back(entry(contact));
        Inserted::Replacement
    }

    /// Removes an entry; a random replacement takes its place.
    pub(crate) fn remove(&mut self, contact: &Contact, rng: &mut SmallRng) {
        let bucket = self.bucket_mut(&contact.position);
        let before = bucket.entries.len();
        bucket
            .entries
            .retain(|entry| entry.contact.id != contact.id);
        if bucket.entries.len() < before && !bucket.replacements.is_empty() {
            let at = rng.random_range(0..bucket.replacements.len());
            bucket.entries.extend(bucket.replacements.remove(at));
        }
    }

    /// The entries closest to a position, the closest first.
    pub(crate) fn closest(
        &self,
        target: &B256,
        count: usize,
        keep: impl Fn(&Contact) -> bool,
    ) -> Vec<Contact> {
        let entries = self.buckets.iter().flat_map(|bucket| &bucket.entries);
        let contacts = entries.map(|entry| &entry.contact);
        let mut contacts: Vec<&Contact> = contacts.filter(|contact| keep(contact)).collect();
        contacts.sort_by_cached_key(|contact| distance(target, &contact.position));
        contacts.into_iter().take(count).cloned().collect()
    }

    /// A random entry that passed no check yet, or one that did.
    pub(crate) fn to_check(&self, is_new: bool, rng: &mut SmallRng) -> Option<Contact> {
        let entries = self.buckets.iter().flat_map(|bucket| &bucket.entries);
        let entries: Vec<&Entry> = entries
            .filter(|entry| (entry.checks == 0) == is_new)
            .collect();
        let at = (!entries.is_empty()).then(|| rng.random_range(0..entries.len()))?;
        entries.get(at).map(|entry| entry.contact.clone())
    }

    /// A node answered a check.
    pub(crate) fn passed_check(&mut self, contact: &Contact) {
        if let Some(entry) = self.entry_mut(contact) {
            entry.checks = entry.checks.saturating_add(1);
        }
    }

    /// A node did not answer a check: after enough of them it is removed. Returns whether it was.
    pub(crate) fn failed_check(&mut self, contact: &Contact, rng: &mut SmallRng) -> bool {
        let checks = self.entry_mut(contact).map(|entry| {
            entry.checks /= FAILED_CHECK_DIVISOR;
            entry.checks
        });
        let is_removed = checks == Some(0);
        if is_removed {
            self.remove(contact, rng);
        }
        is_removed
    }

    /// A node answered FindNode.
    pub(crate) fn answered_query(&mut self, contact: &Contact) {
        if let Some(entry) = self.entry_mut(contact) {
            entry.failed_queries = 0;
        }
    }

    /// A node did not answer FindNode: after five times in a row it is removed.
    pub(crate) fn failed_query(&mut self, contact: &Contact, rng: &mut SmallRng) {
        let failed = self.entry_mut(contact).map(|entry| {
            entry.failed_queries = entry.failed_queries.saturating_add(1);
            entry.failed_queries
        });
        if failed >= Some(MAX_FAILED_QUERIES) {
            self.remove(contact, rng);
        }
    }
}

#[cfg(test)]
mod tests;
