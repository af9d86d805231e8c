//! Pending batches: written as far as readers can tell, not in the engine yet.
//!
//! A batch is immutable once it is pushed. Completing it with its deferred rows and indexing it is left to
//! the storage writer's thread, or to the first reader if that comes earlier, so that the commit thread
//! only hands it over.
//!
//! ```text
//! push -> [ batch + DeferredRows ] -> complete -> index, key filter -> engine
//!          commit thread              first reader or the writer       writer
//! ```
//!
//! A read goes through the batches from the newest to the oldest and then to the engine; the first that has
//! the key decides. The [`KeyFilter`] says which batches need to be searched at all.

use crate::batch::{ChangeRef, OnReady};
use crate::key_filter::KeyFilter;
use crate::{Batch, DeferredRows, Segment};
use niwaki_primitives::map::{DefaultHashBuilder, HashMap};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// Batches that are not in the engine, oldest first.
pub(crate) type PendingBatches = Arc<Vec<Arc<PendingBatch>>>;

/// What `batches` say of a key: `None` if none of them has it, `Some(None)` if it is deleted.
pub(crate) fn find<'a>(
    batches: &'a [Arc<PendingBatch>],
    segment: Segment,
    key: &[u8],
) -> Option<Option<&'a [u8]>> {
    if batches.is_empty() {
        return None;
    }
    let (batch, index) = newest(batches, hash(segment, key), segment, key)?;
    Some(batch.change(index).2)
}

/// The newest batch that has `key`, whose [`hash`] is given, and the last change of it in there.
fn newest<'a>(
    batches: &'a [Arc<PendingBatch>],
    hash: u64,
    segment: Segment,
    key: &[u8],
) -> Option<(&'a PendingBatch, u32)> {
    // To search so few is quicker than to ask the filter which of them to search.
    const FEW: usize = 3;
    let mut candidates = match batches {
        [first, .., _] if batches.len() > FEW => {
            let FilterSlot { filter, number } = &first.slot;
            filter.may_have(hash, *number, batches.len())
        }
        _ => (1 << batches.len()) - 1,
    };
    while candidates != 0 {
        let last = candidates.ilog2();
        let batch = &batches[last as usize];
        if let Some(index) = batch.find(hash, segment, key) {
            return Some((batch, index));
        }
        candidates ^= 1 << last;
    }
    None
}

/// Takes `group`, the oldest pending batches, out of the key filter. The engine has them.
pub(crate) fn clear_filter(group: &[Arc<PendingBatch>]) {
    if let Some(FilterSlot { filter, number }) = group.last().map(|batch| &batch.slot) {
        filter.retire_below(number + 1);
    }
    for batch in group {
        let hashes = batch.index().last.keys().copied();
        batch.slot.filter.clear(batch.slot.number, hashes);
    }
}

/// Keys with their values, or `None` for those that are deleted.
pub(crate) type PendingRows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What `batches` say of the keys from `from` on, up to and without `to`.
pub(crate) fn find_range(
    batches: &[Arc<PendingBatch>],
    segment: Segment,
    from: &[u8],
    to: Option<&[u8]>,
) -> PendingRows {
    let mut found = PendingRows::new();
    for batch in batches {
        for (_, key, value) in batch.range(segment, from, to) {
            found.insert(key.into(), value.map(Into::into));
        }
    }
    found
}

/// One batch.
pub(crate) struct PendingBatch {
    /// What it is completed from; `None` once it is complete.
    parts: Mutex<Option<(Batch, DeferredRows)>>,
    complete: OnceLock<Batch>,
    /// Run by the writer once the batch is indexed.
    on_ready: Mutex<Option<OnReady>>,
    /// Its bytes as they were estimated when it was pushed.
    charge: MemoryCharge,
    slot: FilterSlot,
    index: OnceLock<Index>,
    /// Per segment, its last change of each key, in the order of the keys.
    sorted: [OnceLock<Vec<u32>>; Segment::ALL.len()],
}

/// A batch's number, counted since the database was opened, and the filter it is entered in.
pub(crate) struct FilterSlot {
    pub(crate) filter: Arc<KeyFilter>,
    pub(crate) number: u64,
}

/// Bytes in memory, part of a total until this is dropped.
struct MemoryCharge {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl MemoryCharge {
    fn new(bytes: usize, total: &Arc<AtomicUsize>) -> Self {
        // A statistic: no other memory is published by it.
        total.fetch_add(bytes, Ordering::Relaxed);
        let total = Arc::clone(total);
        Self { bytes, total }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Where a key is changed: a hash table whose chains run through the list of changes.
struct Index {
    /// From the hash of segment and key to the last change with that hash.
    last: HashMap<u64, u32>,
    /// For each change the one before it with the same hash, or [`NONE`].
    before: Vec<u32>,
}

const NONE: u32 = u32::MAX;

/// The hash by which batches find a key: the same for all, so that a reader computes it once.
fn hash(segment: Segment, key: &[u8]) -> u64 {
    static HASHER: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    HASHER.hash_one((segment, key))
}

impl PendingBatch {
    /// Its bytes are part of `total` until the last reference to it is dropped.
    pub(crate) fn new(
        batch: Batch,
        mut deferred: DeferredRows,
        slot: FilterSlot,
        total: &Arc<AtomicUsize>,
    ) -> Self {
        let charge = MemoryCharge::new(batch.bytes() + deferred.bytes, total);
        let on_ready = deferred.on_ready.take();
        Self {
            parts: Mutex::new(Some((batch, deferred))),
            complete: OnceLock::new(),
            on_ready: Mutex::new(on_ready),
            charge,
            slot,
            index: OnceLock::new(),
            sorted: Default::default(),
        }
    }

    /// The bytes that it counts for.
    pub(crate) fn bytes(&self) -> usize {
        self.charge.bytes
    }

    /// The batch with its deferred rows; the first caller adds them.
    pub(crate) fn batch(&self) -> &Batch {
        self.complete.get_or_init(|| {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut batch, deferred) = parts.take().expect("a batch is completed once");
            deferred.complete(&mut batch);
            batch
        })
    }

    /// Whether [`PendingBatch::make_ready`] has something to do.
    pub(crate) fn is_unindexed(&self) -> bool {
        let on_ready = self.on_ready.lock().unwrap_or_else(PoisonError::into_inner);
        on_ready.is_some() || self.index.get().is_none()
    }

    /// Completes and indexes it if no reader has, then runs its `on_ready`.
    pub(crate) fn make_ready(&self) {
        self.index();
        let mut on_ready = self.on_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let run = on_ready.take();
        drop(on_ready);
        if let Some(run) = run {
            run();
        }
    }

    /// Whether no change after number `index`, here or in the `newer` batches, is of the same key.
    pub(crate) fn is_last_change(&self, index: u32, newer: &[Arc<Self>]) -> bool {
        let (segment, key, _) = self.change(index);
        let hash = hash(segment, key);
        self.find(hash, segment, key) == Some(index) && newest(newer, hash, segment, key).is_none()
    }

    /// Where its keys are; the first caller also enters it in the key filter.
    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let index = Index::of(self.batch());
            let FilterSlot { filter, number } = &self.slot;
            filter.insert(*number, index.last.keys().copied());
            index
        })
    }

    /// The last change of `key`, whose [`hash`] is given.
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
