//! What an operator can set, and what RocksDB is told for it.

use crate::Segment;
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Env, WriteBufferManager};

/// How soon a committed batch survives a power cut. A killed process loses nothing either way,
/// because the system keeps what was handed to it.
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
    /// Most files kept open at once.
    pub max_open_files: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_budget_bytes: 512 << 20,
            sync: SyncPolicy::System,
            max_open_files: 1024,
        }
    }
}

impl Options {
    /// Bytes of batches that may wait for the engine.
    pub(crate) fn waiting_bytes(&self) -> usize {
        (self.memory_budget_bytes / 8).clamp(8 * MIB, 256 * MIB)
    }
}

const MIB: usize = 1 << 20;

/// Options of the whole engine and of each segment. They share one block cache, which the write
/// buffers are charged to.
pub(crate) struct EngineOptions {
    pub(crate) database: rocksdb::Options,
    cache: Cache,
    write_buffer_bytes: usize,
}

impl EngineOptions {
    /// For a directory on disk.
    pub(crate) fn on_disk(options: &Options) -> Self {
        let budget = options.memory_budget_bytes.max(16 * MIB);
        let cache = Cache::new_lru_cache(budget);
        let buffers = budget / 3;
        let manager =
            WriteBufferManager::new_write_buffer_manager_with_cache(buffers, false, cache.clone());
        let mut database = Self::common();
        database.set_write_buffer_manager(&manager);
        database.set_max_open_files(options.max_open_files);
        database.set_max_background_jobs(2);
        database.set_max_total_wal_size(512 * MIB as u64);
        database.set_bytes_per_sync(MIB as u64);
        database.set_max_log_file_size(4 * MIB);
        database.set_keep_log_file_num(2);
        let write_buffer_bytes = (buffers / 4).clamp(4 * MIB, 128 * MIB);
        Self {
            database,
            cache,
            write_buffer_bytes,
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
        }
    }

    fn common() -> rocksdb::Options {
        let mut database = rocksdb::Options::default();
        database.create_if_missing(true);
        database.create_missing_column_families(true);
        database.set_stats_dump_period_sec(0);
        database.set_log_level(rocksdb::LogLevel::Warn);
        database
    }

    /// For one segment.
    pub(crate) fn segment(&self, segment: Segment) -> rocksdb::Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(16 << 10);
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_format_version(5);
        let mut options = self.database.clone();
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_compression_type(DBCompressionType::None);
        if segment.is_compressed() {
            options.set_compression_type(DBCompressionType::Lz4);
            options.set_bottommost_compression_type(DBCompressionType::Zstd);
        }
        options
    }
}
