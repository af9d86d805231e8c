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
mod bound;
mod connection;
mod finder;
mod range;
mod reachable;
mod start;
mod transport;

use crate::discovery::dns::{DnsFigures, DnsQueries};
use crate::discovery::v4::{Dropped, V4Figures};
use crate::discovery::v5::V5Figures;
use crate::discovery::{BootNode, DiscoverySettings};
use crate::gossip::{GossipHandle, PoolView, ReceivedBatch};
use crate::key::NodeKey;
use crate::nat::{NatHandle, NatMethod};
use crate::node::Node;
use crate::peer::{InboundRequest, LocalChain, Peer, Subprotocol, SubprotocolEvent};
use crate::peers::{Ban, Departure, Event, NodeFilter, PeerView, Source};
use crate::record::Record;
use crate::rlpx::{Hello, Protocol};
use crate::router::RouterHandle;
use crate::stats::Stats;
use crate::subnet::NetRestrict;
use crate::wire::{EthVersion, SnapVersion};
use finder::Counts;
use niwaki_primitives::Bytes;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

/// Inputs that may wait for the actor.
const MAX_INPUTS: usize = 1024;
/// Requests of all peers that may wait for the threads that answer.
const MAX_REQUESTS: usize = 256;
/// Messages of gossip that may wait for the pool.
const MAX_GOSSIP: usize = 256;
/// Messages of registered protocols that may wait for the owner; each peer's end has a place besides.
const MAX_MESSAGES: usize = 256;
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
    /// A second address, of the other family.
    pub listen_also: Option<SocketAddr>,
    /// The name that peers see.
    pub client: String,
    /// The versions of `eth` that are offered.
    pub versions: Vec<EthVersion>,
    /// The versions of `snap` that are offered; none if this node serves no state.
    pub snap: Vec<SnapVersion>,
    /// Protocols of the owner that are offered beside `eth`. Their peers and messages come out of [`Inbound::subprotocols`].
    pub subprotocols: Vec<Subprotocol>,
    /// Slots for peers.
    pub max_peers: usize,
    /// At most so many percent of the slots are for nodes that connect by themselves.
    pub inbound_percent: usize,
    /// Nodes that are dialled for ever. A name is resolved before each dial.
    pub static_nodes: Vec<Node>,
    /// Nodes beyond all limits.
    pub trusted_nodes: Vec<Node>,
    /// Nodes to begin with. They are dialled when others are lacking, with or without discovery.
    pub boot_nodes: Vec<BootNode>,
    /// How nodes are found; `None`: they are not, and others don't find this one.
    pub discovery: Option<DiscoverySettings>,
    /// With which networks this node deals; nodes elsewhere are neither dialled nor let in.
    pub net_restrict: NetRestrict,
    /// Which nodes may be peers.
    pub filter: NodeFilter,
    /// The addresses at which others reach this node, if the operator knows: at most one of each family counts.
    pub advertised: Vec<IpAddr>,
    /// How this node finds the address that others see, if `advertised` has none.
    pub nat: NatMethod,
    /// The folder of the files that outlive a restart: `peers`, `record` and `dns`. `None` to keep nothing.
    pub folder: Option<PathBuf>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    key: NodeKey,
    hello: Hello,
    protocols: Vec<Protocol>,
    stats: Arc<Stats>,
    net_restrict: NetRestrict,
    /// Whether a node connected from a public address and said Hello.
    is_reached: AtomicBool,
}

/// A running network. Dropped, it ends at once.
#[derive(Debug)]
pub struct Network {
    inputs: mpsc::Sender<actor::Input>,
    peers: watch::Receiver<Arc<[Arc<Peer>]>>,
    record: watch::Receiver<Record>,
    addresses: Vec<SocketAddr>,
    router: RouterHandle,
    gossip: GossipHandle,
    stats: Arc<Stats>,
    counts: Arc<Counts>,
    v4: Option<V4Figures>,
    v5: Option<V5Figures>,
    dns: Option<DnsFigures>,
    nat: Option<NatHandle>,
    /// The actor, the finder and others.
    tasks: Vec<AbortHandle>,
}

