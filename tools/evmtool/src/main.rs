//! `niwaki-evm`: runs code, state tests and block tests.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match niwaki_evmtool::Options::parse().execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("niwaki-evm: {error:#}");
            ExitCode::from(2)
        }
    }
}
