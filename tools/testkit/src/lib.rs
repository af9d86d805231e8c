//! Helpers that tests, benchmarks and tools share.
//!
//! | file | what it is |
//! |---|---|
//! | `fixtures` | loads state, blockchain, engine and VM tests of execution-spec-tests |
//! | `corpus` | the folder of the full public fixtures, if `NIWAKI_CORPUS` names one |
//! | `glob` | name patterns with `*` and `?` |
//! | `runner` | lists fixture files and runs work on them in parallel |
//! | `memory_state` | a world state in maps, the reference for the state engine |
//! | `state_root` | the state root of a `MemoryState`, by `alloy-trie` |
//! | `genesis` | chain configs and system contracts for genesis files |
//! | `key` | accounts with known secret keys |
//! | `transactions` | transactions of every type from common fields |

#![forbid(unsafe_code)]

mod corpus;
pub mod fixtures;
pub mod genesis;
mod glob;
mod key;
mod memory_state;
mod runner;
mod state_root;
pub mod transactions;

pub use corpus::corpus;
pub use glob::glob_matches;
pub use key::Key;
pub use memory_state::{MemoryAccount, MemoryCode, MemoryState};
pub use runner::{fixture_files, run_parallel};
pub use state_root::state_root;
