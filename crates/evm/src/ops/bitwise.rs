//! 0x10s: comparison and bits.

use super::{binary, op};
use crate::{
    limbs::{Limbs, sub},
    word::{Word, write},
};

#[inline(always)]
fn truth(value: bool) -> Limbs {
    [u64::from(value), 0, 0, 0]
}

#[inline(always)]
fn less(a: &Limbs, b: &Limbs) -> bool {
    sub(a, b).1
}

/// Flipping the sign bit maps two's complement order to unsigned order.
#[inline(always)]
fn signed_less(a: &Limbs, b: &Limbs) -> bool {
    const SIGN: u64 = 1 << 63;
    less(
        &[a[0], a[1], a[2], a[3] ^ SIGN],
        &[b[0], b[1], b[2], b[3] ^ SIGN],
    )
}

#[inline(always)]
pub(super) fn shl(shift: u64, value: &Limbs) -> Limbs {
    if shift >= 256 {
        return [0; 4];
    }
    let (limbs, bits) = ((shift / 64) as usize, shift % 64);
    let mut result = [0; 4];
    for (from, slot) in result.iter_mut().skip(limbs).enumerate() {
        let carried = if from > 0 {
            value[from - 1] >> 1 >> (63 - bits)
        } else {
            0
        };
        *slot = value[from] << bits | carried;
    }
    result
}

#[inline(always)]
fn shr(shift: u64, value: &Limbs) -> Limbs {
    if shift >= 256 {
        return [0; 4];
    }
    let (limbs, bits) = ((shift / 64) as usize, shift % 64);
    let mut result = [0; 4];
    for (to, slot) in result.iter_mut().enumerate().take(4 - limbs) {
        let from = to + limbs;
        let carried = if from < 3 {
            value[from + 1] << 1 << (63 - bits)
        } else {
            0
        };
        *slot = value[from] >> bits | carried;
    }
    result
}

#[inline(always)]
fn sar(shift: u64, value: &Limbs) -> Limbs {
    if value[3] >> 63 == 0 {
        return shr(shift, value);
    }
    // The complement of a negative number shifts in zeros that become ones.
    let inverted = shr(shift, &[!value[0], !value[1], !value[2], !value[3]]);
    [!inverted[0], !inverted[1], !inverted[2], !inverted[3]]
}

/// The byte at `at`, counted from the most significant.
#[inline(always)]
fn byte(at: u64, value: &Limbs) -> Limbs {
    if at >= 32 {
        return [0; 4];
    }
    let limb = value[3 - (at / 8) as usize];
    [limb >> (56 - at % 8 * 8) & 0xff, 0, 0, 0]
}

binary!(Lt = 0x10, |a, b| truth(less(a, b)));
binary!(Gt = 0x11, |a, b| truth(less(b, a)));
binary!(Slt = 0x12, |a, b| truth(signed_less(a, b)));
binary!(Sgt = 0x13, |a, b| truth(signed_less(b, a)));
binary!(Eq = 0x14, |a, b| {
    truth((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) == 0)
});
binary!(And = 0x16, |a, b| [
    a[0] & b[0],
    a[1] & b[1],
    a[2] & b[2],
    a[3] & b[3]
]);
binary!(Or = 0x17, |a, b| [
    a[0] | b[0],
    a[1] | b[1],
    a[2] | b[2],
    a[3] | b[3]
]);
binary!(Xor = 0x18, |a, b| [
    a[0] ^ b[0],
    a[1] ^ b[1],
    a[2] ^ b[2],
    a[3] ^ b[3]
]);
binary!(Byte = 0x1a, |a, b| byte(Word(*a).saturating_u64(), b));
binary!(Shl = 0x1b, |a, b| shl(Word(*a).saturating_u64(), b));
binary!(Shr = 0x1c, |a, b| shr(Word(*a).saturating_u64(), b));
binary!(Sar = 0x1d, |a, b| sar(Word(*a).saturating_u64(), b));

op!(Iszero = 0x15, 1 => 1, |r| {
    write(r.peek(0), truth((*r.peek(0)).is_zero()));
    true
});
op!(Not = 0x19, 1 => 1, |r| {
    let a = &(*r.peek(0)).0;
    write(r.peek(0), [!a[0], !a[1], !a[2], !a[3]]);
    true
});
op!(
    /// EIP-7939.
    Clz = 0x1e, 1 => 1, |r| {
    let zeros = (*r.peek(0)).to_u256().leading_zeros() as u64;
    write(r.peek(0), [zeros, 0, 0, 0]);
    true
});

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::U256;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_agree_with_big_integers(a in prop::array::uniform4(any::<u64>()), shift in 0u64..300) {
            let value = U256::from_limbs(a);
            let places = usize::try_from(shift).unwrap();
            prop_assert_eq!(U256::from_limbs(shl(shift, &a)), value.wrapping_shl(places));
            prop_assert_eq!(U256::from_limbs(shr(shift, &a)), value.wrapping_shr(places));
            prop_assert_eq!(U256::from_limbs(sar(shift, &a)), value.arithmetic_shr(places));
            let expected = if shift < 32 { value.byte(31 - places) } else { 0 };
            prop_assert_eq!(byte(shift, &a), [u64::from(expected), 0, 0, 0]);
        }

        #[test]
        fn order_agrees_with_big_integers(a in prop::array::uniform4(any::<u64>()), b in prop::array::uniform4(any::<u64>())) {
            prop_assert_eq!(less(&a, &b), U256::from_limbs(a) < U256::from_limbs(b));
            let signed = |v: [u64; 4]| niwaki_primitives::U256::from_limbs(v) ^ (U256::from(1) << 255);
            prop_assert_eq!(signed_less(&a, &b), signed(a) < signed(b));
        }
    }
}
