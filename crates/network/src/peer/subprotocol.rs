//! Protocols of the network's owner, such as consensus among validators: offered in Hello beside `eth`, their messages handed out and
//! sent as bytes.
//!
//! ```text
//! Hello -> [ messages that come before the peer's status wait ] -> Status -> Up -> messages, in order -> Down
//! ```
//!
//! Events go through one bounded channel. A reader that finds it full waits, and TCP carries that back to its peer; what waits holds
//! room of the peer's budget. `Down` has its place in the channel from `Up` on, so it comes whatever happens.

use super::{Peer, PeerChannels, Room};
use crate::peers::ConnId;
use crate::rlpx::{Capability, SharedProtocol};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;

/// Most messages of a peer that wait for its status; more are dropped.
const MAX_EARLY: usize = 64;
/// Message numbers that all protocols of a connection have together: a frame has one byte for them, and 16 are the base protocol's.
const MAX_NUMBERS: usize = 0x80 - crate::rlpx::hello::FIRST_SHARED as usize;

/// A protocol that the owner of the network speaks with peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subprotocol {
    /// Its name: one to eight ASCII letters or digits, and none of this node's own protocols.
    pub name: String,
    /// Its version. Of several versions of a name the highest that both sides have is spoken.
    pub version: u64,
    /// How many message numbers it has.
    pub length: u8,
}

/// Why a protocol can't be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubprotocolError {
    /// Its name can't be one.
    #[error(
        "{0:?} is no name for a protocol: one to eight ASCII letters or digits, none of eth, snap and p2p"
    )]
    Name(String),
    /// There are too many message numbers.
    #[error("protocols with {0} message numbers in all, possible are 1 to {MAX_NUMBERS}")]
    Numbers(usize),
}

impl Subprotocol {
    /// Checks protocols that are offered beside `eth` and `snap`, which have so many message numbers.
    ///
    /// # Errors
    /// [`SubprotocolError`].
    pub(crate) fn check(all: &[Self], own_length: u8) -> Result<(), SubprotocolError> {
        let mut numbers = usize::from(own_length);
        for (index, one) in all.iter().enumerate() {
            let is_name = (1..=8).contains(&one.name.len())
                && one.name.bytes().all(|byte| byte.is_ascii_alphanumeric())
                && !["eth", "snap", "p2p"].contains(&one.name.as_str());
            if !is_name {
                return Err(SubprotocolError::Name(one.name.clone()));
            }
            // One version of a name is spoken: the longest counts.
            let same = |other: &&Self| other.name == one.name;
            let longest = all.iter().filter(same).map(|other| other.length).max();
            if all[..index].iter().any(|other| other.name == one.name) {
                continue;
            }
            numbers += usize::from(longest.unwrap_or_default());
        }
        match numbers > MAX_NUMBERS || all.iter().any(|one| one.length == 0) {
            true => Err(SubprotocolError::Numbers(numbers)),
            false => Ok(()),
        }
    }
}

/// What happens with the peers that speak a registered protocol.
#[derive(Debug)]
pub enum SubprotocolEvent {
    /// A peer that speaks at least one of them has come ([`Peer::speaks`] says which).
    Up(Arc<Peer>),
    /// A message of a peer, after its `Up` and before its `Down`. The messages of a peer come in their order.
    Message(SubprotocolMessage),
    /// The peer of this connection has gone.
    Down(ConnId),
}

/// A message of a registered protocol.
#[derive(Debug)]
pub struct SubprotocolMessage {
    /// Who sent it.
    pub peer: ConnId,
    /// The protocol.
    pub protocol: Capability,
    /// The number of the message, from the protocol's first.
    pub code: u8,
    /// Its content, not compressed.
    pub data: Vec<u8>,
    /// What it takes of the memory of the network.
    pub(super) _room: Room,
}

/// The registered protocols of one connection. `Down` is said when it is dropped.
#[derive(Debug)]
pub(super) struct Link {
    conn: ConnId,
    protocols: Vec<SharedProtocol>,
    sender: mpsc::Sender<SubprotocolEvent>,
    early: Vec<SubprotocolMessage>,
    down: Option<OwnedPermit<SubprotocolEvent>>,
}

impl Link {
    pub(super) fn new(conn: ConnId, shared: &[SharedProtocol], channels: &PeerChannels) -> Self {
        let is_own = |protocol: &&SharedProtocol| {
            !["eth", "snap"].contains(&protocol.capability.name.as_str())
        };
        Self {
            conn,
            protocols: shared.iter().filter(is_own).cloned().collect(),
            sender: channels.subprotocols.clone(),
            early: Vec::new(),
            down: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.protocols.is_empty()
    }

    pub(super) fn protocols(&self) -> &[SharedProtocol] {
        &self.protocols
    }

    /// Whether a number of the connection belongs to one of them.
    pub(super) fn has(&self, id: u8) -> bool {
        self.protocols.iter().any(|one| code_of(one, id).is_some())
    }

    fn message(&self, id: u8, data: Vec<u8>, room: Room) -> Option<SubprotocolMessage> {
        let mut all = self.protocols.iter();
        let (protocol, code) = all.find_map(|one| Some((one, code_of(one, id)?)))?;
        Some(SubprotocolMessage {
            peer: self.conn,
            protocol: protocol.capability.clone(),
            code,
            data,
            _room: room,
        })
    }

    /// A message came before the peer's status.
    pub(super) fn keep(&mut self, id: u8, data: Vec<u8>, room: Room) {
        if self.early.len() < MAX_EARLY {
            self.early.extend(self.message(id, data, room));
        }
    }

    /// The other side is a peer. Waits for room in the channel.
    pub(super) async fn up(&mut self, peer: &Arc<Peer>) {
        if self.is_empty() {
            return;
        }
        self.down = self.sender.clone().reserve_owned().await.ok();
        // Without a receiver the owner is gone.
        let _ = self
            .sender
            .send(SubprotocolEvent::Up(Arc::clone(peer)))
            .await;
        for message in std::mem::take(&mut self.early) {
            let _ = self.sender.send(SubprotocolEvent::Message(message)).await;
        }
    }

    /// A message came. Waits for room in the channel.
    pub(super) async fn hand_out(&self, id: u8, data: Vec<u8>, room: Room) {
        if let Some(message) = self.message(id, data, room) {
            let _ = self.sender.send(SubprotocolEvent::Message(message)).await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(place) = self.down.take() {
            place.send(SubprotocolEvent::Down(self.conn));
        }
    }
}

/// The number of a message from the protocol's first; `None` if it is of another protocol.
fn code_of(protocol: &SharedProtocol, id: u8) -> Option<u8> {
    id.checked_sub(protocol.offset)
        .filter(|code| *code < protocol.length)
}

#[cfg(test)]
mod tests;
