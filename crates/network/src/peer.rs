//! A connected peer: what is known of it, and how the rest of the node speaks to it.
//!
//! A peer has two tasks, one that reads and one that writes (`session`). Everyone else holds a [`Peer`]: it asks
//! ([`Peer::ask`]), sends gossip, or ends the connection, from any thread and without waiting for the socket. What the
//! peer asks comes out as [`InboundRequest`] values, which hold their place until they are answered.
//!
//! | file | what it is |
//! |---|---|
//! | `budget` | how much memory what comes in may take |
//! | `meter` | how fast a peer may send |
//! | `numbers` | which message number of the connection is what |
//! | `outbox` | messages that wait for the socket, in lanes, bounded in bytes |
//! | `pending` | requests of ours that wait for an answer |
//! | `session` | the two tasks |
//! | `subprotocol` | protocols of the network's owner |

mod budget;
mod meter;
mod numbers;
mod outbox;
mod pending;
mod session;
mod subprotocol;

use crate::key::NodeId;
use crate::peers::ConnId;
use crate::rlpx::MAX_MESSAGE_BYTES;
use crate::rlpx::{Capability, DisconnectReason, SharedProtocol};
use crate::stats::{ServingSnap, Stats};
use crate::wire::{
    Announcement, BlockRange, EthVersion, Request, RequestKind, SnapVersion, Status, number,
};
pub(crate) use budget::{Budget, Room};
use niwaki_primitives::{B256, Block, Bytes, U256};
use niwaki_rules::{ChainSpec, ForkFilter};
use numbers::Numbers;
use outbox::Outbox;
use pending::Pending;
pub use pending::{AskError, PeerAnswer};
pub use session::PeerError;
pub(crate) use session::run;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;
pub use subprotocol::{Subprotocol, SubprotocolError, SubprotocolEvent, SubprotocolMessage};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

/// What this node says of its own chain. A new value is published when the head moves.
#[derive(Clone, Debug)]
pub struct LocalChain {
    /// The network's number.
    pub network_id: u64,
    /// Hash of the genesis block.
    pub genesis: B256,
    /// The forks of the chain at its head (EIP-2124).
    pub forks: ForkFilter,
    /// The blocks that this node has with bodies and receipts.
    pub range: BlockRange,
    /// The total difficulty of the last block, which peers before eth/69 get to know; zero if it is not known.
    pub total_difficulty: U256,
    /// Whether blocks come from a consensus client; then no peer may send them unasked.
    pub is_merged: bool,
    /// What is needed of a chain whose blocks validators make: its peers get to know of each block at once.
    pub validators: Option<ValidatorsChain>,
}

/// Reads a block and its total difficulty by the block's hash.
pub type BlockReader = Arc<dyn Fn(&B256) -> Option<(Block, U256)> + Send + Sync>;

/// A chain whose blocks validators make. Peers before eth/69 say which blocks they have by sending them.
#[derive(Clone)]
pub struct ValidatorsChain {
    /// Its rules, which say what the hash of a header is.
    pub spec: Arc<ChainSpec>,
    /// Its blocks.
    pub block: BlockReader,
}

impl fmt::Debug for ValidatorsChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidatorsChain").finish_non_exhaustive()
    }
}

impl LocalChain {
    /// The status of this node on a connection of this version.
    pub fn status(&self, version: EthVersion) -> Status {
        Status {
            version,
            network_id: self.network_id,
            genesis: self.genesis,
            fork_id: self.forks.current(),
            range: self.range,
            total_difficulty: match version.has_ranges() {
                true => U256::ZERO,
                false => self.total_difficulty,
            },
        }
    }
}

/// A connection whose other side has proved its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The connection.
    pub conn: ConnId,
    /// The other side's key.
    pub node: NodeId,
    /// Where it is.
    pub remote: SocketAddr,
    /// This side of the connection, if the system tells.
    pub local: Option<SocketAddr>,
    /// Whether it opened the connection.
    pub is_inbound: bool,
}

