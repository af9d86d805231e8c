//! A cache of Keccak hashes of 32 and 64 bytes.
//!
//! Solidity stores a mapping's value at `keccak(key ++ slot)` and an array at `keccak(slot)`. Code that changes such a
//! value hashes the same bytes twice, to read and to write, and busy keys of a contract come again in later
//! transactions. Two direct-mapped tables of 128 entries stay in the processor's cache; a miss costs a hundredth of
//! hashing.

use niwaki_crypto::keccak256;

/// Entries per table; a power of two.
const ENTRIES: usize = 128;

/// Hashes of one word and of two words.
#[derive(Debug, Default)]
pub(crate) struct KeccakCache {
    one: Box<Table<4>>,
    two: Box<Table<8>>,
}

/// Direct-mapped by the input.
#[derive(Debug)]
struct Table<const LIMBS: usize>([Entry<LIMBS>; ENTRIES]);

#[derive(Clone, Copy, Debug)]
struct Entry<const LIMBS: usize> {
    input: [u64; LIMBS],
    hash: [u8; 32],
}

impl KeccakCache {
    /// The Keccak-256 hash of `bytes`, if they are 32 or 64.
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
    /// Each entry is the hash of zeros, which is valid in any place.
    fn default() -> Self {
        let input = [0; LIMBS];
        let hash = keccak256([[0; 8]; LIMBS].concat()).0;
        Self([Entry { input, hash }; ENTRIES])
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
        let entry = &mut self.0[entry_of(&input)];
        if entry.input != input {
            entry.input = input;
            entry.hash = keccak256(bytes).0;
        }
        &entry.hash
    }
}

/// The entry for an input: depends on all of its bits.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "only the highest bits are left"
)]
fn entry_of(input: &[u64]) -> usize {
    /// Odd random-looking multipliers, one per limb.
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
        // Both halves: the limbs are big-endian bytes read as little-endian, so inputs may differ in high bits only.
        let product = u128::from(*limb) * u128::from(factor);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    (mixed >> (u64::BITS - ENTRIES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A mapping's key or slot: a small number, or a hash.
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
        fn cached_hash_is_keccak_of_its_input(inputs in prop::collection::vec(input(), 1..300)) {
            let mut hashes = KeccakCache::default();
            for input in inputs.iter().chain(&inputs) {
                prop_assert_eq!(hashes.keccak256(input), Some(&keccak256(input).0));
            }
        }
    }

    #[test]
    fn zeros_of_32_and_64_bytes_are_cached_from_the_start_and_other_lengths_never() {
        let mut hashes = KeccakCache::default();
        for zeros in [vec![0; 32], vec![0; 64]] {
            assert_eq!(hashes.keccak256(&zeros), Some(&keccak256(&zeros).0));
        }
        for length in [0, 31, 33, 63, 65, 128] {
            assert_eq!(hashes.keccak256(&vec![0; length]), None);
        }
    }

    #[test]
    fn sequential_128_keys_and_slots_fill_more_than_half_of_128_entries() {
        let mut entries = std::collections::BTreeSet::new();
        for (key, slot) in (0..16).flat_map(|key| (0..8).map(move |slot| (key, slot))) {
            let mut input = [0; 8];
            // Numbers of 256 bits, the highest byte first.
            (input[3], input[7]) = (u64::swap_bytes(key), u64::swap_bytes(slot));
            entries.insert(entry_of(&input));
        }
        // 128 random entries fill five eighths of 128.
        assert!(entries.len() > ENTRIES / 2, "{}", entries.len());
    }
}
