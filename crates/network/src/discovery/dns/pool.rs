//! Which entries of a list are left in a walk.

use super::entry::EntryName;
use rand::Rng;
use rand::rngs::SmallRng;

/// An entry that was not visited in this walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unvisited {
    pub(super) name: EntryName,
    /// Of the tree of links.
    pub(super) is_link: bool,
}

/// Entries in no order. Those of the tree of links are taken first.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) links: Vec<Unvisited>,
    pub(super) records: Vec<Unvisited>,
}

impl Pool {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty() && self.records.is_empty()
    }

    pub(super) fn add(&mut self, entry: Unvisited) {
        match entry.is_link {
            true => self.links.push(entry),
            false => self.records.push(entry),
        }
    }

    /// A random one.
    pub(super) fn take(&mut self, rng: &mut SmallRng) -> Option<Unvisited> {
        let entries = match self.links.is_empty() {
            true => &mut self.records,
            false => &mut self.links,
        };
        let length = entries.len();
        (length != 0).then(|| entries.swap_remove(rng.random_range(0..length)))
    }
}
