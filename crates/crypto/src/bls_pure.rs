//! BLS12-381 in pure Rust, for where no native library is wanted or passes its self-test.
//!
//! Coordinates are big-endian numbers of 48 bytes below the field's order; the point at infinity is
//! all zeros.
//!
//! Spec: EIP-2537.

use crate::kzg_pure::limbs;
use ark_bls12_381::{Bls12_381, Fq, Fq2, Fr, g1, g2};
use ark_ec::hashing::curve_maps::wb::{WBConfig, WBMap};
use ark_ec::hashing::map_to_curve_hasher::MapToCurve;
use ark_ec::pairing::Pairing;
use ark_ec::short_weierstrass::{Affine, Projective, SWCurveConfig};
use ark_ec::{AffineRepr, CurveGroup, VariableBaseMSM};
use ark_ff::{BigInt, BigInteger, One, PrimeField, Zero};
use revm_precompile::PrecompileHalt;
use revm_precompile::bls12_381::{G1Point, G1PointScalar, G2Point, G2PointScalar};

type Outcome<T> = Result<T, PrecompileHalt>;

pub(crate) fn g1_add(a: G1Point, b: G1Point) -> Outcome<[u8; 96]> {
    let point = |(x, y): G1Point| on_curve::<g1::Config>(fq(&x)?, fq(&y)?);
    Ok(g1_bytes(point(a)? + point(b)?))
}

pub(crate) fn g2_add(a: G2Point, b: G2Point) -> Outcome<[u8; 192]> {
    let point = |(x0, x1, y0, y1): G2Point| on_curve::<g2::Config>(fq2(&x0, &x1)?, fq2(&y0, &y1)?);
    Ok(g2_bytes(point(a)? + point(b)?))
}

pub(crate) fn g1_msm(pairs: &mut dyn Iterator<Item = Outcome<G1PointScalar>>) -> Outcome<[u8; 96]> {
    let terms = pairs.map(|pair| {
        let (point, scalar) = pair?;
        Ok((g1_point(&point)?, Fr::from_be_bytes_mod_order(&scalar)))
    });
    sum_of_multiples(terms).map(g1_bytes)
}

pub(crate) fn g2_msm(
    pairs: &mut dyn Iterator<Item = Outcome<G2PointScalar>>,
) -> Outcome<[u8; 192]> {
    let terms = pairs.map(|pair| {
        let (point, scalar) = pair?;
        Ok((g2_point(&point)?, Fr::from_be_bytes_mod_order(&scalar)))
    });
    sum_of_multiples(terms).map(g2_bytes)
}

/// Whether the product of the pairings is one.
pub(crate) fn pairing_check(pairs: &[(G1Point, G2Point)]) -> Outcome<bool> {
    let points: Vec<_> = pairs
        .iter()
        .map(|(g1, g2)| Ok((g1_point(g1)?, g2_point(g2)?)))
        .collect::<Outcome<_>>()?;
    let (g1, g2): (Vec<_>, Vec<_>) = points.into_iter().unzip();
    Ok(Bls12_381::multi_pairing(g1, g2).0.is_one())
}

pub(crate) fn fp_to_g1(fp: &[u8; 48]) -> Outcome<[u8; 96]> {
    map_to_curve::<g1::Config>(fq(fp)?).map(g1_bytes)
}

pub(crate) fn fp2_to_g2(fp2: &([u8; 48], [u8; 48])) -> Outcome<[u8; 192]> {
    let (c0, c1) = fp2;
    map_to_curve::<g2::Config>(fq2(c0, c1)?).map(g2_bytes)
}

fn g1_point(point: &G1Point) -> Outcome<Affine<g1::Config>> {
    let (x, y) = point;
    in_subgroup(
        on_curve(fq(x)?, fq(y)?)?,
        PrecompileHalt::Bls12381G1NotInSubgroup,
    )
}

fn g2_point(point: &G2Point) -> Outcome<Affine<g2::Config>> {
    let (x0, x1, y0, y1) = point;
    in_subgroup(
        on_curve(fq2(x0, x1)?, fq2(y0, y1)?)?,
        PrecompileHalt::Bls12381G2NotInSubgroup,
    )
}

fn on_curve<C: SWCurveConfig>(x: C::BaseField, y: C::BaseField) -> Outcome<Affine<C>> {
    if x.is_zero() && y.is_zero() {
        return Ok(Affine::identity());
    }
    Some(Affine::new_unchecked(x, y))
        .filter(Affine::is_on_curve)
        .ok_or(PrecompileHalt::Bls12381G1NotOnCurve)
}

fn in_subgroup<C: SWCurveConfig>(point: Affine<C>, halt: PrecompileHalt) -> Outcome<Affine<C>> {
    Some(point)
        .filter(Affine::is_in_correct_subgroup_assuming_on_curve)
        .ok_or(halt)
}

fn sum_of_multiples<C: SWCurveConfig<ScalarField = Fr>>(
    terms: impl Iterator<Item = Outcome<(Affine<C>, Fr)>>,
) -> Outcome<Projective<C>> {
    let terms: Vec<_> = terms.collect::<Outcome<_>>()?;
    let (points, scalars): (Vec<_>, Vec<_>) = terms.into_iter().unzip();
    Ok(Projective::msm_unchecked(&points, &scalars))
}

