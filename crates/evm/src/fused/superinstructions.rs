//! The bodies of superinstructions.
//!
//! An opcode is a superinstruction, a pair of superinstructions is one, and some sequences have a body of their own
//! that saves stack traffic: `PUSH1 5 ADD` as [`PushBinary<1, Add>`](PushBinary) adds 5 to the top word in place. What
//! a sequence needs of the stack is computed by the compiler from its parts: for `(A, B)`, B's needs are reduced by
//! what A leaves.

use crate::{
    interpreter::{Op, Regs},
    ops::{
        Binary,
        bitwise::Iszero,
        control::{Jump, Jumpdest, Jumpi, jump_to},
        memory::reach,
        stack::{Dup, Pop, Push, Swap},
    },
    word::{self, Word, write},
};
use std::marker::PhantomData;

const fn larger(a: isize, b: isize) -> isize {
    if a > b { a } else { b }
}

/// One or more opcodes with one body.
pub(super) trait Superinstruction {
    /// Words that the stack must hold.
    const NEEDS: usize;
    /// Change of the stack height, words.
    const NET: isize;
    /// Greatest rise of the stack height while its opcodes run, words.
    const PEAK: usize;

    /// Adds its opcodes.
    fn opcodes(into: &mut Vec<u8>);

    /// Runs it and moves `ip` after it; false leaves the frame.
    ///
    /// # Safety
    /// `r` must be the registers of a running frame of fused code; static gas is charged, the stack holds
    /// `NEEDS` words and has room for `PEAK`.
    unsafe fn run(r: &mut Regs) -> bool;
}

impl<O: Op> Superinstruction for O {
    const NEEDS: usize = O::IN;
    const NET: isize = O::OUT as isize - O::IN as isize;
    const PEAK: usize = O::OUT.saturating_sub(O::IN);

    fn opcodes(into: &mut Vec<u8>) {
        into.push(O::CODE);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let is_running = <O as Op>::run(r);
            r.ip = r.ip.add(O::SIZE);
            is_running
        }
    }
}

impl<A: Superinstruction, B: Superinstruction> Superinstruction for (A, B) {
    const NEEDS: usize = larger(A::NEEDS as isize, B::NEEDS as isize - A::NET) as usize;
    const NET: isize = A::NET + B::NET;
    const PEAK: usize = larger(A::PEAK as isize, A::NET + B::PEAK as isize) as usize;

    fn opcodes(into: &mut Vec<u8>) {
        A::opcodes(into);
        B::opcodes(into);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises; what A leaves is what B needs.
        unsafe { A::run(r) && B::run(r) }
    }
}

/// DUPn and a binary opcode.
pub(super) struct DupBinary<const N: usize, B>(PhantomData<B>);

impl<const N: usize, B: Binary> Superinstruction for DupBinary<N, B> {
    const NEEDS: usize = N;
    const NET: isize = 0;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Dup::<N>::CODE, B::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there are N words.
        unsafe {
            let result = B::apply(&(*r.peek(N - 1)).0, &(*r.peek(0)).0);
            write(r.peek(0), result);
            r.ip = r.ip.add(2);
        }
        true
    }
}

/// PUSHn and a binary opcode.
pub(super) struct PushBinary<const N: usize, B>(PhantomData<B>);

impl<const N: usize, B: Binary> Superinstruction for PushBinary<N, B> {
    const NEEDS: usize = 1;
    const NET: isize = 0;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Push::<N>::CODE, B::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there is a word, and the operand is in the code.
        unsafe {
            let result = B::apply(&Push::<N>::operand(r.ip), &(*r.peek(0)).0);
            write(r.peek(0), result);
            r.ip = r.ip.add(N + 2);
        }
        true
    }
}

/// SWAPn and POP: the top word replaces the word n below it.
pub(super) struct SwapPop<const N: usize>;

impl<const N: usize> Superinstruction for SwapPop<N> {
    const NEEDS: usize = N + 1;
    const NET: isize = -1;
    const PEAK: usize = 0;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Swap::<N>::CODE, Pop::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there are N + 1 words.
        unsafe {
            word::copy(r.peek(N), r.peek(0));
            r.pop(1);
            r.ip = r.ip.add(2);
        }
        true
    }
}

/// DUPn and MLOAD.
pub(super) struct DupMload<const N: usize>;

impl<const N: usize> Superinstruction for DupMload<N> {
    const NEEDS: usize = N;
    const NET: isize = 1;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Dup::<N>::CODE, crate::ops::memory::Mload::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there are N words and there is room for one.
        unsafe {
            r.ip = r.ip.add(2);
            let Some(start) = reach(r, r.peek(N - 1), 32) else {
                return false;
            };
            word::load_be(r.sp, start);
            r.sp = r.sp.add(1);
        }
        true
    }
}

