//! Powers modulo a number of any size, for the precompiled contract 0x05.
//!
//! Big-endian bytes go in, big-endian bytes of the modulus' length come out. An odd modulus is Montgomery's: up to
//! 512 bits in arrays of limbs, above in slices of them or, on processors with IFMA, in digits of 52 bits. Inverses
//! that contracts compute as powers, modulo the prime of a curve, are computed as inverses. An even modulus is a
//! power of two times an odd number, and the powers modulo both are combined. Nothing here runs in constant time,
//! because nothing is secret; memory is a few times the modulus, and 32 times for exponents of 672 bits and more.
//!
//! Spec: EIP-198.

mod limbs;
mod narrow;
mod primes;
#[cfg(test)]
mod tests;
mod two;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use limbs::subtract;
use std::ops::Range;

/// Multiplication of elements, in whatever form the ring needs them.
trait Ring {
    type Element: Clone;

    /// `a = a * b`, in the ring's form.
    fn multiply(&self, a: &mut Self::Element, b: &Self::Element);

    /// `a = a * a`, repeated `times`.
    fn square(&self, a: &mut Self::Element, times: usize);
}

/// `base ^ exponent` modulo `modulus`, in as many bytes as `modulus` has; zero if `modulus` is zero.
pub(crate) fn modexp(base: &[u8], exponent: &[u8], modulus: &[u8]) -> Vec<u8> {
    let length = modulus.len();
    let modulus = limbs::of_bytes(modulus);
    let exponent = without_zeros(exponent);
    let power = match modulus.first() {
        None => modulus,
        Some(1) if modulus.len() == 1 => Vec::new(),
        Some(_) if exponent.is_empty() => vec![1],
        Some(low) if low % 2 == 1 => modulo_odd(&limbs::of_bytes(base), exponent, &modulus),
        Some(_) => modulo_even(&limbs::of_bytes(base), exponent, &modulus),
    };
    limbs::bytes(&power, length)
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

/// For an odd modulus over one and an exponent of one or more.
fn modulo_odd(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Vec<u64> {
    if exponent == [1] {
        return limbs::remainder(base, 0, modulus);
    }
    if let Some(inverse) = primes::inverse(base, exponent, modulus) {
        return inverse;
    }
    match modulus.len() {
        1 => narrow::power::<1>(base, exponent, modulus),
        2 => narrow::power::<2>(base, exponent, modulus),
        3 => narrow::power::<3>(base, exponent, modulus),
        4 => narrow::power::<4>(base, exponent, modulus),
        5 => narrow::power::<5>(base, exponent, modulus),
        6 => narrow::power::<6>(base, exponent, modulus),
        7 => narrow::power::<7>(base, exponent, modulus),
        8 => narrow::power::<8>(base, exponent, modulus),
        _ => {
            #[cfg(target_arch = "x86_64")]
            if let Some(power) = x86_64::power(base, exponent, modulus) {
                return power;
            }
            wide::power(base, exponent, modulus)
        }
    }
}

/// For an even modulus: the power modulo its odd part, plus a multiple of that part which makes it right modulo
/// the power of two.
fn modulo_even(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Vec<u64> {
    let bits = limbs::trailing_zeros(modulus);
    let odd = limbs::shifted_right(modulus, bits);
    let ring = two::Ring::new(bits);
    let low = ring.power(base, exponent);
    if odd == [1] {
        return low;
    }
    let mut power = modulo_odd(base, exponent, &odd);
    let mut difference = low;
    ring.subtract(&mut difference, &power);
    let factor = ring.product(&difference, &ring.inverse(&odd));
    power.resize(modulus.len(), 0);
    limbs::add_product(&mut power, &odd, &factor);
    power
}

/// The bits of an exponent that is not zero.
struct Bits<'a>(&'a [u8]);

impl Bits<'_> {
    fn count(&self) -> usize {
        8 * self.0.len() - self.0[0].leading_zeros() as usize
    }

    /// Whether the number is `limit` or more, for limits below `2^32`.
    fn exceeds(&self, limit: usize) -> bool {
        self.count() > 32 || self.number(0..self.count()) >= limit
    }

    fn is_set(&self, index: usize) -> bool {
        self.0[self.0.len() - 1 - index / 8] >> (index % 8) & 1 == 1
    }

    fn number(&self, range: Range<usize>) -> usize {
        let bits = range.rev().map(|index| usize::from(self.is_set(index)));
        bits.fold(0, |number, bit| number << 1 | bit)
    }

    /// Bits per window: the number that takes the fewest multiplications.
    fn window(&self) -> usize {
        let ones: usize = self.0.iter().map(|byte| byte.count_ones() as usize).sum();
        let cost = |bits: usize| match bits {
            1 => ones,
            _ => (1 << (bits - 1)) + self.count() / (bits + 1),
        };
        (1..=6).min_by_key(|bits| cost(*bits)).unwrap_or(1)
    }
}

/// `base ^ exponent` for an exponent whose first byte is not zero.
fn power<R: Ring>(ring: &R, base: &R::Element, exponent: &[u8]) -> R::Element {
    let bits = Bits(exponent);
    let window = bits.window();
    let odd_powers = odd_powers(ring, base, 1 << (window - 1));

    // The bits that are left, and the squarings that are due for those already used.
    let (mut rest, mut due) = (bits.count(), 0);
    let mut sum: Option<R::Element> = None;
    while rest > 0 {
        if !bits.is_set(rest - 1) {
            rest -= 1;
            due += 1;
            continue;
        }
        let mut end = rest.saturating_sub(window);
        while !bits.is_set(end) {
            end += 1;
        }
        let odd_power = &odd_powers[bits.number(end..rest) / 2];
        due += rest - end;
        match &mut sum {
            None => sum = Some(odd_power.clone()),
            Some(sum) => {
                ring.square(sum, due);
                ring.multiply(sum, odd_power);
            }
        }
        (rest, due) = (end, 0);
    }
    let mut sum = sum.unwrap_or_else(|| base.clone());
    ring.square(&mut sum, due);
    sum
}

/// `base`, `base ^ 3`, `base ^ 5` and so on.
fn odd_powers<R: Ring>(ring: &R, base: &R::Element, count: usize) -> Vec<R::Element> {
    let mut powers = vec![base.clone()];
    if count > 1 {
        let mut square = base.clone();
        ring.square(&mut square, 1);
        let mut power = base.clone();
        for _ in 1..count {
            ring.multiply(&mut power, &square);
            powers.push(power.clone());
        }
    }
    powers
}

/// Takes `modulus` away once if `number`, with `carry` as the limb above, is not below it.
fn reduce_once(number: &mut [u64], carry: u64, modulus: &[u64]) {
    let is_less = || number.iter().rev().lt(modulus.iter().rev());
    if carry != 0 || !is_less() {
        subtract(number, modulus);
    }
}
