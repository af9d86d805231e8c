//! Powers against those of the other library, at every length and edge.

use super::*;
use crate::provider::Stock;
use proptest::prelude::*;
use revm_precompile::Crypto;

/// As [`modexp`], by the other library.
fn oracle(base: &[u8], exponent: &[u8], modulus: &[u8]) -> Vec<u8> {
    let power = Stock.modexp(base, exponent, modulus).expect("no error");
    let mut padded = vec![0; modulus.len().saturating_sub(power.len())];
    padded.extend_from_slice(&power[power.len().saturating_sub(modulus.len())..]);
    padded
}

fn agrees(base: &[u8], exponent: &[u8], modulus: &[u8]) {
    let power = modexp(base, exponent, modulus);
    assert_eq!(
        power,
        oracle(base, exponent, modulus),
        "{base:x?} ^ {exponent:x?} % {modulus:x?}"
    );
}

/// Random bytes, all the same, or a few bits; some with zeros at either end.
fn number(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..=longest),
        1 => (0..=longest).prop_map(|length| vec![0xff; length]),
        1 => (0..=longest, any::<prop::sample::Index>()).prop_map(|(length, at)| {
            let mut bytes = vec![0; length];
            if length > 0 {
                bytes[at.index(length)] = 1 << (at.index(8));
            }
            bytes
        }),
    ];
    (bytes, 0..20_usize, 0..80_usize, any::<bool>()).prop_map(|(mut bytes, front, back, odd)| {
        let length = bytes.len();
        if front < 8 {
            bytes[..front.min(length)].fill(0);
        }
        if back < 40 {
            bytes[length - back.min(length)..].fill(0);
        }
        if odd && let Some(last) = bytes.last_mut() {
            *last |= 1;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn small_powers_equal_those_of_the_other_library(base in number(80), exponent in number(40), modulus in number(72)) {
        agrees(&base, &exponent, &modulus);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn large_powers_equal_those_of_the_other_library(base in number(1_100), exponent in number(6), modulus in number(1_060)) {
        agrees(&base, &exponent, &modulus);
    }

    /// Which of the two is used depends on the CPU.
    #[test]
    fn limbs_and_digits_give_the_same(base in number(1_100), exponent in number(20), modulus in number(1_024)) {
        let modulus = limbs::of_bytes(&modulus);
        let exponent = without_zeros(&exponent);
        prop_assume!(modulus.first().is_some_and(|low| low % 2 == 1) && modulus != [1]);
        prop_assume!(!exponent.is_empty());
        let base = limbs::of_bytes(&base);
        let power = wide::power(&base, exponent, &modulus);
        let bytes = |limbs: &[u64]| limbs::bytes(limbs, 8 * modulus.len());
        let modulus_bytes = bytes(&modulus);
        let base_bytes = limbs::bytes(&base, 8 * base.len());
        prop_assert_eq!(bytes(&power), oracle(&base_bytes, exponent, &modulus_bytes));
        #[cfg(target_arch = "x86_64")]
        if let Some(other) = x86_64::power(&base, exponent, &modulus) {
            prop_assert_eq!(other, power);
        }
    }
}

#[test]
fn edge_cases_equal_those_of_the_other_library() {
    let mut numbers = vec![
        vec![],
        vec![0],
        vec![1],
        vec![2],
        vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
    ];
    for length in [
        1, 7, 8, 9, 16, 24, 31, 32, 33, 40, 48, 56, 63, 64, 65, 72, 104, 130,
    ] {
        numbers.push(vec![0xff; length]);
        let mut power_of_two = vec![0; length];
        power_of_two[0] = 0x80;
        numbers.push(power_of_two.clone());
        power_of_two[length - 1] |= 1;
        numbers.push(power_of_two);
        let mut even = vec![0xff; length];
        even[length - 1] = 0xfe;
        numbers.push(even);
    }
    for base in &numbers {
        for modulus in &numbers {
            for exponent in [
                &[][..],
                &[0],
                &[0, 0, 1],
                &[2],
                &[3],
                &[1, 0, 1],
                &[0xff; 9],
            ] {
                agrees(base, exponent, modulus);
            }
        }
    }
}

#[test]
fn a_modulus_of_every_length_gives_the_right_power() {
    for limbs in 1..=140 {
        let mut modulus: Vec<u8> = (0..8 * limbs)
            .map(|n: u32| n.to_le_bytes()[0] | 0x81)
            .collect();
        let base = vec![0xa7; 8 * limbs as usize + 3];
        agrees(&base, &[7, 1], &modulus);
        modulus[0] = 1;
        agrees(&base, &[7, 1], &modulus);
        // The largest possible factors.
        agrees(&vec![0xff; modulus.len()], &[3], &vec![0xff; modulus.len()]);
        let mut below = vec![0xff; modulus.len()];
        *below.last_mut().unwrap() = 0xfe;
        agrees(&below, &[0x0f, 0xff], &vec![0xff; modulus.len()]);
    }
}
