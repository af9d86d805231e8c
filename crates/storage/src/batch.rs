//! Changes of any segments that are written together or not at all.

use crate::Segment;
use std::fmt;

/// Puts and deletes in order. Of two changes of one key the later one holds.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys and values, one after the other. New ones go to the last chunk.
    chunks: Vec<Vec<u8>>,
    changes: Vec<Change>,
}

/// A chunk that has so many bytes is not added to: growing it further would copy it, into memory
/// that the system has yet to clear.
const CHUNK_BYTES: usize = 128 << 10;
/// The same of the first one, which grows as needed, because most batches are small.
const FIRST_CHUNK_BYTES: usize = 16 << 10;

/// As many changes have room at once as a chunk of such rows has.
const BYTES_PER_CHANGE: usize = 256;

/// One put or delete; key and value stand one after the other in a chunk. A block has ten thousand, so that
/// they are kept small.
#[derive(Clone, Copy, Debug)]
struct Change {
    segment: Segment,
    /// Whether it is a delete.
    removes: bool,
    chunk: u32,
    start: u32,
    key_end: u32,
    /// Where the value ends; of a delete, where the key does.
    value_end: u32,
}

const _: () = assert!(size_of::<Change>() == 20, "it is kept small");

/// A place in a chunk. The engine takes no row of 4 GiB.
fn place(at: usize) -> u32 {
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

    /// Sets `key` to the value that `encode` appends to the bytes it is given, which saves a copy
    /// of a large one. It must not touch the bytes that are there, which are those of other rows.
    ///
    /// # Panics
    /// If `encode` takes bytes away.
    pub fn put_with(&mut self, segment: Segment, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        self.add(segment, &[key], encode);
    }

    fn add(&mut self, segment: Segment, key: &[&[u8]], encode: impl FnOnce(&mut Vec<u8>)) {
        let mut change = self.open(segment, key);
        let bytes = &mut self.chunks[change.chunk as usize];
        encode(bytes);
        change.value_end = place(bytes.len());
        change.removes = false;
        assert!(change.value_end >= change.key_end, "a value is appended");
        self.changes.push(change);
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, segment: Segment, key: &[u8]) {
        self.delete_parts(segment, &[key]);
    }

    /// Removes the key made of `key`'s parts, if it is there.
    pub fn delete_parts(&mut self, segment: Segment, key: &[&[u8]]) {
        let change = self.open(segment, key);
        self.changes.push(change);
    }

    /// Adds a key to the last chunk.
    fn open(&mut self, segment: Segment, key: &[&[u8]]) -> Change {
        let most_bytes = match self.chunks.len() {
            0 | 1 => FIRST_CHUNK_BYTES,
            _ => CHUNK_BYTES,
        };
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() >= most_bytes)
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
        let start = place(bytes.len());
        key.iter().for_each(|part| bytes.extend_from_slice(part));
        let key_end = place(bytes.len());
        Change {
            segment,
            removes: true,
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

    /// Drops all changes, keeping some of the memory.
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
        let value = (!change.removes).then_some(value);
        (change.segment, &bytes[start..key_end], value)
    }
}

/// Changes that complete a batch, made when somebody first needs them: by a reader, or by the thread
/// that brings batches to the engine, if that comes first.
#[derive(Default)]
pub struct Later {
    pub(crate) bytes: usize,
    make: Option<Make>,
    pub(crate) then: Option<Then>,
}

type Make = Box<dyn FnOnce(&mut Batch) + Send>;
pub(crate) type Then = Box<dyn FnOnce() + Send>;

impl Later {
    /// The changes that `make` adds after all others: about so many bytes, which is what they count
    /// for while they wait. `make` must not read the database.
    pub fn new(bytes: usize, make: impl FnOnce(&mut Batch) + Send + 'static) -> Self {
        let make: Make = Box::new(make);
        Self {
            bytes,
            make: Some(make),
            then: None,
        }
    }

    /// Has the thread that brings batches to the engine do `then` too, once readers find the batch
    /// complete; a database in memory does it before a write returns.
    pub fn then(self, then: impl FnOnce() + Send + 'static) -> Self {
        let then: Then = Box::new(then);
        let then = Some(then);
        Self { then, ..self }
    }

    pub(crate) fn complete(self, batch: &mut Batch) {
        if let Some(make) = self.make {
            make(batch);
        }
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
