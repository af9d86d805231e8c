//! The command line of the node itself: `niwaki` without a command.

use super::access::{HttpTlsFlags, HttpTokenFlags, SocketTlsFlags, SocketTokenFlags};
use clap::{Args, ValueEnum};
use niwaki_primitives::{Address, B256, Bytes, U256};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

/// Flags that are switches: alone they are on, `=false` turns them off.
macro_rules! switch {
    () => {
        "BOOL"
    };
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over HTTP")]
pub(crate) struct HttpFlags {
    /// Answer JSON-RPC over HTTP [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_http_enabled: Option<bool>,
    /// Where to listen; the Engine API listens there too.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) rpc_http_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 8545)]
    pub(crate) rpc_http_port: u16,
    /// The namespaces offered.
    #[arg(
        long,
        alias = "rpc-http-apis",
        value_name = "API",
        value_delimiter = ',',
        default_value = "ETH,NET,WEB3"
    )]
    pub(crate) rpc_http_api: Vec<String>,
    /// Web pages whose scripts may ask: origins, or * for all [default: none].
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) rpc_http_cors_origins: Vec<String>,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) rpc_http_max_active_connections: usize,
    /// Requests in a batch, over whatever way it comes; -1 for no bound.
    #[arg(long, value_name = "N", default_value = "1024", allow_hyphen_values = true, value_parser = batch_size)]
    pub(crate) rpc_http_max_batch_size: usize,
    /// Bytes of a request.
    #[arg(long, value_name = "BYTES", default_value_t = 128 << 20)]
    pub(crate) rpc_http_max_request_content_length: usize,
    /// Names under which this machine may be asked; * for any. A guard against web pages that
    /// rebind their own name.
    #[arg(
        long,
        value_name = "HOST",
        value_delimiter = ',',
        default_value = "localhost,127.0.0.1"
    )]
    pub(crate) host_allowlist: Vec<String>,
    /// Seconds that a call may take.
    #[arg(
        long = "Xhttp-timeout-seconds",
        value_name = "SECONDS",
        default_value_t = 30
    )]
    pub(crate) http_timeout_seconds: u64,
    /// Answer with line breaks and blanks, for a person to read [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) json_pretty_print_enabled: Option<bool>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "JSON-RPC over WebSocket and IPC")]
