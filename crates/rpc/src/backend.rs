//! What the methods work on: the chain, the pool, the operator's options, and the state at a block.

use crate::blocks::{FullBlock, RecentBlocks};
use crate::builder_settings::{BuilderSettings, SharedBuilderSettings};
use crate::engine::{EngineLog, write_imported, write_syncing};
use crate::filters::Filters;
use crate::metrics;
use crate::niwaki::{RecentBlockStats, log_if_slow};
use crate::operator::Operator;
use crate::params::{BlockRef, BlockTag};
use crate::payloads::{BuildLimits, Builder, Payloads};
use crate::state::{ProvableStates, State};
use crate::subscriptions::Events;
use crate::{RpcError, lock};
use niwaki_chain::{
    BlockTemplate, BuildError, BuiltBlock, Chain, ChainView, Consensus, Imported, MissingHead,
    StateHead, StoredHeader,
};
use niwaki_primitives::{B256, Bytes, Header, U256};
use niwaki_txpool::Pool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The names and version of this program.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `niwaki/v0.1.0-abcdef01/linux-x86_64/rustc1.95.0`.
    pub client_version: String,
    /// `v0.1.0`.
    pub version: String,
    /// The first four bytes of the commit that it was built from.
    pub commit: [u8; 4],
}

/// Options of the methods.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Most gas of a simulated call.
    pub gas_cap: u64,
    /// Most blocks of one `eth_getLogs`; 0 for no bound.
    pub max_logs_range: u64,
    /// Blocks that the gas price oracle samples.
    pub gas_price_blocks: u64,
    /// The percentile of their tips that it suggests.
    pub gas_price_percentile: f64,
    /// The highest tip that it suggests, wei.
    pub gas_price_max: U256,
    /// The tip that it suggests where blocks have none, wei; 0 where gas may be free.
    pub default_tip: u128,
    /// The gas limit that blocks built here move towards; `None` keeps the parent's.
    pub target_gas_limit: Option<u64>,
    /// Extra data of blocks built here.
    pub extra_data: Bytes,
    /// The least tip of a transaction without priority in a block built here, wei per gas.
    pub min_priority_fee: u128,
    /// Whether a consensus client drives this node.
    pub is_driven: bool,
    /// How long a block built here may be filled with transactions.
    pub fill_time: Duration,
    /// Most blobs of a transaction in a block built here.
    pub max_blobs_per_transaction: Option<usize>,
    /// Most blobs of a block built here.
    pub max_blobs_per_block: Option<usize>,
    /// The result of `net_version`; `None` for the chain's own network id.
    pub network_id: Option<u64>,
    /// How far `eth_estimateGas` may be above the least gas, as a fraction of the estimate.
    pub estimate_tolerance: f64,
    /// Most blocks of one `trace_filter`; 0 for no bound.
    pub max_trace_range: u64,
    /// Most filters at a time; 0 for no bound.
    pub max_filters: usize,
    /// How long a filter that is not polled is kept.
    pub filter_timeout: Duration,
    /// Most subscriptions at a time, of all connections together.
    pub max_subscriptions: usize,
    /// A block that takes at least so long is logged with all that is known of it; `None` for never.
    pub slow_block: Option<Duration>,
}

/// Whether the head is known to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStatus {
    /// A consensus client drives this node and has chosen no head that is stored here since the start.
    Unknown,
    /// Blocks up to the chosen head are missing.
    Behind(MissingHead),
    /// The head is the chosen one.
    Current,
}

/// After this long without a call of the consensus client, the head may be stale.
pub const MAX_CONSENSUS_SILENCE: Duration = Duration::from_secs(120);

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            gas_cap: 50_000_000,
            max_logs_range: 5_000,
            gas_price_blocks: 100,
            gas_price_percentile: 50.0,
            gas_price_max: U256::from(500_000_000_000_u64),
            default_tip: 1_000_000_000,
            target_gas_limit: None,
            extra_data: Bytes::new(),
            min_priority_fee: 0,
            is_driven: false,
            fill_time: Duration::from_secs(5),
            max_blobs_per_transaction: None,
            max_blobs_per_block: None,
            network_id: None,
            estimate_tolerance: 0.015,
            max_trace_range: 1_000,
            max_filters: 4_096,
            filter_timeout: Duration::from_secs(5 * 60),
            max_subscriptions: 8_192,
            slow_block: Some(Duration::from_secs(1)),
        }
    }
}

