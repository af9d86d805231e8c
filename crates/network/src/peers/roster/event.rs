//! What the roster hears, and what it orders.

use super::notice::Notice;
use crate::key::NodeId;
use crate::peers::bans::BanTarget;
use crate::peers::dial::{Candidate, Source};
use crate::peers::score::Conduct;
use crate::rlpx::DisconnectReason;
use std::fmt;
use std::net::SocketAddr;

/// The number of a connection, unique while the node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What a peer has that not all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// It serves `snap` at a root that this node needs.
    pub snap: bool,
    /// It speaks `eth/72` and so serves cells.
    pub cells: bool,
    /// Its history reaches back to where this node fills in its own. Known from Status on.
    pub history: bool,
}

impl Offers {
    /// Whether it is anything.
    pub(crate) fn is_any(self) -> bool {
        self.snap || self.cells || self.history
    }

    /// Whether something in `lacking` is offered.
    pub(crate) fn meets(self, lacking: Self) -> bool {
        self.snap && lacking.snap || self.cells && lacking.cells || self.history && lacking.history
    }
}

/// How a connection ended that the roster did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The node that was dialled was not reached.
    Unreached,
    /// No handshake, no common protocol, or the stream broke.
    Failed,
    /// The peer said why.
    Theirs(DisconnectReason),
    /// The session's task ended it.
    Ours(DisconnectReason),
    /// The peer's Status is of another network or chain.
    OtherChain,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached => f.write_str("no connection"),
            Self::Failed => f.write_str("the connection failed"),
            Self::Theirs(reason) => write!(f, "the peer ended it: {reason}"),
            Self::Ours(reason) => write!(f, "this node ended it: {reason}"),
            Self::OtherChain => f.write_str("the peer is on another chain"),
        }
    }
}

/// What the roster hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A TCP connection has come in; its number is of [`Roster::next_conn`](super::Roster::next_conn).
    Incoming {
        /// Its number.
        conn: ConnId,
        /// The other side.
        address: SocketAddr,
    },
    /// The name of a dialled node's host was resolved, and the node connected.
    Resolved {
        /// The connection.
        conn: ConnId,
        /// The node's address.
        address: SocketAddr,
    },
    /// Both sides' Hellos have come.
    Greeted {
        /// The connection.
        conn: ConnId,
        /// The key that the other side proved.
        id: NodeId,
        /// What it offers as far as its Hello says.
        offers: Offers,
        /// Where it listens, as its Hello says; 0 if that says nothing.
        port: u16,
    },
    /// Both sides' Status have come: the session is a peer. Again, when it offers something else.
    Up {
        /// The connection.
        conn: ConnId,
        /// What it offers.
        offers: Offers,
    },
    /// A connection has ended.
    Closed {
        /// The connection.
        conn: ConnId,
        /// How.
        end: End,
    },
    /// A node was found that may be dialled. Boot nodes are found once and stay.
    Found {
        /// Where.
        source: Source,
        /// The node.
        candidate: Candidate,
    },
    /// A peer did something that is scored.
    Conduct {
        /// The peer.
        conn: ConnId,
        /// What.
        conduct: Conduct,
    },
    /// A peer delivered.
    Delivered {
        /// The peer.
        conn: ConnId,
        /// So many bytes of answers.
        bytes: u64,
    },
    /// What this node lacks from now on: two slots are kept for peers that offer it.
    Lacking(Offers),
    /// The operator named a static node.
    AddStatic(Candidate),
    /// The operator removed a static node: a connection to it ends.
    RemoveStatic(NodeId),
    /// The operator named a trusted node.
    AddTrusted(Candidate),
    /// The operator trusts a node no longer.
    RemoveTrusted(NodeId),
    /// The operator bans a node or host.
    Ban {
        /// Which.
        target: BanTarget,
        /// For so many milliseconds.
        ms: u64,
    },
    /// The operator lifts a ban.
    Lift(BanTarget),
    /// Other nodes may be peers from now on ([`NodeFilter`](crate::peers::NodeFilter)): connections to those that may not end.
    FilterChanged,
    /// Where this node can be reached, which it never dials.
    OwnAddress(SocketAddr),
    /// A second has passed.
    Tick,
}

/// What the roster orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Dial a node. A name that the operator gave is resolved by the dialler, which answers with `Resolved`.
    Dial {
        /// The number of the connection.
        conn: ConnId,
        /// Where the node comes from.
        source: Source,
        /// The node.
        candidate: Candidate,
    },
    /// Go on: with the handshake after `Incoming`, with Status after `Greeted`.
    Accept(ConnId),
    /// End a connection that is no peer: not yet, or, after an `Up` that crossed a `Disconnect`, not any more.
    Refuse {
        /// The connection.
        conn: ConnId,
        /// Why.
        refusal: Refusal,
    },
    /// End a session that the roster accepted.
    Disconnect {
        /// The connection.
        conn: ConnId,
        /// The peer.
        id: NodeId,
        /// What the peer gets to know.
        reason: DisconnectReason,
    },
    /// Write a line into the log.
    Log(Notice),
    /// Write this text into the file of saved peers.
    Save(String),
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The host connected less than 30 s ago.
    TooSoon,
    /// As many handshakes as may be are going on.
    Handshakes,
    /// It is in no network with which this node deals.
    Outside,
    /// Its network has as many connections as it may have.
    Subnet,
    /// The node or its host is kept away.
    Banned,
    /// All slots are taken.
    Full,
    /// The slots that are left are kept for what this node lacks.
    Reserved,
    /// There is a session with this node.
    AlreadyConnected,
    /// It is this node.
    Own,
    /// A key of zeros.
    NullIdentity,
    /// Another node than was dialled.
    OtherNode,
    /// The owner's filter does not let it be a peer.
    NotPermitted,
    /// The handshake takes too long.
    TooSlow,
    /// The roster does not know this connection, or not at this stage.
    Unknown,
}

impl Refusal {
    /// What the other side gets to know if it has sent its Hello; before that a connection ends without a word.
    pub fn reason(self) -> DisconnectReason {
        match self {
            Self::TooSoon | Self::Handshakes | Self::Subnet | Self::Full | Self::Reserved => {
                DisconnectReason::TooManyPeers
            }
            Self::Banned | Self::Outside | Self::NotPermitted => DisconnectReason::UselessPeer,
            Self::AlreadyConnected => DisconnectReason::AlreadyConnected,
            Self::Own => DisconnectReason::ConnectedToSelf,
            Self::NullIdentity => DisconnectReason::NullIdentity,
            Self::OtherNode => DisconnectReason::UnexpectedIdentity,
            Self::TooSlow => DisconnectReason::PingTimeout,
            Self::Unknown => DisconnectReason::Requested,
        }
    }
}
