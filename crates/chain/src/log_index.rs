//! The log index: the blooms of canonical headers, transposed (geth's bloombits), so that a search reads a few short
//! rows for 4,096 blocks instead of their headers.
//!
//! It follows from the headers alone, and is built behind the head, a section at a time, by the thread that calls
//! [`Chain::index_logs`]. It grows upwards with the head, and downwards where blocks come below those that are stored. The
//! write of a reorganisation strikes the sections that it changes. Above and below the index, a search reads headers.

use crate::Chain;
use niwaki_primitives::{Bloom, Fault};
use niwaki_storage::{Batch, Segment, Snapshot, corrupt};
use niwaki_threads::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of a section.
pub const SECTION_BLOCKS: u64 = 4_096;

/// Bytes of a row: a bit for each block.
const ROW_BYTES: usize = 512;

/// Bits of a bloom.
const BITS: u16 = 2_048;

/// A section is built once it is this deep below the head, so that a reorganisation rarely undoes it.
const CONFIRMATIONS: u64 = 64;

/// The row of `meta` that says how far the index goes.
const PROGRESS: &[u8] = b"log index";

/// Which blocks of a section: block `n` is bit `0x80 >> (n % 8)` of byte `n / 8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionBlocks([u8; ROW_BYTES]);

impl SectionBlocks {
    const NONE: Self = Self([0; ROW_BYTES]);
    const ALL: Self = Self([0xff; ROW_BYTES]);

    /// Whether the block with this offset in the section is one of them.
    pub fn contains(&self, offset: u64) -> bool {
        let at = usize::try_from(offset / 8).ok();
        let byte = at.and_then(|at| self.0.get(at));
        byte.is_some_and(|byte| byte & (0x80 >> (offset % 8)) != 0)
    }

    fn insert(&mut self, offset: u64) {
        let at = usize::try_from(offset / 8).ok();
        if let Some(byte) = at.and_then(|at| self.0.get_mut(at)) {
            *byte |= 0x80 >> (offset % 8);
        }
    }

    fn intersect(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
    }

    fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

/// The bits of a bloom that are set: bit `n` is `0x80 >> (n % 8)` of byte `n / 8`.
fn bits(bloom: &Bloom) -> impl Iterator<Item = u16> + '_ {
    let bytes = (0_u16..).step_by(8).zip(bloom.0.0);
    let bytes = bytes.filter(|(_, byte)| *byte != 0);
    bytes.flat_map(|(first, byte)| {
        let set = (0..8_u16).filter(move |bit| byte & (0x80 >> bit) != 0);
        set.map(move |bit| first + bit)
    })
}

/// Where the first section begins all of whose blocks are `number` or above.
fn first_section_from(number: u64) -> u64 {
    let last = number.saturating_add(SECTION_BLOCKS - 1);
    last - last % SECTION_BLOCKS
}

fn key(bit: u16, first_block: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&bit.to_be_bytes());
    key[2..].copy_from_slice(&first_block.to_be_bytes());
    key
}

/// How far the index goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Canonical blocks from this one on are in it,
    from: u64,
    /// up to the one before this: both are multiples of [`SECTION_BLOCKS`].
    below: u64,
    /// No row is of a block from here on.
    written: u64,
}

