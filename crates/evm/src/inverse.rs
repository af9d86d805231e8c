//! Barrett division: the quotient by a repeated divisor as a product with its cached inverse.
//!
//! With inverse = 2^k / divisor, the quotient of a number is number * inverse / 2^k. Of that product only the
//! quotient's limbs, one limb of the fraction and one below it for carries are computed:
//!
//! ```text
//! number * inverse =  | quotient (4 limbs) | fraction (1) | carries (1) | not computed ...
//! ```
//!
//! What is not computed adds less than [`MAX_MISSING`] to the fraction's limb. So the quotient is right unless the
//! fraction is within that of overflowing; then it may be one too small, and the remainder decides (`corrected`). The
//! products don't depend on each other, and no operand is shifted or reduced first.
//!
//! Source: after Barrett, *Implementing the Rivest Shamir and Adleman public key encryption algorithm* (1986).

use crate::division::{Divisor, Size};
use crate::limbs::{Limbs, add, low_product, sub};

/// Bound of what an estimate's fraction is too small by: less than one for each limb of the inverse, and one or two for
/// its truncation.
const MAX_MISSING: u64 = 16;

/// The inverse of a divisor, for numbers of `X` limbs (of four limbs and one bit, if `X` is 4). `L` is `X + 2`.
#[derive(Debug)]
pub(crate) struct Inverse<const X: usize, const L: usize> {
    size: Size,
    /// (2^(64 (X + 1)) - 1) / divisor, rounded down: `L` limbs less those of the divisor.
    limbs: [u64; L],
}

/// For numbers of 257 bits.
pub(crate) type Inverse257 = Inverse<4, 6>;
/// For numbers of 512 bits.
pub(crate) type Inverse512 = Inverse<8, 10>;

impl<const X: usize, const L: usize> Inverse<X, L> {
    #[inline(never)]
    pub(crate) fn of(divisor: &Limbs) -> Self {
        let divisor = Divisor::of(divisor);
        Self {
            size: divisor.size(),
            limbs: divisor.of_all_ones(),
        }
    }
}

impl Inverse257 {
    /// The quotient of `number`; 0 if the divisor is.
    #[inline(always)]
    pub(crate) fn quotient(&self, number: &Limbs, divisor: &Limbs) -> Limbs {
        let (quotient, fraction) = self.estimate(number, 0);
        if is_settled(fraction) {
            return quotient;
        }
        corrected(&quotient, number, divisor).0
    }

    /// The remainder of `number + over * 2^256`; 0 if the divisor is.
    #[inline(always)]
    pub(crate) fn remainder(&self, number: &Limbs, over: u64, divisor: &Limbs) -> Limbs {
        if self.size == Size::None {
            return [0; 4];
        }
        let (quotient, fraction) = self.estimate(number, over);
        if is_settled(fraction) {
            return rest(&quotient, number, divisor);
        }
        corrected(&quotient, number, divisor).1
    }

    #[inline(always)]
    fn estimate(&self, number: &Limbs, over: u64) -> (Limbs, u64) {
        let limbs = &self.limbs;
        match self.size {
            Size::Four => estimate::<4, 2>(number, over, first(limbs)),
            Size::Three => estimate::<4, 3>(number, over, first(limbs)),
            Size::Two => estimate::<4, 4>(number, over, first(limbs)),
            Size::One => estimate::<4, 5>(number, over, first(limbs)),
            Size::None => ([0; 4], 0),
        }
    }
}

impl Inverse512 {
    /// What is left of `number`; 0 if the divisor is.
    #[inline(always)]
    pub(crate) fn remainder(&self, number: &[u64; 8], divisor: &Limbs) -> Limbs {
        let (quotient, fraction) = match self.size {
            Size::Four => estimate::<8, 6>(number, 0, first(&self.limbs)),
            Size::None => return [0; 4],
            _ => self.estimate_by_less(number),
        };
        let low = first(number);
        if is_settled(fraction) {
            return rest(&quotient, low, divisor);
        }
        corrected(&quotient, low, divisor).1
    }