/// DUPn and MSTORE.
pub(super) struct DupMstore<const N: usize>;

impl<const N: usize> Superinstruction for DupMstore<N> {
    const NEEDS: usize = N;
    const NET: isize = -1;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Dup::<N>::CODE, crate::ops::memory::Mstore::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there are N words.
        unsafe {
            r.ip = r.ip.add(2);
            let Some(start) = reach(r, r.peek(N - 1), 32) else {
                return false;
            };
            word::store_be(start, r.peek(0));
            r.pop(1);
        }
        true
    }
}

/// Charges for the JUMPDEST at `ip` and moves after it. The next opcode finds out if there was less gas.
#[inline(always)]
unsafe fn pass_jumpdest(r: &mut Regs) {
    // SAFETY: the table outlives the run; a JUMPDEST is followed by code or padding.
    unsafe {
        r.gas -= (*r.table).gas[Jumpdest::CODE as usize];
        r.ip = r.ip.add(1);
    }
}

/// JUMP and the JUMPDEST that it leads to.
pub(crate) struct JumpPast;

impl Op for JumpPast {
    const CODE: u8 = Jump::CODE;
    const IN: usize = 1;
    const OUT: usize = 0;
    const SIZE: usize = 0;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let is_running = <Jump as Op>::run(r);
            if is_running {
                pass_jumpdest(r);
            }
            is_running
        }
    }
}

/// JUMPI and the JUMPDEST that it may lead to.
pub(crate) struct JumpiPast;

impl Op for JumpiPast {
    const CODE: u8 = Jumpi::CODE;
    const IN: usize = 2;
    const OUT: usize = 0;
    const SIZE: usize = 0;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let (target, condition) = (r.peek(0), r.peek(1));
            r.pop(2);
            if (*condition).is_zero() {
                r.ip = r.ip.add(1);
                return true;
            }
            let is_running = jump_to(r, target);
            if is_running {
                pass_jumpdest(r);
            }
            is_running
        }
    }
}

/// SWAPn, SWAPn-1, POP n-1 times, JUMP: a function returns its top word to the jump target n below it.
pub(super) struct FunctionReturn<const N: usize>;

impl<const N: usize> Superinstruction for FunctionReturn<N> {
    const NEEDS: usize = N + 1;
    const NET: isize = -(N as isize);
    const PEAK: usize = 0;

    fn opcodes(into: &mut Vec<u8>) {
        into.push(Swap::<N>::CODE);
        if N > 1 {
            into.push(Swap::<N>::CODE - 1);
        }
        into.extend(std::iter::repeat_n(Pop::CODE, N - 1));
        into.push(Jump::CODE);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: there are N + 1 words; the target is read before its word is overwritten.
        unsafe {
            let target = (*r.peek(N)).as_u64();
            word::copy(r.peek(N), r.peek(0));
            r.pop(N);
            let is_running = crate::ops::control::jump_to_pc(r, target);
            if is_running {
                pass_jumpdest(r);
            }
            is_running
        }
    }
}

/// The distance of a jump in the bytes of a PUSH operand of `operand` bytes and of the jump after it.
pub(super) fn encode_distance(distance: i64, operand: usize) -> Option<Vec<u8>> {
    let room = if operand == 1 { 2 } else { 3 };
    let limit = 1 << (room * 8 - 1);
    (-limit..limit)
        .contains(&distance)
        .then(|| distance.to_le_bytes()[..room].to_vec())
}

/// The distance in the operand of the PUSH at `ip`.
#[inline(always)]
unsafe fn distance<const N: usize>(ip: *const u8) -> isize {
    // SAFETY: a PUSH of one byte and its jump are three bytes, any other at least four.
    unsafe {
        if N == 1 {
            ip.add(1).cast::<i16>().read_unaligned() as isize
        } else {
            (ip.cast::<i32>().read_unaligned() >> 8) as isize
        }
    }
}

/// PUSHn, JUMP, and the JUMPDEST that it leads to.
pub(super) struct PushJump<const N: usize>;

impl<const N: usize> Superinstruction for PushJump<N> {
    const NEEDS: usize = 0;
    const NET: isize = 0;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Push::<N>::CODE, Jump::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: the distance leads to the byte after a JUMPDEST of the code.
        unsafe {
            r.ip = r.ip.offset(distance::<N>(r.ip));
            r.gas -= (*r.table).gas[Jumpdest::CODE as usize];
        }
        true
    }
}

/// The condition of a JUMPI, and the opcodes that compute it.
pub(super) trait Condition {
    /// Words that the stack must hold.
    const NEEDS: usize;
    /// Change of the stack height with the condition on it, words.
    const NET: isize;
    /// Greatest rise of the stack height, words.
    const PEAK: usize;

