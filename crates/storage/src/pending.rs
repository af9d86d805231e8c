//! Batches that are not in the engine yet, and how they are read.
//!
//! A batch is immutable once it is here. It is indexed when it is first read, which is seldom on
//! the thread that made it.

use crate::batch::ChangeRef;
use crate::{Batch, Segment};
use niwaki_primitives::map::{DefaultHashBuilder, HashMap};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

/// Batches that wait for the engine, oldest first: those above the engine's own state.
pub(crate) type Stack = Arc<Vec<Arc<Pending>>>;

/// What the batches of a stack say of a key: `None` if nothing, `Some(None)` that it is deleted.
pub(crate) fn find<'a>(
    stack: &'a [Arc<Pending>],
    segment: Segment,
    key: &[u8],
) -> Option<Option<&'a [u8]>> {
    stack.iter().rev().find_map(|batch| batch.get(segment, key))
}

/// Keys with their values, or `None` for those that are deleted.
pub(crate) type Found = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What the batches of a stack say of the keys from `from` on, up to and without `to`.
pub(crate) fn find_range(
    stack: &[Arc<Pending>],
    segment: Segment,
    from: &[u8],
    to: Option<&[u8]>,
) -> Found {
    let mut found = Found::new();
    for batch in stack {
        for (_, key, value) in batch.range(segment, from, to) {
            found.insert(key.into(), value.map(Into::into));
        }
    }
    found
}

/// One batch.
pub(crate) struct Pending {
    batch: Batch,
    index: OnceLock<Index>,
    /// Per segment, its changes in the order of their keys, of each key the one that holds.
    sorted: [OnceLock<Vec<u32>>; Segment::ALL.len()],
}

/// Where a key is changed.
struct Index {
    hasher: DefaultHashBuilder,
    /// From the hash of segment and key to the last change with that hash.
    last: HashMap<u64, u32>,
    /// For each change the one before it with the same hash, or [`NONE`].
    before: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Pending {
    pub(crate) fn new(batch: Batch) -> Self {
        Self {
            batch,
            index: OnceLock::new(),
            sorted: Default::default(),
        }
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }

    /// What this batch makes of `key`: `None` if nothing, `Some(None)` that it is deleted.
    pub(crate) fn get(&self, segment: Segment, key: &[u8]) -> Option<Option<&[u8]>> {
        self.find(segment, key).map(|index| self.change(index).2)
    }

    /// Whether change number `index` is the one that holds for its key.
    pub(crate) fn holds(&self, index: usize) -> bool {
        let (segment, key, _) = self.batch.change(index);
        self.find(segment, key)
            .is_some_and(|at| at as usize == index)
    }

    fn find(&self, segment: Segment, key: &[u8]) -> Option<u32> {
        let index = self.index.get_or_init(|| Index::of(&self.batch));
        let mut at = *index.last.get(&index.hash(segment, key))?;
        while at != NONE {
            let (own_segment, own_key, _) = self.change(at);
            if own_segment == segment && own_key == key {
                return Some(at);
            }
            at = index.before[at as usize];
        }
        None
    }

    fn range(
        &self,
        segment: Segment,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> impl Iterator<Item = ChangeRef<'_>> {
        let sorted = self.sorted[segment as usize].get_or_init(|| self.sort(segment));
        let start = sorted.partition_point(|index| self.change(*index).1 < from);
        let before_end = |index: &u32| to.is_none_or(|to| self.change(*index).1 < to);
        let end = sorted.partition_point(before_end).max(start);
        sorted[start..end].iter().map(|index| self.change(*index))
    }

    fn sort(&self, segment: Segment) -> Vec<u32> {
        let changes = (0_u32..).zip(self.batch.changes());
        let own = changes.filter(|(_, change)| change.0 == segment);
        let mut sorted: Vec<u32> = own.map(|(index, _)| index).collect();
        // Stable: of equal keys the last change stays last, and is the one that is kept.
        sorted.sort_by_key(|index| self.change(*index).1);
        sorted.reverse();
        sorted.dedup_by_key(|index| self.change(*index).1);
        sorted.reverse();
        sorted
    }

    fn change(&self, index: u32) -> ChangeRef<'_> {
        self.batch.change(index as usize)
    }
}

impl Index {
    fn of(batch: &Batch) -> Self {
        let mut index = Self {
            hasher: DefaultHashBuilder::default(),
            last: HashMap::with_capacity_and_hasher(batch.len(), Default::default()),
            before: Vec::with_capacity(batch.len()),
        };
        for (at, (segment, key, _)) in (0_u32..).zip(batch.changes()) {
            let hash = index.hash(segment, key);
            let before = index.last.insert(hash, at);
            index.before.push(before.unwrap_or(NONE));
        }
        index
    }

    fn hash(&self, segment: Segment, key: &[u8]) -> u64 {
        self.hasher.hash_one((segment, key))
    }
}