/// What comes out of a network.
#[derive(Debug)]
pub struct Inbound {
    /// What peers ask, for the threads that answer.
    pub requests: mpsc::Receiver<InboundRequest>,
    /// Transactions of peers, for the pool.
    pub transactions: mpsc::Receiver<ReceivedBatch>,
    /// The peers that speak registered protocols, and what they send. While it is full, their connections are not read. Dropped, such
    /// messages are.
    pub subprotocols: mpsc::Receiver<SubprotocolEvent>,
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

/// What discovery has counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryFigures {
    /// Nodes in the table of v4; `None` if it does not run.
    pub v4_table: Option<usize>,
    /// Packets that v4 dropped, by reason.
    pub v4_dropped: Vec<(Dropped, u64)>,
    /// Packets that v4 received, then those that it sent, by their names.
    pub v4_packets: Vec<[(&'static str, u64); 2]>,
    /// Requests of v4 whose answers are awaited.
    pub v4_in_flight: usize,
    /// Nodes in the table of v5; `None` if it does not run.
    pub v5_table: Option<usize>,
    /// Those of them that are connected.
    pub v5_live: Option<usize>,
    /// Look-ups of v5 that ended well, and those that failed.
    pub v5_lookups: Option<[u64; 2]>,
    /// Packets that v5 read and that are not v5.
    pub v5_foreign: Option<u64>,
    /// Queries for DNS lists; `None` if there are no lists.
    pub dns_queries: Option<DnsQueries>,
    /// Found nodes that became candidates. A node counts each time that it is found.
    pub found: u64,
    /// Those that do not say which chain they are of.
    pub unchecked: u64,
    /// Those of other chains, which are not dialled.
    pub other_chain: u64,
}

impl Network {
    /// Starts the network on the calling runtime. `chain` is what this node says of its own chain, as it changes. Gossip begins with
    /// [`GossipHandle::set_syncing`].
    ///
    /// # Errors
    /// If it can't listen, can't bind the sockets of discovery, or can't offer a registered protocol.
    pub async fn start(
        config: NetworkConfig,
        chain: watch::Receiver<LocalChain>,
        pool: PoolView,
    ) -> std::io::Result<(Self, Inbound)> {
        start::start(config, chain, pool).await
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Where it listens on IPv6.
    pub fn address_ipv6(&self) -> Option<SocketAddr> {
        let mut addresses = self.addresses.iter();
        addresses.find(|address| address.is_ipv6()).copied()
    }

    /// The node's record, as it changes.
    pub fn record(&self) -> watch::Receiver<Record> {
        self.record.clone()
    }

    /// This node as others dial it, with the address that its record says now; as long as that says none, with the one on which it
    /// listens.
    pub fn enode(&self) -> Node {
        let record = self.record.borrow();
        let entries = record.entries();
        record.node().unwrap_or_else(|| {
            let ip = self.address().map(|address| address.ip());
            let ip = ip.filter(|ip| !ip.is_unspecified());
            let ip = ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            Node::at(record.id(), ip, entries.tcp, entries.udp)
        })
    }

    /// This node as others dial it by IPv6, if its record says an IPv6 address.
    pub fn enode_ipv6(&self) -> Option<Node> {
        self.record.borrow().node_of(true)
    }

    /// What discovery has counted.
    pub fn discovery(&self) -> DiscoveryFigures {
        let (v4, v5) = (self.v4.as_ref(), self.v5.as_ref());
        DiscoveryFigures {
            v4_table: v4.map(V4Figures::table_len),
            v4_dropped: v4.map(|v4| v4.dropped().to_vec()).unwrap_or_default(),
            v4_packets: v4.map(|v4| v4.packets().to_vec()).unwrap_or_default(),
            v4_in_flight: v4.map_or(0, V4Figures::in_flight),
            v5_table: v5.map(V5Figures::table_len),
            v5_live: v5.map(V5Figures::live),
            v5_lookups: v5.map(V5Figures::lookups),
            v5_foreign: v5.map(V5Figures::foreign),
            dns_queries: self.dns.as_ref().map(DnsFigures::queries),
            found: self.counts.found.load(Ordering::Relaxed),
            unchecked: self.counts.unchecked.load(Ordering::Relaxed),
            other_chain: self.counts.other_chain.load(Ordering::Relaxed),
        }
    }

    /// The peers, as they change: a new list when one comes, goes, or says that its range of blocks changed.
    pub fn peers(&self) -> watch::Receiver<Arc<[Arc<Peer>]>> {
        self.peers.clone()
    }

    /// What is counted.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The router: asks peers for what a job needs.
    pub fn router(&self) -> RouterHandle {
        self.router.clone()
    }

    /// Gossip of transactions.
    pub fn gossip(&self) -> GossipHandle {
        self.gossip.clone()
    }

    /// Sends a message of a registered protocol to all peers that speak it. Returns to how many: those that read too slowly get none.
    pub fn send_to_all(&self, protocol: &str, code: u8, data: &Bytes) -> usize {
        let peers = self.peers.borrow();
        let sent = peers
            .iter()
            .filter(|peer| peer.send_message(protocol, code, data));
        sent.count()
    }

    /// Dials a node for ever from now on. Like [`Self::send`], it is lost while too much waits.
    pub fn add_static(&self, node: Node) {
        self.name(Source::Static, node);
    }

    /// Trusts a node from now on: it is dialled for ever, and beyond all limits.
    pub fn add_trusted(&self, node: Node) {
        self.name(Source::Trusted, node);
    }

    fn name(&self, source: Source, node: Node) {
        let _ = self.inputs.try_send(actor::Input::Named(source, node));
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

    /// Ends all connections and closes what a router opened, which takes two seconds at most.
    pub async fn stop(&self) {
        let connections = async {
            let _ = self.inputs.send(actor::Input::Stop).await;
            // The actor drops its end when all is done.
            let _ = tokio::time::timeout(2 * STOP_TIMEOUT, self.inputs.closed()).await;
        };
        let ports = async {
            if let Some(nat) = &self.nat {
                nat.stop().await;
            }
        };
        tokio::join!(connections, ports);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests;
