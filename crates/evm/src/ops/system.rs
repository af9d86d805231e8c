//! 0xf0s: calls, creations, and the end of a contract.
//!
//! CALL and CREATE charge, put a [`CallRequest`] into the frame, and leave it; the driver in `evm.rs` runs the request
//! and resumes the frame.

use super::{memory::range, op};
use crate::{
    arena::FRAMES,
    exit::{Exit, HaltReason},
    frame::{CallRequest, Frame},
    gas::{GasSchedule, WARM_ACCESS},
    interpreter::Regs,
    word::Word,
    world::AccountId,
};
use niwaki_primitives::{Address, U256};

/// Which of the four calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    Code,
    Delegate,
    Static,
}

/// The memory ranges of a call, expanded already.
struct Ranges {
    input: (*mut u8, usize),
    output: (*mut u8, usize),
}

/// Expands memory for input and output of a call whose ranges begin `at` words below the top.
#[inline(always)]
unsafe fn ranges(r: &mut Regs, at: usize) -> Option<Ranges> {
    // SAFETY: the wrapper has checked for the words.
    unsafe {
        let input = range(r, r.peek(at), r.peek(at + 1))?;
        let output = range(r, r.peek(at + 2), r.peek(at + 3))?;
        Some(Ranges { input, output })
    }
}

/// Charges for a call and makes its request. `top` is the topmost of its words: gas, address and, where `kind` has one,
/// value. Returns the gas left, negative if the frame has ended.
///
/// Spec: execution-specs `vm/instructions/system.py`, `vm/gas.py` (`calculate_message_call_gas`);
/// EIP-150, EIP-161, EIP-2929, EIP-7702, EIP-8037.
#[inline(always)]
fn call(
    frame: *mut Frame,
    kind: Variant,
    top: *const Word,
    gas: i64,
    prices: &GasSchedule,
) -> (i64, Option<CallRequest>) {
    // SAFETY: frame and words outlive the call, and nothing else refers to the frame during it.
    let (frame, requested_gas, address) = unsafe {
        (
            &mut *frame,
            (*top).saturating_u64(),
            (*top.sub(1)).to_address(),
        )
    };
    let has_value = matches!(kind, Variant::Plain | Variant::Code);
    let value = if has_value {
        // SAFETY: as above.
        unsafe { (*top.sub(2)).to_u256() }
    } else {
        U256::ZERO
    };
    if kind == Variant::Plain && frame.is_static && !value.is_zero() {
        return (frame.fail(HaltReason::WriteInStaticContext), None);
    }
    let mut left = gas;
    if !value.is_zero() {
        left -= prices.call_value;
    }
    let world = &mut frame.shared().world;
    let account = match world.access(&address, &mut left, prices.cold_account) {
        Ok(Some(account)) => account,
        Ok(None) => return (frame.fail(HaltReason::OutOfGas), None),
        Err(fault) => return (frame.fault(fault), None),
    };
    let creates = kind == Variant::Plain
        && if prices.clears_empty {
            !value.is_zero() && world.is_empty(account)
        } else {
            !world.exists(account)
        };
    if creates {
        left -= prices.call_new_account;
    }
    if left < 0 {
        return (frame.fail(HaltReason::OutOfGas), None);
    }
    let (code_account, is_delegated) = match delegate_of(frame, account, &mut left, prices) {
        Ok(code_account) => code_account,
        Err(ended) => return (ended, None),
    };
    if creates && !frame.state.charge(prices.state.account, &mut left) {
        return (frame.fail(HaltReason::OutOfGas), None);
    }
    let Some(given) = gas_for_callee(left, requested_gas, prices) else {
        return (frame.fail(HaltReason::OutOfGas), None);
    };
    left -= given;
    let stipend = if value.is_zero() {
        0
    } else {
        prices.call_stipend
    };
    let keeps_context = kind == Variant::Delegate;
    let request = CallRequest {
        gas: given.saturating_add(stipend),
        reservoir: std::mem::take(&mut frame.state.reservoir),
        creates_account: creates,
        code_address: address,
        code_account,
        is_delegated,
        target: match kind {
            Variant::Plain | Variant::Static => account,
            Variant::Code | Variant::Delegate => frame.account,
        },
        caller: if keeps_context {
            frame.caller
        } else {
            frame.address
        },
        value: if keeps_context {
            frame.value.to_u256()
        } else {
            value
        },
        transfers: has_value,
        is_static: frame.is_static || kind == Variant::Static,
        input: std::ptr::null(),
        input_len: 0,
        output: std::ptr::null_mut(),
        output_len: 0,
    };
    (left, Some(request))
}

