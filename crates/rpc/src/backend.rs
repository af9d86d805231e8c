//! What the methods are asked of.

use crate::RpcError;
use crate::blocks::{FullBlock, RecentBlocks};
use crate::choices::{Choices, Chosen};
use crate::engine::{EngineLog, write_imported, write_syncing};
use crate::figures::Figures;
use crate::filters::Filters;
use crate::niwaki::BlockFigures;
use crate::operator::Operator;
use crate::params::{BlockRef, BlockTag};
use crate::payloads::{BuildLimits, Payloads};
use crate::subscriptions::Events;
use niwaki_chain::{
    BlockTemplate, BuildError, BuiltBlock, Chain, ChainView, Consensus, HistoricalView, Imported,
    MissingHead, RangeVisitor, StateHead, StoredHeader,
};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, Header, StateView, U256};
use niwaki_trie::TrieAccount;
use niwaki_txpool::Pool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What this program calls itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `niwaki/v0.1.0-abcdef01/linux-x86_64/rustc1.95.0`.
    pub client_version: String,
    /// `v0.1.0`.
    pub version: String,
    /// The first four bytes of the commit it was built from.
    pub commit: [u8; 4],
}

/// What an operator may choose about the methods.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Most gas of a call that is only simulated.
    pub gas_cap: u64,
    /// Most blocks that one search for logs may span; 0 for no bound.
    pub max_logs_range: u64,
    /// Blocks that the price oracle looks at.
    pub gas_price_blocks: u64,
    /// The percentile of their prices that it takes.
    pub gas_price_percentile: f64,
    /// Its most, wei.
    pub gas_price_max: U256,
    /// The gas limit that blocks made here go towards; `None` keeps the parent's.
    pub target_gas_limit: Option<u64>,
    /// Extra data of blocks made here.
    pub extra_data: Bytes,
    /// What a transaction without priority must tip to be taken into a block made here, wei a gas.
    pub min_priority_fee: u128,
    /// Whether a consensus client is to drive this node.
    pub is_driven: bool,
    /// How long one block made here may take to be filled with transactions.
    pub fill_time: Duration,
    /// Most blobs of a transaction that is taken into a block made here.
    pub max_blobs_per_transaction: Option<usize>,
    /// Most blobs of a block made here.
    pub max_blobs_per_block: Option<usize>,
    /// What `net_version` says; `None` for the chain's own.
    pub network_id: Option<u64>,
    /// How far above the least gas an estimate may be, as a share of itself.
    pub estimate_tolerance: f64,
    /// Most blocks of one `trace_filter`; 0 for no bound.
    pub max_trace_range: u64,
    /// Most filters at a time; 0 for no bound.
    pub max_filters: usize,
    /// After how long a filter goes that no client asks.
    pub filter_timeout: Duration,
    /// Most subscriptions at a time, of all connections together.
    pub max_subscriptions: usize,
}

/// Whether the head is known to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStatus {
    /// A consensus client is to choose the head, and has chosen none that is here since this node began.
    Unknown,
    /// Blocks up to the chosen head are missing.
    Behind(MissingHead),
    /// It is.
    Current,
}

/// After so long without a call of a consensus client, the head may be old.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(120);

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            gas_cap: 50_000_000,
            max_logs_range: 5_000,
            gas_price_blocks: 100,
            gas_price_percentile: 50.0,
            gas_price_max: U256::from(500_000_000_000_u64),
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
        }
    }
}

/// The state after a block.
#[derive(Debug)]
pub enum State {
    /// Within reach of the head.
    Recent(ChainView),
    /// In the archive.
    Past(HistoricalView),
}

impl State {
    /// Gives `visit` the accounts from a hashed address on; see [`ChainView::accounts_from`].
    pub(crate) fn accounts_from(
        &self,
        from: &B256,
        visit: &mut RangeVisitor<'_, TrieAccount>,
    ) -> Result<(), Fault> {
        match self {
            Self::Recent(view) => view.accounts_from(from, visit),
            Self::Past(view) => view.accounts_from(from, visit),
        }
    }

