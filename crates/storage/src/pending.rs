//! Batches that are not in the engine yet, and how they are read.
//!
//! A batch is immutable once it is here. It is completed and indexed when it is first read, or by
//! the writer's thread if that comes first: seldom on the thread that made it.

use crate::batch::{ChangeRef, Then};
use crate::marks::Marks;
use crate::{Batch, Later, Segment};
use niwaki_primitives::map::{DefaultHashBuilder, HashMap};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// Batches that wait for the engine, oldest first: those above the engine's own state.
pub(crate) type Stack = Arc<Vec<Arc<Pending>>>;

/// What the batches of a stack say of a key: `None` if nothing, `Some(None)` that it is deleted.
pub(crate) fn find<'a>(
    stack: &'a [Arc<Pending>],
    segment: Segment,
    key: &[u8],
) -> Option<Option<&'a [u8]>> {
    if stack.is_empty() {
        return None;
    }
    let (batch, index) = newest(stack, hash(segment, key), segment, key)?;
    Some(batch.change(index).2)
}

/// The last batch of a stack that has `key`, whose [`hash`] is given, and the change that holds in it.
fn newest<'a>(
    stack: &'a [Arc<Pending>],
    hash: u64,
    segment: Segment,
    key: &[u8],
) -> Option<(&'a Pending, u32)> {
    // To ask so few is quicker than to look which.
    const FEW: usize = 3;
    let mut named = match stack {
        [first, .., _] if stack.len() > FEW => {
            let Place { marks, number } = &first.place;
            marks.may_have(hash, *number, stack.len())
        }
        _ => (1 << stack.len()) - 1,
    };
    while named != 0 {
        let last = named.ilog2();
        let batch = &stack[last as usize];
        if let Some(index) = batch.find(hash, segment, key) {
            return Some((batch, index));
        }
        named ^= 1 << last;
    }
    None
}

/// Takes `group`, the first of those that wait, out of the table of marks. The engine has them.
pub(crate) fn clear_marks(group: &[Arc<Pending>]) {
    if let Some(Place { marks, number }) = group.last().map(|batch| &batch.place) {
        marks.keep_from(number + 1);
    }
    for batch in group {
        let hashes = batch.index().last.keys().copied();
        batch.place.marks.clear(batch.place.number, hashes);
    }
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
    /// What it is made of, until it is whole.
    parts: Mutex<Option<(Batch, Later)>>,
    whole: OnceLock<Batch>,
    /// What the writer does when it is ready.
    then: Mutex<Option<Then>>,
    /// What it counts for, as far as that was known when it came.
    held: Held,
    place: Place,
    index: OnceLock<Index>,
    /// Per segment, its changes in the order of their keys, of each key the one that holds.
    sorted: [OnceLock<Vec<u32>>; Segment::ALL.len()],
}

/// The number of a batch, counted from the first that ever came, and the table of all that wait.
pub(crate) struct Place {
    pub(crate) marks: Arc<Marks>,
    pub(crate) number: u64,
}

/// Bytes in memory, counted in a total until this is dropped.
struct Held {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Held {
    fn new(bytes: usize, total: &Arc<AtomicUsize>) -> Self {
        // A figure: no other memory hangs on it.
        total.fetch_add(bytes, Ordering::Relaxed);
        let total = Arc::clone(total);
        Self { bytes, total }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where a key is changed.
struct Index {
    /// From the hash of segment and key to the last change with that hash.
    last: HashMap<u64, u32>,
    /// For each change the one before it with the same hash, or [`NONE`].
    before: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// The hash by which batches find a key. One for all of them, so that a reader computes it once.
fn hash(segment: Segment, key: &[u8]) -> u64 {
    static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    HASHER.hash_one((segment, key))
}

impl Pending {
    /// `total` counts it as long as anybody has it.
    pub(crate) fn new(
        batch: Batch,
        mut later: Later,
        place: Place,
        total: &Arc<AtomicUsize>,
    ) -> Self {
        let held = Held::new(batch.bytes() + later.bytes, total);
        let then = later.then.take();
        Self {
            parts: Mutex::new(Some((batch, later))),
            whole: OnceLock::new(),
            then: Mutex::new(then),
            held,
            place,
            index: OnceLock::new(),
            sorted: Default::default(),
        }
    }

    /// The bytes it counts for.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes
    }

    pub(crate) fn batch(&self) -> &Batch {
        self.whole.get_or_init(|| {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut batch, later) = parts.take().expect("a batch is completed once");
            later.complete(&mut batch);
            batch
        })
    }

    /// Whether the writer has yet to make it ready.
    pub(crate) fn is_raw(&self) -> bool {
        let then = self.then.lock().unwrap_or_else(PoisonError::into_inner);
        then.is_some() || self.index.get().is_none()
    }

    /// Completes and indexes it, if nobody has, and does what is to be done then.
    pub(crate) fn make_ready(&self) {
        self.index();
        let mut place = self.then.lock().unwrap_or_else(PoisonError::into_inner);
        let then = place.take();
        drop(place);
        if let Some(then) = then {
            then();
        }
    }

    /// Whether change number `index` is the one that holds for its key, after `later` batches.
    pub(crate) fn holds(&self, index: u32, later: &[Arc<Self>]) -> bool {
        let (segment, key, _) = self.change(index);
        let hash = hash(segment, key);
        self.find(hash, segment, key) == Some(index) && newest(later, hash, segment, key).is_none()
    }

    /// Where its keys are; the first who asks enters it in the table of marks.
    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let index = Index::of(self.batch());
            let Place { marks, number } = &self.place;
            marks.enter(*number, index.last.keys().copied());
            index
        })
    }

    /// The change that holds for `key`, whose [`hash`] is given.
    fn find(&self, hash: u64, segment: Segment, key: &[u8]) -> Option<u32> {
        let index = self.index();
        let mut at = *index.last.get(&hash)?;
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
        let changes = (0_u32..).zip(self.batch().changes());
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
        self.batch().change(index as usize)
    }
}

impl Index {
    fn of(batch: &Batch) -> Self {
        let mut index = Self {
            last: HashMap::with_capacity_and_hasher(batch.len(), Default::default()),
            before: Vec::with_capacity(batch.len()),
        };
        for (at, (segment, key, _)) in (0_u32..).zip(batch.changes()) {
            let before = index.last.insert(hash(segment, key), at);
            index.before.push(before.unwrap_or(NONE));
        }
        index
    }
}

#[cfg(test)]
mod tests;
