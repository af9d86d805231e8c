//! Discovery v4: a table of nodes spread over all nodes, over UDP.
//!
//! Each node keeps nodes in buckets by the distance of their ids from its own. Who looks for a target asks the closest nodes that it
//! knows for closer ones, until none comes. Nothing but a short pong goes to an address that did not prove itself: a node that sends
//! with a forged address would otherwise have us flood its victim.
//!
//! ```text
//!         A                              B
//!         | Ping ----------------------> |      B does not know A:
//!         | <---------------------- Pong |      A has B's proof (Pong with the hash of A's Ping),
//!         | <---------------------- Ping |
//!         | Pong ----------------------> |      B has A's,
//!         | FindNode ------------------> |      so that B answers.
//!         | <------------ Neighbors, 2 x |
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `wire` | packets |
//! | `table` | the buckets |
//! | `proofs` | which endpoints proved themselves, and when |
//! | `lookup` | which nodes one look-up asks next |
//! | `meter` | how many requests an address may make |
//! | `machine` | what is answered, asked and given up: packets and time go in, packets and found nodes come out |
//! | `sockets` | UDP sockets, which v5 may read |
//! | `task` | the machine on them |
//!
//! Spec: devp2p `discv4.md`.

mod lookup;
mod machine;
mod meter;
mod proofs;
mod sockets;
mod table;
mod task;
pub(crate) mod wire;

use crate::key::NodeId;
use crate::node::Node;
use crate::record::Record;
use niwaki_primitives::B256;
use std::net::SocketAddr;
use std::sync::Arc;

pub use machine::Dropped;
pub use sockets::{Frame, Sockets};
pub use task::{Discovery, DiscoveryConfig, V4Figures, start};

/// A node that answered: a candidate for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNode {
    /// The node. Its address proved itself.
    pub node: Node,
    /// Its record, if it has one and gave it.
    pub record: Option<Arc<Record>>,
}

/// What the task reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryEvent {
    /// A node that answered. The same one may come again.
    Found(FoundNode),
    /// The address at which another node sees this one.
    Observed {
        /// Which node says so.
        by: SocketAddr,
        /// This node's address, as it claims.
        address: SocketAddr,
    },
    /// The record of a node that discovery began with.
    BootRecord(Arc<Record>),
    /// The address at which most other nodes see this one.
    Decided(SocketAddr),
}

/// The time of a step: `ms` only ever rises and starts anywhere, `unix_s` is the clock that packets are stamped with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) ms: u64,
    pub(crate) unix_s: u64,
}

/// A node with the address that it is asked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) id: NodeId,
    /// Keccak-256 of the id.
    pub(crate) position: B256,
    pub(crate) address: SocketAddr,
    /// 0 if it is not known.
    pub(crate) tcp: u16,
    pub(crate) record: Option<Arc<Record>>,
}

impl Contact {
    pub(crate) fn new(id: NodeId, address: SocketAddr, tcp: u16) -> Self {
        Self {
            id,
            position: id.position(),
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
            tcp,
            record: None,
        }
    }

    /// The number of its record; 0 without one.
    fn record_seq(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.seq())
    }

    /// As a candidate. The record's port for connections holds if the record has the address that answered.
    fn found(&self) -> FoundNode {
        let ip = self.address.ip();
        let recorded = self.record.as_ref().and_then(|record| record.node());
        let recorded = recorded.filter(|node| node.udp_address().map(|at| at.ip()) == Some(ip));
        let tcp = recorded.map_or(self.tcp, |node| node.tcp);
        FoundNode {
            node: Node::at(self.id, ip, tcp, self.address.port()),
            record: self.record.clone(),
        }
    }
}

/// The distance of two positions, as a big-endian number.
fn distance(a: &B256, b: &B256) -> B256 {
    *a ^ *b
}
