//! 0x00s: arithmetic modulo 2^256.
//!
//! Most operands of real code fit in 64 bits, so each costly operation checks for that first.

use super::{binary, op};
use crate::{
    division::DivisorCache,
    limbs::{Limbs, add, sub},
    modulus::ModulusCache,
    word::{Word, write},
};
use niwaki_primitives::U256;

#[inline(always)]
fn high_limbs(a: &Limbs) -> u64 {
    a[1] | a[2] | a[3]
}

#[inline(always)]
const fn int(a: &Limbs) -> U256 {
    U256::from_limbs(*a)
}

#[inline(always)]
fn is_negative(a: &Limbs) -> bool {
    a[3] >> 63 == 1
}

/// `a`, negated if `negative`. Limb by limb in both cases: a 32-byte copy would wait for limbs that were just stored.
#[inline(always)]
fn negate_if(a: &Limbs, negative: bool) -> Limbs {
    let mask = u64::from(negative).wrapping_neg();
    let flipped = [a[0] ^ mask, a[1] ^ mask, a[2] ^ mask, a[3] ^ mask];
    sub(&flipped, &[mask; 4]).0
}

#[inline(always)]
fn magnitude(a: &Limbs) -> Limbs {
    negate_if(a, is_negative(a))
}

/// The low 256 bits of a product.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "only the low half of a wide product is used"
)]
fn mul(a: &Limbs, b: &Limbs) -> Limbs {
    let wide = |x: u64, y: u64| u128::from(x) * u128::from(y);
    if high_limbs(a) | high_limbs(b) == 0 {
        let product = wide(a[0], b[0]);
        return [product as u64, (product >> 64) as u64, 0, 0];
    }
    let [b0, b1, b2, b3] = *b;
    let (r0, c) = a[0].carrying_mul(b0, 0);
    let (r1, c) = a[0].carrying_mul(b1, c);
    let (r2, c) = a[0].carrying_mul(b2, c);
    let r3 = a[0].wrapping_mul(b3).wrapping_add(c);
    let (r1, c) = a[1].carrying_mul_add(b0, r1, 0);
    let (r2, c) = a[1].carrying_mul_add(b1, r2, c);
    let r3 = r3.wrapping_add(a[1].wrapping_mul(b2)).wrapping_add(c);
    let (r2, c) = a[2].carrying_mul_add(b0, r2, 0);
    let r3 = r3.wrapping_add(a[2].wrapping_mul(b1)).wrapping_add(c);
    [r0, r1, r2, r3.wrapping_add(a[3].wrapping_mul(b0))]
}

#[inline(always)]
fn div(a: &Limbs, b: &Limbs, last: &mut DivisorCache) -> Limbs {
    if high_limbs(a) | high_limbs(b) == 0 {
        return [a[0].checked_div(b[0]).unwrap_or(0), 0, 0, 0];
    }
    last.quotient(a, b)
}

#[inline(always)]
fn rem(a: &Limbs, b: &Limbs, last: &mut DivisorCache) -> Limbs {
    if high_limbs(a) | high_limbs(b) == 0 {
        return [a[0].checked_rem(b[0]).unwrap_or(0), 0, 0, 0];
    }
    last.remainder(a, b)
}

/// Division of two's complement numbers, towards zero; -2^255 / -1 is -2^255. Not inlined: its locals would give the
/// handler a stack frame, and then it could not end in a jump.
#[inline(never)]
fn signed_div(a: &Limbs, b: &Limbs, last: &mut DivisorCache) -> Limbs {
    let quotient = div(&magnitude(a), &magnitude(b), last);
    negate_if(&quotient, is_negative(a) != is_negative(b))
}

/// Remainder with the sign of the dividend.
#[inline(never)]
fn signed_rem(a: &Limbs, b: &Limbs, last: &mut DivisorCache) -> Limbs {
    let remainder = rem(&magnitude(a), &magnitude(b), last);
    negate_if(&remainder, is_negative(a))
}

#[inline(always)]
fn add_mod(a: &Limbs, b: &Limbs, n: &Limbs, last: &mut ModulusCache) -> Limbs {
    if !(sub(a, n).1 && sub(b, n).1) {
        return last.sum(a, b, n);
    }
    // Both are below `n`, so the sum is a - (n - b), plus n if that borrows.
    let (less, is_less) = sub(a, &sub(n, b).0);
    if is_less { add(&less, n) } else { less }
}

/// A power modulo 2^256.
#[inline(never)]
fn pow(base: &Limbs, exponent: &Limbs) -> Limbs {
    if high_limbs(base) == 0 && base[0].is_power_of_two() {
        let shift = u64::from(base[0].trailing_zeros());
        let total = match Word(*exponent).as_u64() {
            Some(exponent) => shift.saturating_mul(exponent),
            None if shift == 0 => 0,
            None => u64::MAX,
        };
        return super::bitwise::shl(total, &[1, 0, 0, 0]);
    }
    let mut result = [1, 0, 0, 0];
    for bit in (0..int(exponent).bit_len()).rev() {
        result = mul(&result, &result);
        if exponent[bit / 64] >> (bit % 64) & 1 == 1 {
            result = mul(&result, base);
        }
    }
    result
}

