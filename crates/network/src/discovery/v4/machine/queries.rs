//! Our look-ups, and when they, and the checks of nodes in the table, begin.

use super::pings::PingReason;
use super::{ANSWER_MS, Dropped, MIN_PORT, Machine};
use crate::address::may_be_named_by;
use crate::discovery::v4::lookup::{ALPHA, Lookup};
use crate::discovery::v4::table::BUCKET_ENTRIES;
use crate::discovery::v4::wire::{Message, Neighbor, Packet};
use crate::discovery::v4::{Contact, Now};
use crate::key::NodeId;
use niwaki_primitives::FixedBytes;
use rand::Rng;
use std::net::SocketAddr;

/// After the first packet of Neighbors, the second one has so long.
const NEXT_PACKET_MS: u64 = 200;

/// A random new node is checked so often, and a random good one.
const CHECK_NEW_MS: u64 = 3000;
const CHECK_GOOD_MS: u64 = 7000;

/// Between the end of a look-up and the next one: it doubles each time that no new node was found.
const MIN_PAUSE_MS: u64 = 4000;
const MAX_PAUSE_MS: u64 = 60_000;

/// The same while no candidates are wanted; the look-up is then of our own id.
const IDLE_PAUSE_MS: u64 = 30 * 60 * 1000;

/// With fewer nodes in the table, look-ups begin with the boot nodes too.
const FEW_NODES: usize = 3;

/// What a query waits for.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The node's proof.
    Pong,
    /// The node's ping, the answer to which is our proof.
    Ping,
    /// The answer.
    Neighbors(Vec<Neighbor>),
}

/// A node that a look-up asks.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) contact: Contact,
    pub(super) step: Step,
    pub(super) deadline_ms: u64,
    /// A packet of the answer has come.
    is_answered: bool,
}

/// When the next look-up and the next checks are.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// `None` before the first one.
    lookup_ms: Option<u64>,
    pause_ms: u64,
    found_new: bool,
    is_wanting: bool,
    check_new_ms: u64,
    check_good_ms: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            lookup_ms: None,
            pause_ms: MIN_PAUSE_MS,
            found_new: false,
            is_wanting: true,
            check_new_ms: 0,
            check_good_ms: 0,
        }
    }
}

impl Schedule {
    /// When something is due, but for a look-up while one runs.
    pub(super) fn next_ms(&self, is_looking: bool) -> u64 {
        let checks = self.check_new_ms.min(self.check_good_ms);
        match is_looking {
            true => checks,
            false => checks.min(self.lookup_ms.unwrap_or(0)),
        }
    }

    /// The next look-up is now.
    pub(super) fn restart(&mut self) {
        self.lookup_ms = None;
        self.pause_ms = MIN_PAUSE_MS;
    }

    pub(super) fn has_found_new(&mut self) {
        self.found_new = true;
    }

    /// A look-up ended.
    fn pause(&mut self, now_ms: u64) {
        self.pause_ms = match std::mem::take(&mut self.found_new) {
            true => MIN_PAUSE_MS,
            false => (self.pause_ms * 2).min(MAX_PAUSE_MS),
        };
        let pause_ms = match self.is_wanting {
            true => self.pause_ms,
            false => IDLE_PAUSE_MS,
        };
        self.lookup_ms = Some(now_ms + pause_ms);
    }
}

impl Machine {
    /// Whether candidates are wanted. While they are not, the table is only kept alive.
    pub(crate) fn set_wanting(&mut self, is_wanting: bool, now: Now) {
        let was = std::mem::replace(&mut self.schedule.is_wanting, is_wanting);
        if is_wanting && !was {
            let soon = now.ms + self.schedule.pause_ms;
            let next = self.schedule.lookup_ms.map(|at| at.min(soon));
            self.schedule.lookup_ms = next;
        }
    }

    /// Begins a look-up if one is due: the first of our own id, so that our neighbourhood knows us, then of random ones.
    pub(super) fn begin_lookup(&mut self, now: Now) {
        if self.lookup.is_some() || self.schedule.lookup_ms.is_some_and(|at| at > now.ms) {
            return;
        }
        let is_first = self.schedule.lookup_ms.is_none();
        let target = match is_first || !self.schedule.is_wanting {
            true => self.key.id(),
            false => NodeId(FixedBytes::new(self.rng.random())),
        };
        let position = target.position();
        let mut first = self.table.closest(&position, BUCKET_ENTRIES, |_| true);
        if first.len() < FEW_NODES {
            first.extend(self.boot_nodes.iter().cloned());
        }
        self.lookup = Some(Lookup::new(target, first));
    }

    /// Asks as many nodes as may be; ends the look-up when none is left.
    pub(super) fn advance_lookup(&mut self, now: Now) {
        while self.queries.len() < ALPHA {
            let Some(lookup) = &mut self.lookup else {
                return;
            };
            match lookup.next() {
                Some(contact) => self.begin_query(contact, now),
                None if lookup.is_finished() => {
                    // Farther nodes that were named, and pinged by no query, may still fit into the table.
                    let unasked = lookup.unasked();
                    self.lookup = None;
                    self.want_probes(&unasked);
                    self.schedule.pause(now.ms);
                }
                None => return,
            }
        }
    }

