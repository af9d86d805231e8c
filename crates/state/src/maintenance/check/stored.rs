//! The stored rows of a trie, merged with the rows that its values make.
//!
//! A `TrieBuilder` emits children before parents, the storage gives parents before children (a path sorts before its
//! continuations). So stored rows wait on a stack until all of their descendants have passed.

use niwaki_primitives::Fault;
use niwaki_storage::{Row, RowIter, Segment, Snapshot};
use std::cmp::Ordering;

const STRAY_ROW: &str = "a row that nothing leads to";
const MISSING_ROW: &str = "missing row";
const OTHER_ROW: &str = "the row is not what the values make";

/// Called with a row that does not match: its key, the row that belongs there, if one does, and what is wrong.
pub(crate) type MismatchSink<'a> = dyn FnMut(&[u8], Option<&[u8]>, &'static str) + 'a;

/// The rows of a trie segment in the order in which a builder emits them: children before parents.
pub(crate) struct StoredRows<'a> {
    pub(crate) segment: Segment,
    rows: RowIter<'a>,
    /// Rows whose descendants may not all have passed, from the top.
    open: Vec<Row>,
    /// The row that was read last, if it is not open yet.
    lookahead: Option<Row>,
    /// A row that was returned and put back.
    next: Option<Row>,
    fault: Option<Fault>,
    seen: u64,
}

impl<'a> StoredRows<'a> {
    /// All rows of `segment`.
    pub(crate) fn new(snapshot: &'a Snapshot, segment: Segment) -> Self {
        Self {
            segment,
            rows: snapshot.prefix(segment, &[]),
            open: Vec::new(),
            lookahead: None,
            next: None,
            fault: None,
            seen: 0,
        }
    }

    /// Merges an expected row with the stored ones; what does not match goes to `found`.
    pub(crate) fn expect(&mut self, key: &[u8], row: &[u8], found: &mut MismatchSink<'_>) {
        loop {
            let Some((stored_key, stored_row)) = self.next() else {
                return found(key, Some(row), MISSING_ROW);
            };
            match post_order(&stored_key, key) {
                Ordering::Less => found(&stored_key, None, STRAY_ROW),
                Ordering::Equal if *stored_row == *row => return,
                Ordering::Equal => return found(key, Some(row), OTHER_ROW),
                Ordering::Greater => {
                    self.next = Some((stored_key, stored_row));
                    return found(key, Some(row), MISSING_ROW);
                }
            }
        }
    }

    /// After all expected rows: the stored rows that are left do not match. Returns how many rows there were.
    pub(crate) fn rest(mut self, found: &mut MismatchSink<'_>) -> Result<u64, Fault> {
        while let Some((key, _)) = self.next() {
            found(&key, None, STRAY_ROW);
        }
        self.fault.map_or(Ok(self.seen), Err)
    }

    /// The next stored row, children before parents. After a fault there are none.
    fn next(&mut self) -> Option<Row> {
        if let Some(row) = self.next.take() {
            return Some(row);
        }
        while self.fault.is_none() {
            if self.lookahead.is_none() {
                self.lookahead = self.read();
            }
            let is_below = |top: &Row, row: &Row| row.0.starts_with(&top.0);
            match (self.open.last(), self.lookahead.take()) {
                (None, None) => return None,
                (Some(top), Some(row)) if !is_below(top, &row) => {
                    self.lookahead = Some(row);
                    return self.open.pop();
                }
                (_, Some(row)) => self.open.push(row),
                (Some(_), None) => return self.open.pop(),
            }
        }
        None
    }

    fn read(&mut self) -> Option<Row> {
        match self.rows.next()? {
            Ok(row) => {
                self.seen += 1;
                Some(row)
            }
            Err(fault) => {
                self.fault = Some(fault);
                None
            }
        }
    }
}

/// Children before parents, else by key.
fn post_order(a: &[u8], b: &[u8]) -> Ordering {
    if a.starts_with(b) || b.starts_with(a) {
        return b.len().cmp(&a.len());
    }
    a.cmp(b)
}