/// Extends the sign of the byte at `at`, counted from the least significant.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the byte index is below 32"
)]
fn sign_extend(at: u64, value: &Limbs) -> Limbs {
    if at >= 31 {
        return *value;
    }
    let (limb, bit) = ((at / 8) as usize, (at % 8) * 8 + 7);
    let sign = if value[limb] >> bit & 1 == 1 {
        u64::MAX
    } else {
        0
    };
    let above = u64::MAX.checked_shl(bit as u32 + 1).unwrap_or(0);
    let mut result = *value;
    result[limb] = (value[limb] & !above) | (sign & above);
    for higher in result.iter_mut().skip(limb + 1) {
        *higher = sign;
    }
    result
}

/// An opcode that divides the top word by the word below, with the inverse of a repeated divisor.
macro_rules! dividing {
    ($name:ident = $code:literal, $divide:ident) => {
        op!($name = $code, 2 => 1, |r| {
            let last = &mut (*r.frame).shared().divisor;
            let result = $divide(&(*r.peek(0)).0, &(*r.peek(1)).0, last);
            write(r.peek(1), result);
            r.pop(1);
            true
        });
    };
}

binary!(Add = 0x01, |a, b| add(a, b));
binary!(Mul = 0x02, |a, b| mul(a, b));
binary!(Sub = 0x03, |a, b| sub(a, b).0);
dividing!(Div = 0x04, div);
dividing!(Sdiv = 0x05, signed_div);
dividing!(Mod = 0x06, rem);
dividing!(Smod = 0x07, signed_rem);
binary!(Signextend = 0x0b, |a, b| sign_extend(
    Word(*a).saturating_u64(),
    b
));

op!(Addmod = 0x08, 3 => 1, |r| {
    let last = &mut (*r.frame).shared().modulus;
    let result = add_mod(&(*r.peek(0)).0, &(*r.peek(1)).0, &(*r.peek(2)).0, last);
    write(r.peek(2), result);
    r.pop(2);
    true
});
op!(Mulmod = 0x09, 3 => 1, |r| {
    let last = &mut (*r.frame).shared().modulus;
    let result = last.product(&(*r.peek(0)).0, &(*r.peek(1)).0, &(*r.peek(2)).0);
    write(r.peek(2), result);
    r.pop(2);
    true
});
op!(Exp = 0x0a, 2 => 1, |r| {
    let exponent = &(*r.peek(1)).0;
    let bytes = int(exponent).byte_len() as i64;
    if !r.charge(r.schedule().exp_byte * bytes) {
        return false;
    }
    let result = pow(&(*r.peek(0)).0, exponent);
    write(r.peek(1), result);
    r.pop(1);
    true
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limbs::testkit::limbs;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arithmetic_agrees_with_big_integers(a in limbs(), b in limbs(), n in limbs()) {
            let (x, y) = (int(&a), int(&b));
            prop_assert_eq!(int(&add(&a, &b)), x.wrapping_add(y));
            prop_assert_eq!(int(&sub(&a, &b).0), x.wrapping_sub(y));
            prop_assert_eq!(sub(&a, &b).1, x < y);
            prop_assert_eq!(int(&mul(&a, &b)), x.wrapping_mul(y));
            let last = &mut DivisorCache::default();
            prop_assert_eq!(int(&div(&a, &b, last)), x.checked_div(y).unwrap_or_default());
            prop_assert_eq!(int(&rem(&a, &b, last)), x.checked_rem(y).unwrap_or_default());
            let small = [n[0] % 300, 0, 0, 0];
            prop_assert_eq!(int(&pow(&a, &small)), x.wrapping_pow(int(&small)));
            prop_assert_eq!(int(&pow(&a, &b)), x.wrapping_pow(y));
            let (less_a, less_b) = (rem(&a, &n, last), rem(&b, &n, last));
            let modulus = &mut ModulusCache::default();
            for (a, b) in [(a, b), (less_a, less_b), (a, less_b)] {
                let sum = add_mod(&a, &b, &n, modulus);
                prop_assert_eq!(int(&sum), int(&a).add_mod(int(&b), int(&n)));
            }
        }

        #[test]
        fn signed_quotient_times_divisor_plus_remainder_is_dividend(a in limbs(), b in limbs()) {
            prop_assume!(b != [0; 4]);
            let last = &mut DivisorCache::default();
            let (quotient, remainder) = (signed_div(&a, &b, last), signed_rem(&a, &b, last));
            prop_assert_eq!(add(&mul(&quotient, &b), &remainder), a);
        }
    }

    #[test]
    fn minimum_divided_by_minus_one_is_minimum_and_signextend_31_is_identity() {
        let minimum = [0, 0, 0, 1 << 63];
        let last = &mut DivisorCache::default();
        assert_eq!(signed_div(&minimum, &[u64::MAX; 4], last), minimum);
        assert_eq!(signed_div(&minimum, &[0; 4], last), [0; 4]);
        assert_eq!(signed_rem(&minimum, &[0; 4], last), [0; 4]);
        assert_eq!(
            sign_extend(0, &[0x80, 7, 7, 7]),
            [!0x7f, u64::MAX, u64::MAX, u64::MAX]
        );
        assert_eq!(sign_extend(0, &[0x17f, 7, 7, 7]), [0x7f, 0, 0, 0]);
        assert_eq!(
            sign_extend(7, &[1 << 63, 7, 7, 7]),
            [1 << 63, u64::MAX, u64::MAX, u64::MAX]
        );
        assert_eq!(sign_extend(31, &minimum), minimum);
        assert_eq!(sign_extend(u64::MAX, &minimum), minimum);
    }
}
