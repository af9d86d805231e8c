//! Opening a chain, and its genesis block.

use crate::bad_blocks::BadBlocks;
use crate::events::Listeners;
use crate::forkchoice::Marks;
use crate::genesis_file::remembered_rules;
use crate::indices::adopt;
use crate::log_index::LogIndexing;
use crate::persist::add_block;
use crate::recent::RecentImports;
use crate::tree::{StoredHeader, read_header};
use niwaki_execution::Parallelism;
use niwaki_primitives::{Address, B256, BlockAccessList, BlockBody, Fault, Header, Withdrawals};
use niwaki_rules::{
    ChainSpec, GenesisError, Network, RuleChange, encode_access_list, rule_changes,
};
use niwaki_state::{
    BlockId, CacheStats, ComputedRoot, GenesisAccount, StateOptions, WorldState, genesis_root,
};
use niwaki_storage::{Batch, Database, Options as StorageOptions, Segment};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The row of `meta` that names the genesis block.
pub(crate) const GENESIS: &[u8] = b"genesis";

/// The row of `meta` that gives the lowest canonical block above the genesis block that is stored,
/// where that is not the first one.
pub(crate) const FIRST_BLOCK: &[u8] = b"first block";

/// The first block and the first state.
#[derive(Clone, Debug, Default)]
pub struct GenesisBlock {
    /// The header; its state root is computed, and compared if it is not zero.
    pub header: Header,
    /// The accounts.
    pub alloc: BTreeMap<Address, niwaki_rules::GenesisAccount>,
}

impl From<&niwaki_rules::Genesis> for GenesisBlock {
    fn from(genesis: &niwaki_rules::Genesis) -> Self {
        Self {
            header: genesis.header(B256::ZERO),
            alloc: genesis.alloc.clone(),
        }
    }
}

/// How a chain is opened.
#[derive(Clone, Debug)]
pub struct ChainConfig {
    /// Where it lies; `None` for one in memory.
    pub data_path: Option<PathBuf>,
    /// The rules.
    pub spec: Arc<ChainSpec>,
    /// The first block.
    pub genesis: GenesisBlock,
    /// How the storage is opened.
    pub storage: StorageOptions,
    /// How the state is opened.
    pub state: StateOptions,
}

/// What a storage holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageFigures {
    /// Batches on their way to the disk.
    pub waiting_batches: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Bytes that snapshots keep in memory.
    pub pinned_bytes: usize,
    /// Bytes on the disk, by segment; those of one that can't be asked are left out.
    pub segments: Vec<(&'static str, u64)>,
}

/// Why a chain did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The database did not open.
    #[error(transparent)]
    Storage(#[from] niwaki_storage::OpenError),
    /// The data path holds another chain.
    #[error(
        "the data path holds the chain with genesis {stored}, the given genesis is {given}; \
         choose the network or genesis file it was made with, or another --data-path"
    )]
    OtherGenesis {
        /// Of the data path.
        stored: B256,
        /// Of the configuration.
        given: B256,
    },
    /// The rules that are given are not those that the blocks were made by.
    #[error(
        "{change}, but the chain is at block {head} and was made by the rules before; give it the \
         genesis file that it was made with, or begin it anew in another --data-path"
    )]
    OtherRules {
        /// The change that reaches back furthest.
        change: RuleChange,
        /// The number of the head.
        head: u64,
    },
    /// The genesis is not the one that the chain is known by.
    #[error("the genesis block has hash {got}, the chain is known by {expected}")]
    GenesisHash {
        /// Computed.
        got: B256,
        /// By the chain spec.
        expected: B256,
    },
    /// The genesis accounts do not have the root that the header gives.
    #[error("the genesis accounts have state root {got}, the genesis header says {expected}")]
    GenesisRoot {
        /// Computed.
        got: B256,
        /// By the header.
        expected: B256,
    },
    /// The genesis file can't be used.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// Whoever was told of the loading asked to stop.
    #[error("stopped while loading the genesis; the next start begins it anew")]
    Stopped,
    /// The machine failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A block that is not the head yet, what it does to the state, and which accounts it changes.
type Pending = (StoredHeader, ComputedRoot, Arc<[Address]>);

