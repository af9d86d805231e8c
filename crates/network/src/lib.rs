//! Peers: who they are, how they are found, what is said to them.
//!
//! | file | what it is |
//! |---|---|
//! | `address` | public and private addresses |
//! | `discovery` | how nodes are found |
//! | `file` | files that outlive a restart |
//! | `fuzz` | for fuzzers: each reader of foreign bytes, with valid inputs |
//! | `gossip` | transactions: what each peer knows, is asked for and gets |
//! | `key` | the key of a node, its identity |
//! | `nat` | a router opens this node's ports |
//! | `node` | a node as text: `enode://`, `enr:` |
//! | `peer` | a connected peer, its tasks |
//! | `peers` | who is connected and who may be: the roster and what it decides by |
//! | `record` | signed records of nodes, ours among them |
//! | `rlpx` | encrypted connections and the base protocol |
//! | `router` | which peer is asked for what, how much, and what follows |
//! | `service` | the network as it runs: sockets, tasks, commands |
//! | `stats` | what is counted, for metrics |
//! | `subnet` | networks: who counts together, with whom this node deals |
//! | `wire` | the messages of `eth` |

mod address;
pub mod discovery;
mod file;
pub mod fuzz;
pub mod gossip;
mod key;
mod nat;
mod node;
mod peer;
pub mod peers;
mod record;
pub mod rlpx;
pub mod router;
mod service;
mod stats;
mod subnet;
pub mod wire;

pub use discovery::{BootNode, DiscoveryMode, DiscoverySettings};
pub use key::{KeyFileError, NodeId, NodeKey};
pub use nat::NatMethod;
pub use node::{Host, Node, NodeError};
pub use peer::{
    AskError, BlockReader, InboundRequest, LocalChain, Origin, Peer, PeerAnswer, PeerError,
    PeerInfo, Subprotocol, SubprotocolError, SubprotocolEvent, SubprotocolMessage, ValidatorsChain,
};
pub use record::{
    LocalRecord, MAX_RECORD_BYTES, Record, RecordEntries, RecordError, RecordFileError,
};
pub use service::{DiscoveryFigures, Inbound, Network, NetworkConfig, RosterReport};
pub use stats::{Direction, GossipStats, Initiator, MessageCount, RequestStats, Stats, Timed};
pub use subnet::{NetRestrict, Subnet, SubnetError};
