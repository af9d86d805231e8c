//! 0x50s: persistent and transient storage; 0xa0s: logs.

use super::{memory::range, op};
use crate::{
    exit::HaltReason,
    frame::Frame,
    gas::{GasSchedule, Sstore as Rule},
    interpreter::{Op, Regs},
    word::Word,
};
use niwaki_primitives::{B256, Bytes, Log, LogData, U256};

/// Replaces the key in `slot` by the value of that storage slot. Returns the gas left, negative if the frame has ended.
#[inline(never)]
fn load(frame: *mut Frame, slot: *mut Word, gas: i64, cold_price: i64) -> i64 {
    // SAFETY: frame and slot outlive the call, and nothing else refers to them during it.
    let (frame, slot) = unsafe { (&mut *frame, &mut *slot) };
    let account = frame.account;
    let world = &mut frame.shared().world;
    let mut left = gas;
    let id = match world.access_slot(account, slot.to_u256(), &mut left, cold_price) {
        Ok(Some(id)) => id,
        Ok(None) => return frame.fail(HaltReason::OutOfGas),
        Err(fault) => return frame.fault(fault),
    };
    *slot = world.slot_value(id).into();
    left
}

op!(Sload = 0x54, 1 => 1, |r| {
    let left = load(r.frame, r.peek(0), r.gas, r.schedule().cold_slot);
    r.gas_from(left)
});

/// Writes a slot and charges for it.
///
/// Spec: EIP-2200, EIP-2929, EIP-3529, EIP-8037, EIP-8038; execution-specs
/// `vm/instructions/storage.py`.
#[inline(never)]
fn store(
    frame: *mut Frame,
    key: *const Word,
    value: *const Word,
    gas: i64,
    prices: &GasSchedule,
) -> i64 {
    // SAFETY: frame and words outlive the call, and nothing else refers to the frame during it.
    let (frame, key, new) = unsafe { (&mut *frame, (*key).to_u256(), (*value).to_u256()) };
    if frame.is_static {
        return frame.fail(HaltReason::WriteInStaticContext);
    }
    if gas <= prices.sstore_sentry {
        return frame.fail(HaltReason::OutOfGas);
    }
    let account = frame.account;
    let world = &mut frame.shared().world;
    let mut left = gas;
    let id = match world.access_slot(account, key, &mut left, prices.sstore_cold) {
        Ok(Some(id)) => id,
        Ok(None) => return frame.fail(HaltReason::OutOfGas),
        Err(fault) => return frame.fault(fault),
    };
    let (original, current) = (world.slot_original(id), world.slot_value(id));
    let (price, refund) = match prices.sstore {
        Rule::Legacy => legacy_price(prices, current, new),
        Rule::Net => net_price(prices, original, current, new),
    };
    world.add_refund(refund);
    let may_grow = original.is_zero() && current != new;
    if may_grow && new.is_zero() {
        frame.state.refill(prices.state.slot, &mut left);
    }
    left -= price;
    if left < 0 {
        return frame.fail(HaltReason::OutOfGas);
    }
    let grows = may_grow && current.is_zero();
    if grows && !frame.state.charge(prices.state.slot, &mut left) {
        return frame.fail(HaltReason::OutOfGas);
    }
    frame.shared().world.set_slot(id, new);
    left
}

/// Price and refund before EIP-1283 and in Petersburg.
pub(crate) fn legacy_price(prices: &GasSchedule, current: U256, new: U256) -> (i64, i64) {
    let price = if current.is_zero() && !new.is_zero() {
        prices.sstore_set
    } else {
        prices.sstore_reset
    };
    let refund = if !current.is_zero() && new.is_zero() {
        prices.sstore_clear_refund
    } else {
        0
    };
    (price, refund)
}

