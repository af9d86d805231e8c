//! How fast the disk of the data path is: reads and writes of 4 KiB at random, 75 to 25, past the page cache, 64 at a time, as
//! `fio --direct=1 --bs=4k --iodepth=64 --readwrite=randrw --rwmixread=75` does; then how long a small write takes to be durable.

use super::finding::Finding;
use super::machine::text;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a read or a write.
const PAGE: usize = 4_096;
/// Bytes that are written at a time while the file is laid out.
const BLOCK: usize = 128 << 10;
/// The file that is read and written.
const FILE_BYTES: u64 = 1 << 30;
/// Below this, caches of the disk would be measured.
const LEAST_FILE_BYTES: u64 = 64 << 20;
/// The share of the free space that the file may take.
const SHARE_OF_FREE: u64 = 4;
/// Reads and writes at a time, each by a thread of its own.
const DEPTH: u64 = 64;
const READ_PERCENT: u64 = 75;
/// Small writes that are made durable one by one.
const SYNCS: usize = 200;
const SYNC_TIME: Duration = Duration::from_secs(3);

/// What a node that follows mainnet needs, a second.
const NEEDED_READS: f64 = 15_000.0;
const NEEDED_WRITES: f64 = 5_000.0;
/// A block's data should be durable long before the next one.
const SLOW_SYNC: Duration = Duration::from_millis(50);

/// Memory that the disk can write from and read into without a copy.
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// Counts and times of one kind.
#[derive(Clone, Debug, Default)]
struct Times {
    micros: Vec<u32>,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.micros
            .push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }

    fn percentile(&mut self, percent: usize) -> Duration {
        self.micros.sort_unstable();
        let rank = (self.micros.len() * percent).div_ceil(100).max(1);
        let micros = self.micros.get(rank - 1).copied().unwrap_or_default();
        Duration::from_micros(u64::from(micros))
    }
}

/// What was measured.
#[derive(Debug, Default)]
struct Speed {
    reads: Times,
    writes: Times,
    seconds: f64,
    syncs: Times,
}

/// Measures for about so many seconds, beside laying out the file. A node that runs takes its share.
pub(super) fn check(folder: PathBuf, seconds: u64, is_running: bool) -> Vec<Finding> {
    match measure(&folder, Duration::from_secs(seconds)) {
        Ok(mut speed) => vec![random(&mut speed, is_running), durable(&mut speed)],
        Err(error) => {
            let found = format!("not measured: {}: {error}", text(&folder));
            vec![Finding::unknown("disk speed", found)]
        }
    }
}

fn random(speed: &mut Speed, is_running: bool) -> Finding {
    let rate = |times: &Times| times.micros.len() as f64 / speed.seconds.max(1e-9);
    let [reads, writes] = [rate(&speed.reads), rate(&speed.writes)];
    let mib = |rate: f64| rate * PAGE as f64 / 1_048_576.0;
    let beside = if is_running {
        ", beside the node that runs"
    } else {
        ""
    };
    let found = format!(
        "{reads:.0} reads/s ({:.0} MiB/s, P99 {:.1} ms), {writes:.0} writes/s ({:.0} MiB/s, P99 {:.1} ms){beside}",
        mib(reads),
        ms(speed.reads.percentile(99)),
        mib(writes),
        ms(speed.writes.percentile(99)),
    );
    let share = (reads / NEEDED_READS).min(writes / NEEDED_WRITES);
    let needed = format!(
        "following mainnet needs {NEEDED_READS:.0} reads and {NEEDED_WRITES:.0} writes a second: use an NVMe disk with DRAM, \
         or move other programs off this one"
    );
    match share {
        share if share >= 1.0 => Finding::pass("disk speed", found),
        share if share >= 0.3 => Finding::warn("disk speed", found, needed),
        _ => Finding::fail("disk speed", found, needed),
    }
}

