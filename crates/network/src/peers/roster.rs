//! The roster: all connections, which of them may become peers, and which have to go. Events in, orders out.
//!
//! ```text
//!   tick -> Dial -----\                                          /-> Up -> (conduct, churn) -> Disconnect
//!                      > handshake -> Greeted -> Accept | Refuse <
//!   Incoming -> Accept/                  (takes a slot)          \-> Closed
//! ```
//!
//! What holds at any time:
//! - at most a configured share of the slots is taken by nodes that connected by themselves; static nodes count as this node's choice;
//! - one session per node: the first whose Hello came stays, and of two that each side dialled at the same moment the one of the greater id;
//! - a connection that the roster refused or ended is forgotten at once, whatever its task still does with the socket;
//! - trusted nodes are beyond limits and scores.
//!
//! | file | what it is |
//! |---|---|
//! | `event` | events and actions |
//! | `notice` | lines for the log |
//! | `throttle` | how often a host may connect |
//! | `admit` | who may connect, who may be dialled |
//! | `upkeep` | what happens every second: cuts, churn, dials, the file |

mod admit;
mod event;
mod notice;
mod throttle;
mod upkeep;

pub use event::{Action, ConnId, End, Event, Offers, Refusal};
pub use notice::Notice;

use super::bans::{Ban, BanTarget, Bans};
use super::dial::{Candidate, DialFigures, DialPlan, Outcome, Source};
use super::filter::{NodeFilter, Remote};
use super::saved::{SavedPeer, SavedPeers};
use super::score::{Conduct, Scores};
use crate::key::NodeId;
use crate::rlpx::DisconnectReason;
use crate::subnet::NetRestrict;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use throttle::Throttle;

/// Most departures that are remembered.
const MAX_DEPARTURES: usize = 100;
/// Most addresses of this node that are remembered.
const MAX_OWN_ADDRESSES: usize = 16;
/// A peer that leaves sooner counts as a dial that failed.
const LASTING_MS: u64 = 60_000;

/// What a roster is made for.
#[derive(Clone, Debug)]
pub struct RosterConfig {
    /// This node.
    pub own: NodeId,
    /// Where this node can be reached, as far as it knows.
    pub own_addresses: Vec<SocketAddr>,
    /// Slots. Trusted nodes take none.
    pub max_peers: usize,
    /// At most so many percent of the slots are for nodes that connect by themselves.
    pub inbound_percent: usize,
    /// With which networks this node deals. It holds for trusted nodes too.
    pub net_restrict: NetRestrict,
    /// Which nodes may be peers.
    pub filter: NodeFilter,
    /// The Unix time, in seconds, at which the roster's clock shows 0.
    pub epoch_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Until both Hellos have come.
    Pending,
    /// Until both Status have come.
    Greeted,
    /// A peer.
    Up,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    stage: Stage,
    /// Where the stage began.
    since_ms: u64,
    address: SocketAddr,
    /// What was dialled; `None` if the other side connected.
    dialled: Option<(Source, Candidate)>,
    /// The port that its Hello names.
    listens: u16,
    /// The node, once it is proved.
    id: Option<NodeId>,
    offers: Offers,
    /// Transactions that it announced first and that were mined.
    mined: u64,
    /// Bytes that it delivered.
    delivered: u64,
    /// Up to when its good minutes are saved.
    saved_ms: u64,
}

impl Session {
    fn is_inbound(&self) -> bool {
        self.dialled.is_none()
    }

    /// Whether the filter lets the node be a peer.
    fn is_permitted(&self, filter: &NodeFilter, id: &NodeId) -> bool {
        let dialled = self.dialled.map(|(_, candidate)| candidate.address.port());
        filter.permits(&Remote {
            id: *id,
            ip: self.address.ip(),
            port: dialled.unwrap_or(self.listens),
            is_dialled: dialled.is_some(),
        })
    }

    fn holds_a_slot(&self) -> bool {
        self.stage != Stage::Pending
    }
}

