//! The actor: it owns the roster, gives it events, and carries out what it orders.

use super::transport::{SocketOf, Transport};
use super::{RosterReport, STOP_TIMEOUT, Shared, connection};
use crate::key::NodeId;
use crate::node::{Host, Node};
use crate::peer::{
    Budget, GossipEvent, InboundRequest, LocalChain, Peer, PeerChannels, SubprotocolEvent,
};
use crate::peers::{
    Action, Candidate, ConnId, End, Event, Notice, Offers, Refusal, Roster, SavedPeers, Source,
};
use crate::rlpx::DisconnectReason;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// What the actor receives.
pub(super) enum Input {
    /// Something for the roster alone.
    Roster(Event),
    /// A static, trusted or boot node, whose host may be a name.
    Named(Source, Node),
    /// Both Hellos of a connection have come; the task waits for the verdict.
    Greeted {
        conn: ConnId,
        id: NodeId,
        offers: Offers,
        port: u16,
        verdict: oneshot::Sender<Result<(), Refusal>>,
    },
    /// A connection became a peer.
    Up(ConnId, Arc<Peer>),
    /// A peer says which blocks it has.
    Range,
    /// A connection ended.
    Closed(ConnId, End),
    /// What does the roster know?
    Report(Box<dyn FnOnce(RosterReport) + Send>),
    /// End all connections.
    Stop,
}

/// Where the actor sends.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) chain: watch::Receiver<LocalChain>,
    pub(super) requests: mpsc::Sender<InboundRequest>,
    pub(super) gossip: mpsc::Sender<GossipEvent>,
    pub(super) subprotocols: mpsc::Sender<SubprotocolEvent>,
    pub(super) peers: watch::Sender<Arc<[Arc<Peer>]>>,
    /// Which sources of candidates should look for some.
    pub(super) wanted: Vec<(Source, watch::Sender<bool>)>,
}

pub(super) struct Actor<T: Transport> {
    transport: Arc<T>,
    roster: Roster,
    shared: Arc<Shared>,
    links: Links,
    saved: Option<PathBuf>,
    start: Instant,
    /// Connections that came in and wait for the roster.
    incoming: HashMap<ConnId, SocketOf<T>>,
    /// Connections whose Hellos have come.
    verdicts: HashMap<ConnId, oneshot::Sender<Result<(), Refusal>>>,
    peers: HashMap<ConnId, Arc<Peer>>,
    /// The hosts of named nodes that are DNS names. They are resolved before each dial.
    names: HashMap<NodeId, String>,
    connections: JoinSet<()>,
    budget: Budget,
}

impl<T: Transport> Actor<T> {
    pub(super) fn new(
        roster: Roster,
        shared: Arc<Shared>,
        links: Links,
        saved: Option<PathBuf>,
        transport: T,
    ) -> Self {
        Self {
            transport: Arc::new(transport),
            roster,
            shared,
            links,
            saved,
            start: Instant::now(),
            incoming: HashMap::new(),
            verdicts: HashMap::new(),
            peers: HashMap::new(),
            names: HashMap::new(),
            connections: JoinSet::new(),
            budget: Budget::default(),
        }
    }

