//! 0x50s and 0xf0s: jumps, and the end of a frame.
#![expect(
    clippy::cast_possible_truncation,
    reason = "`usize` has 64 bits, see `lib.rs`; other truncations are intended"
)]

use super::{op, push};
use crate::{
    exit::{Exit, HaltReason},
    interpreter::{Op, Regs},
    ops::memory,
    word::Word,
};

/// Moves `ip` to `target` if it is a JUMPDEST; else the frame halts.
///
/// # Safety
/// The frame must be alive and `target` a word of the stack.
#[inline(always)]
pub(crate) unsafe fn jump_to(r: &mut Regs, target: *const Word) -> bool {
    // SAFETY: as the caller promises.
    unsafe { jump_to_pc(r, (*target).as_u64()) }
}

/// Moves `ip` to `pc` if there is a JUMPDEST; else the frame halts. `None` is beyond any code.
///
/// # Safety
/// The frame must be alive.
#[inline(always)]
pub(crate) unsafe fn jump_to_pc(r: &mut Regs, pc: Option<u64>) -> bool {
    // SAFETY: the frame and its code outlive the run; a destination of the bitmap is in the code.
    unsafe {
        let frame = &*r.frame;
        match pc {
            Some(at) if (*frame.code).is_jumpdest(at) => {
                r.ip = frame.code_start.wrapping_add(at as usize);
                true
            }
            _ => r.halt(HaltReason::InvalidJump),
        }
    }
}

op!(Stop = 0x00, 0 => 0, size 0, |r| r.exit(Exit::Stop));
op!(Jump = 0x56, 1 => 0, size 0, |r| {
    let target = r.peek(0);
    r.pop(1);
    jump_to(r, target)
});
op!(Jumpi = 0x57, 2 => 0, size 0, |r| {
    let (target, condition) = (r.peek(0), r.peek(1));
    r.pop(2);
    if (*condition).is_zero() {
        r.ip = r.ip.add(1);
        true
    } else {
        jump_to(r, target)
    }
});
push!(Pc = 0x58, |r| [
    r.ip.offset_from((*r.frame).code_start) as u64,
    0,
    0,
    0
]);
push!(Gas = 0x5a, |r| [r.gas as u64, 0, 0, 0]);

/// JUMPDEST.
pub(crate) struct Jumpdest;

impl Op for Jumpdest {
    const CODE: u8 = 0x5b;
    const IN: usize = 0;
    const OUT: usize = 0;

    #[inline(always)]
    unsafe fn run(_: &mut Regs) -> bool {
        true
    }
}

/// Leaves the frame with the range of memory on the stack as its output.
#[inline(always)]
unsafe fn leave_with_output(r: &mut Regs, exit: Exit) -> bool {
    // SAFETY: the wrapper has checked for two words.
    unsafe {
        let (offset, length) = (r.peek(0), r.peek(1));
        r.pop(2);
        let Some((start, length)) = memory::range(r, offset, length) else {
            return false;
        };
        (*r.frame).output = start;
        (*r.frame).output_len = length;
        r.exit(exit)
    }
}

op!(Return = 0xf3, 2 => 0, |r| leave_with_output(r, Exit::Return));
op!(
    /// EIP-140.
    Revert = 0xfd, 2 => 0, |r| leave_with_output(r, Exit::Revert));

/// An opcode that the fork does not know, and INVALID (EIP-141).
pub(crate) struct Undefined;

impl Op for Undefined {
    const CODE: u8 = 0xfe;
    const IN: usize = 0;
    const OUT: usize = 0;
    const SIZE: usize = 0;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: `ip` points into padded code; the frame outlives the run.
        unsafe { r.halt(HaltReason::UndefinedOpcode(*r.ip)) }
    }
}
