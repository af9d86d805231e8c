//! `niwaki blocks export`.

use super::era1::{ArchivedBlock, MAX_BLOCKS, Writer};
use crate::Outcome;
use crate::open::open_existing;
use crate::options::{ExportFormat, ExportOptions, Options};
use crate::progress::{Done, Progress};
use crate::stop::Stop;
use alloy_rlp::Encodable;
use eyre::{Context, Result, ensure, eyre};
use niwaki_chain::{
    Chain, ErePart, EreWriter, MAX_ERE_BLOCKS, StoredHeader, header_accumulator, slim_receipts,
};
use niwaki_primitives::{Block, Bytes, Receipt};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Writes canonical blocks to a file. The file gets its name when it is complete.
pub(crate) fn export(options: &Options, export: &ExportOptions) -> Result<Outcome> {
    let to = &export.to;
    ensure!(
        !to.exists(),
        "{} exists already; name another file with --to",
        to.display()
    );
    let stop = Stop::listen()?;
    let Some(chain) = open_existing(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let range = range(&chain, export)?;

    let part = part_of(to)?;
    let unwritable = || format!("can't write {}", part.display());
    let file = File::create(&part).wrap_err_with(unwritable)?;
    let mut run = BlockExport {
        progress: Progress::new(range.end - range.start),
        chain: &chain,
        stop,
        range,
    };
    let out = BufWriter::with_capacity(1 << 20, file);
    let written = match export.format {
        ExportFormat::Rlp => run.rlp(out),
        ExportFormat::Era1 => run.era1(out),
        ExportFormat::Ere => run.ere(out),
    };
    run.progress.finish();
    let file = match written.and_then(finish) {
        Ok(Some(file)) => file,
        Ok(None) => {
            remove(&part)?;
            eprintln!("stopped on request; nothing was written");
            return Ok(Outcome::Interrupted);
        }
        Err(error) => {
            // The first error is the one to report.
            let _ = remove(&part);
            return Err(error.wrap_err(unwritable()));
        }
    };
    let bytes = file.metadata().wrap_err_with(unwritable)?.len();
    std::fs::rename(&part, to)
        .wrap_err_with(|| format!("can't rename {} to {}", part.display(), to.display()))?;
    println!(
        "exported blocks {} to {} to {}: {bytes} bytes",
        run.range.start,
        run.range.end - 1,
        to.display()
    );
    Ok(Outcome::Done)
}

/// The requested range of blocks, which must all exist.
fn range(chain: &Chain, options: &ExportOptions) -> Result<Range<u64>> {
    let after_head = chain.head().id.number.saturating_add(1);
    let (start, end) = (options.start_block, options.end_block.unwrap_or(after_head));
    ensure!(
        end <= after_head,
        "--end-block {end} is beyond the head, which is block {}",
        after_head - 1
    );
    ensure!(
        start < end,
        "--start-block {start} is not before block {end}; there is no block between"
    );
    Ok(start..end)
}

fn part_of(to: &Path) -> Result<PathBuf> {
    let mut name = to
        .file_name()
        .ok_or_else(|| eyre!("{} is not the name of a file", to.display()))?
        .to_owned();
    name.push(".part");
    Ok(to.with_file_name(name))
}

fn remove(part: &Path) -> Result<()> {
    std::fs::remove_file(part).wrap_err_with(|| format!("can't remove {}", part.display()))
}

/// Flushes and syncs the file.
fn finish(out: Option<BufWriter<File>>) -> Result<Option<File>> {
    let Some(out) = out else { return Ok(None) };
    let file = out.into_inner()?;
    file.sync_all()?;
    Ok(Some(file))
}

/// An export in progress.
struct BlockExport<'a> {
    chain: &'a Chain,
    range: Range<u64>,
    progress: Progress,
    stop: Stop,
}

