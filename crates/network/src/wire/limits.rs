//! How much a message may hold. What peers send beyond the hard ones is refused; what we answer stays within the soft ones.

/// Bytes after which an answer takes no further item.
pub const SOFT_ANSWER_BYTES: usize = 2 << 20;
/// Bytes that no answer's items pass: with what is around them they fit into a message.
pub const HARD_ANSWER_BYTES: usize = crate::rlpx::MAX_MESSAGE_BYTES - 1024;
/// Most items in an answer to a request of blocks or their parts.
pub const MAX_SERVED: usize = 1024;
/// Most look-ups made for one request.
pub const MAX_LOOKED_UP: usize = 2 * MAX_SERVED;
/// Most hashes read of a request; more are a breach of the protocol.
pub const MAX_REQUESTED: usize = 16_384;
/// Most announced hashes in one message; more are a breach of the protocol.
pub const MAX_ANNOUNCED: usize = 4096;
/// Most blocks announced in one message; more are a breach of the protocol.
pub const MAX_NEW_BLOCK_HASHES: usize = 1024;
/// Most transactions in one message; more are a breach of the protocol.
pub const MAX_TRANSACTIONS: usize = 5000;
/// Most bytes of a message of transactions that are not an answer. Other clients send 1 MiB at most, if not one transaction.
pub const MAX_TRANSACTIONS_BYTES: usize = 2 << 20;
/// Most bytes of a request, an announcement or any other message that is small: 16,384 hashes take half of it.
pub const MAX_SMALL_BYTES: usize = 1 << 20;
/// Bytes of one cell of a blob (EIP-7594).
pub const CELL_BYTES: usize = 2048;