/// The account whose code a call to `account` runs; charges for the target of a delegation (EIP-7702).
fn delegate_of(
    frame: &mut Frame,
    account: AccountId,
    left: &mut i64,
    prices: &GasSchedule,
) -> Result<(AccountId, bool), i64> {
    if !prices.delegates {
        return Ok((account, false));
    }
    let world = &mut frame.shared().world;
    let code = match world.code(account) {
        Ok(code) => code,
        Err(fault) => return Err(frame.fault(fault)),
    };
    let Some(delegate) = world.code_at(code).delegate() else {
        return Ok((account, false));
    };
    *left -= WARM_ACCESS;
    match world.access(&delegate, left, prices.cold_account) {
        Ok(Some(target)) => Ok((target, true)),
        Ok(None) => Err(frame.fail(HaltReason::OutOfGas)),
        Err(fault) => Err(frame.fault(fault)),
    }
}

/// The gas for a callee out of `left`; `None` if there is less than requested (before EIP-150).
fn gas_for_callee(left: i64, requested: u64, prices: &GasSchedule) -> Option<i64> {
    let requested = i64::try_from(requested).unwrap_or(i64::MAX);
    if prices.all_but_one_64th {
        return Some(requested.min(left - left / 64));
    }
    (requested <= left).then_some(requested)
}

/// Leaves the frame with the request of a call, or with the failure of `call`.
#[inline(never)]
fn request_call(
    frame: *mut Frame,
    kind: Variant,
    ranges: &Ranges,
    top: *const Word,
    gas: i64,
    prices: &GasSchedule,
) -> i64 {
    let (left, request) = call(frame, kind, top, gas, prices);
    if let Some(mut request) = request {
        (request.input, request.input_len) = (ranges.input.0, ranges.input.1);
        (request.output, request.output_len) = ranges.output;
        // SAFETY: the frame outlives the run.
        unsafe {
            (*frame).request = Some(request);
            (*frame).exit = Exit::Call;
        }
    }
    left
}

/// A call whose memory ranges begin `at` words below the top.
#[inline(always)]
unsafe fn call_op(r: &mut Regs, kind: Variant, at: usize) -> bool {
    // SAFETY: the wrapper has checked for the words.
    unsafe {
        let top = r.peek(0);
        let Some(ranges) = ranges(r, at) else {
            return false;
        };
        r.gas = request_call(r.frame, kind, &ranges, top, r.gas, r.schedule());
        r.pop(at + 4);
    }
    false
}

op!(CallOp = 0xf1, 7 => 1, |r| call_op(r, Variant::Plain, 3));
op!(CallCode = 0xf2, 7 => 1, |r| call_op(r, Variant::Code, 3));
op!(
    /// EIP-7.
    DelegateCall = 0xf4, 6 => 1, |r| call_op(r, Variant::Delegate, 2));
op!(
    /// EIP-214.
    StaticCall = 0xfa, 6 => 1, |r| call_op(r, Variant::Static, 2));

/// Leaves the frame with the request of a creation. The new contract gets all but one 64th of the gas (EIP-150). `salt`
/// is null for CREATE.
#[inline(never)]
fn request_creation(
    frame: *mut Frame,
    value: *const Word,
    salt: *const Word,
    init_code: (*mut u8, usize),
    gas: i64,
    prices: &GasSchedule,
) -> i64 {
    // SAFETY: frame, words and memory outlive the call.
    let (frame, value) = unsafe { (&mut *frame, (*value).to_u256()) };
    if frame.is_static {
        return frame.fail(HaltReason::WriteInStaticContext);
    }
    if init_code.1 > prices.max_init_code_bytes {
        return frame.fail(HaltReason::OutOfGas);
    }
    let (creator, account) = (frame.address, frame.account);
    let nonce = frame.shared().world.nonce(account);
    let address = if salt.is_null() {
        creator.create(nonce)
    } else {
        // SAFETY: as above.
        let (salt, code) = unsafe {
            (
                (*salt).to_b256(),
                std::slice::from_raw_parts(init_code.0, init_code.1),
            )
        };
        creator.create2(salt, frame.shared().world.init_code_cache.hash(code))
    };
    let mut left = gas;
    let creates_account = match pay_for_account(frame, &address, value, &mut left, prices) {
        Ok(creates_account) => creates_account,
        Err(ended) => return ended,
    };
    let given = if prices.all_but_one_64th {
        left - left / 64
    } else {
        left
    };
    frame.request = Some(CallRequest {
        gas: given,
        reservoir: std::mem::take(&mut frame.state.reservoir),
        creates_account,
        code_address: address,
        code_account: account,
        is_delegated: false,
        target: account,
        caller: creator,
        value,
        transfers: true,
        is_static: false,
        input: init_code.0,
        input_len: init_code.1,
        output: std::ptr::null_mut(),
        output_len: 0,
    });
    frame.exit = Exit::Create;
    left - given
}

