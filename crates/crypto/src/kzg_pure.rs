//! KZG proofs of blobs in pure Rust, as far as they are verified; making them is left to the
//! native library. Cells are computed, too.
//!
//! Spec: consensus-specs `deneb/polynomial-commitments.md` and
//! `fulu/polynomial-commitments-sampling.md`.

use crate::kzg::{Blob, CELLS_PER_EXT_BLOB, Cell, KzgError, KzgPoint};
use crate::kzg_setup::{G1_MONOMIAL, G2_TAU_64};
use crate::provider::pure_kzg;
use crate::sha256;
use alloy_primitives::hex;
use ark_bls12_381::{Bls12_381, Fq, Fq2, Fr, g1, g2};
use ark_ec::pairing::Pairing;
use ark_ec::short_weierstrass::{Affine, Projective};
use ark_ec::{AffineRepr, CurveGroup, VariableBaseMSM};
use ark_ff::{BigInt, BigInteger, FftField, Field, One, PrimeField, Zero, batch_inversion};
use std::sync::OnceLock;

type G1 = Affine<g1::Config>;
type G2 = Affine<g2::Config>;

const ELEMENTS_PER_BLOB: usize = 4_096;
const ELEMENTS_PER_CELL: usize = 64;
const CHALLENGE_DOMAIN: &[u8] = b"FSBLOBVERIFY_V1_";

/// As [`crate::verify_blob_proofs`], counts checked.
pub(crate) fn verify_blob_proofs(
    blobs: &[Blob],
    commitments: &[KzgPoint],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    for ((blob, commitment), proof) in blobs.iter().zip(commitments).zip(proofs) {
        let evaluations = elements(blob.as_slice())?;
        for point in [commitment, proof] {
            let _point = g1_point(point)?;
        }
        let z = challenge(blob, commitment);
        let y = evaluate(&evaluations, z)?;
        let (z, y) = (scalar_bytes(&z), scalar_bytes(&y));
        if !pure_kzg(&commitment.0, &z, &y, &proof.0) {
            return Err(KzgError::Mismatch);
        }
    }
    Ok(())
}

/// As [`crate::verify_cell_proofs`], counts checked.
///
/// A cell is the blob's polynomial on a coset `h * roots`; its proof opens the polynomial to its
/// remainder modulo `x^64 - h^64`. All cells of a blob are checked at once, each times a power of
/// a number that depends on everything given.
pub(crate) fn verify_cell_proofs(
    blobs: &[Blob],
    commitments: &[KzgPoint],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    let of_blobs = proofs.chunks(CELLS_PER_EXT_BLOB);
    for ((blob, commitment), proofs) in blobs.iter().zip(commitments).zip(of_blobs) {
        verify_cells_of(blob, commitment, proofs)?;
    }
    Ok(())
}

fn verify_cells_of(
    blob: &Blob,
    commitment: &KzgPoint,
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    let coefficients = interpolated(elements(blob.as_slice())?)?;
    let weight = weight(blob.as_slice(), commitment, proofs);
    let mut openings = Openings::new(commitment, weight)?;
    for (column, proof) in proofs.iter().enumerate() {
        let shift = shift(column)?;
        openings.add(proof, shift, |remainders, weight| {
            add_remainder(remainders, &coefficients, shift, weight);
        })?;
    }
    openings.check()
}

/// As [`crate::verify_cells`], counts and columns checked.
pub(crate) fn verify_cells(
    commitments: &[KzgPoint],
    columns: &[usize],
    cells: &[Cell],
    proofs: &[KzgPoint],
) -> Result<(), KzgError> {
    let count = columns.len().max(1);
    let of_blobs = cells.chunks(count).zip(proofs.chunks(count));
    for (commitment, (cells, proofs)) in commitments.iter().zip(of_blobs) {
        let given: Vec<u8> = cells.iter().flat_map(|cell| cell.0).collect();
        let weight = weight(&given, commitment, proofs);
        let mut openings = Openings::new(commitment, weight)?;
        for ((column, cell), proof) in columns.iter().zip(cells).zip(proofs) {
            let remainder = remainder_of_cell(cell, *column)?;
            openings.add(proof, shift(*column)?, |remainders, weight| {
                let sums = remainders.iter_mut().zip(&remainder);
                sums.for_each(|(sum, own)| *sum += weight * own);
            })?;
        }
        openings.check()?;
    }
    Ok(())
}

