//! The network of peers: started, joined to the chain and to the methods of the operator, stopped.
//!
//! ```text
//! chain --(head change)--> LocalChain (watch) --> network (own runtime): Status, ranges, fork ids
//! network --requests--> 2 threads: niwaki_sync::serve --> answers
//! consensus --missing block--> niwaki_sync::Sync --(router)--> peers; blocks --> chain
//! admin_*, net_* --> PeerHooks --> network
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `first` | the nodes and the DNS list to begin with |
//! | `hooks` | what the methods about peers see and do |
//! | `pool` | the pool among peers |

mod first;
mod hooks;
mod pool;

use super::config::{PeersConfig, StaticNodesFile};
use super::metrics::PeerMetrics;
use super::permissions::Permissions;
use eyre::{Result, WrapErr, ensure, eyre};
use first::First;
use niwaki_chain::{Chain, Consensus, HeadChange, StoredHeader};
use niwaki_network::peers::{BanTarget, Event, NodeFilter};
use niwaki_network::wire::BlockRange;
use niwaki_network::{
    BootNode, DiscoverySettings, Inbound, LocalChain, NatMethod, Network, NetworkConfig, Node,
    NodeKey, Subprotocol, SubprotocolEvent, ValidatorsChain,
};
use niwaki_primitives::B256;
use niwaki_rpc::{Backend, yield_to_blocks};
use niwaki_rules::{ChainSpec, SealKind, fork_filter};
use niwaki_sync::{FollowsPeers, RecentStates, Requests, Sources, Sync, SyncConfig, serve};
use niwaki_txpool::Pool;
use pool::PoolGossip;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tracing::{error, info};

/// Threads that move bytes.
const IO_THREADS: usize = 2;
/// Threads that answer what peers ask.
const SERVING_THREADS: usize = 2;
/// A ban that the operator gave lasts as long as the node runs.
const FOR_EVER_MS: u64 = u64::MAX / 2;

/// The network of a running node.
pub(super) struct Peers {
    runtime: Runtime,
    network: Arc<Network>,
    sync: Sync,
    serving: Vec<JoinHandle<()>>,
    gossip: PoolGossip,
}

impl Peers {
    /// Starts the network.
    pub(super) fn start(
        config: PeersConfig,
        network_id: u64,
        consensus: &Arc<Consensus>,
        backend: &Arc<Backend>,
        pool: &Arc<Pool>,
        subprotocols: Vec<Subprotocol>,
        permissions: Option<Arc<Permissions>>,
    ) -> Result<(Self, mpsc::Receiver<SubprotocolEvent>)> {
        let chain = consensus.chain();
        ensure!(
            !config.versions.is_empty(),
            "no version of eth is left to offer: this node speaks 66 to 72; change \
             --Xeth-capability-min and --Xeth-capability-max"
        );
        ensure!(
            config.listen.is_ipv4() || config.listen_ipv6.is_none(),
            "--p2p-interface {} is an IPv6 address already: leave out --p2p-host-ipv6 and \
             --p2p-interface-ipv6, or give --p2p-interface an IPv4 address",
            config.listen.ip()
        );
        let runtime = io_runtime(chain)?;
        let key = NodeKey::load_or_create(&config.key_file)?;
        let local_chain = publish_chain(chain, network_id)?;
        let limit = config.max_peers;
        let (sync_mode, history) = (config.sync_mode, config.history);
        let (sync_target, folder) = (config.sync_target, config.folder.clone());
        let history_files = config.history_files.clone();
        let banned = config.banned.clone();
        let serving_rate = config.serving_rate;
        let first = First::resolve(&config, chain)?;
        let client = &backend.identity().client_version;
        let network_config = NetworkConfig {
            subprotocols,
            filter: node_filter(permissions.as_ref()),
            ..network_config(config, first, key, client)?
        };
        let starting = runtime.block_on(Network::start(
            network_config,
            local_chain,
            pool::view(pool),
        ));
        let (network, inbound) = starting.wrap_err("choose another --p2p-port")?;
        for id in banned {
            network.send(Event::Ban {
                target: BanTarget::Node(id),
                ms: FOR_EVER_MS,
            });
        }
        let network = Arc::new(network);
        follow_permissions(permissions.as_ref(), &network, chain);
        let Inbound {
            requests,
            transactions,
            subprotocols,
            ..
        } = inbound;
        let requests = Requests::new(requests, serving_rate);
        let serving = start_serving(chain, pool, requests)?;
        let gossip = PoolGossip::start(pool, backend, &network.gossip(), transactions)?;
        if let Some(address) = network.address() {
            backend.operator().add_service("p2p", address);
        }
        info!(enode = %network.enode(), max_peers = limit, "Listening for peers");
        let hooks = hooks::peer_hooks(limit, &network);
        backend.operator().set_peers(hooks);
        let sync = Sync::start(SyncConfig {
            consensus: Arc::clone(consensus),
            router: network.router(),
            peers: network.peers(),
            folder,
            mode: sync_mode,
            history,
            history_files,
            is_driven: backend.is_driven(),
            follows_peers: follows_peers(chain, backend),
            target: sync_target,
        })?;
        let report = sync.reporter();
        backend
            .operator()
            .set_sync(Box::new(move || hooks::sync_report(report())));
        let peers = Self {
            runtime,
            network,
            sync,
            serving,
            gossip,
        };
        Ok((peers, subprotocols))
    }

