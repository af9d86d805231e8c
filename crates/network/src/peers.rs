//! Peers: which nodes are dialled, which may connect, which stay. State machines without sockets and clocks: the time comes in,
//! what is to be done comes out.
//!
//! | file | what it is |
//! |---|---|
//! | `roster` | the sessions and their slots: events in, orders to the listener, the dialler and the sessions out |
//! | `dial` | which node to dial next, and when again |
//! | `score` | what the conduct of a peer is worth |
//! | `filter` | which nodes may be peers at all |
//! | `bans` | nodes and hosts that are kept away for a while |
//! | `saved` | the file of peers that outlives a restart |

mod bans;
mod dial;
mod filter;
mod roster;
mod saved;
mod score;

pub use bans::{Ban, BanTarget, Bans};
pub use dial::{Candidate, DialFigures, Source};
pub(crate) use dial::{MAX_NAMED, REDIAL_MS};
pub use filter::{NodeFilter, Remote};
pub use roster::{
    Action, ConnId, Departure, End, Event, Notice, Offers, PeerView, Refusal, Roster, RosterConfig,
};
pub use saved::{MAX_SAVED, SavedError, SavedPeer, SavedPeers};
pub use score::Conduct;