    /// Adds its opcodes.
    fn opcodes(into: &mut Vec<u8>);

    /// Pops the condition; whether it is non-zero. Moves `ip` after the opcodes.
    ///
    /// # Safety
    /// As for [`Superinstruction::run`].
    unsafe fn evaluate(r: &mut Regs) -> bool;
}

/// The top word.
pub(super) struct Top;

impl Condition for Top {
    const NEEDS: usize = 1;
    const NET: isize = 0;
    const PEAK: usize = 0;

    fn opcodes(_: &mut Vec<u8>) {}

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: there is a word.
        unsafe {
            let is_met = !(*r.peek(0)).is_zero();
            r.pop(1);
            is_met
        }
    }
}

/// A copy of the top word: DUP1.
pub(super) struct DupTop;

impl Condition for DupTop {
    const NEEDS: usize = 1;
    const NET: isize = 1;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.push(Dup::<1>::CODE);
    }

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: there is a word.
        unsafe {
            r.ip = r.ip.add(1);
            !(*r.peek(0)).is_zero()
        }
    }
}

/// The negation: ISZERO.
pub(super) struct Not<C>(PhantomData<C>);

impl<C: Condition> Condition for Not<C> {
    const NEEDS: usize = C::NEEDS;
    const NET: isize = C::NET;
    const PEAK: usize = C::PEAK;

    fn opcodes(into: &mut Vec<u8>) {
        C::opcodes(into);
        into.push(Iszero::CODE);
    }

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            let is_met = C::evaluate(r);
            r.ip = r.ip.add(1);
            !is_met
        }
    }
}

/// A comparison of the two top words.
pub(super) struct Compare<B>(PhantomData<B>);

impl<B: Binary> Condition for Compare<B> {
    const NEEDS: usize = 2;
    const NET: isize = -1;
    const PEAK: usize = 0;

    fn opcodes(into: &mut Vec<u8>) {
        into.push(B::CODE);
    }

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: there are two words.
        unsafe {
            let result = B::apply(&(*r.peek(0)).0, &(*r.peek(1)).0);
            r.pop(2);
            r.ip = r.ip.add(1);
            !Word(result).is_zero()
        }
    }
}

/// DUPn and a comparison.
pub(super) struct DupCompare<const N: usize, B>(PhantomData<B>);

impl<const N: usize, B: Binary> Condition for DupCompare<N, B> {
    const NEEDS: usize = N;
    const NET: isize = 0;
    const PEAK: usize = 1;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Dup::<N>::CODE, B::CODE]);
    }

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: there are N words.
        unsafe {
            let result = B::apply(&(*r.peek(N - 1)).0, &(*r.peek(0)).0);
            r.pop(1);
            r.ip = r.ip.add(2);
            !Word(result).is_zero()
        }
    }
}

/// DUP1, PUSHn and a comparison: the dispatch of a contract by function selector.
pub(super) struct Selector<const N: usize, B>(PhantomData<B>);

impl<const N: usize, B: Binary> Condition for Selector<N, B> {
    const NEEDS: usize = 1;
    const NET: isize = 1;
    const PEAK: usize = 2;

    fn opcodes(into: &mut Vec<u8>) {
        into.extend([Dup::<1>::CODE, Push::<N>::CODE, B::CODE]);
    }

    #[inline(always)]
    unsafe fn evaluate(r: &mut Regs) -> bool {
        // SAFETY: there is a word; the operand is in the code.
        unsafe {
            let operand = Push::<N>::operand(r.ip.add(1));
            r.ip = r.ip.add(N + 3);
            !Word(B::apply(&operand, &(*r.peek(0)).0)).is_zero()
        }
    }
}

/// A condition, PUSHn, JUMPI, and the JUMPDEST that it leads to.
pub(super) struct JumpIf<C, const N: usize>(PhantomData<C>);

impl<C: Condition, const N: usize> Superinstruction for JumpIf<C, N> {
    const NEEDS: usize = C::NEEDS;
    const NET: isize = C::NET - 1;
    const PEAK: usize = larger(C::PEAK as isize, C::NET + 1) as usize;

    fn opcodes(into: &mut Vec<u8>) {
        C::opcodes(into);
        into.extend([Push::<N>::CODE, Jumpi::CODE]);
    }

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        // SAFETY: as the caller promises; the distance leads to the byte after a JUMPDEST of the code.
        unsafe {
            if C::evaluate(r) {
                r.ip = r.ip.offset(distance::<N>(r.ip));
                r.gas -= (*r.table).gas[Jumpdest::CODE as usize];
            } else {
                r.ip = r.ip.add(N + 2);
            }
        }
        true
    }
}
