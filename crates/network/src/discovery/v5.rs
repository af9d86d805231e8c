//! Discovery v5, by the crate `discv5`: the second table, whose packets are encrypted and whose nodes are records.
//!
//! ```text
//!   socket --> [ discv5 ] -- packets that are not v5 --> v4
//!                 |  ^  \-- records --> checked for their chain by the caller
//!     look-ups ---+  +-- this node's record, whenever it changes
//! ```
//!
//! The consensus layer shares this network. Its nodes stay out of the table, and a record without `eth` is no candidate. Look-ups are
//! made only while candidates are wanted.
//!
//! Nodes outside of the networks with which this node deals are no candidates, and look-ups pass them over. One that writes first is
//! answered: the crate reads the sockets, and its filter of packets knows no networks. Such a node may come into the table. It is taken
//! out when an event of the crate names it, and before each look-up, because events can be lost.
//!
//! Two of the crate's limits are off, because both ban an address for what any host can send in its name: the number of packets of an
//! address, and the number of node ids, which a packet carries unproved. What remains is a limit for all packets that were not asked
//! for; answers pass. Nor does the crate take this node's address back out of the record: the record has one owner, which is not it.
//!
//! Spec: devp2p `discv5/discv5-wire.md`, `discv5-theory.md`.

use super::v4::{DiscoveryEvent, FoundNode, Frame};
use crate::key::NodeKey;
use crate::record::{Record, signer};
use crate::stats::{Stats, Timed};
use crate::subnet::NetRestrict;
use discv5::{ConfigBuilder, Discv5, Enr, Event, ListenConfig, QueryError, RateLimiterBuilder};
use enr::NodeId as Position;
use std::io::{Error, Result};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Most found nodes that wait to be read; more are dropped.
const MAX_WAITING_EVENTS: usize = 64;

/// Packets a second that nothing asked for, with those of v4; more are dropped.
const PACKETS_PER_S: u64 = 2000;

/// Each connected node of the table is pinged so often, which also keeps the way through a router open.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Most nodes of a bucket that came by themselves.
const MAX_INCOMING_OF_BUCKET: usize = 8;

/// With fewer connected nodes, look-ups go on without longer pauses: they cost a packet or two.
const FEW_NODES: usize = 16;

/// Between two look-ups: it doubles each time that no new node was found.
const MIN_PAUSE: Duration = Duration::from_secs(4);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The same while no candidates are wanted: the table stays alive.
const IDLE_PAUSE: Duration = Duration::from_secs(30 * 60);

/// What discovery v5 needs to begin.
#[derive(Debug)]
pub struct V5Config {
    /// The node's key.
    pub key: NodeKey,
    /// The node's record, and each later one.
    pub record: watch::Receiver<Record>,
    /// Nodes to ask first.
    pub boot_nodes: Vec<Record>,
    /// Whether nodes are looked for.
    pub is_wanting: watch::Receiver<bool>,
    /// Whether other nodes decide on this node's address: [`DiscoveryEvent::Decided`] says so then.
    pub is_address_voted: bool,
    /// Whether nodes of one subnet count as one owner's, as they do outside of a private network.
    pub limits_subnets: bool,
    /// With which networks this node deals.
    pub net_restrict: NetRestrict,
    /// Whether a node with an address of each family is dialled at that of IPv6.
    pub prefers_ipv6: bool,
    /// Gets how long look-ups take.
    pub stats: Arc<Stats>,
    /// Where packets go that are not v5.
    pub frames: Option<mpsc::Sender<Frame>>,
}

/// Discovery v5 that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct V5 {
    /// What it found.
    pub events: mpsc::Receiver<DiscoveryEvent>,
    /// What it counts.
    pub figures: V5Figures,
    task: JoinHandle<()>,
}

impl V5 {
    /// Begins with this node too.
    pub fn begin_with(&self, record: &Record) {
        if let Some(discv5) = self.figures.discv5.upgrade() {
            begin_with(&discv5, record);
        }
    }
}

/// A node of the table stays as it is: the crate would count it as one that does not answer.
fn begin_with(discv5: &Discv5, record: &Record) {
    let is_known = || discv5.table_entries_id().contains(&record.enr().node_id());
    if !may_be_asked(record.enr()) || is_known() {
        return;
    }
    if let Err(reason) = discv5.add_enr(record.enr().clone()) {
        tracing::debug!(%record, reason, "Discovery v5 can't begin with a node");
    }
}

impl Drop for V5 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What discovery v5 has counted.
#[derive(Clone)]
pub struct V5Figures {
    discv5: Weak<Discv5>,
    foreign: Arc<AtomicU64>,
    /// Those that ended well, and those that failed.
    lookups: Arc<[AtomicU64; 2]>,
}

