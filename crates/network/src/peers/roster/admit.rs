//! Who may connect, who may be dialled, who gets a slot.

use super::{Action, ConnId, End, Offers, Refusal, Roster, Session, Stage};
use crate::key::NodeId;
use crate::peers::bans::Bans;
use crate::peers::dial::{Candidate, Source};
use crate::peers::filter::{NodeFilter, Remote};
use crate::peers::score::{CUT_SCORE, Scores};
use crate::rlpx::DisconnectReason;
use crate::subnet::{NetRestrict, Subnet, Width};
use niwaki_primitives::FixedBytes;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

/// Most handshakes with nodes that connected by themselves.
const MAX_INBOUND_HANDSHAKES: usize = 32;
/// Most connections that are no peers yet, in both directions.
const MAX_PENDING: usize = 50;
/// Most of these in one network.
const MAX_PENDING_IN_SUBNET: usize = 4;
/// Most peers of one network in each direction.
const MAX_PEERS_IN_SUBNET: usize = 2;
/// So many of the slots for dialled peers are kept for those that offer what this node lacks.
const RESERVED_SLOTS: usize = 2;
/// With fewer slots for dialled peers none is kept.
const MIN_SLOTS_TO_RESERVE: usize = 4;
/// Two sessions with a node, one dialled by each side, were dialled at the same moment if their Hellos came within this time.
const TIE_MS: u64 = 2_000;
/// Most dials in flight.
const MAX_IN_FLIGHT: usize = 16;
/// The same while fewer than half of the slots for dialled peers are taken.
const MAX_IN_FLIGHT_BELOW_HALF: usize = 30;

/// Slots taken. Trusted nodes take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// By nodes that connected by themselves.
    pub(super) inbound: usize,
    /// By dialled and static nodes.
    pub(super) ours: usize,
    /// Dialled, not greeted yet.
    pub(super) dialling: usize,
}

impl Slots {
    fn total(self) -> usize {
        self.inbound + self.ours
    }
}

impl Roster {
    /// Most slots for nodes that connect by themselves.
    pub(super) fn max_inbound(&self) -> usize {
        self.config.max_peers * self.config.inbound_percent.min(100) / 100
    }

    /// Slots for dialled nodes.
    pub(super) fn max_outbound(&self) -> usize {
        self.config.max_peers - self.max_inbound()
    }