    /// Gives `visit` the slots of an account from a hashed slot on; see [`ChainView::slots_from`].
    pub(crate) fn slots_from(
        &self,
        key: &B256,
        from: &B256,
        visit: &mut RangeVisitor<'_, U256>,
    ) -> Result<(), Fault> {
        match self {
            Self::Recent(view) => view.slots_from(key, from, visit),
            Self::Past(view) => view.slots_from(key, from, visit),
        }
    }

    fn view(&self) -> &dyn StateView {
        match self {
            Self::Recent(view) => view,
            Self::Past(view) => view,
        }
    }
}

impl StateView for State {
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        self.view().account(address)
    }

    fn storage(&self, address: &Address, slot: &U256) -> Result<U256, Fault> {
        self.view().storage(address, slot)
    }

    fn has_storage(&self, address: &Address) -> Result<bool, Fault> {
        self.view().has_storage(address)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        self.view().code(code_hash)
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        self.view().block_hash(number)
    }
}

/// Chain, pool and what lives beside them.
#[derive(Debug)]
pub struct Backend {
    pub(crate) consensus: Arc<Consensus>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) payloads: Payloads,
    pub(crate) identity: Identity,
    pub(crate) options: ApiOptions,
    /// What of the options may change.
    pub(crate) chosen: Arc<Chosen>,
    pub(crate) filters: Filters,
    pub(crate) events: Events,
    /// A permit for each subscription that there may be.
    pub(crate) subscription_room: Arc<Semaphore>,
    recent: RecentBlocks,
    pub(crate) block_figures: BlockFigures,
    figures: Figures,
    operator: Operator,
    /// The state after the head, so that not every call takes a snapshot of its own.
    head_state: Mutex<Option<ChainView>>,
    ids: AtomicU64,
    /// When the consensus client called last, or else when this node began.
    consensus_heard: Mutex<Instant>,
    pub(crate) engine_log: EngineLog,
}