impl std::fmt::Debug for V5Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (nodes, live) = (self.table_len(), self.live());
        let mut debug = f.debug_struct("V5Figures");
        debug.field("nodes", &nodes).field("live", &live).finish()
    }
}

impl V5Figures {
    /// How many nodes are in the table.
    pub fn table_len(&self) -> usize {
        let discv5 = self.discv5.upgrade();
        discv5.map_or(0, |discv5| discv5.table_entries_id().len())
    }

    /// How many of them are connected.
    pub fn live(&self) -> usize {
        let discv5 = self.discv5.upgrade();
        discv5.map_or(0, |discv5| discv5.connected_peers())
    }

    /// Look-ups that ended well, and those that failed.
    pub fn lookups(&self) -> [u64; 2] {
        // As with the packets.
        self.lookups
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Bytes of all packets that were read by this process.
    pub(crate) fn bytes() -> u64 {
        <Discv5>::metrics().bytes_recv as u64
    }

    /// How many packets were not v5.
    pub fn foreign(&self) -> u64 {
        // A figure for reports: no order with anything else is needed.
        self.foreign.load(Ordering::Relaxed)
    }
}

/// Starts discovery v5 on sockets of which it reads all packets.
///
/// # Errors
/// If the crate refuses its settings or the sockets.
pub async fn start(
    ipv4: Option<Arc<UdpSocket>>,
    ipv6: Option<Arc<UdpSocket>>,
    mut config: V5Config,
) -> Result<V5> {
    restrict(&config.net_restrict)?;
    let mut settings = ConfigBuilder::new(ListenConfig::FromSockets { ipv4, ipv6 });
    let rates = RateLimiterBuilder::new().total_n_every(PACKETS_PER_S, Duration::from_secs(1));
    settings
        .enable_packet_filter()
        .filter_rate_limiter(Some(rates.build().map_err(Error::other)?))
        .filter_max_nodes_per_ip(None)
        .filter_max_bans_per_ip(None)
        .incoming_bucket_limit(MAX_INCOMING_OF_BUCKET)
        .auto_nat_listen_duration(None)
        .ping_interval(PING_INTERVAL)
        .table_filter(may_be_asked);
    if !config.is_address_voted {
        settings.disable_enr_update();
    }
    if config.limits_subnets {
        settings.ip_limit();
    }
    let record = config.record.borrow_and_update().enr().clone();
    let signer = signer(&config.key).map_err(Error::other)?;
    let mut discv5 = Discv5::new(record, signer, settings.build()).map_err(Error::other)?;
    discv5
        .start()
        .await
        .map_err(|error| Error::other(format!("{error:?}")))?;
    for boot in &config.boot_nodes {
        begin_with(&discv5, boot);
    }
    let events = discv5.event_stream().await;
    let events = events.map_err(|error| Error::other(format!("{error:?}")))?;
    let discv5 = Arc::new(discv5);
    let figures = V5Figures {
        discv5: Arc::downgrade(&discv5),
        foreign: Arc::default(),
        lookups: Arc::default(),
    };
    let (report, reports) = mpsc::channel(MAX_WAITING_EVENTS);
    let task = Task {
        foreign: Arc::clone(&figures.foreign),
        lookups: Arc::clone(&figures.lookups),
        discv5,
        report,
        config,
        pause: MIN_PAUSE,
        has_found_new: false,
    };
    Ok(V5 {
        events: reports,
        figures,
        task: tokio::spawn(task.run(events)),
    })
}

/// The networks with which this process deals. The crate's filter is a bare function, so that it can't be a network's own.
static NET_RESTRICT: OnceLock<NetRestrict> = OnceLock::new();

/// Restricts discovery v5 from now on, or leaves it unrestricted.
///
/// # Errors
/// If something else holds in this process.
fn restrict(net_restrict: &NetRestrict) -> Result<()> {
    match NET_RESTRICT.get_or_init(|| net_restrict.clone()) == net_restrict {
        true => Ok(()),
        false => Err(Error::other(
            "another node of this process restricts discovery v5 to other networks: one process has one restriction",
        )),
    }
}

/// Which nodes may enter the table and are asked in look-ups: those of the networks with which this node deals, but for nodes of
/// the consensus layer, which have `eth2` and no `eth`.
fn may_be_asked(enr: &Enr) -> bool {
    let is_consensus_node = enr.get_raw_rlp("eth").is_none() && enr.get_raw_rlp("eth2").is_some();
    !is_consensus_node
        && NET_RESTRICT
            .get()
            .is_none_or(|allowed| is_within(enr, allowed))
}

/// Whether the node is in the networks with each of its addresses: the crate chooses at which of them it asks.
fn is_within(enr: &Enr, allowed: &NetRestrict) -> bool {
    let ips = [enr.ip4().map(IpAddr::V4), enr.ip6().map(IpAddr::V6)];
    ips.into_iter().flatten().all(|ip| allowed.allows(ip))
}

struct Task {
    discv5: Arc<Discv5>,
    report: mpsc::Sender<DiscoveryEvent>,
    config: V5Config,
    foreign: Arc<AtomicU64>,
    lookups: Arc<[AtomicU64; 2]>,
    pause: Duration,
    has_found_new: bool,
}

type Found = std::result::Result<Vec<Enr>, QueryError>;

impl Task {
    async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let (mut may_change, mut may_want) = (true, true);
        // One look-up at a time: its end comes out of this channel.
        let (ended, mut ends) = mpsc::channel::<(Instant, Found)>(1);
        let mut next_lookup = Some(Instant::now());
        while !self.report.is_closed() {
            let is_due = async {
                match next_lookup {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.take(event),
                    None => return,
                },
                () = is_due => {
                    next_lookup = None;
                    self.shut_out_all();
                    let (lookup, ended, began) = (self.look_up(), ended.clone(), Instant::now());
                    tokio::spawn(async move { ended.send((began, lookup.await)).await });
                }
                Some((began, found)) = ends.recv() => {
                    let [well, failed] = &*self.lookups;
                    let count = if found.is_ok() { well } else { failed };
                    count.fetch_add(1, Ordering::Relaxed);
                    self.config.stats.time(Timed::Lookup, began.elapsed());
                    found.unwrap_or_default().iter().for_each(|enr| self.found(enr));
                    next_lookup = Some(Instant::now() + self.next_pause());
                }
                changed = self.config.is_wanting.changed(), if may_want => {
                    may_want = changed.is_ok();
                    // If one runs, its end sees to the next one.
                    next_lookup = next_lookup.map(|at| at.min(Instant::now() + self.pause));
                }
                changed = self.config.record.changed(), if may_change => {
                    may_change = changed.is_ok();
                    self.set_record();
                }
            }
        }
    }

