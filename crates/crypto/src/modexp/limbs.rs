//! Numbers as limbs of 64 bits, the least first.

/// The limbs of big-endian bytes, without zeros at the top.
pub(super) fn of_bytes(bytes: &[u8]) -> Vec<u64> {
    let mut limbs: Vec<u64> = bytes.rchunks(8).map(limb).collect();
    trim(&mut limbs);
    limbs
}

fn limb(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[8 - bytes.len()..].copy_from_slice(bytes);
    u64::from_be_bytes(all)
}

/// The big-endian bytes of `limbs`, `length` of them, which must be enough.
pub(super) fn bytes(limbs: &[u64], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (bytes, limb) in bytes.rchunks_mut(8).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes()[8 - bytes.len()..]);
    }
    bytes
}

fn trim(limbs: &mut Vec<u64>) {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
}

/// The trailing zero bits of a number that is not zero.
pub(super) fn trailing_zeros(limbs: &[u64]) -> usize {
    let zeros = limbs.iter().take_while(|limb| **limb == 0).count();
    64 * zeros
        + limbs
            .get(zeros)
            .map_or(0, |limb| limb.trailing_zeros() as usize)
}

/// `limbs >> bits`, without zeros at the top.
pub(super) fn shifted_right(limbs: &[u64], bits: usize) -> Vec<u64> {
    let (whole, part) = (&limbs[bits / 64..], bits % 64);
    let above = whole.iter().skip(1).chain(&[0]);
    let shifted = |(low, high): (&u64, &u64)| match part {
        0 => *low,
        _ => low >> part | high << (64 - part),
    };
    let mut limbs: Vec<u64> = whole.iter().zip(above).map(shifted).collect();
    trim(&mut limbs);
    limbs
}

/// `a -= b` in the limbs of `a`; the last borrow is dropped.
pub(super) fn subtract(a: &mut [u64], b: &[u64]) {
    let mut borrow = false;
    for (a, b) in a.iter_mut().zip(b) {
        (*a, borrow) = a.borrowing_sub(*b, borrow);
    }
}

/// `sum += a * b`, returns the limb above; `sum` has as many limbs as `a`.
#[inline]
pub(super) fn add_multiple(sum: &mut [u64], a: &[u64], b: u64) -> u64 {
    let mut carry = 0;
    for (sum, a) in sum.iter_mut().zip(a) {
        (*sum, carry) = a.carrying_mul_add(b, *sum, carry);
    }
    carry
}

/// `sum += a * (b[0] + b[1] * 2^64)`, returns the two limbs above; `sum` has as many limbs as `a`. Two rows at
/// once are two independent chains of carries.
#[inline]
pub(super) fn add_multiple_2(sum: &mut [u64], a: &[u64], b: [u64; 2]) -> [u64; 2] {
    let (mut low, mut high, mut before) = (0, 0, 0_u64);
    for (sum, a) in sum.iter_mut().zip(a) {
        let (limb, carry) = a.carrying_mul_add(b[0], *sum, low);
        low = carry;
        (*sum, high) = before.carrying_mul_add(b[1], limb, high);
        before = *a;
    }
    let (low, high) = before.carrying_mul_add(b[1], low, high);
    [low, high]
}

/// Adds `carries` at the bottom of `sum`; a carry beyond its top is dropped.
#[inline]
pub(super) fn add_at(sum: &mut [u64], carries: [u64; 2]) {
    let [low, high] = carries;
    let mut carry = false;
    for (at, limb) in sum.iter_mut().enumerate() {
        let addend = match at {
            0 => low,
            1 => high,
            _ if !carry => return,
            _ => 0,
        };
        (*limb, carry) = limb.carrying_add(addend, carry);
    }
}

