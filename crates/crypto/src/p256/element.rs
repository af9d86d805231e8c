//! Elements of P-256's field of coordinates.
//!
//! A number stands for itself times `2^256`, as Montgomery's products have it. The prime is
//! `2^256 - 2^224 + 2^192 + 2^96 - 1`: it is -1 modulo `2^64`, so the factor of each step of a reduction is the lowest
//! limb itself, and of its products with the four limbs of the prime only one is a multiplication.

use alloy_primitives::{U256, uint};
use std::ops::{Add, Mul, Sub};

type Limbs = [u64; 4];

/// The field's order.
pub(super) const FIELD: U256 =
    uint!(0xffffffff00000001000000000000000000000000ffffffffffffffffffffffff_U256);
const ORDER: Limbs = FIELD.into_limbs();
/// `2^512` modulo the order.
const SQUARE: Limbs =
    uint!(0x00000004fffffffdfffffffffffffffefffffffbffffffff0000000000000003_U256).into_limbs();
/// `2^256` modulo the order.
const ONE: Limbs =
    uint!(0x00000000fffffffeffffffffffffffffffffffff000000000000000000000001_U256).into_limbs();

/// A field element, below the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element(Limbs);

impl Element {
    pub(super) const ZERO: Self = Self([0; 4]);
    pub(super) const ONE: Self = Self(ONE);

    /// The element of a number below the order.
    pub(super) fn of(number: U256) -> Self {
        Self(number.into_limbs()) * Self(SQUARE)
    }

    pub(super) fn number(self) -> U256 {
        U256::from_limbs((self * Self([1, 0, 0, 0])).0)
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == [0; 4]
    }

    #[inline(always)]
    pub(super) fn double(self) -> Self {
        self + self
    }

    #[inline(always)]
    pub(super) fn opposite(self) -> Self {
        Self::ZERO - self
    }

    /// The inverse; zero for zero.
    pub(super) fn inverse(self) -> Self {
        Self::of(self.number().inv_mod(FIELD).unwrap_or_default())
    }

    /// Ten products of limbs instead of sixteen.
    #[inline(always)]
    pub(super) fn square(self) -> Self {
        let [a, b, c, d] = self.0;
        // The products that occur twice, from limb 1 on.
        let (s1, carry) = a.carrying_mul(b, 0);
        let (s2, carry) = a.carrying_mul(c, carry);
        let (s3, s4) = a.carrying_mul(d, carry);
        let (s3, carry) = b.carrying_mul_add(c, s3, 0);
        let (s4, s5) = b.carrying_mul_add(d, s4, carry);
        let (s5, s6) = c.carrying_mul_add(d, s5, 0);
        let twice = [
            s1 << 1,
            s2 << 1 | s1 >> 63,
            s3 << 1 | s2 >> 63,
            s4 << 1 | s3 >> 63,
            s5 << 1 | s4 >> 63,
            s6 << 1 | s5 >> 63,
            s6 >> 63,
        ];
        let (t0, high) = a.carrying_mul(a, 0);
        let (t1, carry) = twice[0].carrying_add(high, false);
        let (low, high) = b.carrying_mul(b, 0);
        let (t2, carry) = twice[1].carrying_add(low, carry);
        let (t3, carry) = twice[2].carrying_add(high, carry);
        let (low, high) = c.carrying_mul(c, 0);
        let (t4, carry) = twice[3].carrying_add(low, carry);
        let (t5, carry) = twice[4].carrying_add(high, carry);
        let (low, high) = d.carrying_mul(d, 0);
        let (t6, carry) = twice[5].carrying_add(low, carry);
        let (t7, _) = twice[6].carrying_add(high, carry);
        let mut low = [t0, t1, t2, t3];
        for _ in 0..4 {
            let (rest, high) = step(low);
            low = [rest[0], rest[1], rest[2], high];
        }
        let (sum, is_above) = add(low, [t4, t5, t6, t7]);
        Self(reduced(sum, is_above))
    }
}

