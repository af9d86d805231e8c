//! The node: assembled in one straight function, run until it is asked to stop.

mod banner;
mod dev;
mod follow;
mod head_log;
mod log_formats;
mod log_index;
mod logs;
mod metrics;
mod pid;
mod pool_file;
mod required;
mod secret;
mod servers;
mod tls;
mod tokens;
mod warm;
mod watch;

pub(crate) use servers::OPERATOR_SOCKET;

use crate::Ending;
use crate::config::Note;
use crate::open::{data_path, open_chain};
use crate::options::{NodeOptions, Options, PoolFlavor};
use crate::stop::Stop;
use eyre::{Result, WrapErr};
use follow::Follower;
use log_index::LogIndexer;
use niwaki_chain::{Chain, Consensus};
use niwaki_primitives::Bytes;
use niwaki_rpc::{ApiOptions, Backend, Identity, WorkerPools, yield_to_blocks};
use niwaki_rules::{ChainSpec, Network};
use niwaki_txpool::{Pool, PoolConfig, PoolMode};
use pid::PidFile;
use pool_file::PoolFile;
use servers::Servers;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};
use warm::Warmer;
use watch::Watch;

/// How often the main thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// As much gas as a simulated call can count, where its operator sets no bound.
const NO_GAS_CAP: u64 = u64::MAX / 2;

/// The gas limit that stakers' blocks go towards.
const STAKERS_GAS_LIMIT: u64 = 60_000_000;