/// Openings of one blob's polynomial, each times a power of a weight.
struct Openings {
    commitment: G1,
    weight: Fr,
    /// The weight of the next one, and the sum of those before.
    next: Fr,
    sum: Fr,
    /// The sum of the remainders.
    remainders: Vec<Fr>,
    proofs: Vec<G1>,
    weights: Vec<Fr>,
    shifted: Vec<Fr>,
}

impl Openings {
    fn new(commitment: &KzgPoint, weight: Fr) -> Result<Self, KzgError> {
        Ok(Self {
            commitment: g1_point(commitment)?,
            weight,
            next: Fr::one(),
            sum: Fr::zero(),
            remainders: vec![Fr::zero(); ELEMENTS_PER_CELL],
            proofs: Vec::new(),
            weights: Vec::new(),
            shifted: Vec::new(),
        })
    }

    /// Adds the opening modulo `x^64 - shift`. `add_remainder` adds the remainder times a weight to a sum.
    fn add(
        &mut self,
        proof: &KzgPoint,
        shift: Fr,
        add_remainder: impl FnOnce(&mut [Fr], Fr),
    ) -> Result<(), KzgError> {
        let weight = self.next;
        self.proofs.push(g1_point(proof)?);
        add_remainder(&mut self.remainders, weight);
        self.weights.push(weight);
        self.shifted.push(weight * shift);
        self.sum += weight;
        self.next *= self.weight;
        Ok(())
    }

    fn check(&self) -> Result<(), KzgError> {
        let setup = setup()?;
        let openings = multiples(&self.proofs, &self.weights);
        let left = self.commitment * self.sum - multiples(&setup.g1, &self.remainders)
            + multiples(&self.proofs, &self.shifted);
        let sides = [left.into_affine(), (-openings).into_affine()];
        let product = Bls12_381::multi_pairing(sides, [G2::generator(), setup.tau_64]);
        if product.0.is_one() {
            Ok(())
        } else {
            Err(KzgError::Mismatch)
        }
    }
}

/// `x^64` at the points of a cell.
fn shift(column: usize) -> Result<Fr, KzgError> {
    let root = root_of_unity(CELLS_PER_EXT_BLOB)?;
    Ok(root.pow([reversed(column, CELLS_PER_EXT_BLOB)]))
}

/// The coefficients of the polynomial of degree below 64 that has the values of a cell at its points, which are the roots of unity times
/// one point.
fn remainder_of_cell(cell: &Cell, column: usize) -> Result<Vec<Fr>, KzgError> {
    let mut values = interpolated(elements(cell.as_slice())?)?;
    let root = root_of_unity(2 * ELEMENTS_PER_BLOB)?;
    let point = root.pow([reversed(column, CELLS_PER_EXT_BLOB)]);
    let inverse = point.inverse().ok_or(KzgError::Malformed)?;
    let mut power = Fr::one();
    for value in &mut values {
        *value *= power;
        power *= inverse;
    }
    Ok(values)
}

/// Adds `weight` times the remainder of a polynomial modulo `x^64 - shift`.
fn add_remainder(sum: &mut [Fr], coefficients: &[Fr], shift: Fr, weight: Fr) {
    let mut power = weight;
    for part in coefficients.chunks(ELEMENTS_PER_CELL) {
        for (into, coefficient) in sum.iter_mut().zip(part) {
            *into += power * coefficient;
        }
        power *= shift;
    }
}