impl Mul for Element {
    type Output = Self;

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let (mut sum, mut above) = ([0; 4], false);
        for b in other.0 {
            let (t0, carry) = self.0[0].carrying_mul_add(b, sum[0], 0);
            let (t1, carry) = self.0[1].carrying_mul_add(b, sum[1], carry);
            let (t2, carry) = self.0[2].carrying_mul_add(b, sum[2], carry);
            let (t3, t4) = self.0[3].carrying_mul_add(b, sum[3], carry);
            let ([u0, u1, u2], high) = step([t0, t1, t2, t3]);
            // Both factors are below the order, so the sum is below twice the order.
            let (t4, over) = t4.carrying_add(high, above);
            sum = [u0, u1, u2, t4];
            above = over;
        }
        Self(reduced(sum, above))
    }
}

/// One step of a reduction: adds a multiple of the order that makes the lowest limb zero and drops that limb. Returns
/// three limbs and what is added to the fourth.
#[inline(always)]
fn step([t0, t1, t2, t3]: Limbs) -> ([u64; 3], u64) {
    // The -1 in `t0 * (2^96 - 1)` cancels the limb.
    let (t1, carry) = t1.carrying_add(t0 << 32, false);
    let (t2, carry) = t2.carrying_add(t0 >> 32, carry);
    let (t3, high) = t0.carrying_mul_add(ORDER[3], t3, u64::from(carry));
    ([t1, t2, t3], high)
}

impl Add for Element {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let (sum, is_above) = add(self.0, other.0);
        Self(reduced(sum, is_above))
    }
}

impl Sub for Element {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        let (difference, is_below) = less(self.0, other.0);
        let mask = u64::from(is_below).wrapping_neg();
        let (difference, _) = add(difference, ORDER.map(|limb| limb & mask));
        Self(difference)
    }
}

/// A number below twice the order, with its bit 256, less the order if it is not below it.
#[inline(always)]
fn reduced(number: Limbs, is_above: bool) -> Limbs {
    let (less, is_below) = less(number, ORDER);
    let mask = u64::from(is_below & !is_above).wrapping_neg();
    std::array::from_fn(|at| number[at] & mask | less[at] & !mask)
}

#[inline(always)]
fn add(a: Limbs, b: Limbs) -> (Limbs, bool) {
    let (mut sum, mut carry) = (a, false);
    for (limb, b) in sum.iter_mut().zip(b) {
        (*limb, carry) = limb.carrying_add(b, carry);
    }
    (sum, carry)
}

/// `a - b` modulo `2^256`, and whether `a` is below `b`.
#[inline(always)]
fn less(a: Limbs, b: Limbs) -> (Limbs, bool) {
    let (mut difference, mut borrow) = (a, false);
    for (limb, b) in difference.iter_mut().zip(b) {
        (*limb, borrow) = limb.borrowing_sub(b, borrow);
    }
    (difference, borrow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;

    /// At the edges, near limbs of ones and zeros, and random ones.
    fn numbers() -> Vec<U256> {
        let mut numbers: Vec<U256> = (0..4).map(U256::from).collect();
        numbers.extend((1..4).map(|n| FIELD - U256::from(n)));
        for bits in [32, 63, 64, 95, 96, 97, 128, 192, 223, 224, 255] {
            let power = U256::from(1) << bits;
            numbers.extend([power - U256::from(1), power, FIELD - power]);
        }
        let random = |n: u64| U256::from_be_bytes(keccak256(n.to_be_bytes()).0) % FIELD;
        numbers.extend((0..60).map(random));
        numbers
    }

    #[test]
    fn sums_differences_products_and_squares_are_those_of_numbers() {
        for a in numbers() {
            let x = Element::of(a);
            assert_eq!(x.number(), a);
            assert_eq!(x.square().number(), a.mul_mod(a, FIELD));
            assert_eq!(x.double().number(), a.add_mod(a, FIELD));
            assert_eq!((x + x.opposite()), Element::ZERO);
            assert_eq!(x * x.inverse() == Element::ONE, !a.is_zero());
            for b in numbers() {
                let y = Element::of(b);
                assert_eq!((x * y).number(), a.mul_mod(b, FIELD));
                assert_eq!((x + y).number(), a.add_mod(b, FIELD));
                assert_eq!((x - y).number(), a.add_mod((FIELD - b) % FIELD, FIELD));
            }
        }
    }
}
