//! ERA1: archives of up to 8192 blocks before the Merge.
//!
//! A file is a list of entries: type (u16, little-endian), data length (u32), two zero bytes, data.
//!
//! ```text
//! version | (header body receipts total-difficulty)* | accumulator | index
//! ```
//!
//! Header, body and receipts are Snappy frames of RLP; a total difficulty is 32 bytes, little-endian.
//!
//! Spec: eth-clients/e2store-format-specs, `formats/era1.md`.

use super::source::{FilePosition, Input, MAX_BLOCK_BYTES, RawBlock, RawBytes};
use eyre::{Context, Result, ensure, eyre};
use niwaki_chain::header_accumulator;
use niwaki_primitives::{B256, U256};
use snap::read::FrameDecoder;
use snap::write::FrameEncoder;
use std::io::{Read, Write};

/// The most blocks of one file.
pub(crate) const MAX_BLOCKS: usize = 8192;

const VERSION: u16 = 0x3265;
const HEADER: u16 = 0x03;
const BODY: u16 = 0x04;
const RECEIPTS: u16 = 0x05;
const TOTAL_DIFFICULTY: u16 = 0x06;
const ACCUMULATOR: u16 = 0x07;
const INDEX: u16 = 0x3266;

/// Reads the blocks of an archive.
pub(crate) struct Reader {
    input: Input,
    is_begun: bool,
    is_ended: bool,
}

struct Entry {
    kind: u16,
    data: Vec<u8>,
}

impl Reader {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            is_begun: false,
            is_ended: false,
        }
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<RawBlock>> {
        let mut header = None;
        while !self.is_ended {
            let position = self.input.position();
            let Some(entry) = self.next_entry()? else {
                return Err(self.input.truncated(&position));
            };
            if !self.is_begun {
                ensure!(
                    entry.kind == VERSION,
                    "{} does not begin as an ERA1 file does; name the right --format",
                    position.file.display()
                );
                self.is_begun = true;
            }
            match (entry.kind, header.take()) {
                (HEADER, None) => header = Some((position, entry.data)),
                (BODY, Some((position, header))) => {
                    let body = entry.data;
                    let bytes = RawBytes::Compressed { header, body };
                    return Ok(Some(RawBlock { position, bytes }));
                }
                (BODY, None) | (_, Some(_)) => {
                    return Err(eyre!(
                        "{} is damaged at byte {}: a header and its body do not stand together",
                        position.file.display(),
                        position.offset_bytes
                    ));
                }
                (INDEX, None) => self.is_ended = true,
                // Receipts and difficulties are recomputed by the import. Unknown entries, of a later version
                // of the format, are skipped.
                _ => {}
            }
        }
        Ok(None)
    }

    fn next_entry(&mut self) -> Result<Option<Entry>> {
        let start = self.input.position();
        let mut head = Vec::with_capacity(8);
        if !self.input.append(8, &mut head)? {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(self.input.truncated(&start))
            };
        }
        let kind = u16::from_le_bytes([head[0], head[1]]);
        let length = u64::from(u32::from_le_bytes([head[2], head[3], head[4], head[5]]));
        ensure!(
            length <= MAX_BLOCK_BYTES,
            "{} is damaged at byte {}: an entry of {length} bytes",
            start.file.display(),
            start.offset_bytes
        );
        let mut data = Vec::new();
        if !self.input.append(length, &mut data)? {
            return Err(self.input.truncated(&start));
        }
        Ok(Some(Entry { kind, data }))
    }
}

/// Decompresses Snappy frames, up to [`MAX_BLOCK_BYTES`].
pub(crate) fn decompress(frames: &[u8], position: &FilePosition) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    FrameDecoder::new(frames)
        .take(MAX_BLOCK_BYTES)
        .read_to_end(&mut out)
        .wrap_err_with(|| format!("{} is damaged: its Snappy frames", position.block()))?;
    Ok(out)
}

/// Writes an archive.
pub(crate) struct Writer<W: Write> {
    out: W,
    offset: u64,
    first: u64,
    blocks: Vec<WrittenBlock>,
}

struct WrittenBlock {
    offset: u64,
    hash: B256,
    total_difficulty: U256,
}

/// One block of an archive.
pub(crate) struct ArchivedBlock<'a> {
    pub(crate) hash: B256,
    /// RLP.
    pub(crate) header: &'a [u8],
    /// RLP.
    pub(crate) body: &'a [u8],
    /// RLP of the list of receipts, each with its bloom.
    pub(crate) receipts: &'a [u8],
    pub(crate) total_difficulty: U256,
}

impl<W: Write> Writer<W> {
    /// Begins an archive whose first block is `first`.
    pub(crate) fn new(out: W, first: u64) -> Result<Self> {
        let mut writer = Self {
            out,
            offset: 0,
            first,
            blocks: Vec::new(),
        };
        writer.entry(VERSION, &[])?;
        Ok(writer)
    }

    pub(crate) fn block(&mut self, block: &ArchivedBlock<'_>) -> Result<()> {
        let offset = self.offset;
        for (kind, rlp) in [
            (HEADER, block.header),
            (BODY, block.body),
            (RECEIPTS, block.receipts),
        ] {
            self.entry(kind, &compress(rlp)?)?;
        }
        let total_difficulty = block.total_difficulty;
        self.entry(TOTAL_DIFFICULTY, &total_difficulty.to_le_bytes::<32>())?;
        self.blocks.push(WrittenBlock {
            offset,
            hash: block.hash,
            total_difficulty,
        });
        Ok(())
    }

    /// Writes the accumulator and the index, and returns the file.
    pub(crate) fn finish(mut self) -> Result<W> {
        let records = self.blocks.iter();
        let root = header_accumulator(records.map(|block| (block.hash, block.total_difficulty)));
        self.entry(ACCUMULATOR, root.as_slice())?;
        let index_start = self.offset;
        let mut index = self.first.to_le_bytes().to_vec();
        for block in &self.blocks {
            // Relative to the index, hence negative.
            index.extend(block.offset.wrapping_sub(index_start).to_le_bytes());
        }
        index.extend((self.blocks.len() as u64).to_le_bytes());
        self.entry(INDEX, &index)?;
        Ok(self.out)
    }

    fn entry(&mut self, kind: u16, data: &[u8]) -> Result<()> {
        let length = u32::try_from(data.len()).wrap_err("an entry has at most 4 GiB")?;
        let mut head = [0; 8];
        head[..2].copy_from_slice(&kind.to_le_bytes());
        head[2..6].copy_from_slice(&length.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(data)?;
        self.offset = self
            .offset
            .saturating_add(8)
            .saturating_add(u64::from(length));
        Ok(())
    }
}

fn compress(data: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(data)?;
    encoder
        .into_inner()
        .map_err(|error| eyre!("compressing a block failed: {error}"))
}