/// What is known of a peer and does not change.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    /// The connection.
    pub origin: Origin,
    /// Its name, as it says.
    pub client: String,
    /// All that it speaks.
    pub capabilities: Vec<Capability>,
    /// The version of `eth` on this connection.
    pub version: EthVersion,
    /// The version of `snap` on this connection, if both sides speak it.
    pub snap: Option<SnapVersion>,
    /// The registered protocols that both sides speak, with their numbers on this connection.
    pub subprotocols: Vec<SharedProtocol>,
    /// Its first message.
    pub status: Status,
    /// When the connection was made.
    pub since: Instant,
}

/// A connected peer.
#[derive(Debug)]
pub struct Peer {
    /// What does not change.
    pub info: PeerInfo,
    numbers: Numbers,
    range: Mutex<BlockRange>,
    outbox: Arc<Outbox>,
    pending: Mutex<Pending>,
}

impl Peer {
    /// The blocks that it has, as it said last.
    pub fn range(&self) -> BlockRange {
        *self.range.lock().expect("no panic while it is held")
    }

    /// Sends a request. The answer, or why there is none, comes out of the receiver; a receiver that is dropped gives it up.
    ///
    /// # Errors
    /// [`AskError`] if it can't be sent.
    pub fn ask(
        &self,
        request: &Request,
    ) -> Result<oneshot::Receiver<Result<PeerAnswer, AskError>>, AskError> {
        let number = self.numbers.of_request(request.kind());
        let number = number.ok_or(AskError::NotSpoken)?;
        let (id, receiver) = self.pending().add(request)?;
        let message = request.encode(id, self.info.version);
        match self.outbox.request(number, message) {
            true => Ok(receiver),
            false => {
                self.pending().remove(id);
                Err(AskError::Busy)
            }
        }
    }

    /// Whether the protocols on the connection have such requests.
    pub fn speaks_kind(&self, kind: RequestKind) -> bool {
        self.numbers.of_request(kind).is_some()
    }

    /// Announces transactions. What it says may be lost if the peer reads too slowly.
    pub fn announce(&self, announcement: &Announcement) {
        let message = announcement.encode(self.info.version);
        let number = number::NEW_POOLED_TRANSACTION_HASHES;
        self.outbox.gossip(self.numbers.of_eth(number), message);
    }

    /// Sends the message Transactions; it may be lost if the peer reads too slowly.
    pub fn send_transactions(&self, message: Vec<u8>) {
        let number = self.numbers.of_eth(number::TRANSACTIONS);
        self.outbox.gossip(number, message);
    }

    /// Says which blocks this node has, if the version of the connection has such a message.
    pub fn send_range(&self, range: BlockRange) {
        if self.info.version.has_ranges() {
            let number = self.numbers.of_eth(number::BLOCK_RANGE_UPDATE);
            self.outbox.control(number, range.encode());
        }
    }

    /// Sends a message NewBlock, if the connection has no other way to say which blocks this node has.
    pub(crate) fn send_new_block(&self, message: &Bytes) {
        if !self.info.version.has_ranges() {
            let number = self.numbers.of_eth(number::NEW_BLOCK);
            // One that finds no room is lost: the next one stands for it.
            let _ = self.outbox.subprotocol(number, message.clone());
        }
    }

    /// The peer has this block. Returns whether that is news.
    fn note_block(&self, number: u64, hash: B256) -> bool {
        let mut range = self.range.lock().expect("no panic while it is held");
        let is_news = range.latest == BlockRange::UNKNOWN || range.latest < number;
        if is_news {
            (range.latest, range.latest_hash) = (number, hash);
        }
        is_news
    }

    /// The version of a registered protocol that is spoken with this peer.
    pub fn speaks(&self, protocol: &str) -> Option<u64> {
        let shared = self.subprotocol(protocol)?;
        Some(shared.capability.version)
    }

