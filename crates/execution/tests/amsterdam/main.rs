//! Amsterdam at its edges, one block per test: cost of transactions in execution gas and state gas, logs, the block
//! access list, and validity.
#![expect(
    clippy::unwrap_used,
    reason = "a test whose block can't be run has failed"
)]

mod authorizations;
mod block_access_list;
mod block_test;
mod code;
mod logs;
mod opcodes;
mod settlement;
mod state_gas;
mod storage;
mod system;
mod validity;