/// A peer that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The peer.
    pub id: NodeId,
    /// Where it was.
    pub address: SocketAddr,
    /// How the connection ended.
    pub end: End,
    /// When, in milliseconds of the roster's clock.
    pub at_ms: u64,
    /// For how long it was a peer; 0 if its Status never came.
    pub up_ms: u64,
}

/// A peer as the operator sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerView {
    /// The connection.
    pub conn: ConnId,
    /// The peer.
    pub id: NodeId,
    /// Where it is.
    pub address: SocketAddr,
    /// Whether it connected by itself.
    pub is_inbound: bool,
    /// Whether the operator named it static.
    pub is_static: bool,
    /// Whether the operator trusts it.
    pub is_trusted: bool,
    /// Its score, -100 to 100.
    pub score: f64,
    /// Since when it is a peer, in milliseconds of the roster's clock.
    pub since_ms: u64,
}

/// The roster.
#[derive(Debug)]
pub struct Roster {
    config: RosterConfig,
    rng: SmallRng,
    last_conn: u64,
    sessions: BTreeMap<ConnId, Session>,
    by_id: HashMap<NodeId, ConnId>,
    plan: DialPlan,
    scores: Scores,
    bans: Bans,
    saved: SavedPeers,
    throttle: Throttle,
    lacking: Offers,
    departures: VecDeque<Departure>,
    upkeep: upkeep::Upkeep,
}

impl Roster {
    /// A roster without sessions. The saved peers are candidates, the best first. `rng` decides when to dial again and which peer is
    /// exchanged.
    pub fn new(config: RosterConfig, saved: SavedPeers, mut rng: SmallRng) -> Self {
        let mut plan = DialPlan::default();
        let best = saved.best().into_iter();
        for peer in best.filter(|peer| config.net_restrict.allows(peer.candidate.address.ip())) {
            plan.find(Source::Saved, peer.candidate, 0);
        }
        Self {
            config,
            last_conn: 0,
            sessions: BTreeMap::new(),
            by_id: HashMap::new(),
            plan,
            scores: Scores::default(),
            bans: Bans::default(),
            saved,
            throttle: Throttle::default(),
            lacking: Offers::default(),
            departures: VecDeque::new(),
            upkeep: upkeep::Upkeep::new(&mut rng),
            rng,
        }
    }

    /// A number for a connection that came in.
    pub fn next_conn(&mut self) -> ConnId {
        self.last_conn += 1;
        ConnId(self.last_conn)
    }

