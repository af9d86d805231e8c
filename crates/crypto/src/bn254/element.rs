//! Elements of the field of coordinates without branches, for chains of many products.
//!
//! As in arkworks a number stands for itself times `2^256`, but it may be up to twice the field's order: so products
//! need no comparison, and sums no guess of one.

use ark_bn254::Fq;
use ark_ff::{BigInt, MontConfig};
use std::ops::{Add, Mul, Sub};

type Limbs = [u64; 4];

const ORDER: Limbs = ark_bn254::FqConfig::MODULUS.0;
/// `-1 / order` modulo `2^64`.
const INVERSE: u64 = <ark_bn254::FqConfig as MontConfig<4>>::INV;
const TWICE: Limbs = doubled(ORDER);
/// One.
const ONE: Limbs = <ark_bn254::FqConfig as MontConfig<4>>::R.0;

const fn doubled(limbs: Limbs) -> Limbs {
    let [a, b, c, d] = limbs;
    [a << 1, b << 1 | a >> 63, c << 1 | b >> 63, d << 1 | c >> 63]
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Element(Limbs);

impl Element {
    pub(super) const ONE: Self = Self(ONE);

    pub(super) fn is_zero(self) -> bool {
        self.0 == [0; 4] || self.0 == ORDER
    }

    pub(super) fn square(self) -> Self {
        self * self
    }

    pub(super) fn double(self) -> Self {
        self + self
    }

    pub(super) fn opposite(self) -> Self {
        Self([0; 4]) - self
    }
}

impl From<Fq> for Element {
    fn from(element: Fq) -> Self {
        Self(element.0.0)
    }
}

impl From<Element> for Fq {
    fn from(element: Element) -> Self {
        let (less, is_below) = difference(element.0, ORDER);
        Fq::new_unchecked(BigInt(if is_below { element.0 } else { less }))
    }
}

impl Mul for Element {
    type Output = Self;

    /// Montgomery's product of two numbers below twice the order, which is below it again, as four times the order
    /// is below `2^256`.
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let mut sum = [0; 4];
        for b in other.0 {
            let (low, mut carry) = self.0[0].carrying_mul_add(b, sum[0], 0);
            let factor = low.wrapping_mul(INVERSE);
            let (_, mut other) = ORDER[0].carrying_mul_add(factor, low, 0);
            for at in 1..4 {
                let limb;
                (limb, carry) = self.0[at].carrying_mul_add(b, sum[at], carry);
                (sum[at - 1], other) = ORDER[at].carrying_mul_add(factor, limb, other);
            }
            sum[3] = carry + other;
        }
        Self(sum)
    }
}

impl Add for Element {
    type Output = Self;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let (mut sum, mut carry) = (self.0, false);
        for (limb, other) in sum.iter_mut().zip(other.0) {
            (*limb, carry) = limb.carrying_add(other, carry);
        }
        let (less, is_below) = difference(sum, TWICE);
        Self(select(is_below, sum, less))
    }
}

impl Sub for Element {
    type Output = Self;

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        let (mut difference, is_below) = difference(self.0, other.0);
        let addend = select(is_below, TWICE, [0; 4]);
        let mut carry = false;
        for (limb, addend) in difference.iter_mut().zip(addend) {
            (*limb, carry) = limb.carrying_add(addend, carry);
        }
        Self(difference)
    }
}

/// The first limbs if the condition holds, else the second, without a branch.
#[inline(always)]
fn select(condition: bool, first: Limbs, second: Limbs) -> Limbs {
    let mask = u64::from(condition).wrapping_neg();
    std::array::from_fn(|at| first[at] & mask | second[at] & !mask)
}

/// `a - b` modulo `2^256`, and whether `a` is below `b`.
#[inline(always)]
fn difference(a: Limbs, b: Limbs) -> (Limbs, bool) {
    let (mut difference, mut borrow) = (a, false);
    for (limb, b) in difference.iter_mut().zip(b) {
        (*limb, borrow) = limb.borrowing_sub(b, borrow);
    }
    (difference, borrow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ark_ff::{PrimeField, Zero};

    /// Also of the representatives above the order, which results may have.
    #[test]
    fn sums_differences_and_products_are_those_of_arkworks() {
        let element = |n: u64| match n {
            0 => Fq::zero(),
            1 => -Fq::from(1),
            2 => Fq::from(1),
            n => {
                Fq::from_be_bytes_mod_order(alloy_primitives::keccak256(n.to_be_bytes()).as_slice())
            }
        };
        let both = |fq: Fq| {
            let above = Element::from(fq).0;
            let (sum, _) = difference(above, ORDER.map(|limb| !limb));
            // Two's complement: minus (not order) is plus order and one.
            let (sum, _) = difference(sum, [1, 0, 0, 0]);
            [Element(above), Element(sum)]
        };
        for a in (0..60).map(element) {
            assert_eq!(both(a).map(Fq::from), [a, a]);
            assert_eq!(both(a).map(Element::is_zero), [a.is_zero(); 2]);
            for b in (0..60).map(element) {
                for (x, y) in both(a).into_iter().flat_map(|x| both(b).map(|y| (x, y))) {
                    assert_eq!(Fq::from(x + y), a + b);
                    assert_eq!(Fq::from(x - y), a - b);
                    assert_eq!(Fq::from(x * y), a * b);
                    // Results may be factors again.
                    assert_eq!(Fq::from((x - y) * (x + y)), (a - b) * (a + b));
                    assert_eq!(Fq::from(x.opposite().double().square()), (a + a) * (a + a));
                }
            }
        }
    }
}