    /// The crate sends the record that it holds, whatever it did to it meanwhile.
    fn set_record(&mut self) {
        let record = self.config.record.borrow_and_update().enr().clone();
        *self.discv5.external_enr().write() = record;
    }

    fn look_up(&self) -> impl Future<Output = Found> + 'static + use<> {
        self.discv5.find_node(Position::random())
    }

    fn next_pause(&mut self) -> Duration {
        let has_few = self.discv5.connected_peers() < FEW_NODES;
        self.pause = match std::mem::take(&mut self.has_found_new) || has_few {
            true => MIN_PAUSE,
            false => (self.pause * 2).min(MAX_PAUSE),
        };
        let has_room = self.report.capacity() > MAX_WAITING_EVENTS / 2;
        match has_room && *self.config.is_wanting.borrow_and_update() {
            true => self.pause,
            false => IDLE_PAUSE,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::UnrecognizedFrame(frame) => {
                self.foreign.fetch_add(1, Ordering::Relaxed);
                if let Some(frames) = &self.config.frames {
                    // Above what v4 can read, packets are lost, as they would be in the socket.
                    let _ = frames.try_send((frame.src_address, frame.packet));
                }
            }
            Event::Discovered(enr) => self.found(&enr),
            Event::SessionEstablished(enr, from) => self.established(&enr, from.ip()),
            Event::NodeInserted { node_id, .. } => self.inserted(node_id),
            Event::SocketUpdated(address) => {
                self.set_record();
                let _ = self.report.try_send(DiscoveryEvent::Decided(address));
            }
            // A TalkRequest that is dropped is answered empty.
            _ => {}
        }
    }

    /// A node is in the table. One that made a session by itself comes there without the filter.
    fn inserted(&mut self, node: Position) {
        let record = self.discv5.find_enr(&node);
        let is_allowed = |enr: &Enr| is_within(enr, &self.config.net_restrict);
        match record.as_ref().is_none_or(is_allowed) {
            true => self.has_found_new = true,
            false => drop(self.discv5.remove_node(&node)),
        }
    }

    /// A node at `from` has a session, whatever its record says of its address.
    fn established(&self, enr: &Enr, from: IpAddr) {
        match self.config.net_restrict.allows(from) {
            true => self.found(enr),
            false => drop(self.discv5.remove_node(&enr.node_id())),
        }
    }

    /// Takes all nodes outside of the networks out of the table.
    fn shut_out_all(&self) {
        if self.config.net_restrict.is_restricted() {
            let all = self.discv5.table_entries_enr().into_iter();
            for enr in all.filter(|enr| !is_within(enr, &self.config.net_restrict)) {
                self.discv5.remove_node(&enr.node_id());
            }
        }
    }

    /// A record came. It is signed; whether the node answers, a dial shows.
    fn found(&self, enr: &Enr) {
        if enr.get_raw_rlp("eth").is_none() {
            return;
        }
        let record = Record::from_enr(enr.clone()).ok();
        let (prefers_ipv6, allowed) = (self.config.prefers_ipv6, &self.config.net_restrict);
        let node = record
            .as_ref()
            .and_then(|record| record.node_preferring(prefers_ipv6, allowed));
        let (Some(record), Some(node)) = (record, node) else {
            return;
        };
        if node.tcp != 0 && record.id() != self.config.key.id() {
            let record = Some(Arc::new(record));
            let found = DiscoveryEvent::Found(FoundNode { node, record });
            let _ = self.report.try_send(found);
        }
    }
}

