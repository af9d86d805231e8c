//! The command line of the node itself: `niwaki` without a command.

use super::access::{HttpTlsFlags, HttpTokenFlags, SocketTlsFlags, SocketTokenFlags};
use super::bft::BftFlags;
use super::graphql::GraphQlFlags;
use super::peers::PeerFlags;
use super::permissions::PermissionFlags;
use clap::{Args, ValueEnum};
use niwaki_primitives::{Address, B256, Bytes, U256};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP")]
pub(crate) struct HttpFlags {
    /// Serve JSON-RPC over HTTP [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_http_enabled: Option<bool>,
    /// Address to listen on; the Engine API uses it too.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) rpc_http_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 8545)]
    pub(crate) rpc_http_port: u16,
    /// JSON-RPC namespaces to offer.
    #[arg(
        long,
        alias = "rpc-http-apis",
        value_name = "API",
        value_delimiter = ',',
        default_value = "ETH,NET,WEB3"
    )]
    pub(crate) rpc_http_api: Vec<String>,
    /// Origins of web pages that may call (CORS), or * for all [default: none].
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) rpc_http_cors_origins: Vec<String>,
    /// Most connections at a time.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) rpc_http_max_active_connections: usize,
    /// Most requests in a batch, over HTTP, WebSocket or IPC; -1 for no limit.
    #[arg(long, value_name = "N", default_value = "1024", allow_hyphen_values = true, value_parser = batch_size)]
    pub(crate) rpc_http_max_batch_size: usize,
    /// Largest request, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20)]
    pub(crate) rpc_http_max_request_content_length: usize,
    /// Host names accepted in the Host header; * for any. Protects against DNS rebinding.
    #[arg(
        long,
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "localhost,127.0.0.1"
    )]
    pub(crate) host_allowlist: Vec<String>,
    /// Serve a page about this node at /dashboard, with the hosts, users and TLS of JSON-RPC over HTTP [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) dashboard_enabled: Option<bool>,
    /// Longest time of a call, in seconds.
    #[arg(
        long = "Xhttp-timeout-seconds",
        value_name = "SECONDS",
        default_value_t = 30
    )]
    pub(crate) http_timeout_seconds: u64,
    /// Indent JSON in responses [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) json_pretty_print_enabled: Option<bool>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket and IPC")]
pub(crate) struct SocketFlags {
    /// Serve JSON-RPC over WebSocket [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) rpc_ws_enabled: Option<bool>,
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) rpc_ws_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 8546)]
    pub(crate) rpc_ws_port: u16,
    /// JSON-RPC namespaces to offer.
    #[arg(
        long,
        alias = "rpc-ws-apis",
        value_name = "API",
        value_delimiter = ',',
        default_value = "ETH,NET,WEB3"
    )]
    pub(crate) rpc_ws_api: Vec<String>,
    /// Most connections at a time.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) rpc_ws_max_active_connections: usize,
    /// Largest message, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) rpc_ws_max_frame_size: usize,
    /// Most subscriptions at a time over all connections; each connection has at most 256.
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    pub(crate) rpc_ws_max_active_subscriptions: usize,
    /// Longest time of a call over WebSocket, in seconds [default: as over HTTP].
    #[arg(long = "Xws-timeout-seconds", value_name = "SECONDS")]
    pub(crate) ws_timeout_seconds: Option<u64>,
    /// Serve JSON-RPC over IPC, a Unix socket [default: false].
    #[arg(
        long = "Xrpc-ipc-enabled",
        alias = "rpc-ipc-enabled",
        value_name = "BOOL"
    )]
    pub(crate) rpc_ipc_enabled: Option<bool>,
    /// Path of the IPC socket [default: niwaki.ipc in the data path].
    #[arg(long = "Xrpc-ipc-path", alias = "rpc-ipc-path", value_name = "FILE")]
    pub(crate) rpc_ipc_path: Option<PathBuf>,
    /// JSON-RPC namespaces to offer.
    #[arg(
        long = "Xrpc-ipc-apis",
        aliases = ["rpc-ipc-apis", "Xrpc-ipc-api"],
        value_name = "API",
        value_delimiter = ',',
        default_value = "ETH,NET,WEB3"
    )]
    pub(crate) rpc_ipc_apis: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Engine API")]
