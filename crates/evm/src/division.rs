//! Division of 256- to 512-bit numbers, one limb of the quotient at a time, with the reciprocal of the divisor's high
//! limbs.
//!
//! ```text
//! power of two        shift or mask
//! first time          Divisor: Knuth's algorithm D; each quotient limb is a product with the reciprocal
//! same divisor again  Inverse (inverse.rs): the whole quotient is one product
//! ```
//!
//! Source: Moeller and Granlund, *Improved division by invariant integers* (2011), algorithms 1, 4, 5 and 6;
//! around them Knuth, *The Art of Computer Programming* 4.3.1, algorithm D.

#![expect(
    clippy::cast_possible_truncation,
    reason = "only the low half of a wide number is used, and indices of limbs are small"
)]

use crate::inverse::Inverse257;
use crate::limbs::{Limbs, carrying_add, is_same, sub};

/// The last divisor. At its second use in a row its inverse is computed, which costs as much as a division, and cached.
#[derive(Debug, Default)]
pub(crate) struct DivisorCache {
    value: Limbs,
    inverse: Option<Inverse257>,
}

/// A divisor, normalised, with its reciprocal.
#[derive(Debug)]
pub(crate) struct Divisor {
    size: Size,
    /// Bits by which `normal` is shifted to the left.
    shift: u32,
    /// The divisor, shifted until the top bit of its highest limb is set.
    normal: Limbs,
    /// Reciprocal of its highest limb, or of the highest two.
    reciprocal: u64,
}

/// Number of limbs without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    None,
    One,
    Two,
    Three,
    Four,
}

impl DivisorCache {
    /// `a` divided by `b`; 0 if `b` is.
    #[inline(never)]
    pub(crate) fn quotient(&mut self, a: &Limbs, b: &Limbs) -> Limbs {
        if let Some(shift) = power_of_two(b) {
            return shifted_right(a, shift);
        }
        match self.inverse_of(b) {
            Some(inverse) => inverse.quotient(a, b),
            None => Divisor::of(b).divide::<5>(a).0,
        }
    }

    /// The remainder of `a` by `b`; 0 if `b` is.
    #[inline(never)]
    pub(crate) fn remainder(&mut self, a: &Limbs, b: &Limbs) -> Limbs {
        if power_of_two(b).is_some() {
            return low_bits(a, b);
        }
        match self.inverse_of(b) {
            Some(inverse) => inverse.remainder(a, 0, b),
            None => Divisor::of(b).divide::<5>(a).1,
        }
    }

    /// The remainder of a 257-bit sum.
    #[inline(always)]
    pub(crate) fn remainder_of_sum(&mut self, sum: &[u64; 5], b: &Limbs) -> Limbs {
        if power_of_two(b).is_some() {
            return low_bits(sum, b);
        }
        match self.inverse_of(b) {
            Some(inverse) => inverse.remainder(&[sum[0], sum[1], sum[2], sum[3]], sum[4], b),
            None => Divisor::of(b).divide::<6>(sum).1,
        }
    }

    /// The inverse of `value`, which is no power of two; `None` if it differs from the last divisor.
    #[inline(always)]
    fn inverse_of(&mut self, value: &Limbs) -> Option<&Inverse257> {
        if !is_same(&self.value, value) {
            self.value = *value;
            self.inverse = None;
            return None;
        }
        Some(self.inverse.get_or_insert_with(|| Inverse257::of(value)))
    }
}

impl Divisor {
    #[inline(always)]
    pub(crate) fn of(value: &Limbs) -> Self {
        let (size, highest) = match value {
            [0, 0, 0, 0] => (Size::None, 1),
            [highest, 0, 0, 0] => (Size::One, *highest),
            [_, highest, 0, 0] => (Size::Two, *highest),
            [.., highest, 0] => (Size::Three, *highest),
            [.., highest] => (Size::Four, *highest),
        };
        let shift = highest.leading_zeros();
        let mut normal = [0; 4];
        shift_left(value, shift, &mut normal);
        let reciprocal = match size {
            Size::None => 0,
            Size::One => reciprocal(normal[0]),
            Size::Two => reciprocal_of_two([normal[0], normal[1]]),
            Size::Three => reciprocal_of_two([normal[1], normal[2]]),
            Size::Four => reciprocal_of_two([normal[2], normal[3]]),
        };
        Self {
            size,
            shift,
            normal,
            reciprocal,
        }
    }

