//! Reads of single values and of ranges: pending batches first, then the engine, now or at a snapshot.

use crate::Segment;
use crate::engine::family;
use crate::fault::engine_fault;
use crate::pending::{PendingBatch, PendingRows, find, find_range};
use niwaki_primitives::Fault;
use rocksdb::{DB, DBRawIterator, ReadOptions};
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A key and its value.
pub type Row = (Box<[u8]>, Box<[u8]>);

/// Decides whether a point read puts the block it reads into the engine's block cache.
pub(crate) struct FillCachePolicy {
    /// Reads of accounts and slots so far.
    reads: AtomicU32,
}

/// One for the whole process.
static FILL_CACHE: FillCachePolicy = FillCachePolicy::new();

impl FillCachePolicy {
    pub(crate) const fn new() -> Self {
        Self {
            reads: AtomicU32::new(0),
        }
    }

    /// Whether the next read of a row of `segment` fills the cache. Accounts and slots do the first 2^14 times,
    /// which brings indices and filters into memory, then one time in eight. They are keyed by hash, so
    /// the other rows of a block are of no use, and the state caches the row itself; to cache the block takes
    /// longer than to read it again from the system's page cache. Rows that are read often end up cached
    /// all the same.
    pub(crate) fn should_fill_cache(&self, segment: Segment) -> bool {
        const ALWAYS_AT_FIRST: u32 = 1 << 14;
        if !matches!(segment, Segment::Accounts | Segment::Slots) {
            return true;
        }
        // A tally that publishes no other memory. After 2^32 reads it begins again.
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        // Scattered by a multiplication, so that no rhythm of the caller leaves some rows out for ever.
        reads < ALWAYS_AT_FIRST || reads.wrapping_mul(0x9e37_79b1) >> 29 == 0
    }
}

/// The database now, or at a snapshot.
pub(crate) struct Reader<'a, 'b> {
    pub(crate) engine: &'a DB,
    pub(crate) pending: &'b [Arc<PendingBatch>],
    pub(crate) snapshot: Option<&'b rocksdb::Snapshot<'a>>,
}

impl<'a> Reader<'a, '_> {
    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        if let Some(snapshot) = self.snapshot {
            options.set_snapshot(snapshot);
        }
        options
    }

    pub(crate) fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(value) = find(self.pending, segment, key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        let family = family(self.engine, segment);
        let mut options = self.options();
        options.fill_cache(FILL_CACHE.should_fill_cache(segment));
        self.engine
            .get_cf_opt(family, key, &options)
            .map_err(|error| engine_fault("read", segment.name(), error.as_ref()))
    }

    pub(crate) fn multi_get(
        &self,
        segment: Segment,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let family = family(self.engine, segment);
        let options = self.options();
        let values = self
            .engine
            .batched_multi_get_cf_opt(family, keys, false, &options);
        let owned = |value: Option<rocksdb::DBPinnableSlice<'_>>| value.map(|v| v.to_vec());
        let fault = |error: rocksdb::Error| engine_fault("read", segment.name(), error.as_ref());
        let values = values.into_iter().zip(keys);
        values
            .map(|(value, key)| match find(self.pending, segment, key) {
                Some(pending) => Ok(pending.map(<[u8]>::to_vec)),
                None => value.map(owned).map_err(fault),
            })
            .collect()
    }

    pub(crate) fn range(self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> RowIter<'a> {
        let mut options = self.options();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let family = family(self.engine, segment);
        let mut rows = self.engine.raw_iterator_cf_opt(family, options);
        rows.seek(from);
        let pending = find_range(self.pending, segment, from, to);
        RowIter {
            rows,
            pending: pending.into_iter().peekable(),
            segment,
        }
    }

    pub(crate) fn prefix(self, segment: Segment, prefix: &[u8]) -> RowIter<'a> {
        self.range(segment, prefix, successor(prefix).as_deref())
    }
}

/// The least key that is greater than every key with this prefix; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Rows of one segment in key order.
pub struct RowIter<'a> {
    rows: DBRawIterator<'a>,
    /// Rows of pending batches, which shadow those of the engine.
    pending: Peekable<<PendingRows as IntoIterator>::IntoIter>,
    segment: Segment,
}

impl RowIter<'_> {
    fn next_stored(&mut self) -> Option<Result<Row, Fault>> {
        let Some((key, value)) = self.rows.item() else {
            let error = self.rows.status().err()?;
            return Some(Err(engine_fault(
                "iterate",
                self.segment.name(),
                error.as_ref(),
            )));
        };
        let row = (key.into(), value.into());
        self.rows.next();
        Some(Ok(row))
    }
}

impl Iterator for RowIter<'_> {
    type Item = Result<Row, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((key, _)) = self.pending.peek() else {
                return self.next_stored();
            };
            match self.rows.key() {
                Some(stored) if stored < &key[..] => return self.next_stored(),
                Some(stored) if stored == &key[..] => self.rows.next(),
                Some(_) => {}
                // No row may mean the end or a failure.
                None if self.rows.status().is_err() => return self.next_stored(),
                None => {}
            }
            if let Some((key, Some(value))) = self.pending.next() {
                return Some(Ok((key, value)));
            }
        }
    }
}
