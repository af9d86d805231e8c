//! How a frame leaves the interpreter: [`Exit`], and the reason of an exceptional halt, [`HaltReason`].

use crate::env::Target;
use std::fmt;

/// The reason of an exceptional halt, which takes all gas of the frame.
///
/// Spec: execution-specs `vm/exceptions.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// Gas ran out.
    OutOfGas,
    /// An opcode took more words than the stack held.
    StackUnderflow,
    /// The stack would have held over 1024 words.
    StackOverflow,
    /// A jump to a byte that is no JUMPDEST.
    InvalidJump,
    /// An opcode that the fork does not know, or INVALID.
    UndefinedOpcode(u8),
    /// A change of state within STATICCALL.
    WriteInStaticContext,
    /// RETURNDATACOPY beyond the returned data.
    ReturnDataOutOfBounds,
    /// A creation at an address that is in use (EIP-684).
    AddressCollision,
    /// Deployed code that begins with 0xef (EIP-3541).
    InvalidContractPrefix,
    /// Deployed code beyond the limit (EIP-170).
    CodeTooLong,
    /// A precompiled contract refused its input.
    Precompile,
    /// An invalid operand of DUPN, SWAPN or EXCHANGE (EIP-8024).
    InvalidOperand(u8),
    /// A host's opcode or precompiled contract failed, for this reason.
    Host(&'static str),
}

impl fmt::Display for HaltReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    Halt(HaltReason),
    /// The frame waits for a call; never the end of a frame.
    Call,
    /// The frame waits for a creation; never the end of a frame.
    Create,
    /// The state could not be read; the run has no outcome.
    Fault,
    /// The tracer stopped the run; its changes must be dropped.
    Interrupted,
}

impl Exit {
    /// The exit with which a frame requests `target`.
    pub(crate) const fn of(target: &Target) -> Self {
        match target {
            Target::Call(_) => Self::Call,
            Target::Create(_) => Self::Create,
        }
    }

    /// Whether the frame's changes are kept.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Stop | Self::Return | Self::SelfDestruct)
    }
}
