//! One call or creation while it runs.

use crate::{
    arena::HEIGHT_MASK,
    code::Code,
    env::{Message, Target},
    evm::Shared,
    state_gas::StateGas,
    table::Table,
    word::Word,
    world::{AccountId, Checkpoint},
};
use niwaki_primitives::{Address, U256};
use std::sync::Arc;

/// Why code stopped running, other than by its own word; all gas of the frame is gone.
///
/// Spec: execution-specs `vm/exceptions.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Gas ran out.
    OutOfGas,
    /// An opcode took more words than the stack held.
    StackUnderflow,
    /// The stack would have held over 1024 words.
    StackOverflow,
    /// A jump to a place that is no JUMPDEST.
    InvalidJump,
    /// An opcode that the fork does not know, or INVALID.
    UndefinedOpcode(u8),
    /// A change of state within STATICCALL.
    WriteInStaticContext,
    /// RETURNDATACOPY beyond the returned data.
    ReturnDataOutOfBounds,
    /// A creation at an address that is taken.
    AddressCollision,
    /// Deployed code that begins with 0xef (EIP-3541).
    InvalidContractPrefix,
    /// Deployed code beyond the limit (EIP-170).
    CodeTooLong,
    /// A precompiled contract refused its input.
    Precompile,
    /// An operand of DUPN, SWAPN or EXCHANGE that means nothing (EIP-8024).
    InvalidOperand(u8),
    /// An opcode or a contract of the host's own failed, for this reason.
    Host(&'static str),
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OutOfGas => f.write_str("out of gas"),
            Self::StackUnderflow => f.write_str("stack underflow"),
            Self::StackOverflow => f.write_str("stack overflow"),
            Self::InvalidJump => f.write_str("invalid jump destination"),
            Self::UndefinedOpcode(opcode) => write!(f, "undefined opcode 0x{opcode:02x}"),
            Self::WriteInStaticContext => f.write_str("write in a static context"),
            Self::ReturnDataOutOfBounds => f.write_str("return data out of bounds"),
            Self::AddressCollision => f.write_str("address collision"),
            Self::InvalidContractPrefix => f.write_str("code begins with 0xef"),
            Self::CodeTooLong => f.write_str("code too long"),
            Self::Precompile => f.write_str("precompiled contract failed"),
            Self::InvalidOperand(operand) => write!(f, "invalid operand 0x{operand:02x}"),
            Self::Host(reason) => f.write_str(reason),
        }
    }
}

/// How a frame left the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// STOP, or the end of the code.
    Stop,
    /// RETURN.
    Return,
    /// REVERT.
    Revert,
    /// SELFDESTRUCT.
    SelfDestruct,
    /// An exceptional halt.
    Halt(Halt),
    /// The frame waits for a call; never the end of one.
    Call,
    /// The frame waits for a creation; never the end of one.
    Create,
    /// The state could not be read; the run has no outcome.
    Fault,
    /// The tracer wanted the run to end; what it did is good for nothing.
    Interrupted,
}

impl Exit {
    /// How a frame that asks for `target` leaves.
    pub(crate) const fn of(target: &Target) -> Self {
        match target {
            Target::Call(_) => Self::Call,
            Target::Create(_) => Self::Create,
        }
    }

    /// Whether the frame's changes stay.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Stop | Self::Return | Self::SelfDestruct)
    }
}

/// What a frame asked for when it left with [`Exit::Call`] or [`Exit::Create`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Gas for the callee, taken from the caller already (stipend included).
    pub(crate) gas: i64,
    /// State gas for the callee, taken from the caller already: all it has.
    pub(crate) reservoir: i64,
    /// Whether the call brings an account into being. The caller has paid for it; the state gas comes back
    /// to it if the call fails.
    pub(crate) new_account: bool,
    /// Account whose code runs, before delegation; of a creation: the new address.
    pub(crate) code_address: Address,
    /// Account whose code is loaded, after delegation.
    pub(crate) code_account: AccountId,
    /// Whether `code_account` was reached by delegation.
    pub(crate) delegated: bool,
    /// Account whose storage is used.
    pub(crate) target: AccountId,
    /// CALLER in the callee.
    pub(crate) caller: Address,
    /// CALLVALUE in the callee.
    pub(crate) value: U256,
    /// Whether `value` moves.
    pub(crate) transfers: bool,
    /// Whether the callee may not write.
    pub(crate) is_static: bool,
    /// Input, or init code: a range of the caller's memory.
    pub(crate) input: *const u8,
    pub(crate) input_len: usize,
    /// Where the output goes in the caller's memory.
    pub(crate) output: *mut u8,
    pub(crate) output_len: usize,
}

