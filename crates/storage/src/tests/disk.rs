//! A power cut, simulated: what was not synced is cut off, overwritten or gone, and the database
//! opens at a whole batch, none before the last sync.
//!
//! The engine writes its tables and its manifest with syncs of its own, and syncs older logs before
//! it makes tables of what they hold, so only the newest log is torn.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::rc::Rc;

type Rows = BTreeMap<(u8, Vec<u8>), Rc<[u8]>>;

const SEGMENTS: [Segment; 3] = [Segment::Accounts, Segment::Slots, Segment::Code];

/// Counts the batches.
const COUNT: &[u8] = b"count";

/// A database and what it must hold after each batch.
struct Model {
    rows: Vec<Rows>,
}

impl Model {
    fn new() -> Self {
        let rows = vec![Rows::new()];
        Self { rows }
    }

    fn count(&self) -> usize {
        self.rows.len() - 1
    }

    /// The next batch, of a few rows of up to `bytes`.
    fn batch(&mut self, random: &mut SmallRng, bytes: usize) -> Batch {
        let mut rows = self.rows[self.count()].clone();
        let mut batch = Batch::new();
        for _ in 0..random.random_range(1..8) {
            let at = random.random_range(0..SEGMENTS.len());
            let key = random.random_range(0..40_u32).to_be_bytes();
            let name = (SEGMENTS[at] as u8, key.to_vec());
            if random.random_range(0..4) == 0 {
                batch.delete(SEGMENTS[at], &key);
                rows.remove(&name);
            } else {
                let mut value = vec![0; random.random_range(0..bytes)];
                random.fill_bytes(&mut value);
                batch.put(SEGMENTS[at], &key, &value);
                rows.insert(name, value.into());
            }
        }
        self.rows.push(rows);
        let count = u32::try_from(self.count()).unwrap();
        batch.put(Segment::Meta, COUNT, &count.to_be_bytes());
        batch
    }

    /// How many batches `database` holds, all of them whole and none after one that is missing.
    fn assert_prefix(&self, database: &Database) -> usize {
        let count = database.get(Segment::Meta, COUNT).unwrap();
        let count = count.map_or(0, |row| u32::from_be_bytes(row.try_into().unwrap()));
        let count = count as usize;
        assert!(count <= self.count());
        let mut found = Rows::new();
        for segment in SEGMENTS {
            for row in database.prefix(segment, &[]) {
                let (key, value) = row.unwrap();
                found.insert((segment as u8, key.to_vec()), value.into());
            }
        }
        assert!(found == self.rows[count], "not the rows of batch {count}");
        count
    }
}

/// A folder in memory where there is one: the disk is simulated anyway.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The newest log and its length.
fn newest_log(path: &Path) -> (PathBuf, u64) {
    let logs = fs::read_dir(path.join("database")).unwrap();
    let logs = logs.map(|entry| entry.unwrap().path());
    let newest = logs.filter(|path| path.extension().is_some_and(|e| e == "log"));
    let newest = newest.max().unwrap();
    let bytes = fs::metadata(&newest).unwrap().len();
    (newest, bytes)
}

/// What a power cut may make of the bytes of `log` behind `synced`.
fn tear(random: &mut SmallRng, log: &Path, synced: u64) {
    let mut bytes = fs::read(log).unwrap();
    let synced = usize::try_from(synced).unwrap();
    let keep = random.random_range(synced..=bytes.len());
    match random.random_range(0..4) {
        0 if synced == 0 => return fs::remove_file(log).unwrap(),
        0 | 1 => bytes.truncate(keep),
        2 => bytes[keep..].fill(0),
        _ => random.fill_bytes(&mut bytes[keep..]),
    }
    fs::write(log, bytes).unwrap();
}