    /// The remainder of a product.
    #[inline(never)]
    pub(crate) fn remainder_of_product(&self, product: &[u64; 8]) -> Limbs {
        self.divide::<9>(product).1
    }

    pub(crate) const fn size(&self) -> Size {
        self.size
    }

    /// The quotient of a number of one limb less than `L`, all its bits set; 0 by 0.
    #[inline(never)]
    pub(crate) fn of_all_ones<const L: usize>(&self) -> [u64; L] {
        let (mut quotient, mut rest) = ([0; L], [0; L]);
        self.divide_into(&[u64::MAX; L][1..], &mut rest, &mut quotient);
        quotient
    }

    /// The lower four limbs of the quotient, and the remainder, of a number of one limb less than `L`.
    #[inline(always)]
    fn divide<const L: usize>(&self, a: &[u64]) -> (Limbs, Limbs) {
        let (mut quotient, mut rest) = ([0; L], [0; L]);
        self.divide_into(a, &mut rest, &mut quotient);
        let low = |limbs: &[u64; L]| std::array::from_fn(|at| limbs[at]);
        (low(&quotient), low(&rest))
    }

    /// Writes quotient and remainder; both must be zero before.
    #[inline(always)]
    fn divide_into<const L: usize>(&self, a: &[u64], rest: &mut [u64; L], quotient: &mut [u64; L]) {
        match self.size {
            Size::None => {}
            Size::One => self.by_one(a, rest, quotient),
            Size::Two => self.by_many::<2, L>(a, rest, quotient),
            Size::Three => self.by_many::<3, L>(a, rest, quotient),
            Size::Four => self.by_many::<4, L>(a, rest, quotient),
        }
    }

    /// Divides by one limb; `rest` is then the remainder.
    #[inline(always)]
    fn by_one<const L: usize>(&self, a: &[u64], rest: &mut [u64; L], quotient: &mut [u64; L]) {
        shift_left(a, self.shift, rest);
        let mut remainder = rest[L - 1];
        for at in (0..L - 1).rev() {
            (quotient[at], remainder) =
                divide_two(remainder, rest[at], self.normal[0], self.reciprocal);
        }
        *rest = [0; L];
        rest[0] = remainder >> self.shift;
    }

    /// Divides by `N` limbs, at least two; `rest` is then the remainder.
    #[inline(always)]
    fn by_many<const N: usize, const L: usize>(
        &self,
        a: &[u64],
        rest: &mut [u64; L],
        quotient: &mut [u64; L],
    ) {
        shift_left(a, self.shift, rest);
        for at in (0..L - N).rev() {
            quotient[at] = self.next_limb::<N>(&mut rest[at..=at + N]);
        }
        let mut above = 0;
        for limb in rest[..N].iter_mut().rev() {
            let shifted = *limb >> self.shift | above << 1 << (63 - self.shift);
            above = *limb;
            *limb = shifted;
        }
    }

    /// The next limb of the quotient. Subtracts that many divisors from `part`, whose highest limb is then zero.
    #[inline(always)]
    fn next_limb<const N: usize>(&self, part: &mut [u64]) -> u64 {
        let highest = [self.normal[N - 2], self.normal[N - 1]];
        let top = [part[N - 2], part[N - 1], part[N]];
        if wide(top[2], top[1]) >= wide(highest[1], highest[0]) {
            return last_limb::<N>(part, &self.normal);
        }
        let (mut limb, [low, high]) = divide_three(top, highest, self.reciprocal);
        let mut borrow = 0;
        for (part, divisor) in part.iter_mut().zip(&self.normal).take(N - 2) {
            borrow = sub_product(part, limb, *divisor, borrow);
        }
        let (mut left, is_less) = wide(high, low).overflowing_sub(u128::from(borrow));
        if is_less {
            limb = limb.wrapping_sub(1);
            let carry = add_to(&mut part[..N - 2], &self.normal);
            let back = wide(highest[1], highest[0]).wrapping_add(u128::from(carry));
            left = left.wrapping_add(back);
        }
        (part[N - 2], part[N - 1], part[N]) = (left as u64, (left >> 64) as u64, 0);
        limb
    }
}

