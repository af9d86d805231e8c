//! Changes of any segments that are written together or not at all.
//!
//! A block is one batch of about ten thousand rows, so a batch makes no allocation per row: keys and values
//! stand one after the other in chunks, and a change is a reference of 20 bytes into a chunk.
//!
//! ```text
//! chunk 0:  | key value | key | key value value ... |
//! changes:  { accounts, put, 0..5..9 }  { slots, delete, 9..13 }  ...
//! ```

use crate::Segment;
use std::fmt;

/// Puts and deletes in order. Of two changes of one key the later one counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys and values, one after the other. New ones go to the last chunk.
    chunks: Vec<Vec<u8>>,
    changes: Vec<Change>,
}

/// A chunk with this many bytes is full: growing it further would copy it into memory that the system has
/// yet to clear.
const CHUNK_BYTES: usize = 128 << 10;
/// The same for the first chunk, which grows as needed because most batches are small.
const FIRST_CHUNK_BYTES: usize = 16 << 10;

/// Rows of this size are assumed when room for the changes of a chunk is made.
const BYTES_PER_CHANGE: usize = 256;

/// One put or delete.
#[derive(Clone, Copy, Debug)]
struct Change {
    segment: Segment,
    is_delete: bool,
    chunk: u32,
    start: u32,
    key_end: u32,
    /// Where the value ends; for a delete, where the key does.
    value_end: u32,
}

const _: () = assert!(size_of::<Change>() == 20, "it is kept small");

/// An offset in a chunk. The engine takes no row of 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a chunk has less than 4 GiB")
}

/// Segment, key, and value or `None` for a delete.
pub type ChangeRef<'a> = (Segment, &'a [u8], Option<&'a [u8]>);

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    ///
    /// # Panics
    /// If both have 4 GiB together, as all of its methods do.
    pub fn put(&mut self, segment: Segment, key: &[u8], value: &[u8]) {
        self.put_parts(segment, &[key], &[value]);
    }

    /// Sets the key made of `key`'s parts to the value made of `value`'s parts.
    pub fn put_parts(&mut self, segment: Segment, key: &[&[u8]], value: &[&[u8]]) {
        self.add(segment, key, |bytes| {
            value.iter().for_each(|part| bytes.extend_from_slice(part));
        });
    }

    /// Sets `key` to the value that `encode` appends to the buffer, which saves copying a large one. `encode`
    /// must not touch what is in the buffer: other rows.
    ///
    /// # Panics
    /// If `encode` shortens the buffer.
    pub fn put_with(&mut self, segment: Segment, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.add(segment, &[key], encode);
    }

    fn add(&mut self, segment: Segment, key: &[&[u8]], encode: impl FnOnce(&mut Vec<u8>)) {
        let mut change = self.add_key(segment, key);
        let bytes = &mut self.chunks[change.chunk as usize];
        encode(bytes);
        change.value_end = offset(bytes.len());
        change.is_delete = false;
        assert!(change.value_end >= change.key_end, "a value is appended");
        self.changes.push(change);
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, segment: Segment, key: &[u8]) {
        self.delete_parts(segment, &[key]);
    }

    /// Removes the key made of `key`'s parts, if it is there.
    pub fn delete_parts(&mut self, segment: Segment, key: &[&[u8]]) {
        let change = self.add_key(segment, key);
        self.changes.push(change);
    }

    /// Adds a key to the last chunk, or to a new one if that is full: a delete so far.
    fn add_key(&mut self, segment: Segment, key: &[&[u8]]) -> Change {
        let max_bytes = match self.chunks.len() {
            0 | 1 => FIRST_CHUNK_BYTES,
            _ => CHUNK_BYTES,
        };
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() >= max_bytes)
        {
            let bytes = if self.chunks.is_empty() {
                0
            } else {
                2 * CHUNK_BYTES
            };
            self.chunks.push(Vec::with_capacity(bytes));
            self.changes.reserve(bytes / BYTES_PER_CHANGE);
        }
        let chunk = self.chunks.len() - 1;
        let bytes = &mut self.chunks[chunk];
        let start = offset(bytes.len());
        key.iter().for_each(|part| bytes.extend_from_slice(part));
        let key_end = offset(bytes.len());
        Change {
            segment,
            is_delete: true,
            chunk: u32::try_from(chunk).expect("fewer chunks than 2^32"),
            start,
            key_end,
            value_end: key_end,
        }
    }

    /// Adds the changes of `other` after those that are there, without copying them.
    pub fn append(&mut self, other: Self) {
        let first = u32::try_from(self.chunks.len()).expect("fewer chunks than 2^32");
        self.chunks.extend(other.chunks);
        let changes = other.changes.into_iter();
        self.changes.extend(changes.map(|change| Change {
            chunk: first + change.chunk,
            ..change
        }));
    }

    /// Drops all changes but keeps the memory of the first chunk.
    pub fn clear(&mut self) {
        self.chunks.truncate(1);
        self.chunks.iter_mut().for_each(Vec::clear);
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
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Each put and delete, in order.
    pub fn changes(&self) -> impl Iterator<Item = ChangeRef<'_>> {
        self.changes.iter().map(|change| self.resolve(change))
    }

    /// The change number `index`.
    pub(crate) fn change(&self, index: usize) -> ChangeRef<'_> {
        self.resolve(&self.changes[index])
    }

    fn resolve(&self, change: &Change) -> ChangeRef<'_> {
        let bytes = &self.chunks[change.chunk as usize];
        let (start, key_end) = (change.start as usize, change.key_end as usize);
        let value = &bytes[key_end..change.value_end as usize];
        let value = (!change.is_delete).then_some(value);
        (change.segment, &bytes[start..key_end], value)
    }
}

/// Rows of a batch that are encoded later: by the first reader of the batch, or by the storage writer's
/// thread if that comes first. The commit thread does not wait for rows that are not read at once.
#[derive(Default)]
pub struct DeferredRows {
    pub(crate) bytes: usize,
    encode: Option<Encode>,
    pub(crate) on_ready: Option<OnReady>,
}

type Encode = Box<dyn FnOnce(&mut Batch) + Send>;
pub(crate) type OnReady = Box<dyn FnOnce() + Send>;

impl DeferredRows {
    /// The changes that `encode` adds after all others. They count as `bytes` while they are pending, which
    /// should be about right. `encode` must not read the database.
    pub fn new(bytes: usize, encode: impl FnOnce(&mut Batch) + Send + 'static) -> Self {
        let encode: Encode = Box::new(encode);
        Self {
            bytes,
            encode: Some(encode),
            on_ready: None,
        }
    }

    /// Runs `on_ready` on the storage writer's thread once the batch is complete and indexed; a database in
    /// memory runs it before a write returns.
    pub fn on_ready(self, on_ready: impl FnOnce() + Send + 'static) -> Self {
        let on_ready: OnReady = Box::new(on_ready);
        let on_ready = Some(on_ready);
        Self { on_ready, ..self }
    }

    pub(crate) fn complete(self, batch: &mut Batch) {
        if let Some(encode) = self.encode {
            encode(batch);
        }
    }
}

impl fmt::Debug for DeferredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredRows")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
