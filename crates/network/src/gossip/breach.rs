//! How peers break the rules of gossip.

use niwaki_primitives::{B256, rlp};

/// How a peer broke the rules of gossip: its session has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GossipBreach {
    /// A hash twice in one message.
    #[error("transaction {0} twice in one message")]
    Twice(B256),
    /// An answer to no open request, or a transaction that was not asked for; so too if its content does not have the hash.
    #[error("transaction {0} was not asked for")]
    NotAsked(B256),
    /// A blob transaction in a message Transactions.
    #[error("blob transaction {0}, which may be announced only")]
    Blobs(B256),
    /// A blob transaction whose sidecar is missing or does not fit.
    #[error("a blob transaction with a wrong sidecar: {0}")]
    Sidecar(rlp::Error),
    /// Cells that are not those of a transaction's blobs.
    #[error("cells of fewer or more blobs than transaction {0} has")]
    Cells(B256),
    /// The pool found a transaction that no honest peer sends.
    #[error("transaction {0} is invalid")]
    Invalid(B256),
    /// Type or size are not as announced.
    #[error("transaction {hash} has type {tx_type} and {size} B, not as announced")]
    NotAsAnnounced {
        /// Its hash.
        hash: B256,
        /// Its type.
        tx_type: u8,
        /// Its bytes.
        size: u32,
    },
}
