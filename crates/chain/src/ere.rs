//! Ere files: archives of up to 8,192 blocks of any fork with their receipts. ERA1 files, of blocks before the Merge, are read too.
//!
//! A file is a list of entries: type (u16, little-endian), data length (u32), two zero bytes, data.
//!
//! ```text
//! Ere    version | header* | body* | receipts* | proof* | total difficulty* | accumulator? | index
//! ERA1   version | (header body receipts total-difficulty)* | accumulator | index
//! ```
//!
//! Headers, bodies and receipts are Snappy frames of RLP, receipts in the form of `eth/69`, without blooms, in ERA1 files with them; a
//! total difficulty is 32 bytes, little-endian. The index has the place of each part of each block, in ERA1 files that of each header,
//! so that a file is read from any block on.
//!
//! Spec: eth-clients/e2store-format-specs, `formats/ere.md`, `formats/era1.md`.

mod accumulator;

use crate::rows::decode_receipts;
pub use accumulator::header_accumulator;
use alloy_rlp::Header as RlpHeader;
use niwaki_primitives::{B256, BlockBody, Header, Receipt};
use snap::read::FrameDecoder;
use snap::write::FrameEncoder;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Most blocks of a file.
pub const MAX_ERE_BLOCKS: u64 = 8_192;

/// Far more than any part of a block has.
const MAX_PART_BYTES: u64 = 256 << 20;
const ENTRY_HEAD_BYTES: u64 = 8;
const WORD_BYTES: u64 = 8;
/// Most parts that a block may have in an index.
const MAX_PARTS: u64 = 16;

const VERSION: u16 = 0x3265;
const ACCUMULATOR: u16 = 0x07;
const INDEX: u16 = 0x3267;
const ERA1_INDEX: u16 = 0x3266;
const ERA1_RECEIPTS: u16 = 0x05;
/// Header, body, receipts and total difficulty of a block.
const ERA1_PARTS: u64 = 4;

/// A part of a block in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErePart {
    /// The header.
    Header,
    /// The body.
    Body,
    /// The receipts.
    Receipts,
    /// The total difficulty, before the Merge and in the file that it is in.
    Difficulty,
}

impl ErePart {
    fn kind(self) -> u16 {
        match self {
            Self::Header => 0x03,
            Self::Body => 0x04,
            Self::Receipts => 0x0a,
            Self::Difficulty => 0x06,
        }
    }
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum EreError {
    /// The system can't read it.
    #[error("can't read {path}: {error}; check its name and permissions")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It is damaged, or no such file.
    #[error("{path} is damaged or no Ere or ERA1 file, at byte {at}: {reason}; get another copy")]
    Damaged {
        /// The file.
        path: String,
        /// Where.
        at: u64,
        /// What is wrong.
        reason: String,
    },
}

/// What an index has of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// So many parts, in any order.
    Ere { parts: u64 },
    /// The header, which the other parts follow.
    Era1,
}

impl Layout {
    /// Numbers of the index for each block.
    fn words(self) -> u64 {
        match self {
            Self::Ere { parts } => parts,
            Self::Era1 => 1,
        }
    }

    /// Entries from each of these places on.
    fn entries(self) -> u64 {
        match self {
            Self::Ere { .. } => 1,
            Self::Era1 => ERA1_PARTS,
        }
    }

    fn kind(self, part: ErePart) -> u16 {
        match (self, part) {
            (Self::Era1, ErePart::Receipts) => ERA1_RECEIPTS,
            _ => part.kind(),
        }
    }
}

/// A file of blocks.
#[derive(Debug)]
pub struct EreFile {
    path: PathBuf,
    file: File,
    first: u64,
    count: u64,
    layout: Layout,
    /// Where the entry of the index begins.
    index: u64,
}

impl EreFile {
    /// Opens a file and reads where its index is.
    ///
    /// # Errors
    /// [`EreError`].
    pub fn open(path: &Path) -> Result<Self, EreError> {
        let unreadable = |error| EreError::Unreadable {
            path: path.display().to_string(),
            error,
        };
        let file = File::open(path).map_err(unreadable)?;
        let length = file.metadata().map_err(unreadable)?.len();
        let mut opened = Self {
            path: path.to_owned(),
            file,
            first: 0,
            count: 0,
            layout: Layout::Era1,
            index: 0,
        };
        opened.find_index(length)?;
        Ok(opened)
    }

