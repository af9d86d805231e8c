//! `a * G + b * Q`, where `G` is the generator: both numbers by signed digits whose doublings are shared.

use super::element::Element;
use alloy_primitives::{U256, uint};
use std::sync::LazyLock;

/// Affine coordinates of a point that is not at infinity.
pub(super) type Affine = [Element; 2];

/// Jacobian coordinates of a point that is not at infinity, where `z` is not zero.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: Element,
    y: Element,
    pub(super) z: Element,
}

/// Bits of a signed digit of the number that the key is multiplied by, and of that of the generator.
const WIDTH: usize = 5;
const LONG_WIDTH: usize = 10;
/// Digits of a number of 256 bits, with a carry.
const DIGITS: usize = 257;

const GENERATOR: [U256; 2] = [
    uint!(0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296_U256),
    uint!(0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5_U256),
];

/// The generator times 1, 3 and so on to 511.
static GENERATORS: LazyLock<Vec<Affine>> =
    LazyLock::new(|| odd_multiples(GENERATOR.map(Element::of), 1 << (LONG_WIDTH - 2)));

/// Computes the multiples of the generator; otherwise the first signature does.
pub(crate) fn prepare() {
    LazyLock::force(&GENERATORS);
}

/// `a * G + b * point`; `None` is the point at infinity.
pub(super) fn of(a: U256, b: U256, point: Affine) -> Option<Point> {
    let (of_generator, of_point) = (digits(a, LONG_WIDTH), digits(b, WIDTH));
    let multiples = odd_multiples(point, 1 << (WIDTH - 2));
    let generators: &[Affine] = &GENERATORS;
    let mut sum: Option<Point> = None;
    for (a, b) in of_generator.iter().zip(&of_point).rev() {
        if let Some(sum) = &mut sum {
            sum.double();
        }
        for (digit, multiples) in [(*a, generators), (*b, &multiples[..])] {
            if digit == 0 {
                continue;
            }
            let [x, y] = multiples[usize::from(digit.unsigned_abs()) / 2];
            let y = if digit < 0 { y.opposite() } else { y };
            sum = Point::sum(sum, [x, y]);
        }
    }
    sum
}

impl Point {
    /// The order is odd, so no point is its own opposite. With `a = -3` the tangent's slope is
    /// `3 * (x - z^2) * (x + z^2)` by `2 * y`.
    #[inline(always)]
    fn double(&mut self) {
        let Self { x, y, z } = *self;
        let (zz, yy) = (z.square(), y.square());
        let product = (x - zz) * (x + zz);
        let slope = product.double() + product;
        let four_xyy = (x * yy).double().double();
        let eight_y4 = yy.double().square().double();
        self.z = (y * z).double();
        self.x = slope.square() - four_xyy.double();
        self.y = slope * (four_xyy - self.x) - eight_y4;
    }

    /// With a point of affine coordinates.
    #[inline(always)]
    fn sum(point: Option<Self>, [x, y]: Affine) -> Option<Self> {
        let Some(mut point) = point else {
            let z = Element::ONE;
            return Some(Self { x, y, z });
        };
        let zz = point.z.square();
        let h = x * zz - point.x;
        let r = y * zz * point.z - point.y;
        if h.is_zero() {
            point.double();
            return r.is_zero().then_some(point);
        }
        let hh = h.square();
        let (hhh, v) = (h * hh, point.x * hh);
        let x = r.square() - hhh - v.double();
        Some(Self {
            x,
            y: r * (v - x) - point.y * hhh,
            z: point.z * h,
        })
    }
}

/// Digits that are zero or odd and of `width` bits with their sign, with `width - 1` zeros after each nonzero one.
fn digits(number: U256, width: usize) -> [i16; DIGITS] {
    let limbs = number.as_limbs();
    let bits = |at: usize, count: usize| {
        let (limb, shift) = (at / 64, at % 64);
        let [low, high] = [limb, limb + 1].map(|at| limbs.get(at).copied().unwrap_or(0));
        let both = u128::from(low) | u128::from(high) << 64;
        u16::try_from(both >> shift & ((1 << count) - 1)).expect("at most 14 bits")
    };
    let mut digits = [0; DIGITS];
    let (mut at, mut carry) = (0, 0);
    while at < DIGITS {
        if bits(at, 1) == carry {
            at += 1;
            continue;
        }
        let digit = bits(at, width).wrapping_add(carry).cast_signed();
        let is_upper = digit >= 1 << (width - 1);
        digits[at] = if is_upper {
            digit - (1 << width)
        } else {
            digit
        };
        carry = u16::from(is_upper);
        at += width;
    }
    digits
}

