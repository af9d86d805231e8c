//! Executing unsigned messages: calls, overrides, and the block that they run in.
//!
//! Execution is bounded by gas, and by the time when the caller stops waiting. That deadline is checked whenever a
//! call begins or ends, which costs next to nothing; a single frame that loops without calls ends by its gas, within
//! seconds for the usual gas caps. Tracers that see every opcode check the deadline between opcodes as well.
//!
//! | file | what it is |
//! |---|---|
//! | `message` | the JSON of a message, and its unsigned transaction |
//! | `overrides` | state and block overrides |
//! | `block` | the block that messages run in, and the result of each |
//! | `bal_builder` | the block access list of a simulated block |
//! | `deadline_tracer` | stops execution at the deadline |
//! | `error` | geth's error messages and codes |

mod bal_builder;
mod block;
mod deadline_tracer;
mod error;
mod message;
mod overrides;

pub(crate) use block::{SimulatedBlock, SimulationResult};
pub(crate) use deadline_tracer::NoopTracer;
pub(crate) use error::{error_message, invalid, revert_reason, reverted, simulation_code};
pub(crate) use message::{AccessItem, Message};
pub(crate) use overrides::{BlockOverrides, StateOverrides, withdrawals};
