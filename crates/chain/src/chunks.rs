//! Export files: rows in compressed chunks. Each checksum covers the one before it too, so that a chunk that was
//! changed, moved, duplicated or dropped is found.
//!
//! The format is in `niwaki-storage`'s FORMAT.md. Until a file is whole its name ends in `.part`; a later export
//! resumes after the whole chunks of that.

mod resume;

use crate::TransferError;
use alloy_primitives::keccak256;
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::Segment;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) use resume::PartFile;

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The state after one block, and the blocks before it that matter.
    State,
    /// Trie logs.
    TrieLogs,
}

impl FileKind {
    /// The first line.
    const fn magic(self) -> &'static str {
        match self {
            Self::State => "niwaki-state 1\n",
            Self::TrieLogs => "niwaki-trie-logs 1\n",
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::State => "an exported state",
            Self::TrieLogs => "exported trie logs",
        }
    }
}

/// The first chunk: of which chain, and which block was its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(crate) struct About {
    pub(crate) genesis: B256,
    pub(crate) chain_id: u64,
    pub(crate) number: u64,
    pub(crate) hash: B256,
}

/// A chunk ends when it has grown to this.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// No chunk is larger: a row may be, but no block or code comes near.
const MAX_BYTES: usize = 256 << 20;

/// Tag, stored length, plain length.
const HEAD_BYTES: usize = 9;

const LEVEL: i32 = 3;

const END: u8 = 0;
const ABOUT: u8 = 1;

/// The tags of rows.
const TAGS: [(u8, Segment); 7] = [
    (2, Segment::Headers),
    (3, Segment::Bodies),
    (4, Segment::Receipts),
    (5, Segment::Code),
    (6, Segment::Accounts),
    (7, Segment::Slots),
    (8, Segment::TrieLogs),
];

/// Where a chunk begins, and the checksum before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) checksum: B256,
}

/// Writes a file.
pub(crate) struct ChunkWriter {
    to: PathBuf,
    part: PathBuf,
    /// The part file of an interrupted export, until what can stay of it has been read. Nothing is written before.
    part_reader: Option<ChunkReader>,
    /// Bytes of the part file that stay.
    resumed_bytes: u64,
    out: BufWriter<File>,
    /// A chunk ends when it has grown to this.
    pub(crate) chunk_bytes: usize,
    /// The checksum of the last chunk.
    checksum: B256,
    segment: Segment,
    rows: Vec<u8>,
    packed: Vec<u8>,
}

impl ChunkWriter {
    /// Begins the file `to`, over the part file of an interrupted export.
    pub(crate) fn create(to: &Path, kind: FileKind, about: &About) -> Result<Self, TransferError> {
        let mut writer = Self::open(to)?;
        writer.begin(kind, about)?;
        Ok(writer)
    }

