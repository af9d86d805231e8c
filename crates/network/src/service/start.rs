//! How the network begins: sockets, files, the node's record, and then the tasks, joined by channels.

use super::actor::{self, Actor, Input};
use super::bound::Bound;
use super::finder::{self, Counts, Finder, FinderConfig};
use super::transport::Transport;
use super::{
    Inbound, MAX_GOSSIP, MAX_INPUTS, MAX_MESSAGES, MAX_REQUESTS, Network, NetworkConfig, Shared,
};
use super::{range, reachable};
use crate::discovery::BootNode;
use crate::discovery::dns::{self, Dns, DnsConfig, TxtResolver};
use crate::discovery::reach::Reach;
use crate::discovery::shed::shed_floods;
use crate::discovery::v4::{self, DiscoveryConfig, Sockets};
use crate::discovery::v5::{self, V5, V5Config, V5Figures};
use crate::gossip::{self, PoolView};
use crate::nat;
use crate::node::Node;
use crate::peer::{LocalChain, Subprotocol};
use crate::peers::{Event, MAX_NAMED, Roster, RosterConfig, SavedPeers, Source};
use crate::record::{LocalRecord, Record, RecordEntries};
use crate::rlpx::{Hello, Protocol};
use crate::router;
use crate::stats::Stats;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

/// So many saved peers are asked for nodes at the start, if they were seen within this time.
const MAX_SEEDS: usize = 30;
const SEED_AGE_S: u64 = 5 * 24 * 60 * 60;

type Wanted = Vec<(Source, watch::Sender<bool>)>;

/// Packets that v5 read and that wait for v4.
const MAX_FRAMES: usize = 256;

/// Checks that the registered protocols can be offered.
fn check(config: &NetworkConfig) -> Result<()> {
    let eth = config.versions.iter().map(|version| version.length());
    let snap = config.snap.iter().map(|version| version.length());
    let own = eth.max().unwrap_or_default() + snap.max().unwrap_or_default();
    let checked = Subprotocol::check(&config.subprotocols, own);
    checked.map_err(|error| Error::new(ErrorKind::InvalidInput, error))
}

/// Events of registered protocols that may wait. Each peer holds a place for its end.
fn places(config: &NetworkConfig) -> usize {
    MAX_MESSAGES + config.max_peers + MAX_NAMED
}

pub(super) async fn start(
    config: NetworkConfig,
    chain: watch::Receiver<LocalChain>,
    pool: PoolView,
) -> Result<(Network, Inbound)> {
    check(&config)?;
    let bound = Bound::new(&config).await?;
    start_on(bound, config, chain, pool).await
}