    /// Runs until [`Input::Stop`] comes.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let transport = Arc::clone(&self.transport);
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                input = inputs.recv() => match input {
                    None | Some(Input::Stop) => break,
                    Some(input) => self.take(input),
                },
                accepted = transport.accept() => self.accepted(accepted),
                _ = ticks.tick() => self.tick(),
                Some(ended) = self.connections.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        self.shared.stats.count_panic();
                    }
                }
            }
        }
        self.stop().await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn tick(&mut self) {
        self.step(Event::Tick);
        for (source, wanted) in &self.links.wanted {
            let is_wanting = self.roster.wants_candidates(*source);
            wanted.send_if_modified(|was| std::mem::replace(was, is_wanting) != is_wanting);
        }
    }

    /// Gives the roster a named node. Its address is not known yet if its host is a name.
    fn name(&mut self, source: Source, node: Node) {
        let ip = match node.host {
            Host::Ip(ip) => {
                self.names.remove(&node.id);
                if source != Source::Boot && !self.shared.net_restrict.allows(ip) {
                    warn!(node = ?node.id, %ip, "A named node is in no network with which this node deals: it is not dialled");
                }
                ip
            }
            Host::Name(name) => {
                self.names.insert(node.id, name);
                IpAddr::V4(Ipv4Addr::UNSPECIFIED)
            }
        };
        let candidate = Candidate {
            id: node.id,
            address: SocketAddr::new(ip, node.tcp),
            udp_port: node.udp,
        };
        self.step(match source {
            Source::Static => Event::AddStatic(candidate),
            Source::Trusted => Event::AddTrusted(candidate),
            source => Event::Found { source, candidate },
        });
        // Those that found no room, and those that were removed.
        let roster = &self.roster;
        self.names.retain(|id, _| roster.is_named(id));
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Roster(event) => self.step(event),
            Input::Named(source, node) => self.name(source, node),
            Input::Greeted {
                conn,
                id,
                offers,
                port,
                verdict,
            } => {
                self.verdicts.insert(conn, verdict);
                self.step(Event::Greeted {
                    conn,
                    id,
                    offers,
                    port,
                });
            }
            Input::Up(conn, peer) => {
                let offers = offers_of(&peer);
                self.peers.insert(conn, peer);
                self.step(Event::Up { conn, offers });
                self.publish();
            }
            Input::Range => self.publish(),
            Input::Closed(conn, end) => {
                self.verdicts.remove(&conn);
                if self.peers.remove(&conn).is_some() {
                    self.publish();
                }
                self.step(Event::Closed { conn, end });
            }
            Input::Report(reply) => {
                let now_ms = self.now_ms();
                reply(RosterReport {
                    peers: self.roster.peers(now_ms).collect(),
                    bans: self.roster.bans(now_ms).collect(),
                    departures: self.roster.departures().copied().collect(),
                    now_ms,
                });
            }
            Input::Stop => (),
        }
    }

    /// Replaces the list of peers that others see.
    fn publish(&self) {
        let peers: Vec<_> = self.peers.values().map(Arc::clone).collect();
        self.links.peers.send_replace(peers.into());
    }

    fn accepted(&mut self, accepted: std::io::Result<SocketOf<T>>) {
        match accepted {
            Ok(socket) => {
                let (conn, address) = (self.roster.next_conn(), socket.remote);
                self.incoming.insert(conn, socket);
                self.step(Event::Incoming { conn, address });
            }
            Err(error) => debug!(%error, "Can't accept a connection"),
        }
    }

    fn step(&mut self, event: Event) {
        for action in self.roster.step(event, self.now_ms()) {
            self.act(action);
        }
        let stats = &self.shared.stats;
        stats.set_dial_results(self.roster.dial_figures());
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial {
                conn,
                source,
                candidate,
            } => {
                self.shared.stats.count_dial(source);
                let context = self.context(conn);
                let name = self.names.get(&candidate.id).cloned();
                let transport = Arc::clone(&self.transport);
                self.connections
                    .spawn(connection::dial(context, transport, candidate, name));
            }
            Action::Accept(conn) => {
                if let Some(verdict) = self.verdicts.remove(&conn) {
                    let _ = verdict.send(Ok(()));
                } else if let Some(socket) = self.incoming.remove(&conn) {
                    let context = self.context(conn);
                    self.connections.spawn(connection::answer(context, socket));
                }
            }
            Action::Refuse { conn, refusal } => {
                // Before the handshake a connection ends without a word: the stream is dropped.
                self.incoming.remove(&conn);
                if let Some(verdict) = self.verdicts.remove(&conn) {
                    let _ = verdict.send(Err(refusal));
                }
                // It was cut while its status was on the way.
                if let Some(peer) = self.peers.remove(&conn) {
                    peer.disconnect(refusal.reason());
                }
            }
            Action::Disconnect { conn, reason, .. } => {
                if let Some(verdict) = self.verdicts.remove(&conn) {
                    let _ = verdict.send(Err(Refusal::Unknown));
                }
                if let Some(peer) = self.peers.remove(&conn) {
                    peer.disconnect(reason);
                    self.publish();
                }
            }
            Action::Log(notice) => log(notice),
            Action::Save(text) => self.save(&text),
        }
    }

    fn context(&self, conn: ConnId) -> connection::Context {
        connection::Context {
            conn,
            shared: Arc::clone(&self.shared),
            actor: self.links.inputs.clone(),
            channels: PeerChannels {
                chain: self.links.chain.clone(),
                requests: self.links.requests.clone(),
                gossip: self.links.gossip.clone(),
                subprotocols: self.links.subprotocols.clone(),
                budget: self.budget.clone(),
                stats: Arc::clone(&self.shared.stats),
            },
        }
    }

    fn save(&self, text: &str) {
        if let Some(path) = &self.saved
            && let Err(error) = SavedPeers::write(path, text)
        {
            warn!(%error, path = %path.display(), "Can't write the saved peers");
        }
    }

    async fn stop(mut self) {
        let text = self.roster.saved_text(self.now_ms());
        self.save(&text);
        self.verdicts.clear();
        for peer in self.peers.values() {
            peer.disconnect(DisconnectReason::ClientQuitting);
        }
        let ended = async { while self.connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_TIMEOUT, ended).await;
    }
}

fn offers_of(peer: &Peer) -> Offers {
    Offers {
        cells: peer.info.version >= crate::wire::EthVersion::Eth72,
        ..Offers::default()
    }
}

fn log(notice: Notice) {
    match notice {
        Notice::Cut { .. } | Notice::Banned { .. } | Notice::HostBanned { .. } => {
            debug!("{notice}")
        }
        Notice::FewPeers { .. } => info!("{notice}"),
        Notice::OwnFault { .. } | Notice::CutsStopped { .. } | Notice::TooManyNamed { .. } => {
            warn!("{notice}");
        }
    }
}
