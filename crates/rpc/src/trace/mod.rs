//! Transactions run again, and watched: `debug_trace*` as geth answers, `trace_*` as Parity did.
//!
//! A trace holds no more of a run than what it shows: lines of opcodes go straight into the
//! answer, calls are kept until the transaction has ended. Over HTTP an answer goes out while it
//! is made; otherwise, and in each part that must be whole, it is bounded by
//! [`MOST_ANSWER_BYTES`]. A run is bounded by gas and by the time at which the caller stops
//! waiting.

mod call_tracer;
mod debug;
mod files;
mod flat;
mod parity;
mod prestate;
mod search;
mod state_diff;
mod struct_log;
mod subject;
mod tracers;
mod vm_trace;

pub(crate) use debug::METHODS as DEBUG_METHODS;
pub(crate) use parity::METHODS as TRACE_METHODS;
pub(crate) use subject::PastBlock;

/// Most bytes of an answer, or of a part of it, that are held at a time.
pub(crate) const MOST_ANSWER_BYTES: usize = 512 << 20;

/// The refusal of a trace that is longer than that.
fn too_large() -> crate::RpcError {
    crate::RpcError::limit(format!(
        "the trace is longer than {} MiB: ask for less, by limit, disableStack, disableStorage, or \
         another tracer",
        MOST_ANSWER_BYTES >> 20
    ))
}

#[cfg(test)]
mod tests;
