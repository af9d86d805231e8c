//! Signatures on P-256, for the precompiled contract 0x100.
//!
//! Signatures are verified only and all numbers are public, so nothing runs in constant time.
//!
//! Spec: EIP-7951.

mod element;
mod sum;
#[cfg(test)]
mod tests;

pub(crate) use sum::prepare;

use alloy_primitives::{U256, uint};
use element::{Element, FIELD};

/// The group's order.
const ORDER: U256 = uint!(0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551_U256);
const B: U256 = uint!(0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b_U256);

/// Whether `signature` (r and s) is one of `hash` by `key` (x and y), all big-endian numbers of 32 bytes.
pub(crate) fn is_signed(hash: &[u8; 32], signature: &[u8; 64], key: &[u8; 64]) -> bool {
    verified(hash, signature, key).is_some()
}

fn verified(hash: &[u8; 32], signature: &[u8; 64], key: &[u8; 64]) -> Option<()> {
    let in_group = |number: &U256| !number.is_zero() && *number < ORDER;
    let [r, s] = numbers(signature);
    let ([x, y], hash) = (numbers(key), U256::from_be_bytes(*hash) % ORDER);
    if !(in_group(&r) && in_group(&s) && x < FIELD && y < FIELD) {
        return None;
    }
    let (x, y) = (Element::of(x), Element::of(y));
    // The whole curve is the group, and (0, 0), which encodes infinity, is not on it.
    let three_x = x.double() + x;
    if y.square() != x.square() * x - three_x + Element::of(B) {
        return None;
    }

    let inverse = s.inv_mod(ORDER)?;
    let of_generator = hash.mul_mod(inverse, ORDER);
    let point = sum::of(of_generator, r.mul_mod(inverse, ORDER), [x, y])?;

    // `x / z^2` is `r` or, where that is below the field's order, `r` and the group's.
    let square = point.z.square();
    let is_at = |x: U256| Element::of(x) * square == point.x;
    let above = r.checked_add(ORDER).filter(|above| *above < FIELD);
    (is_at(r) || above.is_some_and(is_at)).then_some(())
}

fn numbers(bytes: &[u8; 64]) -> [U256; 2] {
    let (first, second) = bytes.split_at(32);
    [first, second].map(U256::from_be_slice)
}
