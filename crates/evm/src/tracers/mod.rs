//! Ready tracers for [`crate::Evm::run`]: geth's callTracer, flatCallTracer and 4byteTracer ([`CallTree`]) and
//! prestateTracer ([`PrestateTracer`]) as values, and EIP-3155 lines ([`Eip3155`]).
//!
//! [`CallTree`] traces no opcodes, so a run with it is dispatched as one without a tracer.

mod calls;
mod eip3155;
mod prestate;

pub use calls::{Call, CallLog, CallOptions, CallTree, Selector};
pub use eip3155::{Eip3155, Eip3155End, Eip3155Format, Eip3155Options, besu_error};
pub use prestate::PrestateTracer;