    /// Reads where the index is: at the end of the file, whose last words say how long it is.
    fn find_index(&mut self, length: u64) -> Result<(), EreError> {
        let end = length.saturating_sub(2 * WORD_BYTES);
        let [parts, count] = [self.word(end)?, self.word(end.saturating_add(WORD_BYTES))?];
        if !(1..=MAX_ERE_BLOCKS).contains(&count) {
            return Err(self.damaged(end, format!("an index of {count} blocks")));
        }
        // In an ERA1 file it is the place of a block, a negative number.
        let (layout, kind, bytes) = match parts {
            2..=MAX_PARTS => {
                let bytes = (count * parts + 3) * WORD_BYTES;
                (Layout::Ere { parts }, INDEX, bytes)
            }
            _ => (Layout::Era1, ERA1_INDEX, (count + 2) * WORD_BYTES),
        };
        let index = length.checked_sub(bytes + ENTRY_HEAD_BYTES);
        let index = index.ok_or_else(|| self.damaged(0, "it is shorter than its index".into()))?;
        if self.entry_head(index)? != (kind, bytes) {
            return Err(self.damaged(index, "there is no index".into()));
        }
        self.first = self.word(index + ENTRY_HEAD_BYTES)?;
        (self.layout, self.count, self.index) = (layout, count, index);
        Ok(())
    }

    /// The numbers of its blocks.
    pub fn numbers(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.count)
    }

    /// The header of a block.
    ///
    /// # Errors
    /// [`EreError`], also of a block that is not in the file.
    pub fn header(&self, number: u64) -> Result<Header, EreError> {
        self.decoded(number, ErePart::Header, |rlp| alloy_rlp::decode_exact(rlp))
    }

    /// The body of a block.
    ///
    /// # Errors
    /// As for [`EreFile::header`].
    pub fn body(&self, number: u64) -> Result<BlockBody, EreError> {
        self.decoded(number, ErePart::Body, |rlp| alloy_rlp::decode_exact(rlp))
    }

    /// The receipts of a block.
    ///
    /// # Errors
    /// As for [`EreFile::header`], also if the file has none.
    pub fn receipts(&self, number: u64) -> Result<Vec<Receipt>, EreError> {
        let decode = match self.layout {
            Layout::Ere { .. } => decode_receipts,
            Layout::Era1 => receipts_with_blooms,
        };
        self.decoded(number, ErePart::Receipts, decode)
    }

    /// A part of a block as it lies in the file: Snappy frames.
    ///
    /// # Errors
    /// As for [`EreFile::header`].
    pub fn frames(&self, number: u64, part: ErePart) -> Result<Vec<u8>, EreError> {
        let at = self.place(number, part)?;
        let (_, length) = self.entry_head(at)?;
        let mut data = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.read(at + ENTRY_HEAD_BYTES, &mut data)?;
        Ok(data)
    }

    /// Where the entry of a part of a block begins, bytes from the start of the file.
    ///
    /// # Errors
    /// As for [`EreFile::header`].
    pub fn place(&self, number: u64, part: ErePart) -> Result<u64, EreError> {
        let block = number.checked_sub(self.first);
        let block = block.filter(|block| *block < self.count).ok_or_else(|| {
            let numbers = self.numbers();
            let reason = format!("it has the blocks {numbers:?}, not block {number}");
            self.damaged(self.index, reason)
        })?;
        let words = self.layout.words();
        let record = self.index + ENTRY_HEAD_BYTES + WORD_BYTES * (1 + block * words);
        for word in 0..words {
            // Relative to the index, hence negative.
            let word = self.word(record + word * WORD_BYTES)?;
            let mut at = self.index.wrapping_add(word);
            for _ in 0..self.layout.entries() {
                if at >= self.index {
                    let reason = format!("a part of block {number} is at {at}");
                    return Err(self.damaged(record, reason));
                }
                let (kind, length) = self.entry_head(at)?;
                if kind == self.layout.kind(part) {
                    return Ok(at);
                }
                at += ENTRY_HEAD_BYTES + length;
            }
        }
        Err(self.damaged(record, format!("block {number} has no {part:?}")))
    }

    fn decoded<T>(
        &self,
        number: u64,
        part: ErePart,
        decode: impl Fn(&[u8]) -> Result<T, alloy_rlp::Error>,
    ) -> Result<T, EreError> {
        let wrong = |reason: String| {
            let at = self.place(number, part).unwrap_or(self.index);
            self.damaged(at, format!("{part:?} of block {number}: {reason}"))
        };
        let frames = self.frames(number, part)?;
        let mut rlp = Vec::new();
        FrameDecoder::new(&frames[..])
            .take(MAX_PART_BYTES)
            .read_to_end(&mut rlp)
            .map_err(|error| wrong(error.to_string()))?;
        decode(&rlp).map_err(|error| wrong(error.to_string()))
    }

    /// Type and length of an entry, which lies in the file.
    fn entry_head(&self, at: u64) -> Result<(u16, u64), EreError> {
        let mut head = [0; 8];
        self.read(at, &mut head)?;
        let length = u64::from(u32::from_le_bytes([head[2], head[3], head[4], head[5]]));
        if length > MAX_PART_BYTES {
            return Err(self.damaged(at, format!("an entry of {length} bytes")));
        }
        Ok((u16::from_le_bytes([head[0], head[1]]), length))
    }

    fn word(&self, at: u64) -> Result<u64, EreError> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), EreError> {
        self.file
            .read_exact_at(out, at)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.damaged(at, "it ends before".into()),
                _ => EreError::Unreadable {
                    path: self.path.display().to_string(),
                    error,
                },
            })
    }

    fn damaged(&self, at: u64, reason: String) -> EreError {
        EreError::Damaged {
            path: self.path.display().to_string(),
            at,
            reason,
        }
    }
}

