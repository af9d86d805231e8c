//! ADDMOD and MULMOD: sums and products modulo a number, with a cached inverse.
//!
//! Code that uses a modulus (of a curve, say) mostly uses the same one again. From the second product on its inverse is
//! cached; the remainder then takes two products, where a division takes four or more steps that depend on each other.

use crate::division::{Divisor, DivisorCache};
use crate::inverse::Inverse512;
use crate::limbs::{Limbs, is_same, product, sum};

/// The last modulus, and its inverse.
#[derive(Debug, Default)]
pub(crate) struct ModulusCache {
    divisor: DivisorCache,
    /// Modulus of the last product.
    of_product: Limbs,
    inverse: Option<Inverse512>,
}

impl ModulusCache {
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
        if !is_same(&self.of_product, n) {
            self.of_product = *n;
            self.inverse = None;
            return Divisor::of(n).remainder_of_product(&product);
        }
        let inverse = self.inverse.get_or_insert_with(|| Inverse512::of(n));
        inverse.remainder(&product, n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs::{sub, testkit::limbs};
    use niwaki_primitives::U256;
    use proptest::prelude::*;

    fn expected(a: &Limbs, b: &Limbs, n: &Limbs) -> Limbs {
        let int = U256::from_limbs;
        int(*a).mul_mod(int(*b), int(*n)).into_limbs()
    }

    /// `a`, and numbers below `n` including n - 1.
    fn factors(a: Limbs, n: &Limbs) -> [Limbs; 4] {
        let less = U256::from_limbs(a).checked_rem(U256::from_limbs(*n));
        let less = less.unwrap_or_default().into_limbs();
        let last = sub(n, &[1, 0, 0, 0]).0;
        [a, less, last, sub(n, &less).0]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn products_by_cached_inverse_equal_mul_mod(
            a in limbs(), b in limbs(), n in limbs(), shift in 0..256_usize,
        ) {
            let mut last = ModulusCache::default();
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
        fn products_by_alternating_moduli_equal_mul_mod(a in limbs(), moduli in prop::array::uniform2(limbs())) {
            let mut last = ModulusCache::default();
            for n in [0, 0, 1, 0, 1, 1, 0] {
                let n = &moduli[n];
                prop_assert_eq!(last.product(&a, &a, n), expected(&a, &a, n));
            }
        }
    }

    #[test]
    fn inverse_is_cached_at_second_use_of_a_modulus() {
        let mut last = ModulusCache::default();
        let (n, other) = ([5, 0, 0, 7], [6, 0, 0, 7]);
        let known = [n, n, n, other, n, n].map(|n| {
            last.product(&[3; 4], &[4; 4], &n);
            last.inverse.is_some()
        });
        assert_eq!(known, [false, true, true, false, false, true]);
    }

    #[test]
    fn product_modulo_0_is_0() {
        let mut last = ModulusCache::default();
        for n in [[0; 4], [1, 0, 0, 0], [0; 4]] {
            assert_eq!(last.product(&[u64::MAX; 4], &[u64::MAX; 4], &n), [0; 4]);
        }
    }
}