    /// Where the metrics of the network and of the sync come from.
    pub(super) fn metrics(&self) -> PeerMetrics {
        let status = Box::new(self.sync.reporter());
        PeerMetrics::new(&self.network, status, Box::new(self.sync.timer()))
    }

    /// Says goodbye to all peers and stops.
    pub(super) fn stop(self) {
        self.sync.stop();
        self.runtime.block_on(self.network.stop());
        self.runtime.shutdown_background();
        self.gossip.stop();
        for thread in self.serving {
            let _ = thread.join();
        }
    }
}

/// Has the network cut peers that are taken off the list.
fn follow_permissions(
    permissions: Option<&Arc<Permissions>>,
    network: &Arc<Network>,
    chain: &Chain,
) {
    let Some(permissions) = permissions else {
        return;
    };
    let network = Arc::downgrade(network);
    let changed = move || {
        if let Some(network) = network.upgrade() {
            network.send(Event::FilterChanged);
        }
    };
    if permissions.follows_head() {
        let (changed, permissions) = (changed.clone(), Arc::downgrade(permissions));
        chain.on_head(Box::new(move |_| {
            let permissions = permissions.upgrade();
            if permissions.is_some_and(|permissions| permissions.changes_with_head()) {
                changed();
            }
        }));
    }
    permissions.on_nodes(Box::new(changed));
}

fn node_filter(permissions: Option<&Arc<Permissions>>) -> NodeFilter {
    match permissions.filter(|permissions| permissions.has_nodes()) {
        Some(permissions) => {
            let permissions = Arc::clone(permissions);
            NodeFilter::new(move |remote| permissions.allows_node(remote))
        }
        None => NodeFilter::default(),
    }
}