/// Charges state gas for the new account of a creation, if the creation can begin and its address is empty; returns
/// whether it did. Before Amsterdam the address is not accessed here.
///
/// Spec: EIP-8037; execution-specs `amsterdam/vm/instructions/system.py`, `generic_create`.
fn pay_for_account(
    frame: &mut Frame,
    address: &Address,
    endowment: U256,
    left: &mut i64,
    prices: &GasSchedule,
) -> Result<bool, i64> {
    if !prices.has_state_gas() {
        return Ok(false);
    }
    let (account, is_deepest) = (frame.account, frame.depth + 1 >= FRAMES);
    let world = &mut frame.shared().world;
    if is_deepest || !world.can_pay(account, endowment) || world.nonce(account) == u64::MAX {
        return Ok(false);
    }
    let created = match world.load_accessed(address) {
        Ok(created) => created,
        Err(fault) => return Err(frame.fault(fault)),
    };
    if !world.is_empty(created) {
        return Ok(false);
    }
    if !frame.state.charge(prices.state.account, left) {
        return Err(frame.fail(HaltReason::OutOfGas));
    }
    Ok(true)
}

/// CREATE and CREATE2: words are value, offset, length and, for CREATE2, salt.
#[inline(always)]
unsafe fn create_op(r: &mut Regs, has_salt: bool) -> bool {
    /// Per word of the init code that CREATE2 hashes.
    const HASH_WORD: i64 = 6;
    // SAFETY: the wrapper has checked for the words.
    unsafe {
        let (value, offset, length) = (r.peek(0), r.peek(1), r.peek(2));
        let Some(init_code) = range(r, offset, length) else {
            return false;
        };
        let per_word = r.schedule().init_code_word + if has_salt { HASH_WORD } else { 0 };
        // The memory that has been paid for bounds the length far below overflow.
        if !r.charge(per_word * init_code.1.div_ceil(32) as i64) {
            return false;
        }
        let salt = if has_salt {
            r.peek(3).cast_const()
        } else {
            std::ptr::null()
        };
        r.gas = request_creation(r.frame, value, salt, init_code, r.gas, r.schedule());
        r.pop(if has_salt { 4 } else { 3 });
    }
    false
}

op!(Create = 0xf0, 3 => 1, |r| create_op(r, false));
op!(
    /// EIP-1014.
    Create2 = 0xf5, 4 => 1, |r| create_op(r, true));

/// Moves the balance to the beneficiary and marks the account for deletion.
///
/// Spec: EIP-150, EIP-161, EIP-2929, EIP-3529, EIP-6780, EIP-8037, EIP-8246; execution-specs
/// `vm/instructions/system.py`.
#[inline(never)]
fn destroy(frame: *mut Frame, beneficiary: Address, gas: i64, prices: &GasSchedule) -> i64 {
    // SAFETY: the frame outlives the call, and nothing else refers to it during it.
    let frame = unsafe { &mut *frame };
    if frame.is_static {
        return frame.fail(HaltReason::WriteInStaticContext);
    }
    let account = frame.account;
    let beneficiary_address = beneficiary;
    let world = &mut frame.shared().world;
    let mut left = gas;
    let beneficiary = match world.access(&beneficiary, &mut left, prices.selfdestruct_cold) {
        Ok(Some(beneficiary)) => beneficiary,
        Ok(None) => return frame.fail(HaltReason::OutOfGas),
        Err(fault) => return frame.fault(fault),
    };
    let creates = if prices.clears_empty {
        world.is_empty(beneficiary) && !world.balance(account).is_zero()
    } else {
        !world.exists(beneficiary)
    };
    if creates {
        left -= prices.selfdestruct_new_account;
    }
    if left < 0 {
        return frame.fail(HaltReason::OutOfGas);
    }
    if creates && !frame.state.charge(prices.state.account, &mut left) {
        return frame.fail(HaltReason::OutOfGas);
    }
    let world = &mut frame.shared().world;
    let wei = world.balance(account);
    if world.self_destruct(account, beneficiary, prices.selfdestruct_only_new) {
        world.add_refund(prices.selfdestruct_refund);
    }
    frame.shared().last_selfdestruct = (beneficiary_address, wei);
    frame.exit = Exit::SelfDestruct;
    left
}

op!(SelfDestruct = 0xff, 1 => 0, |r| {
    let beneficiary = (*r.peek(0)).to_address();
    r.pop(1);
    r.gas = destroy(r.frame, beneficiary, r.gas, r.schedule());
    false
});
