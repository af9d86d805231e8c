//! Which of the pending batches may change a key: one table for all of them, a transposed Bloom filter.
//!
//! A point read that misses the pending batches must look into each of them. Up to 64 may be pending, so
//! the table answers first: it has 2^16 words of 64 bits, one word per bucket of key hashes and one bit per
//! batch. A batch sets its bit in the word of each of its keys when it is indexed, and the writer clears
//! them once the engine has the batch. A lookup reads one word and asks only the batches whose bit is set,
//! so it costs about the same however many are pending.
//!
//! ```text
//! bucket of hash(key) ->  word          bit n % 64: batch number n may have a key of this bucket
//!   0x3a71                ...0000 0110  batches 1 and 2 are searched, newest first
//!   0x3a72                ...0000 0000  no batch has the key: the engine is read
//! ```
//!
//! Batches are numbered in the order in which they were pushed. A snapshot may keep batches that reached the
//! engine since: their bits are cleared or belong to a later batch, so [`KeyFilter::may_have`] always
//! names them. The queue guarantees that at most [`MAX_PENDING_BATCHES`] are pending, and that the bits of a
//! batch are cleared before a later batch takes over the same bit.

use std::sync::atomic::{AtomicU64, Ordering};

/// No more batches are pending at once, so that each has a bit of its own.
pub const MAX_PENDING_BATCHES: usize = 64;

/// 2^16 words, 512 KiB. With a million pending rows a lookup searches some batches in vain.
const WORD_BITS: u32 = 16;

/// The table.
#[derive(Debug)]
pub(crate) struct KeyFilter {
    words: Box<[AtomicU64]>,
    /// The bits of batches that are completely in the table.
    ready: AtomicU64,
    /// Batches below this number have been cleared, or are about to be.
    retired: AtomicU64,
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// The lowest `count` bits.
fn low(count: u64) -> u64 {
    let rest = 64_u64.saturating_sub(count);
    u64::MAX
        .checked_shr(u32::try_from(rest).unwrap_or(64))
        .unwrap_or(0)
}

impl KeyFilter {
    /// An empty table.
    pub(crate) fn new() -> Self {
        Self {
            words: (0..1 << WORD_BITS).map(|_| AtomicU64::new(0)).collect(),
            ready: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        }
    }

    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.words[(hash >> (u64::BITS - WORD_BITS)) as usize]
    }

    /// Adds batch `number`, whose keys have these hashes. Called once for each batch, before it is
    /// cleared.
    pub(crate) fn insert(&self, number: u64, hashes: impl Iterator<Item = u64>) {
        for hash in hashes {
            self.word(hash).fetch_or(bit(number), Ordering::Relaxed);
        }
        // A reader that sees the batch ready sees its bits.
        self.ready.fetch_or(bit(number), Ordering::Release);
    }

    /// Must be called before any batch below `number` is cleared.
    pub(crate) fn retire_below(&self, number: u64) {
        self.retired.store(number, Ordering::Release);
    }

    /// Removes batch `number`, which was inserted with these hashes.
    pub(crate) fn clear(&self, number: u64, hashes: impl Iterator<Item = u64>) {
        self.ready.fetch_and(!bit(number), Ordering::Relaxed);
        for hash in hashes {
            // A reader that sees a bit cleared, or the next owner of the bit ready, sees `retired`
            // above this batch.
            self.word(hash).fetch_and(!bit(number), Ordering::Release);
        }
    }

    /// Of the `count` batches from number `first` on, those that may have a key of this hash: bit
    /// `i` for number `first + i`. The others have none.
    pub(crate) fn may_have(&self, hash: u64, first: u64, count: usize) -> u64 {
        // Loaded in this order: see `insert` and `clear`.
        let ready = self.ready.load(Ordering::Acquire);
        let marked = self.word(hash).load(Ordering::Acquire);
        let retired = self.retired.load(Ordering::Acquire);
        let shift = (first % 64) as u32;
        let named = (marked | !ready).rotate_right(shift);
        (named | low(retired.saturating_sub(first))) & low(count as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash of its own word for each `n`.
    fn hash(n: u64) -> u64 {
        n << (u64::BITS - WORD_BITS)
    }

    #[test]
    fn a_batch_is_named_for_its_own_hashes_once_it_is_inserted() {
        let filter = KeyFilter::new();
        assert_eq!(filter.may_have(hash(1), 0, 3), 0b111, "none is ready yet");
        filter.insert(0, [hash(1), hash(2)].into_iter());
        filter.insert(2, [hash(2)].into_iter());
        assert_eq!(filter.may_have(hash(1), 0, 3), 0b011);
        assert_eq!(filter.may_have(hash(2), 0, 3), 0b111);
        assert_eq!(filter.may_have(hash(3), 0, 3), 0b010);
        assert_eq!(filter.may_have(hash(1), 2, 1), 0);
        assert_eq!(filter.may_have(hash(1), 0, 0), 0);
    }

    #[test]
    fn retired_batches_are_always_named_and_their_bits_are_reused() {
        let filter = KeyFilter::new();
        for number in 0..64 {
            filter.insert(number, [hash(number)].into_iter());
        }
        assert_eq!(filter.may_have(hash(63), 0, 64), 1 << 63);
        filter.retire_below(2);
        assert_eq!(filter.may_have(hash(63), 0, 64), 1 << 63 | 0b11);
        filter.clear(0, [hash(0)].into_iter());
        filter.clear(1, [hash(1)].into_iter());
        filter.insert(64, [hash(7)].into_iter());
        assert_eq!(filter.may_have(hash(7), 2, 63), 1 << 62 | 1 << 5);
        assert_eq!(
            filter.may_have(hash(0), 2, 64),
            1 << 63,
            "65 is not inserted"
        );
        assert_eq!(filter.may_have(hash(9), 0, 64), 1 << 9 | 0b11);
    }

    #[test]
    fn low_sets_that_many_bits() {
        assert_eq!(
            [low(0), low(1), low(63), low(64)],
            [0, 1, u64::MAX >> 1, u64::MAX]
        );
        assert_eq!(low(u64::MAX), u64::MAX);
    }
}