    /// Sends a message of a registered protocol. Returns whether it will be: `false` if the peer does not speak the protocol, it has no
    /// such message, or too much waits for the peer to read it.
    pub fn send_message(&self, protocol: &str, code: u8, data: &Bytes) -> bool {
        let Some(shared) = self.subprotocol(protocol) else {
            return false;
        };
        let is_possible = code < shared.length && data.len() <= MAX_MESSAGE_BYTES;
        is_possible && self.outbox.subprotocol(shared.offset + code, data.clone())
    }

    fn subprotocol(&self, name: &str) -> Option<&SharedProtocol> {
        let mut all = self.info.subprotocols.iter();
        all.find(|shared| shared.capability.name == name)
    }

    /// Ends the connection; the peer gets the reason.
    pub fn disconnect(&self, reason: DisconnectReason) {
        self.outbox.close(reason);
    }

    /// Whether the connection has ended, or is about to.
    pub(crate) fn is_closing(&self) -> bool {
        self.outbox.is_closing() || self.pending().is_closed()
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().expect("no panic while it is held")
    }
}

impl RequestKind {
    /// Whether a version of `eth` has such requests.
    pub fn is_spoken(self, version: EthVersion) -> bool {
        match self {
            Self::AccessLists => version >= EthVersion::Eth71,
            Self::Cells => version >= EthVersion::Eth72,
            Self::Snap(_) => false,
            _ => true,
        }
    }
}

/// What a peer asks. It counts as open until [`answer`](Self::answer) was written, or it is dropped.
#[derive(Debug)]
pub struct InboundRequest {
    /// Who asks.
    pub peer: ConnId,
    /// The version of the connection.
    pub version: EthVersion,
    /// What is asked for.
    pub request: Request,
    /// The id to answer with.
    pub id: u64,
    /// The number of the answer's message.
    answer_number: u8,
    outbox: Arc<Outbox>,
    permit: OwnedSemaphorePermit,
    _room: Room,
    _serving: Option<ServingSnap>,
}

impl InboundRequest {
    /// Sends the answer: the whole message, with the id.
    pub fn answer(self, message: Vec<u8>) {
        self.outbox.answer(self.answer_number, message, self.permit);
    }
}

/// What happens with a peer before its connection ends.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    /// Its status fits: it is a peer.
    Up(Arc<Peer>),
    /// It says which blocks it has.
    Range,
}

/// What a peer sends unasked.
#[derive(Debug)]
pub(crate) struct GossipEvent {
    /// Who. It may not be in the list of peers yet.
    pub(crate) peer: Arc<Peer>,
    /// What.
    pub(crate) content: GossipContent,
    /// What it takes of the memory of the network.
    pub(crate) room: Room,
}

/// Transactions, or announcements of them.
#[derive(Debug)]
pub(crate) enum GossipContent {
    /// In EIP-2718 form.
    Transactions(Vec<Bytes>),
    /// Hashes.
    Announced(Announcement),
}

/// Where the tasks of peers send what comes in, and what they read of this node.
#[derive(Clone, Debug)]
pub(crate) struct PeerChannels {
    /// This node's chain.
    pub(crate) chain: watch::Receiver<LocalChain>,
    /// What peers ask. A task stops reading when it is full.
    pub(crate) requests: mpsc::Sender<InboundRequest>,
    /// Transactions and announcements. Dropped when it is full.
    pub(crate) gossip: mpsc::Sender<GossipEvent>,
    /// Peers that speak registered protocols, and their messages. A task stops reading when it is full.
    pub(crate) subprotocols: mpsc::Sender<SubprotocolEvent>,
    /// The memory of all peers.
    pub(crate) budget: Budget,
    /// What is counted.
    pub(crate) stats: Arc<Stats>,
}

#[cfg(test)]
pub(crate) mod tests;