/// Chain, pool, and everything else that the methods share.
#[derive(Debug)]
pub struct Backend {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) payloads: Payloads,
    pub(crate) identity: Identity,
    pub(crate) options: ApiOptions,
    /// The options that may change while the node runs.
    pub(crate) builder_settings: Arc<SharedBuilderSettings>,
    pub(crate) filters: Filters,
    pub(crate) events: Events,
    /// One permit per subscription, of all connections.
    pub(crate) subscription_permits: Arc<Semaphore>,
    recent: RecentBlocks,
    pub(crate) block_stats: RecentBlockStats,
    operator: Operator,
    /// The state after the head, shared by calls so that each needs no snapshot of its own.
    head_state: Mutex<Option<ChainView>>,
    /// States below it that were proved.
    pub(crate) provable: ProvableStates,
    ids: AtomicU64,
    /// When the consensus client called last, or when this node started.
    last_consensus_call: Mutex<Instant>,
    pub(crate) engine_log: EngineLog,
}

impl Backend {
    /// A backend without filters, subscriptions or payloads yet.
    pub fn new(
        consensus: Arc<Consensus>,
        pool: Arc<Pool>,
        identity: Identity,
        options: ApiOptions,
    ) -> Self {
        let builder_settings = Arc::new(SharedBuilderSettings::new(BuilderSettings {
            extra_data: options.extra_data.clone(),
            target_gas_limit: options.target_gas_limit,
            min_priority_fee: options.min_priority_fee,
        }));
        let payloads = Payloads::new(Builder {
            chain: Arc::clone(consensus.chain()),
            pool: Arc::clone(&pool),
            settings: Arc::clone(&builder_settings),
            limits: BuildLimits {
                fill_time: options.fill_time,
                blobs_per_transaction: options.max_blobs_per_transaction.unwrap_or(usize::MAX),
                blobs_per_block: options.max_blobs_per_block.unwrap_or(usize::MAX),
            },
        });
        let subscriptions = options.max_subscriptions.min(Semaphore::MAX_PERMITS);
        Self {
            subscription_permits: Arc::new(Semaphore::new(subscriptions)),
            consensus,
            pool,
            payloads,
            identity,
            options,
            builder_settings,
            filters: Filters::default(),
            events: Events::default(),
            recent: RecentBlocks::default(),
            block_stats: RecentBlockStats::default(),
            operator: Operator::default(),
            head_state: Mutex::default(),
            provable: ProvableStates::default(),
            ids: AtomicU64::new(first_id()),
            last_consensus_call: Mutex::new(Instant::now()),
            engine_log: EngineLog::default(),
        }
    }

    /// The network id: the operator's, or the chain's own.
    pub(crate) fn network_id(&self) -> u64 {
        let own = self.chain().spec().network_id;
        self.options.network_id.unwrap_or(own)
    }

    /// The chain.
    pub fn chain(&self) -> &Chain {
        self.consensus.chain()
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether a consensus client drives this node.
    pub fn is_driven(&self) -> bool {
        self.options.is_driven
    }

    /// The names and version of this program.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The operator's settings for a block built here.
    pub fn block_template(&self) -> BlockTemplate {
        let settings = self.builder_settings.read();
        BlockTemplate {
            extra_data: settings.extra_data.clone(),
            target_gas_limit: settings.target_gas_limit,
            ..BlockTemplate::default()
        }
    }

    /// Builds a block from the best transactions of the pool.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_now(&self, template: BlockTemplate) -> Result<BuiltBlock, BuildError> {
        Ok(self.payloads.build_now(template)?.built)
    }

    /// The number of the head that this node is syncing to, if it is behind.
    pub fn target(&self) -> Option<u64> {
        self.consensus.target()
    }

    /// The lowest priority fee of transactions in blocks that this node builds, wei.
    pub fn min_priority_fee(&self) -> u128 {
        self.builder_settings.read().min_priority_fee
    }

    /// The hooks of the program around this crate.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// The channels of head changes and pool events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// An id for a filter or a subscription, hard to guess from the one before.
    pub(crate) fn next_id(&self) -> String {
        // A permutation of 64 bits (splitmix64): no id comes twice.
        let mut bits = self.ids.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        format!("{:#x}", bits ^ (bits >> 31))
    }

