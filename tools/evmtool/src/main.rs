//! `niwaki-evm`: runs code, state tests, block tests and state transitions.
#![forbid(unsafe_code)]

use std::process::ExitCode;

/// The allocator of the node, so that measurements match it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match niwaki_evmtool::Options::of(std::env::args_os().collect()).execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("niwaki-evm: {error:#}");
            let failure = error.downcast_ref::<niwaki_evmtool::Failure>();
            ExitCode::from(failure.map_or(2, niwaki_evmtool::Failure::exit_code))
        }
    }
}
