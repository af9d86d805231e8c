//! Handles that were looked up lately, by a few bits of what they stand for.

/// How many are kept; a power of two.
const KEPT: usize = 64;

/// Numbers of handles. One that is taken from here may be another's: whoever takes it looks whether its record
/// is the one that is wanted, and so nothing need ever be taken out.
#[derive(Debug)]
pub(super) struct Recent([u32; KEPT]);

impl Default for Recent {
    fn default() -> Self {
        Self([0; KEPT])
    }
}

impl Recent {
    /// What was put there last for these bits or for others with the same place.
    #[inline(always)]
    pub(super) fn get(&self, bits: u64) -> u32 {
        self.0[place(bits)]
    }

    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, handle: u32) {
        self.0[place(bits)] = handle;
    }
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the highest bits only are left"
)]
fn place(bits: u64) -> usize {
    /// Odd, with bits that look like chance.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (bits.wrapping_mul(FACTOR) >> (u64::BITS - KEPT.ilog2())) as usize
}
