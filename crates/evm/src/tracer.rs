//! Watching a run: opcode by opcode, or call by call.

use crate::{
    cost::CostOrder,
    exit::{Exit, HaltReason},
    frame::Frame,
    table::Table,
};
use niwaki_primitives::{Address, Log, U256};
use std::fmt;

/// Called before and after every opcode, and where calls begin and end.
///
/// A run whose tracer traces opcodes uses the loop form of the interpreter; a run without a tracer pays nothing.
pub trait Tracer {
    /// An opcode is about to run.
    fn step(&mut self, step: &Step<'_>) {
        let _ = step;
    }

    /// Whether [`Tracer::step`] and [`Tracer::step_end`] are called; asked at the start of every frame. A run whose
    /// tracer traces calls only is as fast as one without a tracer.
    fn should_trace_steps(&self) -> bool {
        true
    }

    /// The client in whose order the price of a failing opcode is added up; asked at the start of every frame.
    fn cost_order(&self) -> CostOrder {
        CostOrder::Geth
    }

    /// Whether to end the run now, without a result; asked after every traced opcode, and where a call begins or ends.
    fn should_stop(&mut self) -> bool {
        false
    }

    /// A call, creation or SELFDESTRUCT begins, also one that is refused at once. [`Tracer::exit`] ends it; calls that
    /// begin before that are within it.
    fn enter(&mut self, start: &CallStart<'_>) {
        let _ = start;
    }

    /// The innermost open call ends.
    fn exit(&mut self, end: &CallEnd<'_>) {
        let _ = end;
    }

    /// The innermost open call has emitted these logs since it began, or since its last callee ended. They may still be
    /// reverted.
    fn logs(&mut self, logs: &[Log]) {
        let _ = logs;
    }

    /// The opcode has run. `gas_left` is the gas of its frame; `forwarded` is the gas given to a callee (stipend
    /// included), already taken from the former. After an opcode that fails, `gas_left` is the gas before it less its
    /// price by [`Tracer::cost_order`], and negative if there was less.
    fn step_end(&mut self, gas_left: i64, forwarded: i64) {
        let _ = (gas_left, forwarded);
    }

    /// A frame has ended: the gas left before an exceptional halt takes it, the output, and the error if it failed.
    fn frame_end(&mut self, depth: usize, gas_left: i64, output: &[u8], error: Option<String>) {
        let _ = (depth, gas_left, output, error);
    }
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// CALL, or the message of a transaction.
    Call,
    /// CALLCODE.
    CallCode,
    /// DELEGATECALL.
    DelegateCall,
    /// STATICCALL.
    StaticCall,
    /// CREATE, or the creation of a transaction.
    Create,
    /// CREATE2.
    Create2,
    /// SELFDESTRUCT, which moves a balance.
    SelfDestruct,
}

impl CallKind {
    /// The mnemonic.
    pub const fn mnemonic(self) -> &'static str {
        match self {
            Self::Call => "CALL",
            Self::CallCode => "CALLCODE",
            Self::DelegateCall => "DELEGATECALL",
            Self::StaticCall => "STATICCALL",
            Self::Create => "CREATE",
            Self::Create2 => "CREATE2",
            Self::SelfDestruct => "SELFDESTRUCT",
        }
    }

    /// Whether a contract is created.
    pub const fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Create2)
    }

    pub(crate) const fn of_opcode(opcode: u8) -> Self {
        match opcode {
            0xf0 => Self::Create,
            0xf5 => Self::Create2,
            0xf2 => Self::CallCode,
            0xf4 => Self::DelegateCall,
            0xfa => Self::StaticCall,
            _ => Self::Call,
        }
    }
}

/// A call, creation or SELFDESTRUCT that begins.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// Its kind.
    pub kind: CallKind,
    /// The account that runs and calls; after DELEGATECALL the callee sees another caller.
    pub from: Address,
    /// Account whose code runs, the new account, or the beneficiary.
    pub to: Address,
    /// CALLVALUE of the callee, wei, transferred or not.
    pub value: U256,
    /// Input or init code.
    pub input: &'a [u8],
    /// Gas given, stipend included.
    pub gas: u64,
    /// 0 for the transaction's own call.
    pub depth: usize,
    /// Whether `to` is a precompiled contract.
    pub is_precompiled: bool,
}

/// How a call or creation ended.
#[derive(Clone, Copy, Debug)]
pub struct CallEnd<'a> {
    /// 0 for the transaction's own call.
    pub depth: usize,
    /// Returned data, or the revert's; of a creation the code.
    pub output: &'a [u8],
    /// Gas used of the gas given.
    pub gas_used: u64,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// Why a call or creation failed. `Display` gives geth's messages, which clients match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// REVERT.
    Revert,
    /// An exceptional halt.
    Halt(HaltReason),
    /// An opcode took more words than the stack held.
    StackUnderflow {
        /// Words on the stack.
        height: usize,
        /// Words that the opcode pops.
        takes: usize,
    },
    /// An opcode would have left more than 1024 words.
    StackOverflow {
        /// Words on the stack.
        height: usize,
    },
    /// The creation could not pay for its code (EIP-2).
    CodeDeposit,
    /// The caller has less than the value.
    Balance,
    /// The callee would be deeper than 1024.
    Depth,
    /// The creator's nonce is 2^64 - 1 (EIP-2681).
    Nonce,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Revert => "execution reverted",
            Self::StackUnderflow { height, takes } => {
                return write!(f, "stack underflow ({height} <=> {takes})");
            }
            Self::StackOverflow { height } => {
                return write!(f, "stack limit reached {height} (1023)");
            }
            Self::CodeDeposit => "contract creation code storage out of gas",
            Self::Balance => "insufficient balance for transfer",
            Self::Depth => "max call depth exceeded",
            Self::Nonce => "nonce uint64 overflow",
            Self::Halt(halt) => match halt {
                HaltReason::UndefinedOpcode(0xfe) => "invalid opcode: INVALID",
                HaltReason::UndefinedOpcode(opcode) => {
                    return write!(f, "invalid opcode: opcode {opcode:#x} not defined");
                }
                HaltReason::StackOverflow => "stack limit reached",
                HaltReason::WriteInStaticContext => "write protection",
                HaltReason::AddressCollision => "contract address collision",
                HaltReason::InvalidContractPrefix => "invalid code: must not begin with 0xef",
                HaltReason::CodeTooLong => "max code size exceeded",
                other => return other.fmt(f),
            },
        };
        f.write_str(text)
    }
}

