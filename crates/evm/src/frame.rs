//! A frame: one call or creation while it runs.
//!
//! The driver ([`crate::Evm`]) pushes a frame per call. While the frame runs, the interpreter has its `ip`, `sp` and
//! `gas` in registers and saves them here when it leaves. Frames are addressed by raw pointers, since driver and
//! handlers use them alternately; the [`crate::Evm`] owns them and outlives every run. Stack and memory are in the
//! arena:
//!
//! ```text
//! stacks   | depth 0 ....... | depth 1 ....... |     64 KiB apart, so the low bits of sp are the height
//! memory   | depth 0 | depth 1 ...                   a callee's memory begins where its caller's ends
//! ```

use crate::{
    arena::HEIGHT_MASK,
    code::Code,
    env::Message,
    exit::{Exit, HaltReason},
    shared::SharedState,
    state_gas::StateGas,
    table::Table,
    word::Word,
    world::{AccountId, Checkpoint},
};
use niwaki_primitives::{Address, U256};
use std::sync::Arc;

/// The call or creation that a frame requested when it left with [`Exit::Call`] or [`Exit::Create`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRequest {
    /// Gas for the callee, taken from the caller already (stipend included).
    pub(crate) gas: i64,
    /// State gas for the callee, taken from the caller already: all it has.
    pub(crate) reservoir: i64,
    /// Whether the call creates an account. The caller has paid for it, and gets the state gas back if the call fails.
    pub(crate) creates_account: bool,
    /// Account whose code runs, before delegation; for a creation, the new address.
    pub(crate) code_address: Address,
    /// Account whose code is loaded, after delegation.
    pub(crate) code_account: AccountId,
    /// Whether `code_account` was reached by delegation.
    pub(crate) is_delegated: bool,
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

impl CallRequest {
    /// The request of a message to the account `target` at `address`.
    pub(crate) fn of(message: &Message, address: Address, target: AccountId, gas: i64) -> Self {
        Self {
            gas,
            reservoir: 0,
            creates_account: false,
            code_address: address,
            code_account: target,
            is_delegated: false,
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

/// Where the result of a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Success goes on the caller's stack, output into its memory.
    Call { output: *mut u8, output_len: usize },
    /// The output becomes the code of the frame's account, and the address goes on the caller's stack.
    Create { address: Address },
}

impl FrameKind {
    /// Where the result of `request` goes, with which a frame left by `exit`.
    pub(crate) fn of(exit: Exit, request: &CallRequest) -> Self {
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
    pub(crate) gas_limit: i64,
    pub(crate) state: StateGas,
    /// State gas reservoir it began with.
    pub(crate) reservoir: i64,
    /// Whether its caller has paid for a new account.
    pub(crate) creates_account: bool,
    /// Start of this frame's memory.
    pub(crate) memory: *mut u8,
    /// Its length in bytes, a multiple of 32.
    pub(crate) memory_len: usize,
    /// Gas that was paid for it.
    pub(crate) memory_cost: i64,
    /// The code that runs.
    pub(crate) code: *const Code,
    /// The first byte of the form that runs: as deployed, or fused.
    pub(crate) code_start: *const u8,
    /// The opcodes in force.
    pub(crate) table: *const Table,
    pub(crate) input: *const u8,
    pub(crate) input_len: usize,
    /// What all frames share.
    pub(crate) shared: *mut SharedState<'static>,
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
    pub(crate) request: Option<CallRequest>,
    pub(crate) kind: FrameKind,
    pub(crate) checkpoint: Checkpoint,
    /// Keeps the init code of a creation alive.
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

    /// Switches to the code as deployed; returns the pointer there for `ip` in the form that runs.
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
    pub(crate) fn shared(&mut self) -> &mut SharedState<'static> {
        // SAFETY: the Evm that owns it is borrowed for the whole run, and the reference does not outlive the borrow of
        // the frame.
        unsafe { &mut *self.shared }
    }

    /// Ends the frame from an out-of-line function; returns the gas that means so.
    #[cold]
    pub(crate) fn fail(&mut self, halt: HaltReason) -> i64 {
        self.exit = Exit::Halt(halt);
        -1
    }

    /// Ends the run from an out-of-line function: the state could not be read.
    #[cold]
    pub(crate) fn fault(&mut self, fault: niwaki_primitives::Fault) -> i64 {
        self.exit = Exit::Fault;
        self.shared().fault = Some(fault);
        -1
    }
}
