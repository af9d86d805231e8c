//! Lanes against the library, one by one.

use super::scalars::split;
use super::*;
use crate::{Signed, recover_signer, recover_signers, sign};
use alloy_primitives::{keccak256, uint};
use k256::elliptic_curve::sec1::ToEncodedPoint;
use k256::{ProjectivePoint, Scalar};
use std::ops::RangeInclusive;

const N: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);
const LAMBDA: U256 = uint!(0x5363ad4cc05c30e0a5261c028812645a122e22ea20816678df02967c1b23bd72_U256);

/// Numbers that look random, always the same.
fn random(seed: u64) -> U256 {
    U256::from_be_bytes(keccak256(seed.to_be_bytes()).0)
}

fn signed(seed: u64) -> Signed {
    let (hash, key) = (
        B256::from(random(2 * seed)),
        B256::from(random(2 * seed + 1)),
    );
    let (r, s, y_parity) = sign(&hash, &key).unwrap();
    Signed {
        hash,
        r,
        s,
        y_parity,
    }
}

/// Every width recovers what the library recovers, or leaves a number of signatures in `left` to it.
#[track_caller]
fn assert_right(signed: &[Signed], left: RangeInclusive<usize>) {
    let one = |s: &Signed| recover_signer(&s.hash, &s.r, &s.s, s.y_parity);
    let expected: Vec<_> = signed.iter().map(one).collect();
    for width in Width::ALL.into_iter().filter(|width| width.is_available()) {
        let signers = signers_by(width, signed);
        let mut missing = 0;
        for (place, (signer, expected)) in signers.iter().zip(&expected).enumerate() {
            match signer {
                Some(signer) => assert_eq!(Ok(*signer), *expected, "{width:?}, {place}"),
                None => missing += usize::from(expected.is_ok()),
            }
        }
        assert!(left.contains(&missing), "{width:?}: {missing} left");
    }
    assert_eq!(recover_signers(signed), expected);
}

#[test]
fn any_number_of_signatures_recovers_at_every_width() {
    let all: Vec<_> = (0..40).map(signed).collect();
    for count in 0..all.len() {
        assert_right(&all[..count], 0..=0);
    }
    let mirrored = all.iter().map(|signed| Signed {
        s: N - signed.s,
        y_parity: !signed.y_parity,
        ..*signed
    });
    assert_right(&mirrored.collect::<Vec<_>>(), 0..=0);
}

#[test]
fn random_signatures_recover_as_by_the_library() {
    let all = (0..600).map(|seed| Signed {
        hash: random(3 * seed).into(),
        r: random(3 * seed + 1),
        s: random(3 * seed + 2),
        y_parity: seed % 2 == 0,
    });
    assert_right(&all.collect::<Vec<_>>(), 0..=0);
}

#[test]
fn numbers_at_the_ends_of_their_ranges_are_refused_or_recovered_as_by_the_library() {
    let valid = signed(7);
    let ends = [
        U256::ZERO,
        U256::ONE,
        N - U256::ONE,
        N,
        N + U256::ONE,
        U256::MAX,
    ];
    let mut all = vec![valid];
    for end in ends {
        all.push(Signed { r: end, ..valid });
        all.push(Signed { s: end, ..valid });
        all.push(Signed {
            hash: end.into(),
            ..valid
        });
        all.push(Signed {
            r: end,
            s: end,
            hash: end.into(),
            y_parity: true,
        });
    }
    assert_right(&all, 0..=0);
}

fn signed_by_factors(point: ProjectivePoint, [first, second]: [Scalar; 2]) -> Signed {
    let point = point.to_affine().to_encoded_point(false);
    let r = U256::from_be_slice(point.x().unwrap());
    let of = |scalar: Scalar| U256::from_be_bytes::<32>(scalar.to_bytes().into());
    let r_scalar = scalars::scalar(&r).unwrap();
    Signed {
        hash: of(-(first * r_scalar)).into(),
        r,
        s: of(second * r_scalar),
        y_parity: point.y().unwrap()[31] & 1 == 1,
    }
}

