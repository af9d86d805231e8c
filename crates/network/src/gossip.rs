//! Gossip of transactions: what each peer knows, which peer is asked for what, which peer gets what.
//!
//! | file | what it is |
//! |---|---|
//! | `known` | the transactions that a peer is known to have |
//! | `fetcher` | announced transactions, until they are here |
//! | `send` | which peers get a transaction in full, and which its hash |

mod fetcher;
mod known;
mod send;

pub use fetcher::{FetchAction, Fetcher, GossipBreach, Received};
pub use known::KnownSet;
pub use send::{Outgoing, Recipients, SendSecret};
