//! Each EIP at its edges: before the fork, with exactly enough gas, and with one less.

mod calls;
mod creation;
mod machine;
mod memory;
mod opcodes;
mod storage;
mod warmth;
