//! The configuration of the node: its flags, resolved once against the rules of the chain.
//!
//! ```text
//! Options (flags) + ChainSpec -> NodeConfig -> pool, backend, metrics, servers, background threads
//! ```
//!
//! Everything that starts after the chain is open reads [`NodeConfig`], not flags. Resolving reads no file and
//! logs nothing: secrets, key stores and users are loaded when their server starts.

mod peers;
mod servers;

pub(crate) use peers::key_file;
pub(super) use peers::{PeersConfig, StaticNodesFile};
pub(super) use servers::{AuthenticationConfig, IpcConfig, ServerConfig};
pub(crate) use servers::{OPERATOR_SOCKET, ServersConfig};

use super::metrics::Gateway;
use crate::memory::MemoryBudget;
use crate::open::{memory_budget, transaction_threads};
use crate::options::{Options, PermissionFlags, PoolFlags, PoolFlavor, VoteJournalFlag};
use niwaki_bft::journal::JournalSync;
use niwaki_primitives::{Address, B256, Bytes};
use niwaki_rpc::ApiOptions;
use niwaki_rules::{ChainSpec, Network, SealKind, VANITY_BYTES};
use niwaki_txpool::{PoolConfig, PoolMode};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The gas cap of simulated calls if the operator sets none.
const NO_GAS_CAP: u64 = u64::MAX / 2;

/// The gas limit that blocks of a node with a consensus client move towards.
const STAKERS_GAS_LIMIT: u64 = 60_000_000;

/// What the node runs with.
pub(super) struct NodeConfig {
    pub(super) data_path: PathBuf,
    /// Name of the network, or the genesis file.
    pub(super) chain_name: String,
    /// Seconds between blocks of `--network=dev`, 0 for a block per transaction; `None` on other networks.
    pub(super) dev_period_s: Option<u64>,
    pub(super) network_id: u64,
    pub(super) profile: Option<String>,
    pub(super) memory: MemoryBudget,
    pub(super) transaction_threads: usize,
    pub(super) required_blocks: Vec<(u64, B256)>,
    /// Reorganisations that remove more blocks than this are logged as warnings.
    pub(super) reorg_threshold: u64,
    /// Whether the log index is built without being asked for.
    pub(super) has_log_index: bool,
    /// Whether a consensus client has an Engine API to call.
    pub(super) has_engine_api: bool,
    /// Whether pooled transactions are executed before the next block arrives.
    pub(super) is_pool_warmed: bool,
    pub(super) pool: PoolConfig,
    /// The file that the pool is saved to and restored from.
    pub(super) pool_file: Option<PathBuf>,
    pub(super) api: ApiOptions,
    pub(super) metrics: MetricsConfig,
    /// The network of peers; `None` if there is to be none.
    pub(super) peers: Option<PeersConfig>,
    pub(super) permissions: PermissionsConfig,
    pub(super) servers: ServersConfig,
    /// The validator; `None` where the chain has none.
    pub(super) validator: Option<ValidatorConfig>,
}

/// How a validator is run.
pub(super) struct ValidatorConfig {
    pub(super) folder: PathBuf,
    pub(super) max_round_timeout_s: u64,
    pub(super) journal_sync: JournalSync,
    pub(super) accepts_missing_journal: bool,
    /// Whether the network is one of GoQuorum.
    pub(super) is_quorum: bool,
    /// Whether messages have a place for an access list.
    pub(super) has_access_list: bool,
    pub(super) vanity: B256,
    pub(super) target_gas_limit: Option<u64>,
}

/// The files and contracts that are enabled.
#[derive(Clone, Debug, Default)]
pub(super) struct PermissionsConfig {
    /// Of accounts that may send transactions.
    pub(super) accounts: Option<PathBuf>,
    /// Of nodes that may be peers.
    pub(super) nodes: Option<PathBuf>,
    /// The contract that allows transactions.
    pub(super) accounts_contract: Option<Address>,
    /// The contract that allows connections, and which interface it has.
    pub(super) nodes_contract: Option<(Address, u8)>,
}

/// Where metrics go; they are recorded only if they go anywhere.
pub(super) struct MetricsConfig {
    pub(super) listen: Option<SocketAddr>,
    pub(super) push: Option<Gateway>,
}