/// Whether nodes that share a subnet with this address may be many owners': this node is in a private network.
pub(crate) fn is_private_network(address: IpAddr) -> bool {
    !address.is_unspecified() && !crate::address::is_public(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordEntries;
    use niwaki_primitives::B256;
    use niwaki_rules::{Network, fork_filter};

    fn enr(number: u8, ip: [u8; 4]) -> Enr {
        let key = NodeKey::new(B256::repeat_byte(number)).unwrap();
        let genesis = Network::Mainnet.genesis();
        let forks = fork_filter(&genesis.spec, B256::ZERO, 0, 0, 0);
        let entries = RecordEntries {
            ip: Some(ip.into()),
            tcp: 30303,
            udp: 30303,
            fork_id: Some(forks.current()),
            ..RecordEntries::default()
        };
        Record::sign(&key, 1, &entries).unwrap().enr().clone()
    }

    /// A task that deals with 10.0.0.0/8 only, whose table is without that filter.
    fn restricted() -> (Task, mpsc::Receiver<DiscoveryEvent>) {
        let key = NodeKey::new(B256::repeat_byte(1)).unwrap();
        let own = Record::sign(&key, 1, &RecordEntries::default()).unwrap();
        let settings = ConfigBuilder::new(ListenConfig::default()).build();
        let discv5 = Discv5::new(own.enr().clone(), signer(&key).unwrap(), settings);
        let (report, reports) = mpsc::channel(MAX_WAITING_EVENTS);
        let config = V5Config {
            key,
            record: watch::channel(own).1,
            boot_nodes: Vec::new(),
            is_wanting: watch::channel(true).1,
            is_address_voted: false,
            limits_subnets: false,
            net_restrict: "10.0.0.0/8".parse().into_iter().collect(),
            prefers_ipv6: false,
            stats: Arc::new(Stats::new(&[])),
            frames: None,
        };
        let task = Task {
            discv5: Arc::new(discv5.unwrap()),
            report,
            config,
            foreign: Arc::default(),
            lookups: Arc::default(),
            pause: MIN_PAUSE,
            has_found_new: false,
        };
        (task, reports)
    }

    #[tokio::test]
    async fn a_session_from_outside_of_the_networks_makes_no_candidate_whatever_the_record_says() {
        let (mut task, mut reports) = restricted();
        let enr = enr(2, [10, 0, 0, 1]);
        for (from, expected) in [([192, 0, 2, 1], 0), ([10, 0, 0, 1], 1)] {
            task.discv5.add_enr(enr.clone()).unwrap();
            let from = (from, 30303).into();
            task.take(Event::SessionEstablished(enr.clone(), from));
            assert_eq!(usize::from(reports.try_recv().is_ok()), expected, "{from}");
            assert_eq!(task.discv5.table_entries_id().len(), expected, "{from}");
        }
    }

    #[tokio::test]
    async fn nodes_outside_of_the_networks_are_taken_out_of_the_table_with_and_without_an_event() {
        let (mut task, _reports) = restricted();
        let (inside, outside) = (enr(2, [10, 0, 0, 1]), enr(3, [192, 0, 2, 1]));
        task.discv5.add_enr(inside.clone()).unwrap();
        for has_event in [true, false] {
            task.discv5.add_enr(outside.clone()).unwrap();
            match has_event {
                true => task.take(Event::NodeInserted {
                    node_id: outside.node_id(),
                    replaced: None,
                }),
                false => task.shut_out_all(),
            }
            assert_eq!(task.discv5.table_entries_id(), [inside.node_id()]);
        }
    }
}
