//! Sums and products modulo a number that comes again.
//!
//! Code that computes modulo a number mostly goes on with the same one. From the second product on its
//! inverse is kept, and the remainder takes two products where a division takes four steps or more that wait
//! for each other.

use crate::division::{Divisor, LastDivisor};
use crate::inverse::Long;
use crate::ops::arithmetic::carrying_add;
use crate::word::same;

type Limbs = [u64; 4];

/// The modulus that came last.
#[derive(Debug, Default)]
pub(crate) struct Modulus {
    divisor: LastDivisor,
    /// That of the last product, and its inverse.
    of_product: Limbs,
    inverse: Option<Long>,
}

impl Modulus {
    /// `a` and `b` modulo `n`; 0 modulo 0.
    #[inline(never)]
    pub(crate) fn sum(&mut self, a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let ([a, b, c, d], carry) = sum(a, b);
        self.divisor
            .remainder_of_sum(&[a, b, c, d, u64::from(carry)], n)
    }

    /// `a` times `b` modulo `n`; 0 modulo 0.
    #[inline(never)]
    pub(crate) fn product(&mut self, a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let product = product(a, b);
        if !same(&self.of_product, n) {
            self.of_product = *n;
            self.inverse = None;
            return Divisor::of(n).remainder_of_product(&product);
        }
        let inverse = self.inverse.get_or_insert_with(|| Long::of(n));
        inverse.remainder(&product, n)
    }
}

/// The product of 512 bits.
#[inline(always)]
fn product(a: &Limbs, b: &Limbs) -> [u64; 8] {
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
fn sum(a: &Limbs, b: &Limbs) -> (Limbs, bool) {
    let (mut sum, mut carry) = ([0; 4], false);
    for (limb, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        (*limb, carry) = carrying_add(*a, *b, carry);
    }
    (sum, carry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::arithmetic::{limbs, sub};
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
            a in limbs(), b in limbs(), n in limbs(), shift in 0..256_usize,
        ) {
            let mut last = Modulus::default();
            let n = (U256::from_limbs(n) >> shift).into_limbs();
            for _ in 0..2 {
                for a in factors(a, &n) {
                    for b in factors(b, &n) {
                        prop_assert_eq!(last.product(&a, &b, &n), expected(&a, &b, &n));
                    }
                }
            }
            prop_assert!(last.inverse.is_some());
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
    fn an_inverse_is_made_when_a_modulus_comes_a_second_time() {
        let mut last = Modulus::default();
        let (n, other) = ([5, 0, 0, 7], [6, 0, 0, 7]);
        let known = [n, n, n, other, n, n].map(|n| {
            last.product(&[3; 4], &[4; 4], &n);
            last.inverse.is_some()
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