impl NodeConfig {
    /// Resolves the flags for a chain of these rules.
    pub(super) fn resolve(options: &Options, data_path: PathBuf, spec: &ChainSpec) -> Self {
        let node = &options.node;
        let is_dev = options.network == Some(Network::Dev);
        let is_proof_of_stake = spec.terminal_total_difficulty.is_some() && !is_dev;
        let has_engine_api = node.engine.engine_rpc_enabled.unwrap_or(is_proof_of_stake);
        let pool_file = data_path.join(&node.pool.tx_pool_save_file);
        Self {
            chain_name: chain_name(options),
            dev_period_s: is_dev.then_some(node.miner.dev_period),
            network_id: node.operation.network_id.unwrap_or(spec.network_id),
            profile: node.operation.profile.clone(),
            memory: memory_budget(options),
            transaction_threads: transaction_threads(options),
            required_blocks: node.operation.required_blocks.clone(),
            reorg_threshold: node.operation.reorg_logging_threshold,
            has_log_index: node.api.auto_log_bloom_caching_enabled != Some(false),
            has_engine_api,
            is_pool_warmed: has_engine_api && node.pool.tx_pool_warming_enabled != Some(false),
            pool: pool_config(&node.pool, spec.seal == SealKind::Bft),
            pool_file: (node.pool.tx_pool_enable_save_restore == Some(true)).then_some(pool_file),
            api: ApiOptions {
                default_tip: default_tip(&node.pool, spec),
                ..api_options(options, is_proof_of_stake, has_engine_api)
            },
            metrics: metrics_config(options),
            peers: PeersConfig::resolve(&node.peers, &data_path, is_dev, spec.quorum.is_some()),
            permissions: permissions_config(&node.permissions, &data_path),
            servers: ServersConfig::resolve(node, &data_path, has_engine_api),
            validator: (spec.seal == SealKind::Bft)
                .then(|| validator_config(options, &data_path, spec.quorum.is_some())),
            data_path,
        }
    }
}

fn validator_config(options: &Options, data_path: &Path, is_quorum: bool) -> ValidatorConfig {
    let (flags, miner) = (&options.node.bft, &options.node.miner);
    // Shorter bytes are padded with zeros in front, as in Besu.
    let vanity = miner.miner_extra_data.clone().unwrap_or_default();
    let vanity = &vanity[..vanity.len().min(VANITY_BYTES)];
    ValidatorConfig {
        folder: data_path.join("bft"),
        max_round_timeout_s: flags.bft_round_timeout_max,
        journal_sync: match flags.bft_vote_journal {
            VoteJournalFlag::Sync => JournalSync::Sync,
            VoteJournalFlag::Async => JournalSync::Async,
        },
        accepts_missing_journal: flags.bft_accept_missing_journal,
        is_quorum,
        has_access_list: !is_quorum && flags.bft_legacy_protocol_encoding != Some(true),
        vanity: B256::left_padding_from(vanity),
        target_gas_limit: miner.target_gas_limit,
    }
}

fn permissions_config(flags: &PermissionFlags, data_path: &Path) -> PermissionsConfig {
    let file = |is_enabled: Option<bool>, file: &Option<PathBuf>| {
        let path = || data_path.join("permissions_config.toml");
        (is_enabled == Some(true)).then(|| file.clone().unwrap_or_else(path))
    };
    PermissionsConfig {
        accounts: file(
            flags.permissions_accounts_config_file_enabled,
            &flags.permissions_accounts_config_file,
        ),
        nodes: file(
            flags.permissions_nodes_config_file_enabled,
            &flags.permissions_nodes_config_file,
        ),
        accounts_contract: flags
            .permissions_accounts_contract_address
            .filter(|_| flags.permissions_accounts_contract_enabled == Some(true)),
        nodes_contract: flags
            .permissions_nodes_contract_address
            .filter(|_| flags.permissions_nodes_contract_enabled == Some(true))
            .map(|address| (address, flags.permissions_nodes_contract_version)),
    }
}

fn chain_name(options: &Options) -> String {
    let network = options.network.unwrap_or(Network::Mainnet);
    match &options.genesis_file {
        Some(file) => file.display().to_string(),
        None => network.name().to_owned(),
    }
}

