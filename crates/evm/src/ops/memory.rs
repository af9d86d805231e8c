//! 0x20, 0x50s: memory, copies into it, and hashing of it.
#![expect(
    clippy::cast_possible_truncation,
    reason = "`usize` has 64 bits, see `lib.rs`; other truncations are intended"
)]

use super::{op, push};
use crate::{
    exit::HaltReason,
    frame::Frame,
    interpreter::Regs,
    word::{self, Word},
};
use niwaki_crypto::keccak256;
use std::ptr;

/// Expands the memory to `end` bytes and charges for it. Returns the gas left, negative if the frame has failed.
///
/// Spec: Yellow Paper H.1, C_mem; execution-specs `vm/gas.py`, `calculate_memory_gas_cost`.
#[cold]
#[inline(never)]
pub(crate) fn expand(frame: *mut Frame, end: u64, gas: i64) -> i64 {
    // SAFETY: the frame outlives the run, and nothing else refers to it during the call.
    let frame = unsafe { &mut *frame };
    let words = end.div_ceil(32);
    let bytes = words.saturating_mul(32);
    let base = frame.memory;
    if !frame.shared().arena.can_hold(base, bytes) {
        return frame.fail(HaltReason::OutOfGas);
    }
    // The arena holds 2^27 words at most, so neither the square nor the sum overflows.
    let words = words as i64;
    let cost = 3 * words + words * words / 512;
    let left = gas - (cost - frame.memory_cost);
    if left < 0 {
        return frame.fail(HaltReason::OutOfGas);
    }
    let grown = bytes as usize;
    // SAFETY: the arena holds `grown` bytes from `memory`.
    unsafe {
        ptr::write_bytes(
            frame.memory.add(frame.memory_len),
            0,
            grown - frame.memory_len,
        )
    };
    frame.memory_len = grown;
    frame.memory_cost = cost;
    left
}

/// Expands the memory to hold `length` bytes from `offset`; returns their start, or `None` if the frame has failed.
///
/// # Safety
/// The frame must be alive and `offset` a word of the stack.
#[inline(always)]
pub(crate) unsafe fn reach(r: &mut Regs, offset: *const Word, length: usize) -> Option<*mut u8> {
    // SAFETY: the caller passes a word of the stack.
    let offset = unsafe { (*offset).saturating_u64() };
    let end = offset.saturating_add(length as u64);
    // SAFETY: the frame outlives the run.
    if end > unsafe { (*r.frame).memory_len } as u64 {
        let left = expand(r.frame, end, r.gas);
        if !r.gas_from(left) {
            return None;
        }
    }
    // SAFETY: the memory holds `end` bytes, so the offset is within it.
    Some(unsafe { r.memory.add(offset as usize) })
}

/// The range of memory that two words describe; the memory is expanded unless the range is empty. `None` if the frame
/// has failed.
#[inline(always)]
pub(crate) unsafe fn range(
    r: &mut Regs,
    offset: *const Word,
    length: *const Word,
) -> Option<(*mut u8, usize)> {
    // SAFETY: the caller passes words of the stack.
    let length = unsafe { (*length).saturating_u64() };
    if length == 0 {
        return Some((r.memory, 0));
    }
    // SAFETY: as above. A length beyond the arena fails in `reach`.
    unsafe { reach(r, offset, length as usize).map(|start| (start, length as usize)) }
}

/// Charges the price of copying or hashing `length` bytes; false if the frame has failed.
///
/// # Safety
/// The frame must be alive.
#[inline(always)]
unsafe fn charge_words(r: &mut Regs, price: i64, length: u64) -> bool {
    // SAFETY: as the caller promises. 2^59 words at 6 gas do not overflow.
    unsafe { r.charge(price * length.div_ceil(32) as i64) }
}

op!(Mload = 0x51, 1 => 1, |r| {
    let slot = r.peek(0);
    let Some(start) = reach(r, slot, 32) else { return false };
    word::load_be(slot, start);
    true
});
op!(Mstore = 0x52, 2 => 0, |r| {
    let (offset, value) = (r.peek(0), r.peek(1));
    r.pop(2);
    let Some(start) = reach(r, offset, 32) else { return false };
    word::store_be(start, value);
    true
});
op!(Mstore8 = 0x53, 2 => 0, |r| {
    let (offset, value) = (r.peek(0), r.peek(1));
    r.pop(2);
    let Some(start) = reach(r, offset, 1) else { return false };
    *start = ((*value).0[0] & 0xff) as u8;
    true
});
push!(Msize = 0x59, |r| [(*r.frame).memory_len as u64, 0, 0, 0]);

op!(Keccak256 = 0x20, 2 => 1, |r| {
    let (offset, length) = (r.peek(0), r.peek(1));
    if !charge_words(r, 6, (*length).saturating_u64()) {
        return false;
    }
    let Some((start, bytes)) = range(r, offset, length) else { return false };
    let input = std::slice::from_raw_parts(start, bytes);
    match (*r.frame).shared().arena.keccak_cache().keccak256(input) {
        Some(hash) => word::load_be(length, hash.as_ptr()),
        None => word::load_be(length, keccak256(input).as_ptr()),
    }
    r.pop(1);
    true
});

op!(
    /// EIP-5656.
    Mcopy = 0x5e, 3 => 0, |r| {
    let (to, from, length) = (r.peek(0), r.peek(1), r.peek(2));
    r.pop(3);
    if !charge_words(r, 3, (*length).saturating_u64()) {
        return false;
    }
    let farther = if (*from).to_u256() > (*to).to_u256() { from } else { to };
    let Some((_, bytes)) = range(r, farther, length) else { return false };
    if bytes > 0 {
        let from = r.memory.add((*from).0[0] as usize);
        ptr::copy(from, r.memory.add((*to).0[0] as usize), bytes);
    }
    true
});

/// The destination of a copy into memory: charges for the copy and expands the memory.
///
/// # Safety
/// `to` and `length` must be words of the stack.
#[inline(always)]
pub(crate) unsafe fn copy_target(
    r: &mut Regs,
    to: *const Word,
    length: *const Word,
) -> Option<(*mut u8, usize)> {
    // SAFETY: as the caller promises.
    unsafe {
        if !charge_words(r, 3, (*length).saturating_u64()) {
            return None;
        }
        range(r, to, length)
    }
}

/// Copies from `source`, starting at `offset`, with zeros beyond its end.
///
/// # Safety
/// `to` must be valid for `length` bytes and not overlap `source`.
#[inline(always)]
pub(crate) unsafe fn copy_padded(to: *mut u8, length: usize, source: &[u8], offset: u64) {
    let tail = usize::try_from(offset)
        .ok()
        .and_then(|at| source.get(at..))
        .unwrap_or(&[]);
    let copied = tail.len().min(length);
    // SAFETY: `copied` bytes are in both; the rest of `to` follows.
    unsafe {
        ptr::copy_nonoverlapping(tail.as_ptr(), to, copied);
        if copied < length {
            ptr::write_bytes(to.add(copied), 0, length - copied);
        }
    }
}