/// `sum += a * b`; limbs beyond the top of `sum` are dropped.
pub(super) fn add_product(sum: &mut [u64], a: &[u64], b: &[u64]) {
    for (at, pair) in b.chunks(2).enumerate() {
        let Some(sum) = sum.get_mut(2 * at..) else {
            return;
        };
        let length = a.len().min(sum.len());
        let (low, high) = sum.split_at_mut(length);
        let pair = [pair[0], pair.get(1).copied().unwrap_or(0)];
        let carries = add_multiple_2(low, &a[..length], pair);
        add_at(high, carries);
    }
}

/// `sum = a * a`; `sum` has twice as many limbs.
pub(super) fn square(sum: &mut [u64], a: &[u64]) {
    sum.fill(0);
    // Each product of two different limbs once, two rows at a time.
    let mut at = 0;
    while at + 1 < a.len() {
        let pair = [a[at], a[at + 1]];
        let (limb, carry) = pair[0].carrying_mul_add(pair[1], sum[2 * at + 1], 0);
        sum[2 * at + 1] = limb;
        let rest = &a[at + 2..];
        let (low, high) = sum[2 * at + 2..].split_at_mut(rest.len());
        // Above the row nothing has been added yet.
        if rest.is_empty() {
            high[0] = carry;
        } else {
            let is_over;
            (low[0], is_over) = low[0].overflowing_add(carry);
            let mut over = is_over;
            for limb in &mut low[1..] {
                if !over {
                    break;
                }
                (*limb, over) = limb.overflowing_add(1);
            }
            let carries = add_multiple_2(low, rest, pair);
            high[..2].copy_from_slice(&carries);
            if over {
                add_at(high, [1, 0]);
            }
        }
        at += 2;
    }
    double_and_add_squares(sum, a);
}

fn double_and_add_squares(sum: &mut [u64], a: &[u64]) {
    let (mut above, mut carry) = (0, false);
    for (pair, a) in sum.chunks_exact_mut(2).zip(a) {
        let (low, high) = a.carrying_mul(*a, 0);
        let doubled = [pair[0] << 1 | above, pair[1] << 1 | pair[0] >> 63];
        above = pair[1] >> 63;
        (pair[0], carry) = doubled[0].carrying_add(low, carry);
        (pair[1], carry) = doubled[1].carrying_add(high, carry);
    }
}

/// `number * 2^shift` modulo `modulus`, in as many limbs as the modulus; its top limb is not zero.
pub(super) fn remainder(number: &[u64], shift: usize, modulus: &[u64]) -> Vec<u64> {
    let length = modulus.len();
    let normal = modulus[length - 1].leading_zeros() as usize;
    let divisor = shifted_left(modulus, normal, length);
    let total = shift + normal;
    let mut rest = shifted_left(number, total, number.len() + total / 64 + 1);
    if rest.len() < length {
        rest.resize(length, 0);
    }
    if length == 1 {
        remainder_of_one(&mut rest, divisor[0]);
    } else {
        divide(&mut rest, &divisor);
    }
    rest.truncate(length);
    let mut rest = shifted_right(&rest, normal);
    rest.resize(length, 0);
    rest
}

/// `limbs << bits` in `length` limbs.
fn shifted_left(limbs: &[u64], bits: usize, length: usize) -> Vec<u64> {
    let (whole, part) = (bits / 64, bits % 64);
    let mut shifted = vec![0; length];
    for (at, limb) in limbs.iter().enumerate() {
        shifted[whole + at] |= limb << part;
        if part > 0
            && let Some(above) = shifted.get_mut(whole + at + 1)
        {
            *above = limb >> (64 - part);
        }
    }
    shifted
}

