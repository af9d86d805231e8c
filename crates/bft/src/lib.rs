//! Consensus among validators: IBFT 2.0 and QBFT.
//!
//! | module | what it is |
//! |---|---|
//! | `service` | the machine in a node: threads, chain, peers |
//! | `votes` | on whom this validator votes |
//! | `wire` | the messages of validators |
//! | `journal` | what this validator has signed, on disk |
//! | `machine` | how a validator agrees with the others: a state machine |
//!
//! Which headers such chains accept is in the rules.

#![forbid(unsafe_code)]

pub mod journal;
pub mod machine;
pub mod service;
mod votes;
pub mod wire;

pub use votes::PendingVotes;