/// Starts a network whose sockets are bound.
pub(super) async fn start_on(
    bound: Bound<impl Transport>,
    config: NetworkConfig,
    mut chain: watch::Receiver<LocalChain>,
    pool: PoolView,
) -> Result<(Network, Inbound)> {
    let addresses: Vec<SocketAddr> = bound.tcp().collect();
    let (reach, routed, nat) = learn_addresses(&config, &bound);
    let entries = first_entries(&config, &reach, &chain.borrow_and_update());
    let local = local_record(&config, &entries)?;
    let (record_sender, record) = watch::channel(local.record().clone());
    let saved = saved_peers(&config);
    let (inputs, input_receiver) = mpsc::channel(MAX_INPUTS);
    let sources = [Source::V4, Source::V5, Source::Dns];
    let (wanted, [is_v4_wanting, is_v5_wanting, is_dns_wanting]) = wanted(sources);
    let mut udp = bound.udp;
    let shared = Arc::new(shared(&config, addresses.first().copied()));
    let stats = Arc::clone(&shared.stats);
    let v5_links = V5Links {
        record: record.clone(),
        is_wanting: is_v5_wanting,
        stats: Arc::clone(&stats),
    };
    let sockets = weak_sockets(&udp);
    let v5 = start_v5(&config, &reach, &mut udp, v5_links).await?;
    let v4 = start_v4(&config, seeds(&saved), udp, &record, is_v4_wanting);
    start_shedding(sockets, v5.is_some(), v4.as_ref());
    let dns = start_dns(&config, is_dns_wanting);
    let (requests_sender, requests) = mpsc::channel(MAX_REQUESTS);
    let (gossip_sender, gossip_events) = mpsc::channel(MAX_GOSSIP);
    let (subprotocols_sender, subprotocols) = mpsc::channel(places(&config));
    let (peers_sender, peers) = watch::channel(Arc::from([]));
    tokio::spawn(range::announce(chain.clone(), peers.clone()));
    let links = actor::Links {
        inputs: inputs.clone(),
        chain: chain.clone(),
        requests: requests_sender,
        gossip: gossip_sender,
        subprotocols: subprotocols_sender,
        peers: peers_sender,
        wanted,
    };
    let (roster, path) = (roster(&config, saved), file(&config, "peers"));
    let actor = Actor::new(roster, Arc::clone(&shared), links, path, bound.transport);
    let actor = tokio::spawn(actor.run(input_receiver));

    let v5_figures = v5.as_ref().map(|v5| v5.figures.clone());
    let v4_figures = v4.as_ref().map(|v4| v4.figures.clone());
    let dns_figures = dns.as_ref().map(|dns| dns.figures.clone());
    let counts = Arc::<Counts>::default();
    let tell = || tokio::spawn(reachable::tell(shared, peers.clone(), record.clone()));
    let told = has_public_side(&config, &reach).then(tell);
    let finder = Finder::new(FinderConfig {
        reach,
        local,
        record: record_sender,
        chain,
        inputs: inputs.clone(),
        v4,
        v5,
        dns,
        nat: routed,
        checks_forks: checks_forks(&config),
        counts: Arc::clone(&counts),
    });
    let finder = tokio::spawn(finder.run());
    let tasks = [Some(actor), Some(finder), told].into_iter().flatten();
    name_nodes(config, &inputs).await;
    let report = reporter(&inputs);
    let router = router::start(peers.clone(), report.clone(), Arc::clone(&stats));
    let (gossip, transactions) = gossip::start(gossip::Links {
        peers: peers.clone(),
        events: gossip_events,
        pool,
        report: Box::new(report),
        stats: Arc::clone(&stats),
    });
    let network = Network {
        inputs,
        peers,
        router,
        gossip,
        record,
        addresses,
        stats,
        counts,
        v4: v4_figures,
        v5: v5_figures,
        dns: dns_figures,
        nat,
        tasks: tasks.map(|task| task.abort_handle()).collect(),
    };
    let inbound = Inbound {
        requests,
        transactions,
        subprotocols,
    };
    Ok((network, inbound))
}

/// What this node's record says at first.
fn first_entries(config: &NetworkConfig, reach: &Reach, chain: &LocalChain) -> RecordEntries {
    RecordEntries {
        serves_snap: !config.snap.is_empty(),
        ..finder::entries(reach, chain)
    }
}

/// Where others reach this node; and, if a router opens its ports, what comes from it later, and the way to close them.
fn learn_addresses(
    config: &NetworkConfig,
    bound: &Bound<impl Transport>,
) -> (
    Reach,
    Option<mpsc::Receiver<nat::NatEvent>>,
    Option<nat::NatHandle>,
) {
    let mut reach = bound.reach(&config.advertised);
    let nat = nat::begin(config.nat, bound.interface_ipv4(), &mut reach);
    let (events, handle) = nat.map(|nat| (nat.events, nat.handle)).unzip();
    (reach, events, handle)
}

/// What tells the roster of what happened. It is dropped while the roster has enough to do.
fn reporter(inputs: &mpsc::Sender<Input>) -> impl Fn(Event) + Clone + Send + Sync + 'static {
    let inputs = inputs.clone();
    move |event| {
        let _ = inputs.try_send(Input::Roster(event));
    }
}

/// Says for each source whether it should look for nodes: at first it should.
fn wanted<const N: usize>(sources: [Source; N]) -> (Wanted, [watch::Receiver<bool>; N]) {
    let mut wanted = Vec::new();
    let receivers = sources.map(|source| {
        let (sender, is_wanting) = watch::channel(true);
        wanted.push((source, sender));
        is_wanting
    });
    (wanted, receivers)
}

fn checks_forks(config: &NetworkConfig) -> bool {
    let settings = config.discovery.as_ref();
    settings.is_none_or(|settings| settings.checks_forks)
}

/// Whether nodes far away may connect: others can find this one, and it listens not on loopback alone.
fn has_public_side(config: &NetworkConfig, reach: &Reach) -> bool {
    let mut addresses = reach.tcp_addresses();
    config.discovery.is_some() && addresses.any(|address| !address.ip().is_loopback())
}

/// What v5 is joined to.
struct V5Links {
    record: watch::Receiver<Record>,
    is_wanting: watch::Receiver<bool>,
    stats: Arc<Stats>,
}