    /// Opens the part file, and changes nothing in it.
    fn open(to: &Path) -> Result<Self, TransferError> {
        if to.exists() {
            let path = to.display().to_string();
            return Err(TransferError::Exists { path });
        }
        let part = to.with_added_extension("part");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part)
            .map_err(|error| Fault::io("create", &part, error))?;
        Ok(Self {
            to: to.to_owned(),
            part,
            part_reader: None,
            resumed_bytes: 0,
            out: BufWriter::with_capacity(1 << 20, file),
            chunk_bytes: CHUNK_BYTES,
            checksum: B256::ZERO,
            segment: Segment::Meta,
            rows: Vec::new(),
            packed: Vec::new(),
        })
    }

    fn begin(&mut self, kind: FileKind, about: &About) -> Result<(), Fault> {
        let magic = kind.magic();
        let checksum = keccak256(magic);
        self.truncate_to(Place { at: 0, checksum })?;
        let written = self.out.write_all(magic.as_bytes());
        written.map_err(|error| Fault::io("write", &self.part, error))?;
        self.chunk(ABOUT, &alloy_rlp::encode(about))
    }

    /// Cuts the part file at `place`, to write from there on.
    fn truncate_to(&mut self, place: Place) -> Result<(), Fault> {
        self.part_reader = None;
        self.resumed_bytes = place.at;
        self.checksum = place.checksum;
        let file = self.out.get_mut();
        file.set_len(place.at)
            .and_then(|()| file.seek(SeekFrom::Start(place.at)))
            .map_err(|error| Fault::io("cut", &self.part, error))?;
        Ok(())
    }

    /// Adds a row; true if the rows before it have become a chunk.
    pub(crate) fn row(
        &mut self,
        segment: Segment,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Fault> {
        let is_next = segment != self.segment || self.rows.len() >= self.chunk_bytes;
        if is_next {
            self.flush()?;
            self.segment = segment;
        }
        let key_bytes = u8::try_from(key.len()).expect("a key is a few hashes");
        let value_bytes = u32::try_from(value.len()).expect("no row has 4 GiB");
        self.rows.push(key_bytes);
        self.rows.extend_from_slice(key);
        self.rows.extend_from_slice(&value_bytes.to_be_bytes());
        self.rows.extend_from_slice(value);
        Ok(is_next)
    }

    /// Ends the file, syncs and renames it. Returns its length, and how much of it an interrupted export wrote.
    pub(crate) fn finish(mut self) -> Result<(u64, u64), Fault> {
        self.flush()?;
        self.chunk(END, &[])?;
        let end = |out: &mut BufWriter<File>| -> std::io::Result<u64> {
            out.flush()?;
            out.get_ref().sync_all()?;
            Ok(out.get_ref().metadata()?.len())
        };
        let bytes = end(&mut self.out).map_err(|error| Fault::io("write", &self.part, error))?;
        fs::rename(&self.part, &self.to).map_err(|error| Fault::io("rename", &self.part, error))?;
        Ok((bytes, self.resumed_bytes))
    }

    /// Keeps the part file, for a later export to resume.
    pub(crate) fn keep_part(mut self) -> Result<(), Fault> {
        let flushed = self.out.flush();
        flushed.map_err(|error| Fault::io("write", &self.part, error))
    }

    /// Removes the part file.
    pub(crate) fn discard(self) -> Result<(), Fault> {
        fs::remove_file(&self.part).map_err(|error| Fault::io("remove", &self.part, error))
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let tag = TAGS.iter().find(|(_, segment)| *segment == self.segment);
        let tag = tag.expect("only rows of these segments leave").0;
        let rows = std::mem::take(&mut self.rows);
        self.chunk(tag, &rows)?;
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }

    fn chunk(&mut self, tag: u8, plain: &[u8]) -> Result<(), Fault> {
        if self.is_in_part_file(tag, plain)? {
            return Ok(());
        }
        self.packed.clear();
        if !plain.is_empty() {
            self.packed
                .resize(zstd_safe::compress_bound(plain.len()), 0);
            let packed = zstd_safe::compress(&mut self.packed[..], plain, LEVEL);
            let length = packed.map_err(|code| {
                let text = zstd_safe::get_error_name(code);
                Fault::io("compress", &self.part, std::io::Error::other(text))
            })?;
            self.packed.truncate(length);
        }
        let stored = u32::try_from(self.packed.len()).expect("a chunk has less than 4 GiB");
        let length = u32::try_from(plain.len()).expect("a chunk has less than 4 GiB");
        let mut head = [tag; HEAD_BYTES];
        head[1..5].copy_from_slice(&stored.to_be_bytes());
        head[5..].copy_from_slice(&length.to_be_bytes());
        self.checksum = checksum(&self.checksum, &head, &self.packed);
        let parts = [&head[..], &self.packed, self.checksum.as_slice()];
        parts
            .iter()
            .try_for_each(|part| self.out.write_all(part))
            .map_err(|error| Fault::io("write", &self.part, error))
    }
}

fn checksum(before: &B256, head: &[u8; HEAD_BYTES], packed: &[u8]) -> B256 {
    let of_bytes = keccak256(packed);
    keccak256([before.as_slice(), head, of_bytes.as_slice()].concat())
}

/// Rows of one segment.
pub(crate) struct Chunk {
    pub(crate) segment: Segment,
    rows: Vec<u8>,
}

impl Chunk {
    /// Calls `row` with each row; false if the chunk is malformed.
    pub(crate) fn each(
        &self,
        mut row: impl FnMut(&[u8], &[u8]) -> Result<(), TransferError>,
    ) -> Result<bool, TransferError> {
        let mut rest = &self.rows[..];
        while let Some((key_bytes, after)) = rest.split_first() {
            let Some((key, after)) = after.split_at_checked(usize::from(*key_bytes)) else {
                return Ok(false);
            };
            let Some((length, after)) = after.split_first_chunk::<4>() else {
                return Ok(false);
            };
            let length = u32::from_be_bytes(*length) as usize;
            let Some((value, after)) = after.split_at_checked(length) else {
                return Ok(false);
            };
            row(key, value)?;
            rest = after;
        }
        Ok(true)
    }
}

/// Reads a file, and verifies the checksum of a chunk before it returns the chunk.
pub(crate) struct ChunkReader {
    path: PathBuf,
    input: BufReader<File>,
    checksum: B256,
    /// Where the next chunk begins.
    at: u64,
    length: u64,
    packed: Vec<u8>,
}

