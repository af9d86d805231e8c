//! Multiples of a point of G1.
//!
//! `(x, y) -> (BETA * x, y)` is a multiplication by LAMBDA. So a number below the group's order is split into two of
//! at most 127 bits, `k = k1 + LAMBDA * k2`, whose signed digits are worked off together.

use super::element::Element;
use super::inverse;
use alloy_primitives::{U256, uint};
use ark_bn254::{G1Affine, g1};
use ark_ec::AffineRepr;
use ark_ec::scalar_mul::glv::GLVConfig;

uint! {
// A basis of the pairs `(a, b)` with `a + LAMBDA * b = 0`: (N11, -N12) and (N12, N22).
const N11: U256 = 0x6f4d8248eeb859fc8211bbeb7d4f1128_U256;
const N12: U256 = 0x89d3256894d213e3_U256;
const N22: U256 = 0x6f4d8248eeb859fd0be4e1541221250b_U256;
// N22 and N12 times 2^256, divided by the group's order.
const G1: U256 = 0x24ccef014a773d2d25398fd0300ff6565_U256;
const G2: U256 = 0x2d91d232ec7e0b3d7_U256;
}

/// Bits of a signed digit.
const WIDTH: usize = 5;
/// The odd multiples 1, 3 and so on to 15.
const MULTIPLES: usize = 1 << (WIDTH - 2);
/// Digits of a number of 127 bits, with a carry.
const DIGITS: usize = 128;

/// Jacobian coordinates of a point that is not at infinity, where `z` is not zero.
#[derive(Clone, Copy)]
struct Point {
    x: Element,
    y: Element,
    z: Element,
}

/// `point * scalar`, the scalar below the group's order.
pub(super) fn of(point: G1Affine, scalar: U256) -> G1Affine {
    if point.is_zero() {
        return point;
    }
    let ((first_negative, first), (second_negative, second)) = halves(scalar);
    let (first, second) = (
        digits(first_negative, first),
        digits(second_negative, second),
    );
    let multiples = odd_multiples([point.x.into(), point.y.into()]);
    let beta = Element::from(g1::Config::ENDO_COEFFS[0]);
    let images = multiples.map(|[x, y]| [x * beta, y]);
    let mut sum: Option<Point> = None;
    for (first, second) in first.iter().zip(&second).rev() {
        if let Some(sum) = &mut sum {
            sum.double();
        }
        for (digit, multiples) in [(first, &multiples), (second, &images)] {
            let [x, y] = multiples[usize::from(digit.unsigned_abs()) / 2];
            match digit.signum() {
                1 => sum = Point::sum(sum, [x, y]),
                -1 => sum = Point::sum(sum, [x, y.opposite()]),
                _ => {}
            }
        }
    }
    sum.map_or(G1Affine::zero(), Point::affine)
}

impl Point {
    /// No point of the group is its own opposite.
    #[inline]
    fn double(&mut self) {
        let (a, b) = (self.x.square(), self.y.square());
        let c = b.square();
        let d = (self.x * b).double().double();
        let e = a.double() + a;
        self.z = (self.y * self.z).double();
        self.x = e.square() - d.double();
        self.y = e * (d - self.x) - c.double().double().double();
    }

    /// With a point of affine coordinates.
    #[inline]
    fn sum(point: Option<Self>, [x, y]: [Element; 2]) -> Option<Self> {
        let z = Element::ONE;
        let Some(mut point) = point else {
            return Some(Self { x, y, z });
        };
        let square = point.z.square();
        let h = x * square - point.x;
        let r = y * square * point.z - point.y;
        if h.is_zero() {
            point.double();
            return r.is_zero().then_some(point);
        }
        let square = h.square();
        let (cube, v) = (h * square, point.x * square);
        let x = r.square() - cube - v.double();
        Some(Self {
            x,
            y: r * (v - x) - point.y * cube,
            z: point.z * h,
        })
    }

    fn affine(self) -> G1Affine {
        let inverse = Element::from(inverse(self.z.into()));
        let square = inverse.square();
        let (x, y) = (self.x * square, self.y * square * inverse);
        G1Affine::new_unchecked(x.into(), y.into())
    }
}

/// Two numbers by sign and size with `first + LAMBDA * second = scalar`. The quotients by which the basis vectors are
/// subtracted are rounded down; other quotients would be correct too, but give larger numbers.
fn halves(scalar: U256) -> ((bool, u128), (bool, u128)) {
    let quotient = |factor: U256| -> U256 {
        let product = scalar.widening_mul::<256, 4, 512, 8>(factor);
        U256::from_limbs_slice(&product.as_limbs()[4..])
    };
    let (b1, b2) = (quotient(G1), quotient(G2));
    let first = scalar.wrapping_sub(b1 * N11).wrapping_sub(b2 * N12);
    let second = (b1 * N12).wrapping_sub(b2 * N22);
    (signed(first), signed(second))
}

