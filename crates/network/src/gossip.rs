//! Gossip of transactions: what each peer knows, which peer is asked for what, which peer gets what.
//!
//! | file | what it is |
//! |---|---|
//! | `breach` | how peers break the rules |
//! | `known` | the transactions that a peer is known to have |
//! | `fetcher` | announced transactions, until they are here |
//! | `cells` | blob transactions that came without their blobs, until their cells are here |
//! | `sampling` | which blobs are taken whole, and which columns of the others |
//! | `send` | which peers get a transaction in full, and which its hash |
//! | `transaction` | transactions as peers send them |
//! | `recent` | a map of the last transactions |
//! | `pool` | what gossip and the pool say to each other |
//! | `machine` | what gossip decides |
//! | `task` | gossip as it runs |

mod breach;
mod cells;
mod fetcher;
mod known;
mod machine;
mod pool;
mod recent;
mod sampling;
mod send;
mod task;
mod transaction;

pub use breach::GossipBreach;
pub use fetcher::{FetchAction, Fetcher, Received};
pub use known::KnownSet;
pub use pool::{
    Announceable, NewTransaction, PoolView, ReceivedBatch, ReceivedCells, ReceivedTransaction,
    Verdict,
};
pub use sampling::MIN_WHOLE_PERCENT;
pub use send::{Outgoing, Recipients, SendSecret, Spread};
pub use task::GossipHandle;
pub(crate) use task::{Links, start};

/// The type of blob transactions (EIP-4844): announced only, and on eth/72 sent without their blobs.
const BLOB_TYPE: u8 = 3;