fn durable(speed: &mut Speed) -> Finding {
    let [middle, slow] = [50, 99].map(|percent| speed.syncs.percentile(percent));
    let found = format!("fdatasync P50 {:.1} ms, P99 {:.1}", ms(middle), ms(slow));
    match slow > SLOW_SYNC {
        true => Finding::warn(
            "durable writes",
            found,
            "validators wait for this before they vote: use a disk with power-loss protection, or one with less load",
        ),
        false => Finding::pass("durable writes", found),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn measure(folder: &Path, time: Duration) -> io::Result<Speed> {
    let space = rustix::fs::statvfs(folder)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let bytes = FILE_BYTES.min(free / SHARE_OF_FREE);
    if bytes < LEAST_FILE_BYTES {
        return Err(io::Error::other(
            "too little space for a file to measure with",
        ));
    }
    let file = open_unnamed(folder)?;
    let pages = lay_out(&file, bytes, time)?;
    let mut speed = access(&file, pages, time)?;
    speed.syncs = make_durable(&file)?;
    Ok(speed)
}

/// A file past the page cache, which is gone when this program ends, however it ends.
fn open_unnamed(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(direct)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Fills the file with what does not compress, for at most twice the time. Returns its pages.
fn lay_out(file: &File, bytes: u64, time: Duration) -> io::Result<u64> {
    let began = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut block = Box::new(Block([0; BLOCK]));
    let mut written = 0;
    while written < bytes && (began.elapsed() < 2 * time || written < LEAST_FILE_BYTES) {
        for word in block.0.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        file.write_all_at(&block.0, written)?;
        written += BLOCK as u64;
    }
    file.sync_data()?;
    Ok(written / PAGE as u64)
}

/// Reads and writes pages at random until the time is over.
fn access(file: &File, pages: u64, time: Duration) -> io::Result<Speed> {
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let work = |seed: u64| {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut block = Box::new(Block([0; BLOCK]));
        let page = &mut block.0[..PAGE];
        let (mut reads, mut writes) = (Times::default(), Times::default());
        while !is_over.load(Ordering::Relaxed) {
            let offset = random.next() % pages * PAGE as u64;
            let is_read = random.next() % 100 < READ_PERCENT;
            let began = Instant::now();
            match is_read {
                true => file.read_exact_at(page, offset)?,
                false => file.write_all_at(page, offset)?,
            }
            let times = if is_read { &mut reads } else { &mut writes };
            times.add(began.elapsed());
        }
        Ok::<_, io::Error>((reads, writes))
    };
    let mut speed = Speed::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=DEPTH)
            .map(|seed| scope.spawn(move || work(seed)))
            .collect();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        speed.seconds = began.elapsed().as_secs_f64();
        for thread in threads {
            let (reads, writes) = thread
                .join()
                .map_err(|_| io::Error::other("a thread of the disk test ended"))??;
            speed.reads.micros.extend(reads.micros);
            speed.writes.micros.extend(writes.micros);
        }
        Ok(speed)
    })
}

/// Writes pages one after the other, and waits until each is on the disk.
fn make_durable(file: &File) -> io::Result<Times> {
    let began = Instant::now();
    let block = Box::new(Block([1; BLOCK]));
    let mut times = Times::default();
    while times.micros.len() < SYNCS && began.elapsed() < SYNC_TIME {
        let offset = (times.micros.len() * PAGE) as u64;
        let began = Instant::now();
        file.write_all_at(&block.0[..PAGE], offset)?;
        file.sync_data()?;
        times.add(began.elapsed());
    }
    Ok(times)
}

/// Numbers that are random enough to choose pages by (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade;
    use super::*;

    fn times(count: usize, micros: u32) -> Times {
        Times {
            micros: vec![micros; count],
        }
    }

    #[test]
    fn the_grade_follows_from_the_slower_of_reads_and_writes() {
        for (reads, writes, grade) in [
            (15_000, 5_000, Grade::Pass),
            (15_000, 4_999, Grade::Warn),
            (4_500, 5_000, Grade::Warn),
            (4_499, 5_000, Grade::Fail),
            (0, 0, Grade::Fail),
        ] {
            let mut speed = Speed {
                reads: times(reads, 80),
                writes: times(writes, 90),
                seconds: 1.0,
                syncs: times(10, 60_000),
            };
            let finding = random(&mut speed, false);
            assert_eq!(finding.grade, grade, "{}", finding.found);
            assert_eq!(durable(&mut speed).grade, Grade::Warn);
        }
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut all = Times::default();
        (1..=200)
            .rev()
            .for_each(|n| all.add(Duration::from_micros(n)));
        assert_eq!(all.percentile(50), Duration::from_micros(100));
        assert_eq!(all.percentile(99), Duration::from_micros(198));
        assert_eq!(Times::default().percentile(99), Duration::ZERO);
    }

    #[test]
    fn the_disk_test_leaves_no_file_and_says_why_it_cannot_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = open_unnamed(folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(file);
        let missing = folder.path().join("missing");
        let findings = check(missing, 1, false);
        assert_eq!(findings[0].grade, Grade::Unknown);
        assert!(findings[0].found.contains("missing"));
    }
}