    /// The header of the block that `tag` names; `None` if there is none.
    ///
    /// # Errors
    /// A fault of the storage, as -32603; -32000 for `safe` and `finalized` while the consensus client has named
    /// none: such a block is not missing but not known yet.
    pub fn header_by_tag(&self, tag: BlockTag) -> Result<Option<StoredHeader>, RpcError> {
        let chain = self.chain();
        Ok(match tag {
            BlockTag::Latest | BlockTag::Pending => Some(chain.head()),
            BlockTag::Number(number) => {
                let head = chain.head();
                match number == head.id.number {
                    true => Some(head),
                    false => chain.header_at(number)?,
                }
            }
            BlockTag::Earliest => chain.header(&chain.genesis_hash())?,
            BlockTag::Safe => Some(chain.safe()?.ok_or_else(|| not_known("safe"))?),
            BlockTag::Finalized => Some(chain.finalized()?.ok_or_else(|| not_known("finalized"))?),
        })
    }

    /// The header of the block that is named; `None` if there is none.
    ///
    /// # Errors
    /// A fault of the storage, as -32603; -32000 for one that must be canonical and is not.
    pub fn header_by_ref(&self, block: BlockRef) -> Result<Option<StoredHeader>, RpcError> {
        let (hash, require_canonical) = match block {
            BlockRef::Tag(tag) => return self.header_by_tag(tag),
            BlockRef::Hash {
                hash,
                require_canonical,
            } => (hash, require_canonical),
        };
        let header = self.chain().header(&hash)?;
        if let Some(header) = header.as_ref().filter(|_| require_canonical) {
            let canonical = self.chain().canonical_hash(header.id.number)?;
            if canonical != Some(hash) {
                return Err(RpcError::server("hash is not currently canonical"));
            }
        }
        Ok(header)
    }

    /// The block that is named; `None` if there is none.
    ///
    /// # Errors
    /// As [`Backend::header_by_ref`].
    pub fn block_by_ref(&self, block: BlockRef) -> Result<Option<Arc<FullBlock>>, RpcError> {
        let hash = match block {
            BlockRef::Tag(BlockTag::Number(number)) => self.chain().canonical_hash(number)?,
            _ => self.header_by_ref(block)?.map(|header| header.id.hash),
        };
        match hash {
            Some(hash) => self.block(&hash),
            None => Ok(None),
        }
    }

    /// The block with this hash.
    ///
    /// # Errors
    /// A fault of the storage, as -32603.
    pub fn block(&self, hash: &B256) -> Result<Option<Arc<FullBlock>>, RpcError> {
        Ok(self.recent.get(self.chain(), hash)?)
    }

    /// The block with this hash, if it is cached.
    pub(crate) fn cached_block(&self, hash: &B256) -> Option<Arc<FullBlock>> {
        self.recent.cached(hash)
    }

    /// The state after the block that is named, and its header.
    ///
    /// # Errors
    /// -32000 if there is no such block, or its state is no longer there.
    pub fn state(&self, block: BlockRef) -> Result<(StoredHeader, State), RpcError> {
        let header = self
            .header_by_ref(block)?
            .ok_or_else(|| RpcError::server("header not found"))?;
        let state = self.state_after(&header)?;
        Ok((header, state))
    }

    /// The state after a stored block.
    ///
    /// # Errors
    /// -32000 if it is no longer there.
    pub fn state_after(&self, header: &StoredHeader) -> Result<State, RpcError> {
        let chain = self.chain();
        if !chain.has_state() {
            return Err(RpcError::server(
                "the state is being downloaded: niwaki_syncStatus says how much of it has come",
            ));
        }
        if header.id == chain.head().id {
            if let Some(view) = self.head_state(header)? {
                return Ok(State::Recent(view));
            }
        } else if let Some(view) = chain.view_at(&header.id.hash)? {
            return Ok(State::Recent(view));
        }
        let past = StateHead {
            block: header.id,
            root: header.header.state_root,
        };
        let is_canonical = chain.canonical_hash(header.id.number)? == Some(header.id.hash);
        let past = match is_canonical {
            true => chain.historical_view(past)?,
            false => None,
        };
        past.map(State::Past).ok_or_else(|| {
            RpcError::server(format!(
                "historical state of block {} is not available: this node keeps the states of \
                 the last 512 blocks",
                header.id.number
            ))
        })
    }

