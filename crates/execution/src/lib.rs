//! One transaction, one block.
//!
//! [`apply_body`] takes a block with its senders, as far as they are known, and the state after its parent,
//! and gives what the block changed, its receipts and its requests. It is the reference: whatever runs
//! faster must give the same bytes. It computes no root (the trie's work), checks no header (the
//! rules' work), and knows no clock, file or log.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod authorization;
mod blooms;
mod body;
mod dao;
mod executor;
mod list_diff;
mod meanwhile;
mod overlay;
mod parallel;
mod requests;
mod senders;
mod simulate;
mod system;
mod transaction;

pub use blooms::{logs_bloom, receipt_blooms};
pub use body::{Executed, apply_body, recover_block};
pub use executor::{ExecuteError, Executor, Used, block_env};
pub use list_diff::diff_of_access_list;
pub use meanwhile::{Errands, Meanwhile, OnTheWay, PostState, SoFar};
pub use overlay::Overlay;
pub use parallel::{
    Dependences, Parallelism, Shares, Span, Step, apply_body_on, apply_body_then, apply_body_with,
    dependences_of, figures, process_transactions_with,
};
pub use senders::{Recovering, recover_beside};
pub use transaction::{TransactionError, TransactionResult};
