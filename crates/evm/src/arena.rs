//! The arena: stacks and memories of all frames of a machine, in address space that is reserved once.
//!
//! Nothing is allocated per call; pages are committed by the system when they are first written. The stack of depth `d`
//! begins at `d * STACK_STRIDE`, aligned, so the low 16 bits of the stack pointer are the height in bytes: checking for
//! underflow and overflow needs no other register. A frame's memory begins where its caller's ends, since a caller
//! can't grow its memory while its callee runs.
//!
//! A thread keeps up to two reservations of dropped machines for its next ones, with their pages and their Keccak
//! cache.

use crate::{keccak_cache::KeccakCache, word::Word};
use memmap2::{Advice, MmapMut, MmapOptions, UncheckedAdvice};
use std::cell::RefCell;

/// Words on one stack (Yellow Paper 9.1).
pub(crate) const STACK_WORDS: usize = 1024;
/// Bytes from one stack to the next; a power of two, so that the low bits of a stack pointer are the height in bytes.
/// Twice the stack's size, so that a full stack is distinct from an empty one; the other half is never touched.
pub(crate) const STACK_STRIDE: usize = 2 * STACK_WORDS * size_of::<Word>();
/// Mask of the height bits of a stack pointer.
pub(crate) const HEIGHT_MASK: usize = STACK_STRIDE - 1;
/// Most nested frames: a transaction's own and 1024 below it.
pub(crate) const FRAMES: usize = 1025;

/// Bytes reserved for the memories of all frames together. More costs over 2^45 gas, which no block has: a frame that
/// expands beyond it runs out of gas.
const MEMORY_BYTES: usize = 1 << 32;
/// Memory beyond this is returned to the system after a run that has touched it.
const KEEP_BYTES: usize = 16 << 20;

thread_local! {
    /// Reservations of dropped [`Arena`]s, with pages that are committed already.
    static SPARE: RefCell<Vec<Reservation>> = const { RefCell::new(Vec::new()) };
}

/// Most spare reservations: one for executing a block, one for speculative execution.
const MAX_SPARE: usize = 2;

/// Clears the Keccak cache that this thread keeps for its next machine, so that a measurement starts cold.
pub fn clear_keccak_cache() {
    SPARE.with_borrow_mut(|spare| {
        for reservation in spare {
            reservation.keccak_cache = KeccakCache::default();
        }
    });
}

/// Address space for one machine, and its Keccak cache.
#[derive(Debug)]
struct Reservation {
    stacks: MmapMut,
    memory: MmapMut,
    keccak_cache: KeccakCache,
}

/// The stacks and memories of one [`crate::Evm`].
#[derive(Debug)]
pub(crate) struct Arena {
    /// Taken when the arena is dropped.
    reservation: Option<Reservation>,
    stacks: *mut u8,
    memory: *mut u8,
    touched: usize,
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.trim();
        // Fails while the thread ends; the reservation is then unmapped.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.extend(self.reservation.take());
            }
        });
    }
}

impl Reservation {
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
        // A huge page would commit 2 MiB for each touched depth.
        let _ = stacks.advise(Advice::NoHugePage);
        let _ = memory.advise(Advice::NoHugePage);
        Self {
            stacks,
            memory,
            keccak_cache: KeccakCache::default(),
        }
    }
}

impl Arena {
    /// Takes a spare reservation of this thread, or makes one; pages are committed when first written.
    ///
    /// # Panics
    /// If the system refuses 4.1 GiB of address space (not memory).
    pub(crate) fn new() -> Self {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        let mut reservation = spare.unwrap_or_else(Reservation::new);
        let stacks = reservation.stacks.as_mut_ptr();
        let memory = reservation.memory.as_mut_ptr();
        let padding = (stacks as usize).next_multiple_of(STACK_STRIDE) - stacks as usize;
        // SAFETY: one stride more than the stacks need is reserved.
        let stacks = unsafe { stacks.add(padding) };
        Self {
            reservation: Some(reservation),
            stacks,
            memory,
            touched: 0,
        }
    }

    /// The empty stack of depth `depth`, from 0.
    pub(crate) fn stack(&mut self, depth: usize) -> *mut Word {
        assert!(depth < FRAMES, "depth is bounded by the call rules");
        // SAFETY: the stack of every such depth is in the reservation, and is aligned.
        unsafe { self.stacks.add(depth * STACK_STRIDE).cast() }
    }

    /// The Keccak cache.
    #[inline(always)]
    pub(crate) fn keccak_cache(&mut self) -> &mut KeccakCache {
        let reservation = self
            .reservation
            .as_mut()
            .expect("there until it is dropped");
        &mut reservation.keccak_cache
    }

    /// The start of the memory region.
    pub(crate) fn memory(&mut self) -> *mut u8 {
        self.memory
    }

    /// Whether a memory that begins at `base` can have `bytes` bytes.
    #[inline]
    pub(crate) fn can_hold(&mut self, base: *mut u8, bytes: u64) -> bool {
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

    /// Returns pages to the system if the last run touched more than [`KEEP_BYTES`].
    pub(crate) fn trim(&mut self) {
        if self.touched > KEEP_BYTES {
            let length = self.touched - KEEP_BYTES;
            if let Some(reservation) = &self.reservation {
                let advice = UncheckedAdvice::DontNeed;
                // SAFETY: an anonymous private mapping reads as zero afterwards, no reference into the range is alive
                // between runs, and frames zero the memory that they expand into.
                let _ = unsafe {
                    reservation
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
    fn stacks_are_aligned_and_64_kib_apart() {
        let mut arena = Arena::new();
        let (first, second) = (arena.stack(0) as usize, arena.stack(1) as usize);
        assert_eq!(first & HEIGHT_MASK, 0);
        assert_eq!(second - first, STACK_STRIDE);
        arena.stack(FRAMES - 1);
    }

    #[test]
    fn thread_keeps_2_of_3_dropped_reservations() {
        let addresses = || {
            let mut arenas = [Arena::new(), Arena::new(), Arena::new()];
            arenas.each_mut().map(|arena| arena.memory() as usize)
        };
        let (first, second) = (addresses(), addresses());
        let reused = second.iter().filter(|address| first[..2].contains(address));
        assert_eq!(reused.count(), 2);
        SPARE.with_borrow(|spare| assert_eq!(spare.len(), MAX_SPARE));
    }

    #[test]
    fn memory_can_hold_4_gib_and_no_byte_more() {
        let mut arena = Arena::new();
        let base = arena.memory();
        assert!(arena.can_hold(base, MEMORY_BYTES as u64));
        assert!(!arena.can_hold(base, MEMORY_BYTES as u64 + 1));
        assert!(!arena.can_hold(base, u64::MAX));
        arena.trim();
    }
}
