//! Which of the waiting batches may have a key: one table for all of them.
//!
//! A word for each of so many hashes of keys, in it a bit for each batch that may wait. A batch sets
//! its bits once, when it is indexed, and they are cleared after it has reached the engine. A look-up
//! reads one word and asks the batches that it names, so it costs about the same however many wait.
//!
//! Batches are numbered in the order in which they came, and number `n` has bit `n % 64`. A reader
//! may hold batches that have reached the engine since, whose bits are gone or another's by now:
//! [`Marks::may_have`] names all of these. The queue sees to it that at most [`MOST_BATCHES`] wait,
//! and that a batch's bits are cleared before the next owner of its bit comes.

use std::sync::atomic::{AtomicU64, Ordering};

/// No more batches wait, so that each has a bit of its own.
pub const MOST_BATCHES: usize = 64;

/// 512 KiB of words. Where a million rows wait, a look-up asks some batches in vain.
const WORD_BITS: u32 = 16;

/// The table.
#[derive(Debug)]
pub(crate) struct Marks {
    words: Box<[AtomicU64]>,
    /// The bits of batches that are all in the table.
    ready: AtomicU64,
    /// The least number whose bits were not cleared, or are about to be.
    kept: AtomicU64,
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

impl Marks {
    /// A table without marks.
    pub(crate) fn new() -> Self {
        Self {
            words: (0..1 << WORD_BITS).map(|_| AtomicU64::new(0)).collect(),
            ready: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        }
    }

    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.words[(hash >> (u64::BITS - WORD_BITS)) as usize]
    }

    /// Enters the batch `number`, which has keys of these hashes only. Once for each batch, before
    /// it is cleared.
    pub(crate) fn enter(&self, number: u64, hashes: impl Iterator<Item = u64>) {
        for hash in hashes {
            self.word(hash).fetch_or(bit(number), Ordering::Relaxed);
        }
        // Whoever finds the batch ready finds its bits.
        self.ready.fetch_or(bit(number), Ordering::Release);
    }

    /// To be called before any batch below `number` is cleared.
    pub(crate) fn keep_from(&self, number: u64) {
        self.kept.store(number, Ordering::Release);
    }

    /// Takes the batch `number` out, which was entered with these hashes.
    pub(crate) fn clear(&self, number: u64, hashes: impl Iterator<Item = u64>) {
        self.ready.fetch_and(!bit(number), Ordering::Relaxed);
        for hash in hashes {
            // Whoever finds a bit gone, or the next owner ready, finds `kept` above this batch.
            self.word(hash).fetch_and(!bit(number), Ordering::Release);
        }
    }

    /// Of the `count` batches from number `first` on, those that may have a key of this hash: bit
    /// `i` for number `first + i`. All others have none.
    pub(crate) fn may_have(&self, hash: u64, first: u64, count: usize) -> u64 {
        // In this order: see `enter` and `clear`.
        let ready = self.ready.load(Ordering::Acquire);
        let marked = self.word(hash).load(Ordering::Acquire);
        let kept = self.kept.load(Ordering::Acquire);
        let places = (first % 64) as u32;
        let named = (marked | !ready).rotate_right(places);
        (named | low(kept.saturating_sub(first))) & low(count as u64)
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
    fn a_batch_is_named_for_its_own_hashes_once_it_is_entered() {
        let marks = Marks::new();
        assert_eq!(marks.may_have(hash(1), 0, 3), 0b111, "nothing is known yet");
        marks.enter(0, [hash(1), hash(2)].into_iter());
        marks.enter(2, [hash(2)].into_iter());
        assert_eq!(marks.may_have(hash(1), 0, 3), 0b011);
        assert_eq!(marks.may_have(hash(2), 0, 3), 0b111);
        assert_eq!(marks.may_have(hash(3), 0, 3), 0b010);
        assert_eq!(marks.may_have(hash(1), 2, 1), 0);
        assert_eq!(marks.may_have(hash(1), 0, 0), 0);
    }

    #[test]
    fn batches_that_are_gone_are_always_named_and_their_bits_are_free() {
        let marks = Marks::new();
        for number in 0..64 {
            marks.enter(number, [hash(number)].into_iter());
        }
        assert_eq!(marks.may_have(hash(63), 0, 64), 1 << 63);
        marks.keep_from(2);
        assert_eq!(marks.may_have(hash(63), 0, 64), 1 << 63 | 0b11);
        marks.clear(0, [hash(0)].into_iter());
        marks.clear(1, [hash(1)].into_iter());
        marks.enter(64, [hash(7)].into_iter());
        assert_eq!(marks.may_have(hash(7), 2, 63), 1 << 62 | 1 << 5);
        assert_eq!(marks.may_have(hash(0), 2, 64), 1 << 63, "65 is not entered");
        assert_eq!(marks.may_have(hash(9), 0, 64), 1 << 9 | 0b11);
    }

    #[test]
    fn so_many_low_bits_are_set() {
        assert_eq!(
            [low(0), low(1), low(63), low(64)],
            [0, 1, u64::MAX >> 1, u64::MAX]
        );
        assert_eq!(low(u64::MAX), u64::MAX);
    }
}