/// The chain: blocks, state, head. One at a time may write; reading never waits for it.
pub struct Chain {
    spec: Arc<ChainSpec>,
    world: WorldState,
    genesis: B256,
    head: Mutex<StoredHeader>,
    writer: Mutex<()>,
    /// The block taken in last without becoming the head, so that making it the head does not
    /// compute its root again.
    pending: Mutex<Option<Pending>>,
    listeners: Listeners,
    /// The safe and the finalized block, as the consensus client last said.
    marks: Mutex<Marks>,
    bad_blocks: Mutex<BadBlocks>,
    recent_imports: Mutex<RecentImports>,
    log_indexing: LogIndexing,
    /// Blocks and fork choices that are handled. Nothing but haste hangs on it.
    handled: AtomicUsize,
    /// Threads that the transactions of a block run on.
    transaction_threads: AtomicUsize,
    /// Whether a block gets fewer where other processes leave it fewer processors.
    leaves_processors: AtomicBool,
    /// On how many threads the transactions of the block at hand run.
    block_threads: AtomicUsize,
    sender_threads: AtomicUsize,
    /// What the rules that were given change about blocks that are there, without breaking them.
    rule_changes: Vec<RuleChange>,
}

/// While it lives, a block or a fork choice is handled.
pub(crate) struct Handling<'a>(&'a AtomicUsize);

