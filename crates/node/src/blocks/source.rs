//! The raw blocks of a list of files, in order; header and body are decoded on demand.
//!
//! Files are untrusted and may be larger than memory: one block of at most [`MAX_BLOCK_BYTES`] is held at a
//! time.

use super::{era1, ere, rlp};
use crate::options::Format;
use eyre::{Context, Result, ensure, eyre};
use niwaki_primitives::{Block, BlockBody, Header, rlp::Decodable};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Far more than any block of a real chain has (EIP-7934 allows 8 MiB).
pub(crate) const MAX_BLOCK_BYTES: u64 = 256 << 20;

/// A block as it is stored in a file.
pub(crate) struct RawBlock {
    /// For messages.
    pub(crate) position: FilePosition,
    pub(crate) bytes: RawBytes,
}

pub(crate) enum RawBytes {
    /// RLP of the whole block.
    Whole(Vec<u8>),
    /// Header and body, each as Snappy frames of its RLP.
    Compressed { header: Vec<u8>, body: Vec<u8> },
}

/// A file and an offset in it.
#[derive(Clone, Debug)]
pub(crate) struct FilePosition {
    pub(crate) file: Arc<PathBuf>,
    pub(crate) offset_bytes: u64,
}

impl FilePosition {
    /// "the block at byte 12 of chain.rlp"
    pub(crate) fn block(&self) -> String {
        format!(
            "the block at byte {} of {}",
            self.offset_bytes,
            self.file.display()
        )
    }
}

impl RawBlock {
    /// Decodes the header only.
    pub(crate) fn header(&self) -> Result<Header> {
        let header = match &self.bytes {
            RawBytes::Whole(rlp) => {
                let mut rest = &rlp[..];
                alloy_rlp::Header::decode_bytes(&mut rest, true)
                    .and_then(|mut list| Header::decode(&mut list))
            }
            RawBytes::Compressed { header, .. } => {
                alloy_rlp::decode_exact(era1::decompress(header, &self.position)?)
            }
        };
        header.map_err(|error| self.decode_error(error))
    }

    /// Decodes the whole block.
    pub(crate) fn block(&self) -> Result<Block> {
        match &self.bytes {
            RawBytes::Whole(rlp) => {
                alloy_rlp::decode_exact(rlp).map_err(|error| self.decode_error(error))
            }
            RawBytes::Compressed { body, .. } => {
                let header = self.header()?;
                let body = era1::decompress(body, &self.position)?;
                let body: BlockBody =
                    alloy_rlp::decode_exact(body).map_err(|error| self.decode_error(error))?;
                Ok(Block { header, body })
            }
        }
    }

    fn decode_error(&self, error: alloy_rlp::Error) -> eyre::Report {
        eyre!(
            "{} is invalid: RLP_STRUCTURES_ENCODING: {error}; the file is damaged or of another \
             format",
            self.position.block()
        )
    }
}

/// The blocks of a list of files, in order.
pub(crate) struct Source {
    waiting: VecDeque<PathBuf>,
    format: Format,
    open: Option<Reader>,
    read_bytes: Arc<AtomicU64>,
    has_failed: bool,
}

enum Reader {
    Rlp(rlp::Reader),
    Era1(era1::Reader),
    Ere(ere::Reader),
}

impl Source {
    /// # Errors
    /// Without any file.
    pub(crate) fn new(files: &[PathBuf], format: Format) -> Result<Self> {
        ensure!(
            !files.is_empty(),
            "there is nothing to import; name the files with --from FILE"
        );
        Ok(Self {
            waiting: files.iter().cloned().collect(),
            format,
            open: None,
            read_bytes: Arc::default(),
            has_failed: false,
        })
    }

    /// The bytes read so far; updated while another thread reads the blocks.
    pub(crate) fn read_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read_bytes)
    }

    fn try_next(&mut self) -> Result<Option<RawBlock>> {
        loop {
            let block = match &mut self.open {
                Some(Reader::Rlp(reader)) => reader.next_block()?,
                Some(Reader::Era1(reader)) => reader.next_block()?,
                Some(Reader::Ere(reader)) => reader.next_block()?,
                None => None,
            };
            if block.is_some() {
                return Ok(block);
            }
            let Some(file) = self.waiting.pop_front() else {
                return Ok(None);
            };
            let input = || Input::open(&file, &self.read_bytes);
            self.open = Some(match self.format {
                Format::Era1 => Reader::Era1(era1::Reader::new(input()?)),
                Format::Ere => Reader::Ere(ere::Reader::open(&file, &self.read_bytes)?),
                Format::Rlp | Format::Json => Reader::Rlp(rlp::Reader::new(input()?)),
            });
        }
    }
}

impl Iterator for Source {
    type Item = Result<RawBlock>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let block = self.try_next().transpose();
        self.has_failed = matches!(block, Some(Err(_)));
        block
    }
}

/// The total size of the files. Fails on the first that is not a readable file.
pub(crate) fn total_bytes(files: &[PathBuf]) -> Result<u64> {
    files.iter().try_fold(0, |sum: u64, path| {
        let unreadable = || unreadable(path);
        let file = File::open(path).wrap_err_with(unreadable)?;
        let metadata = file.metadata().wrap_err_with(unreadable)?;
        ensure!(
            !metadata.is_dir(),
            "{} is a folder; name its files",
            path.display()
        );
        Ok(sum.saturating_add(metadata.len()))
    })
}

fn unreadable(path: &Path) -> String {
    format!(
        "can't read {}; check its name and permissions",
        path.display()
    )
}

/// A file that counts the bytes read.
pub(crate) struct Input {
    file: Arc<PathBuf>,
    bytes: BufReader<File>,
    offset: u64,
    total: Arc<AtomicU64>,
}

impl Input {
    pub(crate) fn open(path: &Path, total: &Arc<AtomicU64>) -> Result<Self> {
        let file = File::open(path).wrap_err_with(|| unreadable(path))?;
        Ok(Self {
            file: Arc::new(path.to_owned()),
            bytes: BufReader::with_capacity(1 << 20, file),
            offset: 0,
            total: Arc::clone(total),
        })
    }

    pub(crate) fn position(&self) -> FilePosition {
        FilePosition {
            file: Arc::clone(&self.file),
            offset_bytes: self.offset,
        }
    }

    /// Appends the next `bytes` bytes to `out`; false if the file ends before, after appending what is left.
    /// Memory grows with the bytes that exist, not with the length that an untrusted file claims.
    pub(crate) fn append(&mut self, bytes: u64, out: &mut Vec<u8>) -> Result<bool> {
        let got = (&mut self.bytes)
            .take(bytes)
            .read_to_end(out)
            .wrap_err_with(|| format!("reading {} failed", self.file.display()))?;
        let got = got as u64;
        self.offset = self.offset.saturating_add(got);
        // A progress counter: no other memory depends on it.
        self.total.fetch_add(got, Ordering::Relaxed);
        Ok(got == bytes)
    }

    /// The error for a file that ends within the block that begins at `start`.
    pub(crate) fn truncated(&self, start: &FilePosition) -> eyre::Report {
        eyre!(
            "{} is cut off: the file ends at byte {}; get a whole copy and run this again, the \
             blocks before are kept",
            start.block(),
            self.offset
        )
    }
}