/// As [`crate::blob_cells`].
pub(crate) fn blob_cells(blob: &Blob) -> Result<Vec<Cell>, KzgError> {
    let mut values = interpolated(elements(blob.as_slice())?)?;
    values.resize(2 * ELEMENTS_PER_BLOB, Fr::zero());
    let root = root_of_unity(values.len())?;
    transform(&mut values, root);
    reverse_bits(&mut values);
    let cell = |elements: &[Fr]| {
        let bytes: Vec<u8> = elements.iter().flat_map(scalar_bytes).collect();
        Cell::from_slice(&bytes)
    };
    Ok(values.chunks(ELEMENTS_PER_CELL).map(cell).collect())
}

/// The points of the setup, in the form in which they are used.
struct Setup {
    g1: Vec<G1>,
    tau_64: G2,
}

fn setup() -> Result<&'static Setup, KzgError> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    let read = || {
        let point = |text: &&str| g1_point(&hex::decode_to_array(text).ok()?.into()).ok();
        Some(Setup {
            g1: G1_MONOMIAL.iter().map(point).collect::<Option<_>>()?,
            tau_64: g2_point(&hex::decode_to_array(G2_TAU_64).ok()?)?,
        })
    };
    SETUP.get_or_init(read).as_ref().ok_or(KzgError::Malformed)
}

fn multiples(points: &[G1], scalars: &[Fr]) -> Projective<g1::Config> {
    Projective::msm_unchecked(points, scalars)
}

/// The elements of a blob or cell: values of its polynomial at roots of unity in bit-reversed order.
fn elements(bytes: &[u8]) -> Result<Vec<Fr>, KzgError> {
    let chunks = bytes.chunks(32).map(scalar);
    chunks.collect::<Option<_>>().ok_or(KzgError::Malformed)
}

/// The coefficients of the polynomial that has these values at the roots of unity in bit-reversed order.
fn interpolated(mut elements: Vec<Fr>) -> Result<Vec<Fr>, KzgError> {
    reverse_bits(&mut elements);
    let inverse = |x: Fr| x.inverse().ok_or(KzgError::Malformed);
    let root = root_of_unity(elements.len())?;
    transform(&mut elements, inverse(root)?);
    let scale = inverse(Fr::from(elements.len() as u64))?;
    elements.iter_mut().for_each(|x| *x *= scale);
    Ok(elements)
}

/// The value at `z`, by the barycentric formula.
fn evaluate(elements: &[Fr], z: Fr) -> Result<Fr, KzgError> {
    let root = root_of_unity(elements.len())?;
    let mut roots = Vec::with_capacity(elements.len());
    let mut power = Fr::one();
    for _ in elements {
        roots.push(power);
        power *= root;
    }
    reverse_bits(&mut roots);
    if let Some(at) = roots.iter().position(|root| *root == z) {
        return elements.get(at).copied().ok_or(KzgError::Malformed);
    }
    let mut inverses: Vec<Fr> = roots.iter().map(|root| z - root).collect();
    batch_inversion(&mut inverses);
    let terms = elements.iter().zip(&roots).zip(&inverses);
    let sum: Fr = terms
        .map(|((value, root), inverse)| *value * root * inverse)
        .sum();
    let count = Fr::from(ELEMENTS_PER_BLOB as u64);
    let scale = (z.pow([ELEMENTS_PER_BLOB as u64]) - Fr::one()) / count;
    Ok(sum * scale)
}

/// Spec: `compute_challenge`.
fn challenge(blob: &Blob, commitment: &KzgPoint) -> Fr {
    let degree = (ELEMENTS_PER_BLOB as u128).to_be_bytes();
    let parts = [
        CHALLENGE_DOMAIN,
        &degree,
        blob.as_slice(),
        commitment.as_slice(),
    ];
    Fr::from_be_bytes_mod_order(sha256(&parts.concat()).as_slice())
}

