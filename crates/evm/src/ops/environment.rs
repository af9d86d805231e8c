//! 0x30s: the call, the code, other accounts, and the return data.
#![expect(
    clippy::cast_possible_truncation,
    reason = "`usize` has 64 bits, see `lib.rs`; other truncations are intended"
)]

use super::{
    memory::{copy_padded, copy_target},
    op, push,
};
use crate::{
    exit::HaltReason,
    frame::Frame,
    word::{self, Word},
    world::{AccountId, CodeId, World},
};
use niwaki_primitives::Fault;

push!(Address = 0x30, |r| Word::from((*r.frame).address).0);
push!(Origin = 0x32, |r| Word::from(
    (*(*r.frame).shared).tx.origin
)
.0);
push!(Caller = 0x33, |r| Word::from((*r.frame).caller).0);
push!(CallValue = 0x34, |r| (*r.frame).value.0);
push!(CallDataSize = 0x36, |r| [
    (*r.frame).input_len as u64,
    0,
    0,
    0
]);
push!(CodeSize = 0x38, |r| [
    (*(*r.frame).code).bytes().len() as u64,
    0,
    0,
    0
]);
push!(GasPrice = 0x3a, |r| (*(*r.frame).shared)
    .tx
    .gas_price
    .into_limbs());
push!(
    /// EIP-211.
    ReturnDataSize = 0x3d, |r| [(*(*r.frame).shared).return_data.len() as u64, 0, 0, 0]);

op!(CallDataLoad = 0x35, 1 => 1, |r| {
    let slot = r.peek(0);
    let length = (*r.frame).input_len as u64;
    let offset = (*slot).saturating_u64();
    if offset.saturating_add(32) <= length {
        word::load_be(slot, (*r.frame).input.add(offset as usize));
    } else if offset >= length {
        word::write(slot, [0; 4]);
    } else {
        load_padded(r.frame, slot, offset);
    }
    true
});

/// Writes the input from `offset` to its end into `slot`, zero-padded.
#[cold]
#[inline(never)]
fn load_padded(frame: *const Frame, slot: *mut Word, offset: u64) {
    let mut padded = [0; 32];
    // SAFETY: frame, input and slot outlive the call.
    unsafe {
        let input = std::slice::from_raw_parts((*frame).input, (*frame).input_len);
        copy_padded(padded.as_mut_ptr(), 32, input, offset);
        word::load_be(slot, padded.as_ptr());
    }
}

op!(CallDataCopy = 0x37, 3 => 0, |r| {
    let (to, from, length) = (r.peek(0), r.peek(1), r.peek(2));
    r.pop(3);
    let Some((to, bytes)) = copy_target(r, to, length) else { return false };
    let input = std::slice::from_raw_parts((*r.frame).input, (*r.frame).input_len);
    copy_padded(to, bytes, input, (*from).saturating_u64());
    true
});
op!(CodeCopy = 0x39, 3 => 0, |r| {
    let (to, from, length) = (r.peek(0), r.peek(1), r.peek(2));
    r.pop(3);
    let Some((to, bytes)) = copy_target(r, to, length) else { return false };
    copy_padded(to, bytes, (*(*r.frame).code).bytes(), (*from).saturating_u64());
    true
});
op!(
    /// EIP-211.
    ReturnDataCopy = 0x3e, 3 => 0, |r| {
    let (to, from, length) = (r.peek(0), r.peek(1), r.peek(2));
    r.pop(3);
    let Some((to, bytes)) = copy_target(r, to, length) else { return false };
    let data = (*(*r.frame).shared).return_data.as_slice();
    let from = (*from).saturating_u64();
    if from.saturating_add(bytes as u64) > data.len() as u64 {
        return r.halt(HaltReason::ReturnDataOutOfBounds);
    }
    copy_padded(to, bytes, data, from);
    true
});

/// Accesses the account at the address in `slot`, charges for it if it is cold, and replaces the address by the result
/// of `read`. Returns the gas left, negative if the frame has ended.
#[inline(always)]
fn read_account(
    frame: *mut Frame,
    slot: *mut Word,
    gas: i64,
    cold_price: i64,
    read: impl FnOnce(&mut World<'static>, AccountId) -> Result<Word, Fault>,
) -> i64 {
    // SAFETY: frame and slot outlive the call, and nothing else refers to them during it.
    let (frame, slot) = unsafe { (&mut *frame, &mut *slot) };
    let world = &mut frame.shared().world;
    let mut left = gas;
    let account = match world.access(&slot.to_address(), &mut left, cold_price) {
        Ok(Some(account)) => account,
        Ok(None) => return frame.fail(HaltReason::OutOfGas),
        Err(fault) => return frame.fault(fault),
    };
    match read(world, account) {
        Ok(word) => *slot = word,
        Err(fault) => return frame.fault(fault),
    }
    left
}

#[inline(never)]
fn balance(frame: *mut Frame, slot: *mut Word, gas: i64, cold_price: i64) -> i64 {
    read_account(frame, slot, gas, cold_price, |world, account| {
        Ok(world.balance(account).into())
    })
}

#[inline(never)]
fn code_size(frame: *mut Frame, slot: *mut Word, gas: i64, cold_price: i64) -> i64 {
    read_account(frame, slot, gas, cold_price, |world, account| {
        let code = world.code(account)?;
        Ok(Word::from(world.code_at(code).bytes().len() as u64))
    })
}

#[inline(never)]
fn code_hash(frame: *mut Frame, slot: *mut Word, gas: i64, cold_price: i64) -> i64 {
    read_account(frame, slot, gas, cold_price, |world, account| {
        let hash = world
            .code_hash(account)
            .filter(|_| !world.is_empty(account));
        Ok(hash.map_or(Word::ZERO, Word::from))
    })
}

op!(Balance = 0x31, 1 => 1, |r| {
    let left = balance(r.frame, r.peek(0), r.gas, r.schedule().cold_account);
    r.gas_from(left)
});
op!(ExtCodeSize = 0x3b, 1 => 1, |r| {
    let left = code_size(r.frame, r.peek(0), r.gas, r.schedule().cold_account);
    r.gas_from(left)
});
op!(
    /// EIP-1052.
    ExtCodeHash = 0x3f, 1 => 1, |r| {
    let left = code_hash(r.frame, r.peek(0), r.gas, r.schedule().cold_account);
    r.gas_from(left)
});

#[inline(never)]
fn code_of(frame: *mut Frame, slot: *mut Word, gas: i64, cold_price: i64) -> i64 {
    read_account(frame, slot, gas, cold_price, |world, account| {
        Ok(Word::from(u64::from(world.code(account)?.0)))
    })
}

op!(ExtCodeCopy = 0x3c, 4 => 0, |r| {
    let (address, to, from, length) = (r.peek(0), r.peek(1), r.peek(2), r.peek(3));
    r.pop(4);
    let Some((to, bytes)) = copy_target(r, to, length) else { return false };
    // The code's id replaces the address in its popped word.
    let left = code_of(r.frame, address, r.gas, r.schedule().cold_account);
    if !r.gas_from(left) {
        return false;
    }
    let code = (*(*r.frame).shared).world.code_at(CodeId((*address).0[0] as u32));
    copy_padded(to, bytes, code.bytes(), (*from).saturating_u64());
    true
});

push!(
    /// EIP-1884.
    SelfBalance = 0x47, |r| {
    let account = (*r.frame).account;
    (*r.frame).shared().world.balance(account).into_limbs()
});
