//! Sums and products modulo a number that comes again.
//!
//! Code that computes modulo a number mostly goes on with the same one. From the second product on its
//! reciprocal is kept, and the remainder takes two products of 256 bits where a division takes four steps
//! that wait for each other.
//!
//! Source: Moeller and Granlund, *Improved division by invariant integers* (2011), algorithm 4, with words of
//! 256 bits.

use crate::division::{Divisor, LastDivisor};
use crate::ops::arithmetic::{add, carrying_add, sub};
use crate::word::same;

type Limbs = [u64; 4];

/// The modulus that came last.
#[derive(Debug, Default)]
pub(crate) struct Modulus {
    divisor: LastDivisor,
    /// That of the last product, and what is known of it.
    of_product: Limbs,
    reciprocal: Option<Reciprocal>,
}

#[derive(Debug)]
struct Reciprocal {
    modulus: Divisor,
    /// With its highest bit set.
    divisor: Limbs,
    /// By so many bits it was shifted for that, fewer than 64.
    shift: u32,
    /// (2^512 - 1) / `divisor` - 2^256, rounded down.
    inverse: Limbs,
}

impl Modulus {
    /// `a` and `b` modulo `n`; 0 modulo 0.
    #[inline(never)]
    pub(crate) fn sum(&mut self, a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let ([a, b, c, d], carry) = sum(a, b, false);
        self.divisor
            .remainder_of_sum(&[a, b, c, d, u64::from(carry)], n)
    }

    /// `a` times `b` modulo `n`; 0 modulo 0.
    #[inline(never)]
    pub(crate) fn product(&mut self, a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let (low, high) = product(a, b);
        if !same(&self.of_product, n) {
            self.of_product = *n;
            self.reciprocal = None;
        } else if n[3] != 0 {
            let reciprocal = self.reciprocal.get_or_insert_with(|| Reciprocal::of(n));
            return reciprocal.remainder(&low, &high);
        }
        Divisor::of(n).remainder_of_product(&joined(&low, &high))
    }
}

#[inline(always)]
fn joined(low: &Limbs, high: &Limbs) -> [u64; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (*low, *high);
    [a, b, c, d, e, f, g, h]
}

impl Reciprocal {
    /// That of a modulus whose highest limb is not zero.
    #[inline(never)]
    fn of(modulus: &Limbs) -> Self {
        let shift = modulus[3].leading_zeros();
        let divisor = shifted_left(modulus, &[0; 4], shift).0;
        // 2^512 - 1 less 2^256 divisors.
        let dividend = joined(&[u64::MAX; 4], &divisor.map(|limb| !limb));
        Self {
            modulus: Divisor::of(modulus),
            divisor,
            shift,
            inverse: Divisor::of(&divisor).quotient_of_product(&dividend),
        }
    }

    /// The remainder of a number of 512 bits.
    #[inline(always)]
    fn remainder(&self, low: &Limbs, high: &Limbs) -> Limbs {
        let (low, mut high, over) = shifted_left(low, high, self.shift);
        if over > 0 || !sub(&high, &self.divisor).1 {
            // The quotient has more than 256 bits: neither factor was less than the modulus.
            high = self.modulus.without_excess(&high, over);
        }
        let (fraction, quotient) = product(&self.inverse, &high);
        let (fraction, carry) = sum(&fraction, &low, false);
        let (quotient, _) = sum(&quotient, &high, carry);
        // One more than the quotient at times, and then the remainder is less than zero.
        let quotient = add(&quotient, &[1, 0, 0, 0]);
        let mut remainder = sub(&low, &product(&quotient, &self.divisor).0).0;
        if sub(&fraction, &remainder).1 {
            remainder = add(&remainder, &self.divisor);
        }
        let (less, is_less) = sub(&remainder, &self.divisor);
        if !is_less {
            remainder = less;
        }
        shifted_right(&remainder, self.shift)
    }
}