#[test]
fn multiples_of_the_generator_and_keys_at_infinity_are_as_by_the_library() {
    let (mut all, mut none) = (Vec::new(), 0);
    for multiple in (1..40_u64).map(Scalar::from) {
        for number in [1, 2, 3, 5, 16, 31, 32, 33, 1023, 1024_u64].map(Scalar::from) {
            let times = number * multiple;
            for first in [number, times, times + number, -number, -times, Scalar::ZERO] {
                let point = ProjectivePoint::GENERATOR * multiple;
                all.push(signed_by_factors(point, [first, number]));
                none += usize::from(first == -times);
            }
        }
    }
    let is_none = |s: &&Signed| recover_signer(&s.hash, &s.r, &s.s, s.y_parity).is_err();
    assert_eq!(all.iter().filter(is_none).count(), none);
    assert_right(&all, 0..=0);
}

/// What is added for the generator is, at the first time, what has been added up for the signature's point,
/// or its opposite.
#[test]
fn sums_that_lanes_cannot_compute_are_left_to_the_library() {
    let digit = |half: &scalars::Half, bits: usize, index: usize| {
        let (at, is_negative) = half.digit(bits, index);
        value((U256::from(2 * at + 1), is_negative))
    };
    let lambda = scalars::scalar(&LAMBDA).unwrap();
    let all = (0..50).map(|seed| {
        let [first, second] = [2 * seed, 2 * seed + 1].map(|seed| random(seed) >> 1);
        let own = split(second)
            .map(|half| digit(&half, 5, 25) * Scalar::from(32_u64) + digit(&half, 5, 24));
        let generators = digit(&split(first)[0], 10, 12);
        let generators = if seed % 2 == 0 {
            generators
        } else {
            -generators
        };
        let multiple = generators * (own[0] + own[1] * lambda).invert().unwrap();
        let factors = [first, second].map(|factor| scalars::scalar(&factor).unwrap());
        signed_by_factors(ProjectivePoint::GENERATOR * multiple, factors)
    });
    let all: Vec<_> = all.collect();
    assert_right(&all, all.len()..=all.len());
}

fn value(half: (U256, bool)) -> Scalar {
    let size = scalars::scalar(&half.0).unwrap();
    if half.1 { -size } else { size }
}

#[test]
fn a_factor_is_two_odd_halves_and_each_is_its_digits() {
    let ends = [
        U256::ZERO,
        U256::ONE,
        U256::from(2),
        N - U256::ONE,
        LAMBDA,
        N - LAMBDA,
    ];
    let powers = (0..256)
        .map(|bit| U256::ONE << bit)
        .filter(|power| *power < N);
    let randoms = (0..2000).map(random).filter(|number| *number < N);
    for factor in ends.into_iter().chain(powers).chain(randoms) {
        let halves = split(factor).map(|half| (half.size, half.is_negative));
        for (size, _) in halves {
            assert!(
                size.bit(0) && size.bit_len() <= scalars::HALF_BITS,
                "{factor}"
            );
        }
        let lambda = scalars::scalar(&LAMBDA).unwrap();
        let sum = value(halves[0]) + value(halves[1]) * lambda;
        assert_eq!(U256::from_be_bytes::<32>(sum.to_bytes().into()), factor);
        for (half, whole) in split(factor).iter().zip(halves) {
            for bits in [5, 10] {
                let sum = (0..scalars::HALF_BITS / bits)
                    .rev()
                    .fold(Scalar::ZERO, |sum, index| {
                        let (at, is_negative) = half.digit(bits, index);
                        let digit = Scalar::from(2 * at as u64 + 1);
                        let digit = if is_negative { -digit } else { digit };
                        sum * Scalar::from(1_u64 << bits) + digit
                    });
                assert_eq!(sum, value(whole), "{factor}, {bits} bits");
            }
        }
    }
}