impl Progress {
    fn read(row: Option<Vec<u8>>) -> Result<Self, Fault> {
        let Some(row) = row else {
            return Ok(Self::default());
        };
        let (numbers, rest) = row.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_be_bytes(*n)).collect();
        let progress = match (&numbers[..], rest) {
            // Without the third number the index begins with the first block.
            ([below, written], []) => Some((0, *below, *written)),
            ([below, written, from], []) => Some((*from, *below, *written)),
            _ => None,
        };
        let is_section = |number: u64| number.is_multiple_of(SECTION_BLOCKS);
        let progress = progress.filter(|(from, below, _)| is_section(*from) && is_section(*below));
        let progress = progress.map(|(from, below, written)| Self {
            from,
            below,
            written,
        });
        progress.ok_or_else(|| corrupt(Segment::Meta, PROGRESS, "not two or three numbers"))
    }

    fn put(self, batch: &mut Batch) {
        let written = self.written.max(self.below).to_be_bytes();
        let (below, from) = (self.below.to_be_bytes(), self.from.to_be_bytes());
        let parts: [&[u8]; 3] = [&below, &written, &from];
        batch.put_parts(Segment::Meta, &[PROGRESS], &parts);
    }

    fn is_empty(self) -> bool {
        self.from >= self.below
    }

    /// Without the blocks from `number` on, and those of its section.
    fn struck_from(self, number: u64) -> Self {
        let below = self.below.min(number - number % SECTION_BLOCKS);
        Self {
            from: self.from.min(below),
            below,
            ..self
        }
    }

    /// Without the blocks below `number`, and those of its section.
    fn struck_below(self, number: u64) -> Self {
        let from = self.from.max(first_section_from(number));
        Self {
            from,
            below: self.below.max(from),
            ..self
        }
    }

    /// With the section that begins with `first`, at one of its ends.
    fn with_section(self, first: u64) -> Self {
        let end = first + SECTION_BLOCKS;
        let (from, below) = match self.is_empty() {
            true => (first, end),
            false => (self.from.min(first), self.below.max(end)),
        };
        Self {
            from,
            below,
            ..self
        }
    }
}

/// The index in a snapshot of the database.
#[derive(Clone, Debug)]
pub struct LogIndex {
    snapshot: Snapshot,
    from: u64,
    below: u64,
}

impl LogIndex {
    /// Whether the section that begins with `first_block` is in it.
    pub fn has_section(&self, first_block: u64) -> bool {
        (self.from..self.below).contains(&first_block)
    }

    /// The blocks of the section that begins with `first_block` whose blooms contain, for each place of the filter, one
    /// of its masks; a place without masks matches all.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn search(&self, first_block: u64, places: &[&[Bloom]]) -> Result<SectionBlocks, Fault> {
        let mut found = SectionBlocks::ALL;
        for masks in places.iter().filter(|masks| !masks.is_empty()) {
            let mut any = SectionBlocks::NONE;
            for mask in *masks {
                any.unite(&self.with_bits(first_block, mask)?);
            }
            found.intersect(&any);
            if found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// The blocks whose blooms contain `mask`.
    fn with_bits(&self, first_block: u64, mask: &Bloom) -> Result<SectionBlocks, Fault> {
        let mut found = SectionBlocks::ALL;
        for bit in bits(mask) {
            match self.row(bit, first_block)? {
                Some(row) => found.intersect(&row),
                None => return Ok(SectionBlocks::NONE),
            }
        }
        Ok(found)
    }

    fn row(&self, bit: u16, first_block: u64) -> Result<Option<SectionBlocks>, Fault> {
        let key = key(bit, first_block);
        let row = self.snapshot.get(Segment::LogIndex, &key)?;
        let row = row.map(|row| {
            let row = row.try_into().map(SectionBlocks);
            row.map_err(|_| corrupt(Segment::LogIndex, &key, "a row has 512 bytes"))
        });
        row.transpose()
    }
}

/// The lock of the thread that builds or removes the index, and how far the index is to go.
#[derive(Debug, Default)]
pub(crate) struct LogIndexing {
    builder: Mutex<()>,
    target: AtomicU64,
}

/// How far the index goes, and is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIndexState {
    /// Blocks from this one on are in it,
    pub from: u64,
    /// up to the one before this.
    pub below: u64,
    /// Blocks below this one are to be in it, as soon as they are deep enough.
    pub target: u64,
    /// Whether there is a section to be built now.
    pub is_behind: bool,
}