    pub(super) fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        for session in self.sessions.values() {
            let id = session.id.or(session.dialled.map(|dialled| dialled.1.id));
            let is = |source| id.is_some_and(|id| self.plan.is_named(source, &id));
            if is(Source::Trusted) {
                continue;
            }
            let is_inbound = session.is_inbound() && !is(Source::Static);
            match session.holds_a_slot() {
                true if is_inbound => slots.inbound += 1,
                true => slots.ours += 1,
                false if session.is_inbound() => {}
                false => slots.dialling += 1,
            }
        }
        slots
    }

    /// How many more nodes that were found may be dialled.
    pub(super) fn free_to_dial(&self) -> usize {
        let slots = self.slots();
        let ours = slots.ours + slots.dialling;
        let free = self.max_outbound().saturating_sub(ours);
        let in_all = self.config.max_peers.saturating_sub(slots.inbound + ours);
        free.min(in_all)
    }

    /// Whether more slots are taken than there are, as can be once a trusted node is no longer.
    pub(super) fn is_overfull(&self) -> bool {
        let slots = self.slots();
        slots.total() > self.config.max_peers || slots.inbound > self.max_inbound()
    }

    pub(super) fn max_in_flight(&self) -> usize {
        match self.slots().ours * 2 < self.max_outbound() {
            true => MAX_IN_FLIGHT_BELOW_HALF,
            false => MAX_IN_FLIGHT,
        }
    }

    /// A TCP connection has come in.
    pub(super) fn incoming(&mut self, conn: ConnId, address: SocketAddr, now_ms: u64) -> Action {
        match self.check_incoming(conn, address.ip(), now_ms) {
            Some(refusal) => Action::Refuse { conn, refusal },
            None => {
                self.throttle.note(address.ip(), now_ms);
                self.begin(conn, address, None, now_ms);
                Action::Accept(conn)
            }
        }
    }

    /// Cheap checks first; the operator's nodes are known by their address only, and only spared the limits per host and network.
    fn check_incoming(&mut self, conn: ConnId, ip: IpAddr, now_ms: u64) -> Option<Refusal> {
        if conn.0 > self.last_conn || self.sessions.contains_key(&conn) {
            return Some(Refusal::Unknown);
        }
        if !self.config.net_restrict.allows(ip) {
            return Some(Refusal::Outside);
        }
        if pending(&self.sessions) >= MAX_PENDING {
            return Some(Refusal::Handshakes);
        }
        if self.plan.has_operators_ip(ip) {
            return None;
        }
        if self.bans.has_ip(ip, now_ms) {
            return Some(Refusal::Banned);
        }
        let is_handshake = |s: &&Session| s.stage == Stage::Pending && s.is_inbound();
        let handshakes = self.sessions.values().filter(is_handshake).count();
        if handshakes >= MAX_INBOUND_HANDSHAKES {
            return Some(Refusal::Handshakes);
        }
        if !self.throttle.allows(ip, now_ms) {
            return Some(Refusal::TooSoon);
        }
        let is_peer = |s: &Session| s.is_inbound() && s.holds_a_slot();
        let is_crowded = in_subnet(&self.sessions, ip, is_peer) >= MAX_PEERS_IN_SUBNET
            || has_too_many_pending(&self.sessions, ip);
        is_crowded.then_some(Refusal::Subnet)
    }

    pub(super) fn begin(
        &mut self,
        conn: ConnId,
        address: SocketAddr,
        dialled: Option<(Source, Candidate)>,
        now_ms: u64,
    ) {
        let session = Session {
            stage: Stage::Pending,
            since_ms: now_ms,
            address,
            dialled,
            listens: 0,
            id: None,
            offers: Offers::default(),
            mined: 0,
            delivered: 0,
            saved_ms: now_ms,
        };
        self.sessions.insert(conn, session);
    }

    /// Both Hellos have come: the session gets a slot, or the reason why not.
    pub(super) fn greeted(
        &mut self,
        conn: ConnId,
        id: NodeId,
        offers: Offers,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) {
        let session = self.sessions.get(&conn).copied();
        let Some(mut session) = session.filter(|s| s.stage == Stage::Pending) else {
            let refusal = Refusal::Unknown;
            actions.push(Action::Refuse { conn, refusal });
            return;
        };
        if let Err(refusal) = self.admit(&session, id, offers, now_ms, actions) {
            self.remove(conn, End::Ours(refusal.reason()), now_ms, actions);
            actions.push(Action::Refuse { conn, refusal });
            return;
        }
        session.id = Some(id);
        session.stage = Stage::Greeted;
        session.offers = offers;
        session.since_ms = now_ms;
        self.sessions.insert(conn, session);
        self.by_id.insert(id, conn);
        self.scores.connect(id, now_ms);
        actions.push(Action::Accept(conn));
    }

    fn admit(
        &mut self,
        session: &Session,
        id: NodeId,
        offers: Offers,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        if id == self.config.own {
            return Err(Refusal::Own);
        }
        if id.0 == FixedBytes::ZERO {
            return Err(Refusal::NullIdentity);
        }
        if session.dialled.is_some_and(|dialled| dialled.1.id != id) {
            return Err(Refusal::OtherNode);
        }
        if !session.is_permitted(&self.config.filter, &id) {
            return Err(Refusal::NotPermitted);
        }
        if let Some(first) = self.by_id.get(&id).copied() {
            if !self.replaces(session, id, first, now_ms) {
                return Err(Refusal::AlreadyConnected);
            }
            self.cut(first, DisconnectReason::AlreadyConnected, now_ms, actions);
        }
        if self.plan.is_named(Source::Trusted, &id) {
            return Ok(());
        }
        if self.is_kept_away(&id, session.address.ip(), now_ms) {
            return Err(Refusal::Banned);
        }
        let is_full = self.slots().total() >= self.config.max_peers;
        if self.plan.is_named(Source::Static, &id) {
            return match is_full && !self.displace(now_ms, actions) {
                true => Err(Refusal::Full),
                false => Ok(()),
            };
        }
        match session.is_inbound() {
            _ if is_full => Err(Refusal::Full),
            true => self.admit_inbound(session.address.ip()),
            false => self.admit_dialled(offers),
        }
    }

    /// Whether a second session with a node goes before the first. If each side kept the session whose Hello it saw first, two nodes that
    /// dial each other at the same moment could both end with none: the one stays that the node with the greater id dialled.
    fn replaces(&self, second: &Session, id: NodeId, first: ConnId, now_ms: u64) -> bool {
        let is_tie = self.sessions.get(&first).is_some_and(|first| {
            first.is_inbound() != second.is_inbound()
                && now_ms.saturating_sub(first.since_ms) < TIE_MS
        });
        is_tie && second.is_inbound() == (id.0 > self.config.own.0)
    }

    fn admit_inbound(&self, ip: IpAddr) -> Result<(), Refusal> {
        if self.slots().inbound >= self.max_inbound() {
            return Err(Refusal::Full);
        }
        let is_peer = |s: &Session| s.is_inbound() && s.holds_a_slot();
        match in_subnet(&self.sessions, ip, is_peer) >= MAX_PEERS_IN_SUBNET {
            true => Err(Refusal::Subnet),
            false => Ok(()),
        }
    }

    fn admit_dialled(&self, offers: Offers) -> Result<(), Refusal> {
        let taken = self.slots().ours;
        if taken >= self.max_outbound() {
            return Err(Refusal::Full);
        }
        // How far the history reaches only Status says: the slot is looked at again then.
        let offers = Offers {
            history: true,
            ..offers
        };
        match self.is_reserved(taken, offers) {
            true => Err(Refusal::Reserved),
            false => Ok(()),
        }
    }

    fn is_kept_away(&self, id: &NodeId, ip: IpAddr, now_ms: u64) -> bool {
        let is_banned = self.bans.has_node(id, now_ms) || self.bans.has_ip(ip, now_ms);
        is_banned || self.scores.expected(id, now_ms) <= CUT_SCORE
    }

    /// How many slots for dialled nodes may stay empty.
    pub(super) fn reserved(&self) -> usize {
        match self.lacking.is_any() && self.max_outbound() >= MIN_SLOTS_TO_RESERVE {
            true => RESERVED_SLOTS,
            false => 0,
        }
    }

    /// Whether a slot is kept for what this node lacks, with so many taken already.
    fn is_reserved(&self, taken: usize, offers: Offers) -> bool {
        let reserved = self.reserved();
        reserved > 0 && taken + reserved >= self.max_outbound() && !offers.meets(self.lacking)
    }

    /// Whether a peer, now that its Status has come, has a slot that is kept for others.
    pub(super) fn is_on_a_reserved_slot(&self, conn: ConnId) -> bool {
        let Some((session, id)) = self.sessions.get(&conn).and_then(|s| Some((s, s.id?))) else {
            return false;
        };
        let others = self.slots().ours.saturating_sub(1);
        let is_found = session.dialled.is_some() && !self.is_operators(&id);
        is_found && self.is_reserved(others, session.offers)
    }

    pub(super) fn is_operators(&self, id: &NodeId) -> bool {
        let sources = [Source::Static, Source::Trusted];
        sources.iter().any(|source| self.plan.is_named(*source, id))
    }

    /// Makes room for a static node: the peer with the lowest score goes that is not the operator's.
    fn displace(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let held = self.sessions.iter().filter(|(_, s)| s.holds_a_slot());
        let held = held.filter_map(|(conn, s)| Some((*conn, s.id?)));
        let held = held.filter(|(_, id)| !self.is_operators(id));
        let worst = held.min_by(|a, b| {
            let score = |peer: &(ConnId, NodeId)| self.scores.expected(&peer.1, now_ms);
            score(a).total_cmp(&score(b))
        });
        match worst {
            Some((conn, _)) => {
                self.cut(conn, DisconnectReason::TooManyPeers, now_ms, actions);
                true
            }
            None => false,
        }
    }

    /// Orders the dials that the plan has room for.
    pub(super) fn dial(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        loop {
            let max_in_flight = self.max_in_flight();
            let free = self.free_to_dial();
            let rules = DialRules {
                own: &self.config.own,
                own_addresses: &self.config.own_addresses,
                net_restrict: &self.config.net_restrict,
                filter: &self.config.filter,
                sessions: &self.sessions,
                by_id: &self.by_id,
                bans: &self.bans,
                scores: &self.scores,
                free,
                now_ms,
            };
            let next = self.plan.next(max_in_flight, now_ms, |source, candidate| {
                rules.allow(source, candidate)
            });
            let Some((source, candidate)) = next else {
                return;
            };
            let conn = self.next_conn();
            self.begin(conn, candidate.address, Some((source, candidate)), now_ms);
            actions.push(Action::Dial {
                conn,
                source,
                candidate,
            });
        }
    }
}

