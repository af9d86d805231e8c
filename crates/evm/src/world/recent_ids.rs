//! A direct-mapped cache of ids in front of an [`IdTable`](super::ids::IdTable).

/// Entries; a power of two.
const ENTRIES: usize = 64;

/// Recent ids, by some bits of the key. An entry may belong to another key: the caller compares the key of its record,
/// so nothing needs to be invalidated.
#[derive(Debug)]
pub(super) struct RecentIds([u32; ENTRIES]);

impl Default for RecentIds {
    fn default() -> Self {
        Self([0; ENTRIES])
    }
}

impl RecentIds {
    /// The last id put for these bits, or for others that share the entry.
    #[inline(always)]
    pub(super) fn get(&self, bits: u64) -> u32 {
        self.0[entry_of(bits)]
    }

    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, handle: u32) {
        self.0[entry_of(bits)] = handle;
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "only the highest bits are left"
)]
fn entry_of(bits: u64) -> usize {
    /// Fibonacci hashing: 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (bits.wrapping_mul(FACTOR) >> (u64::BITS - ENTRIES.ilog2())) as usize
}
