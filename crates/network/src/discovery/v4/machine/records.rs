//! Our requests of records, to nodes whose pong has a higher number than the record that we know.

use super::{ANSWER_MS, Action, Dropped, Machine};
use crate::discovery::v4::wire::{Message, Packet, record_of};
use crate::discovery::v4::{Contact, DiscoveryEvent, Now};
use niwaki_primitives::B256;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// Most requests in flight.
pub(super) const MAX_REQUESTS: usize = 16;

/// Most nodes that wait for one.
pub(super) const MAX_WAITING: usize = 128;

#[derive(Clone, Debug)]
pub(super) struct Request {
    contact: Contact,
    /// When it is given up; of a waiting one, when it may be sent.
    deadline_ms: u64,
}

/// The requests.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordRequests {
    /// By their hashes.
    pub(super) sent: BTreeMap<B256, Request>,
    pub(super) waiting: VecDeque<Request>,
}

impl RecordRequests {
    /// When something is to be done.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        let has_room = self.sent.len() < MAX_REQUESTS;
        let waiting = self.waiting.iter().filter(move |_| has_room);
        self.sent
            .values()
            .chain(waiting)
            .map(|request| request.deadline_ms)
    }

    /// Whether a node's record is asked for, or will be.
    pub(super) fn has(&self, contact: &Contact) -> bool {
        let mut all = self.sent.values().chain(&self.waiting);
        all.any(|request| request.contact.id == contact.id)
    }
}

impl Machine {
    /// Puts a node in line for a request from `not_before_ms` on.
    pub(super) fn want_record(&mut self, contact: Contact, not_before_ms: u64) {
        if self.records.has(&contact) {
            return;
        }
        match self.records.waiting.len() < MAX_WAITING {
            true => self.records.waiting.push_back(Request {
                contact,
                deadline_ms: not_before_ms,
            }),
            // Without a record it is still a node.
            false => self.report_found(&contact),
        }
    }

    /// Sends requests that are due.
    pub(super) fn send_record_requests(&mut self, now: Now) {
        while self.records.sent.len() < MAX_REQUESTS {
            let mut waiting = self.records.waiting.iter();
            let due = waiting.position(|request| request.deadline_ms <= now.ms);
            let due = due.and_then(|at| self.records.waiting.remove(at));
            let Some(mut request) = due else {
                return;
            };
            let expiration = Self::expiration(now);
            let message = Message::EnrRequest { expiration };
            let hash = self.send(request.contact.address, &message);
            request.deadline_ms = now.ms + ANSWER_MS;
            self.records.sent.insert(hash, request);
        }
    }

    /// A record came.
    pub(super) fn take_record(
        &mut self,
        from: SocketAddr,
        packet: &Packet,
        now: Now,
    ) -> Result<(), Dropped> {
        let Message::EnrResponse {
            request_hash,
            record,
        } = &packet.message
        else {
            return Err(Dropped::Unsolicited);
        };
        let sent = self.records.sent.get(request_hash);
        let is_from = |sent: &Request| sent.contact.address.ip() == from.ip();
        let Some(sent) = sent.filter(|sent| is_from(sent)) else {
            return Err(Dropped::Unsolicited);
        };
        let id = sent.contact.id;
        if packet.sender() != Ok(id) {
            return Err(Dropped::Unsolicited);
        }
        let record = record_of(id, record).map_err(|_| Dropped::Malformed)?;
        let Some(request) = self.records.sent.remove(request_hash) else {
            return Err(Dropped::Unsolicited);
        };
        let mut contact = request.contact;
        let ip = contact.address.ip();
        let record = Arc::new(record);
        if self.boot_nodes.iter().any(|boot| boot.id == id) {
            let event = DiscoveryEvent::BootRecord(Arc::clone(&record));
            self.actions.push(Action::Report(event));
        }
        self.proofs.set_record(ip, record);
        contact.record = self.proofs.record(id, ip);
        let is_entry = self.table.get(id, &contact.position).is_some();
        if is_entry && self.proofs.is_proved(id, ip, now.ms) {
            self.table.insert(contact.clone());
        }
        self.report_found(&contact);
        Ok(())
    }

    /// Ends requests that were not answered in time. The nodes are found ones nevertheless.
    pub(super) fn give_up_records(&mut self, now: Now) {
        let late = self.records.sent.iter();
        let late = late.filter(|(_, request)| request.deadline_ms <= now.ms);
        let late: Vec<_> = late.map(|(hash, _)| *hash).collect();
        for hash in late {
            if let Some(request) = self.records.sent.remove(&hash) {
                self.report_found(&request.contact);
            }
        }
    }
}
