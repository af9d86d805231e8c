//! Our pings: to nodes that pinged us, that are asked or checked, or that others named.

use super::queries::Step;
use super::{ANSWER_MS, Action, Dropped, MAX_BONDS, MAX_PROBES, MAX_WAITING_PROBES, Machine};
use crate::discovery::v4::table::Inserted;
use crate::discovery::v4::wire::{Endpoint, Message, Packet};
use crate::discovery::v4::{Contact, DiscoveryEvent, Now};
use std::net::SocketAddr;

/// Why a node is pinged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PingReason {
    /// It pinged us and has no proof.
    Bond,
    /// It is in the table: is it still there?
    Check,
    /// A look-up asks it, which takes its proof and ours.
    Query,
    /// Another node named it, and the table has room.
    Probe,
}

/// A ping without an answer.
#[derive(Clone, Debug)]
pub(super) struct SentPing {
    pub(super) contact: Contact,
    reason: PingReason,
    pub(super) deadline_ms: u64,
    /// When it pinged us meanwhile.
    pub(super) was_pinged_ms: Option<u64>,
}

impl Machine {
    fn pings_of(&self, reason: PingReason) -> usize {
        let pings = self.pings.values().filter(|ping| ping.reason == reason);
        pings.count()
    }

    /// Pings a node, unless a ping to it is in flight or too many of the kind are.
    pub(super) fn ping(&mut self, contact: Contact, reason: PingReason, now: Now) {
        let is_in_flight = |ping: &SentPing| {
            ping.contact.id == contact.id && ping.contact.address == contact.address
        };
        if let Some(ping) = self.pings.values_mut().find(|ping| is_in_flight(ping)) {
            if reason == PingReason::Check {
                ping.reason = reason;
            }
            return;
        }
        if reason == PingReason::Bond && self.pings_of(reason) >= MAX_BONDS {
            return;
        }
        let ping = Message::Ping {
            from: self.endpoint(),
            to: Endpoint::of(contact.address, 0),
            expiration: Self::expiration(now),
            record_seq: Some(self.record.seq()),
        };
        let hash = self.send(contact.address, &ping);
        let sent = SentPing {
            contact,
            reason,
            deadline_ms: now.ms + ANSWER_MS,
            was_pinged_ms: None,
        };
        self.pings.insert(hash, sent);
    }

    /// A node answered a ping: its endpoint is proved, and it enters the table.
    pub(super) fn take_pong(
        &mut self,
        from: SocketAddr,
        packet: &Packet,
        now: Now,
    ) -> Result<(), Dropped> {
        let Message::Pong {
            to,
            ping_hash,
            record_seq,
            ..
        } = packet.message
        else {
            return Err(Dropped::Unsolicited);
        };
        let sent = self.pings.get(&ping_hash);
        let is_from = |sent: &SentPing| sent.contact.address.ip() == from.ip();
        let Some(sent) = sent.filter(|sent| is_from(sent)) else {
            return Err(Dropped::Unsolicited);
        };
        let sender = packet.sender().map_err(|_| Dropped::Malformed)?;
        if sender != sent.contact.id {
            return Err(Dropped::Unsolicited);
        }
        let Some(sent) = self.pings.remove(&ping_hash) else {
            return Err(Dropped::Unsolicited);
        };
        let observed = DiscoveryEvent::Observed {
            by: from,
            address: SocketAddr::new(to.ip, to.udp),
        };
        self.actions.push(Action::Report(observed));
        self.proved(sent, record_seq.unwrap_or_default(), now);
        Ok(())
    }

    fn proved(&mut self, sent: SentPing, record_seq: u64, now: Now) {
        let SentPing {
            mut contact,
            reason,
            was_pinged_ms,
            ..
        } = sent;
        let (id, ip) = (contact.id, contact.address.ip());
        self.proofs.answered(id, ip, now.ms, was_pinged_ms);
        contact.record = self.proofs.record(id, ip);
        let known = self.table.get(id, &contact.position);
        if contact.tcp == 0 {
            contact.tcp = known.map_or(0, |known| known.tcp);
        }
        if self.table.insert(contact.clone()) == Inserted::New {
            self.schedule.has_found_new();
        }
        if reason == PingReason::Check {
            self.table.passed_check(&contact);
        }

        let has_ours = self.proofs.has_ours(id, ip, now.ms);
        let is_newer = record_seq > contact.record_seq();
        if is_newer {
            // A node without our proof would drop the request: it is given time to ping us.
            let wait_ms = if has_ours { 0 } else { ANSWER_MS / 2 };
            self.want_record(contact, now.ms + wait_ms);
        } else if reason != PingReason::Check {
            self.report_found(&contact);
        }

        let Some(query) = self.queries.get_mut(&id) else {
            return;
        };
        if matches!(query.step, Step::Pong) && query.contact.address.ip() == ip {
            query.step = Step::Ping;
            query.deadline_ms = now.ms + ANSWER_MS;
            if has_ours {
                self.ask(id, now);
            }
        }
    }

    /// Ends pings that were not answered in time.
    pub(super) fn give_up_pings(&mut self, now: Now) {
        let late = self
            .pings
            .iter()
            .filter(|(_, ping)| ping.deadline_ms <= now.ms);
        let late: Vec<_> = late.map(|(hash, _)| *hash).collect();
        for ping in late
            .iter()
            .filter_map(|hash| self.pings.remove(hash))
            .collect::<Vec<_>>()
        {
            if ping.reason == PingReason::Check {
                self.table.failed_check(&ping.contact, &mut self.rng);
            }
        }
    }

    /// Puts nodes that another one named in line for a ping, if the table has room for them.
    pub(super) fn want_probes(&mut self, contacts: &[Contact]) {
        for contact in contacts {
            let is_waiting = self.probes.iter().any(|probe| probe.id == contact.id);
            if self.probes.len() < MAX_WAITING_PROBES && !is_waiting && self.table.has_room(contact)
            {
                self.probes.push_back(contact.clone());
            }
        }
    }

    /// Pings nodes in line.
    pub(super) fn send_probes(&mut self, now: Now) {
        while self.pings_of(PingReason::Probe) < MAX_PROBES {
            let Some(contact) = self.probes.pop_front() else {
                return;
            };
            if self.table.has_room(&contact) {
                self.ping(contact, PingReason::Probe, now);
            }
        }
    }
}
