//! The network as it runs: sockets and tasks, and one actor around the roster, which decides.
//!
//! ```text
//!   listener --Incoming-->  actor (roster)  --Dial-->  a task per connection: TCP, RLPx, Hellos
//!                            ^   |  verdict                      |
//!                            |   +--Accept | Refuse------------> |  Status, then the peer's two tasks
//!                            +----Greeted, Up, Range, Closed-----+
//! ```
//!
//! The rest of the node holds a [`Network`]: it reads the list of peers, which is replaced whenever it changes, and sends commands.

mod actor;
mod connection;
mod range;

use crate::gossip::{self, GossipHandle, PoolView, ReceivedBatch};
use crate::key::NodeKey;
use crate::peer::{InboundRequest, LocalChain, Peer};
use crate::peers::{Ban, Candidate, Departure, Event, PeerView, Roster};
use crate::peers::{RosterConfig, SavedPeers};
use crate::rlpx::{Hello, Protocol};
use crate::router::{self, RouterHandle};
use crate::wire::EthVersion;
use actor::Actor;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

/// Inputs that may wait for the actor.
const MAX_INPUTS: usize = 1024;
/// Requests of all peers that may wait for the threads that answer.
const MAX_REQUESTS: usize = 256;
/// Messages of gossip that may wait for the pool.
const MAX_GOSSIP: usize = 256;
/// How long the end of all connections may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a thread waits for a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How the network is started.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// This node's key.
    pub key: NodeKey,
    /// Where it listens for connections; `None` to only dial.
    pub listen: Option<SocketAddr>,
    /// The name that peers see.
    pub client: String,
    /// The versions of `eth` that are offered.
    pub versions: Vec<EthVersion>,
    /// Slots for peers.
    pub max_peers: usize,
    /// At most so many percent of the slots are for nodes that connect by themselves.
    pub inbound_percent: usize,
    /// Nodes that are dialled for ever.
    pub static_nodes: Vec<Candidate>,
    /// Nodes beyond all limits.
    pub trusted_nodes: Vec<Candidate>,
    /// Nodes that are dialled when others are lacking.
    pub boot_nodes: Vec<Candidate>,
    /// The file of saved peers.
    pub saved: Option<PathBuf>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    key: NodeKey,
    hello: Hello,
    protocols: Vec<Protocol>,
}

/// A running network.
#[derive(Debug)]
pub struct Network {
    inputs: mpsc::Sender<actor::Input>,
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    address: Option<SocketAddr>,
    router: RouterHandle,
    gossip: GossipHandle,
}

/// What comes out of a network.
#[derive(Debug)]
pub struct Inbound {
    /// What peers ask, for the threads that answer.
    pub requests: mpsc::Receiver<InboundRequest>,
    /// Transactions of peers, for the pool.
    pub transactions: mpsc::Receiver<ReceivedBatch>,
}

/// What the roster knows, for the operator.
#[derive(Clone, Debug, Default)]
pub struct RosterReport {
    /// The peers.
    pub peers: Vec<PeerView>,
    /// The bans in force.
    pub bans: Vec<Ban>,
    /// The last departures, the oldest first.
    pub departures: Vec<Departure>,
    /// The roster's clock, in milliseconds.
    pub now_ms: u64,
}