impl Failure {
    /// The failure of a frame that ended by `exit`, if it failed. `frame` is as the interpreter left it.
    pub(crate) fn of(exit: Exit, frame: &Frame, table: &Table) -> Option<Self> {
        let height = frame.stack_len();
        Some(match exit {
            Exit::Revert => Self::Revert,
            Exit::Halt(HaltReason::StackOverflow) => Self::StackOverflow { height },
            Exit::Halt(HaltReason::StackUnderflow) => {
                // `ip` is at a jump, but after any other opcode.
                // SAFETY: both bytes are in the padded code.
                let bytes = unsafe {
                    let at = |ip: *const u8| (ip >= frame.code_start).then(|| *ip);
                    [at(frame.ip.wrapping_sub(1)), at(frame.ip)]
                };
                let infos = bytes.into_iter().flatten();
                let takes = infos
                    .filter_map(|opcode| table.info(opcode))
                    .map(|info| info.input)
                    .find(|takes| *takes > height);
                Self::StackUnderflow {
                    height,
                    takes: takes.unwrap_or(height + 1),
                }
            }
            Exit::Halt(halt) => Self::Halt(halt),
            _ => return None,
        })
    }
}

/// The frame before an opcode.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    frame: &'a Frame,
    table: &'a Table,
}

impl<'a> Step<'a> {
    pub(crate) fn new(frame: &'a Frame, table: &'a Table) -> Self {
        Self { frame, table }
    }

    /// Program counter.
    pub fn pc(&self) -> usize {
        // SAFETY: `ip` points into the code that begins at `code_start`.
        unsafe { usize::try_from(self.frame.ip.offset_from(self.frame.code_start)).unwrap_or(0) }
    }

    /// Whether the frame has no code, so that the implicit STOP runs.
    pub fn is_code_empty(&self) -> bool {
        // SAFETY: the code outlives the frame.
        unsafe { (*self.frame.code).bytes().is_empty() }
    }

    /// The code that runs.
    pub fn code(&self) -> &[u8] {
        // SAFETY: the code outlives the frame.
        unsafe { (*self.frame.code).bytes() }
    }

    /// The opcode.
    pub fn opcode(&self) -> u8 {
        // SAFETY: `ip` points into padded code.
        unsafe { *self.frame.ip }
    }

    /// The mnemonic, if the table knows the opcode.
    pub fn mnemonic(&self) -> Option<&'static str> {
        self.table.mnemonic(self.opcode())
    }

    /// Static gas of the opcode.
    pub fn static_gas(&self) -> i64 {
        self.table.gas[usize::from(self.opcode())]
    }

    /// Gas left before it.
    pub fn gas(&self) -> i64 {
        self.frame.gas
    }

    /// Depth of the frame, from 1.
    pub fn depth(&self) -> usize {
        self.frame.depth + 1
    }

    /// Account whose storage is used.
    pub fn address(&self) -> Address {
        self.frame.address
    }

    /// The stack, bottom first.
    pub fn stack(&self) -> Vec<U256> {
        (0..self.frame.stack_len())
            .rev()
            // SAFETY: the stack holds `stack_len` words.
            .map(|depth| unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
            .collect()
    }

    /// How many words the stack holds.
    pub fn stack_len(&self) -> usize {
        self.frame.stack_len()
    }

    /// The word `depth` below the top, if it is there.
    pub fn peek(&self, depth: usize) -> Option<U256> {
        // SAFETY: the stack holds more than `depth` words.
        (depth < self.stack_len()).then(|| unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
    }

    /// The value of a slot of the account whose storage is used; zero if it can't be read, in which case the opcode
    /// that reads it faults.
    pub fn slot(&self, key: U256) -> U256 {
        // SAFETY: shared state outlives the run, and nothing else refers to it while it is borrowed.
        let world = unsafe { &mut (*self.frame.shared).world };
        let slot = world.slot(self.frame.account, key);
        slot.map_or(U256::ZERO, |slot| world.slot_value(slot))
    }

    /// The nonce of the account that runs.
    pub fn nonce(&self) -> u64 {
        // SAFETY: as in `slot`.
        unsafe { (*self.frame.shared).world.nonce(self.frame.account) }
    }

    /// The memory.
    pub fn memory(&self) -> &[u8] {
        // SAFETY: the frame's memory is `memory_len` bytes and nothing writes to it while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.frame.memory, self.frame.memory_len) }
    }

    /// Bytes of memory.
    pub fn memory_len(&self) -> usize {
        self.frame.memory_len
    }

    /// Refund counter of the transaction.
    pub fn refund(&self) -> i64 {
        // SAFETY: shared state outlives the run and nothing writes to it while it is borrowed.
        unsafe { (*self.frame.shared).world.refund() }
    }

    /// What the last call returned.
    pub fn return_data(&self) -> &[u8] {
        // SAFETY: as in `refund`.
        unsafe { (&*self.frame.shared).return_data.as_slice() }
    }
}