impl Backend {
    /// Everything the methods need.
    pub fn new(
        consensus: Arc<Consensus>,
        pool: Arc<Pool>,
        identity: Identity,
        options: ApiOptions,
    ) -> Self {
        let chosen = Arc::new(Chosen::new(Choices {
            extra_data: options.extra_data.clone(),
            target_gas_limit: options.target_gas_limit,
            min_priority_fee: options.min_priority_fee,
        }));
        let chain = Arc::clone(consensus.chain());
        let limits = BuildLimits {
            fill_time: options.fill_time,
            blobs_per_transaction: options.max_blobs_per_transaction.unwrap_or(usize::MAX),
            blobs_per_block: options.max_blobs_per_block.unwrap_or(usize::MAX),
        };
        let payloads = Payloads::new(chain, Arc::clone(&pool), Arc::clone(&chosen), limits);
        let subscriptions = options.max_subscriptions.min(Semaphore::MAX_PERMITS);
        Self {
            subscription_room: Arc::new(Semaphore::new(subscriptions)),
            consensus,
            pool,
            payloads,
            identity,
            options,
            chosen,
            filters: Filters::default(),
            events: Events::default(),
            recent: RecentBlocks::default(),
            block_figures: BlockFigures::default(),
            figures: Figures,
            operator: Operator::default(),
            head_state: Mutex::default(),
            ids: AtomicU64::new(first_id()),
            consensus_heard: Mutex::new(Instant::now()),
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

    /// What the operator's choices say of a block made here.
    pub fn block_template(&self) -> BlockTemplate {
        let chosen = self.chosen.read();
        BlockTemplate {
            extra_data: chosen.extra_data.clone(),
            target_gas_limit: chosen.target_gas_limit,
            ..BlockTemplate::default()
        }
    }

    /// Makes a block of the best that the pool has.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_now(&self, template: BlockTemplate) -> Result<BuiltBlock, BuildError> {
        self.payloads
            .build_now(template)
            .map(|payload| payload.built)
    }

    /// The height that this chain is behind, if it is.
    pub fn target(&self) -> Option<u64> {
        self.consensus.target()
    }

    /// What is counted.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// What the program around this server does for its operator.
    pub fn operator(&self) -> &Operator {
        &self.operator
    }

    /// Who is told of new blocks and transactions.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// An identity for a filter or a subscription, hard to guess from the one before.
    pub(crate) fn next_id(&self) -> String {
        // A permutation of 64 bits (splitmix64): no identity comes twice.
        let mut bits = self.ids.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        format!("{:#x}", bits ^ (bits >> 31))
    }

    /// The header of the block that `tag` names; `None` if there is none.
    ///
    /// # Errors
    /// A fault of the storage, as -32603; -32000 for `safe` and `finalized` while the consensus client has
    /// named none: that is no block that is missing but one that is not known yet.
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

    /// The block with this hash, if it was asked for not long ago.
    pub(crate) fn recent_block(&self, hash: &B256) -> Option<Arc<FullBlock>> {
        self.recent.kept_block(hash)
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

    /// The state after the head, if that is `header` still.
    fn head_state(&self, header: &StoredHeader) -> Result<Option<ChainView>, RpcError> {
        let mut kept = self
            .head_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = kept.as_ref().filter(|view| view.block() == header.id) {
            return Ok(Some(view.clone()));
        }
        // The old one is let go first: it may pin what the storage would free.
        *kept = None;
        let view = self.chain().view_at_head()?;
        *kept = Some(view.clone());
        Ok(match view.block() == header.id {
            true => Some(view),
            false => self.chain().view_at(&header.id.hash)?,
        })
    }

    /// Lets go of what belongs to a head that is none any more.
    pub fn head_moved(&self) {
        let mut kept = self
            .head_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let head = self.chain().head().id;
        kept.take_if(|view| view.block() != head);
    }

    /// The consensus client has spoken.
    pub(crate) fn consensus_spoke(&self) {
        let mut heard = self
            .consensus_heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *heard = Instant::now();
    }

    /// For how long the consensus client has not called.
    pub fn consensus_silence(&self) -> Duration {
        let heard = self
            .consensus_heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        heard.elapsed()
    }

    /// Whether the head is known to be current.
    pub fn sync_status(&self) -> SyncStatus {
        match self.consensus.missing_head() {
            Some(wanted) => SyncStatus::Behind(wanted),
            None if self.options.is_driven && !self.consensus.has_followed() => SyncStatus::Unknown,
            None => SyncStatus::Current,
        }
    }

    /// Counts a block that was executed and is valid, and writes its line.
    pub fn record_import(&self, header: &Header, imported: &Imported) {
        write_imported(self, header, imported);
        self.figures.block(imported);
        self.block_figures.put(imported.clone());
    }

    /// Writes what is missing, if the chosen head can't be followed.
    pub fn log_syncing(&self) {
        write_syncing(self);
    }

    /// How many peers this node has: none, since it has no network yet.
    pub const fn peer_count(&self) -> u64 {
        0
    }

    /// Whether this node can be asked, by the words of a query such as
    /// `minPeers=1&maxBlocksBehind=2`. Peers do not count while there is no network.
    ///
    /// # Errors
    /// Why not.
    pub fn readiness(&self, query: &str) -> Result<(), String> {
        let mut most_behind = 2;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = value.parse::<u64>();
            let number = number.map_err(|_| format!("{name}={value} is no number"));
            match name {
                "minPeers" => drop(number?),
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
            _ if self.options.is_driven && silence >= LONGEST_SILENCE => Err(format!(
                "no consensus client has called for {} s",
                silence.as_secs()
            )),
            _ => Ok(()),
        }
    }
}

/// In geth's words.
fn not_known(tag: &str) -> RpcError {
    RpcError::server(format!("{tag} block not found"))
}

fn first_id() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
