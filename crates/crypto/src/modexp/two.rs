//! Arithmetic modulo a power of two.

use super::limbs::{add_product, subtract};
use std::cell::RefCell;

/// Numbers modulo `2^bits`.
pub(super) struct Ring {
    bits: usize,
    /// Scratch space for a product.
    spare: RefCell<Vec<u64>>,
}

impl Ring {
    pub(super) fn new(bits: usize) -> Self {
        Self {
            bits,
            spare: RefCell::default(),
        }
    }

    fn length(&self) -> usize {
        self.bits.div_ceil(64)
    }

    fn cut(&self, number: &mut Vec<u64>) {
        number.resize(self.length(), 0);
        if let Some(top) = number.last_mut()
            && !self.bits.is_multiple_of(64)
        {
            *top &= (1 << (self.bits % 64)) - 1;
        }
    }

    /// `base ^ exponent`, the exponent's first byte not zero.
    pub(super) fn power(&self, base: &[u64], exponent: &[u8]) -> Vec<u64> {
        let mut base = base.to_vec();
        self.cut(&mut base);
        let exponent = if base[0] % 2 == 1 {
            // The order of an odd number divides every power of two from `2^bits` on.
            let bytes = exponent.len().min(self.bits.div_ceil(8));
            super::without_zeros(&exponent[exponent.len() - bytes..])
        } else if super::Bits(exponent).exceeds(self.bits) {
            return vec![0; self.length()];
        } else {
            exponent
        };
        let mut power = match exponent {
            [] => vec![1],
            _ => super::power(self, &base, exponent),
        };
        self.cut(&mut power);
        power
    }

    pub(super) fn product(&self, a: &[u64], b: &[u64]) -> Vec<u64> {
        let mut product = vec![0; self.length()];
        add_product(&mut product, a, b);
        self.cut(&mut product);
        product
    }

    /// `a -= b`.
    pub(super) fn subtract(&self, a: &mut Vec<u64>, b: &[u64]) {
        let mut b = b.to_vec();
        b.resize(self.length(), 0);
        subtract(a, &b);
        self.cut(a);
    }

    /// The inverse of an odd number.
    pub(super) fn inverse(&self, odd: &[u64]) -> Vec<u64> {
        let mut inverse = vec![super::narrow::negative_inverse(odd[0]).wrapping_neg()];
        let mut right = 64;
        // `x * (2 - odd * x)` is correct in twice as many bits as `x`.
        while right < self.bits {
            right = (2 * right).min(self.bits);
            let ring = Self::new(right);
            let mut two = vec![2];
            ring.cut(&mut two);
            ring.subtract(&mut two, &ring.product(odd, &inverse));
            inverse = ring.product(&inverse, &two);
        }
        self.cut(&mut inverse);
        inverse
    }
}

impl super::Ring for Ring {
    type Element = Vec<u64>;

    fn multiply(&self, a: &mut Vec<u64>, b: &Vec<u64>) {
        let mut product = self.spare.take();
        product.clear();
        product.resize(self.length(), 0);
        add_product(&mut product, a, b);
        self.spare.replace(std::mem::replace(a, product));
    }

    fn square(&self, a: &mut Vec<u64>, times: usize) {
        let mut product = self.spare.take();
        for _ in 0..times {
            product.clear();
            product.resize(self.length(), 0);
            add_product(&mut product, a, a);
            std::mem::swap(&mut product, a);
        }
        self.spare.replace(product);
    }
}
