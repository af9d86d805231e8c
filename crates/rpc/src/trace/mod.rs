//! Re-executing transactions under a tracer: `debug_trace*` as in geth, `trace_*` as in Parity.
//!
//! A trace keeps no more of an execution than it shows: opcode lines go straight into the response, calls are kept
//! until the transaction ends. Over HTTP the response is streamed while it is written; otherwise, and in each part that
//! must be complete first, it is bounded by [`MAX_RESPONSE_BYTES`]. Execution is bounded by gas and by the deadline of
//! the request.
//!
//! | file | what it is |
//! |---|---|
//! | `debug`, `files` | `debug_trace*`, `debug_standardTrace*ToFile` |
//! | `parity`, `search` | `trace_*`, `trace_filter` |
//! | `subject` | what is traced: a transaction in its block, or a message |
//! | `tracers` | geth's tracers by name |
//! | `struct_log`, `call_tracer`, `prestate` | geth's struct logger, callTracer and 4byteTracer, prestateTracer |
//! | `explain` | `niwaki_explainBlock`: the time of a block by transaction, contract and opcode |
//! | `flat`, `state_diff`, `vm_trace` | Parity's flat calls, stateDiff, vmTrace |

mod call_tracer;
mod debug;
mod explain;
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
pub(crate) use explain::explain_block;
pub(crate) use parity::METHODS as TRACE_METHODS;
pub(crate) use subject::PastBlock;

use crate::{RpcError, RpcResult};

/// Most bytes of a response, or of a part of it, in memory.
pub(crate) const MAX_RESPONSE_BYTES: usize = 512 << 20;

/// Refuses a trace that is longer than [`MAX_RESPONSE_BYTES`].
fn check_length(trace: &[u8]) -> RpcResult {
    match trace.len() > MAX_RESPONSE_BYTES {
        true => Err(too_large()),
        false => Ok(()),
    }
}

/// The error of a trace that is longer than [`MAX_RESPONSE_BYTES`].
fn too_large() -> RpcError {
    RpcError::limit(format!(
        "the trace is longer than {} MiB: ask for less, by limit, disableStack, disableStorage, or \
         another tracer",
        MAX_RESPONSE_BYTES >> 20
    ))
}

#[cfg(test)]
mod tests;
