//! An Ethereum virtual machine.
//!
//! In goes a [`BlockEnv`], a fork, a state to read ([`niwaki_primitives::StateView`]) and
//! [`Message`]s to run; out come [`Outcome`]s, logs, and the changes to the [`World`]. The crate
//! knows code, gas and the world it runs in; it knows nothing of blocks' validity, of transaction
//! fees, of roots, and it does no IO.
//!
//! How it is built: a row per opcode ([`table`]) names one body; each body is compiled twice, as a
//! threaded handler that ends in a jump to the next one, and as a step of a plain loop
//! ([`Dispatch`]). Words live in the stack slots and move limb by limb. Accounts and slots are
//! interned to 32-bit handles for the length of a block.

const _: () = assert!(usize::BITS == 64, "memories are addressed with 64 bits");

mod arena;
mod canary;
mod code;
mod code_cache;
mod cost;
mod division;
mod env;
mod evm;
mod frame;
#[cfg(target_arch = "x86_64")]
mod fused;
mod gas;
mod init_code;
mod interpreter;
mod inverse;
mod jumpdests;
mod machine;
mod modulus;
mod ops;
mod overrides;
mod slot_hashes;
mod state_gas;
pub mod table;
mod tracer;
pub mod tracers;
mod word;
mod world;

pub use arena::forget_hashes;
pub use canary::dispatch_is_flat;
pub use code::{Code, delegation, fuse_later, set_runs_to_be_hot};
pub use code_cache::{fuse_hot_codes, set_code_cache_bytes};
pub use cost::CostOrder;
pub use env::{BlockEnv, Message, Outcome, Target, TxEnv};
pub use evm::Evm;
pub use frame::{Exit, Halt};
pub use gas::{ACCOUNT_WRITE, GasSchedule, Sstore, StatePrices};
pub use interpreter::Dispatch;
pub use machine::{Abort, ContractCall, ContractOutput, Flow, HostState, Machine};
pub use overrides::{Contract, Guard, OpcodeBody};
pub use state_gas::StateGas;
pub use table::{Meta, Table};
pub use tracer::{CallKind, Entered, Failure, Left, Step, Tracer};
pub use word::Word;
pub use world::{
    AccountId, Checkpoint, CodeId, Effects, Holding, Publisher, SYSTEM_ADDRESS, SlotId, World,
};
