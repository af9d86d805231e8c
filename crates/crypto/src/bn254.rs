//! The curve bn254 for the precompiled contracts 0x06 to 0x08, on the fields of arkworks.
//!
//! Coordinates are big-endian numbers of 32 bytes below the field's order, a point at infinity is all zeros. What
//! differs from arkworks' own algorithms: an addition needs one inverse and no projective point; a multiple is split by
//! the curve's endomorphism and made of signed digits; what a pairing needs of a point of G2 is cached, because the
//! verifying keys of contracts recur.
//!
//! Spec: EIP-196, EIP-197.

mod element;
mod multiple;
mod prepared;
#[cfg(test)]
mod tests;

pub(crate) use prepared::forget;

use alloy_primitives::{U256, uint};
use ark_bn254::{Bn254, Config, Fq, Fq12, G1Affine};
use ark_ec::bn::BnConfig;
use ark_ec::pairing::{MillerLoopOutput, Pairing};
use ark_ec::{AffineRepr, short_weierstrass::SWCurveConfig};
use ark_ff::{AdditiveGroup, BigInt, Field, One, PrimeField, Zero};
use prepared::{Line, Prepared, prepared};
use revm_precompile::PrecompileHalt;
use std::sync::Arc;

type Outcome<T> = Result<T, PrecompileHalt>;

uint! {
/// The order of the field of coordinates.
const FIELD: U256 = 0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47_U256;
/// The order of the group.
const GROUP: U256 = 0x30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001_U256;
}

/// The sum of two points.
pub(crate) fn g1_add(a: &[u8], b: &[u8]) -> Outcome<[u8; 64]> {
    let (a, b) = (g1_point(a)?, g1_point(b)?);
    Ok(g1_bytes(sum(a, b)))
}

/// A point times a number of 32 bytes.
pub(crate) fn g1_mul(point: &[u8], scalar: &[u8]) -> Outcome<[u8; 64]> {
    let point = g1_point(point)?;
    let scalar = U256::from_be_slice(scalar) % GROUP;
    Ok(g1_bytes(multiple::of(point, scalar)))
}

/// Whether the product of the pairings is one.
pub(crate) fn pairing_check(pairs: &[(&[u8], &[u8])]) -> Outcome<bool> {
    let mut factors = Vec::with_capacity(pairs.len());
    for (g1, g2) in pairs {
        let point = g1_point(g1)?;
        if let Some(lines) = prepared(g2)?
            && !point.is_zero()
        {
            factors.push((point, lines));
        }
    }
    if factors.is_empty() {
        return Ok(true);
    }
    let product = Bn254::final_exponentiation(MillerLoopOutput(miller_loop(&factors)));
    Ok(product.is_some_and(|product| product.0.is_one()))
}

/// The loops of all factors in step, so that the squarings are shared.
fn miller_loop(factors: &[(G1Affine, Arc<Prepared>)]) -> Fq12 {
    let mut product = Fq12::one();
    let mut at = 0;
    let mut multiply = |product: &mut Fq12| {
        for (point, prepared) in factors {
            let (c0, c1, c2): Line = prepared.lines[at];
            let (mut by_y, mut by_x) = (c0, c1);
            by_y.mul_assign_by_fp(&point.y);
            by_x.mul_assign_by_fp(&point.x);
            product.mul_by_034(&by_y, &by_x, &c2);
        }
        at += 1;
    };
    for (step, digit) in Config::ATE_LOOP_COUNT.iter().rev().skip(1).enumerate() {
        if step > 0 {
            product.square_in_place();
        }
        multiply(&mut product);
        if *digit != 0 {
            multiply(&mut product);
        }
    }
    multiply(&mut product);
    multiply(&mut product);
    product
}

/// By the chord or the tangent.
fn sum(a: G1Affine, b: G1Affine) -> G1Affine {
    if a.is_zero() {
        return b;
    }
    if b.is_zero() {
        return a;
    }
    let slope = if a.x != b.x {
        (b.y - a.y) * inverse(b.x - a.x)
    } else if a.y == b.y {
        // No point has a zero for `y`, as the order is odd.
        let square = a.x.square();
        (square.double() + square) * inverse(a.y.double())
    } else {
        return G1Affine::zero();
    };
    let x = slope.square() - a.x - b.x;
    G1Affine::new_unchecked(x, slope * (a.x - x) - a.y)
}

/// Of zero it is zero. Lehmer's algorithm, seven times as fast as the field's own.
fn inverse(element: Fq) -> Fq {
    let number = U256::from_limbs(element.into_bigint().0);
    let inverse = number.inv_mod(FIELD).unwrap_or_default();
    Fq::new(BigInt(inverse.into_limbs()))
}

fn g1_point(bytes: &[u8]) -> Outcome<G1Affine> {
    let (x, y) = bytes.split_at(32);
    let (x, y) = (fq(x)?, fq(y)?);
    if x.is_zero() && y.is_zero() {
        return Ok(G1Affine::zero());
    }
    // The whole curve is the group.
    if y.square() == x.square() * x + ark_bn254::g1::Config::COEFF_B {
        Ok(G1Affine::new_unchecked(x, y))
    } else {
        Err(PrecompileHalt::Bn254AffineGFailedToCreate)
    }
}

fn fq(bytes: &[u8]) -> Outcome<Fq> {
    let number = U256::from_be_slice(bytes);
    Fq::from_bigint(BigInt(number.into_limbs())).ok_or(PrecompileHalt::Bn254FieldPointNotAMember)
}

fn g1_bytes(point: G1Affine) -> [u8; 64] {
    let mut bytes = [0; 64];
    if let Some((x, y)) = point.xy() {
        for (place, element) in bytes.chunks_exact_mut(32).zip([x, y]) {
            let number = U256::from_limbs(element.into_bigint().0);
            place.copy_from_slice(&number.to_be_bytes::<32>());
        }
    }
    bytes
}
