//! Engine options may change: tables written under other options are read and mixed with new ones. Under all options
//! the damage of a table is found.

use super::*;
use crate::read::FillCachePolicy;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rocksdb::{BlockBasedOptions, ColumnFamilyDescriptor, DB};

const ROWS: u32 = 5000;

fn key(at: u32) -> [u8; 64] {
    let mut key = [0; 64];
    // Scattered, so that neighbours differ from their first bytes on.
    key[..4].copy_from_slice(&at.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key
}

/// A database as it was made before the index had two levels: larger blocks, one index and one
/// filter a file.
fn write_as_before(path: &Path) {
    fs::create_dir_all(path).unwrap();
    crate::format_file::mark(path, &crate::format_file::format_file(path)).unwrap();
    let mut table = BlockBasedOptions::default();
    table.set_block_size(16 << 10);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_format_version(5);
    let mut options = rocksdb::Options::default();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let families =
        Segment::ALL.map(|segment| ColumnFamilyDescriptor::new(segment.name(), options.clone()));
    let engine = DB::open_cf_descriptors(&options, path.join("database"), families).unwrap();
    for segment in Segment::ALL {
        let family = engine.cf_handle(segment.name()).unwrap();
        for at in 0..ROWS {
            engine.put_cf(family, key(at), at.to_be_bytes()).unwrap();
        }
        engine.flush_cf(family).unwrap();
    }
}

#[test]
fn tables_written_under_older_options_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write_as_before(dir.path());
    // Every second row again, as tables of their own.
    let database = open(dir.path());
    for segment in Segment::ALL {
        let mut batch = Batch::new();
        for at in (0..ROWS).step_by(2) {
            batch.put(segment, &key(at), b"new");
        }
        database.ingest(batch).unwrap();
    }
    drop(database);
    let database = open(dir.path());
    let check = || {
        for segment in Segment::ALL {
            assert_eq!(keys(database.prefix(segment, &[])).len(), ROWS as usize);
            for at in 0..ROWS {
                let row = database.get(segment, &key(at)).unwrap().unwrap();
                let old = at.to_be_bytes();
                let expected = if at % 2 == 0 { &b"new"[..] } else { &old };
                assert_eq!(row, expected, "{} {at}", segment.name());
            }
            assert_eq!(database.get(segment, &key(ROWS)).unwrap(), None);
        }
    };
    check();
    for segment in Segment::ALL {
        let family = database.family(segment);
        let engine = &database.engine;
        engine.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    }
    check();
}

/// The largest table of the database.
fn table(path: &Path) -> PathBuf {
    let files = fs::read_dir(path.join("database")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let tables = files.filter(|file| file.extension().is_some_and(|e| e == "sst"));
    tables
        .max_by_key(|file| fs::metadata(file).unwrap().len())
        .unwrap()
}

#[test]
fn a_flipped_byte_in_a_table_is_a_fault_or_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let mut batch = Batch::new();
    for at in 0..ROWS {
        batch.put(Segment::Slots, &key(at), &at.to_be_bytes());
    }
    database.ingest(batch).unwrap();
    drop(database);
    let table = table(dir.path());
    let bytes = fs::read(&table).unwrap();
    let seed = rand::rng().random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut faults = 0;
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        let at = random.random_range(0..bytes.len());
        damaged[at] ^= 1 << random.random_range(0..8);
        fs::write(&table, damaged).unwrap();
        let database = match Database::open(dir.path(), &Options::default()) {
            Ok(database) => database,
            Err(error) => {
                assert!(error.to_string().contains("damaged"), "byte {at}: {error}");
                faults += 1;
                continue;
            }
        };
        let mut fault = None;
        for row in 0..ROWS {
            match database.get(Segment::Slots, &key(row)) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&row.to_be_bytes()[..]), "{at}"),
                Err(error) => fault = Some(error),
            }
        }
        if let Some(fault) = fault {
            assert!(fault.to_string().contains("damaged"), "byte {at}: {fault}");
            faults += 1;
        }
    }
    assert!(faults > 40, "only {faults} of 60");
}

#[test]
fn reads_of_accounts_fill_the_cache_16384_times_then_one_in_eight() {
    let policy = FillCachePolicy::new();
    let kept = |segment, reads: u32| {
        (0..reads)
            .filter(|_| policy.should_fill_cache(segment))
            .count()
    };
    assert_eq!(kept(Segment::Slots, 1 << 14), 1 << 14);
    let share = kept(Segment::Slots, 80_000);
    assert!((9_900..10_100).contains(&share), "{share} of 80000");
    // Every second, third and so on read too.
    for rhythm in 2..20 {
        let own = (0..80_000 * rhythm).filter(|at| {
            let is_kept = policy.should_fill_cache(Segment::Accounts);
            at % rhythm == 0 && is_kept
        });
        let share = own.count();
        assert!((9_000..11_000).contains(&share), "{share}, every {rhythm}");
    }
    assert_eq!(kept(Segment::StorageTrie, 1000), 1000);
}
