//! Tracers that are ready to be used: what geth calls callTracer, flatCallTracer, 4byteTracer and
//! prestateTracer, as values, and the lines of EIP-3155.
//!
//! They are given to [`crate::Evm::run`]; what is not given costs nothing. The first three want no
//! opcodes, so that a run with them is dispatched as ever.

mod calls;
mod eip3155;
mod touched;

pub use calls::{Call, CallLog, CallOptions, CallTree, Selector};
pub use eip3155::{Eip3155, Eip3155End, Form, Shown, besu_words};
pub use touched::Touched;
