//! Numbers as limbs, and the multiples of the generator that are the same for every signature.

use super::scalars::{HALF_BITS, scalar};
use alloy_primitives::{U256, uint};
use k256::elliptic_curve::BatchNormalize;
use k256::elliptic_curve::sec1::ToEncodedPoint;
use k256::{AffinePoint, ProjectivePoint, Scalar};

/// Bits of a limb when an element has this many; the last limb has four less.
const fn bits(limbs: usize) -> usize {
    260 / limbs
}

/// The endomorphism multiplies a point by lambda, and its first coordinate by beta.
const LAMBDA: U256 = uint!(0x5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72_U256);
pub(super) const BETA: U256 =
    uint!(0x7ae96a2b657c07106e64479eac3434e99cf0497512f58995c1396c28719501ee_U256);

/// Bits of the digits that choose multiples of the signature's point, and of the curve's generator.
pub(super) const DIGIT: usize = 5;
pub(super) const LONG_DIGIT: usize = 2 * DIGIT;
pub(super) const DIGITS: usize = HALF_BITS / DIGIT;
/// Odd multiples in a table.
pub(super) const MULTIPLES: usize = 1 << (DIGIT - 1);
const LONG_MULTIPLES: usize = 1 << (LONG_DIGIT - 1);

/// Both coordinates of a point, limb by limb.
pub(super) type Row<const LIMBS: usize> = [[u64; LIMBS]; 2];

/// The limbs of a coordinate.
pub(super) fn limbs<const LIMBS: usize>(number: &U256) -> [u64; LIMBS] {
    let bits = bits(LIMBS);
    let mask = (1 << bits) - 1;
    std::array::from_fn(|i| (*number >> (bits * i)).as_limbs()[0] & mask)
}

/// 2^256 modulo the prime.
const ABOVE: u64 = 0x1_0000_03d1;

/// The number below the prime that limbs represent, each less than 2^6 times the range of its bits.
pub(super) fn number<const LIMBS: usize>(limbs: &[u64; LIMBS]) -> U256 {
    let bits = bits(LIMBS);
    let mask = (1 << bits) - 1;
    let mut t = *limbs;
    let carry = |t: &mut [u64; LIMBS]| {
        for i in 0..LIMBS - 1 {
            t[i + 1] += t[i] >> bits;
            t[i] &= mask;
        }
    };
    // Carries first, then a reduction below 2^256.
    for _ in 0..2 {
        carry(&mut t);
        let over = t[LIMBS - 1] >> (bits - 4);
        t[LIMBS - 1] &= mask >> 4;
        t[0] += over * (ABOVE & mask);
        t[1] += over * (ABOVE >> bits);
    }
    carry(&mut t);
    let mut words = [0_u64; 4];
    for (i, limb) in t.iter().enumerate() {
        let at = bits * i;
        words[at / 64] |= limb << (at % 64);
        if at % 64 > 64 - bits && at / 64 < 3 {
            words[at / 64 + 1] |= limb >> (64 - at % 64);
        }
    }
    let number = U256::from_limbs(words);
    let (less, is_above) = number.overflowing_add(U256::from(ABOVE));
    if is_above { less } else { number }
}

/// Odd multiples of the generator, and of the generator times lambda.
pub(super) fn rows_of_generators<const LIMBS: usize>() -> [Vec<Row<LIMBS>>; 2] {
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
                limbs(&U256::from_be_bytes::<32>((*bytes).into()))
            })
        });
        rows.collect()
    })
}
