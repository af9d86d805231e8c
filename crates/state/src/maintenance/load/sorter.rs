//! An external merge sort: records are sorted in memory into runs, the runs written to disk, then merged.

use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::Fault;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// A key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// In front of a record: the lengths of key (1 byte) and value (4 bytes).
const HEAD_BYTES: usize = 5;

/// A value with a larger length is read piece by piece, so that a wrong length allocates no memory.
const LONG_BYTES: usize = 1 << 20;

/// Runs on the disk that have all records that a sorter was given.
#[derive(Clone, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(super) struct SavedRuns {
    /// The length of each.
    pub(super) run_bytes: Vec<u64>,
    /// How many records they have.
    pub(super) count: u64,
}

/// Sorts records that come in any order.
pub(super) struct Sorter {
    /// Where runs may be put; without it all records stay in memory.
    folder: Option<PathBuf>,
    run_bytes: usize,
    bytes: Vec<u8>,
    /// The first eight bytes of each key, and where its record begins.
    index: Vec<(u64, usize)>,
    runs: Vec<PathBuf>,
    count: u64,
    /// This many runs may be resumed by a later sorter, so they are not removed.
    saved: usize,
}

impl Sorter {
    /// A sorter that has about `run_bytes` in memory.
    pub(super) fn new(folder: Option<&Path>, run_bytes: usize) -> Self {
        Self {
            folder: folder.map(Path::to_owned),
            run_bytes,
            bytes: Vec::new(),
            index: Vec::new(),
            runs: Vec::new(),
            count: 0,
            saved: 0,
        }
    }

    /// A sorter with the records that an earlier one has saved.
    pub(super) fn resume(folder: &Path, run_bytes: usize, saved: &SavedRuns) -> Self {
        let runs = (0..saved.run_bytes.len()).map(|run| run_path(folder, run));
        Self {
            runs: runs.collect(),
            count: saved.count,
            saved: saved.run_bytes.len(),
            ..Self::new(Some(folder), run_bytes)
        }
    }

    pub(super) fn set_run_bytes(&mut self, run_bytes: usize) {
        self.run_bytes = run_bytes;
    }

    /// Whether the run in memory will soon be written.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.folder.is_some() && self.bytes_in_memory() >= self.run_bytes / 8 * 7
    }

    /// Writes all records as runs and brings these to the disk; `None` without a folder.
    pub(super) fn save(&mut self) -> Result<Option<SavedRuns>, Fault> {
        if self.folder.is_none() {
            return Ok(None);
        }
        if !self.index.is_empty() {
            self.spill()?;
        }
        let mut saved = SavedRuns {
            run_bytes: Vec::new(),
            count: self.count,
        };
        for (at, path) in self.runs.iter().enumerate() {
            let length = File::open(path).and_then(|file| {
                if at >= self.saved {
                    file.sync_all()?;
                }
                Ok(file.metadata()?.len())
            });
            let length = length.map_err(|error| Fault::io("sync", path, error))?;
            saved.run_bytes.push(length);
        }
        self.saved = self.runs.len();
        Ok(Some(saved))
    }

    fn bytes_in_memory(&self) -> usize {
        self.bytes.len() + self.index.len() * size_of::<(u64, usize)>()
    }

    /// How many records were added.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a record; the key is given in parts, of less than 256 bytes in all.
    pub(super) fn push(&mut self, key: &[&[u8]], value: &[u8]) -> Result<(), Fault> {
        if self.bytes_in_memory() + value.len() > self.run_bytes
            && !self.index.is_empty()
            && self.folder.is_some()
        {
            self.spill()?;
        }
        let start = self.bytes.len();
        let key_bytes: usize = key.iter().map(|part| part.len()).sum();
        self.bytes
            .push(u8::try_from(key_bytes).expect("a key is a few hashes"));
        let value_bytes = u32::try_from(value.len()).expect("no code has 4 GiB");
        self.bytes.extend_from_slice(&value_bytes.to_be_bytes());
        key.iter()
            .for_each(|part| self.bytes.extend_from_slice(part));
        let mut first = [0; 8];
        let some = key_bytes.min(8);
        first[..some].copy_from_slice(&self.bytes[start + HEAD_BYTES..][..some]);
        self.bytes.extend_from_slice(value);
        self.index.push((u64::from_be_bytes(first), start));
        self.count += 1;
        Ok(())
    }

    /// All records in order.
    pub(super) fn merge(mut self) -> Result<Merge, Fault> {
        if !self.runs.is_empty() {
            // The merge needs the memory.
            self.spill()?;
            self.bytes = Vec::new();
        }
        self.sort();
        let mut sources = Vec::new();
        for (at, path) in self.runs.iter().enumerate() {
            let file = File::open(path).map_err(|error| Fault::io("open", path, error))?;
            if at >= self.saved {
                // The name is removed now; the system frees the bytes when the file is closed.
                std::fs::remove_file(path).map_err(|error| Fault::io("remove", path, error))?;
            }
            sources.push(Source::File(
                BufReader::with_capacity(256 << 10, file),
                path.clone(),
            ));
        }
        sources.push(Source::Memory {
            bytes: self.bytes,
            index: self.index.into_iter(),
        });
        let mut merge = Merge {
            sources,
            heads: BinaryHeap::new(),
        };
        for source in 0..merge.sources.len() {
            let mut record = Record::default();
            if merge.sources[source].next(&mut record)? {
                merge.heads.push(Head { record, source });
            }
        }
        Ok(merge)
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.index
            .sort_unstable_by(|(a_first, a), (b_first, b)| match a_first.cmp(b_first) {
                // Records of one key stay in the order in which they were added.
                std::cmp::Ordering::Equal => {
                    key_at(bytes, *a).cmp(key_at(bytes, *b)).then(a.cmp(b))
                }
                order => order,
            });
    }

    /// Writes the records in memory as a run.
    fn spill(&mut self) -> Result<(), Fault> {
        self.sort();
        let folder = self.folder.as_deref().expect("a place for runs");
        let path = run_path(folder, self.runs.len());
        let write = || -> std::io::Result<()> {
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
            for (_, start) in &self.index {
                out.write_all(record_at(&self.bytes, *start))?;
            }
            out.flush()
        };
        write().map_err(|error| Fault::io("write", &path, error))?;
        self.runs.push(path);
        self.bytes.clear();
        self.index.clear();
        Ok(())
    }
}

