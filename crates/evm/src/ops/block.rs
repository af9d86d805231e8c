//! 0x40s: the block.

use super::{op, push};
use crate::{frame::Frame, word::Word};

/// The hash of one of the 256 most recent ancestors, else zero.
#[inline(never)]
fn block_hash(frame: *mut Frame, slot: *mut Word, gas: i64) -> i64 {
    // SAFETY: frame and slot outlive the call, and nothing else refers to them during it.
    let (frame, slot) = unsafe { (&mut *frame, &mut *slot) };
    let shared = frame.shared();
    let current = shared.block.number;
    let ancestor = slot
        .as_u64()
        .filter(|number| *number < current && current - *number <= 256);
    *slot = match ancestor.map(|number| shared.world.block_hash(number)) {
        None => Word::ZERO,
        Some(Ok(hash)) => hash.into(),
        Some(Err(fault)) => return frame.fault(fault),
    };
    gas
}

op!(Blockhash = 0x40, 1 => 1, |r| {
    let left = block_hash(r.frame, r.peek(0), r.gas);
    r.gas_from(left)
});
push!(Coinbase = 0x41, |r| Word::from(r.block().coinbase).0);
push!(Timestamp = 0x42, |r| [r.block().timestamp, 0, 0, 0]);
push!(Number = 0x43, |r| [r.block().number, 0, 0, 0]);
push!(
    /// DIFFICULTY before the Merge (EIP-4399).
    PrevRandao = 0x44, |r| r.block().prev_randao.into_limbs());
push!(GasLimit = 0x45, |r| [r.block().gas_limit, 0, 0, 0]);
push!(
    /// EIP-1344.
    ChainId = 0x46, |r| [r.block().chain_id, 0, 0, 0]);
push!(
    /// EIP-3198.
    BaseFee = 0x48, |r| [r.block().base_fee, 0, 0, 0]);
push!(
    /// EIP-7516.
    BlobBaseFee = 0x4a, |r| r.block().blob_base_fee.into_limbs());
push!(
    /// EIP-7843.
    SlotNum = 0x4b, |r| [r.block().slot_number, 0, 0, 0]);

op!(
    /// EIP-4844.
    BlobHash = 0x49, 1 => 1, |r| {
    let slot = r.peek(0);
    let hashes = &(&(*(*r.frame).shared).tx.blob_hashes)[..];
    let hash = usize::try_from((*slot).saturating_u64()).ok().and_then(|at| hashes.get(at));
    crate::word::write(slot, hash.map_or([0; 4], |hash| Word::from(*hash).0));
    true
});
