//! The node: assembled in one function, run until it is asked to stop.
//!
//! ```text
//! flags -> log -> chain -> NodeConfig -> pool, backend -> background threads -> servers -> wait -> stop in reverse
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `config` | `NodeConfig`: the flags, resolved once |
//! | `servers` | HTTP, WebSocket, Engine API, IPC |
//! | `tokens`, `tls`, `secret` | users and tokens, key stores, the Engine API's secret, loaded from files |
//! | `network` | the network of peers, joined to the chain and the methods |
//! | `follow` | the thread that follows the head: pool, subscriptions, log |
//! | `warm` | the thread that executes pooled transactions before the next block |
//! | `log_index` | the thread that builds the log index |
//! | `validator` | the validator of a BFT chain |
//! | `dev` | the thread that builds blocks of `--network=dev` |
//! | `pool_file` | saves and restores the pool |
//! | `metrics` | Prometheus metrics: served and pushed |
//! | `logs`, `log_formats` | where log lines go, and their JSON formats |
//! | `banner`, `head_log`, `watch` | log lines: at the start, about the head, about missing calls and blocks |
//! | `dashboard` | what the dashboard shows of the program and its machine |
//! | `profile` | profiles of the processor and of the heap |
//! | `required`, `pid` | `--required-blocks`, `--pid-path` |
//! | `supervisor` | tells systemd that the node is ready, alive, stopping |

mod banner;
mod config;
mod dashboard;
mod dev;
mod follow;
mod head_log;
mod log_formats;
mod log_index;
mod logs;
mod metrics;
mod network;
mod permissions;
mod pid;
mod pool_file;
mod profile;
mod required;
mod secret;
mod servers;
mod supervisor;
mod tls;
mod tokens;
mod validator;
mod warm;
mod watch;

pub(crate) use config::{OPERATOR_SOCKET, ServersConfig, key_file};
pub(crate) use secret::JWT_FILE;

use crate::Outcome;
use crate::config::Note;
use crate::open::{data_path, open_chain};
use crate::options::Options;
use crate::stop::Stop;
use config::NodeConfig;
use dashboard::LogLines;
use eyre::{Result, WrapErr};
use follow::Follower;
use log_index::LogIndexer;
use network::Peers;
use niwaki_chain::{Chain, Consensus};
use niwaki_network::NodeKey;
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256};
use niwaki_rpc::{Backend, Identity, WorkerPools, yield_to_blocks};
use niwaki_txpool::{Pool, PoolConfig, SharedView};
use permissions::{Contracts, End, Permissions};
use pid::PidFile;
use pool_file::PoolFile;
use rustix::process::{Resource, getrlimit, setrlimit};
use servers::Servers;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use supervisor::Supervisor;
use tracing::{info, warn};
use validator::Validator;
use warm::PoolWarmer;
use watch::Watch;