pub(crate) struct SocketFlags {
    /// Answer JSON-RPC over WebSocket [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_ws_enabled: Option<bool>,
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) rpc_ws_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 8546)]
    pub(crate) rpc_ws_port: u16,
    /// The namespaces offered.
    #[arg(
        long,
        alias = "rpc-ws-apis",
        value_name = "API",
        value_delimiter = ',',
        default_value = "ETH,NET,WEB3"
    )]
    pub(crate) rpc_ws_api: Vec<String>,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub(crate) rpc_ws_max_active_connections: usize,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) rpc_ws_max_frame_size: usize,
    /// Subscriptions at a time, of all connections together; 256 of each.
    #[arg(long, value_name = "N", default_value_t = 8_192)]
    pub(crate) rpc_ws_max_active_subscriptions: usize,
    /// Seconds that a call over WebSocket may take [default: as over HTTP].
    #[arg(long = "Xws-timeout-seconds", value_name = "SECONDS")]
    pub(crate) ws_timeout_seconds: Option<u64>,
    /// Answer JSON-RPC over a socket in the file system [default: false].
    #[arg(long = "Xrpc-ipc-enabled", alias = "rpc-ipc-enabled", value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) rpc_ipc_enabled: Option<bool>,
    /// The socket [default: niwaki.ipc in the data path].
    #[arg(long = "Xrpc-ipc-path", alias = "rpc-ipc-path", value_name = "FILE")]
    pub(crate) rpc_ipc_path: Option<PathBuf>,
    /// The namespaces offered.
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
    /// Let a consensus client drive this node [default: true where proof of stake is known to begin].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) engine_rpc_enabled: Option<bool>,
    #[arg(
        long,
        alias = "engine-rpc-http-port",
        value_name = "PORT",
        default_value_t = 8551
    )]
    pub(crate) engine_rpc_port: u16,
    /// The file with the secret that both clients hold, 64 hexadecimal digits [default: jwt.hex in the
    /// data path, made if it is absent].
    #[arg(long, value_name = "FILE")]
    pub(crate) engine_jwt_secret: Option<PathBuf>,
    /// Ask for no tokens: whoever reaches the port drives the node.
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
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
#[command(next_help_heading = "What calls may cost")]
pub(crate) struct ApiFlags {
    /// Most gas of a simulated call; 0 for no bound.
    #[arg(long, value_name = "GAS", default_value_t = 50_000_000)]
    pub(crate) rpc_gas_cap: u64,
    /// Most blocks of one search for logs; 0 for no bound.
    #[arg(long, value_name = "BLOCKS", default_value_t = 5_000)]
    pub(crate) rpc_max_logs_range: u64,
    /// Most blocks of one trace_filter; 0 for no bound.
    #[arg(long, value_name = "BLOCKS", default_value_t = 1_000)]
    pub(crate) rpc_max_trace_filter_range: u64,
    /// Most filters at a time; 0 for no bound.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub(crate) rpc_max_active_filters: usize,
    /// Seconds after which a filter goes that no client asks.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rpc_filter_timeout_seconds: u64,
    /// How far above the least gas eth_estimateGas may be, as a share of itself.
    #[arg(long, value_name = "SHARE", default_value_t = 0.015, value_parser = share)]
    pub(crate) estimate_gas_tolerance_ratio: f64,
    /// Make the index of logs behind the head [default: true].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) auto_log_bloom_caching_enabled: Option<bool>,
    /// Blocks that the price oracle looks at.
    #[arg(long, value_name = "BLOCKS", default_value_t = 100)]
    pub(crate) api_gas_price_blocks: u64,
    /// The percentile of their prices that it takes.
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    pub(crate) api_gas_price_percentile: f64,
    /// The most that it says, wei.
    #[arg(long, value_name = "WEI", default_value = "500000000000")]
    pub(crate) api_gas_price_max: U256,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Transaction pool")]
pub(crate) struct PoolFlags {
    /// How transactions are ordered and bounded: LAYERED by what they pay and by bytes, SEQUENCED by
    /// arrival and by number.
    #[arg(long, value_enum, value_name = "MODE", ignore_case = true, default_value_t = PoolFlavor::Layered)]
    pub(crate) tx_pool: PoolFlavor,
    /// Bytes of each layer. Layered only.
    #[arg(long, value_name = "BYTES", default_value_t = 25_000_000)]
    pub(crate) tx_pool_layer_max_capacity: usize,
    /// Most transactions that one block is offered.
    #[arg(long, value_name = "N", default_value_t = 4_000)]
    pub(crate) tx_pool_max_prioritized: usize,
    /// The same for a type: FRONTIER, ACCESS_LIST, EIP1559, BLOB or DELEGATE_CODE, as in BLOB=72.
    #[arg(long, value_name = "TYPE=N", value_delimiter = ',', value_parser = type_limit, default_value = "BLOB=72")]
    pub(crate) tx_pool_max_prioritized_by_type: Vec<(usize, usize)>,
    /// How far above its account's a nonce may be. Layered only.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) tx_pool_max_future_by_sender: u64,
    /// The score below which a transaction leaves the pool.
    #[arg(long, value_name = "N", default_value_t = -128, allow_hyphen_values = true)]
    pub(crate) tx_pool_min_score: i8,
    /// Refuse what the sender can't pay together with all else that it has here [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) tx_pool_enable_balance_check: Option<bool>,
    /// Most transactions. Sequenced only.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    pub(crate) tx_pool_max_size: usize,
    /// Share of the pool that one account may take, 0 to 1. Sequenced only.
    #[arg(long, value_name = "SHARE", default_value_t = 0.001)]
    pub(crate) tx_pool_limit_by_account_percentage: f64,
    /// Hours after which a transaction is forgotten. Sequenced only.
    #[arg(
        long,
        alias = "tx-pool-hours",
        value_name = "HOURS",
        default_value_t = 13
    )]
    pub(crate) tx_pool_retention_hours: u64,
    /// Percent by which a replacement must pay more.
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub(crate) tx_pool_price_bump: u32,
    /// The same for blob transactions.
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub(crate) tx_pool_blob_price_bump: u32,
    /// Least price of gas, wei.
    #[arg(
        long,
        alias = "min-gas-price",
        value_name = "WEI",
        default_value_t = 1_000
    )]
    pub(crate) tx_pool_min_gas_price: u128,
    /// Senders that go before all others.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) tx_pool_priority_senders: Vec<Address>,
    /// Treat transactions of this node's users as any others [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) tx_pool_no_local_priority: Option<bool>,
    /// Save the pool to txpool.dump at the end, and restore it at the start [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) tx_pool_enable_save_restore: Option<bool>,
    /// The file for that, from the data path.
    #[arg(long, value_name = "FILE", default_value = "txpool.dump")]
    pub(crate) tx_pool_save_file: PathBuf,
    /// Where a consensus client drives the node, run the best transactions upon the head before the next
    /// block comes, so that it finds in memory what they read [default: true].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) tx_pool_warming_enabled: Option<bool>,
    /// The most fee of a transaction by JSON-RPC, wei; 0 for no bound.
    #[arg(long, value_name = "WEI", default_value = "1000000000000000000")]
    pub(crate) rpc_tx_feecap: U256,
    /// Refuse transactions by JSON-RPC that name no chain (EIP-155) [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
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