    /// The estimate for a divisor of three limbs or fewer.
    #[inline(never)]
    fn estimate_by_less(&self, number: &[u64; 8]) -> (Limbs, u64) {
        match self.size {
            Size::Three => estimate::<8, 7>(number, 0, first(&self.limbs)),
            _ => estimate::<8, 9>(number, 0, first(&self.limbs)),
        }
    }
}

#[inline(always)]
fn first<const N: usize, const M: usize>(limbs: &[u64; N]) -> &[u64; M] {
    limbs
        .first_chunk()
        .expect("an inverse has more limbs than a quotient needs")
}

/// The lowest four limbs of the quotient of a number with `over` above it, and the limb of the fraction; together too
/// small by less than [`MAX_MISSING`] units of the fraction.
#[inline(always)]
fn estimate<const X: usize, const M: usize>(
    number: &[u64; X],
    over: u64,
    inverse: &[u64; M],
) -> (Limbs, u64) {
    // The first limb is the one below the fraction.
    let mut sum = [0; 6];
    macro_rules! rows {
        ($($row:literal)*) => {$(
            if $row < X {
                add_row::<X, M>(&mut sum, $row, number[$row], inverse);
            }
        )*};
    }
    rows!(0 1 2 3 4 5 6 7);
    add_row::<X, M>(&mut sum, X, over, inverse);
    let [_, fraction, a, b, c, d] = sum;
    ([a, b, c, d], fraction)
}

/// Adds the product of the number's limb at `row` with the inverse, cut to the limbs of the sum.
#[inline(always)]
fn add_row<const X: usize, const M: usize>(
    sum: &mut [u64; 6],
    row: usize,
    limb: u64,
    inverse: &[u64; M],
) {
    let from = (X - 1).saturating_sub(row);
    let to = M.min(X + 5 - row);
    if from >= to {
        return;
    }
    let at = row + from - (X - 1);
    let mut carry = 0;
    for (sum, part) in sum[at..].iter_mut().zip(&inverse[from..to]) {
        (*sum, carry) = limb.carrying_mul_add(*part, *sum, carry);
    }
    // No earlier row has reached this limb.
    if let Some(next) = sum.get_mut(at + to - from) {
        *next = carry;
    }
}

/// Whether what was not computed can't change the quotient.
#[inline(always)]
const fn is_settled(fraction: u64) -> bool {
    fraction < u64::MAX - MAX_MISSING
}

/// The remainder of a number whose lowest limbs are `low`.
#[inline(always)]
fn rest(quotient: &Limbs, low: &Limbs, divisor: &Limbs) -> Limbs {
    sub(low, &low_product(quotient, divisor)).0
}

