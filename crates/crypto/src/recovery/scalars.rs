//! The scalars of a recovery: from the numbers of a signature to the digits of its factors.
//!
//! A public key is `u1 * G + u2 * R`. Each of both factors is split in two of half the length, along
//! the curve's endomorphism (Gallant, Lambert, Vanstone: Faster Point Multiplication on Elliptic
//! Curves with Efficient Endomorphisms, 2001), and those are made odd, so that all
//! their digits are odd too and no addition is skipped.

use alloy_primitives::{U256, U512, uint};
use k256::Scalar;
use k256::elliptic_curve::PrimeField;

/// Bits of a half, at most.
pub(super) const HALF_BITS: usize = 130;

/// Half of a factor: odd, with a sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Half {
    /// Below 2^130.
    pub(super) size: U256,
    pub(super) is_negative: bool,
}

impl Half {
    /// A number of 256 bits in two's complement.
    fn of(number: U256) -> Self {
        let is_negative = number.bit(255);
        let size = match is_negative {
            true => number.wrapping_neg(),
            false => number,
        };
        Self { size, is_negative }
    }

    /// The digit number `index` of `bits` bits: an odd number between -2^bits and 2^bits, as the place
    /// of its size among the odd numbers and its sign.
    pub(super) fn digit(&self, bits: usize, index: usize) -> (usize, bool) {
        let start = bits * index + 1;
        // As if a bit were set above all others: the first digit is positive.
        let mut digit = low_bits(&self.size, start, bits);
        if start + bits > HALF_BITS {
            digit |= 1 << (bits - 1);
        }
        let half = 1 << (bits - 1);
        match digit >= half {
            true => (digit - half, self.is_negative),
            false => (half - 1 - digit, !self.is_negative),
        }
    }
}

/// `bits` bits of `number`, at most 16, from bit `start` on.
fn low_bits(number: &U256, start: usize, bits: usize) -> usize {
    let limbs = number.as_limbs();
    let (limb, shift) = (start / 64, start % 64);
    let high = u128::from(limbs[limb + 1]) << 64;
    let both = (high | u128::from(limbs[limb])) >> shift;
    usize::try_from(both & ((1 << bits) - 1)).expect("a few bits")
}

/// Four halves: those of `u1`, then those of `u2`.
pub(super) type Halves = [Half; 4];

/// The order of the curve.
const N: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

// Two short vectors (a, b) with a + b * lambda = 0 modulo N: (A1, -B1) and (A2, A1).
const A1: U256 = uint!(0x3086d221a7d46bcde86c90e49284eb15_U256);
const B1: U256 = uint!(0xe4437ed6010e88286f547fa90abfe4c3_U256);
const A2: U256 = uint!(0x114ca50f7a8e2f3f657c1108d9d44cfd8_U256);
/// A1 and B1 by N, times 2^384.
const G1: U256 = uint!(0x3086d221a7d46bcde86c90e49284eb153daa8a1471e8ca7fe893209a45dbb031_U256);
const G2: U256 = uint!(0xe4437ed6010e88286f547fa90abfe4c4221208ac9df506c61571b4ae8ac47f71_U256);

/// Two odd halves with `first + second * lambda = factor` modulo the order.
pub(super) fn split(factor: U256) -> [Half; 2] {
    let rounded = |by: U256| -> U256 {
        let product: U512 = factor.widening_mul(by);
        let limbs = product.as_limbs();
        let up = limbs[5] >> 63;
        U256::from_limbs([limbs[6], limbs[7], 0, 0]).wrapping_add(U256::from(up))
    };
    let (c1, c2) = (rounded(G1), rounded(G2));
    let mut first = factor
        .wrapping_sub(c1.wrapping_mul(A1))
        .wrapping_sub(c2.wrapping_mul(A2));
    let mut second = c1.wrapping_mul(B1).wrapping_sub(c2.wrapping_mul(A1));
    // An even half becomes odd by adding or subtracting one of the vectors, towards zero where that matters.
    if !first.bit(0) {
        (first, second) = match first.bit(255) {
            true => (first.wrapping_add(A1), second.wrapping_sub(B1)),
            false => (first.wrapping_sub(A1), second.wrapping_add(B1)),
        };
    }
    if !second.bit(0) {
        (first, second) = match first.bit(255) {
            true => (first.wrapping_add(A2), second.wrapping_add(A1)),
            false => (first.wrapping_sub(A2), second.wrapping_sub(A1)),
        };
    }
    [Half::of(first), Half::of(second)]
}

/// A number below the order and not zero.
pub(super) fn scalar(number: &U256) -> Option<Scalar> {
    let is_one = !number.is_zero() && *number < N;
    let scalar = Scalar::from_repr(number.to_be_bytes::<32>().into());
    Option::from(scalar).filter(|_| is_one)
}

fn number(scalar: &Scalar) -> U256 {
    U256::from_be_bytes::<32>(scalar.to_bytes().into())
}

/// The inverse, or zero for zero.
fn inverse(of: &Scalar) -> Scalar {
    // Euclid's algorithm: the library's own inverse runs in constant time and takes several times as long.
    let quick = number(of).inv_mod(N).as_ref().and_then(scalar);
    let right = quick.filter(|inverse| inverse * of == Scalar::ONE);
    right.unwrap_or_else(|| of.invert().unwrap_or(Scalar::ZERO))
}

/// For each signature's `hash`, `r` and `s`: the halves of `-hash / r` and of `s / r`.
pub(super) fn factors(numbers: &[(U256, Scalar, Scalar)]) -> Vec<Halves> {
    // One inversion for all: the product of all before each, then back from the inverse of all.
    let mut product = Scalar::ONE;
    let before = numbers.iter().map(|(_, r, _)| {
        let before = product;
        product *= r;
        before
    });
    let before: Vec<Scalar> = before.collect();
    let mut inverse = inverse(&product);
    let mut halves = vec![Halves::default(); numbers.len()];
    for (((hash, r, s), before), halves) in numbers.iter().zip(before).zip(&mut halves).rev() {
        let of_r = inverse * before;
        inverse *= r;
        let hash = hash.checked_sub(N).unwrap_or(*hash);
        let hash = Scalar::from_repr(hash.to_be_bytes::<32>().into()).unwrap_or(Scalar::ZERO);
        let [a, b] = split(number(&-(hash * of_r)));
        let [c, d] = split(number(&(s * &of_r)));
        *halves = [a, b, c, d];
    }
    halves
}
