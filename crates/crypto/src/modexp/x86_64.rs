//! Odd moduli of up to 8,318 bits in digits of 52 bits, eight to a vector, on processors with AVX-512 and IFMA.

use super::limbs::{low, remainder};
use super::narrow::negative_inverse;
use std::arch::x86_64::*;

const DIGIT_BITS: usize = 52;
const MASK: u64 = (1 << DIGIT_BITS) - 1;

/// Eight digits.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Vector([u64; 8]);

/// Numbers of `K` vectors below twice the modulus, times `2^(52 * digits)`, which is at least four times the modulus.
struct Odd<const K: usize> {
    modulus: [Vector; K],
    /// `-1 / modulus` modulo `2^52`.
    inverse: u64,
    digits: usize,
}

/// As [`super::modulo_odd`]; `None` if the CPU has no IFMA or the modulus is too long.
pub(super) fn power(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Option<Vec<u64>> {
    if !std::arch::is_x86_feature_detected!("avx512f")
        || !std::arch::is_x86_feature_detected!("avx512ifma")
    {
        return None;
    }
    let bits = 64 * modulus.len() - modulus[modulus.len() - 1].leading_zeros() as usize;
    let digits = (bits + 2).div_ceil(DIGIT_BITS);
    macro_rules! of_vectors {
        ($($k:literal)+) => {
            match digits.div_ceil(8) {
                $($k => Some(Odd::<$k>::power(base, exponent, modulus, digits)),)+
                _ => None,
            }
        };
    }
    of_vectors!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
}

impl<const K: usize> Odd<K> {
    fn power(base: &[u64], exponent: &[u8], modulus: &[u64], digits: usize) -> Vec<u64> {
        let ring = Self {
            modulus: of_limbs(modulus),
            inverse: negative_inverse(modulus[0]) & MASK,
            digits,
        };
        let base = remainder(base, DIGIT_BITS * digits, modulus);
        let mut number = super::power(&ring, &of_limbs(&base), exponent);
        let mut one = [Vector([0; 8]); K];
        one[0].0[0] = 1;
        super::Ring::multiply(&ring, &mut number, &one);
        let mut limbs = limbs(&number, modulus.len());
        super::reduce_once(&mut limbs, 0, modulus);
        limbs
    }

    /// `a * b / 2^(52 * digits)` modulo the modulus.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn product(&self, a: &[Vector; K], b: &[Vector; K]) -> [Vector; K] {
        // SAFETY: a `Vector` is 64 bytes, aligned to 64.
        let load = |vector: &Vector| unsafe { _mm512_load_si512(vector.0.as_ptr().cast()) };
        let (a0, a1) = (a[0].0[0], a[0].0[1]);
        let (n0, n1) = (self.modulus[0].0[0], self.modulus[0].0[1]);
        let mut sum = [_mm512_setzero_si512(); K];
        // The lowest digit with its carries, of which the vectors' lowest lane has none.
        let mut lowest = 0_u64;
        for b in b.iter().flat_map(|vector| vector.0).take(self.digits) {
            let second = second_lane(sum[0]);
            let ab = u128::from(a0) * u128::from(b);
            let digit = lowest.wrapping_add(low(ab) & MASK);
            let factor = digit.wrapping_mul(self.inverse) & MASK;
            let carried = (u128::from(n0) * u128::from(factor) + u128::from(digit)) >> DIGIT_BITS;
            lowest = second
                .wrapping_add(a1.wrapping_mul(b) & MASK)
                .wrapping_add(low(ab >> DIGIT_BITS))
                .wrapping_add(n1.wrapping_mul(factor) & MASK)
                .wrapping_add(low(carried));

            let b = _mm512_set1_epi64(b.cast_signed());
            let factor = _mm512_set1_epi64(factor.cast_signed());
            for (sum, a) in sum.iter_mut().zip(a) {
                *sum = _mm512_madd52lo_epu64(*sum, load(a), b);
            }
            for (sum, modulus) in sum.iter_mut().zip(&self.modulus) {
                *sum = _mm512_madd52lo_epu64(*sum, load(modulus), factor);
            }
            // All digits one place down.
            for at in 1..K {
                sum[at - 1] = _mm512_alignr_epi64::<1>(sum[at], sum[at - 1]);
            }
            sum[K - 1] = _mm512_alignr_epi64::<1>(_mm512_setzero_si512(), sum[K - 1]);
            for (sum, a) in sum.iter_mut().zip(a) {
                *sum = _mm512_madd52hi_epu64(*sum, load(a), b);
            }
            for (sum, modulus) in sum.iter_mut().zip(&self.modulus) {
                *sum = _mm512_madd52hi_epu64(*sum, load(modulus), factor);
            }
        }
        let mut product = [Vector([0; 8]); K];
        for (into, sum) in product.iter_mut().zip(sum) {
            // SAFETY: as above.
            unsafe { _mm512_store_si512(into.0.as_mut_ptr().cast(), sum) };
        }
        product[0].0[0] = lowest;
        let mut carry = 0;
        for digit in product.iter_mut().flat_map(|vector| &mut vector.0) {
            carry += *digit;
            *digit = carry & MASK;
            carry >>= DIGIT_BITS;
        }
        product
    }
}

impl<const K: usize> super::Ring for Odd<K> {
    type Element = [Vector; K];

    fn multiply(&self, a: &mut [Vector; K], b: &[Vector; K]) {
        // SAFETY: a ring is only made where the processor has these instructions.
        *a = unsafe { self.product(a, b) };
    }

    fn square(&self, a: &mut [Vector; K], times: usize) {
        for _ in 0..times {
            // SAFETY: as above.
            *a = unsafe { self.product(a, a) };
        }
    }
}

#[target_feature(enable = "avx512f")]
fn second_lane(vector: __m512i) -> u64 {
    _mm_extract_epi64::<1>(_mm512_castsi512_si128(vector)).cast_unsigned()
}

fn of_limbs<const K: usize>(limbs: &[u64]) -> [Vector; K] {
    let mut digits = [Vector([0; 8]); K];
    for (index, digit) in digits
        .iter_mut()
        .flat_map(|vector| &mut vector.0)
        .enumerate()
    {
        let (at, bits) = (index * DIGIT_BITS / 64, index * DIGIT_BITS % 64);
        let limb = |at: usize| u128::from(limbs.get(at).copied().unwrap_or(0));
        *digit = low((limb(at + 1) << 64 | limb(at)) >> bits) & MASK;
    }
    digits
}

/// The lowest `length` limbs.
fn limbs<const K: usize>(digits: &[Vector; K], length: usize) -> Vec<u64> {
    let mut limbs = vec![0; length + 1];
    for (index, digit) in digits.iter().flat_map(|vector| &vector.0).enumerate() {
        let (at, bits) = (index * DIGIT_BITS / 64, index * DIGIT_BITS % 64);
        let shifted = u128::from(*digit) << bits;
        if at < length {
            limbs[at] |= low(shifted);
            limbs[at + 1] |= low(shifted >> 64);
        }
    }
    limbs.truncate(length);
    limbs
}