/// How often the main thread checks whether the node is to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the node.
pub(crate) fn run(options: &Options, notes: &[Note]) -> Result<Outcome> {
    let flags = &options.node.operation;
    let lines = (options.node.http.dashboard_enabled == Some(true)).then(LogLines::default);
    let log_switch = logs::install(flags, lines.clone())?;
    log_notes(notes);
    if flags.profile_heap_enabled == Some(true) {
        profile::sample_heap()?;
    }
    let _pid_file = flags.pid_path.as_deref().and_then(PidFile::write);
    let stop = Stop::listen()?;
    let identity = identity(flags.identity.as_deref());
    banner::write_program(&identity);
    let data_path = data_path(options)?;
    raise_open_files();
    crate::doctor::log_problems(options, &data_path);
    let Some(chain) = open_chain(options, &stop)? else {
        return Ok(Outcome::Interrupted);
    };
    let mut config = NodeConfig::resolve(options, data_path, chain.spec());
    required::check(&chain, &config.required_blocks)?;
    load_kzg_setup(&chain)?;
    let metrics = metrics::install(&config.metrics)?;
    let consensus = Arc::new(open_consensus(&config, &chain)?);
    banner::write_chain(&config, &chain)?;
    let pool = Arc::new(open_pool(config.pool.clone(), &chain)?);

    let backend = Arc::new(Backend::new(
        Arc::clone(&consensus),
        Arc::clone(&pool),
        identity,
        config.api.clone(),
    ));
    let operator = backend.operator();
    operator.set_log_switch(log_switch);
    operator.set_traces_folder(config.data_path.join("traces"));
    profile::install(operator, &config.data_path);
    if let Some(lines) = lines {
        dashboard::install(operator, &chain, &pool, &config, lines)?;
    }
    let permissions = open_permissions(&config, &chain, &backend, &pool)?;
    let follower = Follower::start(&chain, Arc::clone(&backend), &pool, config.reorg_threshold)?;
    let indexer = LogIndexer::start(&chain, config.has_log_index)?;
    let warmer = match config.is_pool_warmed {
        true => Some(PoolWarmer::start(&chain, &pool)?),
        false => None,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worker_pools =
        Arc::new(WorkerPools::new(cores).wrap_err("can't start the workers of JSON-RPC")?);
    let peer_metrics = metrics.as_ref().map(metrics::Metrics::peers);
    let servers = Servers::start(&config, &backend, &worker_pools, metrics)?;
    let (peers, validator) = start_network(&mut config, &consensus, &backend, &pool, permissions)?;
    if let (Some(slot), Some(peers)) = (peer_metrics, &peers) {
        let _ = slot.set(peers.metrics()); // There is one network.
    }
    let producer = match config.dev_period_s {
        Some(period_s) => Some(dev::Producer::start(&backend, period_s)?),
        None => None,
    };
    banner::write_ready(&config, &backend)?;
    let pool_file = match config.pool_file {
        Some(path) => Some(PoolFile::restore(path, &pool)?),
        None => None,
    };

    let mut supervisor = Supervisor::find();
    supervisor.ready();
    let mut watch = config.has_engine_api.then(Watch::default);
    while !stop.is_requested() {
        std::thread::sleep(POLL_INTERVAL);
        if let Some(watch) = &mut watch {
            watch.check(&backend, Instant::now());
        }
        supervisor.alive(|| status(&backend));
    }
    supervisor.stopping();

    drop(producer);
    drop(warmer);
    if let Some(peers) = peers {
        peers.stop();
    }
    if let Some(validator) = validator {
        validator.stop();
    }
    servers.stop();
    drop(indexer);
    follower.stop();
    if let Some(file) = pool_file {
        file.save(|out| pool.save(out))?;
    }
    chain.sync()?;
    info!("Stopped: everything is on disk");
    Ok(Outcome::Done)
}

/// Opens the journal, and imports the blocks in it that the database does not have.
fn open_consensus(config: &NodeConfig, chain: &Arc<Chain>) -> Result<Consensus> {
    let journal = config.data_path.join("journal");
    let (consensus, imported) = Consensus::with_journal(chain.clone(), &journal)?;
    if imported > 0 {
        info!(
            blocks = imported,
            "Imported the blocks of the journal that had not reached the database"
        );
    }
    Ok(consensus)
}

/// One line about the node, for its supervisor.
fn status(backend: &Backend) -> String {
    let head = backend.chain().head().id.number;
    let peers = backend.peer_count();
    match backend.target().filter(|target| *target > head) {
        Some(target) => format!("block {head} of {target}, {peers} peers"),
        None => format!("block {head}, {peers} peers"),
    }
}

/// Reads the lists of nodes and accounts, and has the pool and `perm_*` know them.
fn open_permissions(
    config: &NodeConfig,
    chain: &Arc<Chain>,
    backend: &Arc<Backend>,
    pool: &Pool,
) -> Result<Option<Arc<Permissions>>> {
    let (own, fixed) = match &config.peers {
        Some(peers) => {
            let own = End {
                id: NodeKey::load_or_create(&peers.key_file)?.id(),
                ip: peers.hosts.first().copied().unwrap_or(peers.listen.ip()),
                port: peers.listen.port(),
            };
            (Some(own), peers.fixed_nodes()?)
        }
        None => (None, Vec::new()),
    };
    let contracts = Contracts::open(&config.permissions, own.as_ref(), &fixed, chain, backend)?;
    let permissions = Permissions::read(&config.permissions, own, fixed, contracts)?;
    if let Some(permissions) = &permissions {
        if permissions.has_accounts() {
            let accounts = Arc::clone(permissions);
            pool.set_sender_filter(move |sender, tx| accounts.allows_transaction(sender, tx));
        }
        backend.operator().set_permissions(permissions.hooks());
    }
    Ok(permissions)
}

/// Starts the network of peers, and the validator of a BFT chain in it.
fn start_network(
    config: &mut NodeConfig,
    consensus: &Arc<Consensus>,
    backend: &Arc<Backend>,
    pool: &Arc<Pool>,
    permissions: Option<Arc<Permissions>>,
) -> Result<(Option<Peers>, Option<Validator>)> {
    let Some(peers) = config.peers.take() else {
        return Ok((None, None));
    };
    let chain = consensus.chain();
    let key = NodeKey::load_or_create(&peers.key_file)?;
    let spoken = validator::subprotocols(chain.spec());
    let network_id = config.network_id;
    let (peers, events) = Peers::start(
        peers,
        network_id,
        consensus,
        backend,
        pool,
        spoken,
        permissions.clone(),
    )?;
    let validator = match config.validator.take() {
        Some(own) => Some(Validator::start(
            own,
            *key.secret(),
            chain,
            backend,
            pool,
            permissions,
            events,
        )?),
        None => None,
    };
    Ok((Some(peers), validator))
}

/// Raises the limit of open files to the most that the system grants this process.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "Can't raise the limit of open files");
    }
}

