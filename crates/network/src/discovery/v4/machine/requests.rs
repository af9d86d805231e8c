//! Requests of others.

use super::pings::PingReason;
use super::queries::Step;
use super::{Dropped, Machine};
use crate::address::may_be_named_by;
use crate::discovery::v4::table::BUCKET_ENTRIES;
use crate::discovery::v4::wire::{Endpoint, Message, NODES_PER_PACKET, Neighbor, Packet};
use crate::discovery::v4::{Contact, Now};
use crate::key::NodeId;
use std::net::SocketAddr;

impl Machine {
    /// Answers a request, if its sender has not made too many, and, but for a ping, proved itself.
    pub(super) fn answer(
        &mut self,
        from: SocketAddr,
        packet: &Packet,
        now: Now,
    ) -> Result<(), Dropped> {
        if !self.meter.admits(from.ip(), now.ms) {
            return Err(Dropped::Metered);
        }
        let sender = packet.sender().map_err(|_| Dropped::Malformed)?;
        if sender == self.key.id() {
            return Err(Dropped::Own);
        }
        let is_proved = self.proofs.is_proved(sender, from.ip(), now.ms);
        match packet.message {
            Message::Ping {
                from: said,
                record_seq,
                ..
            } => {
                let pong = Message::Pong {
                    to: Endpoint::of(from, said.tcp),
                    ping_hash: packet.hash,
                    expiration: Self::expiration(now),
                    record_seq: Some(self.record.seq()),
                };
                self.send(from, &pong);
                let contact = Contact::new(sender, from, said.tcp);
                self.was_pinged(contact, record_seq.unwrap_or_default(), now);
                Ok(())
            }
            _ if !is_proved => Err(Dropped::Unproved),
            Message::FindNode { target, .. } => {
                self.send_neighbors(from, sender, target, now);
                Ok(())
            }
            _ => {
                let response = Message::EnrResponse {
                    request_hash: packet.hash,
                    record: self.record.encode(),
                };
                self.send(from, &response);
                Ok(())
            }
        }
    }

    /// A node pinged us and got its pong, which is our proof to it.
    fn was_pinged(&mut self, mut contact: Contact, record_seq: u64, now: Now) {
        let ip = contact.address.ip();
        let is_proved = self.proofs.is_proved(contact.id, ip, now.ms);
        self.proofs.pinged(contact.id, ip, now.ms);
        contact.record = self.proofs.record(contact.id, ip);

        if !is_proved || self.table.has_room(&contact) {
            self.ping(contact.clone(), PingReason::Bond, now);
        }
        for ping in self.pings.values_mut() {
            let pinged = &ping.contact;
            if pinged.id == contact.id && pinged.address.ip() == ip {
                ping.was_pinged_ms = Some(now.ms);
            }
        }
        if is_proved && record_seq > contact.record_seq() {
            self.want_record(contact.clone(), now.ms);
        }
        let query = self.queries.get(&contact.id);
        if query.is_some_and(|query| matches!(query.step, Step::Ping)) {
            self.ask(contact.id, now);
        }
    }

    /// The 16 closest nodes, in two packets; one packet if there are none.
    fn send_neighbors(&mut self, to: SocketAddr, asker: NodeId, target: NodeId, now: Now) {
        let keep = |contact: &Contact| {
            contact.id != asker && may_be_named_by(contact.address.ip(), to.ip())
        };
        let closest = self.table.closest(&target.position(), BUCKET_ENTRIES, keep);
        let nodes: Vec<Neighbor> = closest
            .iter()
            .map(|contact| Neighbor {
                endpoint: Endpoint::of(contact.address, contact.found().node.tcp),
                id: contact.id,
            })
            .collect();
        let expiration = Self::expiration(now);
        for part in nodes.chunks(NODES_PER_PACKET) {
            let nodes = part.to_vec();
            self.send(to, &Message::Neighbors { nodes, expiration });
        }
        if nodes.is_empty() {
            self.send(to, &Message::Neighbors { nodes, expiration });
        }
    }
}