fn api_options(options: &Options, is_proof_of_stake: bool, has_engine_api: bool) -> ApiOptions {
    let node = &options.node;
    let own_extra_data =
        || Bytes::from_static(concat!("niwaki ", env!("CARGO_PKG_VERSION")).as_bytes());
    let stakers_gas_limit = is_proof_of_stake.then_some(STAKERS_GAS_LIMIT);
    ApiOptions {
        gas_cap: match node.api.rpc_gas_cap {
            0 => NO_GAS_CAP,
            cap => cap,
        },
        max_logs_range: node.api.rpc_max_logs_range,
        gas_price_blocks: node.api.api_gas_price_blocks,
        gas_price_percentile: node.api.api_gas_price_percentile,
        gas_price_max: node.api.api_gas_price_max,
        target_gas_limit: node.miner.target_gas_limit.or(stakers_gas_limit),
        extra_data: (node.miner.miner_extra_data.clone()).unwrap_or_else(own_extra_data),
        min_priority_fee: node.miner.min_priority_fee,
        is_driven: has_engine_api,
        fill_time: Duration::from_millis(node.miner.block_txs_selection_max_time),
        max_blobs_per_transaction: node.miner.max_blobs_per_transaction,
        max_blobs_per_block: node.miner.max_blobs_per_block,
        network_id: node.operation.network_id,
        estimate_tolerance: node.api.estimate_gas_tolerance_ratio,
        max_trace_range: node.api.rpc_max_trace_filter_range,
        max_filters: node.api.rpc_max_active_filters,
        filter_timeout: Duration::from_secs(node.api.rpc_filter_timeout_seconds),
        max_subscriptions: node.sockets.rpc_ws_max_active_subscriptions,
        // A negative one turns it off.
        slow_block: u64::try_from(node.operation.slow_block_threshold)
            .ok()
            .map(Duration::from_millis),
        ..ApiOptions::default()
    }
}

/// The tip that is suggested where blocks have none, wei: none where gas may be free, since accounts may have no coins.
fn default_tip(flags: &PoolFlags, spec: &ChainSpec) -> u128 {
    let is_cheap = flags.tx_pool_min_gas_price < PoolConfig::default().min_gas_price;
    match spec.seal == SealKind::Bft || is_cheap {
        true => 0,
        false => ApiOptions::default().default_tip,
    }
}

fn pool_config(flags: &PoolFlags, has_validators: bool) -> PoolConfig {
    let most = PoolConfig::default().max_prioritized;
    let most = if has_validators { usize::MAX } else { most };
    PoolConfig {
        mode: match flags.tx_pool {
            PoolFlavor::Layered => PoolMode::Layered,
            PoolFlavor::Sequenced => PoolMode::Sequenced,
        },
        layer_max_capacity_bytes: flags.tx_pool_layer_max_capacity,
        max_prioritized: flags.tx_pool_max_prioritized.unwrap_or(most),
        max_prioritized_by_type: flags.by_type(),
        max_future_by_sender: flags.tx_pool_max_future_by_sender,
        min_score: flags.tx_pool_min_score,
        balance_check: flags.tx_pool_enable_balance_check == Some(true),
        max_size: flags.tx_pool_max_size,
        limit_by_account: flags.tx_pool_limit_by_account_percentage,
        retention_s: flags.tx_pool_retention_hours.saturating_mul(3_600),
        price_bump_percent: flags.tx_pool_price_bump,
        blob_price_bump_percent: flags.tx_pool_blob_price_bump,
        whole_blobs_percent: flags.tx_pool_blob_fetch_probability,
        min_gas_price: flags.tx_pool_min_gas_price,
        priority_senders: flags.tx_pool_priority_senders.iter().copied().collect(),
        no_local_priority: flags.tx_pool_no_local_priority == Some(true),
        tx_fee_cap: flags.rpc_tx_feecap,
        strict_replay_protection: flags.strict_tx_replay_protection_enabled == Some(true),
        ..PoolConfig::default()
    }
}

fn metrics_config(options: &Options) -> MetricsConfig {
    let flags = &options.node.operation;
    let address = SocketAddr::new(flags.metrics_host, flags.metrics_port);
    let gateway = || Gateway {
        host: flags.metrics_push_host.clone(),
        port: flags.metrics_push_port,
        job: flags.metrics_push_prometheus_job.clone(),
        interval: Duration::from_secs(flags.metrics_push_interval),
    };
    MetricsConfig {
        listen: (flags.metrics_enabled == Some(true)).then_some(address),
        push: (flags.metrics_push_enabled == Some(true)).then(gateway),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_pool_is_warmed_with_an_engine_api_unless_disabled() {
        let other = ChainSpec::frontier(1);
        let merged = ChainSpec {
            terminal_total_difficulty: Some(niwaki_primitives::U256::ZERO),
            ..other.clone()
        };
        let is_warmed = |arguments: &[&str], spec: &ChainSpec| {
            let words = [&["niwaki"], arguments].concat();
            let options = Options::try_parse_from(words).expect("known flags");
            NodeConfig::resolve(&options, PathBuf::new(), spec).is_pool_warmed
        };
        assert!(is_warmed(&[], &merged));
        assert!(!is_warmed(&[], &other));
        assert!(is_warmed(&["--engine-rpc-enabled"], &other));
        assert!(!is_warmed(&["--engine-rpc-enabled=false"], &merged));
        assert!(!is_warmed(&["--tx-pool-warming-enabled=false"], &merged));
    }
}
