//! The copies of one segment: made with the options of the state's own database but for one, and
//! opened for reading.

use super::{Key, Options};
use eyre::{Context, Result, eyre};
use rocksdb::{Cache, DB, Env, IteratorMode, WriteBatch, WriteOptions};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// How the tables of a copy are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tables {
    /// As the storage has them.
    Chosen,
    /// With Ribbon filters that take as many keys for others as Bloom filters of 10 bits.
    Ribbon,
    /// With blocks of 16 KiB.
    LargeBlocks,
    /// With index and filter in one part each.
    OneLevel,
}

impl Tables {
    pub(super) const ALL: [Self; 4] = [
        Self::Chosen,
        Self::Ribbon,
        Self::LargeBlocks,
        Self::OneLevel,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chosen => "chosen",
            Self::Ribbon => "ribbon",
            Self::LargeBlocks => "large-blocks",
            Self::OneLevel => "one-level",
        }
    }

    /// What the engine is told besides. The filter is told each time, since the file of options
    /// that the others are read from does not keep how many bits it has.
    fn told(self) -> &'static str {
        match self {
            Self::Chosen => "{filter_policy=bloomfilter:10:false;}",
            Self::Ribbon => "{filter_policy=ribbonfilter:10:-1;}",
            Self::LargeBlocks => "{filter_policy=bloomfilter:10:false;block_size=16384;}",
            Self::OneLevel => {
                "{filter_policy=bloomfilter:10:false;index_type=kBinarySearch;\
                 partition_filters=false;}"
            }
        }
    }
}

/// What making a copy took, and what it has.
pub(super) struct Made {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) rows: u64,
    pub(super) filter_bytes: u64,
    pub(super) table_bytes: u64,
}

/// Rows that are written at once.
const ROWS_AT_ONCE: usize = 10_000;

/// Copies the segment, all its rows in key order, into such tables.
pub(super) fn make(options: &Options, tables: Tables) -> Result<Made> {
    let segment = options.rows.segment().name();
    let from = state(options)?;
    let folder = options.copy_folder(tables);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .wrap_err_with(|| format!("can't remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)
        .wrap_err_with(|| format!("can't make {}", folder.display()))?;
    let (clock, cpu_s) = (Instant::now(), cpu_seconds()?);
    let (mut told, families) = load(&options.state.data_path.join("database"), options)?;
    told.create_if_missing(true);
    told.create_missing_column_families(true);
    let to = DB::open_cf_descriptors(&told, &folder, families)?;
    let (source, family) = (
        from.cf_handle(segment).ok_or_else(absent_segment)?,
        to.cf_handle(segment).ok_or_else(absent_segment)?,
    );
    to.set_options_cf(family, &[("block_based_table_factory", tables.told())])?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let (mut batch, mut rows) = (WriteBatch::default(), 0);
    for row in from.iterator_cf(source, IteratorMode::Start) {
        let (key, value) = row?;
        batch.put_cf(family, key, value);
        rows += 1;
        if batch.len() == ROWS_AT_ONCE {
            to.write_opt(std::mem::take(&mut batch), &unlogged)?;
        }
    }
    to.write_opt(batch, &unlogged)?;
    to.flush_cf(family)?;
    to.compact_range_cf(family, None::<&[u8]>, None::<&[u8]>);
    let wall_s = clock.elapsed().as_secs_f64();
    let cpu_s = cpu_seconds()? - cpu_s;
    let figures = to.property_value_cf(family, "rocksdb.aggregated-table-properties")?;
    let figures = figures.unwrap_or_default();
    Ok(Made {
        wall_s,
        cpu_s,
        rows,
        filter_bytes: figure(&figures, "filter block size")?,
        table_bytes: to
            .property_int_value_cf(family, "rocksdb.total-sst-files-size")?
            .unwrap_or(0),
    })
}

fn absent_segment() -> eyre::Report {
    eyre!("the segment is not in the database; remove the folder and it is made again")
}

/// The figure called `name` among `name=figure; name=figure`.
fn figure(tables: &str, name: &str) -> Result<u64> {
    let mut pairs = tables.split(';').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(own, _)| own.trim() == name);
    let (_, figure) = found.ok_or_else(|| eyre!("the engine tells no '{name}': {tables}"))?;
    Ok(figure.trim().parse()?)
}

/// User and system time of this process so far; the system counts in hundredths of a second.
fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").wrap_err("no /proc; use Linux")?;
    // The name in parentheses may hold anything, parentheses included.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

/// Every so many keys of the segment, as many as are needed.
pub(super) fn keys(options: &Options) -> Result<Vec<Key>> {
    let segment = options.rows.segment().name();
    let from = state(options)?;
    let source = from.cf_handle(segment).ok_or_else(absent_segment)?;
    let needed = options.rows_a_round() * options.rounds;
    // Slots are as many as that; there are about half as many nodes.
    let rows = usize::try_from(options.state.slots).unwrap_or(usize::MAX);
    let step = (rows / needed / 4).max(1);
    let mut keys = Vec::new();
    for row in from.iterator_cf(source, IteratorMode::Start).step_by(step) {
        keys.push(row?.0);
    }
    Ok(keys)
}

fn load(
    path: &Path,
    options: &Options,
) -> Result<(rocksdb::Options, Vec<rocksdb::ColumnFamilyDescriptor>)> {
    let cache = Cache::new_lru_cache(options.budget.storage_bytes);
    rocksdb::Options::load_latest(path, Env::new()?, true, cache)
        .wrap_err_with(|| format!("can't read the options of {}", path.display()))
}

/// The state's own database.
fn state(options: &Options) -> Result<DB> {
    open(&options.state.data_path.join("database"), options, false)
}

/// Opens a database for reading with the options it has, past the system's cache if `is_direct`.
pub(super) fn open(path: &Path, options: &Options, is_direct: bool) -> Result<DB> {
    let (mut told, families) = load(path, options)?;
    told.set_use_direct_reads(is_direct);
    DB::open_cf_descriptors_read_only(&told, path, families, false)
        .wrap_err_with(|| format!("can't open {} for reading", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_its_name() {
        let tables = "# data blocks=1; filter block size=42; (estimated) table size=7;";
        assert_eq!(figure(tables, "filter block size").unwrap(), 42);
        let error = figure(tables, "block size").unwrap_err().to_string();
        assert!(error.contains("block size"), "{error}");
    }

    #[test]
    fn the_processor_s_time_grows_with_work() {
        let before = cpu_seconds().unwrap();
        let clock = Instant::now();
        while clock.elapsed().as_millis() < 100 {
            std::hint::black_box(figure("a=1", "a").unwrap());
        }
        assert!(cpu_seconds().unwrap() > before);
    }
}