impl Drop for Handling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The time by a clock that never goes back, nanoseconds since it was asked first.
pub fn nanoseconds() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Chain {
    /// Opens the chain, or begins it with its genesis block if there is none yet.
    ///
    /// # Errors
    /// [`OpenError`]; a data path with another chain is not changed.
    pub fn open(config: ChainConfig) -> Result<Self, OpenError> {
        let database = match &config.data_path {
            Some(path) => Database::open(path, &config.storage)?,
            None => Database::in_memory()?,
        };
        let world = WorldState::open(database, &config.state)?;
        let mut changes = Vec::new();
        match world.head() {
            Some(_) => {
                let stored = stored_genesis(&world)?;
                check_genesis(stored, &config.genesis, &config.spec)?;
                changes = check_rules(&world, stored, &config.spec)?;
            }
            None => begin(&world, &config.genesis, &config.spec, Batch::new())?,
        }
        let chain = Self::open_world(world, config.spec)?;
        Ok(chain.with_rule_changes(changes))
    }

    pub(crate) fn with_rule_changes(self, rule_changes: Vec<RuleChange>) -> Self {
        Self {
            rule_changes,
            ..self
        }
    }

    /// What the rules that were given change about blocks that are there, without breaking them.
    pub fn rule_changes(&self) -> &[RuleChange] {
        &self.rule_changes
    }

    /// The chain of a state that has its genesis.
    pub(crate) fn open_world(world: WorldState, spec: Arc<ChainSpec>) -> Result<Self, OpenError> {
        let head = world.view_at_head()?.block();
        let genesis = stored_genesis(&world)?;
        let head = read_header(world.database(), head)?;
        let marks = Marks::read(world.database())?;
        Ok(Self {
            spec,
            world,
            genesis,
            head: Mutex::new(head),
            writer: Mutex::new(()),
            pending: Mutex::new(None),
            listeners: Listeners::default(),
            marks: Mutex::new(marks),
            bad_blocks: Mutex::default(),
            recent_imports: Mutex::default(),
            handled: AtomicUsize::new(0),
            log_indexing: LogIndexing::default(),
            transaction_threads: AtomicUsize::new(1),
            leaves_processors: AtomicBool::new(false),
            block_threads: AtomicUsize::new(1),
            sender_threads: AtomicUsize::new(
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            rule_changes: Vec::new(),
        })
    }

    /// The rules of this chain.
    pub fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// The hash of the genesis block.
    pub fn genesis_hash(&self) -> B256 {
        self.genesis
    }

    /// The head: the block whose state is on disk.
    pub fn head(&self) -> StoredHeader {
        self.head_guard().clone()
    }

    /// Returns when everything imported so far survives a power cut.
    ///
    /// # Errors
    /// A [`Fault`] of the storage.
    pub fn sync(&self) -> Result<(), Fault> {
        self.world.database().sync()
    }

    /// What the caches of the state hold and how often it was asked for.
    pub fn cache_stats(&self) -> CacheStats {
        self.world.cache_stats()
    }

    /// What the storage holds, on the disk and on the way there.
    pub fn storage_figures(&self) -> StorageFigures {
        let database = self.database();
        let sizes = Segment::ALL.into_iter().filter_map(|segment| {
            let bytes = database.size_bytes(segment).ok()?;
            Some((segment.name(), bytes))
        });
        StorageFigures {
            waiting_batches: database.pending_batches(),
            waiting_bytes: database.pending_bytes(),
            pinned_bytes: database.pinned_bytes(),
            segments: sizes.collect(),
        }
    }

    pub(crate) fn world(&self) -> &WorldState {
        &self.world
    }

    pub(crate) fn database(&self) -> &Database {
        self.world.database()
    }

    /// The head, if it has this hash.
    /// The block with this hash if it is the head, or the one that was taken in last beside it.
    pub(crate) fn header_in_memory(&self, hash: &B256) -> Option<StoredHeader> {
        let head = self.head_guard();
        if head.id.hash == *hash {
            return Some(head.clone());
        }
        drop(head);
        let pending = self.pending();
        let (block, _, _) = pending.as_ref()?;
        (block.id.hash == *hash).then(|| block.clone())
    }

    pub(crate) fn replace_head(&self, head: StoredHeader) {
        *self.head_guard() = head;
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the transactions of a block run on so many threads, some ahead of their turn, where the block
    /// is worth it; one after the other at first.
    pub fn set_transaction_threads(&self, threads: usize) {
        self.leaves_processors.store(false, Ordering::Relaxed);
        self.transaction_threads
            .store(threads.max(1), Ordering::Relaxed);
        self.block_threads.store(threads.max(1), Ordering::Relaxed);
    }

    /// As [`Chain::set_transaction_threads`], at most: a block runs on no more threads than processors are free
    /// when it comes, its own included. Where another process has the second of two processors, a second thread
    /// costs more than it gains (docs/performance/pipeline.md).
    pub fn set_most_transaction_threads(&self, threads: usize) {
        self.set_transaction_threads(threads);
        self.leaves_processors.store(true, Ordering::Relaxed);
    }

    /// Chooses the threads of the block that is about to be executed.
    pub(crate) fn choose_block_threads(&self) {
        let most = self.transaction_threads.load(Ordering::Relaxed);
        let is_bound = most > 1 && self.leaves_processors.load(Ordering::Relaxed);
        let free = is_bound.then(niwaki_threads::free_processors).flatten();
        let threads = free.map_or(most, |free| most.min(free.saturating_add(1)));
        self.block_threads.store(threads, Ordering::Relaxed);
    }

    /// Has senders recovered on so many threads, the one included that executes; on as many as there are
    /// processors at first. With one, no root is begun and no receipts are taken in beside the execution either.
    pub fn set_sender_threads(&self, threads: usize) {
        self.sender_threads.store(threads.max(1), Ordering::Relaxed);
    }

    pub(crate) fn sender_threads(&self) -> usize {
        self.sender_threads.load(Ordering::Relaxed)
    }

    pub(crate) fn parallelism(&self) -> Parallelism {
        Parallelism {
            // Blocks of tests are over before anybody would be called for help.
            clock: (!cfg!(test)).then_some(nanoseconds),
            ..Parallelism::of(self.block_threads.load(Ordering::Relaxed))
        }
    }

    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    pub(crate) fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn log_indexing(&self) -> &LogIndexing {
        &self.log_indexing
    }

    pub(crate) fn recent_imports(&self) -> MutexGuard<'_, RecentImports> {
        let recent = &self.recent_imports;
        recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn bad_blocks(&self) -> MutexGuard<'_, BadBlocks> {
        self.bad_blocks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by whoever writes.
    pub(crate) fn writer(&self) -> MutexGuard<'_, ()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a block or a fork choice is handled, until what this gives is dropped.
    pub(crate) fn handling(&self) -> Handling<'_> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        Handling(&self.handled)
    }

    /// Whether a block or a fork choice is handled at this moment.
    pub(crate) fn is_handling(&self) -> bool {
        self.handled.load(Ordering::Relaxed) > 0
    }

    fn head_guard(&self) -> MutexGuard<'_, StoredHeader> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
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

fn accounts(genesis: &GenesisBlock) -> impl Iterator<Item = GenesisAccount> {
    genesis
        .alloc
        .iter()
        .map(|(address, account)| GenesisAccount {
            address: *address,
            nonce: account.nonce,
            balance: account.balance,
            code: account.code.clone(),
            storage: account
                .storage
                .iter()
                .map(|(slot, value)| (*slot, *value))
                .collect(),
        })
}

/// The header with its state root filled in, and its hash.
pub(crate) fn genesis_header(
    template: &Header,
    spec: &ChainSpec,
    root: B256,
) -> Result<(Header, B256), OpenError> {
    let mut header = template.clone();
    let expected = header.state_root;
    if !expected.is_zero() && expected != root {
        return Err(OpenError::GenesisRoot {
            got: root,
            expected,
        });
    }
    header.state_root = root;
    let got = header.hash_slow();
    match spec.genesis_hash {
        Some(expected) if got != expected => Err(OpenError::GenesisHash { got, expected }),
        _ => Ok((header, got)),
    }
}

/// The chain that is asked for must be the one with the genesis `stored`. The root of the accounts is
/// computed only if the chain is not known by its genesis hash.
pub(crate) fn check_genesis(
    stored: B256,
    genesis: &GenesisBlock,
    spec: &ChainSpec,
) -> Result<(), OpenError> {
    if spec.genesis_hash == Some(stored) {
        return Ok(());
    }
    let root = genesis_root(accounts(genesis));
    let (_, given) = genesis_header(&genesis.header, spec, root)?;
    check_hash(stored, given)
}

/// The data path's genesis and the given one must be the same.
pub(crate) fn check_hash(stored: B256, given: B256) -> Result<(), OpenError> {
    if stored == given {
        return Ok(());
    }
    Err(OpenError::OtherGenesis { stored, given })
}

/// The rules that are given must not change what the chain's blocks were judged by; gives the changes
/// that do not. `genesis` is the hash of its genesis block.
pub(crate) fn check_rules(
    world: &WorldState,
    genesis: B256,
    given: &ChainSpec,
) -> Result<Vec<RuleChange>, OpenError> {
    let head = read_header(world.database(), world.view_at_head()?.block())?;
    // A chain without blocks may have any rules that make its genesis block.
    let stored = match head.id.hash == genesis {
        true => None,
        false => stored_rules(world.database(), genesis)?,
    };
    let Some(stored) = stored else {
        return Ok(Vec::new());
    };
    let changes = rule_changes(&stored, given, &head.header, head.total_difficulty);
    match changes.first() {
        Some(change) if change.is_breaking => Err(OpenError::OtherRules {
            change: change.clone(),
            head: head.id.number,
        }),
        _ => Ok(changes),
    }
}

/// The rules that the chain's blocks were made by: those of the genesis file that the data path
/// remembers, else those of the network that has this genesis block; `None` if nothing tells.
fn stored_rules(database: &Database, genesis: B256) -> Result<Option<ChainSpec>, Fault> {
    if let Some(spec) = remembered_rules(database)? {
        return Ok(Some(spec));
    }
    let mut networks = Network::ALL.into_iter();
    let network = networks.find(|network| network.genesis_hash() == genesis);
    Ok(network.map(|network| network.genesis().spec))
}

pub(crate) fn stored_genesis(world: &WorldState) -> Result<B256, Fault> {
    let row = world.database().get(Segment::Meta, GENESIS)?;
    let row = row.ok_or_else(|| crate::rows::missing(Segment::Meta, GENESIS))?;
    B256::try_from(&row[..])
        .map_err(|_| crate::rows::corrupt(Segment::Meta, GENESIS, "a hash has 32 bytes"))
}

/// Writes the genesis block and its state, together with `batch`.
pub(crate) fn begin(
    world: &WorldState,
    genesis: &GenesisBlock,
    spec: &ChainSpec,
    batch: Batch,
) -> Result<(), OpenError> {
    let root = world.load_genesis(accounts(genesis).map(Ok))?;
    let (header, hash) = genesis_header(&genesis.header, spec, root)?;
    Begun { header, hash }.write(world, batch)?;
    Ok(())
}

/// A genesis block whose state was loaded.
pub(crate) struct Begun {
    pub(crate) header: Header,
    pub(crate) hash: B256,
}

impl Begun {
    /// Puts it in force, together with `batch`.
    pub(crate) fn write(self, world: &WorldState, mut batch: Batch) -> Result<(), Fault> {
        let Self { header, hash } = self;
        let (number, root) = (header.number, header.state_root);
        let body = BlockBody {
            withdrawals: header.withdrawals_root.map(|_| Withdrawals::default()),
            ..BlockBody::default()
        };
        let block = StoredHeader {
            id: BlockId { number, hash },
            total_difficulty: header.difficulty,
            header,
        };
        // Nothing happens in a genesis block.
        let access_list = block.header.block_access_list_hash;
        let access_list = access_list.map(|_| encode_access_list(&BlockAccessList::new()));
        add_block(&block, &body, &[], access_list.as_ref(), &mut batch);
        adopt(&block.id, &body, &mut batch);
        batch.put(Segment::Meta, GENESIS, hash.as_slice());
        world.finish_genesis(block.id, root, batch)
    }
}
