//! What the last blocks have cost.

use crate::lock;
use crate::node::now_ms;
use niwaki_chain::{ImportStatus, Imported};
use niwaki_primitives::B256;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

/// Blocks whose statistics are kept.
const MAX_BLOCKS: usize = 1024;

/// Bytes that this process has had read from disks and written to them, or a difference of two such counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskBytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl DiskBytes {
    /// The count in the text of `/proc/self/io`.
    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line?.trim().parse::<u64>().ok()
        };
        Some(Self {
            read: value("read_bytes:")?,
            written: value("write_bytes:")?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
        }
    }
}

/// The kernel's count, from one block to the next.
#[derive(Debug)]
struct DiskCounter {
    /// `/proc/self/io`; absent on other systems, or where it may not be read.
    file: Option<File>,
    last: Option<DiskBytes>,
}

impl DiskCounter {
    fn new() -> Self {
        let file = File::open("/proc/self/io").ok();
        let mut counter = Self { file, last: None };
        counter.lap();
        counter
    }

    /// What the disks did since the last call.
    fn lap(&mut self) -> Option<DiskBytes> {
        let mut text = [0; 512];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        let now = DiskBytes::parse(std::str::from_utf8(&text[..length]).ok()?)?;
        let before = self.last.replace(now);
        before.map(|before| now.since(before))
    }
}

/// A block that was executed, and what it has cost.
#[derive(Clone, Debug)]
pub(crate) struct RecordedBlock {
    pub(crate) imported: Imported,
    /// How many were recorded with it, since the start.
    pub(crate) sequence: u64,
    /// When, milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// What the disks did from the end of the block recorded before to the end of this one, for whatever reason.
    pub(super) disk: Option<DiskBytes>,
}

impl RecordedBlock {
    pub(super) fn new(imported: Imported, sequence: u64, disk: Option<DiskBytes>) -> Self {
        Self {
            imported,
            sequence,
            at_ms: now_ms(),
            disk,
        }
    }
}

/// The last blocks that were executed for the consensus client or agreed on by validators, oldest first.
#[derive(Debug)]
pub(crate) struct RecentBlockStats {
    blocks: Mutex<VecDeque<RecordedBlock>>,
    disk: Mutex<DiskCounter>,
}

impl Default for RecentBlockStats {
    fn default() -> Self {
        Self {
            blocks: Mutex::default(),
            disk: Mutex::new(DiskCounter::new()),
        }
    }
}

impl RecentBlockStats {
    /// Records a block, unless it was known and so not executed again. Returns what is recorded.
    pub(crate) fn put(&self, imported: Imported) -> Option<RecordedBlock> {
        if imported.status == ImportStatus::AlreadyStored {
            return None;
        }
        let disk = lock(&self.disk).lap();
        let mut blocks = lock(&self.blocks);
        let sequence = blocks.back().map_or(1, |last| last.sequence + 1);
        let recorded = RecordedBlock::new(imported, sequence, disk);
        if blocks.len() == MAX_BLOCKS {
            blocks.pop_front();
        }
        blocks.push_back(recorded.clone());
        Some(recorded)
    }

    pub(super) fn get(&self, hash: &B256) -> Option<RecordedBlock> {
        let blocks = lock(&self.blocks);
        let mut newest = blocks.iter().rev();
        newest
            .find(|block| block.imported.id.hash == *hash)
            .cloned()
    }

    /// The blocks after that with this sequence number, oldest first.
    pub(crate) fn after(&self, sequence: u64) -> Vec<RecordedBlock> {
        let blocks = lock(&self.blocks);
        let first = blocks.partition_point(|block| block.sequence <= sequence);
        blocks.range(first..).cloned().collect()
    }

    /// The blocks that took longest, at most so many, the slowest first.
    pub(crate) fn slowest(&self, most: usize) -> Vec<RecordedBlock> {
        let mut blocks: Vec<RecordedBlock> = lock(&self.blocks).iter().cloned().collect();
        blocks.sort_by_key(|block| std::cmp::Reverse(block.imported.timings.total()));
        blocks.truncate(most);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::niwaki::test_block::imported;

    #[test]
    fn the_last_1024_blocks_are_kept_and_the_newest_of_a_hash_is_found() {
        let stats = RecentBlockStats::default();
        for number in 0..2_000 {
            assert!(stats.put(imported(number)).is_some());
        }
        let known = Imported {
            status: ImportStatus::AlreadyStored,
            ..imported(9)
        };
        assert!(stats.put(known).is_none());
        let found = stats.get(&B256::with_last_byte(7));
        assert_eq!(
            found.map(|block| block.imported.id.number),
            Some(7 * 256 + 7)
        );
        assert_eq!(stats.blocks.lock().unwrap().len(), MAX_BLOCKS);
        assert!(stats.get(&B256::repeat_byte(1)).is_none());
    }

    #[test]
    fn the_slowest_of_the_kept_blocks_come_first() {
        let stats = RecentBlockStats::default();
        for number in 0..2_000 {
            stats.put(imported(number));
        }
        let slowest = stats.slowest(12);
        let numbers: Vec<u64> = slowest.iter().map(|one| one.imported.id.number).collect();
        // Eleven of the kept blocks took 99 ms.
        assert!(numbers[..11].iter().all(|number| number % 100 == 99));
        assert_eq!(numbers[11] % 100, 98);
        assert_eq!(stats.slowest(5_000).len(), MAX_BLOCKS);
        let after = |sequence| {
            let blocks = stats.after(sequence);
            blocks.iter().map(|one| one.sequence).collect::<Vec<_>>()
        };
        assert_eq!(after(1_997), [1_998, 1_999, 2_000]);
        assert!(after(2_000).is_empty());
        assert_eq!(after(0).len(), MAX_BLOCKS);
    }

    #[test]
    fn the_kernels_count_is_read_and_an_unknown_text_is_none() {
        let text =
            "rchar: 9\nwchar: 8\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 0\n";
        let found = DiskBytes::parse(text).unwrap();
        assert_eq!((found.read, found.written), (4096, 8192));
        let more = DiskBytes {
            read: 5096,
            written: 8192,
        };
        let difference = DiskBytes {
            read: 1000,
            written: 0,
        };
        assert_eq!(more.since(found), difference);
        assert_eq!(DiskBytes::parse("read_bytes: 4096\n"), None);
        assert_eq!(DiskBytes::parse("read_bytes: many\nwrite_bytes: 1\n"), None);
    }
}
