//! The conformance runner behind `niwaki-evm`: fixtures in, verdicts out.
//!
//! Input: the fixture files of execution-spec-tests and ethereum-tests; output: a [`Verdict`] per case. The tests of
//! this package call the same functions as the program. It uses only the public API of the crates that it tests.
//!
//! | file | what it is |
//! |---|---|
//! | `command` | the command line, and what the tests print |
//! | `run`, `trace` | code once or many times; its trace flags |
//! | `state_test`, `block_test`, `vm_test` | one suite of fixtures each |
//! | `cases` | the cases of many files on several threads, and their verdicts |
//! | `chain` | a chain for block tests, every state in memory |
//! | `transaction`, `network`, `reason`, `logs_hash` | what fixtures hold: templates, fork names, errors, hashes of logs |
//! | `t8n`, `b11r` | the state transition of one block; a block from its parts |
//! | `benchmark`, `cartevm` | time of precompiles, of opcodes and pairs of them |
//! | `fuzz`, `fuzz_precompiles` | random cases compared with revm, go-ethereum and the pure library |
#![forbid(unsafe_code)]

mod b11r;
mod benchmark;
mod block_test;
mod cartevm;
mod cases;
mod chain;
mod command;
mod fuzz;
mod fuzz_precompiles;
mod logs_hash;
mod network;
mod reason;
mod run;
mod state_test;
mod t8n;
mod trace;
mod transaction;
mod vm_test;

pub use cases::{Outcome, Selection, Suite, Tally, Verdict, run_files, run_fixtures};
pub use command::Options;
pub use state_test::trace_post;
pub use t8n::Failure;