fn network_config(
    config: PeersConfig,
    first: First,
    key: NodeKey,
    client: &str,
) -> Result<NetworkConfig> {
    std::fs::create_dir_all(&config.folder)
        .wrap_err_with(|| format!("can't make the folder {}", config.folder.display()))?;
    let discovery = config.discovery.map(|mode| {
        let address = SocketAddr::new(config.listen.ip(), config.discovery_port);
        let beside = config.listen_ipv6.map(|ipv6| ipv6.discovery);
        let (ipv4, ipv6) = match address {
            SocketAddr::V4(address) => (Some(address), beside),
            SocketAddr::V6(address) => (None, Some(address)),
        };
        DiscoverySettings {
            ipv4,
            ipv6,
            mode: mode.into(),
            prefers_ipv6: config.prefers_ipv6,
            dns_lists: first.dns_list.into_iter().collect(),
            dns_server: config.dns_server,
            ..DiscoverySettings::default()
        }
    });
    let nat = nat_method(&config);
    Ok(NetworkConfig {
        key,
        listen: Some(config.listen),
        listen_also: config.listen_ipv6.map(|ipv6| SocketAddr::V6(ipv6.peers)),
        client: client.to_owned(),
        versions: config.versions,
        snap: first.snap,
        subprotocols: Vec::new(),
        max_peers: config.max_peers,
        inbound_percent: config.inbound_percent,
        filter: NodeFilter::default(),
        static_nodes: static_nodes(&config.static_nodes)?,
        trusted_nodes: config.trusted_nodes,
        boot_nodes: first.boot_nodes,
        discovery,
        net_restrict: config.net_restrict,
        advertised: config.hosts,
        nat,
        folder: Some(config.folder),
    })
}

/// By default no router is asked to open ports that are of no use.
fn nat_method(config: &PeersConfig) -> NatMethod {
    match config.needs_no_router() {
        Some(reason) if config.nat == NatMethod::Auto => {
            info!(
                "No router is asked to open ports: {reason}; --nat-method=UPNP asks nevertheless"
            );
            NatMethod::None
        }
        _ => config.nat,
    }
}

impl PeersConfig {
    /// The boot nodes and the static nodes of the operator.
    pub(super) fn fixed_nodes(&self) -> Result<Vec<Node>> {
        let boot_nodes = self.boot_nodes.iter().flatten();
        let mut fixed: Vec<Node> = boot_nodes.filter_map(BootNode::node).collect();
        fixed.extend(static_nodes(&self.static_nodes)?);
        Ok(fixed)
    }
}

/// The nodes of a JSON array of texts.
fn static_nodes(file: &StaticNodesFile) -> Result<Vec<Node>> {
    let path = file.path.display();
    let text = match std::fs::read_to_string(&file.path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !file.is_named => {
            return Ok(Vec::new());
        }
        Err(error) => {
            return Err(eyre!(error).wrap_err(format!("can't read the static nodes of {path}")));
        }
    };
    let nodes: Vec<String> = serde_json::from_str(&text).wrap_err_with(|| {
        format!("{path} must be a JSON array of nodes, such as [\"enode://...@10.0.0.1:30303\"]")
    })?;
    let parse = |node: &String| -> Result<Node> { Ok(node.parse::<Node>()?) };
    let nodes: Result<Vec<Node>> = nodes.iter().map(parse).collect();
    nodes.wrap_err_with(|| format!("can't use the static nodes of {path}"))
}

/// What this node says of its chain, as it changes with the head.
fn publish_chain(chain: &Arc<Chain>, network_id: u64) -> Result<watch::Receiver<LocalChain>> {
    let genesis = chain.genesis_hash();
    let genesis_time = match chain.header(&genesis)? {
        Some(genesis) => genesis.header.timestamp,
        None => 0,
    };
    let spec = Arc::new(chain.spec().clone());
    let validators = (spec.seal == SealKind::Bft).then(|| validators_chain(chain, &spec));
    // The first block moves up when a state has come, and down with older blocks.
    let local_chain = move |head: &StoredHeader, earliest: u64| LocalChain {
        network_id,
        genesis,
        forks: fork_filter(
            &spec,
            genesis,
            genesis_time,
            head.id.number,
            head.header.timestamp,
        ),
        range: BlockRange {
            earliest,
            latest: head.id.number,
            latest_hash: head.id.hash,
        },
        total_difficulty: head.total_difficulty,
        // Blocks of validators come from peers, whatever the fork.
        is_merged: spec.seal != SealKind::Bft && spec.is_proof_of_stake(&head.header),
        validators: validators.clone(),
    };
    let first = local_chain(&chain.head(), chain.first_block()?);
    let (sender, receiver) = watch::channel(first);
    let blocks = Arc::downgrade(chain);
    chain.on_head(Box::new(move |change: &HeadChange| {
        let head = &change.head;
        // The head is there, whatever the disk says of the others.
        let earliest = blocks.upgrade().map(|chain| chain.first_block());
        let earliest = earliest.and_then(Result::ok).unwrap_or(head.id.number);
        sender.send_replace(local_chain(head, earliest));
    }));
    Ok(receiver)
}

