//! Execution of transactions and blocks.
//!
//! [`apply_body`] executes a block one transaction after the other and is the oracle; [`BlockExecution`] executes it on
//! several threads and gives the same bytes. Neither computes a state root (`trie`), checks a header (`rules`), or
//! knows a clock, a file or a log.
//!
//! | file | what it is |
//! |---|---|
//! | `body` | a block, in the order of the specification |
//! | `block_execution` | a block, the way the caller asks for |
//! | `parallel` | transactions on several threads |
//! | `observer` | what a caller does while a block is executed |
//! | `executor` | rules, gas counters and EVM of one block |
//! | `transaction`, `authorization` | one transaction, its delegations (EIP-7702) |
//! | `system`, `requests`, `dao` | system calls, EIP-7685 requests, the DAO fork |
//! | `senders`, `sender_queue` | a block whose senders are recovered while it is executed |
//! | `bal_diff` | the state diff that a block access list claims |
//! | `blooms` | blooms of receipts |
//! | `simulate`, `overlay` | unsigned transactions, and states with overrides |
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod authorization;
mod bal_diff;
mod block_execution;
mod blooms;
mod body;
mod dao;
mod executor;
mod observer;
mod overlay;
mod parallel;
mod requests;
mod sender_queue;
mod senders;
mod simulate;
mod system;
mod transaction;

pub use bal_diff::bal_state_diff;
pub use block_execution::BlockExecution;
pub use blooms::{logs_bloom, receipt_blooms};
pub use body::{ExecutedBlock, apply_body, recover_block};
pub use executor::{ExecuteError, Executor, Used, block_env};
pub use observer::{BlockObserver, BlockProgress, IdleWork};
pub use overlay::Overlay;
pub use parallel::{Parallelism, Span, Step, TxDependencies, TxStats, tuning, tx_dependencies};
pub use sender_queue::SenderQueue;
pub use senders::{RecoveringBlock, SenderRecovery, recover_in_background};
pub use transaction::{TransactionError, TransactionResult};
