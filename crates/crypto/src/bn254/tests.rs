//! Sums, multiples and pairings against those of the other library.

use super::prepared::is_in_group;
use super::*;
use crate::provider::Stock;
use alloy_primitives::keccak256;
use ark_bn254::{Fq2, Fr, G1Projective, G2Affine, g2};
use ark_ec::short_weierstrass::Projective;
use ark_ec::{CurveConfig, CurveGroup, PrimeGroup};
use revm_precompile::Crypto;

fn hash(n: u64) -> U256 {
    U256::from_be_bytes(keccak256(n.to_be_bytes()).0)
}

fn bytes(number: U256) -> [u8; 32] {
    number.to_be_bytes()
}

/// Multiples of the generator, the point at infinity and points that are none.
fn g1_inputs() -> Vec<Vec<u8>> {
    let mut points: Vec<Vec<u8>> = (1..20)
        .map(|n| g1_bytes((G1Projective::generator() * Fr::from(n)).into_affine()).to_vec())
        .collect();
    points.extend((0..10).map(|n| {
        let scalar = Fr::from_be_bytes_mod_order(&bytes(hash(n)));
        g1_bytes((G1Projective::generator() * scalar).into_affine()).to_vec()
    }));
    let opposite = -G1Projective::generator();
    points.push(g1_bytes(opposite.into_affine()).to_vec());
    points.push(vec![0; 64]);
    points.push([bytes(U256::ONE), bytes(U256::from(3))].concat());
    points.push([bytes(U256::ZERO), bytes(U256::ONE)].concat());
    points.push([bytes(FIELD), bytes(FIELD)].concat());
    points.push([bytes(U256::ONE), bytes(FIELD + U256::from(2))].concat());
    points.push(vec![0xff; 64]);
    points
}

#[test]
fn sums_equal_those_of_the_stock_library() {
    let points = g1_inputs();
    for a in &points {
        for b in &points {
            assert_eq!(g1_add(a, b), Stock.bn254_g1_add(a, b), "{a:x?} {b:x?}");
        }
    }
}

#[test]
fn multiples_equal_those_of_the_stock_library() {
    let mut scalars: Vec<U256> = (0..30).map(hash).collect();
    scalars.extend((0..40).map(U256::from));
    scalars.extend([
        GROUP,
        GROUP - U256::ONE,
        GROUP + U256::ONE,
        U256::MAX,
        FIELD,
    ]);
    scalars.extend((0..256).step_by(17).map(|bit| U256::ONE << bit));
    for point in &g1_inputs() {
        for scalar in &scalars {
            let scalar = bytes(*scalar);
            let expected = Stock.bn254_g1_mul(point, &scalar);
            assert_eq!(g1_mul(point, &scalar), expected, "{point:x?} {scalar:x?}");
        }
    }
}

fn g2_bytes(point: G2Affine) -> Vec<u8> {
    point.xy().map_or(vec![0; 128], |(x, y)| {
        let number = |element: Fq| bytes(U256::from_limbs(element.into_bigint().0));
        [x.c1, x.c0, y.c1, y.c0].map(number).concat()
    })
}

/// Of the curve, of no group in particular.
fn point_of_curve(n: u64) -> G2Affine {
    let fq = |n| Fq::from_be_bytes_mod_order(&bytes(hash(n)));
    (0..)
        .find_map(|m| {
            let x = Fq2::new(fq(1_000 * n + m), fq(1_000 * n + m + 500));
            G2Affine::get_point_from_x_unchecked(x, true)
        })
        .expect("half of all numbers are")
}

#[test]
fn the_group_check_is_that_of_arkworks_for_points_of_every_kind_of_order() {
    for n in 0..20 {
        let point = point_of_curve(n);
        assert!(!is_in_group(&point), "{n}");
        assert!(!point.is_in_correct_subgroup_assuming_on_curve());
        // Times the cofactor it is of the group, times the order it is of none but the cofactor's.
        let inside = point.mul_bigint(g2::Config::COFACTOR).into_affine();
        assert!(is_in_group(&inside) && inside.is_in_correct_subgroup_assuming_on_curve());
        let of_cofactor = point.mul_bigint(GROUP.as_limbs());
        assert!(!is_in_group(&of_cofactor.into_affine()));
        let mixed: Projective<g2::Config> = of_cofactor + inside;
        assert!(!is_in_group(&mixed.into_affine()));
        // Of the cofactor's small prime factors.
        let cofactor = U256::from_limbs_slice(g2::Config::COFACTOR);
        for prime in [10_069_u64, 5_864_401] {
            let prime = U256::from(prime);
            assert_eq!(cofactor % prime, U256::ZERO);
            let small = of_cofactor.mul_bigint((cofactor / prime).as_limbs());
            let times = small.mul_bigint(prime.as_limbs());
            assert!(times.is_zero());
            if !small.is_zero() {
                assert!(!is_in_group(&small.into_affine()));
                let mixed = (small + inside).into_affine();
                assert!(!is_in_group(&mixed));
                assert!(!mixed.is_in_correct_subgroup_assuming_on_curve());
            }
        }
    }
}

#[test]
fn pairings_equal_those_of_the_stock_library() {
    let g1 = |n: u64| g1_bytes((G1Projective::generator() * Fr::from(n)).into_affine()).to_vec();
    let g2 = |n: u64| g2_bytes((G2Affine::generator() * Fr::from(n)).into_affine());
    let minus = g1_bytes((-(G1Projective::generator() * Fr::from(6))).into_affine()).to_vec();
    let mut outside = g2_bytes(point_of_curve(3));
    let lists = [
        vec![],
        vec![(g1(2), g2(3)), (minus.clone(), g2(1))],
        vec![(g1(2), g2(3)), (minus.clone(), g2(2))],
        vec![
            (g1(6), g2(5)),
            (minus.clone(), g2(5)),
            (vec![0; 64], g2(9)),
            (g1(4), vec![0; 128]),
        ],
        vec![(g1(1), vec![0; 128])],
        vec![(vec![0; 64], outside.clone())],
        vec![(g1(1), g2(1)); 9],
        vec![(vec![0xff; 64], g2(1))],
        vec![(g1(1), vec![0xff; 128])],
        vec![(g1(1), {
            outside[127] ^= 1;
            outside
        })],
    ];
    // Twice, so that points are found.
    for list in lists.iter().chain(&lists) {
        let pairs: Vec<(&[u8], &[u8])> = list.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        let expected = Stock.bn254_pairing_check(&pairs);
        assert_eq!(pairing_check(&pairs), expected, "{list:x?}");
    }
    let balanced: Vec<(&[u8], &[u8])> = lists[1].iter().map(|(a, b)| (&a[..], &b[..])).collect();
    assert_eq!(pairing_check(&balanced), Ok(true));
    assert!(g2::Config::COFACTOR.len() == 4);
}