/// Price and refund by net change.
pub(crate) fn net_price(
    prices: &GasSchedule,
    original: U256,
    current: U256,
    new: U256,
) -> (i64, i64) {
    if current == new {
        return (prices.sstore_noop, 0);
    }
    if original == current {
        if original.is_zero() {
            return (prices.sstore_set, 0);
        }
        let refund = if new.is_zero() {
            prices.sstore_clear_refund
        } else {
            0
        };
        return (prices.sstore_reset, refund);
    }
    let mut refund = 0;
    if !original.is_zero() {
        if current.is_zero() {
            refund -= prices.sstore_clear_refund;
        }
        if new.is_zero() {
            refund += prices.sstore_clear_refund;
        }
    }
    if new == original {
        // From EIP-2929 on, the first change cost `sstore_reset` plus the cold price.
        let paid = if original.is_zero() {
            prices.sstore_set
        } else {
            prices.sstore_reset
        };
        refund += paid - prices.sstore_noop;
    }
    (prices.sstore_noop, refund)
}

op!(Sstore = 0x55, 2 => 0, |r| {
    let (key, value) = (r.peek(0), r.peek(1));
    r.pop(2);
    let left = store(r.frame, key, value, r.gas, r.schedule());
    r.gas_from(left)
});

#[inline(never)]
fn load_transient(frame: *mut Frame, slot: *mut Word) {
    // SAFETY: as in `load`.
    let (frame, slot) = unsafe { (&mut *frame, &mut *slot) };
    let account = frame.account;
    *slot = frame
        .shared()
        .world
        .transient(account, slot.to_u256())
        .into();
}

#[inline(never)]
fn store_transient(frame: *mut Frame, key: *const Word, value: *const Word, gas: i64) -> i64 {
    // SAFETY: as in `store`.
    let (frame, key, value) = unsafe { (&mut *frame, (*key).to_u256(), (*value).to_u256()) };
    if frame.is_static {
        return frame.fail(HaltReason::WriteInStaticContext);
    }
    let account = frame.account;
    frame.shared().world.set_transient(account, key, value);
    gas
}

op!(
    /// EIP-1153.
    Tload = 0x5c, 1 => 1, |r| {
    load_transient(r.frame, r.peek(0));
    true
});
op!(
    /// EIP-1153.
    Tstore = 0x5d, 2 => 0, |r| {
    let (key, value) = (r.peek(0), r.peek(1));
    r.pop(2);
    let left = store_transient(r.frame, key, value, r.gas);
    r.gas_from(left)
});

/// LOG0 to LOG4.
pub(crate) struct LogOp<const N: usize>;

/// Records a log whose topics end at `topics`, the topmost word first.
#[inline(never)]
fn record(frame: *mut Frame, topics: *const Word, count: usize, data: *const u8, length: usize) {
    // SAFETY: the wrapper has checked for the topics, and the memory holds the data.
    let (frame, data) = unsafe { (&mut *frame, std::slice::from_raw_parts(data, length)) };
    // SAFETY: as above.
    let topic = |at: usize| -> B256 { unsafe { (*topics.sub(at)).to_b256() } };
    // The data first: its `Bytes` is written by 8-byte stores and moved by 16-byte loads, which wait for those.
    let data = Bytes::copy_from_slice(data);
    let topics = (0..count).map(topic).collect();
    let log = Log {
        address: frame.address,
        data: LogData::new_unchecked(topics, data),
    };
    frame.shared().world.log(log);
}

impl<const N: usize> Op for LogOp<N> {
    #[expect(clippy::cast_possible_truncation, reason = "N is at most 4")]
    const CODE: u8 = 0xa0 + N as u8;
    const IN: usize = N + 2;
    const OUT: usize = 0;

    #[inline(always)]
    unsafe fn run(r: &mut Regs) -> bool {
        /// Per byte of data.
        const BYTE: i64 = 8;
        // SAFETY: the wrapper has checked for N + 2 words; the frame outlives the run.
        unsafe {
            if (*r.frame).is_static {
                return r.halt(HaltReason::WriteInStaticContext);
            }
            let (offset, length, topics) = (r.peek(0), r.peek(1), r.peek(2));
            r.pop(N + 2);
            let Some((start, bytes)) = range(r, offset, length) else {
                return false;
            };
            // The memory that has been paid for bounds the length far below overflow.
            if !r.charge(BYTE * bytes as i64) {
                return false;
            }
            record(r.frame, topics, N, start, bytes);
        }
        true
    }
}
