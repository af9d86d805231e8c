//! Running what nobody has signed: messages, overrides, and the block that they run in.
//!
//! A run is bounded twice: by gas, and by the time at which the caller stops waiting. The latter
//! is looked at wherever a call begins or ends, which costs nothing to speak of; a single frame
//! that loops without calling ends by its gas, within seconds for the most that an operator
//! usually grants. Runs that are told opcode by opcode look at the time between opcodes too.

mod accesses;
mod block;
mod message;
mod overrides;
mod refusal;
mod watched;

pub(crate) use block::{Run, SimulatedBlock};
pub(crate) use message::{AccessItem, Message};
pub(crate) use overrides::{BlockOverrides, StateOverrides, withdrawals};
pub(crate) use refusal::{invalid, revert_reason, reverted, simulation_code, words};
pub(crate) use watched::Nothing;
