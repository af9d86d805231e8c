//! Hashes of one word and of two that came lately.
//!
//! That is how compilers place what a mapping or an array holds: the hash of a key and of the mapping's own
//! slot, or of the array's. Code that changes such a value asks for its place twice, to read and to write, and
//! a contract's busy accounts come again in other transactions. The tables are small enough to stay near
//! beside what code works with; where nothing comes again, looking into one costs a hundredth of hashing.

use niwaki_crypto::keccak256;

/// How many are kept of each length; a power of two.
const KEPT: usize = 128;

/// The hashes of words, and those of pairs of them.
#[derive(Debug, Default)]
pub(crate) struct SlotHashes {
    one: Box<Table<4>>,
    two: Box<Table<8>>,
}

/// Each where the bits of its input say, until another one is there.
#[derive(Debug)]
struct Table<const LIMBS: usize>([Kept<LIMBS>; KEPT]);

#[derive(Clone, Copy, Debug)]
struct Kept<const LIMBS: usize> {
    input: [u64; LIMBS],
    hash: [u8; 32],
}

impl SlotHashes {
    /// The Keccak-256 hash of `bytes`, if it is one of those that are kept here.
    #[inline(always)]
    pub(crate) fn keccak256(&mut self, bytes: &[u8]) -> Option<&[u8; 32]> {
        match bytes.len() {
            64 => Some(self.two.keccak256(bytes)),
            32 => Some(self.one.keccak256(bytes)),
            _ => None,
        }
    }
}

impl<const LIMBS: usize> Default for Table<LIMBS> {
    /// In every place the hash of zeros, which is right wherever it is found.
    fn default() -> Self {
        let input = [0; LIMBS];
        let hash = keccak256([[0; 8]; LIMBS].concat()).0;
        Self([Kept { input, hash }; KEPT])
    }
}

impl<const LIMBS: usize> Table<LIMBS> {
    #[inline(never)]
    fn keccak256(&mut self, bytes: &[u8]) -> &[u8; 32] {
        let (limbs, _) = bytes.as_chunks::<8>();
        let mut input = [0; LIMBS];
        for (limb, bytes) in input.iter_mut().zip(limbs) {
            *limb = u64::from_ne_bytes(*bytes);
        }
        let kept = &mut self.0[place(&input)];
        if kept.input != input {
            kept.input = input;
            kept.hash = keccak256(bytes).0;
        }
        &kept.hash
    }
}

/// A place that depends on all bits of the input.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the highest bits only are left"
)]
fn place(input: &[u64]) -> usize {
    /// Odd, with bits that look like chance; each limb has one of its own.
    const FACTORS: [u64; 8] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0xd6e8_feb8_6659_fd93,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x8ebc_6af0_9c88_c6e3,
        0x5899_65cc_7537_4cc3,
    ];
    let products = input.iter().zip(FACTORS);
    let mixed = products.fold(0u64, |sum, (limb, factor)| {
        // Both halves: the limbs are of bytes in the other order, so what differs may be in the highest.
        let product = u128::from(*limb) * u128::from(factor);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    (mixed >> (u64::BITS - KEPT.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As a mapping's key or slot: a number, or a hash.
    fn word() -> impl Strategy<Value = [u8; 32]> {
        prop_oneof![
            any::<u8>().prop_map(|last| std::array::from_fn(|at| last * u8::from(at == 31))),
            any::<[u8; 32]>(),
        ]
    }

    fn input() -> impl Strategy<Value = Vec<u8>> {
        (word(), word(), any::<bool>()).prop_map(|(key, slot, both)| match both {
            true => [key, slot].concat(),
            false => key.to_vec(),
        })
    }

    proptest! {
        #[test]
        fn every_hash_is_that_of_its_input(inputs in prop::collection::vec(input(), 1..300)) {
            let mut hashes = SlotHashes::default();
            for input in inputs.iter().chain(&inputs) {
                prop_assert_eq!(hashes.keccak256(input), Some(&keccak256(input).0));
            }
        }
    }

    #[test]
    fn zeros_have_their_hash_from_the_start_and_other_lengths_none() {
        let mut hashes = SlotHashes::default();
        for zeros in [vec![0; 32], vec![0; 64]] {
            assert_eq!(hashes.keccak256(&zeros), Some(&keccak256(&zeros).0));
        }
        for length in [0, 31, 33, 63, 65, 128] {
            assert_eq!(hashes.keccak256(&vec![0; length]), None);
        }
    }

    #[test]
    fn keys_and_slots_that_follow_one_another_spread() {
        let mut places = std::collections::BTreeSet::new();
        for (key, slot) in (0..16).flat_map(|key| (0..8).map(move |slot| (key, slot))) {
            let mut input = [0; 8];
            // Numbers of 256 bits, the highest byte first.
            (input[3], input[7]) = (u64::swap_bytes(key), u64::swap_bytes(slot));
            places.insert(place(&input));
        }
        // As chance would: 128 in 128 places fill five of eight.
        assert!(places.len() > KEPT / 2, "{}", places.len());
    }
}
