//! Odd moduli of any length.

use super::limbs::{add_multiple, add_multiple_2, add_product, remainder, square};
use super::narrow::negative_inverse;
use super::{Ring, reduce_once};
use std::cell::RefCell;

/// An odd modulus of any length; numbers are in Montgomery form, times `2^64` to the modulus' number of limbs.
struct Odd<'a> {
    modulus: &'a [u64],
    /// `-1 / modulus` modulo `2^64`.
    inverse: u64,
    /// A product before it is reduced.
    product: RefCell<Vec<u64>>,
}

/// As [`super::modulo_odd`].
pub(super) fn power(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Vec<u64> {
    let length = modulus.len();
    let ring = Odd {
        modulus,
        inverse: negative_inverse(modulus[0]),
        product: RefCell::new(vec![0; 2 * length]),
    };
    let base = remainder(base, 64 * length, modulus);
    let mut product = super::power(&ring, &base, exponent);
    product.resize(2 * length, 0);
    let mut number = vec![0; length];
    ring.reduce(&mut number, &mut product);
    number
}

impl Odd<'_> {
    /// `into = product / 2^(64 * length)`; `product` is overwritten.
    fn reduce(&self, into: &mut [u64], product: &mut [u64]) {
        let length = self.modulus.len();
        let modulus = self.modulus;
        let mut over = 0;
        let mut at = 0;
        while at + 1 < length {
            let first = product[at].wrapping_mul(self.inverse);
            let (_, carry) = first.carrying_mul_add(modulus[0], product[at], 0);
            let (second, _) = first.carrying_mul_add(modulus[1], product[at + 1], carry);
            let second = second.wrapping_mul(self.inverse);
            let (low, high) = product[at..].split_at_mut(length);
            let [carry, upper] = add_multiple_2(low, modulus, [first, second]);
            let (limb, carry) = high[0].carrying_add(carry, false);
            let (limb, again) = limb.overflowing_add(over);
            high[0] = limb;
            let (limb, carry) = high[1].carrying_add(upper, carry);
            let (limb, again) = limb.overflowing_add(u64::from(again));
            high[1] = limb;
            over = u64::from(carry) + u64::from(again);
            at += 2;
        }
        if at < length {
            let factor = product[at].wrapping_mul(self.inverse);
            let (low, high) = product[at..].split_at_mut(length);
            let carry = add_multiple(low, modulus, factor);
            let (limb, carry) = high[0].overflowing_add(carry);
            let (limb, again) = limb.overflowing_add(over);
            high[0] = limb;
            over = u64::from(carry) + u64::from(again);
        }
        into.copy_from_slice(&product[length..]);
        reduce_once(into, over, modulus);
    }
}

impl Ring for Odd<'_> {
    type Element = Vec<u64>;

    fn multiply(&self, a: &mut Vec<u64>, b: &Vec<u64>) {
        let product = &mut self.product.borrow_mut();
        product.fill(0);
        add_product(product, a, b);
        self.reduce(a, product);
    }

    fn square(&self, a: &mut Vec<u64>, times: usize) {
        let product = &mut self.product.borrow_mut();
        for _ in 0..times {
            square(product, a);
            self.reduce(a, product);
        }
    }
}
