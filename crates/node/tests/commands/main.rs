//! The binary as an operator uses it: commands, files, exit codes, messages.
#![expect(clippy::unwrap_used, reason = "what fails here fails a test")]

mod access;
mod archive;
mod backup;
mod besu_flags;
mod compress;
mod dashboard;
mod doctor;
mod engine;
mod era1;
mod errors;
mod faults;
mod genesis;
mod graphql;
mod import;
mod import_besu;
mod json;
mod kill;
mod logging;
mod moving;
mod operating;
mod peers;
mod permission_contracts;
mod permissions;
mod profiling;
mod rpc;
mod running;
mod shell;
mod support;
mod tls;
mod tracing;