fn follows_peers(chain: &Chain, backend: &Arc<Backend>) -> Option<FollowsPeers> {
    let backend = Arc::clone(backend);
    (chain.spec().seal == SealKind::Bft).then(|| FollowsPeers {
        is_validator: Box::new(move || backend.operator().is_validator()),
    })
}

fn validators_chain(chain: &Arc<Chain>, spec: &Arc<ChainSpec>) -> ValidatorsChain {
    let chain = Arc::downgrade(chain);
    let read = move |hash: &B256| {
        let chain = chain.upgrade()?;
        let total_difficulty = chain.header(hash).ok()??.total_difficulty;
        Some((chain.block(hash).ok()??, total_difficulty))
    };
    ValidatorsChain {
        spec: Arc::clone(spec),
        block: Arc::new(read),
    }
}

/// Starts the threads that answer what peers ask.
fn start_serving(
    chain: &Arc<Chain>,
    pool: &Arc<Pool>,
    requests: Requests,
) -> Result<Vec<JoinHandle<()>>> {
    let requests = Arc::new(requests);
    let states = recent_states(chain)?;
    // Nodes that follow validators get their blocks here.
    let yields = chain.spec().bft_rules.is_empty();
    let start = |_| {
        let (chain, pool) = (Arc::clone(chain), Arc::clone(pool));
        let states = Arc::clone(&states);
        let requests = Arc::clone(&requests);
        let thread = thread::Builder::new().name("serve-peers".to_owned());
        thread.spawn(move || {
            if yields {
                yield_to_blocks();
            }
            let sources = Sources {
                chain: &chain,
                states: &states,
                transaction: &|hash, version| pool::transaction(&pool, hash, version),
                cells: &|hash, columns| pool::cells(&pool, hash, columns),
            };
            serve(sources, &requests);
        })
    };
    let threads: std::io::Result<Vec<_>> = (0..SERVING_THREADS).map(start).collect();
    threads.wrap_err("can't start the threads that answer peers")
}

/// The threads of all connections.
fn io_runtime(chain: &Chain) -> Result<Runtime> {
    // Blocks of validators are agreed on over these connections.
    let yields = chain.spec().bft_rules.is_empty();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(IO_THREADS).thread_name("network-io");
    builder.enable_all().on_thread_start(move || {
        if yields {
            yield_to_blocks();
        }
    });
    let runtime = builder.build();
    runtime.wrap_err("can't start the threads of the network")
}

/// Keeps views of the newest heads for peers that sync from their states. A thread does it, as the thread that moves the head has no time.
fn recent_states(chain: &Arc<Chain>) -> Result<Arc<RecentStates>> {
    let states = Arc::new(RecentStates::default());
    let (sender, moves) = std::sync::mpsc::sync_channel(1);
    chain.on_head(Box::new(move |_| {
        // A move that waits already stands for this one too.
        let _ = sender.try_send(());
    }));
    let (chain, kept) = (Arc::downgrade(chain), Arc::clone(&states));
    let thread = thread::Builder::new().name("recent-states".to_owned());
    let run = move || {
        while let (Ok(()), Some(chain)) = (moves.recv(), chain.upgrade()) {
            if let Err(fault) = kept.head_moved(&chain) {
                error!(%fault, "Can't keep the state of the head for peers");
            }
        }
    };
    thread
        .spawn(run)
        .wrap_err("can't start the thread of recent states")?;
    Ok(states)
}