impl ChunkReader {
    /// Opens a file and reads its first chunk.
    pub(crate) fn open(path: &Path, kind: FileKind) -> Result<(Self, About), TransferError> {
        let file = File::open(path).map_err(|error| Fault::io("open", path, error))?;
        let metadata = file
            .metadata()
            .map_err(|error| Fault::io("read", path, error))?;
        let magic = kind.magic();
        let mut reader = Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 20, file),
            checksum: keccak256(magic),
            at: magic.len() as u64,
            length: metadata.len(),
            packed: Vec::new(),
        };
        let mut found = vec![0; magic.len()];
        match reader.input.read_exact(&mut found) {
            Ok(()) if found == magic.as_bytes() => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
                return Err(Fault::io("read", path, error).into());
            }
            _ => {
                let (path, what) = (path.display().to_string(), kind.what());
                return Err(TransferError::NotOurs { path, what });
            }
        }
        let (tag, plain) = reader.chunk()?;
        let about = alloy_rlp::decode_exact(&plain);
        match about {
            Ok(about) if tag == ABOUT => Ok((reader, about)),
            _ => Err(reader.damaged("its first chunk does not say what it is of")),
        }
    }

    /// The next rows; `None` at the end of a whole file.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>, TransferError> {
        let (tag, rows) = self.chunk()?;
        if tag == END {
            return match self.at == self.length && rows.is_empty() {
                true => Ok(None),
                false => Err(self.damaged("something follows its end")),
            };
        }
        match TAGS.iter().find(|(known, _)| *known == tag) {
            Some((_, segment)) => Ok(Some(Chunk {
                segment: *segment,
                rows,
            })),
            None => Err(self.damaged("a chunk of an unknown kind")),
        }
    }

    /// Calls `row` with each row of a chunk of this file.
    pub(crate) fn each_row(
        &self,
        chunk: &Chunk,
        row: impl FnMut(&[u8], &[u8]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        match chunk.each(row)? {
            true => Ok(()),
            false => Err(self.damaged("a chunk is not made of rows")),
        }
    }

    /// Where the next chunk begins.
    pub(crate) fn place(&self) -> Place {
        Place {
            at: self.at,
            checksum: self.checksum,
        }
    }

    /// Seeks to a place of this file.
    pub(crate) fn seek(&mut self, place: Place) -> Result<(), Fault> {
        let sought = self.input.seek(SeekFrom::Start(place.at));
        sought.map_err(|error| Fault::io("read", &self.path, error))?;
        self.at = place.at;
        self.checksum = place.checksum;
        Ok(())
    }

    /// Whether the chunk before `place` has the checksum in `place`.
    pub(crate) fn has(&mut self, place: &Place) -> Result<bool, Fault> {
        let here = self.place();
        let mut found = B256::ZERO;
        let Some(at) = place.at.checked_sub(found.len() as u64) else {
            return Ok(false);
        };
        let read = self
            .input
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.input.read_exact(&mut found[..]));
        self.seek(here)?;
        match read {
            Ok(()) => Ok(found == place.checksum),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Fault::io("read", &self.path, error)),
        }
    }

    /// Bytes read, and the length of the file.
    pub(crate) fn done(&self) -> (u64, u64) {
        (self.at, self.length)
    }

    /// The error for a file that is damaged here.
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> TransferError {
        TransferError::Damaged {
            path: self.path.display().to_string(),
            at: self.at,
            reason: reason.into(),
        }
    }

    fn chunk(&mut self) -> Result<(u8, Vec<u8>), TransferError> {
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head)?;
        let [tag, a, b, c, d, e, f, g, h] = head;
        let stored = u32::from_be_bytes([a, b, c, d]) as usize;
        let length = u32::from_be_bytes([e, f, g, h]) as usize;
        let rest = self.length - self.at;
        if stored as u64 > rest || length > MAX_BYTES {
            return Err(self.damaged("a chunk is longer than the file or than any chunk may be"));
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(stored, 0);
        self.fill(&mut packed)?;
        let mut found = B256::ZERO;
        self.fill(&mut found[..])?;
        if found != checksum(&self.checksum, &head, &packed) {
            return Err(self.damaged("a chunk does not have its checksum"));
        }
        let mut plain = vec![0; length];
        let is_whole = stored == 0 && length == 0
            || zstd_safe::decompress(&mut plain[..], &packed) == Ok(length);
        self.packed = packed;
        if !is_whole {
            return Err(self.damaged("a chunk can't be unpacked"));
        }
        self.checksum = found;
        self.at += (HEAD_BYTES + stored + found.len()) as u64;
        Ok((tag, plain))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), TransferError> {
        match self.input.read_exact(buffer) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.damaged("it is cut off"))
            }
            Err(error) => Err(Fault::io("read", &self.path, error).into()),
        }
    }
}
