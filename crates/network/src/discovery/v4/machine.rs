//! Discovery as a machine: packets and time go in, packets and found nodes come out. No socket, no clock; random numbers are seeded.
//!
//! | file | what it is |
//! |---|---|
//! | `requests` | what is answered: pings, queries and record requests of others |
//! | `pings` | our pings and their answers: bonds, checks, probes |
//! | `queries` | our look-ups, step by step |
//! | `records` | our requests of records |
//!
//! What bounds it: answers of ours go to proved endpoints, and but for these there is one pong a request; every kind of request of ours
//! has a limit of requests in flight, and each ends after half a second.

mod pings;
mod queries;
mod records;
mod requests;

use super::lookup::Lookup;
use super::meter::Meter;
use super::proofs::Proofs;
use super::table::Table;
use super::wire::{Endpoint, Message, Packet};
use super::{Contact, DiscoveryEvent, Now};
use crate::key::{NodeId, NodeKey};
use crate::record::Record;
use crate::subnet::NetRestrict;
use niwaki_primitives::B256;
use pings::SentPing;
use queries::{Query, Schedule};
use rand::rngs::SmallRng;
use records::RecordRequests;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How long an answer may take.
const ANSWER_MS: u64 = 500;

/// How long our packets hold.
const EXPIRATION_S: u64 = 20;

/// Most pings in flight that answer a stranger's ping. Above it strangers get a pong and no ping.
const MAX_BONDS: usize = 256;

/// Most pings in flight to nodes that others named.
const MAX_PROBES: usize = 16;

/// Most nodes that wait for a probe.
const MAX_WAITING_PROBES: usize = 128;

/// Ports below it are those of other services, DNS and NTP among them: a node that names one would have us send there.
const MIN_PORT: u16 = 1024;

/// What the task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a packet.
    Send { to: SocketAddr, packet: Vec<u8> },
    /// Report something.
    Report(DiscoveryEvent),
}

/// Why a packet was dropped, as metrics have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// It can't be read.
    Malformed,
    /// Its time is over.
    Expired,
    /// It answers nothing that was asked.
    Unsolicited,
    /// Too many requests.
    Metered,
    /// Its sender has no proof.
    Unproved,
    /// Its sender has our key.
    Own,
    /// Its sender is in no network with which this node deals.
    Outside,
}

impl Dropped {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::Malformed,
        Self::Expired,
        Self::Unsolicited,
        Self::Metered,
        Self::Unproved,
        Self::Own,
        Self::Outside,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Expired => "expired",
            Self::Unsolicited => "unsolicited",
            Self::Metered => "rate_limited",
            Self::Unproved => "no_endpoint_proof",
            Self::Own => "own_key",
            Self::Outside => "net_restrict",
        }
    }
}

/// Discovery of one node.
#[derive(Debug)]
pub(crate) struct Machine {
    key: NodeKey,
    record: Record,
    boot_nodes: Vec<Contact>,
    net_restrict: NetRestrict,
    table: Table,
    proofs: Proofs,
    meter: Meter,
    rng: SmallRng,
    /// By their hashes.
    pings: BTreeMap<B256, SentPing>,
    probes: VecDeque<Contact>,
    records: RecordRequests,
    queries: BTreeMap<NodeId, Query>,
    lookup: Option<Lookup>,
    schedule: Schedule,
    actions: Vec<Action>,
}

impl Machine {
    /// The node of this key and record, which begins with these nodes.
    pub(crate) fn new(
        key: NodeKey,
        record: Record,
        boot_nodes: Vec<Contact>,
        rng: SmallRng,
    ) -> Self {
        let own = key.id();
        let mut boot_nodes = boot_nodes;
        boot_nodes.retain(|contact| contact.id != own);
        Self {
            record,
            boot_nodes,
            net_restrict: NetRestrict::default(),
            table: Table::new(own),
            proofs: Proofs::default(),
            meter: Meter::default(),
            rng,
            pings: BTreeMap::new(),
            probes: VecDeque::new(),
            records: RecordRequests::default(),
            queries: BTreeMap::new(),
            lookup: None,
            schedule: Schedule::default(),
            actions: Vec::new(),
            key,
        }
    }