/// Logs the notes about the configuration.
fn log_notes(notes: &[Note]) {
    for note in notes {
        match note.is_warning {
            true => warn!("{}", note.text),
            false => info!("{}", note.text),
        }
    }
}

/// Loads the KZG trusted setup in the background if the chain has blobs or will have them. Loading takes
/// seconds of one core; otherwise the first blob transaction would pay for it. One that arrives earlier waits.
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

/// Name, version and commit of this program; `operator_name` is that of `--identity`.
fn identity(operator_name: Option<&str>) -> Identity {
    let name = operator_name.map_or(String::new(), |name| format!("{name}/"));
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

fn open_pool(config: PoolConfig, chain: &Chain) -> Result<Pool> {
    let view: SharedView = match chain.has_state() {
        true => Arc::new(chain.view_at_head()?),
        // Until the state is here, no sender can pay.
        false => Arc::new(EmptyState),
    };
    let spec = Arc::clone(chain.spec());
    Ok(Pool::new(config, spec, chain.head().header, view, now()))
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// The state of a node whose state is still being downloaded, as the pool sees it: without accounts.
struct EmptyState;

impl StateView for EmptyState {
    fn account(&self, _: &Address) -> Result<Option<Account>, Fault> {
        Ok(None)
    }

    fn storage(&self, _: &Address, _: &U256) -> Result<U256, Fault> {
        Ok(U256::ZERO)
    }

    fn has_storage(&self, _: &Address) -> Result<bool, Fault> {
        Ok(false)
    }

    fn code(&self, code_hash: &B256) -> Result<Bytes, Fault> {
        Err(absent("code", code_hash))
    }

    fn block_hash(&self, number: u64) -> Result<B256, Fault> {
        Err(absent("blocks", number))
    }
}

fn absent(segment: &'static str, key: impl ToString) -> Fault {
    Fault::Missing {
        segment,
        key: key.to_string(),
    }
}