/// Starts v5 if it is to run. It reads the sockets then, and what is not v5 goes to v4.
async fn start_v5(
    config: &NetworkConfig,
    reach: &Reach,
    udp: &mut Sockets,
    links: V5Links,
) -> Result<Option<V5>> {
    let Some(settings) = config
        .discovery
        .as_ref()
        .filter(|settings| settings.mode.has_v5())
    else {
        return Ok(None);
    };
    let frames = settings.mode.has_v4().then(|| {
        let (sender, frames) = mpsc::channel(MAX_FRAMES);
        udp.frames = Some(frames);
        sender
    });
    let records = config.boot_nodes.iter().filter_map(BootNode::record);
    if !settings.mode.has_v4() && !config.boot_nodes.is_empty() && records.clone().next().is_none()
    {
        tracing::warn!(
            "Discovery v5 alone can't begin with enode:// boot nodes, and there are no others: name \
             their records (enr:), or run discovery v4 too, which asks for them"
        );
    }
    let given = config.advertised.iter().copied();
    let bound = [
        settings.ipv4.map(|at| IpAddr::V4(*at.ip())),
        settings.ipv6.map(|at| IpAddr::V6(*at.ip())),
    ];
    let mut own = given.chain(bound.into_iter().flatten());
    let v5 = V5Config {
        key: config.key.clone(),
        record: links.record,
        boot_nodes: records.cloned().collect(),
        is_wanting: links.is_wanting,
        stats: links.stats,
        // With v4 its votes decide.
        is_address_voted: !settings.mode.has_v4() && !reach.is_given(),
        limits_subnets: !own.any(v5::is_private_network),
        net_restrict: config.net_restrict.clone(),
        prefers_ipv6: settings.prefers_ipv6,
        frames,
    };
    let v5 = v5::start(udp.ipv4.clone(), udp.ipv6.clone(), v5).await;
    v5.map(Some)
        .map_err(|error| Error::new(error.kind(), format!("can't start discovery v5: {error}")))
}

/// Starts v4 if it is to run.
fn start_v4(
    config: &NetworkConfig,
    seeds: Vec<Node>,
    udp: Sockets,
    record: &watch::Receiver<Record>,
    is_wanting: watch::Receiver<bool>,
) -> Option<v4::Discovery> {
    config
        .discovery
        .as_ref()
        .filter(|settings| settings.mode.has_v4())?;
    let v4 = DiscoveryConfig {
        key: config.key.clone(),
        record: record.clone(),
        boot_nodes: boot_nodes(config).chain(seeds).collect(),
        net_restrict: config.net_restrict.clone(),
        is_wanting,
    };
    Some(v4::start(udp, v4))
}

/// Tells the actor the nodes that the operator names.
async fn name_nodes(config: NetworkConfig, inputs: &mpsc::Sender<Input>) {
    for (source, node) in named(config) {
        let _ = inputs.send(Input::Named(source, node)).await;
    }
}

fn weak_sockets(udp: &Sockets) -> Vec<Weak<UdpSocket>> {
    let sockets = [&udp.ipv4, &udp.ipv6].into_iter().flatten();
    sockets.map(Arc::downgrade).collect()
}

/// Starts to watch for floods of packets. The one of both that reads the sockets counts.
fn start_shedding(sockets: Vec<Weak<UdpSocket>>, has_v5: bool, v4: Option<&v4::Discovery>) {
    match (has_v5, v4) {
        (true, _) => _ = tokio::spawn(shed_floods(sockets, V5Figures::bytes)),
        (false, Some(v4)) => {
            let figures = v4.figures.clone();
            tokio::spawn(shed_floods(sockets, move || figures.bytes()));
        }
        (false, None) => {}
    }
}

/// Starts to read the DNS lists if there are any.
fn start_dns(config: &NetworkConfig, is_wanting: watch::Receiver<bool>) -> Option<Dns> {
    let settings = config
        .discovery
        .as_ref()
        .filter(|settings| !settings.dns_lists.is_empty())?;
    let resolver = Arc::new(TxtResolver::new(settings.dns_server));
    let resolve = move |name: String| {
        let resolver = Arc::clone(&resolver);
        async move { resolver.texts(&name).await }
    };
    let dns = DnsConfig {
        lists: settings.dns_lists.clone(),
        is_wanting,
        net_restrict: config.net_restrict.clone(),
        prefers_ipv6: settings.prefers_ipv6,
        path: file(config, "dns"),
    };
    Some(dns::start(dns, resolve))
}