    /// The state after the head, if `header` still is the head.
    fn head_state(&self, header: &StoredHeader) -> Result<Option<ChainView>, RpcError> {
        let mut cached = lock(&self.head_state);
        if let Some(view) = cached.as_ref().filter(|view| view.block() == header.id) {
            return Ok(Some(view.clone()));
        }
        // The old view is dropped first: it may pin what the storage could free.
        *cached = None;
        let view = self.chain().view_at_head()?;
        *cached = Some(view.clone());
        Ok(match view.block() == header.id {
            true => Some(view),
            false => self.chain().view_at(&header.id.hash)?,
        })
    }

    /// Drops the cached states of a former head.
    pub fn head_moved(&self) {
        self.provable.clear();
        let mut cached = lock(&self.head_state);
        let head = self.chain().head().id;
        cached.take_if(|view| view.block() != head);
    }

    /// Records that the consensus client has called.
    pub(crate) fn record_consensus_call(&self) {
        *lock(&self.last_consensus_call) = Instant::now();
    }

    /// The time since the last call of the consensus client.
    pub fn consensus_silence(&self) -> Duration {
        lock(&self.last_consensus_call).elapsed()
    }

    /// Whether the head is known to be current.
    pub fn sync_status(&self) -> SyncStatus {
        match self.consensus.missing_head() {
            Some(missing) => SyncStatus::Behind(missing),
            None if self.options.is_driven && !self.consensus.has_followed() => SyncStatus::Unknown,
            None => SyncStatus::Current,
        }
    }

    /// Logs and counts a block that was executed and is valid.
    pub fn record_import(&self, header: &Header, imported: &Imported) {
        write_imported(self, header, imported);
        metrics::record_block(imported);
        if let Some(recorded) = self.block_stats.put(imported.clone()) {
            log_if_slow(self, &recorded);
        }
    }

    /// Logs which blocks are missing, if the chosen head can't be followed.
    pub fn log_syncing(&self) {
        write_syncing(self);
    }

    /// How many peers this node has.
    pub fn peer_count(&self) -> u64 {
        let peers = self.operator.peers();
        peers.map_or(0, |hooks| (hooks.count)() as u64)
    }

    /// Whether this node is ready to serve, by a query such as `minPeers=1&maxBlocksBehind=2`. Without a
    /// network (`--p2p-enabled=false`) peers do not count.
    ///
    /// # Errors
    /// Why it is not ready.
    pub fn readiness(&self, query: &str) -> Result<(), String> {
        let (mut most_behind, mut min_peers) = (2, 1);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = value.parse::<u64>();
            let number = number.map_err(|_| format!("{name}={value} is no number"));
            match name {
                "minPeers" => min_peers = number?,
                "maxBlocksBehind" => most_behind = number?,
                _ => {}
            }
        }
        let head = self.chain().head().id.number;
        let silence = self.consensus_silence();
        match self.sync_status() {
            SyncStatus::Unknown => Err(format!(
                "at block {head}, no consensus client has chosen a head yet"
            )),
            SyncStatus::Behind(MissingHead { number: None, hash }) => Err(format!(
                "at block {head}, the chosen head {hash} is not known yet"
            )),
            SyncStatus::Behind(MissingHead {
                number: Some(target),
                ..
            }) if target.saturating_sub(head) > most_behind => Err(format!(
                "at block {head}, the chosen head is block {target}"
            )),
            _ if self.options.is_driven && silence >= MAX_CONSENSUS_SILENCE => Err(format!(
                "no consensus client has called for {} s",
                silence.as_secs()
            )),
            _ if self.operator.peers().is_some() && self.peer_count() < min_peers => Err(format!(
                "{} peers, {min_peers} are asked for (minPeers)",
                self.peer_count()
            )),
            _ => Ok(()),
        }
    }
}

/// The error of `safe` and `finalized` in geth's words.
fn not_known(tag: &str) -> RpcError {
    RpcError::server(format!("{tag} block not found"))
}

fn first_id() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