/// Quotient and remainder if the fraction is close to one. With a quotient greater by one, the remainder is within
/// 2^200 of zero: if it is negative, the estimate was right.
#[cold]
#[inline(never)]
fn corrected(quotient: &Limbs, low: &Limbs, divisor: &Limbs) -> (Limbs, Limbs) {
    let rest = rest(quotient, low, divisor);
    let less = sub(&rest, divisor).0;
    if less[3] >> 63 == 1 {
        return (*quotient, rest);
    }
    let more = add(quotient, &[1, 0, 0, 0]);
    (more, less)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs::testkit::limbs;
    use niwaki_primitives::{U256, U512};
    use proptest::prelude::*;

    fn long(limbs: &[u64]) -> U512 {
        U512::from_limbs_slice(limbs)
    }

    fn short(number: U512) -> Limbs {
        number.to::<U256>().into_limbs()
    }

    /// A divisor of `bits` bits, not zero.
    fn cut(divisor: Limbs, bits: usize) -> Limbs {
        let cut = U256::from_limbs(divisor) >> (256 - bits);
        (cut | U256::ONE << (bits - 1)).into_limbs()
    }

    fn check_short(inverse: &Inverse257, number: U512, divisor: &Limbs) {
        let limbs = number.as_limbs();
        let (low, over) = ([limbs[0], limbs[1], limbs[2], limbs[3]], limbs[4]);
        let (expected, rest) = number.div_rem(long(divisor));
        assert_eq!(
            inverse.remainder(&low, over, divisor),
            short(rest),
            "{number} modulo {divisor:?}"
        );
        if over == 0 {
            assert_eq!(
                inverse.quotient(&low, divisor),
                short(expected),
                "{number} by {divisor:?}"
            );
        }
    }

    fn check_long(inverse: &Inverse512, number: U512, divisor: &Limbs) {
        assert_eq!(
            inverse.remainder(number.as_limbs(), divisor),
            short(number % long(divisor)),
            "{number} modulo {divisor:?}"
        );
    }

    /// Numbers near the greatest multiple of the divisor below 2^`bits`, and near `factor` times the divisor: there the
    /// fraction is close to one or to zero.
    fn edges(divisor: &Limbs, factor: U512, bits: usize) -> Vec<U512> {
        let most = U512::MAX >> (512 - bits);
        let divisor = long(divisor);
        let multiples = [
            U512::ZERO,
            divisor,
            most - most % divisor,
            (factor & most) / divisor * divisor,
        ];
        // Distances below and above the error of the fraction.
        let off = [
            U512::ZERO,
            U512::ONE,
            U512::from(2),
            (divisor >> 64) * U512::from(15),
            (divisor >> 64) * U512::from(17),
            divisor >> 60,
        ];
        let near = multiples.into_iter().flat_map(|multiple| {
            off.into_iter()
                .flat_map(move |off| [multiple.wrapping_add(off), multiple.wrapping_sub(off)])
        });
        near.chain([most, factor & most])
            .filter(|near| *near <= most)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn division_by_inverses_agrees_with_big_integers(
            divisor in limbs(), low in limbs(), high in limbs(), bits in 1..=256_usize,
        ) {
            let divisor = cut(divisor, bits);
            let factor = long(&[low, high].concat());
            let (of_short, of_long) = (Inverse257::of(&divisor), Inverse512::of(&divisor));
            for number in edges(&divisor, factor, 257) {
                check_short(&of_short, number, &divisor);
            }
            for number in edges(&divisor, factor, 512) {
                check_long(&of_long, number, &divisor);
            }
        }
    }

    /// Powers of two of every length, and one more and less.
    #[test]
    fn division_by_powers_of_two_and_neighbours_agrees_with_big_integers() {
        for bits in 1..=256_usize {
            let power = U256::ONE << (bits - 1);
            let around = [power, power + U256::ONE, power.saturating_sub(U256::ONE)];
            for divisor in around.into_iter().filter(|divisor| !divisor.is_zero()) {
                let divisor = divisor.into_limbs();
                let (of_short, of_long) = (Inverse257::of(&divisor), Inverse512::of(&divisor));
                for factor in [U512::MAX / U512::from(3), U512::MAX >> 1] {
                    for number in edges(&divisor, factor, 257) {
                        check_short(&of_short, number, &divisor);
                    }
                    for number in edges(&divisor, factor, 512) {
                        check_long(&of_long, number, &divisor);
                    }
                }
            }
        }
    }

    /// Both sides of the correction: the fraction is close to one, and the estimate is right, or one too small.
    #[test]
    fn fraction_close_to_one_occurs_with_right_and_too_small_estimates() {
        let divisor = [3, 5, 7, 9 << 60];
        let inverse = Inverse512::of(&divisor);
        let sides: Vec<bool> = (1..200_u64)
            .flat_map(|factor| [0, 1].map(|off| (factor, off)))
            .filter_map(|(factor, off)| {
                let quotient = U512::MAX / long(&divisor) / U512::from(factor);
                let number = quotient * long(&divisor) - U512::from(off);
                let (estimate, fraction) =
                    estimate::<8, 6>(number.as_limbs(), 0, first(&inverse.limbs));
                let less = short((number / long(&divisor)) & U512::from(U256::MAX));
                (!is_settled(fraction)).then_some(estimate == less)
            })
            .collect();
        assert!(sides.contains(&true) && sides.contains(&false), "{sides:?}");
    }

    #[test]
    fn quotient_and_remainder_by_0_are_0() {
        let (short, long) = (Inverse257::of(&[0; 4]), Inverse512::of(&[0; 4]));
        let most = [u64::MAX; 4];
        assert_eq!(short.quotient(&most, &[0; 4]), [0; 4]);
        assert_eq!(short.remainder(&most, 1, &[0; 4]), [0; 4]);
        assert_eq!(long.remainder(&[u64::MAX; 8], &[0; 4]), [0; 4]);
    }
}