/// Subtracts `limb` times `divisor` and `borrow` from `part`; returns the borrow from the next limb.
#[inline(always)]
fn sub_product(part: &mut u64, limb: u64, divisor: u64, borrow: u64) -> u64 {
    let product = u128::from(limb) * u128::from(divisor) + u128::from(borrow);
    let (less, is_less) = part.overflowing_sub(product as u64);
    *part = less;
    (product >> 64) as u64 + u64::from(is_less)
}

/// Adds as many limbs as `part` has; returns the carry.
#[inline(always)]
fn add_to(part: &mut [u64], limbs: &[u64]) -> bool {
    let mut carry = false;
    for (part, limb) in part.iter_mut().zip(limbs) {
        (*part, carry) = carrying_add(*part, *limb, carry);
    }
    carry
}

/// The exponent of `b` if it is a power of two.
#[inline(always)]
fn power_of_two(b: &Limbs) -> Option<u32> {
    let less = sub(b, &[1, 0, 0, 0]).0;
    if (0..4).any(|at| b[at] & less[at] != 0) {
        return None;
    }
    let at = b.iter().position(|limb| *limb != 0)?;
    Some(b[at].trailing_zeros() + 64 * at as u32)
}

/// The remainder by a power of two: `a & (power - 1)`.
#[inline(always)]
fn low_bits(a: &[u64], power: &Limbs) -> Limbs {
    let mask = sub(power, &[1, 0, 0, 0]).0;
    std::array::from_fn(|at| a[at] & mask[at])
}

fn shifted_right(a: &Limbs, shift: u32) -> Limbs {
    let (limbs, bits) = ((shift / 64) as usize, shift % 64);
    let limb = |at: usize| a.get(at).copied().unwrap_or(0);
    // Shifted twice, since one shift must be by fewer than 64 bits.
    std::array::from_fn(|at| limb(at + limbs) >> bits | limb(at + limbs + 1) << 1 << (63 - bits))
}

/// `a` shifted left by fewer than 64 bits, with one limb more.
#[inline(always)]
fn shift_left<const L: usize>(a: &[u64], shift: u32, out: &mut [u64; L]) {
    let mut below = 0;
    for (out, limb) in out.iter_mut().zip(a.iter().chain([&0])) {
        *out = limb << shift | below >> 1 >> (63 - shift);
        below = *limb;
    }
}

/// The next quotient limb if the highest two limbs of `part` equal the divisor's: 2^64 - 1. The limbs below are less
/// than the divisor's, so `part` is less than one divisor short of 2^64 of them.
#[cold]
#[inline(never)]
fn last_limb<const N: usize>(part: &mut [u64], divisor: &Limbs) -> u64 {
    let mut borrow = 0;
    for (part, divisor) in part.iter_mut().zip(divisor).take(N) {
        borrow = sub_product(part, u64::MAX, *divisor, borrow);
    }
    part[N] = part[N].wrapping_sub(borrow);
    u64::MAX
}

