//! What tests and benchmarks share.

#![forbid(unsafe_code)]

mod corpus;
pub mod fixtures;
pub mod genesis;
mod glob;
mod key;
mod memory_state;
mod runner;
mod state_root;

pub use corpus::corpus;
pub use glob::glob_matches;
pub use key::Key;
pub use memory_state::{MemoryAccount, MemoryCode, MemoryState};
pub use runner::{fixture_files, run_parallel};
pub use state_root::state_root;
