//! Reading: single values and ranges, of now or of a moment.

use crate::Segment;
use crate::database::{engine_fault, family};
use crate::pending::{Found, Pending, find, find_range};
use niwaki_primitives::Fault;
use rocksdb::{DB, DBRawIterator, ReadOptions};
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A key and its value.
pub type Row = (Box<[u8]>, Box<[u8]>);

/// Accounts and slots that were asked of engines, in the whole process.
pub(crate) struct Asked(AtomicU32);

static ASKED: Asked = Asked::new();

impl Asked {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the engine is to keep what it reads for the next row of `segment` that is asked for:
    /// of accounts and slots at first always, so that indices and filters come into memory, then
    /// one time in eight. By their hashes these have no neighbours worth keeping, and whoever asks
    /// keeps the row itself; to keep its block takes longer than to read it again from the system's
    /// cache. What is asked for often is kept all the same.
    pub(crate) fn is_to_keep(&self, segment: Segment) -> bool {
        const ALWAYS_AT_FIRST: u32 = 1 << 14;
        if !matches!(segment, Segment::Accounts | Segment::Slots) {
            return true;
        }
        // A tally: no other memory hangs on it. After 2^32 it is at first again.
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        // Scattered, so that no rhythm of the caller's leaves some rows out for ever.
        asked < ALWAYS_AT_FIRST || asked.wrapping_mul(0x9e37_79b1) >> 29 == 0
    }
}

/// The database now or at a moment.
pub(crate) struct Reader<'a, 'b> {
    pub(crate) engine: &'a DB,
    /// The batches above what the engine has.
    pub(crate) waiting: &'b [Arc<Pending>],
    pub(crate) moment: Option<&'b rocksdb::Snapshot<'a>>,
}

impl<'a> Reader<'a, '_> {
    fn options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        if let Some(moment) = self.moment {
            options.set_snapshot(moment);
        }
        options
    }

    pub(crate) fn get(&self, segment: Segment, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if let Some(value) = find(self.waiting, segment, key) {
            return Ok(value.map(<[u8]>::to_vec));
        }
        let family = family(self.engine, segment);
        let mut options = self.options();
        options.fill_cache(ASKED.is_to_keep(segment));
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
            .map(|(value, key)| match find(self.waiting, segment, key) {
                Some(waiting) => Ok(waiting.map(<[u8]>::to_vec)),
                None => value.map(owned).map_err(fault),
            })
            .collect()
    }

    pub(crate) fn range(self, segment: Segment, from: &[u8], to: Option<&[u8]>) -> Rows<'a> {
        let mut options = self.options();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let family = family(self.engine, segment);
        let mut rows = self.engine.raw_iterator_cf_opt(family, options);
        rows.seek(from);
        let waiting = find_range(self.waiting, segment, from, to);
        Rows {
            rows,
            waiting: waiting.into_iter().peekable(),
            segment,
        }
    }

    pub(crate) fn prefix(self, segment: Segment, prefix: &[u8]) -> Rows<'a> {
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
pub struct Rows<'a> {
    rows: DBRawIterator<'a>,
    /// What waits above the engine's rows.
    waiting: Peekable<<Found as IntoIterator>::IntoIter>,
    segment: Segment,
}

impl Rows<'_> {
    fn take_stored(&mut self) -> Option<Result<Row, Fault>> {
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

impl Iterator for Rows<'_> {
    type Item = Result<Row, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((key, _)) = self.waiting.peek() else {
                return self.take_stored();
            };
            match self.rows.key() {
                Some(stored) if stored < &key[..] => return self.take_stored(),
                Some(stored) if stored == &key[..] => self.rows.next(),
                Some(_) => {}
                // Perhaps not the end but a failure.
                None if self.rows.status().is_err() => return self.take_stored(),
                None => {}
            }
            if let Some((key, Some(value))) = self.waiting.next() {
                return Some(Ok((key, value)));
            }
        }
    }
}