pub(crate) struct EngineFlags {
    /// Serve the Engine API for a consensus client [default: true if the chain has a terminal total
    /// difficulty, except --network=dev].
    #[arg(long, value_name = "BOOL")]
    pub(crate) engine_rpc_enabled: Option<bool>,
    #[arg(
        long,
        alias = "engine-rpc-http-port",
        value_name = "PORT",
        default_value_t = 8551
    )]
    pub(crate) engine_rpc_port: u16,
    /// File with the JWT secret shared with the consensus client, 64 hexadecimal digits [default: jwt.hex in
    /// the data path, created if it does not exist].
    #[arg(long, value_name = "FILE")]
    pub(crate) engine_jwt_secret: Option<PathBuf>,
    /// Offer the Engine API by REST and SSZ too (EIP-8178), at /engine/v1 of the same port [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) engine_rest_enabled: Option<bool>,
    /// Accept Engine API calls without a token: everyone who reaches the port can drive the node.
    #[arg(long, value_name = "BOOL")]
    pub(crate) engine_jwt_disabled: Option<bool>,
    #[arg(
        long,
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "localhost,127.0.0.1"
    )]
    pub(crate) engine_host_allowlist: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Limits of calls")]
pub(crate) struct ApiFlags {
    /// Most gas of a simulated call; 0 for no limit.
    #[arg(long, value_name = "GAS", default_value_t = 50_000_000)]
    pub(crate) rpc_gas_cap: u64,
    /// Most blocks of one log query; 0 for no limit.
    #[arg(long, value_name = "BLOCKS", default_value_t = 5_000)]
    pub(crate) rpc_max_logs_range: u64,
    /// Most blocks of one trace_filter; 0 for no limit.
    #[arg(long, value_name = "BLOCKS", default_value_t = 1_000)]
    pub(crate) rpc_max_trace_filter_range: u64,
    /// Most filters at a time; 0 for no limit.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub(crate) rpc_max_active_filters: usize,
    /// Seconds after which a filter that is not polled is removed.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rpc_filter_timeout_seconds: u64,
    /// How far eth_estimateGas may exceed the least sufficient gas, as a fraction of its result.
    #[arg(long, value_name = "SHARE", default_value_t = 0.015, value_parser = share)]
    pub(crate) estimate_gas_tolerance_ratio: f64,
    /// Build the log index in the background [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) auto_log_bloom_caching_enabled: Option<bool>,
    /// Blocks that the gas price oracle samples.
    #[arg(long, value_name = "BLOCKS", default_value_t = 100)]
    pub(crate) api_gas_price_blocks: u64,
    /// Percentile of the sampled prices that it suggests.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    pub(crate) api_gas_price_percentile: f64,
    /// Highest price that it suggests, in wei.
    #[arg(long, value_name = "WEI", default_value = "500000000000")]
    pub(crate) api_gas_price_max: U256,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Transaction pool")]
pub(crate) struct PoolFlags {
    /// How the pool orders and limits transactions: LAYERED by fee, limited in bytes; SEQUENCED by arrival,
    /// limited in number.
    #[arg(long, value_enum, value_name = "MODE", ignore_case = true, default_value_t = PoolFlavor::Layered)]
    pub(crate) tx_pool: PoolFlavor,
    /// Most bytes of each layer. Layered only.
    #[arg(long, value_name = "BYTES", default_value_t = 25_000_000)]
    pub(crate) tx_pool_layer_max_capacity: usize,
    /// Most transactions offered to one block [default: 4000, and no bound where validators make the blocks].
    #[arg(long, value_name = "N")]
    pub(crate) tx_pool_max_prioritized: Option<usize>,
    /// The same for one type: FRONTIER, ACCESS_LIST, EIP1559, BLOB or DELEGATE_CODE, such as BLOB=72.
    #[arg(long, value_name = "TYPE=N", value_delimiter = ',', value_parser = type_limit, default_value = "BLOB=72")]
    pub(crate) tx_pool_max_prioritized_by_type: Vec<(usize, usize)>,
    /// How far a nonce may be above that of its account. Layered only.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) tx_pool_max_future_by_sender: u64,
    /// Score below which a transaction is dropped.
    #[arg(long, value_name = "N", default_value_t = -128, allow_hyphen_values = true)]
    pub(crate) tx_pool_min_score: i8,
    /// Refuse a transaction if the sender's balance does not cover it together with its other pooled
    /// transactions [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) tx_pool_enable_balance_check: Option<bool>,
    /// Most transactions in the pool. Sequenced only.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub(crate) tx_pool_max_size: usize,
    /// Fraction of the pool that one account may fill, 0 to 1. Sequenced only.
    #[arg(long, value_name = "SHARE", default_value_t = 0.001)]
    pub(crate) tx_pool_limit_by_account_percentage: f64,
    /// Hours after which a transaction is dropped. Sequenced only.
    #[arg(
        long,
        alias = "tx-pool-hours",
        value_name = "HOURS",
        default_value_t = 13
    )]
    pub(crate) tx_pool_retention_hours: u64,
    /// Percentage by which a replacement must raise the fee.
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub(crate) tx_pool_price_bump: u32,
    /// The same for blob transactions.
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub(crate) tx_pool_blob_price_bump: u32,
    /// Of so many percent of the blob transactions of peers the blobs are fetched whole, even if the consensus client keeps
    /// few of their columns (EIP-8070). A node that builds blocks itself needs 100.
    #[arg(long, value_name = "PERCENT", default_value_t = 15, value_parser = clap::value_parser!(u8).range(15..=100))]
    pub(crate) tx_pool_blob_fetch_probability: u8,
    /// Lowest gas price accepted, in wei.
    #[arg(
        long,
        alias = "min-gas-price",
        value_name = "WEI",
        default_value_t = 1_000
    )]
    pub(crate) tx_pool_min_gas_price: u128,
    /// Senders whose transactions go before all others.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) tx_pool_priority_senders: Vec<Address>,
    /// Give transactions submitted by JSON-RPC no priority [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) tx_pool_no_local_priority: Option<bool>,
    /// Save the pool when the node stops and restore it when it starts [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) tx_pool_enable_save_restore: Option<bool>,
    /// File of the saved pool, relative to the data path.
    #[arg(long, value_name = "FILE", default_value = "txpool.dump")]
    pub(crate) tx_pool_save_file: PathBuf,
    /// With a consensus client, execute the best pooled transactions on top of the head before the next
    /// block arrives, so that the state they read is cached [default: true].
    #[arg(long, value_name = "BOOL")]
    pub(crate) tx_pool_warming_enabled: Option<bool>,
    /// Highest fee of a transaction submitted by JSON-RPC, in wei; 0 for no limit.
    #[arg(long, value_name = "WEI", default_value = "1000000000000000000")]
    pub(crate) rpc_tx_feecap: U256,
    /// Refuse transactions submitted by JSON-RPC without a chain id (EIP-155) [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) strict_tx_replay_protection_enabled: Option<bool>,
}

