//! An Ethereum virtual machine.
//!
//! In goes a [`BlockEnv`], a fork's [`Table`], a state to read ([`niwaki_primitives::StateView`]) and [`Message`]s to
//! run; out come [`Outcome`]s, logs, and the changes in the [`World`]. The crate knows code, gas and the world state;
//! it knows nothing of block validity, transaction fees or state roots, and it does no IO.
//!
//! ```text
//! execution --Message--> evm.rs (driver) --Frame--> interpreter.rs --> ops/* --> world/*
//!                           ^                           |
//!                           +------- CallRequest -------+   CALL and CREATE leave the frame; the driver
//!                                                           pushes the callee's frame and resumes the caller
//! ```
//!
//! Each opcode is one row of [`table`] and one body in `ops`. A body is compiled twice: as a threaded handler whose
//! last act is a jump to the next handler, and as a step of a plain loop ([`Dispatch`]). Code that runs often is
//! rewritten so that common opcode sequences are one handler each (`fused`). Stack words are four 64-bit limbs.
//! Accounts and slots are interned to 32-bit ids for the length of a block.
//!
//! | file | what it is |
//! |---|---|
//! | `evm` | the driver: runs the frames of a message |
//! | `evm/calls` | the start of calls and creations |
//! | `evm/message` | what precedes and follows the first frame |
//! | `evm/tracing` | calls of the tracer |
//! | `frame`, `exit`, `shared` | one call while it runs; how it leaves; what all frames share |
//! | `interpreter`, `dispatch` | registers, both forms of a handler, the loops; the names of dispatch |
//! | `ops/*` | opcode bodies, one file per chapter of the Yellow Paper's table |
//! | `fused` | superinstructions: the second copy of hot code |
//! | `fused/patterns`, `fused/superinstructions` | the sequences; their bodies |
//! | `table`, `gas` | opcode rows and prices per fork |
//! | `cost` | the full price of an opcode, for traces |
//! | `state_gas` | the meter of state gas (EIP-8037) |
//! | `code`, `jumpdests` | prepared code; its jump analysis |
//! | `code_cache`, `init_code_cache` | prepared code across blocks; the last init code |
//! | `keccak_cache` | recent hashes of 32 and 64 bytes |
//! | `arena` | stacks and memories of all frames |
//! | `word`, `limbs` | the stack word; arithmetic on 256-bit numbers |
//! | `division`, `inverse`, `modulus` | DIV to MULMOD: division, and cached inverses of repeated divisors |
//! | `world/*` | the world state in a block: records, journal, diff, dirty set, read-write sets, access list |
//! | `env` | block, transaction, message and outcome |
//! | `overrides`, `machine` | opcodes, prices and contracts of a host; what they can read and change |
//! | `tracer`, `tracers/*` | the tracer trait; callTracer, prestateTracer, EIP-3155 |
//! | `tail_calls` | the start-up check that handlers end in jumps |

const _: () = assert!(usize::BITS == 64, "memories are addressed with 64 bits");

mod arena;
mod code;
mod code_cache;
mod cost;
mod dispatch;
mod division;
mod env;
mod evm;
mod exit;
mod frame;
#[cfg(target_arch = "x86_64")]
mod fused;
mod gas;
mod init_code_cache;
mod interpreter;
mod inverse;
mod jumpdests;
mod keccak_cache;
mod limbs;
mod machine;
mod modulus;
mod ops;
mod overrides;
mod shared;
mod state_gas;
pub mod table;
mod tail_calls;
mod tracer;
pub mod tracers;
mod word;
mod world;

pub use arena::clear_keccak_cache;
pub use code::{Code, defer_fusing, delegation, set_hot_threshold};
pub use code_cache::{fuse_hot_codes, set_code_cache_bytes};
pub use cost::CostOrder;
pub use dispatch::Dispatch;
pub use env::{BlockEnv, Message, Outcome, Target, TxEnv};
pub use evm::Evm;
pub use exit::{Exit, HaltReason};
pub use gas::{ACCOUNT_WRITE, GasSchedule, Sstore, StatePrices};
pub use machine::{ContractCall, ContractOutput, Flow, HostError, HostState, Machine};
pub use overrides::{Contract, Guard, OpcodeBody};
pub use state_gas::StateGas;
pub use table::{OpcodeInfo, Table};
pub use tail_calls::has_tail_calls;
pub use tracer::{CallEnd, CallKind, CallStart, Failure, Step, Tracer};
pub use word::Word;
pub use world::{
    AccountId, Checkpoint, CodeId, ReadWriteSet, SYSTEM_ADDRESS, SlotId, StateListener,
    ValidatedIds, World,
};