    fn begin_query(&mut self, contact: Contact, now: Now) {
        let (id, ip) = (contact.id, contact.address.ip());
        // A node that fell out of the table comes back by its pong.
        let is_bonded = self.proofs.is_proved(id, ip, now.ms)
            && self.proofs.has_ours(id, ip, now.ms)
            && !self.table.has_room(&contact);
        let query = Query {
            contact: contact.clone(),
            step: Step::Pong,
            deadline_ms: now.ms + ANSWER_MS,
            is_answered: false,
        };
        self.queries.insert(id, query);
        match is_bonded {
            true => self.ask(id, now),
            false => self.ping(contact, PingReason::Query, now),
        }
    }

    /// Sends FindNode to a node that is likely to have our proof.
    pub(super) fn ask(&mut self, id: NodeId, now: Now) {
        let target = self.lookup.as_ref().map(Lookup::target);
        let (Some(query), Some(target)) = (self.queries.get_mut(&id), target) else {
            self.queries.remove(&id);
            return;
        };
        query.step = Step::Neighbors(Vec::new());
        query.deadline_ms = now.ms + ANSWER_MS;
        let to = query.contact.address;
        let expiration = Self::expiration(now);
        self.send(to, &Message::FindNode { target, expiration });
    }

    /// Nodes came: the answer to a query, or a part of it.
    pub(super) fn take_neighbors(
        &mut self,
        from: SocketAddr,
        packet: &Packet,
        nodes: &[Neighbor],
        now: Now,
    ) -> Result<(), Dropped> {
        let is_asked = |query: &Query| {
            query.contact.address == from && matches!(query.step, Step::Neighbors(_))
        };
        if !self.queries.values().any(is_asked) {
            return Err(Dropped::Unsolicited);
        }
        let sender = packet.sender().map_err(|_| Dropped::Malformed)?;
        let query = self
            .queries
            .get_mut(&sender)
            .filter(|query| is_asked(query));
        let Some(query) = query else {
            return Err(Dropped::Unsolicited);
        };
        let Step::Neighbors(got) = &mut query.step else {
            return Err(Dropped::Unsolicited);
        };
        got.extend(nodes);
        got.truncate(BUCKET_ENTRIES);
        let is_full = got.len() == BUCKET_ENTRIES;
        query.is_answered = true;
        query.deadline_ms = query.deadline_ms.min(now.ms + NEXT_PACKET_MS);
        if is_full {
            self.end_query(sender, now);
        }
        Ok(())
    }

    /// Hands what a node answered to the look-up, or that it did not.
    fn end_query(&mut self, id: NodeId, now: Now) {
        let Some(query) = self.queries.remove(&id) else {
            return;
        };
        let mut contact = query.contact;
        let named = match query.step {
            Step::Neighbors(nodes) if query.is_answered => nodes,
            _ => {
                self.table.failed_query(&contact, &mut self.rng);
                if let Some(lookup) = &mut self.lookup {
                    lookup.failed(id);
                }
                return;
            }
        };
        self.table.answered_query(&contact);
        let ip = contact.address.ip();
        contact.record = self.proofs.record(id, ip);
        // Its record may be on its way, and says which chain it is of: it is reported with it.
        if self.proofs.is_proved(id, ip, now.ms) && !self.records.has(&contact) {
            self.report_found(&contact);
        }
        let contacts: Vec<Contact> = named
            .iter()
            .filter_map(|node| self.contact_of(node, contact.address))
            .collect();
        if let Some(lookup) = &mut self.lookup {
            lookup.answered(id, contacts);
        }
    }

    /// A node that the node at `teller` named: at the address that it proved, if it did. `None` if it is ours, or can't be there.
    pub(super) fn contact_of(&self, node: &Neighbor, teller: SocketAddr) -> Option<Contact> {
        let endpoint = node.endpoint;
        if node.id == self.key.id()
            || endpoint.udp < MIN_PORT
            || !may_be_named_by(endpoint.ip, teller.ip())
            || !self.net_restrict.allows(endpoint.ip)
        {
            return None;
        }
        let address = SocketAddr::new(endpoint.ip, endpoint.udp);
        let contact = Contact::new(node.id, address, endpoint.tcp);
        let known = self.table.get(node.id, &contact.position);
        Some(known.cloned().unwrap_or(contact))
    }

    /// Ends queries that wait too long; one that waited for a ping is asked without.
    pub(super) fn give_up_queries(&mut self, now: Now) {
        let late = self.queries.iter();
        let late = late.filter(|(_, query)| query.deadline_ms <= now.ms);
        let late: Vec<_> = late
            .map(|(id, query)| (*id, matches!(query.step, Step::Ping)))
            .collect();
        for (id, waited_for_ping) in late {
            match waited_for_ping {
                true => self.ask(id, now),
                false => self.end_query(id, now),
            }
        }
    }

    /// Pings a random new node and a random good one, when each is due.
    pub(super) fn check_nodes(&mut self, now: Now) {
        for is_new in [true, false] {
            let (due_ms, every_ms) = match is_new {
                true => (&mut self.schedule.check_new_ms, CHECK_NEW_MS),
                false => (&mut self.schedule.check_good_ms, CHECK_GOOD_MS),
            };
            if *due_ms > now.ms {
                continue;
            }
            // Up to a half earlier, so that nodes which began together don't stay in step.
            *due_ms = now.ms + every_ms - self.rng.random_range(0..every_ms / 2);
            if let Some(contact) = self.table.to_check(is_new, &mut self.rng) {
                self.ping(contact, PingReason::Check, now);
            }
        }
    }
}