/// A point, three times the point and so on, with one inverse for all of them.
///
/// Sums are the same on every curve with the same `x^3`, so they are computed on the one on which twice the
/// point is affine: where `z` is the last coordinate of twice the point, `(x, y)` becomes `(x * z^2, y * z^3)` there.
fn odd_multiples([x, y]: Affine, count: usize) -> Vec<Affine> {
    let z = Element::ONE;
    let mut twice = Point { x, y, z };
    twice.double();
    let square = twice.z.square();
    let mut last = Point {
        x: x * square,
        y: y * square * twice.z,
        z,
    };
    let mut multiples = vec![last];
    while multiples.len() < count {
        // The order is prime and large: none of them is the other or its opposite.
        last = Point::sum(Some(last), [twice.x, twice.y]).unwrap_or(last);
        multiples.push(last);
    }
    // Back on the first curve, and products of all last coordinates before each one.
    let mut product = z;
    let before: Vec<Element> = multiples
        .iter_mut()
        .map(|multiple| {
            let before = product;
            multiple.z = multiple.z * twice.z;
            product = product * multiple.z;
            before
        })
        .collect();
    let mut rest = product.inverse();
    let mut all = vec![[x, y]; count];
    for ((place, Point { x, y, z }), before) in all.iter_mut().zip(multiples).zip(before).rev() {
        let inverse = rest * before;
        rest = rest * z;
        let square = inverse.square();
        *place = [x * square, y * square * inverse];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;

    fn affine(point: Option<Point>) -> Option<[U256; 2]> {
        let Point { x, y, z } = point?;
        let inverse = z.inverse();
        let square = inverse.square();
        Some([x * square, y * square * inverse].map(Element::number))
    }

    #[test]
    fn digits_are_odd_and_spread_and_their_sum_is_the_number() {
        let random = |n: u64| U256::from_be_bytes(keccak256(n.to_be_bytes()).0) >> (n % 256);
        let edges = [
            U256::ZERO,
            U256::ONE,
            U256::MAX,
            U256::MAX << 128,
            U256::MAX >> 1,
        ];
        for number in (0..2_000).map(random).chain(edges) {
            for width in [2, WIDTH, LONG_WIDTH, 14] {
                let digits = digits(number, width);
                let sum = digits.iter().rev().fold(U256::ZERO, |sum, digit| {
                    let size = U256::from(digit.unsigned_abs());
                    let twice = sum.wrapping_add(sum);
                    match *digit < 0 {
                        true => twice.wrapping_sub(size),
                        false => twice.wrapping_add(size),
                    }
                });
                assert_eq!(sum, number);
                let places: Vec<usize> = (0..DIGITS).filter(|at| digits[*at] != 0).collect();
                assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= width));
                let fits =
                    |at: &usize| digits[*at] % 2 != 0 && digits[*at].abs() < 1 << (width - 1);
                assert!(places.iter().all(fits), "{number} {width}");
            }
        }
    }

    #[test]
    fn multiples_are_sums() {
        let generator = GENERATOR.map(Element::of);
        let multiples = odd_multiples(generator, 40);
        let mut twice = Point {
            x: generator[0],
            y: generator[1],
            z: Element::ONE,
        };
        twice.double();
        let mut sum = Some(twice);
        for multiple in multiples {
            // Two, and one more: three; then two more each time.
            let odd = Point::sum(sum, [generator[0], generator[1].opposite()]);
            assert_eq!(affine(odd), Some(multiple.map(Element::number)));
            for _ in 0..2 {
                sum = Point::sum(sum, generator);
            }
        }
    }

    #[test]
    fn equal_terms_are_doubled_and_opposite_ones_cancel() {
        let generator = GENERATOR.map(Element::of);
        let times = |a: u64, b: u64| affine(of(U256::from(a), U256::from(b), generator));
        for n in 0..40 {
            assert_eq!(times(n, 0), times(0, n));
            for m in 0..40 {
                assert_eq!(times(n, m), times(n + m, 0), "{n} {m}");
            }
        }
        assert_eq!(times(0, 0), None);
        let opposite = [generator[0], generator[1].opposite()];
        let number = U256::from_be_bytes(keccak256(b"number").0);
        assert!(of(number, number, opposite).is_none());
    }
}
