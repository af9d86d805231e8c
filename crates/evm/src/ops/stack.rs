//! 0x50s to 0x90s, and EIP-8024: stack operations.

use super::{op, push};
use crate::{
    arena::HEIGHT_MASK,
    exit::HaltReason,
    interpreter::{Op, Regs},
    word::{self, Word, write},
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
        // SAFETY: the wrapper has checked for room.
        unsafe {
            write(r.sp, Self::operand(r.ip));
            r.sp = r.sp.add(1);
        }
        true
    }
}

impl<const N: usize> Push<N> {
    /// The operand of the PUSH at `ip`.
    ///
    /// # Safety
    /// `ip` must point into padded code.
    #[inline(always)]
    pub(crate) unsafe fn operand(ip: *const u8) -> [u64; 4] {
        let mut limbs = [0u64; 4];
        // SAFETY: code is padded by more than 32 zero bytes.
        unsafe {
            let end = ip.add(1 + N);
            for (at, limb) in limbs.iter_mut().enumerate().take(N.div_ceil(8)) {
                let bytes = if N - at * 8 >= 8 { 8 } else { N - at * 8 };
                // The limbs of the operand end at `end`. A short one is read from its first byte, with the code or
                // padding after it, and shifted.
                let from = end.sub(at * 8 + bytes).cast::<u64>();
                *limb = ptr::read_unaligned(from).swap_bytes() >> (64 - bytes * 8);
            }
        }
        limbs
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

/// Whether the stack holds `count` words.
#[inline(always)]
fn has_words(r: &Regs, count: usize) -> bool {
    (r.sp as usize & HEIGHT_MASK) >= count * size_of::<Word>()
}

/// The depth in the operand of DUPN and SWAPN: 17 to 235. Bytes of JUMPDEST and PUSH are invalid.
const fn decode_single(operand: u8) -> Option<usize> {
    match operand {
        91..=127 => None,
        _ => Some(operand.wrapping_add(145) as usize),
    }
}

/// The two depths that EXCHANGE swaps, counted from the word below the top: 1 to 14 and up to 29.
const fn decode_pair(operand: u8) -> Option<(usize, usize)> {
    if let 82..=127 = operand {
        return None;
    }
    let packed = (operand ^ 143) as usize;
    let (high, low) = (packed / 16, packed % 16);
    Some(match high < low {
        true => (high + 1, low + 1),
        false => (low + 1, 29 - high),
    })
}

op!(
    /// EIP-8024.
    DupN = 0xe6, 0 => 1, size 2, |r| {
    let operand = *r.ip.add(1);
    let Some(depth) = decode_single(operand) else {
        return r.halt(HaltReason::InvalidOperand(operand));
    };
    if !has_words(r, depth) {
        return r.halt(HaltReason::StackUnderflow);
    }
    word::copy(r.sp, r.peek(depth - 1));
    r.sp = r.sp.add(1);
    true
});
op!(
    /// EIP-8024.
    SwapN = 0xe7, 0 => 0, size 2, |r| {
    let operand = *r.ip.add(1);
    let Some(depth) = decode_single(operand) else {
        return r.halt(HaltReason::InvalidOperand(operand));
    };
    if !has_words(r, depth + 1) {
        return r.halt(HaltReason::StackUnderflow);
    }
    word::swap(r.peek(0), r.peek(depth));
    true
});
op!(
    /// EIP-8024.
    Exchange = 0xe8, 0 => 0, size 2, |r| {
    let operand = *r.ip.add(1);
    let Some((upper, lower)) = decode_pair(operand) else {
        return r.halt(HaltReason::InvalidOperand(operand));
    };
    if !has_words(r, upper.max(lower) + 1) {
        return r.halt(HaltReason::StackUnderflow);
    }
    word::swap(r.peek(upper), r.peek(lower));
    true
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eip_8024_operands_cover_depths_17_to_235_once() {
        let mut singles: Vec<usize> = (0..=u8::MAX).filter_map(decode_single).collect();
        singles.sort_unstable();
        assert_eq!(singles, (17..=235).collect::<Vec<_>>());
        assert_eq!(
            (decode_single(0x80), decode_single(0xdb)),
            (Some(17), Some(108))
        );

        let pairs: std::collections::BTreeSet<_> = (0..=u8::MAX).filter_map(decode_pair).collect();
        assert_eq!(pairs.len(), 256 - 46);
        assert!(
            pairs
                .iter()
                .all(|(n, m)| (1..=14).contains(n) && n < m && n + m <= 30)
        );
        assert_eq!(decode_pair(0x9d), Some((2, 3)));
    }

    #[test]
    fn eip_8024_operands_0x5b_to_0x7f_are_invalid() {
        for operand in 0x5b..=0x7f {
            assert_eq!((decode_single(operand), decode_pair(operand)), (None, None));
        }
    }
}