/// The file of run number `run`.
pub(super) fn run_path(folder: &Path, run: usize) -> PathBuf {
    folder.join(format!("run-{run}"))
}

fn lengths(head: [u8; HEAD_BYTES]) -> (usize, usize) {
    let [key, a, b, c, d] = head;
    let value = u32::from_be_bytes([a, b, c, d]);
    (usize::from(key), value as usize)
}

fn lengths_at(bytes: &[u8], start: usize) -> (usize, usize) {
    let head = bytes[start..].first_chunk::<HEAD_BYTES>();
    lengths(*head.expect("a record begins with its lengths"))
}

fn record_at(bytes: &[u8], start: usize) -> &[u8] {
    let (key, value) = lengths_at(bytes, start);
    &bytes[start..start + HEAD_BYTES + key + value]
}

fn key_at(bytes: &[u8], start: usize) -> &[u8] {
    let (key, _) = lengths_at(bytes, start);
    &bytes[start + HEAD_BYTES..start + HEAD_BYTES + key]
}

/// The records in the order of their keys; those of one key in the order in which they were added.
pub(super) struct Merge {
    sources: Vec<Source>,
    heads: BinaryHeap<Head>,
}

impl Merge {
    /// Puts the next record into `record`; `false` after the last.
    pub(super) fn next(&mut self, record: &mut Record) -> Result<bool, Fault> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(false);
        };
        std::mem::swap(record, &mut head.record);
        let source = head.source;
        if !self.sources[source].next(&mut head.record)? {
            std::collections::binary_heap::PeekMut::pop(head);
        }
        Ok(true)
    }
}

/// The next record of a source; the least key is the greatest head, of equal ones the earliest source's.
struct Head {
    record: Record,
    source: usize,
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let keys = other.record.key.cmp(&self.record.key);
        keys.then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

enum Source {
    Memory {
        bytes: Vec<u8>,
        index: std::vec::IntoIter<(u64, usize)>,
    },
    File(BufReader<File>, PathBuf),
}

impl Source {
    fn next(&mut self, record: &mut Record) -> Result<bool, Fault> {
        record.key.clear();
        record.value.clear();
        match self {
            Self::Memory { bytes, index } => {
                let Some((_, start)) = index.next() else {
                    return Ok(false);
                };
                let (key, _) = lengths_at(bytes, start);
                let (key, value) = record_at(bytes, start)[HEAD_BYTES..].split_at(key);
                record.key.extend_from_slice(key);
                record.value.extend_from_slice(value);
                Ok(true)
            }
            Self::File(file, path) => {
                read_record(file, record).map_err(|error| Fault::io("read", path, error))
            }
        }
    }
}

fn read_record(file: &mut BufReader<File>, record: &mut Record) -> std::io::Result<bool> {
    let mut head = [0; HEAD_BYTES];
    match file.read_exact(&mut head) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let (key, value) = lengths(head);
    record.key.resize(key, 0);
    file.read_exact(&mut record.key)?;
    if value <= LONG_BYTES {
        record.value.resize(value, 0);
        file.read_exact(&mut record.value)?;
    } else if file.take(value as u64).read_to_end(&mut record.value)? < value {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}