impl Network {
    /// Starts the network on the calling runtime. `chain` is what this node says of its own chain, as it changes. Gossip begins with
    /// [`GossipHandle::set_syncing`].
    ///
    /// # Errors
    /// If it can't listen.
    pub async fn start(
        config: NetworkConfig,
        chain: watch::Receiver<LocalChain>,
        pool: PoolView,
    ) -> std::io::Result<(Self, Inbound)> {
        let listener = match config.listen {
            Some(address) => Some(TcpListener::bind(address).await?),
            None => None,
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let shared = Arc::new(shared(&config, address));
        let roster = roster(&config, address);
        let (inputs, input_receiver) = mpsc::channel(MAX_INPUTS);
        let (requests_sender, requests) = mpsc::channel(MAX_REQUESTS);
        let (gossip_sender, gossip_events) = mpsc::channel(MAX_GOSSIP);
        let (peers_sender, peers) = watch::channel(Arc::from([]));
        tokio::spawn(range::announce(chain.clone(), peers.clone()));
        let links = actor::Links {
            inputs: inputs.clone(),
            chain,
            requests: requests_sender,
            gossip: gossip_sender,
            peers: peers_sender,
        };
        let actor = Actor::new(roster, shared, links, config.saved);
        tokio::spawn(actor.run(input_receiver, listener));
        for event in named(config.static_nodes, config.trusted_nodes, config.boot_nodes) {
            let _ = inputs.send(actor::Input::Roster(event)).await;
        }
        let reports = inputs.clone();
        let report = move |event| {
            let _ = reports.try_send(actor::Input::Roster(event));
        };
        let router = router::start(peers.clone(), report.clone());
        let (gossip, transactions) = gossip::start(gossip::Links {
            peers: peers.clone(),
            events: gossip_events,
            pool,
            report: Box::new(report),
        });
        let network = Self {
            inputs,
            peers,
            address,
            router,
            gossip,
        };
        let inbound = Inbound {
            requests,
            transactions,
        };
        Ok((network, inbound))
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The peers, as they change: a new list when one comes, goes, or says that its range of blocks changed.
    pub fn peers(&self) -> watch::Receiver<Arc<[Arc<Peer>]>> {
        self.peers.clone()
    }

    /// The router: asks peers for what a job needs.
    pub fn router(&self) -> RouterHandle {
        self.router.clone()
    }

    /// Gossip of transactions.
    pub fn gossip(&self) -> GossipHandle {
        self.gossip.clone()
    }

    /// Gives the roster an event: a node that was found, a command of the operator, how a peer behaved. Events are dropped while
    /// more wait than the actor can take.
    pub fn send(&self, event: Event) {
        let _ = self.inputs.try_send(actor::Input::Roster(event));
    }

    /// What the roster knows; empty if the network has stopped.
    pub async fn report(&self) -> RosterReport {
        let (sender, report) = oneshot::channel();
        let reply = |report| drop(sender.send(report));
        let _ = self
            .inputs
            .send(actor::Input::Report(Box::new(reply)))
            .await;
        report.await.unwrap_or_default()
    }

    /// [`Self::report`] for a thread that waits, at most 5 s, and does not belong to the network's runtime.
    pub fn report_blocking(&self) -> RosterReport {
        let (sender, report) = std::sync::mpsc::sync_channel(1);
        let reply = move |report| drop(sender.send(report));
        let _ = self.inputs.try_send(actor::Input::Report(Box::new(reply)));
        report.recv_timeout(REPORT_TIMEOUT).unwrap_or_default()
    }

    /// Ends all connections, which takes a second at most.
    pub async fn stop(&self) {
        let _ = self.inputs.send(actor::Input::Stop).await;
        // The actor drops its end when all is done.
        let _ = tokio::time::timeout(2 * STOP_TIMEOUT, self.inputs.closed()).await;
    }
}

fn shared(config: &NetworkConfig, address: Option<SocketAddr>) -> Shared {
    let protocol = |version: &EthVersion| Protocol::new("eth", version.number(), version.length());
    let protocols: Vec<Protocol> = config.versions.iter().map(protocol).collect();
    let capabilities = protocols.iter().map(|protocol| protocol.capability.clone());
    Shared {
        hello: Hello {
            version: crate::rlpx::hello::VERSION,
            client: config.client.clone(),
            capabilities: capabilities.collect(),
            port: address.map_or(0, |address| address.port()),
            id: config.key.id(),
        },
        protocols,
        key: config.key.clone(),
    }
}

fn roster(config: &NetworkConfig, address: Option<SocketAddr>) -> Roster {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let roster_config = RosterConfig {
        own: config.key.id(),
        own_addresses: address.into_iter().collect(),
        max_peers: config.max_peers,
        inbound_percent: config.inbound_percent,
        epoch_s: epoch.map_or(0, |epoch| epoch.as_secs()),
    };
    let saved = config.saved.as_ref().map(|path| SavedPeers::load(path));
    let saved = saved.map(|saved| {
        saved.unwrap_or_else(|error| {
            tracing::warn!(%error, "Starting without saved peers");
            SavedPeers::default()
        })
    });
    Roster::new(
        roster_config,
        saved.unwrap_or_default(),
        SmallRng::from_os_rng(),
    )
}

fn named(
    static_nodes: Vec<Candidate>,
    trusted: Vec<Candidate>,
    boot: Vec<Candidate>,
) -> impl Iterator<Item = Event> {
    let found = |candidate| Event::Found {
        source: crate::peers::Source::Boot,
        candidate,
    };
    let static_nodes = static_nodes.into_iter().map(Event::AddStatic);
    let trusted = trusted.into_iter().map(Event::AddTrusted);
    static_nodes
        .chain(trusted)
        .chain(boot.into_iter().map(found))
}

#[cfg(test)]
mod tests;