/// What decides whether a candidate may be dialled.
struct DialRules<'a> {
    own: &'a NodeId,
    own_addresses: &'a [SocketAddr],
    net_restrict: &'a NetRestrict,
    filter: &'a NodeFilter,
    sessions: &'a Sessions,
    by_id: &'a HashMap<NodeId, ConnId>,
    bans: &'a Bans,
    scores: &'a Scores,
    /// Slots for nodes that were found.
    free: usize,
    now_ms: u64,
}

impl DialRules<'_> {
    fn allow(&self, source: Source, candidate: &Candidate) -> bool {
        let (id, ip) = (&candidate.id, candidate.address.ip());
        let is_own = id == self.own || self.own_addresses.contains(&candidate.address);
        // Where a name leads only the dialler knows.
        let is_outside = !ip.is_unspecified() && !self.net_restrict.allows(ip);
        if is_own
            || is_outside
            || self.by_id.contains_key(id)
            || pending(self.sessions) >= MAX_PENDING
        {
            return false;
        }
        // The filter last: it may take longer than the rest.
        let remote = Remote {
            id: *id,
            ip,
            port: candidate.address.port(),
            is_dialled: true,
        };
        self.may_have_slot(source, id, ip) && self.filter.permits(&remote)
    }

    fn may_have_slot(&self, source: Source, id: &NodeId, ip: IpAddr) -> bool {
        if source == Source::Trusted {
            return true;
        }
        let is_banned = self.bans.has_node(id, self.now_ms) || self.bans.has_ip(ip, self.now_ms);
        if is_banned || self.scores.expected(id, self.now_ms) <= CUT_SCORE {
            return false;
        }
        let is_dialled = |session: &Session| !session.is_inbound();
        source == Source::Static
            || self.free > 0
                && !has_too_many_pending(self.sessions, ip)
                && in_subnet(self.sessions, ip, is_dialled) < MAX_PEERS_IN_SUBNET
    }
}

type Sessions = BTreeMap<ConnId, Session>;

fn pending(sessions: &Sessions) -> usize {
    let all = sessions.values();
    all.filter(|session| session.stage == Stage::Pending)
        .count()
}

/// How many sessions in the network of an address are so; 0 for a local address.
fn in_subnet(sessions: &Sessions, ip: IpAddr, is_so: impl Fn(&Session) -> bool) -> usize {
    let Some(subnet) = Subnet::of(ip, Width::PEERS) else {
        return 0;
    };
    let there = sessions
        .values()
        .filter(|session| Subnet::of(session.address.ip(), Width::PEERS) == Some(subnet));
    there.filter(|session| is_so(session)).count()
}

fn has_too_many_pending(sessions: &Sessions, ip: IpAddr) -> bool {
    let is_pending = |session: &Session| session.stage == Stage::Pending;
    in_subnet(sessions, ip, is_pending) >= MAX_PENDING_IN_SUBNET
}