impl Chain {
    /// The index as it is now.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn log_index(&self) -> Result<LogIndex, Fault> {
        let snapshot = self.database().snapshot();
        let Progress { from, below, .. } = Progress::read(snapshot.get(Segment::Meta, PROGRESS)?)?;
        Ok(LogIndex {
            snapshot,
            from,
            below,
        })
    }

    /// How far the index goes, and is to go.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn log_index_state(&self) -> Result<LogIndexState, Fault> {
        let progress = self.log_progress()?;
        let target = self.log_indexing.target.load(Ordering::Relaxed);
        Ok(LogIndexState {
            from: progress.from,
            below: progress.below,
            target,
            is_behind: self.next_section(progress, target)?.is_some(),
        })
    }

    /// Makes [`Chain::index_logs`] index the blocks below `number`, and none above.
    pub fn set_log_index_target(&self, number: u64) {
        self.log_indexing.target.store(number, Ordering::Relaxed);
    }

    /// Builds the next section of the index, if one is due; returns whether it did.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn index_logs(&self) -> Result<bool, Fault> {
        let _builder = lock(&self.log_indexing.builder);
        let progress = self.log_progress()?;
        let target = self.log_indexing.target.load(Ordering::Relaxed);
        let Some(first) = self.next_section(progress, target)? else {
            return Ok(false);
        };
        let last = first + (SECTION_BLOCKS - 1);
        let last_hash = self.canonical_hash(last)?;
        let rows = self.section(first)?;

        let mut batch = Batch::new();
        for (bit, row) in (0..BITS).zip(&rows) {
            let key = key(bit, first);
            match row.is_empty() {
                false => batch.put(Segment::LogIndex, &key, &row.0),
                // There may be one of blocks that a reorganisation has removed, or of a time with fewer blocks.
                true if first < progress.written => batch.delete(Segment::LogIndex, &key),
                true => {}
            }
        }
        let _writer = self.writer();
        // The hash of the last block commits to all before it.
        if self.log_progress()? != progress || self.canonical_hash(last)? != last_hash {
            return Ok(true);
        }
        progress.with_section(first).put(&mut batch);
        self.database().write(batch, false)?;
        Ok(true)
    }

    /// Strikes the blocks from `number` on, and those of its section, from the index, and removes their rows. Does not
    /// block imports.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn remove_log_index(&self, number: u64) -> Result<(), Fault> {
        let _builder = lock(&self.log_indexing.builder);
        let written = self.change_progress(|progress| progress.struck_from(number))?;
        let first = written.below;
        for first_block in (first..written.written).step_by(to_usize(SECTION_BLOCKS)) {
            let mut batch = Batch::new();
            delete_section(first_block, &mut batch);
            self.database().write(batch, false)?;
        }
        self.change_progress(|progress| Progress {
            written: progress.below,
            ..progress
        })?;
        Ok(())
    }

    /// Strikes the blocks from `number` on, and those of its section, from the index; their rows stay until they are
    /// built again.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn strike_log_index(&self, number: u64) -> Result<(), Fault> {
        self.change_progress(|progress| progress.struck_from(number))?;
        Ok(())
    }

    fn change_progress(
        &self,
        change: impl FnOnce(Progress) -> Progress,
    ) -> Result<Progress, Fault> {
        let _writer = self.writer();
        let changed = change(self.log_progress()?);
        let mut batch = Batch::new();
        changed.put(&mut batch);
        self.database().write(batch, false)?;
        Ok(changed)
    }

    /// Adds to `batch` that the index is to be built again.
    pub(crate) fn reset_log_index(&self, batch: &mut Batch) -> Result<(), Fault> {
        match self.log_progress() {
            Ok(_) => self.strike_logs(0, batch),
            Err(Fault::Corrupt { .. }) => {
                let written = self.head().id.number.saturating_add(SECTION_BLOCKS);
                let progress = Progress {
                    written,
                    ..Progress::default()
                };
                progress.put(batch);
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Adds to `batch` that blocks from `number` on are no longer in the index, if they were.
    pub(crate) fn strike_logs(&self, number: u64, batch: &mut Batch) -> Result<(), Fault> {
        let progress = self.log_progress()?;
        Self::put_if_changed(progress, progress.struck_from(number), batch);
        Ok(())
    }

    /// Adds to `batch` that blocks below `number`, and those of its section, are no longer in the index, if they were.
    pub(crate) fn strike_logs_below(&self, number: u64, batch: &mut Batch) -> Result<(), Fault> {
        let progress = self.log_progress()?;
        // An empty index begins where blocks are stored.
        if !progress.is_empty() {
            Self::put_if_changed(progress, progress.struck_below(number), batch);
        }
        Ok(())
    }

    /// The same, with the rows of sections all of whose blocks are below it.
    pub(crate) fn remove_logs_below(&self, number: u64, batch: &mut Batch) -> Result<(), Fault> {
        let from = self.log_progress()?.from;
        self.strike_logs_below(number, batch)?;
        for first_block in
            (from..number - number % SECTION_BLOCKS).step_by(to_usize(SECTION_BLOCKS))
        {
            delete_section(first_block, batch);
        }
        Ok(())
    }

    fn put_if_changed(progress: Progress, changed: Progress, batch: &mut Batch) {
        if changed != progress {
            changed.put(batch);
        }
    }

    fn log_progress(&self) -> Result<Progress, Fault> {
        Progress::read(self.database().get(Segment::Meta, PROGRESS)?)
    }

    /// The section to be built next: the one above the index, else the one below it; the lowest one of an empty index. All its
    /// blocks are stored.
    fn next_section(&self, progress: Progress, target: u64) -> Result<Option<u64>, Fault> {
        let lowest = first_section_from(self.first_block()?);
        let is_due = |first: &u64| {
            let end = first.saturating_add(SECTION_BLOCKS);
            end <= target && end.saturating_add(CONFIRMATIONS) <= self.head().id.number
        };
        if progress.is_empty() {
            return Ok(Some(lowest).filter(is_due));
        }
        let below = progress.from.checked_sub(SECTION_BLOCKS);
        let below = below.filter(|first| *first >= lowest);
        Ok(Some(progress.below).filter(is_due).or(below.filter(is_due)))
    }

    /// The rows of the section that begins with `first_block`, one for each bit. Blocks that are not stored count as without
    /// logs: earlier versions indexed sections below the first block of an imported state.
    pub(crate) fn section(&self, first_block: u64) -> Result<Vec<SectionBlocks>, Fault> {
        let mut rows = vec![SectionBlocks::NONE; usize::from(BITS)];
        let end = first_block.saturating_add(SECTION_BLOCKS);
        for number in first_block.max(self.first_block()?)..end {
            let Some(block) = self.header_at(number)? else {
                continue;
            };
            for bit in bits(&block.header.logs_bloom) {
                if let Some(row) = rows.get_mut(usize::from(bit)) {
                    row.insert(number - first_block);
                }
            }
        }
        Ok(rows)
    }

    /// Compares the index with the headers, and calls `bad` with the first row of each section that differs.
    pub(crate) fn check_log_index(&self, bad: &mut dyn FnMut(&[u8], String)) -> Result<(), Fault> {
        let index = self.log_index()?;
        for first_block in (index.from..index.below).step_by(to_usize(SECTION_BLOCKS)) {
            for (bit, want) in (0..BITS).zip(self.section(first_block)?) {
                let got = match index.row(bit, first_block) {
                    Ok(row) => row.unwrap_or(SectionBlocks::NONE),
                    Err(fault @ Fault::Corrupt { .. }) => {
                        bad(&key(bit, first_block), fault.to_string());
                        break;
                    }
                    Err(fault) => return Err(fault),
                };
                if got != want {
                    let what = "the row is not that of the headers' blooms".to_owned();
                    bad(&key(bit, first_block), what);
                    break;
                }
            }
        }
        Ok(())
    }
}

fn delete_section(first_block: u64, batch: &mut Batch) {
    for bit in 0..BITS {
        batch.delete(Segment::LogIndex, &key(bit, first_block));
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
