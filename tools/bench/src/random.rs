//! A random generator whose numbers do not depend on the version of a library.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 32 bytes.
    pub(crate) fn word(&mut self) -> [u8; 32] {
        let mut word = [0; 32];
        for part in word.chunks_exact_mut(8) {
            part.copy_from_slice(&self.next().to_be_bytes());
        }
        word
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(end);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// True with probability `share` / 1000.
    pub(crate) fn per_mille(&mut self, share: u64) -> bool {
        self.below(1000) < share
    }

    /// A number below `end`, skewed to small ones: half of the numbers are below `end / 8`.
    pub(crate) fn skewed(&mut self, end: u64) -> u64 {
        // The cube of a number in [0, 1), in 32 bits behind the point.
        let part = u128::from(self.next() >> 32);
        let cube = (part * part * part) >> 64;
        u64::try_from((cube * u128::from(end)) >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_below_their_end_and_half_of_skewed_ones_below_an_eighth() {
        let mut random = Random(7);
        let draws = 10_000;
        assert!((0..draws).all(|_| random.below(3) < 3));
        let small = (0..draws).filter(|_| random.skewed(800) < 100).count();
        assert!((4_800..5_200).contains(&small), "{small}");
        assert!((0..draws).all(|_| random.skewed(5) < 5));
        let even = (0..draws).filter(|_| random.below(800) < 100).count();
        assert!((1_100..1_400).contains(&even), "{even}");
    }
}
