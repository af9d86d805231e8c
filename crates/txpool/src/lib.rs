//! Pending transactions: which are taken, in which order blocks are offered them, and which go.
//!
//! In go transactions ([`Incoming`]) and heads ([`HeadChange`]); out come candidates for the next
//! block ([`Pool::best`]), blobs ([`Pool::blobs`]), senders for the import of blocks
//! ([`Pool::senders_of`]) and a record of what happened ([`Pool::listen`]). There is no thread, no
//! clock and no file here: callers bring the time, a reader or a writer.
//!
//! | file | what |
//! |---|---|
//! | `pool` | what callers see; everything slow happens here, before the lock |
//! | `validate`, `sidecar` | checks that need no state |
//! | `admit`, `evict` | who may join, who must go |
//! | `store` | all tables and sums, changed together |
//! | `sender` | one sender's run and what waits behind it |
//! | `order` | senders by fee, kept in step with the base fee |
//! | `best` | the offer to a block |
//! | `head` | a new head: what was included, what comes back |
//! | `blobs` | sidecars, blobs by hash |
//! | `events`, `dump`, `config`, `error` | what they say |

#![forbid(unsafe_code)]

mod admit;
mod best;
mod blobs;
mod config;
mod dump;
mod error;
mod events;
mod evict;
mod head;
mod order;
mod pool;
mod sender;
mod sidecar;
mod store;
mod transaction;
mod validate;

pub use admit::Added;
pub use best::Best;
pub use blobs::BlobFigures;
pub use config::{PoolConfig, PoolMode};
pub use dump::{Restored, SkippedLine};
pub use error::PoolError;
pub use events::{DropReason, PoolEvent};
pub use head::{HeadChange, SharedView};
pub use pool::{Pool, PoolFigures, SenderContent};
pub use sidecar::{PooledBlob, Sidecar};
pub use transaction::{Incoming, Origin, PooledTransaction, encode_network};

#[cfg(test)]
mod tests;
