//! Quotients by a number that comes again, as products with its inverse.
//!
//! A quotient is the product of a number with a power of two over the divisor. Of that product only the limbs
//! of the quotient are computed, one limb of what is behind its point, and one more for carries. What is left
//! out is less than [`MOST_MISSING`] of that fraction's units, so the quotient is right unless the fraction is
//! all but one; then one look at the remainder tells. Nothing waits for anything but the products, and no
//! operand is shifted or reduced before.
//!
//! Source: after Barrett, *Implementing the Rivest Shamir and Adleman public key encryption algorithm* (1986).

use crate::division::{Divisor, Size};
use crate::ops::arithmetic::sub;

type Limbs = [u64; 4];

/// Units of the fraction's limb that an estimate is too small by, at most: each of the limbs of the inverse
/// brings less than one for what is below it, its end one or two.
const MOST_MISSING: u64 = 16;

/// What makes divisions by a number products: of numbers of `X` limbs, and a bit if they are four.
/// `L` is two limbs more than `X`.
#[derive(Debug)]
pub(crate) struct Inverse<const X: usize, const L: usize> {
    size: Size,
    /// (2^(64 (X + 1)) - 1) / divisor, rounded down: as many limbs as the divisor has fewer than `L`.
    limbs: [u64; L],
}

/// For numbers of 257 bits.
pub(crate) type Short = Inverse<4, 6>;
/// For numbers of 512 bits.
pub(crate) type Long = Inverse<8, 10>;

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

impl Short {
    /// `number` divided by the divisor; 0 if that is.
    #[inline(always)]
    pub(crate) fn quotient(&self, number: &Limbs, divisor: &Limbs) -> Limbs {
        let (quotient, fraction) = self.estimate(number, 0);
        if is_settled(fraction) {
            return quotient;
        }
        corrected(&quotient, number, divisor).0
    }

    /// What is left of `number`, of 2^256 more if `over` is one; 0 if the divisor is.
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

impl Long {
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

    /// That of a divisor of three limbs or fewer.
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

/// The lowest four limbs of the quotient of a number, with `over` above it, and the limb behind its point; both
/// together too small by fewer than [`MOST_MISSING`] units of that limb.
#[inline(always)]
fn estimate<const X: usize, const M: usize>(
    number: &[u64; X],
    over: u64,
    inverse: &[u64; M],
) -> (Limbs, u64) {
    // From the limb below the fraction's on.
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

/// Adds the product of the limb at `row` of a number with an inverse, as far as the sum reaches down and up.
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
    // No row before has come so far.
    if let Some(next) = sum.get_mut(at + to - from) {
        *next = carry;
    }
}

/// Whether nothing that is missing can change the quotient.
#[inline(always)]
const fn is_settled(fraction: u64) -> bool {
    fraction < u64::MAX - MOST_MISSING
}

/// What is left of a number of which the lowest limbs are `low`.
#[inline(always)]
fn rest(quotient: &Limbs, low: &Limbs, divisor: &Limbs) -> Limbs {
    sub(low, &low_product(quotient, divisor)).0
}

/// The quotient and the remainder where the fraction is all but one. With a quotient greater by one what is left
/// is next to zero, above or below: less than 2^200 either way.
#[cold]
#[inline(never)]
fn corrected(quotient: &Limbs, low: &Limbs, divisor: &Limbs) -> (Limbs, Limbs) {
    let rest = rest(quotient, low, divisor);
    let less = sub(&rest, divisor).0;
    if less[3] >> 63 == 1 {
        return (*quotient, rest);
    }
    let more = crate::ops::arithmetic::add(quotient, &[1, 0, 0, 0]);
    (more, less)
}

/// The low half of a product.
#[inline(always)]
fn low_product(a: &Limbs, b: &Limbs) -> Limbs {
    let mut low = [0; 4];
    for (at, factor) in a.iter().enumerate() {
        let mut carry = 0;
        for (other, limb) in b.iter().zip(&mut low[at..]) {
            (*limb, carry) = factor.carrying_mul_add(*other, *limb, carry);
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::arithmetic::limbs;
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

    fn check_short(inverse: &Short, number: U512, divisor: &Limbs) {
        let limbs = number.as_limbs();
        let (low, over) = ([limbs[0], limbs[1], limbs[2], limbs[3]], limbs[4]);
        let (wanted, rest) = number.div_rem(long(divisor));
        assert_eq!(
            inverse.remainder(&low, over, divisor),
            short(rest),
            "{number} modulo {divisor:?}"
        );
        if over == 0 {
            assert_eq!(
                inverse.quotient(&low, divisor),
                short(wanted),
                "{number} by {divisor:?}"
            );
        }
    }

    fn check_long(inverse: &Long, number: U512, divisor: &Limbs) {
        assert_eq!(
            inverse.remainder(number.as_limbs(), divisor),
            short(number % long(divisor)),
            "{number} modulo {divisor:?}"
        );
    }

    /// Numbers next to the greatest multiple of the divisor that is less than two to the `bits`, and to `factor`
    /// times the divisor: where the fraction is all but one, or next to nothing.
    fn edges(divisor: &Limbs, factor: U512, bits: usize) -> Vec<U512> {
        let most = U512::MAX >> (512 - bits);
        let divisor = long(divisor);
        let multiples = [
            U512::ZERO,
            divisor,
            most - most % divisor,
            (factor & most) / divisor * divisor,
        ];
        // As far off as the fraction's error may be, and farther.
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
            let (of_short, of_long) = (Short::of(&divisor), Long::of(&divisor));
            for number in edges(&divisor, factor, 257) {
                check_short(&of_short, number, &divisor);
            }
            for number in edges(&divisor, factor, 512) {
                check_long(&of_long, number, &divisor);
            }
        }
    }

    /// Divisors of every length that are a power of two, or one more or less.
    #[test]
    fn divisors_at_the_ends_of_their_length_agree() {
        for bits in 1..=256_usize {
            let power = U256::ONE << (bits - 1);
            let around = [power, power + U256::ONE, power.saturating_sub(U256::ONE)];
            for divisor in around.into_iter().filter(|divisor| !divisor.is_zero()) {
                let divisor = divisor.into_limbs();
                let (of_short, of_long) = (Short::of(&divisor), Long::of(&divisor));
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

    /// Both sides of the correction are taken: the fraction says all but one, and the quotient is right, or one
    /// too small.
    #[test]
    fn a_fraction_of_all_but_one_is_looked_into() {
        let divisor = [3, 5, 7, 9 << 60];
        let inverse = Long::of(&divisor);
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
    fn by_nothing_is_nothing() {
        let (short, long) = (Short::of(&[0; 4]), Long::of(&[0; 4]));
        let most = [u64::MAX; 4];
        assert_eq!(short.quotient(&most, &[0; 4]), [0; 4]);
        assert_eq!(short.remainder(&most, 1, &[0; 4]), [0; 4]);
        assert_eq!(long.remainder(&[u64::MAX; 8], &[0; 4]), [0; 4]);
    }
}
