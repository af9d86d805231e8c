//! What an operator can set, and the RocksDB options that follow from it.

use crate::Segment;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Env, WriteBufferManager,
};
use std::hash::{BuildHasher, RandomState};

/// When a committed batch survives a power cut. What has reached the engine survives a killed process either way,
/// because the system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
    /// When the system writes its pages, or at the next durable batch or close.
    #[default]
    System,
    /// Before each commit returns.
    EachCommit,
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes for cached blocks and unwritten batches together.
    pub memory_budget_bytes: usize,
    /// When commits reach the disk itself.
    pub sync: SyncPolicy,
    /// Files that are open at once at most.
    pub max_open_files: i32,
    /// Whether accounts and slots that are absent are often read: filters of all keys, 10 bits each, say so without a read.
    pub has_whole_filters: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_budget_bytes: 512 << 20,
            sync: SyncPolicy::System,
            max_open_files: 1024,
            has_whole_filters: false,
        }
    }
}

impl Options {
    /// Bytes of batches that may be pending.
    pub(crate) fn max_pending_bytes(&self) -> usize {
        (self.memory_budget_bytes / 8).clamp(8 * MIB, 256 * MIB)
    }
}

const MIB: usize = 1 << 20;

/// Bytes of one partition of a table's index or filter. A read brings one partition of either into memory, not the
/// whole, so reads slow down gradually when they do not all fit into the budget.
const PARTITION_BYTES: usize = 32 << 10;

/// An index block stores one of this many keys in full, the others as differences.
const INDEX_RESTART_INTERVAL: i32 = 16;

/// Share of a write buffer of the state that is a Bloom filter of its keys, allocated with the buffer. Most of what
/// is read was not written lately, and to search a full buffer in vain takes as long as to find a row in a table.
/// With a full buffer the filter has 12 bits per key: one in 200 absent keys is searched.
const MEMTABLE_BLOOM_SHARE: f64 = 0.0125;

/// Age of a table of the lowest level before it is rewritten alone, seconds. A table that was made while an older snapshot was open has
/// rows that could be stored shorter without it, and views of the state are open all the time: the engine would write nearly each table
/// twice. Until then it is mostly merged anyway.
const REWRITE_DELAY_S: u32 = 86_400;

/// Threads that open files at the start. The engine starts them again for each segment.
const FILE_OPENING_THREADS: i32 = 4;

/// Three quarters of `bytes` to all of them, by chance. Nodes that store the same blocks would write their buffers out and compact in the same
/// second: all validators of a chain would be slow at once, while a quorum of them waits only for its fastest members.
fn varied(bytes: usize) -> usize {
    let part = 768 + RandomState::new().hash_one(()) % 257;
    bytes / 1_024 * usize::try_from(part).unwrap_or(1_024)
}

/// Options of the whole engine and of each segment. All share one block cache, which the write buffers are charged to.
pub(crate) struct EngineOptions {
    pub(crate) database: rocksdb::Options,
    cache: Cache,
    write_buffer_bytes: usize,
    bloom_share: f64,
    has_whole_filters: bool,
}

impl EngineOptions {
    /// For a directory on disk.
    pub(crate) fn on_disk(options: &Options) -> Self {
        let budget = options.memory_budget_bytes.max(16 * MIB);
        // Shared by readers without a lock. The engine estimates the size of an entry itself if it is 0.
        let cache = Cache::new_hyper_clock_cache(budget, 0);
        let buffers = budget / 3;
        let manager =
            WriteBufferManager::new_write_buffer_manager_with_cache(buffers, false, cache.clone());
        let mut database = Self::common();
        database.set_write_buffer_manager(&manager);
        database.set_max_open_files(options.max_open_files);
        database.set_max_file_opening_threads(FILE_OPENING_THREADS);
        database.set_max_background_jobs(2);
        database.set_max_total_wal_size(512 * MIB as u64);
        database.set_bytes_per_sync(MIB as u64);
        database.set_max_log_file_size(4 * MIB);
        database.set_keep_log_file_num(2);
        // The manager counts whole blocks of the buffers' arenas: with few rows in each of the segments, blocks of the
        // engine's own size (an eighth of a buffer) fill a small budget, and tables of a few rows are written.
        database.set_arena_block_size((buffers / 256).clamp(32 << 10, MIB));
        let write_buffer_bytes = varied((buffers / 4).clamp(4 * MIB, 128 * MIB));
        Self {
            database,
            cache,
            write_buffer_bytes,
            bloom_share: MEMTABLE_BLOOM_SHARE,
            has_whole_filters: options.has_whole_filters,
        }
    }

    /// For a database that lives in `env`, which is memory: as little as possible set up.
    pub(crate) fn in_memory(env: &Env) -> Self {
        let mut database = Self::common();
        database.set_env(env);
        database.set_log_level(rocksdb::LogLevel::Fatal);
        database.set_arena_block_size(32 << 10);
        database.set_stats_persist_period_sec(0);
        Self {
            database,
            cache: Cache::new_lru_cache(8 * MIB),
            write_buffer_bytes: 16 * MIB,
            bloom_share: 0.0,
            has_whole_filters: false,
        }
    }

    fn common() -> rocksdb::Options {
        let mut database = rocksdb::Options::default();
        // No method sets it, so the engine parses it, and knows its own key.
        let delay = format!("bottommost_file_compaction_delay={REWRITE_DELAY_S}");
        if let Ok(delayed) = database.get_options_from_string(delay) {
            database = delayed;
        }
        database.create_if_missing(true);
        database.create_missing_column_families(true);
        database.set_stats_dump_period_sec(0);
        database.set_log_level(rocksdb::LogLevel::Warn);
        database
    }

    /// For one segment.
    pub(crate) fn segment(&self, segment: Segment) -> rocksdb::Options {
        let mut options = self.database.clone();
        options.set_block_based_table_factory(&self.table(segment));
        options.set_write_buffer_size(self.write_buffer_bytes);
        if segment.is_state() {
            options.set_memtable_whole_key_filtering(true);
            options.set_memtable_prefix_bloom_ratio(self.bloom_share);
            // On public chains most rows that are read exist, and nearly all of them are in the lowest level, which then
            // needs no filter. Absent rows cost as much as present ones.
            options.set_optimize_filters_for_hits(!self.has_whole_filters);
        }
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(DBCompressionType::None);
        if segment.is_compressed() {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_bottommost_compression_type(DBCompressionType::Zstd);
        }
        options
    }

    /// The tables of one segment. A table describes its own format, so tables written under other options stay
    /// readable.
    fn table(&self, segment: Segment) -> BlockBasedOptions {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(segment.block_bytes());
        if segment.is_read_by_key() {
            table.set_bloom_filter(10.0, false);
        }
        table.set_partition_filters(true);
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_metadata_block_size(PARTITION_BYTES);
        table.set_index_block_restart_interval(INDEX_RESTART_INTERVAL);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_top_level_index_and_filter(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        // From 6 on the checksum covers the block's position too, so a misplaced block is found.
        table.set_format_version(6);
        table
    }
}