#[inline(always)]
fn wide(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Division of two limbs by one whose top bit is set and that is greater than `high`.
///
/// Source: algorithm 4.
#[inline(always)]
fn divide_two(high: u64, low: u64, divisor: u64, reciprocal: u64) -> (u64, u64) {
    let estimate = u128::from(reciprocal) * u128::from(high);
    let estimate = estimate.wrapping_add(wide(high, low));
    let mut quotient = ((estimate >> 64) as u64).wrapping_add(1);
    let mut remainder = low.wrapping_sub(quotient.wrapping_mul(divisor));
    if remainder > estimate as u64 {
        quotient = quotient.wrapping_sub(1);
        remainder = remainder.wrapping_add(divisor);
    }
    if remainder >= divisor {
        quotient = quotient.wrapping_add(1);
        remainder = remainder.wrapping_sub(divisor);
    }
    (quotient, remainder)
}

/// Division of three limbs, lowest first, by two whose top bit is set and that are greater than the highest two.
///
/// Source: algorithm 5.
#[inline(always)]
fn divide_three(parts: [u64; 3], divisor: [u64; 2], reciprocal: u64) -> (u64, [u64; 2]) {
    let estimate = u128::from(reciprocal) * u128::from(parts[2]);
    let estimate = estimate.wrapping_add(wide(parts[2], parts[1]));
    let mut quotient = (estimate >> 64) as u64;
    let both = wide(divisor[1], divisor[0]);
    let high = parts[1].wrapping_sub(quotient.wrapping_mul(divisor[1]));
    let mut remainder = wide(high, parts[0])
        .wrapping_sub(u128::from(divisor[0]) * u128::from(quotient))
        .wrapping_sub(both);
    quotient = quotient.wrapping_add(1);
    if (remainder >> 64) as u64 >= estimate as u64 {
        quotient = quotient.wrapping_sub(1);
        remainder = remainder.wrapping_add(both);
    }
    if remainder >= both {
        quotient = quotient.wrapping_add(1);
        remainder = remainder.wrapping_sub(both);
    }
    (quotient, [remainder as u64, (remainder >> 64) as u64])
}

/// (2^128 - 1) / `divisor` - 2^64, rounded down, of a divisor whose highest bit is set.
///
/// Source: algorithm 2, the reciprocal of its highest nine bits from a table and three steps of Newton's.
#[inline(always)]
fn reciprocal(divisor: u64) -> u64 {
    /// (2^19 - 3 * 2^8) / `bits`, of the bits from 2^8 on.
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            table[at] = (((1 << 19) - (3 << 8)) / (at as u32 + 256)) as u16;
            at += 1;
        }
        table
    };
    let high = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64;
    let first = u64::from(TABLE[(divisor >> 55) as usize & 255]);
    let rounded = (divisor >> 24) + 1;
    let second = (first << 11) - ((first * first).wrapping_mul(rounded) >> 40) - 1;
    let third =
        (second << 13) + (second.wrapping_mul((1 << 60) - second.wrapping_mul(rounded)) >> 47);
    let odd = divisor & 1;
    let half = (divisor >> 1) + odd;
    let error = ((third >> 1) & odd.wrapping_neg()).wrapping_sub(third.wrapping_mul(half));
    let fourth = (third << 31).wrapping_add(high(third, error) >> 1);
    let last = u128::from(fourth) * u128::from(divisor) + u128::from(divisor);
    fourth.wrapping_sub(((last >> 64) as u64).wrapping_add(divisor))
}