/// A number that depends on everything else, so that it can't be chosen first.
fn weight(given: &[u8], commitment: &KzgPoint, proofs: &[KzgPoint]) -> Fr {
    let mut all = [given, commitment.as_slice()].concat();
    proofs
        .iter()
        .for_each(|proof| all.extend_from_slice(proof.as_slice()));
    Fr::from_be_bytes_mod_order(sha256(&all).as_slice())
}

fn root_of_unity(order: usize) -> Result<Fr, KzgError> {
    Fr::get_root_of_unity(order as u64).ok_or(KzgError::Malformed)
}

/// The bits of `index`, which is below the power of two `count`, backwards.
fn reversed(index: usize, count: usize) -> u64 {
    let bits = count.trailing_zeros();
    (index as u64)
        .reverse_bits()
        .checked_shr(u64::BITS - bits)
        .unwrap_or(0)
}

fn reverse_bits(values: &mut [Fr]) {
    let count = values.len();
    for at in 0..count {
        let Ok(other) = usize::try_from(reversed(at, count)) else {
            return;
        };
        if at < other {
            values.swap(at, other);
        }
    }
}

/// The fast Fourier transform: coefficients to values at the powers of `root`, in order.
fn transform(values: &mut [Fr], root: Fr) {
    reverse_bits(values);
    let count = values.len();
    let mut width = 2;
    while width <= count {
        let step = root.pow([(count / width) as u64]);
        for block in values.chunks_mut(width) {
            let (low, high) = block.split_at_mut(width / 2);
            let mut power = Fr::one();
            for (a, b) in low.iter_mut().zip(high) {
                let odd = *b * power;
                (*a, *b) = (*a + odd, *a - odd);
                power *= step;
            }
        }
        width *= 2;
    }
}

fn scalar(bytes: &[u8]) -> Option<Fr> {
    Fr::from_bigint(BigInt::<4>::new(limbs(bytes)))
}

fn scalar_bytes(scalar: &Fr) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(&scalar.into_bigint().to_bytes_be());
    bytes
}

/// Big-endian bytes as limbs, the least first.
pub(crate) fn limbs<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut limbs = [0; N];
    for (limb, bytes) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        *limb = bytes
            .iter()
            .fold(0, |limb, byte| limb << 8 | u64::from(*byte));
    }
    limbs
}

/// A compressed point: flags (compressed, infinite, greater y) in the first three bits.
fn g1_point(bytes: &KzgPoint) -> Result<G1, KzgError> {
    let (infinite, greater, x) = unpack::<48>(&bytes.0).ok_or(KzgError::Malformed)?;
    let point = if infinite {
        (!greater && x == [0; 48]).then(G1::identity)
    } else {
        let x = Fq::from_bigint(BigInt::<6>::new(limbs(&x)));
        x.and_then(|x| G1::get_point_from_x_unchecked(x, greater))
    };
    point
        .filter(G1::is_in_correct_subgroup_assuming_on_curve)
        .ok_or(KzgError::Malformed)
}

/// As [`g1_point`], of a point of the setup.
fn g2_point(bytes: &[u8; 96]) -> Option<G2> {
    let (_, greater, bytes) = unpack::<96>(bytes)?;
    let (c1, c0) = bytes.split_at(48);
    let half = |bytes| Fq::from_bigint(BigInt::<6>::new(limbs(bytes)));
    let x = Fq2::new(half(c0)?, half(c1)?);
    G2::get_point_from_x_unchecked(x, greater)
}

fn unpack<const N: usize>(bytes: &[u8; N]) -> Option<(bool, bool, [u8; N])> {
    let mut x = *bytes;
    let first = x.first_mut()?;
    let flag = |bit: u8| *bytes.first().unwrap_or(&0) & bit != 0;
    *first &= 0x1f;
    flag(0x80).then_some((flag(0x40), flag(0x20), x))
}
