//! 0x50s to 0x90s: moving words on the stack.

use super::{op, push};
use crate::{
    interpreter::{Op, Regs},
    word::{self, write},
};
use std::ptr;

op!(Pop = 0x50, 1 => 0, |r| {
    r.pop(1);
    true
});
push!(
    /// EIP-3855.
    Push0 = 0x5f, |_r| [0; 4]);

/// PUSH1 to PUSH32.
pub(crate) struct Push<const N: usize>;

impl<const N: usize> Op for Push<N> {
    #[expect(clippy::cast_possible_truncation, reason = "N is at most 32")]
    const CODE: u8 = 0x5f + N as u8;
    const IN: usize = 0;
    const OUT: usize = 1;
    const SIZE: usize = 1 + N;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: code is padded by more than 32 zero bytes; the wrapper has checked for room.
        unsafe {
            let end = r.ip.add(1 + N);
            let mut limbs = [0u64; 4];
            for (at, limb) in limbs.iter_mut().enumerate().take(N.div_ceil(8)) {
                let bytes = if N - at * 8 >= 8 { 8 } else { N - at * 8 };
                // The operand's limbs end at `end`. A short one is read from its first byte and
                // shifted: what lies after it is code or padding.
                let from = end.sub(at * 8 + bytes).cast::<u64>();
                *limb = ptr::read_unaligned(from).swap_bytes() >> (64 - bytes * 8);
            }
            write(r.sp, limbs);
            r.sp = r.sp.add(1);
        }
        true
    }
}

/// DUP1 to DUP16.
pub(crate) struct Dup<const N: usize>;

impl<const N: usize> Op for Dup<N> {
    #[expect(clippy::cast_possible_truncation, reason = "N is at most 16")]
    const CODE: u8 = 0x7f + N as u8;
    const IN: usize = N;
    const OUT: usize = N + 1;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: the wrapper has checked for N words and room for one.
        unsafe {
            word::copy(r.sp, r.peek(N - 1));
            r.sp = r.sp.add(1);
        }
        true
    }
}

/// SWAP1 to SWAP16.
pub(crate) struct Swap<const N: usize>;

impl<const N: usize> Op for Swap<N> {
    #[expect(clippy::cast_possible_truncation, reason = "N is at most 16")]
    const CODE: u8 = 0x8f + N as u8;
    const IN: usize = N + 1;
    const OUT: usize = N + 1;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: the wrapper has checked for N + 1 words.
        unsafe { word::swap(r.peek(0), r.peek(N)) };
        true
    }
}