impl PoolFlags {
    /// The most prioritized transactions of each EIP-2718 type.
    pub(crate) fn by_type(&self) -> [usize; 5] {
        let mut limits = [usize::MAX; 5];
        for (kind, limit) in &self.tx_pool_max_prioritized_by_type {
            limits[*kind] = *limit;
        }
        limits
    }
}

/// Besu's names of the EIP-2718 types, by type number.
pub(crate) const TYPES: [&str; 5] = [
    "FRONTIER",
    "ACCESS_LIST",
    "EIP1559",
    "BLOB",
    "DELEGATE_CODE",
];

fn type_limit(text: &str) -> Result<(usize, usize), String> {
    let (name, number) = text
        .split_once('=')
        .ok_or("write a type and a number, as in BLOB=72")?;
    let kind = TYPES
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name));
    let kind = kind.ok_or_else(|| format!("{name} is no type; choose of {}", TYPES.join(", ")))?;
    let number = number.parse();
    Ok((
        kind,
        number.map_err(|_| "the limit is no number".to_owned())?,
    ))
}

/// An address to listen on, or a host name.
pub(super) fn host(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = (text, 0).to_socket_addrs();
    let mut found = found.map_err(|error| format!("no address and no known host: {error}"))?;
    let first = found.next().ok_or("a host without an address")?;
    Ok(first.ip())
}