impl Request {
    /// What a message asks for of the account `target` at `address`.
    pub(crate) fn of(message: &Message, address: Address, target: AccountId, gas: i64) -> Self {
        Self {
            gas,
            reservoir: 0,
            new_account: false,
            code_address: address,
            code_account: target,
            delegated: false,
            target,
            caller: message.caller,
            value: message.value,
            transfers: true,
            is_static: false,
            input: message.input.as_ptr(),
            input_len: message.input.len(),
            output: std::ptr::null_mut(),
            output_len: 0,
        }
    }
}

/// What becomes of a frame's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Success on the caller's stack, output into its memory.
    Call { output: *mut u8, output_len: usize },
    /// The output becomes the code of the frame's account, whose address goes on the stack.
    Create { address: Address },
}

impl Kind {
    /// What becomes of the result of a request with which a frame left by `exit`.
    pub(crate) fn of(exit: Exit, request: &Request) -> Self {
        match exit {
            Exit::Create => Self::Create {
                address: request.code_address,
            },
            _ => Self::Call {
                output: request.output,
                output_len: request.output_len,
            },
        }
    }
}

/// One call or creation.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) ip: *const u8,
    pub(crate) sp: *mut Word,
    pub(crate) gas: i64,
    /// Gas it began with.
    pub(crate) given: i64,
    pub(crate) state: StateGas,
    /// State gas that was set aside for it.
    pub(crate) reservoir: i64,
    /// Whether its caller has paid for a new account.
    pub(crate) new_account: bool,
    /// Start of this frame's memory.
    pub(crate) memory: *mut u8,
    /// Its length in bytes, a multiple of 32.
    pub(crate) memory_len: usize,
    /// What has been paid for it.
    pub(crate) memory_cost: i64,
    /// The code that runs.
    pub(crate) code: *const Code,
    /// Its first byte, as it was deployed or fused.
    pub(crate) code_start: *const u8,
    /// The opcodes in force.
    pub(crate) table: *const Table,
    pub(crate) input: *const u8,
    pub(crate) input_len: usize,
    /// What all frames share.
    pub(crate) shared: *mut Shared<'static>,
    /// Account whose storage is used.
    pub(crate) account: AccountId,
    pub(crate) is_static: bool,
    /// Frames above this one; 0 is the transaction's own.
    pub(crate) depth: usize,
    pub(crate) address: Address,
    pub(crate) caller: Address,
    pub(crate) value: Word,
    pub(crate) exit: Exit,
    /// RETURN's and REVERT's data, in this frame's memory.
    pub(crate) output: *const u8,
    pub(crate) output_len: usize,
    pub(crate) request: Option<Request>,
    pub(crate) kind: Kind,
    pub(crate) checkpoint: Checkpoint,
    /// Holds the init code alive that a creation runs.
    pub(crate) init_code: Option<Arc<Code>>,
}

impl Frame {
    /// The table for the code that runs, which may be fused.
    ///
    /// # Safety
    /// The code and the table must be alive.
    #[inline(always)]
    pub(crate) unsafe fn table_in_force(&self) -> &Table {
        // SAFETY: as the caller promises.
        unsafe {
            let table = &*self.table;
            match &table.fused {
                Some(fused) if self.code_start != (*self.code).bytes().as_ptr() => fused,
                _ => table,
            }
        }
    }

    /// Goes over to the code as it was deployed; gives the place there of the place `ip` in the code that
    /// runs.
    ///
    /// # Safety
    /// The code must be alive and `ip` point into it.
    pub(crate) unsafe fn unfuse(&mut self, ip: *const u8) -> *const u8 {
        // SAFETY: as the caller promises; both forms have the same length.
        unsafe {
            let at = ip.offset_from(self.code_start);
            self.code_start = (*self.code).bytes().as_ptr();
            self.code_start.offset(at)
        }
    }

    /// How many words the stack holds.
    pub(crate) fn stack_len(&self) -> usize {
        (self.sp as usize & HEIGHT_MASK) / size_of::<Word>()
    }

    /// What all frames share.
    #[inline(always)]
    pub(crate) fn shared(&mut self) -> &mut Shared<'static> {
        // SAFETY: the Evm that owns it is borrowed for the whole run, and the reference does not
        // outlive the borrow of the frame.
        unsafe { &mut *self.shared }
    }

    /// Ends the frame from a slow path.
    #[cold]
    pub(crate) fn fail(&mut self, halt: Halt) -> i64 {
        self.exit = Exit::Halt(halt);
        -1
    }

    /// Ends the run from a slow path: the state could not be read.
    #[cold]
    pub(crate) fn fault(&mut self, fault: niwaki_primitives::Fault) -> i64 {
        self.exit = Exit::Fault;
        self.shared().fault = Some(fault);
        -1
    }
}
