//! The rows of a trie as they are stored, merged with those that its values make.

use niwaki_primitives::Fault;
use niwaki_storage::{Row, Rows, Segment, Snapshot};
use std::cmp::Ordering;

const STRAY_ROW: &str = "a row that nothing leads to";
const MISSING_ROW: &str = "missing row";
const OTHER_ROW: &str = "the row is not what the values make";

/// Told of a row that does not fit: its key, the row that belongs there if one does, and what is
/// wrong.
pub(crate) type Found<'a> = dyn FnMut(&[u8], Option<&[u8]>, &'static str) + 'a;

/// The rows of a trie segment in the order in which a builder makes them: children before parents.
pub(crate) struct Stored<'a> {
    pub(crate) segment: Segment,
    rows: Rows<'a>,
    /// Rows whose descendants may not all have been passed, from the top.
    open: Vec<Row>,
    /// The row read last, if it is not open yet.
    ahead: Option<Row>,
    /// A row that was given out and put back.
    next: Option<Row>,
    fault: Option<Fault>,
    seen: u64,
}

impl<'a> Stored<'a> {
    /// All rows of `segment`.
    pub(crate) fn new(snapshot: &'a Snapshot, segment: Segment) -> Self {
        Self {
            segment,
            rows: snapshot.prefix(segment, &[]),
            open: Vec::new(),
            ahead: None,
            next: None,
            fault: None,
            seen: 0,
        }
    }

    /// Merges an expected row with the stored ones; what does not fit goes to `found`.
    pub(crate) fn expect(&mut self, key: &[u8], row: &[u8], found: &mut Found<'_>) {
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

    /// When all expected rows have come: those that are left do not fit. Gives how many rows there
    /// were.
    pub(crate) fn rest(mut self, found: &mut Found<'_>) -> Result<u64, Fault> {
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
            if self.ahead.is_none() {
                self.ahead = self.read();
            }
            let is_below = |top: &Row, row: &Row| row.0.starts_with(&top.0);
            match (self.open.last(), self.ahead.take()) {
                (None, None) => return None,
                (Some(top), Some(row)) if !is_below(top, &row) => {
                    self.ahead = Some(row);
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
