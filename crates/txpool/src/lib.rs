//! The transaction pool: which transactions are accepted, in which order blocks get them, and which are evicted.
//!
//! In: transactions ([`Incoming`]) and new heads ([`HeadUpdate`]). Out: transactions for the next block
//! ([`Pool::best`]), blobs ([`Pool::blobs`]), senders for block import ([`Pool::senders_of`]) and events
//! ([`Pool::listen`]). This crate has no thread, no clock and no file: callers pass the time, a reader or a writer.
//!
//! A transaction is *pending* if the next block could include it: its sender's earlier nonces are pending too, and the
//! balance pays for all of them. Otherwise it is *queued*.
//!
//! | file | what it is |
//! |---|---|
//! | `pool` | the public interface; its `add` has the slow checks of additions, before the lock is taken |
//! | `validate`, `sidecar` | checks without state; checks of blobs |
//! | `admit`, `evict` | who may join, who must leave |
//! | `store` | all tables and totals, changed together |
//! | `sender` | one sender's pending and queued transactions |
//! | `order` | senders by bid, kept up to date with the base fee |
//! | `best` | the transactions for a block |
//! | `head` | a new head: included, stale and reinserted transactions |
//! | `blobs` | blob pool: sidecars, and blobs by versioned hash |
//! | `cells` | their cells, by column |
//! | `transaction` | incoming and pooled transactions |
//! | `events` | events and listeners |
//! | `flows` | what came, moved up and left, in numbers |
//! | `dump` | the pool as a file |
//! | `config`, `error` | options, errors |

#![forbid(unsafe_code)]

mod admit;
mod best;
mod blobs;
mod cells;
mod config;
mod dump;
mod error;
mod events;
mod evict;
mod flows;
mod head;
mod order;
mod pool;
mod sender;
mod sidecar;
mod store;
mod transaction;
mod validate;

pub use admit::Added;
pub use best::BestTransactions;
pub use blobs::BlobStats;
pub use cells::CellCache;
pub use config::{PoolConfig, PoolMode};
pub use dump::{Restored, SkippedLine};
pub use error::PoolError;
pub use events::{DropReason, PoolEvent};
pub use flows::{Flows, TxClass};
pub use head::{HeadUpdate, SharedView};
pub use pool::{Pool, PoolStats, SenderContent};
pub use sidecar::{PooledBlob, SampledBlobs, Sidecar, check_proofs};
pub use transaction::{Incoming, Origin, PooledTransaction, encode_network, encode_without_blobs};

#[cfg(test)]
mod tests;