impl BlockExport<'_> {
    /// `None` if it was stopped.
    fn rlp(&mut self, mut out: BufWriter<File>) -> Result<Option<BufWriter<File>>> {
        let mut rlp = Vec::new();
        for number in self.range.clone() {
            if self.stop.is_requested() {
                return Ok(None);
            }
            let (_, block) = self.block(number)?;
            rlp.clear();
            block.encode(&mut rlp);
            out.write_all(&rlp)?;
            self.show(number);
        }
        Ok(Some(out))
    }

    /// `None` if it was stopped.
    fn era1(&mut self, out: BufWriter<File>) -> Result<Option<BufWriter<File>>> {
        let blocks = self.range.end - self.range.start;
        ensure!(
            blocks <= MAX_BLOCKS as u64,
            "an ERA1 file holds at most {MAX_BLOCKS} blocks, not {blocks}; narrow the range with \
             --start-block and --end-block"
        );
        let mut writer = Writer::new(out, self.range.start)?;
        for number in self.range.clone() {
            if self.stop.is_requested() {
                return Ok(None);
            }
            let (stored, block) = self.block(number)?;
            ensure!(
                !self.chain.spec().is_proof_of_stake(&block.header),
                "block {number} is of proof of stake, and ERA1 holds blocks before the Merge; use \
                 --format RLP"
            );
            let receipts = self.chain.receipts(&stored.id.hash)?.unwrap_or_default();
            let Block { header, body } = block;
            writer.block(&ArchivedBlock {
                hash: stored.id.hash,
                header: &alloy_rlp::encode(&header),
                body: &alloy_rlp::encode(&body),
                receipts: &encode_receipts(&receipts),
                total_difficulty: stored.total_difficulty,
            })?;
            self.show(number);
        }
        writer.finish().map(Some)
    }

    /// `None` if it was stopped.
    fn ere(&mut self, out: BufWriter<File>) -> Result<Option<BufWriter<File>>> {
        let blocks = self.range.end - self.range.start;
        ensure!(
            blocks <= MAX_ERE_BLOCKS,
            "an Ere file holds at most {MAX_ERE_BLOCKS} blocks, not {blocks}; narrow the range with \
             --start-block and --end-block"
        );
        let (first, _) = self.block(self.range.start)?;
        let has_work = !first.header.difficulty.is_zero();
        let mut writer = EreWriter::new(out, self.range.start)?;
        // Those of proof of work, for the accumulator.
        let mut records = Vec::new();
        let difficulty = has_work.then_some(ErePart::Difficulty);
        let parts = [ErePart::Header, ErePart::Body, ErePart::Receipts];
        for (done, part) in (0..).zip(parts.into_iter().chain(difficulty)) {
            for number in self.range.clone() {
                if self.stop.is_requested() {
                    return Ok(None);
                }
                let (stored, block) = self.block(number)?;
                if part == ErePart::Difficulty && !stored.header.difficulty.is_zero() {
                    records.push((stored.id.hash, stored.total_difficulty));
                }
                writer.put(part, &self.ere_part(part, &stored, &block)?)?;
                self.show_pass(done, number);
            }
        }
        let root = has_work.then(|| header_accumulator(records.into_iter()));
        Ok(Some(writer.finish(root)?))
    }

    fn ere_part(&self, part: ErePart, stored: &StoredHeader, block: &Block) -> Result<Vec<u8>> {
        Ok(match part {
            ErePart::Header => alloy_rlp::encode(&block.header),
            ErePart::Body => alloy_rlp::encode(&block.body),
            ErePart::Receipts => {
                let receipts = self.chain.receipts(&stored.id.hash)?.unwrap_or_default();
                slim_receipts(&receipts)
            }
            ErePart::Difficulty => stored.total_difficulty.to_le_bytes::<32>().to_vec(),
        })
    }

    /// A file of several passes counts each block in each.
    fn show_pass(&mut self, done: u64, number: u64) {
        let blocks = number + 1 - self.range.start;
        let bytes = (done * (self.range.end - self.range.start) + blocks) / 4;
        self.progress.show(Done {
            bytes,
            blocks,
            gas: 0,
            number,
        });
    }

    fn block(&self, number: u64) -> Result<(StoredHeader, Block)> {
        let missing = || {
            eyre!(
                "block {number} is not stored; where the chain began with an imported state, leave \
                 the blocks before it out with --start-block, else run 'niwaki storage check'"
            )
        };
        let stored = self.chain.header_at(number)?.ok_or_else(missing)?;
        let body = self.chain.body(&stored.id.hash)?.ok_or_else(missing)?;
        let header = stored.header.clone();
        Ok((stored, Block { header, body }))
    }

    fn show(&mut self, number: u64) {
        let blocks = number + 1 - self.range.start;
        self.progress.show(Done {
            bytes: blocks,
            blocks,
            gas: 0,
            number,
        });
    }
}

/// The RLP list of receipts as in the eth protocol: a typed receipt is a byte string.
fn encode_receipts(receipts: &[Receipt]) -> Vec<u8> {
    let items: Vec<Vec<u8>> = receipts
        .iter()
        .map(|receipt| match (receipt.tx_type, receipt.encode_2718()) {
            (0, list) => list,
            (_, typed) => alloy_rlp::encode(Bytes::from(typed)),
        })
        .collect();
    let payload_length = items.iter().map(Vec::len).sum();
    let list = true;
    let header = alloy_rlp::Header {
        list,
        payload_length,
    };
    let mut out = Vec::with_capacity(payload_length + header.length());
    header.encode(&mut out);
    out.extend(items.into_iter().flatten());
    out
}
