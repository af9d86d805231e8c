//! Files that leave the data path: rows in compressed chunks, each checksum resting on the one
//! before, so that a chunk that was changed, moved, doubled or dropped is found.
//!
//! `niwaki-storage`'s FORMAT.md gives the bytes. A file appears under its name when it is whole; until
//! then it has that name with `.part`, and a later export goes on with the whole chunks of that.

mod resume;

use crate::TransferError;
use alloy_primitives::keccak256;
use alloy_rlp::{RlpDecodable, RlpEncodable};
use niwaki_primitives::{B256, Fault};
use niwaki_storage::Segment;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(crate) use resume::Left;

/// What a file holds.
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

/// Where a chunk begins, and what its checksum rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, RlpDecodable, RlpEncodable)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) checksum: B256,
}

/// Lengths of a file that was written, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    /// As many of them an interrupted export has left.
    pub(crate) kept: u64,
}

/// Writes a file.
pub(crate) struct ChunkWriter {
    to: PathBuf,
    part: PathBuf,
    /// What an interrupted export has left and was not gone through yet. Until it is, nothing is
    /// written.
    left: Option<ChunkReader>,
    /// As many bytes of that stay.
    kept: u64,
    out: BufWriter<File>,
    chunk_bytes: usize,
    /// What the next checksum rests on.
    checksum: B256,
    segment: Segment,
    rows: Vec<u8>,
    packed: Vec<u8>,
}

impl ChunkWriter {
    /// Begins a file that will be called `to`, over what an interrupted export has left.
    pub(crate) fn create(to: &Path, kind: FileKind, about: &About) -> Result<Self, TransferError> {
        let mut writer = Self::open(to)?;
        writer.begin(kind, about)?;
        Ok(writer)
    }

    /// With chunks that end when they have grown to `chunk_bytes`.
    pub(crate) fn with_chunk_bytes(self, chunk_bytes: usize) -> Self {
        Self {
            chunk_bytes,
            ..self
        }
    }

    /// Touches nothing that is there.
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
            left: None,
            kept: 0,
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
        self.cut(Place { at: 0, checksum })?;
        let written = self.out.write_all(magic.as_bytes());
        written.map_err(|error| Fault::io("write", &self.part, error))?;
        self.chunk(ABOUT, &alloy_rlp::encode(about))
    }

    /// From `place` on the file is written.
    fn cut(&mut self, place: Place) -> Result<(), Fault> {
        self.left = None;
        self.kept = place.at;
        self.checksum = place.checksum;
        let file = self.out.get_mut();
        file.set_len(place.at)
            .and_then(|()| file.seek(SeekFrom::Start(place.at)))
            .map_err(|error| Fault::io("cut", &self.part, error))?;
        Ok(())
    }

    /// Adds a row; `true` if the ones before it are a chunk now.
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

    /// Ends the file, brings it to the disk and gives it its name; gives its lengths.
    pub(crate) fn finish(mut self) -> Result<Written, Fault> {
        self.flush()?;
        self.chunk(END, &[])?;
        let end = |out: &mut BufWriter<File>| -> std::io::Result<u64> {
            out.flush()?;
            out.get_ref().sync_all()?;
            Ok(out.get_ref().metadata()?.len())
        };
        let bytes = end(&mut self.out).map_err(|error| Fault::io("write", &self.part, error))?;
        fs::rename(&self.part, &self.to).map_err(|error| Fault::io("rename", &self.part, error))?;
        let kept = self.kept;
        Ok(Written { bytes, kept })
    }

    /// Leaves what was written for a later export to go on with.
    pub(crate) fn leave(mut self) -> Result<(), Fault> {
        let flushed = self.out.flush();
        flushed.map_err(|error| Fault::io("write", &self.part, error))
    }

    /// Removes what was written.
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
        if self.is_left(tag, plain)? {
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
    /// Hands out each row; what is wrong with the form of the chunk, if anything is.
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

/// Reads a file; nothing of a chunk is given out before its checksum was found right.
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
    /// Opens a file and reads what it says of itself.
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

    /// The next rows; `None` after the last ones, when nothing is missing.
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

    /// Where the next chunk begins.
    pub(crate) fn place(&self) -> Place {
        Place {
            at: self.at,
            checksum: self.checksum,
        }
    }

    /// Goes to a place of this file.
    pub(crate) fn go_to(&mut self, place: Place) -> Result<(), Fault> {
        let sought = self.input.seek(SeekFrom::Start(place.at));
        sought.map_err(|error| Fault::io("read", &self.path, error))?;
        self.at = place.at;
        self.checksum = place.checksum;
        Ok(())
    }

    /// Whether the chunk before `place` is the one that was there when it was read.
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
        self.go_to(here)?;
        match read {
            Ok(()) => Ok(found == place.checksum),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Fault::io("read", &self.path, error)),
        }
    }

    /// Bytes that are read, of how many.
    pub(crate) fn done(&self) -> (u64, u64) {
        (self.at, self.length)
    }

    /// The refusal of the file as it was read so far.
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