fn batch_size(text: &str) -> Result<usize, String> {
    match text {
        "-1" => Ok(usize::MAX),
        text => text
            .parse()
            .map_err(|_| "no number of requests, nor -1".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| "write a share from 0 to 1, as in 0.015".to_owned())
}

fn required_block(text: &str) -> Result<(u64, B256), String> {
    let parts = text.split_once('=');
    let parsed = parts.and_then(|(number, hash)| {
        let digits = hash.strip_prefix("0x").unwrap_or(hash);
        // As in Besu, a short hash is padded with zeros on the left.
        Some((number.parse().ok()?, format!("{digits:0>64}").parse().ok()?))
    });
    parsed.ok_or_else(|| "write a number and a hash, as in 4370000=0xb1fcff63...".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum PoolFlavor {
    Layered,
    #[value(alias = "LEGACY")]
    Sequenced,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Block building")]
pub(crate) struct MinerFlags {
    /// Extra data of built blocks, at most 32 bytes [default: niwaki and its version].
    #[arg(long, value_name = "HEX")]
    pub(crate) miner_extra_data: Option<Bytes>,
    /// Gas limit to move towards [default: 60000000 with a consensus client, else the parent's].
    #[arg(long, value_name = "GAS")]
    pub(crate) target_gas_limit: Option<u64>,
    /// Lowest tip of a transaction in a built block, in wei per gas; priority senders are exempt.
    #[arg(long, value_name = "WEI", default_value_t = 0)]
    pub(crate) min_priority_fee: u128,
    /// Longest time to fill a block with transactions, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) block_txs_selection_max_time: u64,
    /// Most blobs of one transaction in a built block [default: the fork's maximum].
    #[arg(long, value_name = "N")]
    pub(crate) max_blobs_per_transaction: Option<usize>,
    /// Most blobs of a built block [default: the fork's maximum].
    #[arg(long, value_name = "N")]
    pub(crate) max_blobs_per_block: Option<usize>,
    /// Seconds between blocks of --network=dev; 0 builds a block for each new transaction.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) dev_period: u64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Operation")]
pub(crate) struct OperationFlags {
    /// Serve Prometheus metrics over HTTP [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) metrics_enabled: Option<bool>,
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) metrics_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 9545)]
    pub(crate) metrics_port: u16,
    /// Push metrics to a Prometheus push gateway [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) metrics_push_enabled: Option<bool>,
    /// Host name or address of the push gateway.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) metrics_push_host: String,
    #[arg(long, value_name = "PORT", default_value_t = 9001)]
    pub(crate) metrics_push_port: u16,
    /// Seconds between two pushes.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) metrics_push_interval: u64,
    /// Job name of the pushed metrics.
    #[arg(long, value_name = "NAME", default_value = "niwaki-client")]
    pub(crate) metrics_push_prometheus_job: String,
    /// Your name for this node; becomes part of web3_clientVersion.
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// File for the process id; removed when the node stops.
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_path: Option<PathBuf>,
    /// Network id that net_version returns [default: the chain's].
    #[arg(long, value_name = "ID")]
    pub(crate) network_id: Option<u64>,
    /// Blocks that the chain must contain, such as 4370000=0xb1fcff63...; the node does not start on a chain
    /// with a different block there.
    #[arg(long, alias = "required-block", value_name = "NUMBER=HASH", value_delimiter = ',', value_parser = required_block)]
    pub(crate) required_blocks: Vec<(u64, B256)>,
    /// Sample allocations from the start, one in 512 KiB, for profiles of the heap [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) profile_heap_enabled: Option<bool>,
    /// Log a block that takes at least so many milliseconds, with all that is known of it, as one line of JSON; 0 for every
    /// block, -1 for none.
    #[arg(
        long,
        value_name = "MS",
        allow_negative_numbers = true,
        default_value_t = 1_000
    )]
    pub(crate) slow_block_threshold: i64,
    /// Log level: OFF, ERROR, WARN, INFO, DEBUG or TRACE.
    #[arg(long, short = 'l', value_enum, value_name = "LEVEL", ignore_case = true, default_value_t = LogLevel::Info)]
    pub(crate) logging: LogLevel,
    /// Log format: TEXT (or PLAIN), JSON, or the JSON of Elastic (ECS), Google Cloud (GCP), LOGSTASH or
    /// Graylog (GELF).
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true, default_value_t = LogFormat::Text)]
    pub(crate) logging_format: LogFormat,
    /// Colour log lines [default: on a terminal, unless NO_COLOR is set].
    #[arg(long, value_name = "BOOL")]
    pub(crate) color_enabled: Option<bool>,
    /// Reorganisations that remove more blocks than this are logged as warnings.
    #[arg(long, value_name = "BLOCKS", default_value_t = 6)]
    pub(crate) reorg_logging_threshold: u64,
    /// Configuration file: TOML, with one key per flag, without the leading dashes.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// Preset of flags: DEV, STAKER, MINIMALIST_STAKER, ENTERPRISE (or PRIVATE), PERFORMANCE,
    /// PERFORMANCE_RPC, NONE; or a file profiles/NAME.toml.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum LogLevel {
    Off,
    #[value(alias = "FATAL")]
    Error,
    Warn,
    Info,
    Debug,
    #[value(alias = "ALL")]
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum LogFormat {
    #[value(alias = "PLAIN")]
    Text,
    Json,
    Ecs,
    Gcp,
    Logstash,
    Gelf,
}

/// All flags of the running node.
#[derive(Args, Debug)]
pub(crate) struct NodeOptions {
    #[command(flatten)]
    pub(crate) http: HttpFlags,
    #[command(flatten)]
    pub(crate) http_tokens: HttpTokenFlags,
    #[command(flatten)]
    pub(crate) http_tls: HttpTlsFlags,
    #[command(flatten)]
    pub(crate) sockets: SocketFlags,
    #[command(flatten)]
    pub(crate) socket_tokens: SocketTokenFlags,
    #[command(flatten)]
    pub(crate) socket_tls: SocketTlsFlags,
    #[command(flatten)]
    pub(crate) graphql: GraphQlFlags,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) api: ApiFlags,
    #[command(flatten)]
    pub(crate) pool: PoolFlags,
    #[command(flatten)]
    pub(crate) miner: MinerFlags,
    #[command(flatten)]
    pub(crate) bft: BftFlags,
    #[command(flatten)]
    pub(crate) peers: PeerFlags,
    #[command(flatten)]
    pub(crate) permissions: PermissionFlags,
    #[command(flatten)]
    pub(crate) operation: OperationFlags,
}
