//! Watching a run: opcode by opcode, or call by call.

use crate::{
    cost::CostOrder,
    frame::{Exit, Frame, Halt},
    table::Table,
};
use niwaki_primitives::{Address, Log, U256};
use std::fmt;

/// Told of every opcode before and after it runs, and of every call as it begins and ends.
///
/// A run with a tracer that wants opcodes uses the loop form of the interpreter; one without a
/// tracer pays nothing for it.
pub trait Tracer {
    /// An opcode is about to run.
    fn step(&mut self, step: &Step<'_>) {
        let _ = step;
    }

    /// Whether opcodes are told at all; asked at the start of every frame. A run whose tracer
    /// wants calls only is as fast as one without.
    fn wants_steps(&self) -> bool {
        true
    }

    /// In whose order the price of an opcode that fails is added up; asked at the start of every frame.
    fn cost_order(&self) -> CostOrder {
        CostOrder::Geth
    }

    /// Whether the run is to end now, without result; asked after every opcode that is told, and
    /// wherever a call begins or ends.
    fn stops(&mut self) -> bool {
        false
    }

    /// A call, a creation or a SELFDESTRUCT begins, also one that is refused at once. It ends with
    /// [`Tracer::leave`]; what begins in between is within it.
    fn enter(&mut self, entered: &Entered<'_>) {
        let _ = entered;
    }

    /// What was entered last and has not ended ends.
    fn leave(&mut self, left: &Left<'_>) {
        let _ = left;
    }

    /// The call that runs has emitted these logs since it was entered, or since its last callee
    /// ended. What it does may be taken back yet.
    fn logs(&mut self, logs: &[Log]) {
        let _ = logs;
    }

    /// The opcode has run: gas left in its frame, and gas that it has handed to a callee (stipend
    /// included), which is gone from the former. Of an opcode that fails, `gas_left` is the gas before it
    /// less its price as [`Tracer::cost_order`] has it: below zero if that is more than there was.
    fn step_end(&mut self, gas_left: i64, handed: i64) {
        let _ = (gas_left, handed);
    }

    /// A frame has ended: gas left in it before an exceptional halt took the rest, its output, and
    /// its failure, if it failed.
    fn frame_end(&mut self, depth: usize, gas_left: i64, output: &[u8], error: Option<String>) {
        let _ = (depth, gas_left, output, error);
    }
}

/// What is entered.
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

/// A call, a creation or a SELFDESTRUCT as it begins.
#[derive(Clone, Copy, Debug)]
pub struct Entered<'a> {
    /// Which.
    pub kind: CallKind,
    /// Who calls: the account that runs, whatever its callee will see as its caller.
    pub from: Address,
    /// Account whose code runs, the new account, or the beneficiary.
    pub to: Address,
    /// Wei; what the callee will see, moved or not.
    pub value: U256,
    /// Input or init code.
    pub input: &'a [u8],
    /// Gas given, stipend included.
    pub gas: u64,
    /// 0 for the transaction's own.
    pub depth: usize,
    /// Whether `to` is a precompiled contract.
    pub is_precompiled: bool,
}

/// How a call or creation ended.
#[derive(Clone, Copy, Debug)]
pub struct Left<'a> {
    /// 0 for the transaction's own.
    pub depth: usize,
    /// What it returned or reverted with; of a creation: the code.
    pub output: &'a [u8],
    /// Gas it used of what it was given.
    pub gas_used: u64,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// Why a call or creation failed. Shown in the words that clients of geth know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// REVERT.
    Revert,
    /// An exceptional halt.
    Halt(Halt),
    /// An opcode took more words than the stack held.
    StackUnderflow {
        /// Words there were.
        height: usize,
        /// Words it takes.
        takes: usize,
    },
    /// An opcode would have left more than 1024 words.
    StackOverflow {
        /// Words there were.
        height: usize,
    },
    /// A contract could not pay for its code.
    CodeDeposit,
    /// The caller has less than the value.
    Balance,
    /// The callee would be deeper than 1024.
    Depth,
    /// The creator's nonce is at its end.
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
                Halt::UndefinedOpcode(0xfe) => "invalid opcode: INVALID",
                Halt::UndefinedOpcode(opcode) => {
                    return write!(f, "invalid opcode: opcode {opcode:#x} not defined");
                }
                Halt::StackOverflow => "stack limit reached",
                Halt::WriteInStaticContext => "write protection",
                Halt::AddressCollision => "contract address collision",
                Halt::InvalidContractPrefix => "invalid code: must not begin with 0xef",
                Halt::CodeTooLong => "max code size exceeded",
                other => return other.fmt(f),
            },
        };
        f.write_str(text)
    }
}

impl Failure {
    /// How a frame's end failed, if it did. `frame` is as it was left.
    pub(crate) fn of(exit: Exit, frame: &Frame, table: &Table) -> Option<Self> {
        let height = frame.stack_len();
        Some(match exit {
            Exit::Revert => Self::Revert,
            Exit::Halt(Halt::StackOverflow) => Self::StackOverflow { height },
            Exit::Halt(Halt::StackUnderflow) => {
                // A jump stands where it is, any other opcode is behind.
                // SAFETY: both bytes lie in the padded code.
                let bytes = unsafe {
                    let at = |ip: *const u8| (ip >= frame.code_start).then(|| *ip);
                    [at(frame.ip.wrapping_sub(1)), at(frame.ip)]
                };
                let metas = bytes.into_iter().flatten();
                let takes = metas
                    .filter_map(|opcode| table.meta(opcode))
                    .map(|meta| meta.input)
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

/// The machine before an opcode.
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

    /// Whether the frame has no code at all, so that what runs is the STOP behind its end.
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
            // SAFETY: `height` words lie below the stack pointer.
            .map(|depth| unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
            .collect()
    }

    /// How many words the stack holds.
    pub fn stack_len(&self) -> usize {
        self.frame.stack_len()
    }

    /// The word `depth` below the top, if it is there.
    pub fn peek(&self, depth: usize) -> Option<U256> {
        // SAFETY: so many words lie below the stack pointer.
        (depth < self.stack_len()).then(|| unsafe { (*self.frame.sp.sub(depth + 1)).to_u256() })
    }

    /// The value of a slot of the account whose storage is used; zero if it can't be read, which
    /// the opcode that reads it will find out too.
    pub fn slot(&self, key: U256) -> U256 {
        // SAFETY: shared state outlives the run, and nothing else refers to it meanwhile.
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
        // SAFETY: the frame's memory is `memory_len` bytes and nothing writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.frame.memory, self.frame.memory_len) }
    }

    /// Bytes of memory.
    pub fn memory_len(&self) -> usize {
        self.frame.memory_len
    }

    /// Refund counter of the transaction.
    pub fn refund(&self) -> i64 {
        // SAFETY: shared state outlives the run and nothing writes to it meanwhile.
        unsafe { (*self.frame.shared).world.refund() }
    }

    /// What the last call returned.
    pub fn return_data(&self) -> &[u8] {
        // SAFETY: as in `refund`.
        unsafe { (&*self.frame.shared).return_data.as_slice() }
    }
}
