//! The law of each EIP at its edges: before the fork, at the gas that just suffices, and below.

mod calls;
mod creation;
mod machine;
mod memory;
mod opcodes;
mod storage;
mod warmth;
