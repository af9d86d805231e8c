//! The chain as the rest of the node holds it: its state, its head, and how blocks are executed.

use crate::bad_blocks::BadBlocks;
use crate::bft::Tallies;
use crate::events::HeadListener;
use crate::forkchoice::SafeFinalized;
use crate::log_index::LogIndexing;
use crate::recent_blocks::RecentBlocks;
use crate::threads::BlockThreads;
use crate::tree::StoredHeader;
use crate::tuning::Tuning;
use niwaki_primitives::{Address, B256, Fault};
use niwaki_rules::{ChainSpec, RuleChange};
use niwaki_state::{CacheStats, ComputedRoot, WorldState};
use niwaki_storage::{Database, Segment};
use niwaki_threads::lock;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

/// What a storage holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageStats {
    /// Batches on their way to the disk.
    pub waiting_batches: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Bytes that snapshots keep in memory.
    pub pinned_bytes: usize,
    /// Bytes of blocks of files that the engine has cached; 0 if that can't be read, as below.
    pub cache_bytes: u64,
    /// Bytes in its unwritten buffers.
    pub buffer_bytes: u64,
    /// Bytes on the disk, by segment; a segment whose size can't be read is left out.
    pub segments: Vec<(&'static str, u64)>,
}

/// What a segment of the database takes.
#[derive(Clone, Copy, Debug)]
pub struct SegmentUsage {
    /// Its name.
    pub name: &'static str,
    /// How many keys it has, estimated.
    pub keys: u64,
    /// Bytes on the disk and in unwritten buffers.
    pub bytes: u64,
}

/// A valid block that is stored and not the head. Making it the head does not compute its root again.
pub(crate) struct SideBlock {
    pub(crate) header: StoredHeader,
    pub(crate) root: ComputedRoot,
    /// The accounts that it changes.
    pub(crate) changed: Arc<[Address]>,
}

/// The chain: blocks, state, head. One thread at a time writes; readers never wait for it.
pub struct Chain {
    pub(crate) spec: Arc<ChainSpec>,
    pub(crate) world: WorldState,
    pub(crate) genesis: B256,
    pub(crate) head: Mutex<StoredHeader>,
    writer: Mutex<()>,
    /// The side block imported last.
    side_block: Mutex<Option<SideBlock>>,
    pub(crate) listeners: Mutex<Vec<HeadListener>>,
    /// As the consensus client last said.
    pub(crate) safe_finalized: Mutex<SafeFinalized>,
    bad_blocks: Mutex<BadBlocks>,
    /// Who is voted in and out, on a BFT chain.
    pub(crate) tallies: Tallies,
    pub(crate) recent_blocks: Mutex<RecentBlocks>,
    pub(crate) log_indexing: LogIndexing,
    /// Imports and fork choices in progress. Background work looks at it to make way, nothing else.
    imports: AtomicUsize,
    pub(crate) threads: BlockThreads,
    pub(crate) tuning: Tuning,
    /// What the given rules change about blocks that are stored, without breaking them.
    rule_changes: Vec<RuleChange>,
}

/// While it lives, a block or a fork choice is being imported.
pub(crate) struct ImportGuard<'a>(&'a AtomicUsize);

