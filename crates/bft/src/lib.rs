//! Consensus among validators: IBFT 2.0 and QBFT.
//!
//! | module | what it is |
//! |---|---|
//! | `wire` | the messages of validators |
//!
//! Which headers such chains accept is in the rules.

#![forbid(unsafe_code)]

pub mod wire;