fn file(config: &NetworkConfig, name: &str) -> Option<PathBuf> {
    config.folder.as_ref().map(|folder| folder.join(name))
}

fn unix_time() -> std::time::Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// The record of this node. If its file can't be used, the node runs without: its number rises nevertheless, with the time.
fn local_record(config: &NetworkConfig, entries: &RecordEntries) -> Result<LocalRecord> {
    let unix_ms = u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX);
    if let Some(path) = file(config, "record") {
        let key = config.key.clone();
        match LocalRecord::load_or_create(&path, key, entries, unix_ms) {
            Ok(local) => return Ok(local),
            Err(error) => tracing::warn!(%error, "Starting without the file of this node's record"),
        }
    }
    let local = LocalRecord::in_memory(config.key.clone(), entries, unix_ms);
    local.map_err(Error::other)
}

fn saved_peers(config: &NetworkConfig) -> SavedPeers {
    let saved = file(config, "peers").map(|path| SavedPeers::load(&path));
    let saved = saved.map(|saved| {
        saved.unwrap_or_else(|error| {
            tracing::warn!(%error, "Starting without saved peers");
            SavedPeers::default()
        })
    });
    saved.unwrap_or_default()
}

/// Random saved peers that were seen lately and take part in discovery.
fn seeds(saved: &SavedPeers) -> Vec<Node> {
    let oldest_s = unix_time().as_secs().saturating_sub(SEED_AGE_S);
    let peers = saved.best().into_iter();
    let fresh = peers.filter(|peer| peer.last_seen_s >= oldest_s && peer.candidate.udp_port != 0);
    let nodes = fresh.map(|peer| {
        let (id, address) = (peer.candidate.id, peer.candidate.address);
        Node::at(id, address.ip(), address.port(), peer.candidate.udp_port)
    });
    nodes.choose_multiple(&mut SmallRng::from_os_rng(), MAX_SEEDS)
}

fn boot_nodes(config: &NetworkConfig) -> impl Iterator<Item = Node> {
    let settings = config.discovery.as_ref();
    let prefers_ipv6 = settings.is_some_and(|it| it.prefers_ipv6 && it.ipv6.is_some());
    let nodes = config.boot_nodes.iter();
    let allowed = &config.net_restrict;
    nodes.filter_map(move |node| node.node_preferring(prefers_ipv6, allowed))
}

fn shared(config: &NetworkConfig, address: Option<SocketAddr>) -> Shared {
    let eth = config.versions.iter();
    let eth = eth.map(|version| Protocol::new("eth", version.number(), version.length()));
    let snap = config.snap.iter();
    let snap = snap.map(|version| Protocol::new("snap", version.number(), version.length()));
    let registered = config.subprotocols.iter();
    let registered = registered.map(|one| Protocol::new(&one.name, one.version, one.length));
    let protocols: Vec<Protocol> = eth.chain(snap).chain(registered).collect();
    let capabilities = protocols.iter().map(|protocol| protocol.capability.clone());
    Shared {
        hello: Hello {
            version: crate::rlpx::hello::VERSION,
            client: config.client.clone(),
            capabilities: capabilities.collect(),
            port: address.map_or(0, |address| address.port()),
            id: config.key.id(),
        },
        stats: Arc::new(Stats::new(&protocols)),
        protocols,
        key: config.key.clone(),
        net_restrict: config.net_restrict.clone(),
        is_reached: AtomicBool::new(false),
    }
}

fn roster(config: &NetworkConfig, saved: SavedPeers) -> Roster {
    let roster_config = RosterConfig {
        own: config.key.id(),
        own_addresses: Vec::new(),
        max_peers: config.max_peers,
        inbound_percent: config.inbound_percent,
        net_restrict: config.net_restrict.clone(),
        filter: config.filter.clone(),
        epoch_s: unix_time().as_secs(),
    };
    Roster::new(roster_config, saved, SmallRng::from_os_rng())
}

/// The nodes that the roster keeps, with where they come from. Boot nodes that take no connections are for discovery alone.
fn named(config: NetworkConfig) -> impl Iterator<Item = (Source, Node)> {
    let boot: Vec<Node> = boot_nodes(&config).collect();
    let boot = boot.into_iter().filter(|node| node.tcp != 0);
    let of = |source| move |node| (source, node);
    let static_nodes = config.static_nodes.into_iter().map(of(Source::Static));
    let trusted = config.trusted_nodes.into_iter().map(of(Source::Trusted));
    static_nodes
        .chain(trusted)
        .chain(boot.map(of(Source::Boot)))
}