fn remainder_of_one(rest: &mut [u64], divisor: u64) {
    let mut remainder = 0;
    for limb in rest.iter_mut().rev() {
        let number = u128::from(remainder) << 64 | u128::from(*limb);
        remainder = low(number % u128::from(divisor));
        *limb = 0;
    }
    rest[0] = remainder;
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub(super) fn low(number: u128) -> u64 {
    number as u64
}

fn high(number: u128) -> u64 {
    low(number >> 64)
}

/// Leaves the remainder of `rest` in its low limbs. The divisor's top bit is set, and it has two limbs or more.
///
/// Knuth's algorithm D; quotients by the reciprocal of the two top limbs as in Moeller and Granlund, "Improved
/// division by invariant integers".
fn divide(rest: &mut [u64], divisor: &[u64]) {
    let length = divisor.len();
    let top = [divisor[length - 2], divisor[length - 1]];
    let reciprocal = reciprocal(top);
    // The top limb of `rest` has only bits shifted out of the one below, so the first quotient is at most one.
    if !rest[rest.len() - length..]
        .iter()
        .rev()
        .lt(divisor.iter().rev())
    {
        let at = rest.len() - length;
        subtract(&mut rest[at..], divisor);
    }
    for at in (0..rest.len() - length).rev() {
        let part = &mut rest[at..=at + length];
        let upper = [part[length - 2], part[length - 1], part[length]];
        let quotient = quotient(upper, top, reciprocal);
        let borrow = subtract_multiple(&mut part[..length], divisor, quotient);
        let is_over;
        (part[length], is_over) = part[length].overflowing_sub(borrow);
        if is_over {
            let mut carry = false;
            for (limb, divisor) in part.iter_mut().zip(divisor) {
                (*limb, carry) = limb.carrying_add(*divisor, carry);
            }
            part[length] = part[length].wrapping_add(u64::from(carry));
        }
    }
}

/// `a -= b * factor`; returns the borrow.
fn subtract_multiple(a: &mut [u64], b: &[u64], factor: u64) -> u64 {
    let mut borrow = 0;
    for (a, b) in a.iter_mut().zip(b) {
        let (low, high) = b.carrying_mul(factor, borrow);
        let is_over;
        (*a, is_over) = a.overflowing_sub(low);
        borrow = high + u64::from(is_over);
    }
    borrow
}

/// `(2^192 - 1) / d - 2^64` for a `d` of two limbs with its top bit set.
fn reciprocal(d: [u64; 2]) -> u64 {
    let divisor = u128::from(d[1]);
    let mut v = low((u128::from(!d[1]) << 64 | u128::from(u64::MAX)) / divisor);
    let mut p = d[1].wrapping_mul(v).wrapping_add(d[0]);
    if p < d[0] {
        v = v.wrapping_sub(1);
        if p >= d[1] {
            v = v.wrapping_sub(1);
            p = p.wrapping_sub(d[1]);
        }
        p = p.wrapping_sub(d[1]);
    }
    let t = u128::from(v) * u128::from(d[0]);
    p = p.wrapping_add(high(t));
    if p < high(t) {
        v = v.wrapping_sub(1);
        let p = u128::from(p) << 64 | u128::from(low(t));
        if p >= (u128::from(d[1]) << 64 | u128::from(d[0])) {
            v = v.wrapping_sub(1);
        }
    }
    v
}

/// The quotient of three limbs and the two upper ones of the divisor, which is the divisor's or one more.
fn quotient(u: [u64; 3], d: [u64; 2], reciprocal: u64) -> u64 {
    let divisor = u128::from(d[1]) << 64 | u128::from(d[0]);
    let upper = u128::from(u[2]) << 64 | u128::from(u[1]);
    if upper >= divisor {
        return u64::MAX;
    }
    let q = (u128::from(reciprocal) * u128::from(u[2])).wrapping_add(upper);
    let mut quotient = high(q);
    let r = u[1].wrapping_sub(quotient.wrapping_mul(d[1]));
    let t = u128::from(d[0]) * u128::from(quotient);
    let mut r = (u128::from(r) << 64 | u128::from(u[0]))
        .wrapping_sub(t)
        .wrapping_sub(divisor);
    quotient = quotient.wrapping_add(1);
    if high(r) >= low(q) {
        quotient = quotient.wrapping_sub(1);
        r = r.wrapping_add(divisor);
    }
    if r >= divisor {
        quotient = quotient.wrapping_add(1);
    }
    quotient
}
