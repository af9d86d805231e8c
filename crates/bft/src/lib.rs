//! Consensus among validators: IBFT 2.0 and QBFT.
//!
//! | module | what it is |
//! |---|---|
//! | `wire` | the messages of validators |
//! | `machine` | how a validator agrees with the others: a state machine |
//!
//! Which headers such chains accept is in the rules.

#![forbid(unsafe_code)]

pub mod machine;
pub mod wire;