/// (2^192 - 1) / `divisor` - 2^64, rounded down, of two limbs, from the lower, whose highest bit is set.
///
/// Source: algorithm 6.
#[inline(always)]
fn reciprocal_of_two(divisor: [u64; 2]) -> u64 {
    let [low, high] = divisor;
    let mut result = reciprocal(high);
    let (mut product, carried) = high.wrapping_mul(result).overflowing_add(low);
    if carried {
        result = result.wrapping_sub(1);
        if product >= high {
            result = result.wrapping_sub(1);
            product = product.wrapping_sub(high);
        }
        product = product.wrapping_sub(high);
    }
    let other = u128::from(result) * u128::from(low);
    let (sum, carried) = product.overflowing_add((other >> 64) as u64);
    if carried {
        result = result.wrapping_sub(1);
        if wide(sum, other as u64) >= wide(high, low) {
            result = result.wrapping_sub(1);
        }
    }
    result
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn division_agrees_with_big_integers(a in limbs(), b in limbs(), zeros in 0..4_usize) {
            let mut b = b;
            b[4 - zeros..].fill(0);
            let divided = |of: fn(U256, U256) -> Option<U256>| {
                of(U256::from_limbs(a), U256::from_limbs(b)).unwrap_or_default().into_limbs()
            };
            let mut last = DivisorCache::default();
            for _ in 0..2 {
                prop_assert_eq!(last.quotient(&a, &b), divided(U256::checked_div));
            }
            let mut last = DivisorCache::default();
            for _ in 0..2 {
                prop_assert_eq!(last.remainder(&a, &b), divided(U256::checked_rem));
            }
        }

        /// Numbers near a multiple of the divisor, where estimates are most likely off by one.
        #[test]
        fn remainders_near_zero_agree(factor in limbs(), b in limbs(), zeros in 0..4_usize, off in 0..3_u64) {
            let mut b = b;
            b[4 - zeros..].fill(0);
            let product = long(&factor) * long(&b);
            let near = product.wrapping_add(U512::from(off)).wrapping_sub(U512::from(1));
            let expected = near.checked_rem(long(&b)).map_or([0; 4], short);
            prop_assert_eq!(Divisor::of(&b).remainder_of_product(near.as_limbs()), expected);
            let a = short(near & U512::from(U256::MAX));
            let expected = long(&a).checked_rem(long(&b)).map_or([0; 4], short);
            prop_assert_eq!(DivisorCache::default().remainder(&a, &b), expected);
        }

        #[test]
        fn sums_and_products_agree_with_big_integers(a in limbs(), b in limbs(), n in limbs(), carry in 0..2_u64) {
            let sum = [a[0], a[1], a[2], a[3], carry];
            let expected = long(&sum).checked_rem(long(&n)).map_or([0; 4], short);
            let mut last = DivisorCache::default();
            for _ in 0..2 {
                prop_assert_eq!(last.remainder_of_sum(&sum, &n), expected);
            }
            let product = long(&a) * long(&b);
            let expected = product.checked_rem(long(&n)).map_or([0; 4], short);
            prop_assert_eq!(Divisor::of(&n).remainder_of_product(product.as_limbs()), expected);
        }

        #[test]
        fn reciprocals_equal_their_definition(low: u64, high: u64) {
            for high in [high, u64::MAX, 0, 1, high & 0xff, high | 0xff << 56] {
                let high = high | 1 << 63;
                let expected = u128::MAX / u128::from(high) - (1 << 64);
                prop_assert_eq!(u128::from(reciprocal(high)), expected);
                for low in [low, 0, 1, u64::MAX] {
                    let most = U256::MAX >> 64_usize;
                    let expected = most / U256::from(wide(high, low)) - (U256::from(1) << 64_usize);
                    prop_assert_eq!(U256::from(reciprocal_of_two([low, high])), expected);
                }
            }
        }
    }

    #[test]
    fn inverse_is_cached_at_second_use_of_a_divisor() {
        let mut last = DivisorCache::default();
        let (b, other) = ([5, 0, 0, 7], [0, 0, 3, 0]);
        let known = [b, b, other, b, b, b].map(|b| last.inverse_of(&b).is_some());
        assert_eq!(known, [false, true, false, false, true, true]);
    }

    #[test]
    fn powers_of_two_are_shifts() {
        let a = [u64::MAX, 2, 3 << 60, 0x8765_4321_0000_0001];
        for shift in 0..256_u32 {
            let b = (U256::from(1) << shift as usize).into_limbs();
            let mut last = DivisorCache::default();
            assert_eq!(power_of_two(&b), Some(shift));
            let (x, y) = (U256::from_limbs(a), U256::from_limbs(b));
            assert_eq!(last.quotient(&a, &b), (x / y).into_limbs());
            assert_eq!(last.remainder(&a, &b), (x % y).into_limbs());
        }
        for other in [
            [0; 4],
            [1, 1, 0, 0],
            [3, 0, 0, 0],
            [0, 0, 0, 5],
            [0, 3, 1, 0],
        ] {
            assert_eq!(power_of_two(&other), None);
        }
    }
}