impl Drop for ImportGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A monotonic clock: nanoseconds since the first call.
pub fn nanoseconds() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Chain {
    /// The chain of a state that has a genesis.
    pub(crate) fn new(
        spec: Arc<ChainSpec>,
        world: WorldState,
        genesis: B256,
        head: StoredHeader,
        safe_finalized: SafeFinalized,
    ) -> Self {
        Self {
            spec,
            world,
            genesis,
            head: Mutex::new(head),
            writer: Mutex::new(()),
            side_block: Mutex::new(None),
            listeners: Mutex::default(),
            safe_finalized: Mutex::new(safe_finalized),
            bad_blocks: Mutex::default(),
            tallies: Tallies::default(),
            recent_blocks: Mutex::default(),
            log_indexing: LogIndexing::default(),
            imports: AtomicUsize::new(0),
            threads: BlockThreads::default(),
            tuning: Tuning::default(),
            rule_changes: Vec::new(),
        }
    }

    pub(crate) fn with_rule_changes(self, rule_changes: Vec<RuleChange>) -> Self {
        Self {
            rule_changes,
            ..self
        }
    }

    /// What the given rules change about blocks that are stored, without breaking them.
    pub fn rule_changes(&self) -> &[RuleChange] {
        &self.rule_changes
    }

    /// The rules of this chain.
    pub fn spec(&self) -> &Arc<ChainSpec> {
        &self.spec
    }

    /// The hash of the genesis block.
    pub fn genesis_hash(&self) -> B256 {
        self.genesis
    }

    /// The head of the canonical chain.
    pub fn head(&self) -> StoredHeader {
        lock(&self.head).clone()
    }

    /// Returns when everything imported so far survives a power cut.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn sync(&self) -> Result<(), Fault> {
        self.world.database().sync()
    }

    /// What the caches of the state hold, and their hits and misses.
    pub fn cache_stats(&self) -> CacheStats {
        self.world.cache_stats()
    }

    /// What the storage holds, on the disk and on the way there.
    pub fn storage_stats(&self) -> StorageStats {
        let database = self.database();
        let sizes = Segment::ALL.into_iter().filter_map(|segment| {
            let bytes = database.size_bytes(segment).ok()?;
            Some((segment.name(), bytes))
        });
        let (cache_bytes, buffer_bytes) = database.memory_bytes().unwrap_or_default();
        StorageStats {
            cache_bytes,
            buffer_bytes,
            waiting_batches: database.pending_batches(),
            waiting_bytes: database.pending_bytes(),
            pinned_bytes: database.pinned_bytes(),
            segments: sizes.collect(),
        }
    }

    /// What each segment of the database takes.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn segment_usage(&self) -> Result<Vec<SegmentUsage>, Fault> {
        let database = self.database();
        let usage = |segment: Segment| {
            Ok(SegmentUsage {
                name: segment.name(),
                keys: database.estimated_keys(segment)?,
                bytes: database.size_bytes(segment)?,
            })
        };
        Segment::ALL.into_iter().map(usage).collect()
    }

    /// What the storage engine says of itself, as text.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn engine_stats(&self) -> Result<String, Fault> {
        self.database().engine_stats()
    }

    pub(crate) fn world(&self) -> &WorldState {
        &self.world
    }

    pub(crate) fn database(&self) -> &Database {
        self.world.database()
    }

    /// The block with this hash, if it is the head or the side block imported last.
    pub(crate) fn header_in_memory(&self, hash: &B256) -> Option<StoredHeader> {
        let head = lock(&self.head);
        if head.id.hash == *hash {
            return Some(head.clone());
        }
        drop(head);
        let side = self.side_block();
        let header = &side.as_ref()?.header;
        (header.id.hash == *hash).then(|| header.clone())
    }

    pub(crate) fn side_block(&self) -> MutexGuard<'_, Option<SideBlock>> {
        lock(&self.side_block)
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    pub(crate) fn bad_blocks(&self) -> MutexGuard<'_, BadBlocks> {
        lock(&self.bad_blocks)
    }

    /// Held by the thread that writes.
    pub(crate) fn writer(&self) -> MutexGuard<'_, ()> {
        lock(&self.writer)
    }

    /// Marks an import or a fork choice as in progress until the guard is dropped.
    pub(crate) fn begin_import(&self) -> ImportGuard<'_> {
        self.imports.fetch_add(1, Ordering::Relaxed);
        ImportGuard(&self.imports)
    }

    /// Whether an import or a fork choice is in progress.
    pub fn is_importing(&self) -> bool {
        self.imports.load(Ordering::Relaxed) > 0
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("genesis", &self.genesis)
            .field("head", &self.head().id)
            .finish_non_exhaustive()
    }
}