    /// Deals with these networks only: packets of others are dropped, and their nodes are not asked.
    pub(crate) fn restrict(&mut self, net_restrict: NetRestrict) {
        self.boot_nodes
            .retain(|contact| net_restrict.allows(contact.address.ip()));
        self.net_restrict = net_restrict;
    }

    /// How many nodes are in the table.
    pub(crate) fn table_len(&self) -> usize {
        self.table.len()
    }

    /// How many requests wait for their answers.
    pub(crate) fn in_flight(&self) -> usize {
        self.pings.len() + self.queries.len() + self.records.deadlines().count()
    }

    /// The node's record changed.
    pub(crate) fn set_record(&mut self, record: Record) {
        self.record = record;
    }

    /// More nodes to begin with, for example those whose names were resolved.
    pub(crate) fn add_boot_nodes(&mut self, contacts: impl IntoIterator<Item = Contact>) {
        let own = self.key.id();
        let allowed = &self.net_restrict;
        let contacts = contacts.into_iter();
        for contact in contacts.filter(|contact| allowed.allows(contact.address.ip())) {
            let same = |known: &&mut Contact| known.id == contact.id;
            match self.boot_nodes.iter_mut().find(same) {
                Some(known) => *known = contact,
                None if contact.id != own => self.boot_nodes.push(contact),
                None => {}
            }
        }
        self.schedule.restart();
    }

    /// What is to be done since the last call.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// A packet arrived. `Err` says why it was dropped.
    pub(crate) fn receive(
        &mut self,
        from: SocketAddr,
        data: &[u8],
        now: Now,
    ) -> Result<(), Dropped> {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        if !self.net_restrict.allows(from.ip()) {
            return Err(Dropped::Outside);
        }
        let packet = Packet::decode(data).map_err(|_| Dropped::Malformed)?;
        if packet.message.is_expired(now.unix_s) {
            return Err(Dropped::Expired);
        }
        match &packet.message {
            Message::Ping { .. } | Message::FindNode { .. } | Message::EnrRequest { .. } => {
                self.answer(from, &packet, now)
            }
            Message::Pong { .. } => self.take_pong(from, &packet, now),
            Message::Neighbors { nodes, .. } => self.take_neighbors(from, &packet, nodes, now),
            Message::EnrResponse { .. } => self.take_record(from, &packet, now),
        }?;
        self.advance(now);
        Ok(())
    }

    /// Time passed: gives up what was not answered, checks nodes, looks for new ones. To be called at [`Self::next_wake_ms`].
    pub(crate) fn tick(&mut self, now: Now) {
        self.give_up_pings(now);
        self.give_up_queries(now);
        self.give_up_records(now);
        self.check_nodes(now);
        self.begin_lookup(now);
        self.advance(now);
    }

    /// Does what has become possible.
    fn advance(&mut self, now: Now) {
        self.advance_lookup(now);
        self.send_record_requests(now);
        self.send_probes(now);
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_wake_ms(&self) -> u64 {
        let pings = self.pings.values().map(|ping| ping.deadline_ms);
        let queries = self.queries.values().map(|query| query.deadline_ms);
        let deadlines = pings.chain(queries).chain(self.records.deadlines());
        let next = deadlines.min().unwrap_or(u64::MAX);
        next.min(self.schedule.next_ms(self.lookup.is_some()))
    }

    fn send(&mut self, to: SocketAddr, message: &Message) -> B256 {
        let (packet, hash) = message.encode(&self.key);
        self.actions.push(Action::Send { to, packet });
        hash
    }

    fn report_found(&mut self, contact: &Contact) {
        let found = contact.found();
        if found.node.tcp != 0 {
            let event = DiscoveryEvent::Found(found);
            self.actions.push(Action::Report(event));
        }
    }

    /// Our address as pings carry it. Other nodes take the port for connections of it, and look at nothing else.
    fn endpoint(&self) -> Endpoint {
        let entries = self.record.entries();
        let ip = match (entries.ip, entries.ip6) {
            (Some(ip), _) => IpAddr::V4(ip),
            (None, Some(ip)) => IpAddr::V6(ip),
            (None, None) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        Endpoint {
            ip,
            udp: entries.udp,
            tcp: entries.tcp,
        }
    }

    fn expiration(now: Now) -> u64 {
        now.unix_s.saturating_add(EXPIRATION_S)
    }
}

#[cfg(test)]
mod tests;
