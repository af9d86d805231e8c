//! Odd moduli of one to eight limbs, all in registers or nearly so.

use super::limbs::remainder;
use super::{Ring, reduce_once};

/// An odd modulus of `N` limbs; numbers are in Montgomery form, times `2^(64 * N)`.
struct Odd<const N: usize> {
    modulus: [u64; N],
    /// `-1 / modulus` modulo `2^64`.
    inverse: u64,
}

/// As [`super::modulo_odd`], for a modulus of `N` limbs.
pub(super) fn power<const N: usize>(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Vec<u64> {
    let ring = Odd::<N> {
        modulus: array(modulus),
        inverse: negative_inverse(modulus[0]),
    };
    let base = array(&remainder(base, 64 * N, modulus));
    let mut number = super::power(&ring, &base, exponent);
    let mut one = [0; N];
    one[0] = 1;
    ring.multiply(&mut number, &one);
    reduce_once(&mut number, 0, modulus);
    number.to_vec()
}

fn array<const N: usize>(limbs: &[u64]) -> [u64; N] {
    std::array::from_fn(|at| limbs[at])
}

/// `-1 / limb` modulo `2^64`, of an odd limb.
pub(super) fn negative_inverse(limb: u64) -> u64 {
    // Correct modulo 2^5; each step doubles the bits.
    let mut inverse = limb.wrapping_mul(3) ^ 2;
    for _ in 0..4 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(limb.wrapping_mul(inverse)));
    }
    inverse.wrapping_neg()
}

impl<const N: usize> Odd<N> {
    fn has_room(&self) -> bool {
        self.modulus[N - 1] >> 62 == 0
    }

    /// `a * b / 2^(64 * N)`. Where the modulus leaves two bits free, factors and product are below its double.
    #[inline(always)]
    fn product_of_doubles(&self, a: &[u64; N], b: &[u64; N]) -> [u64; N] {
        let mut sum = [0; N];
        for b in b {
            let (low, mut carry) = a[0].carrying_mul_add(*b, sum[0], 0);
            let factor = low.wrapping_mul(self.inverse);
            let (_, mut other) = self.modulus[0].carrying_mul_add(factor, low, 0);
            for at in 1..N {
                let limb;
                (limb, carry) = a[at].carrying_mul_add(*b, sum[at], carry);
                (sum[at - 1], other) = self.modulus[at].carrying_mul_add(factor, limb, other);
            }
            sum[N - 1] = carry + other;
        }
        sum
    }

    /// The same for any modulus; factors and product are below it.
    #[inline(always)]
    fn product(&self, a: &[u64; N], b: &[u64; N]) -> [u64; N] {
        let (mut sum, mut top) = ([0; N], 0);
        for b in b {
            let mut carry = 0;
            for at in 0..N {
                (sum[at], carry) = a[at].carrying_mul_add(*b, sum[at], carry);
            }
            let (above, mut over) = carry.overflowing_add(top);
            let factor = sum[0].wrapping_mul(self.inverse);
            (_, carry) = self.modulus[0].carrying_mul_add(factor, sum[0], 0);
            for at in 1..N {
                (sum[at - 1], carry) = self.modulus[at].carrying_mul_add(factor, sum[at], carry);
            }
            let is_over;
            (sum[N - 1], is_over) = above.overflowing_add(carry);
            over |= is_over;
            top = u64::from(over);
        }
        reduce_once(&mut sum, top, &self.modulus);
        sum
    }
}

impl<const N: usize> Ring for Odd<N> {
    type Element = [u64; N];

    fn multiply(&self, a: &mut [u64; N], b: &[u64; N]) {
        *a = if self.has_room() {
            self.product_of_doubles(a, b)
        } else {
            self.product(a, b)
        };
    }

    fn square(&self, a: &mut [u64; N], times: usize) {
        let mut number = *a;
        if self.has_room() {
            for _ in 0..times {
                number = self.product_of_doubles(&number, &number);
            }
        } else {
            for _ in 0..times {
                number = self.product(&number, &number);
            }
        }
        *a = number;
    }
}
