//! What the roster has to say to the operator.

use crate::key::NodeId;
use crate::peers::dial::DialFigures;
use crate::rlpx::DisconnectReason;
use std::fmt;
use std::net::IpAddr;

/// A line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Fewer peers than there should be at least, once a minute: where candidates are lost.
    FewPeers {
        /// How many there are.
        peers: usize,
        /// How the dials of this minute ended.
        dials: DialFigures,
    },
    /// Most peers failed at the same time.
    OwnFault {
        /// How many failed within ten seconds.
        failed: usize,
        /// Of how many.
        peers: usize,
    },
    /// Too many peers would be cut at the same time.
    CutsStopped {
        /// How many were cut within ten seconds.
        cut: usize,
        /// How many are left.
        peers: usize,
    },
    /// A peer was cut for its score.
    Cut {
        /// The peer.
        id: NodeId,
        /// What it got to know.
        reason: DisconnectReason,
    },
    /// A node is kept away.
    Banned {
        /// The node.
        id: NodeId,
        /// For so many minutes.
        minutes: u64,
    },
    /// A host of three liars is kept away.
    HostBanned {
        /// Its address.
        ip: IpAddr,
    },
    /// A list of nodes that the operator named is full.
    TooManyNamed {
        /// The node that found no room.
        id: NodeId,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FewPeers { peers, dials } => write!(
                f,
                "{peers} peers; of {} dials in the last minute {} connected, {} failed, {} had no slot, {} were of another \
                 chain, {} ended otherwise",
                dials.dialled,
                dials.connected,
                dials.failed,
                dials.full,
                dials.other_chain,
                dials.other
            ),
            Self::OwnFault { failed, peers } => write!(
                f,
                "{failed} of {peers} peers failed within 10 s, which is likely this node's own trouble: no peer is blamed; \
                 check its network, its disk and whether it knows the latest fork"
            ),
            Self::CutsStopped { cut, peers } => write!(
                f,
                "{cut} peers were cut within 10 s: the {peers} that are left stay for now"
            ),
            Self::Cut { id, reason } => write!(f, "peer {id:?} cut for its conduct: {reason}"),
            Self::Banned { id, minutes } => write!(f, "node {id:?} stays away for {minutes} min"),
            Self::HostBanned { ip } => {
                write!(f, "host {ip} stays away for 12 h: three of its nodes lied")
            }
            Self::TooManyNamed { id } => write!(
                f,
                "node {id:?} was not added: there are {} static, trusted and boot nodes already",
                crate::peers::dial::MAX_NAMED
            ),
        }
    }
}