/// Runs the node.
pub(crate) fn run(options: &Options, notes: &[Note]) -> Result<Ending> {
    let node = &options.node;
    let log_switch = logs::install(&node.operation)?;
    log_notes(notes);
    let pid_path = node.operation.pid_path.as_deref();
    let _pid_file = pid_path.and_then(PidFile::write);
    let stop = Stop::listen()?;
    banner::write_program(&identity(node));
    let data_path = data_path(options)?;
    let Some(chain) = open_chain(options, &stop)? else {
        return Ok(Ending::Interrupted);
    };
    required::check(&chain, &node.operation.required_blocks)?;
    load_kzg_setup(&chain)?;
    let metrics = metrics::install(node)?;
    let (consensus, taken) = Consensus::with_journal(chain.clone(), &data_path.join("journal"))?;
    if taken > 0 {
        info!(
            blocks = taken,
            "Imported the blocks of the journal that had not reached the database"
        );
    }
    banner::write_chain(options, &data_path, &chain)?;
    let pool = Arc::new(open_pool(node, &chain)?);

    let consensus = Arc::new(consensus);
    let api = api_options(options, &chain);
    let backend = Arc::new(Backend::new(
        consensus,
        Arc::clone(&pool),
        identity(node),
        api,
    ));
    let operator = backend.operator();
    operator.set_log_switch(log_switch);
    operator.set_traces_folder(data_path.join("traces"));
    let reorg_threshold = node.operation.reorg_logging_threshold;
    let follower = Follower::start(&chain, Arc::clone(&backend), &pool, reorg_threshold)?;
    let wants_index = node.api.auto_log_bloom_caching_enabled != Some(false);
    let indexer = LogIndexer::start(&chain, wants_index)?;
    let warmer = match warms(options, chain.spec()) {
        true => Some(Warmer::start(&chain, &pool)?),
        false => None,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worker_pools =
        Arc::new(WorkerPools::new(cores).wrap_err("can't start the workers of JSON-RPC")?);
    let servers = Servers::start(options, &data_path, &backend, &worker_pools, metrics)?;
    let producer = match options.network {
        Some(Network::Dev) => Some(dev::Producer::start(&backend, node.miner.dev_period)?),
        _ => None,
    };
    banner::write_ready(options, &backend)?;
    let pool_file = PoolFile::restore(node, &data_path, &pool)?;

    let mut watch = has_engine_port(options, chain.spec()).then(Watch::default);
    while !stop.is_asked() {
        std::thread::sleep(LOOK);
        if let Some(watch) = &mut watch {
            watch.look(&backend, Instant::now());
        }
    }

    drop(producer);
    drop(warmer);
    servers.stop();
    drop(indexer);
    follower.stop();
    if let Some(file) = pool_file {
        file.save(|out| pool.save(out))?;
    }
    chain.sync()?;
    info!("Stopped: everything is on disk");
    Ok(Ending::Done)
}

/// Tells of the configuration.
fn log_notes(notes: &[Note]) {
    for note in notes {
        match note.is_warning {
            true => warn!("{}", note.text),
            false => info!("{}", note.text),
        }
    }
}

/// Loads the trusted setup where there are blobs or will be, behind all else: it takes seconds of one
/// core, which the first transaction with blobs would have to do itself. One that comes meanwhile waits.
fn load_kzg_setup(chain: &Chain) -> Result<()> {
    if chain.spec().blob_params_at(u64::MAX).is_none() {
        return Ok(());
    }
    std::thread::Builder::new()
        .name("kzg-setup".to_owned())
        .spawn(|| {
            yield_to_blocks();
            niwaki_crypto::load_kzg_setup();
        })
        .wrap_err("can't start the thread that loads the trusted setup of KZG")?;
    Ok(())
}

/// What this program calls itself.
fn identity(node: &NodeOptions) -> Identity {
    let name = node.operation.identity.as_deref();
    let name = name.map_or(String::new(), |name| format!("{name}/"));
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let commit = option_env!("NIWAKI_COMMIT").unwrap_or("00000000");
    let mut bytes = [0; 4];
    // A build without a commit has zeros.
    let _ =
        niwaki_primitives::hex::decode_to_slice(commit.get(..8).unwrap_or_default(), &mut bytes);
    Identity {
        client_version: format!(
            "niwaki/{name}{version}-{}/{}-{}/rustc{}",
            niwaki_primitives::hex::encode(bytes),
            std::env::consts::OS,
            std::env::consts::ARCH,
            env!("CARGO_PKG_RUST_VERSION"),
        ),
        version: version.to_owned(),
        commit: bytes,
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Whether the chain is one that a consensus client drives.
fn is_driven(options: &Options, spec: &ChainSpec) -> bool {
    spec.terminal_total_difficulty.is_some() && options.network != Some(Network::Dev)
}

/// Whether there is a port for a consensus client.
fn has_engine_port(options: &Options, spec: &ChainSpec) -> bool {
    let flag = options.node.engine.engine_rpc_enabled;
    flag.unwrap_or(is_driven(options, spec))
}

/// Whether the pool's transactions are run before the next block comes.
fn warms(options: &Options, spec: &ChainSpec) -> bool {
    has_engine_port(options, spec) && options.node.pool.tx_pool_warming_enabled != Some(false)
}

fn api_options(options: &Options, chain: &Chain) -> ApiOptions {
    let node = &options.node;
    let is_driven = is_driven(options, chain.spec());
    let extra_data = node.miner.miner_extra_data.clone();
    let own = || Bytes::from_static(concat!("niwaki ", env!("CARGO_PKG_VERSION")).as_bytes());
    ApiOptions {
        gas_cap: match node.api.rpc_gas_cap {
            0 => NO_GAS_CAP,
            cap => cap,
        },
        max_logs_range: node.api.rpc_max_logs_range,
        gas_price_blocks: node.api.api_gas_price_blocks,
        gas_price_percentile: node.api.api_gas_price_percentile,
        gas_price_max: node.api.api_gas_price_max,
        target_gas_limit: node
            .miner
            .target_gas_limit
            .or(is_driven.then_some(STAKERS_GAS_LIMIT)),
        extra_data: extra_data.unwrap_or_else(own),
        min_priority_fee: node.miner.min_priority_fee,
        is_driven: has_engine_port(options, chain.spec()),
        fill_time: Duration::from_millis(node.miner.block_txs_selection_max_time),
        max_blobs_per_transaction: node.miner.max_blobs_per_transaction,
        max_blobs_per_block: node.miner.max_blobs_per_block,
        network_id: node.operation.network_id,
        estimate_tolerance: node.api.estimate_gas_tolerance_ratio,
        max_trace_range: node.api.rpc_max_trace_filter_range,
        max_filters: node.api.rpc_max_active_filters,
        filter_timeout: Duration::from_secs(node.api.rpc_filter_timeout_seconds),
        max_subscriptions: node.sockets.rpc_ws_max_active_subscriptions,
    }
}

fn open_pool(node: &NodeOptions, chain: &Chain) -> Result<Pool> {
    let flags = &node.pool;
    let config = PoolConfig {
        mode: match flags.tx_pool {
            PoolFlavor::Layered => PoolMode::Layered,
            PoolFlavor::Sequenced => PoolMode::Sequenced,
        },
        layer_max_capacity_bytes: flags.tx_pool_layer_max_capacity,
        max_prioritized: flags.tx_pool_max_prioritized,
        max_prioritized_by_type: flags.by_type(),
        max_future_by_sender: flags.tx_pool_max_future_by_sender,
        min_score: flags.tx_pool_min_score,
        balance_check: flags.tx_pool_enable_balance_check == Some(true),
        max_size: flags.tx_pool_max_size,
        limit_by_account: flags.tx_pool_limit_by_account_percentage,
        retention_s: flags.tx_pool_retention_hours.saturating_mul(3_600),
        price_bump_percent: flags.tx_pool_price_bump,
        blob_price_bump_percent: flags.tx_pool_blob_price_bump,
        min_gas_price: flags.tx_pool_min_gas_price,
        priority_senders: flags.tx_pool_priority_senders.iter().copied().collect(),
        no_local_priority: flags.tx_pool_no_local_priority == Some(true),
        tx_fee_cap: flags.rpc_tx_feecap,
        strict_replay_protection: flags.strict_tx_replay_protection_enabled == Some(true),
        ..PoolConfig::default()
    };
    let view = Arc::new(chain.view_at_head()?);
    let spec = Arc::new(chain.spec().clone());
    Ok(Pool::new(config, spec, chain.head().header, view, now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_pool_is_run_ahead_where_a_consensus_client_drives_unless_that_is_refused() {
        let other = ChainSpec::frontier(1);
        let driven = ChainSpec {
            terminal_total_difficulty: Some(niwaki_primitives::U256::ZERO),
            ..other.clone()
        };
        let runs = |arguments: &[&str], spec: &ChainSpec| {
            let words = [&["niwaki"], arguments].concat();
            warms(&Options::try_parse_from(words).expect("known flags"), spec)
        };
        assert!(runs(&[], &driven));
        assert!(!runs(&[], &other));
        assert!(runs(&["--engine-rpc-enabled"], &other));
        assert!(!runs(&["--engine-rpc-enabled=false"], &driven));
        assert!(!runs(&["--tx-pool-warming-enabled=false"], &driven));
    }
}
