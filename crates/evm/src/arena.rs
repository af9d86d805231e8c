//! Stacks and memories of all frames, reserved once as address space and touched as needed, and what else of
//! a machine its thread keeps for the next one.
//!
//! Nothing is allocated per call. The stack of depth `d` begins at `d * STACK_STRIDE`; its place
//! makes the height of the stack readable from the low bits of the stack pointer. A frame's memory
//! begins where its caller's ends, since a caller can't grow its memory while its callee runs.

use crate::{slot_hashes::SlotHashes, word::Word};
use memmap2::{Advice, MmapMut, MmapOptions, UncheckedAdvice};
use std::cell::RefCell;

/// Words on one stack (Yellow Paper 9.1).
pub(crate) const STACK_WORDS: usize = 1024;
/// Bytes from one stack to the next; a power of two, so that the low bits of a stack pointer are
/// the height in bytes. Half of it stays untouched, which makes a full stack tell from an empty.
pub(crate) const STACK_STRIDE: usize = 2 * STACK_WORDS * size_of::<Word>();
/// Mask of the height bits of a stack pointer.
pub(crate) const HEIGHT_MASK: usize = STACK_STRIDE - 1;
/// Nested frames: a transaction's own and 1024 below it.
pub(crate) const FRAMES: usize = 1025;

/// Bytes reserved for the memories of all frames together. More than this costs over 2^45 gas,
/// which no block can hold; a frame that asks for it runs out of gas.
const MEMORY_BYTES: usize = 1 << 32;
/// Once a run has touched more memory than this, its pages are given back to the system.
const KEEP_BYTES: usize = 16 << 20;

thread_local! {
    /// Address space that [`Arena`]s of this thread left, with its pages already there.
    static LEFT: RefCell<Vec<Reserved>> = const { RefCell::new(Vec::new()) };
}

/// So many are kept: a block that is executed and a transaction that is run ahead of its turn have one each.
const MOST_LEFT: usize = 2;

/// Forgets the hashes that this thread keeps for its next machine, so that a measured run knows none.
pub fn forget_hashes() {
    LEFT.with_borrow_mut(|left| {
        for reserved in left {
            reserved.slot_hashes = SlotHashes::default();
        }
    });
}

/// What a thread keeps.
#[derive(Debug)]
struct Reserved {
    stacks: MmapMut,
    memory: MmapMut,
    slot_hashes: SlotHashes,
}

/// The reserved address space of one [`crate::Evm`].
#[derive(Debug)]
pub(crate) struct Arena {
    /// There until the arena is dropped.
    reserved: Option<Reserved>,
    stacks: *mut u8,
    memory: *mut u8,
    touched: usize,
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.trim();
        // While the thread ends there is nowhere to keep it.
        let _ = LEFT.try_with(|left| {
            let mut left = left.borrow_mut();
            if left.len() < MOST_LEFT {
                left.extend(self.reserved.take());
            }
        });
    }
}

impl Reserved {
    fn new() -> Self {
        let reserve = |bytes| {
            MmapOptions::new()
                .len(bytes)
                .no_reserve_swap()
                .map_anon()
                .expect("the system gives address space")
        };
        let stacks = reserve((FRAMES + 1) * STACK_STRIDE);
        let memory = reserve(MEMORY_BYTES);
        // Huge pages would commit 2 MiB for every depth that is touched.
        let _ = stacks.advise(Advice::NoHugePage);
        let _ = memory.advise(Advice::NoHugePage);
        Self {
            stacks,
            memory,
            slot_hashes: SlotHashes::default(),
        }
    }
}

impl Arena {
    /// Takes the address space that the last arena of the thread left, or reserves new; pages are taken
    /// from the system when first written.
    ///
    /// # Panics
    /// If the system refuses 4.1 GiB of address space (not memory).
    pub(crate) fn new() -> Self {
        let left = LEFT.with(|left| left.borrow_mut().pop());
        let mut reserved = left.unwrap_or_else(Reserved::new);
        let stacks = reserved.stacks.as_mut_ptr();
        let memory = reserved.memory.as_mut_ptr();
        let padding = (stacks as usize).next_multiple_of(STACK_STRIDE) - stacks as usize;
        // SAFETY: one stride more than the stacks need is reserved.
        let stacks = unsafe { stacks.add(padding) };
        Self {
            reserved: Some(reserved),
            stacks,
            memory,
            touched: 0,
        }
    }

    /// The empty stack of depth `depth`, from 0.
    pub(crate) fn stack(&mut self, depth: usize) -> *mut Word {
        assert!(depth < FRAMES, "depth is bounded by the call rules");
        // SAFETY: the stack of every such depth lies in the reservation, and is aligned.
        unsafe { self.stacks.add(depth * STACK_STRIDE).cast() }
    }

    /// The hashes that came lately on this thread.
    #[inline(always)]
    pub(crate) fn slot_hashes(&mut self) -> &mut SlotHashes {
        let reserved = self.reserved.as_mut().expect("there until it is dropped");
        &mut reserved.slot_hashes
    }

    /// The start of the memory region.
    pub(crate) fn memory(&mut self) -> *mut u8 {
        self.memory
    }

    /// Whether a memory that begins at `base` may reach `bytes` bytes.
    #[inline]
    pub(crate) fn reaches(&mut self, base: *mut u8, bytes: u64) -> bool {
        let start = base as usize - self.memory as usize;
        match usize::try_from(bytes)
            .ok()
            .and_then(|bytes| start.checked_add(bytes))
        {
            Some(end) if end <= MEMORY_BYTES => {
                self.touched = self.touched.max(end);
                true
            }
            _ => false,
        }
    }

    /// Gives pages back if the last run used unusually many.
    pub(crate) fn trim(&mut self) {
        if self.touched > KEEP_BYTES {
            let length = self.touched - KEEP_BYTES;
            if let Some(reserved) = &self.reserved {
                let advice = UncheckedAdvice::DontNeed;
                // SAFETY: an anonymous private mapping reads as zero afterwards, no reference into
                // the range is alive between runs, and frames zero what they grow into anyway.
                let _ = unsafe {
                    reserved
                        .memory
                        .unchecked_advise_range(advice, KEEP_BYTES, length)
                };
            }
        }
        self.touched = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_aligned_and_apart() {
        let mut arena = Arena::new();
        let (first, second) = (arena.stack(0) as usize, arena.stack(1) as usize);
        assert_eq!(first & HEIGHT_MASK, 0);
        assert_eq!(second - first, STACK_STRIDE);
        arena.stack(FRAMES - 1);
    }

    #[test]
    fn a_thread_keeps_the_address_space_of_two() {
        let places = || {
            let mut arenas = [Arena::new(), Arena::new(), Arena::new()];
            arenas.each_mut().map(|arena| arena.memory() as usize)
        };
        let (first, second) = (places(), places());
        let kept = second.iter().filter(|place| first[..2].contains(place));
        assert_eq!(kept.count(), 2);
        LEFT.with_borrow(|left| assert_eq!(left.len(), MOST_LEFT));
    }

    #[test]
    fn memory_ends_where_the_reservation_ends() {
        let mut arena = Arena::new();
        let base = arena.memory();
        assert!(arena.reaches(base, MEMORY_BYTES as u64));
        assert!(!arena.reaches(base, MEMORY_BYTES as u64 + 1));
        assert!(!arena.reaches(base, u64::MAX));
        arena.trim();
    }
}