    /// Takes an event. `now_ms` never goes back; if it does, nothing worse happens than that something is done later.
    pub fn step(&mut self, event: Event, now_ms: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Incoming { conn, address } => {
                actions.push(self.incoming(conn, address, now_ms));
            }
            Event::Resolved { conn, address } => self.resolved(conn, address),
            Event::Greeted {
                conn,
                id,
                offers,
                port,
            } => {
                if let Some(session) = self.sessions.get_mut(&conn) {
                    session.listens = port;
                }
                self.greeted(conn, id, offers, now_ms, &mut actions);
            }
            Event::Up { conn, offers } => self.up(conn, offers, now_ms, &mut actions),
            Event::Closed { conn, end } => {
                self.remove(conn, end, now_ms, &mut actions);
                self.dial(now_ms, &mut actions);
            }
            Event::Found { source, candidate } => {
                if self.may_deal_with(candidate) {
                    self.plan.find(source, candidate, now_ms);
                }
            }
            Event::Conduct { conn, conduct } => {
                self.conduct(conn, conduct, now_ms, &mut actions);
            }
            Event::Delivered { conn, bytes } => {
                if let Some(session) = self.sessions.get_mut(&conn) {
                    session.delivered = session.delivered.saturating_add(bytes);
                }
            }
            Event::Lacking(offers) => self.lacking = offers,
            Event::AddStatic(candidate) => self.name(Source::Static, candidate, &mut actions),
            Event::AddTrusted(candidate) => self.name(Source::Trusted, candidate, &mut actions),
            Event::RemoveStatic(id) => {
                self.plan.unname(Source::Static, id);
                self.cut_node(&id, now_ms, &mut actions);
            }
            Event::RemoveTrusted(id) => {
                self.plan.unname(Source::Trusted, id);
                if self.is_overfull() {
                    self.cut_node(&id, now_ms, &mut actions);
                }
            }
            Event::Ban { target, ms } => self.ban(target, ms, now_ms, &mut actions),
            Event::Lift(target) => {
                self.bans.lift(target);
            }
            Event::FilterChanged => self.cut_unpermitted(now_ms, &mut actions),
            Event::OwnAddress(address) => self.add_own_address(address),
            Event::Tick => self.tick(now_ms, &mut actions),
        }
        actions
    }

    /// How all dials ended so far.
    pub fn dial_figures(&self) -> &DialFigures {
        self.plan.total()
    }

    /// Whether a found node is in a network with which this node deals. Behind a name may be any address.
    fn may_deal_with(&self, candidate: Candidate) -> bool {
        let ip = candidate.address.ip();
        ip.is_unspecified() || self.config.net_restrict.allows(ip)
    }

    fn resolved(&mut self, conn: ConnId, address: SocketAddr) {
        let Some(session) = self.sessions.get_mut(&conn) else {
            return;
        };
        session.address = address;
        if let Some((source, candidate)) = &mut session.dialled {
            candidate.address = address;
            self.plan.resolved(*source, candidate.id, address);
        }
    }

    fn add_own_address(&mut self, address: SocketAddr) {
        let known = &mut self.config.own_addresses;
        if known.contains(&address) {
            return;
        }
        if known.len() >= MAX_OWN_ADDRESSES {
            known.remove(0);
        }
        known.push(address);
    }

    fn name(&mut self, source: Source, candidate: Candidate, actions: &mut Vec<Action>) {
        let is_own = candidate.id == self.config.own;
        if !is_own && !self.plan.name(source, candidate) {
            let notice = Notice::TooManyNamed { id: candidate.id };
            actions.push(Action::Log(notice));
        }
    }

    fn up(&mut self, conn: ConnId, offers: Offers, now_ms: u64, actions: &mut Vec<Action>) {
        let session = self.sessions.get_mut(&conn);
        let Some(session) = session.filter(|session| session.stage != Stage::Pending) else {
            let refusal = Refusal::Unknown;
            actions.push(Action::Refuse { conn, refusal });
            return;
        };
        session.offers = offers;
        if session.stage == Stage::Up {
            return;
        }
        session.stage = Stage::Up;
        (session.since_ms, session.saved_ms) = (now_ms, now_ms);
        if let Some((_, candidate)) = session.dialled {
            let rng = &mut self.rng;
            self.plan
                .end(&candidate.id, Outcome::Connected, now_ms, rng);
        }
        if self.is_on_a_reserved_slot(conn) {
            self.cut(conn, DisconnectReason::TooManyPeers, now_ms, actions);
        }
    }

    fn conduct(&mut self, conn: ConnId, conduct: Conduct, now_ms: u64, actions: &mut Vec<Action>) {
        let peers = self.by_id.len();
        let Some(session) = self.sessions.get_mut(&conn) else {
            return;
        };
        if conduct == Conduct::FirstAnnouncer {
            session.mined = session.mined.saturating_add(1);
        }
        let Some(id) = session
            .id
            .filter(|id| !self.plan.is_named(Source::Trusted, id))
        else {
            return;
        };
        let own_fault = self.scores.report(&id, conduct, peers, now_ms);
        if let Some(fault) = own_fault {
            actions.push(Action::Log(Notice::OwnFault {
                failed: fault.failed,
                peers: fault.peers,
            }));
        }
        if conduct.is_fault() {
            self.enforce(conn, now_ms, actions);
        }
    }

    /// Forgets a connection, with all that follows from how it ended.
    fn remove(&mut self, conn: ConnId, end: End, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(session) = self.sessions.remove(&conn) else {
            return;
        };
        let outcome = outcome_of(end);
        if let Some((_, candidate)) = session.dialled
            && session.stage != Stage::Up
        {
            self.plan.end(&candidate.id, outcome, now_ms, &mut self.rng);
        }
        let Some(id) = session.id else { return };
        self.by_id.remove(&id);
        self.scores.depart(&id, now_ms);
        let up_ms = match session.stage {
            Stage::Up => now_ms.saturating_sub(session.since_ms),
            Stage::Pending | Stage::Greeted => 0,
        };
        if session.stage == Stage::Up {
            let outcome = match outcome {
                Outcome::Failed if up_ms >= LASTING_MS => Outcome::Parted,
                other => other,
            };
            self.plan.rest(&id, outcome, now_ms, &mut self.rng);
            self.save(&session, id, now_ms);
        }
        if end == End::OtherChain {
            self.saved.remove(&id);
        }
        self.ban_if_due(id, Some(session.address.ip()), now_ms, actions);
        if self.departures.len() >= MAX_DEPARTURES {
            self.departures.pop_front();
        }
        self.departures.push_back(Departure {
            id,
            address: session.address,
            end,
            at_ms: now_ms,
            up_ms,
        });
    }

    /// Ends a session.
    fn cut(
        &mut self,
        conn: ConnId,
        reason: DisconnectReason,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        let Some(id) = self.sessions.get(&conn).and_then(|session| session.id) else {
            return;
        };
        self.remove(conn, End::Ours(reason), now_ms, actions);
        actions.push(Action::Disconnect { conn, id, reason });
    }

    fn cut_node(&mut self, id: &NodeId, now_ms: u64, actions: &mut Vec<Action>) {
        if let Some(conn) = self.by_id.get(id).copied() {
            self.cut(conn, DisconnectReason::Requested, now_ms, actions);
        }
    }

    /// Ends the sessions with nodes that may not be peers any more.
    fn cut_unpermitted(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let is_unpermitted = |session: &Session| {
            let id = session.id;
            id.is_some_and(|id| !session.is_permitted(&self.config.filter, &id))
        };
        let sessions = self.sessions.iter();
        let cut = sessions.filter(|(_, session)| is_unpermitted(session));
        let cut: Vec<ConnId> = cut.map(|(conn, _)| *conn).collect();
        for conn in cut {
            self.cut(conn, DisconnectReason::Requested, now_ms, actions);
        }
    }

    fn ban(&mut self, target: BanTarget, ms: u64, now_ms: u64, actions: &mut Vec<Action>) {
        self.bans.ban(target, now_ms.saturating_add(ms));
        let sessions = self.sessions.iter();
        let banned = sessions.filter(|(_, session)| {
            let Some(id) = session.id else { return false };
            !self.plan.is_named(Source::Trusted, &id)
                && (self.bans.has_node(&id, now_ms)
                    || self.bans.has_ip(session.address.ip(), now_ms))
        });
        let banned: Vec<ConnId> = banned.map(|(conn, _)| *conn).collect();
        for conn in banned {
            self.cut(conn, DisconnectReason::Requested, now_ms, actions);
        }
    }

    /// Bans a node that has left, if its score asks for it. The operator's own nodes are not banned, and their faults end with their
    /// session: the operator may have no other peer.
    fn ban_if_due(
        &mut self,
        id: NodeId,
        ip: Option<IpAddr>,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        if self.by_id.contains_key(&id) {
            return;
        }
        if self.is_operators(&id) {
            self.scores.forgive(&id, now_ms);
            return;
        }
        let Some(sentence) = self.scores.take_ban(&id, now_ms) else {
            return;
        };
        let until_ms = now_ms.saturating_add(sentence.ms);
        let minutes = sentence.ms / 60_000;
        actions.push(Action::Log(Notice::Banned { id, minutes }));
        self.bans.ban(BanTarget::Node(id), until_ms);
        if !sentence.is_liar {
            return;
        }
        self.saved.remove(&id);
        let host = ip.and_then(|ip| self.bans.ban_liar(id, ip, until_ms));
        if let Some(ip) = host {
            actions.push(Action::Log(Notice::HostBanned { ip }));
        }
    }

    /// Notes a peer for the file: where it was dialled, and its good minutes since the last time.
    fn save(&mut self, session: &Session, id: NodeId, now_ms: u64) -> Option<u64> {
        let (_, candidate) = session.dialled?;
        let score = self.scores.value(&id, now_ms);
        let minutes = now_ms.saturating_sub(session.saved_ms) / 60_000;
        let good_minutes = if score >= 0.0 { minutes } else { 0 };
        self.saved.note(SavedPeer {
            candidate,
            last_seen_s: self.config.epoch_s.saturating_add(now_ms / 1000),
            score: rounded(score),
            good_minutes: u32::try_from(good_minutes).unwrap_or(u32::MAX),
        });
        Some(session.saved_ms.saturating_add(minutes * 60_000))
    }

    /// How many more candidates of a source the plan has room for.
    pub fn room(&self, source: Source) -> usize {
        self.plan.room(source)
    }

    /// Whether free slots wait for candidates, and few of this source are there: discovery should look for some.
    pub fn wants_candidates(&self, source: Source) -> bool {
        self.free_to_dial() > 0 && self.plan.is_wanting(source)
    }

    /// Whether the operator named a node, or it is a boot node.
    pub fn is_named(&self, id: &NodeId) -> bool {
        self.is_operators(id) || self.plan.is_named(Source::Boot, id)
    }

    /// The peers.
    pub fn peers(&self, now_ms: u64) -> impl Iterator<Item = PeerView> {
        let up = self.sessions.iter();
        let up = up.filter(|(_, session)| session.stage == Stage::Up);
        up.filter_map(move |(conn, session)| {
            let id = session.id?;
            Some(PeerView {
                conn: *conn,
                id,
                address: session.address,
                is_inbound: session.is_inbound(),
                is_static: self.plan.is_named(Source::Static, &id),
                is_trusted: self.plan.is_named(Source::Trusted, &id),
                score: self.scores.value(&id, now_ms),
                since_ms: session.since_ms,
            })
        })
    }

    /// How many peers there are.
    pub fn peer_count(&self) -> usize {
        let all = self.sessions.values();
        all.filter(|session| session.stage == Stage::Up).count()
    }

    /// The last 100 departures, the oldest first.
    pub fn departures(&self) -> impl Iterator<Item = &Departure> {
        self.departures.iter()
    }

    /// The bans in force.
    pub fn bans(&self, now_ms: u64) -> impl Iterator<Item = Ban> {
        self.bans.list(now_ms)
    }

    /// The text of the file of saved peers, as it should be written when the node stops.
    pub fn saved_text(&mut self, now_ms: u64) -> String {
        self.save_all(now_ms);
        self.saved.text()
    }
}

fn outcome_of(end: End) -> Outcome {
    match end {
        End::Theirs(DisconnectReason::TooManyPeers) => Outcome::Full,
        End::Theirs(DisconnectReason::AlreadyConnected)
        | End::Ours(DisconnectReason::AlreadyConnected) => Outcome::Twice,
        End::OtherChain => Outcome::OtherChain,
        End::Unreached => Outcome::Unreached,
        End::Ours(
            DisconnectReason::TooManyPeers
            | DisconnectReason::ProtocolBreach
            | DisconnectReason::UselessPeer
            | DisconnectReason::Requested
            | DisconnectReason::SubprotocolReason,
        ) => Outcome::Cut,
        End::Failed | End::Theirs(_) | End::Ours(_) => Outcome::Failed,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "within -100 and 100")]
fn rounded(score: f64) -> i8 {
    score.clamp(-100.0, 100.0).round() as i8
}

#[cfg(test)]
mod tests;
