//! The binary as an operator uses it: commands, files, exit codes, messages.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

mod archive;
mod era1;
mod errors;
mod genesis;
mod import;
mod json;
mod kill;
mod support;