fn map_to_curve<C: WBConfig>(element: C::BaseField) -> Outcome<Projective<C>> {
    let point = WBMap::<C>::map_to_curve(element)
        .map_err(|_| PrecompileHalt::other_static("no point of the curve"))?;
    // By the factor that the EIP gives, which is not the cofactor itself.
    Ok(point.clear_cofactor().into())
}

/// A field element of 48 bytes, big-endian.
fn fq(bytes: &[u8; 48]) -> Outcome<Fq> {
    Fq::from_bigint(BigInt::new(limbs(bytes))).ok_or(PrecompileHalt::NonCanonicalFp)
}

fn fq2(c0: &[u8; 48], c1: &[u8; 48]) -> Outcome<Fq2> {
    Ok(Fq2::new(fq(c0)?, fq(c1)?))
}

fn g1_bytes(point: Projective<g1::Config>) -> [u8; 96] {
    let mut out = [0; 96];
    if let Some((x, y)) = point.into_affine().xy() {
        put(&mut out, &[x, y]);
    }
    out
}

fn g2_bytes(point: Projective<g2::Config>) -> [u8; 192] {
    let mut out = [0; 192];
    if let Some((x, y)) = point.into_affine().xy() {
        put(&mut out, &[x.c0, x.c1, y.c0, y.c1]);
    }
    out
}

fn put(out: &mut [u8], elements: &[Fq]) {
    for (place, element) in out.chunks_exact_mut(48).zip(elements) {
        place.copy_from_slice(&element.into_bigint().to_bytes_be());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::keccak256;
    use revm_precompile::Crypto;

    /// The stock implementation: with the feature `native`, blst.
    #[derive(Debug)]
    struct Stock;
    impl Crypto for Stock {}

    /// An element below the order of the field, another one for each `n`.
    fn element(n: u64) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..32].copy_from_slice(keccak256(n.to_be_bytes()).as_slice());
        bytes[0] &= 0x0f;
        bytes
    }

    fn g1(n: u64) -> G1Point {
        let bytes = fp_to_g1(&element(n)).unwrap();
        let (x, y) = bytes.split_at(48);
        (x.try_into().unwrap(), y.try_into().unwrap())
    }

    fn g2(n: u64) -> G2Point {
        let bytes = fp2_to_g2(&(element(n), element(n + 1))).unwrap();
        let part = |at: usize| bytes[48 * at..48 * (at + 1)].try_into().unwrap();
        (part(0), part(1), part(2), part(3))
    }

    #[test]
    fn the_stock_library_gives_the_same_for_valid_points() {
        let scalar = |n: u64| keccak256([n.to_be_bytes(), [7; 8]].concat()).0;
        for n in 0..20 {
            assert_eq!(fp_to_g1(&element(n)), Stock.bls12_381_fp_to_g1(&element(n)));
            let fp2 = (element(n), element(n + 1));
            assert_eq!(fp2_to_g2(&fp2), Stock.bls12_381_fp2_to_g2(fp2));
            assert_eq!(
                g1_add(g1(n), g1(n + 1)),
                Stock.bls12_381_g1_add(g1(n), g1(n + 1))
            );
            assert_eq!(
                g2_add(g2(n), g2(n + 1)),
                Stock.bls12_381_g2_add(g2(n), g2(n + 1))
            );
            let infinity = (g1(n), ([0; 48], [0; 48]));
            let terms = [
                (infinity.0, scalar(n)),
                (infinity.1, scalar(1)),
                (g1(n + 1), [0; 32]),
            ];
            for count in 0..=3 {
                assert_eq!(
                    g1_msm(&mut terms[..count].iter().map(|term| Ok(*term))),
                    Stock.bls12_381_g1_msm(&mut terms[..count].iter().map(|term| Ok(*term)))
                );
            }
            let terms = [(g2(n), scalar(n)), (g2(n + 1), scalar(n + 9))];
            assert_eq!(
                g2_msm(&mut terms.iter().map(|term| Ok(*term))),
                Stock.bls12_381_g2_msm(&mut terms.iter().map(|term| Ok(*term)))
            );
        }
        let pairs = [(g1(1), g2(2)), (g1(3), g2(4))];
        assert_eq!(pairing_check(&pairs), Ok(false));
        assert_eq!(Stock.bls12_381_pairing_check(&pairs), Ok(false));
        assert_eq!(pairing_check(&[]), Ok(true));
    }

    #[test]
    fn points_off_the_curve_or_outside_the_subgroup_are_refused() {
        let (x, _) = g1(1);
        assert!(g1_add((x, element(5)), g1(2)).is_err());
        assert!(Stock.bls12_381_g1_add((x, element(5)), g1(2)).is_err());
        assert!(g1_add(([0xff; 48], x), g1(2)).is_err());
        assert!(fp_to_g1(&[0xff; 48]).is_err());
        // (0, 2) is on the curve, in another subgroup: fit to be added, not to be multiplied.
        let mut two = [0; 48];
        two[47] = 2;
        let outside = ([0; 48], two);
        assert_eq!(
            g1_add(outside, g1(2)),
            Stock.bls12_381_g1_add(outside, g1(2))
        );
        let term = || Ok((outside, [1; 32]));
        assert!(g1_msm(&mut [term()].into_iter()).is_err());
        assert!(Stock.bls12_381_g1_msm(&mut [term()].into_iter()).is_err());
        assert!(pairing_check(&[(outside, g2(1))]).is_err());
    }
}
