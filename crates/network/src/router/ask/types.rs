//! What goes into the router and comes out of it.

use super::{MAX_ITEMS, MAX_JOBS};
use crate::peers::{Conduct, ConnId};
use crate::wire::RequestKind;
use niwaki_primitives::B256;
use std::ops::Range;

/// The number of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// What a peer must have to be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// This block, by the range that it announced.
    pub block: Option<u64>,
    /// The state of this root: it must not have said lately that it lacks it.
    pub root: Option<B256>,
    /// This peer is asked first, if it may be asked.
    pub prefer: Option<ConnId>,
}

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Of what.
    pub kind: RequestKind,
    /// How many items.
    pub items: u32,
    /// Which peers may be asked.
    pub need: Need,
}

/// Why there is no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// There are as many as may be.
    #[error("{MAX_JOBS} jobs are open already")]
    TooManyJobs,
    /// The network has stopped.
    #[error("the network has stopped")]
    Stopped,
    /// It has none or more than may be.
    #[error("a job of {0} items, possible are 1 to {MAX_ITEMS}")]
    Items(u32),
}

/// What a peer can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Of what.
    pub kinds: Vec<RequestKind>,
    /// The first block that it has.
    pub earliest: u64,
    /// The last block that it has.
    pub latest: u64,
}

/// How an answer turned out, as the caller found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All but these items; all are `missing` if there was nothing in it.
    Items {
        /// Ranges of the job's items.
        missing: Vec<Range<u32>>,
    },
    /// The peer does not have the state.
    Stateless,
    /// It breaks the protocol, or is proved wrong.
    Wrong(Conduct),
}

/// How the try of a piece ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryEnd {
    /// No answer in time.
    Timeout,
    /// An answer with nothing in it.
    Empty,
    /// The peer does not have the state.
    Stateless,
    /// The answer was wrong.
    Wrong,
    /// The peer left.
    Gone,
    /// The request could not be sent: too many wait for the peer to read them.
    Busy,
    /// The caller did not check the answer in time.
    Unchecked,
}

/// A try of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// The peer.
    pub conn: ConnId,
    /// What came of it.
    pub end: TryEnd,
}

/// Items that the router gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Which.
    pub items: Range<u32>,
    /// Who failed with them; fewer than three if there was no other peer to ask, or the job took too long.
    pub tries: Vec<Try>,
}

/// What the router orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskAction {
    /// Ask a peer.
    Send {
        /// The peer.
        conn: ConnId,
        /// The router's number of the request; ids on the wire are the session's.
        request: u64,
        /// For which job.
        job: JobId,
        /// Which of its items.
        items: Range<u32>,
    },
    /// The answer to a request is not awaited any more.
    Abandon {
        /// The peer.
        conn: ConnId,
        /// The router's number of the request.
        request: u64,
    },
    /// A job has ended: its items are there, but for these.
    Done {
        /// The job.
        job: JobId,
        /// Empty if all are there.
        given_up: Vec<GivenUp>,
    },
    /// A peer did something that is scored.
    Conduct {
        /// The peer.
        conn: ConnId,
        /// What.
        conduct: Conduct,
    },
}

/// A request whose answer is awaited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// For which job, which may have ended.
    pub job: JobId,
    /// Of what.
    pub kind: RequestKind,
    /// Which items.
    pub items: Range<u32>,
}