/// Besu's names of the types, in the order of their numbers.
const TYPES: [&str; 5] = [
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

/// An address to listen on, or a name of one.
fn host(text: &str) -> Result<IpAddr, String> {
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
        // As with Besu, a hash that is too short has zeros before it.
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
#[command(next_help_heading = "Blocks made here")]
pub(crate) struct MinerFlags {
    /// Extra data, at most 32 bytes [default: niwaki and its version].
    #[arg(long, value_name = "HEX")]
    pub(crate) miner_extra_data: Option<Bytes>,
    /// The gas limit to go towards [default: 60000000 where a consensus client drives the node,
    /// else the parent's].
    #[arg(long, value_name = "GAS")]
    pub(crate) target_gas_limit: Option<u64>,
    /// What a transaction without priority must tip to be taken into a block, wei a gas.
    #[arg(long, value_name = "WEI", default_value_t = 0)]
    pub(crate) min_priority_fee: u128,
    /// Milliseconds that it may take to fill a block with transactions.
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) block_txs_selection_max_time: u64,
    /// Most blobs of a transaction that is taken into a block [default: what the fork allows].
    #[arg(long, value_name = "N")]
    pub(crate) max_blobs_per_transaction: Option<usize>,
    /// Most blobs of a block [default: what the fork allows].
    #[arg(long, value_name = "N")]
    pub(crate) max_blobs_per_block: Option<usize>,
    /// Seconds between blocks of --network=dev; 0 makes one for each transaction that comes.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) dev_period: u64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Operation")]
pub(crate) struct OperationFlags {
    /// Serve metrics to Prometheus [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) metrics_enabled: Option<bool>,
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_parser = host)]
    pub(crate) metrics_host: IpAddr,
    #[arg(long, value_name = "PORT", default_value_t = 9545)]
    pub(crate) metrics_port: u16,
    /// Push metrics to a Prometheus push gateway [default: false].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) metrics_push_enabled: Option<bool>,
    /// The gateway, by name or address.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) metrics_push_host: String,
    #[arg(long, value_name = "PORT", default_value_t = 9001)]
    pub(crate) metrics_push_port: u16,
    /// Seconds between two pushes.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) metrics_push_interval: u64,
    /// The job that the gateway keeps them under.
    #[arg(long, value_name = "NAME", default_value = "niwaki-client")]
    pub(crate) metrics_push_prometheus_job: String,
    /// The operator's name for this node, as a part of web3_clientVersion.
    #[arg(long, value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// A file for the number of this process, for as long as it runs.
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_path: Option<PathBuf>,
    /// What net_version says [default: the chain's own].
    #[arg(long, value_name = "ID")]
    pub(crate) network_id: Option<u64>,
    /// Blocks that the chain must have, as in 4370000=0xb1fcff63...; another one there is refused.
    #[arg(long, alias = "required-block", value_name = "NUMBER=HASH", value_delimiter = ',', value_parser = required_block)]
    pub(crate) required_blocks: Vec<(u64, B256)>,
    /// What is logged: OFF, ERROR, WARN, INFO, DEBUG or TRACE.
    #[arg(long, short = 'l', value_enum, value_name = "LEVEL", ignore_case = true, default_value_t = LogLevel::Info)]
    pub(crate) logging: LogLevel,
    /// How: lines of TEXT (PLAIN), or of JSON: our own, or that of Elastic (ECS), Google Cloud (GCP),
    /// Logstash or Graylog (GELF).
    #[arg(long, value_enum, value_name = "FORMAT", ignore_case = true, default_value_t = LogFormat::Text)]
    pub(crate) logging_format: LogFormat,
    /// Colour the lines of the log [default: on a terminal, unless NO_COLOR is set].
    #[arg(long, value_name = switch!(), num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) color_enabled: Option<bool>,
    /// Blocks that a reorganisation may take back before its line is a warning.
    #[arg(long, value_name = "BLOCKS", default_value_t = 6)]
    pub(crate) reorg_logging_threshold: u64,
    /// A file of flags: TOML with a key for each, without the dashes before it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
    /// Flags by purpose: DEV, STAKER, MINIMALIST_STAKER, ENTERPRISE (PRIVATE), PERFORMANCE,
    /// PERFORMANCE_RPC; NONE.
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

/// Everything about the node that runs.
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
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) api: ApiFlags,
    #[command(flatten)]
    pub(crate) pool: PoolFlags,
    #[command(flatten)]
    pub(crate) miner: MinerFlags,
    #[command(flatten)]
    pub(crate) operation: OperationFlags,
}