/// Whether a number in two's complement is negative, and its size.
fn signed(number: U256) -> (bool, u128) {
    let is_negative = number.bit(255);
    let size = if is_negative {
        number.wrapping_neg()
    } else {
        number
    };
    (is_negative, size.to::<u128>())
}

/// Digits that are zero or odd and between -15 and 15, with at least four zeros after each nonzero one.
fn digits(is_negative: bool, mut size: u128) -> [i8; DIGITS] {
    let mut digits = [0; DIGITS];
    for place in &mut digits {
        if size == 0 {
            break;
        }
        if size % 2 == 1 {
            let low = (size & ((1 << WIDTH) - 1)).to_le_bytes()[0].cast_signed();
            let digit = if low < 1 << (WIDTH - 1) {
                low
            } else {
                low - (1 << WIDTH)
            };
            size = size.wrapping_sub_signed(i128::from(digit));
            *place = if is_negative { -digit } else { digit };
        }
        size >>= 1;
    }
    digits
}

/// A point of affine coordinates, three times the point and so on, with one inverse for all of them.
///
/// The formulas hold on every curve `y^2 = x^3 + b`, so the multiples are computed on the one on which twice the
/// point is affine: where `z` is the last coordinate of twice the point, `(x, y)` becomes `(x * z^2, y * z^3)` there.
fn odd_multiples([x, y]: [Element; 2]) -> [[Element; 2]; MULTIPLES] {
    let z = Element::ONE;
    let mut twice = Point { x, y, z };
    twice.double();
    let square = twice.z.square();
    let start = Point {
        x: x * square,
        y: y * square * twice.z,
        z,
    };
    let mut multiples = [start; MULTIPLES];
    for at in 1..MULTIPLES {
        // The group's order is prime and large: none of them is the other or its opposite.
        let next = Point::sum(Some(multiples[at - 1]), [twice.x, twice.y]);
        multiples[at] = next.unwrap_or(start);
    }
    // Back on the first curve, and products of all last coordinates before each one.
    let (mut before, mut product) = ([z; MULTIPLES], z);
    for (before, multiple) in before.iter_mut().zip(&mut multiples) {
        *before = product;
        multiple.z = multiple.z * twice.z;
        product = product * multiple.z;
    }
    let mut rest = Element::from(inverse(product.into()));
    let mut all = [[x, y]; MULTIPLES];
    for at in (0..MULTIPLES).rev() {
        let Point { x, y, z } = multiples[at];
        let inverse = rest * before[at];
        rest = rest * z;
        let square = inverse.square();
        all[at] = [x * square, y * square * inverse];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bn254::GROUP;
    use alloy_primitives::keccak256;

    const LAMBDA: U256 =
        uint!(21888242871839275217838484774961031246154997185409878258781734729429964517155_U256);

    #[test]
    fn both_halves_have_at_most_127_bits_and_sum_to_the_number() {
        let random = |n: u64| U256::from_be_bytes(keccak256(n.to_be_bytes()).0) % GROUP;
        let edges = [
            U256::ZERO,
            U256::ONE,
            GROUP - U256::ONE,
            LAMBDA,
            GROUP - LAMBDA,
        ];
        for scalar in (0..10_000).map(random).chain(edges) {
            let (first, second) = halves(scalar);
            let modular = |(is_negative, size): (bool, u128)| {
                assert!(size >> 127 == 0, "{scalar}");
                let size = U256::from(size);
                if is_negative { GROUP - size } else { size }
            };
            let sum = modular(first).add_mod(modular(second).mul_mod(LAMBDA, GROUP), GROUP);
            assert_eq!(sum, scalar);
        }
    }

    #[test]
    fn digits_are_odd_and_spread_and_their_sum_is_the_number() {
        for n in 0..1_000_u64 {
            let size = U256::from_be_bytes(keccak256(n.to_be_bytes()).0).wrapping_to::<u128>() >> 1;
            let size = if n == 0 { u128::MAX >> 1 } else { size };
            let digits = digits(n % 2 == 1, size);
            let sum = digits.iter().rev().fold(U256::ZERO, |sum, digit| {
                let digit = i64::from(*digit);
                let digit = U256::from(digit.unsigned_abs());
                let doubled = sum.wrapping_add(sum);
                doubled.wrapping_add(digit)
            });
            // Only the sizes were summed up; with the signs it is the number itself.
            let signed_sum = digits.iter().rev().fold(U256::ZERO, |sum, digit| {
                let doubled = sum.wrapping_add(sum);
                let size = U256::from(digit.unsigned_abs());
                if *digit < 0 {
                    doubled.wrapping_sub(size)
                } else {
                    doubled.wrapping_add(size)
                }
            });
            assert!(sum >= U256::from(size));
            assert_eq!(signed(signed_sum), (n % 2 == 1, size));
            let places: Vec<usize> = (0..DIGITS).filter(|at| digits[*at] != 0).collect();
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= WIDTH));
        }
    }
}