/// Receipts as an ERA1 file has them.
fn receipts_with_blooms(rlp: &[u8]) -> Result<Vec<Receipt>, alloy_rlp::Error> {
    let mut rest = rlp;
    let mut list = RlpHeader::decode_bytes(&mut rest, true)?;
    let mut receipts = Vec::new();
    while !list.is_empty() {
        receipts.push(Receipt::decode_with_bloom(&mut list)?);
    }
    match rest.is_empty() {
        true => Ok(receipts),
        false => Err(alloy_rlp::Error::UnexpectedLength),
    }
}

/// Writes a file, part by part: first all headers, then all bodies, and so on.
#[derive(Debug)]
pub struct EreWriter<W: Write> {
    out: W,
    offset: u64,
    first: u64,
    /// Where the parts are, one list for each kind.
    places: Vec<(ErePart, Vec<u64>)>,
}

impl<W: Write> EreWriter<W> {
    /// Begins a file whose first block is `first`.
    ///
    /// # Errors
    /// Of the output.
    pub fn new(out: W, first: u64) -> io::Result<Self> {
        let mut writer = Self {
            out,
            offset: 0,
            first,
            places: Vec::new(),
        };
        writer.entry(VERSION, &[])?;
        Ok(writer)
    }

    /// Adds the part of the next block: RLP, or the 32 bytes of a total difficulty.
    ///
    /// # Errors
    /// Of the output.
    pub fn put(&mut self, part: ErePart, data: &[u8]) -> io::Result<()> {
        let at = self.offset;
        match part {
            ErePart::Difficulty => self.entry(part.kind(), data)?,
            _ => self.entry(part.kind(), &compress(data)?)?,
        }
        match self.places.last_mut() {
            Some((last, places)) if *last == part => places.push(at),
            _ => self.places.push((part, vec![at])),
        }
        Ok(())
    }

    /// Writes the accumulator, which a file has that begins before the Merge, and the index. Returns the file.
    ///
    /// # Errors
    /// Of the output.
    pub fn finish(mut self, accumulator: Option<B256>) -> io::Result<W> {
        if let Some(root) = accumulator {
            self.entry(ACCUMULATOR, root.as_slice())?;
        }
        let at = self.offset;
        let count = self.places.first().map_or(0, |(_, places)| places.len());
        let mut index = self.first.to_le_bytes().to_vec();
        for block in 0..count {
            let places = self.places.iter().filter_map(|(_, all)| all.get(block));
            index.extend(places.flat_map(|place| place.wrapping_sub(at).to_le_bytes()));
        }
        index.extend((self.places.len() as u64).to_le_bytes());
        index.extend((count as u64).to_le_bytes());
        self.entry(INDEX, &index)?;
        Ok(self.out)
    }

    fn entry(&mut self, kind: u16, data: &[u8]) -> io::Result<()> {
        let length = u32::try_from(data.len()).map_err(io::Error::other)?;
        let mut head = [0; 8];
        head[..2].copy_from_slice(&kind.to_le_bytes());
        head[2..6].copy_from_slice(&length.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(data)?;
        self.offset += ENTRY_HEAD_BYTES + u64::from(length);
        Ok(())
    }
}

fn compress(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(data)?;
    encoder
        .into_inner()
        .map_err(|error| io::Error::other(error.to_string()))
}
