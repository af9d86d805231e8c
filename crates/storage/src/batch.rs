//! Changes of any segments that are written together or not at all.

use crate::Segment;

/// Puts and deletes in order. Of two changes of one key the later one holds.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    changes: Vec<Change>,
}

/// One put or delete; key and value stand one after the other in the batch's bytes.
#[derive(Clone, Copy, Debug)]
struct Change {
    segment: Segment,
    start: usize,
    key_end: usize,
    /// Where the value ends; `None` deletes.
    value_end: Option<usize>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, segment: Segment, key: &[u8], value: &[u8]) {
        self.put_parts(segment, &[key], &[value]);
    }

    /// Sets the key made of `key`'s parts to the value made of `value`'s parts.
    pub fn put_parts(&mut self, segment: Segment, key: &[&[u8]], value: &[&[u8]]) {
        let start = self.bytes.len();
        key.iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        let key_end = self.bytes.len();
        value
            .iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        let value_end = Some(self.bytes.len());
        self.changes.push(Change {
            segment,
            start,
            key_end,
            value_end,
        });
    }

    /// Sets `key` to the value that `encode` appends to the bytes it is given, which saves a copy
    /// of a large one. It must not touch the bytes that are there, which are those of other rows.
    ///
    /// # Panics
    /// If `encode` takes bytes away.
    pub fn put_with(&mut self, segment: Segment, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        encode(&mut self.bytes);
        assert!(self.bytes.len() >= key_end, "a value is appended");
        let value_end = Some(self.bytes.len());
        self.changes.push(Change {
            segment,
            start,
            key_end,
            value_end,
        });
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, segment: Segment, key: &[u8]) {
        self.delete_parts(segment, &[key]);
    }

    /// Removes the key made of `key`'s parts, if it is there.
    pub fn delete_parts(&mut self, segment: Segment, key: &[&[u8]]) {
        let start = self.bytes.len();
        key.iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        self.changes.push(Change {
            segment,
            start,
            key_end: self.bytes.len(),
            value_end: None,
        });
    }

    /// Adds the changes of `other` after those that are there.
    pub fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.changes
            .extend(other.changes.iter().map(|change| Change {
                segment: change.segment,
                start: start + change.start,
                key_end: start + change.key_end,
                value_end: change.value_end.map(|end| start + end),
            }));
    }

    /// Drops all changes, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
    }

    /// How many puts and deletes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each change: segment, key, and value or `None` for a delete.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Segment, &[u8], Option<&[u8]>)> {
        self.changes.iter().map(|change| {
            let key = &self.bytes[change.start..change.key_end];
            let value = change.value_end.map(|end| &self.bytes[change.key_end..end]);
            (change.segment, key, value)
        })
    }
}
