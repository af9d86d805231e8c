//! The laws of Amsterdam at their edges, one block each: what a transaction costs and by which of
//! the two gases, what it logs, what the block access list says of it, and what is refused.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose block can't be run has failed"
)]

mod authorizations;
mod code;
mod list;
mod logs;
mod opcodes;
mod scene;
mod settlement;
mod state_gas;
mod storage;
mod system;
mod validity;
