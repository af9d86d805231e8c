//! Arithmetic on 256-bit numbers as four 64-bit limbs: what the opcode bodies and the division code build on.

/// A number of 256 bits, its lowest 64 bits first.
pub(crate) type Limbs = [u64; 4];

/// The sum modulo 2^256.
#[inline(always)]
pub(crate) fn add(a: &Limbs, b: &Limbs) -> Limbs {
    let (r0, c0) = a[0].overflowing_add(b[0]);
    let (r1, c1) = carrying_add(a[1], b[1], c0);
    let (r2, c2) = carrying_add(a[2], b[2], c1);
    let r3 = a[3].wrapping_add(b[3]).wrapping_add(u64::from(c2));
    [r0, r1, r2, r3]
}

/// The difference, and whether it borrowed, that is, whether `a < b`.
#[inline(always)]
pub(crate) fn sub(a: &Limbs, b: &Limbs) -> (Limbs, bool) {
    let (r0, c0) = a[0].overflowing_sub(b[0]);
    let (r1, c1) = borrowing_sub(a[1], b[1], c0);
    let (r2, c2) = borrowing_sub(a[2], b[2], c1);
    let (r3, c3) = borrowing_sub(a[3], b[3], c2);
    ([r0, r1, r2, r3], c3)
}

/// The sum of two limbs and a carry, and the carry out of it.
#[inline(always)]
pub(crate) fn carrying_add(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(u64::from(carry));
    (sum, first | second)
}

#[inline(always)]
fn borrowing_sub(a: u64, b: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(u64::from(borrow));
    (difference, first | second)
}

/// The low half of a product.
#[inline(always)]
pub(crate) fn low_product(a: &Limbs, b: &Limbs) -> Limbs {
    let mut low = [0; 4];
    for (at, factor) in a.iter().enumerate() {
        let mut carry = 0;
        for (other, limb) in b.iter().zip(&mut low[at..]) {
            (*limb, carry) = factor.carrying_mul_add(*other, *limb, carry);
        }
    }
    low
}

/// The product of 512 bits.
#[inline(always)]
pub(crate) fn product(a: &Limbs, b: &Limbs) -> [u64; 8] {
    let mut limbs = [0; 8];
    for (at, factor) in a.iter().enumerate() {
        let mut carry = 0;
        for (other, limb) in b.iter().zip(&mut limbs[at..]) {
            (*limb, carry) = factor.carrying_mul_add(*other, *limb, carry);
        }
        limbs[at + 4] = carry;
    }
    limbs
}

/// A sum, and whether there is one bit more.
#[inline(always)]
pub(crate) fn sum(a: &Limbs, b: &Limbs) -> (Limbs, bool) {
    let (mut sum, mut carry) = ([0; 4], false);
    for (limb, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        (*limb, carry) = carrying_add(*a, *b, carry);
    }
    (sum, carry)
}

/// Whether two numbers are equal. A comparison of 32-byte blocks would have to wait for limbs that were just stored
/// one by one (no store forwarding).
#[inline(always)]
pub(crate) const fn is_same(a: &[u64; 4], b: &[u64; 4]) -> bool {
    (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) == 0
}

#[cfg(test)]
pub(crate) mod testkit {
    use super::Limbs;
    use proptest::prelude::*;

    /// Numbers, many of them with limbs at an end of their range.
    pub(crate) fn limbs() -> impl Strategy<Value = Limbs> {
        let limb = prop_oneof![
            Just(0),
            Just(1),
            Just(u64::MAX),
            Just(1 << 63),
            any::<u64>()
        ];
        prop::array::uniform4(limb)
    }
}