/// The low and the high half of a product.
#[inline(always)]
fn product(a: &Limbs, b: &Limbs) -> (Limbs, Limbs) {
    let mut limbs = [0; 8];
    for (at, factor) in a.iter().enumerate() {
        let mut carry = 0;
        for (other, limb) in b.iter().zip(&mut limbs[at..]) {
            (*limb, carry) = factor.carrying_mul_add(*other, *limb, carry);
        }
        limbs[at + 4] = carry;
    }
    let [a, b, c, d, e, f, g, h] = limbs;
    ([a, b, c, d], [e, f, g, h])
}

/// A sum with a carry, and whether there is one more.
#[inline(always)]
fn sum(a: &Limbs, b: &Limbs, carry: bool) -> (Limbs, bool) {
    let (mut sum, mut carry) = ([0; 4], carry);
    for (limb, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        (*limb, carry) = carrying_add(*a, *b, carry);
    }
    (sum, carry)
}

/// Both halves shifted left by fewer than 64 bits, and what comes out at the top.
#[inline(always)]
fn shifted_left(low: &Limbs, high: &Limbs, shift: u32) -> (Limbs, Limbs, u64) {
    // In two steps, since 64 bits are too many for one.
    let join = |high: u64, low: u64| high << shift | low >> 1 >> (63 - shift);
    let [a, b, c, d] = *low;
    let [e, f, g, h] = *high;
    (
        [a << shift, join(b, a), join(c, b), join(d, c)],
        [join(e, d), join(f, e), join(g, f), join(h, g)],
        join(0, h),
    )
}

/// Shifted right by fewer than 64 bits.
#[inline(always)]
fn shifted_right(number: &Limbs, shift: u32) -> Limbs {
    let join = |high: u64, low: u64| low >> shift | high << 1 << (63 - shift);
    let [a, b, c, d] = *number;
    [join(b, a), join(c, b), join(d, c), d >> shift]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::arithmetic::limbs;
    use niwaki_primitives::U256;
    use proptest::prelude::*;

    fn expected(a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let int = U256::from_limbs;
        int(*a).mul_mod(int(*b), int(*n)).into_limbs()
    }

    /// `a` and what is less than `n`, at its very end too.
    fn factors(a: Limbs, n: &Limbs) -> [Limbs; 4] {
        let less = U256::from_limbs(a).checked_rem(U256::from_limbs(*n));
        let less = less.unwrap_or_default().into_limbs();
        let last = sub(n, &[1, 0, 0, 0]).0;
        [a, less, last, sub(n, &less).0]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_modulus_that_comes_again_gives_the_same(
            a in limbs(), b in limbs(), n in limbs(), shift in 0..64_u32,
        ) {
            let mut last = Modulus::default();
            let mut n = n;
            n[3] >>= shift;
            for _ in 0..2 {
                for a in factors(a, &n) {
                    for b in factors(b, &n) {
                        prop_assert_eq!(last.product(&a, &b, &n), expected(&a, &b, &n));
                    }
                }
            }
            prop_assert_eq!(last.reciprocal.is_some(), n[3] != 0);
        }

        #[test]
        fn moduli_that_take_turns_give_the_same(a in limbs(), moduli in prop::array::uniform2(limbs())) {
            let mut last = Modulus::default();
            for n in [0, 0, 1, 0, 1, 1, 0] {
                let n = &moduli[n];
                prop_assert_eq!(last.product(&a, &a, n), expected(&a, &a, n));
            }
        }
    }

    #[test]
    fn a_reciprocal_is_made_when_a_modulus_comes_a_second_time() {
        let mut last = Modulus::default();
        let (n, other) = ([5, 0, 0, 7], [6, 0, 0, 7]);
        let known = [n, n, n, other, n, n].map(|n| {
            last.product(&[3; 4], &[4; 4], &n);
            last.reciprocal.is_some()
        });
        assert_eq!(known, [false, true, true, false, false, true]);
    }

    #[test]
    fn modulo_nothing_is_nothing() {
        let mut last = Modulus::default();
        for n in [[0; 4], [1, 0, 0, 0], [0; 4]] {
            assert_eq!(last.product(&[u64::MAX; 4], &[u64::MAX; 4], &n), [0; 4]);
        }
    }
}
