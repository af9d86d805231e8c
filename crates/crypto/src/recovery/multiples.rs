//! Numbers as limbs, and the multiples of the generator that are the same for every signature.

use super::scalars::{HALF_BITS, scalar};
use alloy_primitives::{U256, hex, uint};
use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::sec1::ToEncodedPoint;
use k256::{AffinePoint, ProjectivePoint, Scalar};
use std::sync::OnceLock;

pub(super) const LIMBS: usize = 10;
pub(super) const LIMB_BITS: usize = 26;
/// The prime.
pub(super) const P: [u64; LIMBS] = [
    0x3ff_fc2f, 0x3ff_ffbf, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff,
    0x3ff_ffff, 0x3f_ffff,
];

pub(super) const ONE: [u64; LIMBS] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
pub(super) const SEVEN: [u64; LIMBS] = [7, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The endomorphism multiplies a point by lambda, and its first coordinate by beta.
const LAMBDA: U256 = uint!(0x5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72_U256);
pub(super) const BETA: [u8; 32] =
    hex!("7ae96a2b657c07106e64479eac3434e99cf0497512f58995c1396c28719501ee");

/// Bits of the digits that choose multiples of the signature's point, and of the curve's generator.
pub(super) const DIGIT: usize = 5;
pub(super) const LONG_DIGIT: usize = 2 * DIGIT;
pub(super) const DIGITS: usize = HALF_BITS / DIGIT;
/// As many odd multiples.
pub(super) const MULTIPLES: usize = 1 << (DIGIT - 1);
const LONG_MULTIPLES: usize = 1 << (LONG_DIGIT - 1);

/// Both coordinates of a point, limb by limb.
pub(super) type Row = [[u64; LIMBS]; 2];

/// A coordinate from 32 big-endian bytes.
pub(super) fn limbs(bytes: &[u8; 32]) -> [u64; LIMBS] {
    let mut limbs = [0; LIMBS];
    for bit in (0..256).rev() {
        let byte = bytes[31 - bit / 8];
        limbs[bit / LIMB_BITS] = limbs[bit / LIMB_BITS] << 1 | u64::from(byte >> (bit % 8) & 1);
    }
    limbs
}

/// The number below the prime that limbs of less than 2^32 stand for.
pub(super) fn number(limbs: &[u64; LIMBS]) -> U256 {
    // Below 2^26 each, then all below 2^256.
    let mut t = *limbs;
    let carry = |t: &mut [u64; LIMBS]| {
        for i in 0..LIMBS - 1 {
            t[i + 1] += t[i] >> LIMB_BITS;
            t[i] &= (1 << LIMB_BITS) - 1;
        }
    };
    for _ in 0..2 {
        carry(&mut t);
        let over = t[9] >> 22;
        t[9] &= (1 << 22) - 1;
        t[0] += over * 0x3d1;
        t[1] += over << 6;
    }
    carry(&mut t);
    let mut words = [0_u64; 4];
    for (i, limb) in t.iter().enumerate() {
        let at = LIMB_BITS * i;
        words[at / 64] |= limb << (at % 64);
        if at % 64 > 64 - LIMB_BITS && at / 64 < 3 {
            words[at / 64 + 1] |= limb >> (64 - at % 64);
        }
    }
    // The prime is 2^256 - 2^32 - 977.
    let number = U256::from_limbs(words);
    let (less, is_above) = number.overflowing_add(U256::from(0x1_0000_03d1_u64));
    if is_above { less } else { number }
}

/// Odd multiples of the generator, and of the generator times lambda.
pub(super) fn generators() -> &'static [Vec<Row>; 2] {
    static ROWS: OnceLock<[Vec<Row>; 2]> = OnceLock::new();
    ROWS.get_or_init(|| {
        [Scalar::ONE, scalar(&LAMBDA).expect("it is below the order")].map(|factor| {
            let first = ProjectivePoint::GENERATOR * factor;
            let twice = first.double();
            let multiples = std::iter::successors(Some(first), |last| Some(last + &twice));
            let multiples: Vec<_> = multiples.take(LONG_MULTIPLES).collect();
            let points: Vec<AffinePoint> = ProjectivePoint::batch_normalize(multiples.as_slice());
            let rows = points.into_iter().map(|point| {
                let point = point.to_encoded_point(false);
                [point.x(), point.y()].map(|coordinate| {
                    let bytes = coordinate.expect("it is not at infinity");
                    limbs(&(*bytes).into())
                })
            });
            rows.collect()
        })
    })
}