#[test]
fn a_power_cut_keeps_all_synced_batches_and_only_whole_ones() {
    let rounds = std::env::var("NIWAKI_DISK_ROUNDS").map_or(300, |text| text.parse().unwrap());
    let seed = rand::rng().random();
    println!("seed {seed}, {rounds} rounds (NIWAKI_DISK_ROUNDS)");
    let mut random = SmallRng::seed_from_u64(seed);
    let options = Options {
        memory_budget_bytes: 1,
        ..Options::default()
    };
    let mut dir = folder();
    let mut model = Model::new();
    let (mut lost, mut kept) = (0, 0);
    for round in 0..rounds {
        if random.random_range(0..4) == 0 {
            dir = folder();
            model = Model::new();
        }
        let database = Database::open(dir.path(), &options).unwrap();
        // Some of these are so large that tables are written in between.
        let bytes = [60, 60, 60, 5_000, 5_000, 300_000][random.random_range(0..6)];
        let mut synced = (model.count(), newest_log(dir.path()));
        for _ in 0..random.random_range(1..20) {
            let batch = model.batch(&mut random, bytes);
            let is_durable = random.random_range(0..6) == 0;
            database.write(batch, is_durable).unwrap();
            if is_durable || random.random_range(0..8) == 0 {
                if !is_durable {
                    database.sync().unwrap();
                }
                synced = (model.count(), newest_log(dir.path()));
            } else if random.random_range(0..2) == 0 {
                // With the engine, and with the system, but not on the disk.
                database.flush().unwrap();
            }
        }
        drop(database);

        let (log, _) = newest_log(dir.path());
        let (count, (synced_log, length)) = synced;
        // A log made since is not synced at all; a log made and written full since is older by now.
        let length = if synced_log == log { length } else { 0 };
        tear(&mut random, &log, length);
        let database = Database::open(dir.path(), &options).unwrap();
        let found = model.assert_prefix(&database);
        assert!(
            found >= count,
            "round {round}: batch {count} was synced, {found} is there"
        );
        lost += u32::from(found < model.count());
        kept += u32::from(found > count);
        model.rows.truncate(found + 1);
    }
    println!("{lost} cuts lost batches that were not synced, {kept} kept some of them");
    assert!(rounds < 100 || lost > 0 && kept > 0);
}

#[test]
fn a_log_cut_at_any_byte_keeps_the_whole_batches_before_it() {
    let mut random = SmallRng::seed_from_u64(11);
    let dir = folder();
    let mut model = Model::new();
    let database = open(dir.path());
    let mut ends = Vec::new();
    for _ in 0..8 {
        let batch = model.batch(&mut random, 20);
        database.write(batch, true).unwrap();
        ends.push(newest_log(dir.path()).1);
    }
    drop(database);
    let before = files(dir.path());
    let (log, end) = newest_log(dir.path());
    assert_eq!(ends.last(), Some(&end));
    for length in ends[4]..=end {
        let torn = folder();
        for (path, bytes) in &before {
            let target = torn.path().join(path.strip_prefix(dir.path()).unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            let is_log = *path == log;
            let kept = usize::try_from(length).unwrap();
            fs::write(target, if is_log { &bytes[..kept] } else { bytes }).unwrap();
        }
        let whole = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(
            model.assert_prefix(&open(torn.path())),
            whole,
            "{length} bytes"
        );
    }
}

#[test]
fn a_log_with_a_flipped_byte_opens_at_a_whole_batch() {
    let mut random = SmallRng::seed_from_u64(12);
    let dir = folder();
    let mut model = Model::new();
    let database = open(dir.path());
    let mut ends = Vec::new();
    for _ in 0..6 {
        let batch = model.batch(&mut random, 20);
        database.write(batch, true).unwrap();
        ends.push(newest_log(dir.path()).1);
    }
    drop(database);
    let before = files(dir.path());
    let (log, end) = newest_log(dir.path());
    for at in ends[3]..end {
        let torn = folder();
        for (path, bytes) in &before {
            let target = torn.path().join(path.strip_prefix(dir.path()).unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            let mut bytes = bytes.clone();
            if *path == log {
                // The bit of a record's type that would make the engine loop for ever.
                bytes[usize::try_from(at).unwrap()] ^= 4;
            }
            fs::write(target, bytes).unwrap();
        }
        let whole = ends.iter().filter(|end| **end <= at).count();
        assert_eq!(model.assert_prefix(&open(torn.path())), whole, "byte {at}");
    }
}
