//! Points of G2, prepared for pairings: the lines of their Miller loops.
//!
//! Whether a point is in the group, and its lines, depend on its bytes alone, so they are cached by them, because the
//! verifying keys of contracts recur: up to 256 points of 20 kB each. There is a young and an old generation, and the
//! old one is dropped when the young one is full.

use super::{Fq, Outcome, fq};
use alloy_primitives::map::HashMap;
use ark_bn254::{Config, Fq2, G2Affine, G2Projective, g2};
use ark_ec::bn::{BnConfig, G2Prepared};
use ark_ec::short_weierstrass::SWCurveConfig;
use ark_ec::{AdditiveGroup, AffineRepr};
use ark_ff::{Field, Zero};
use revm_precompile::PrecompileHalt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Coefficients of a line: of `y`, of `x`, and by itself.
pub(super) type Line = (Fq2, Fq2, Fq2);

/// The lines of a point of the group other than infinity.
pub(super) struct Prepared {
    pub(super) lines: Vec<Line>,
}

/// Points of one generation at most.
const GENERATION: usize = 128;

type Points = HashMap<[u8; 128], Arc<Prepared>>;

#[derive(Default)]
struct PointCache {
    young: Points,
    old: Points,
}

static CACHE: LazyLock<Mutex<PointCache>> = LazyLock::new(Mutex::default);

/// A thread that panicked between two map operations leaves both maps usable.
fn cache() -> std::sync::MutexGuard<'static, PointCache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PointCache {
    fn get(&mut self, bytes: &[u8; 128]) -> Option<Arc<Prepared>> {
        if let Some(point) = self.young.get(bytes) {
            return Some(point.clone());
        }
        let point = self.old.remove(bytes)?;
        self.insert(*bytes, point.clone());
        Some(point)
    }

    fn insert(&mut self, bytes: [u8; 128], point: Arc<Prepared>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(bytes, point);
    }
}

/// Drops all cached points.
pub(crate) fn forget() {
    *cache() = PointCache::default();
}

/// The lines of a point of 128 bytes; none for the point at infinity.
pub(super) fn prepared(bytes: &[u8]) -> Outcome<Option<Arc<Prepared>>> {
    let bytes: [u8; 128] = bytes
        .try_into()
        .map_err(|_| PrecompileHalt::Bn254PairLength)?;
    let cached = cache().get(&bytes);
    if cached.is_some() {
        return Ok(cached);
    }
    let point = g2_point(&bytes)?;
    if point.is_zero() {
        return Ok(None);
    }
    let lines = G2Prepared::<Config>::from(point).ell_coeffs;
    let point = Arc::new(Prepared { lines });
    cache().insert(bytes, point.clone());
    Ok(Some(point))
}

fn g2_point(bytes: &[u8; 128]) -> Outcome<G2Affine> {
    // The imaginary part comes first.
    let element = |at: usize| -> Outcome<Fq2> {
        let c1: Fq = fq(&bytes[at..at + 32])?;
        Ok(Fq2::new(fq(&bytes[at + 32..at + 64])?, c1))
    };
    let (x, y) = (element(0)?, element(64)?);
    if x.is_zero() && y.is_zero() {
        return Ok(G2Affine::zero());
    }
    let point = G2Affine::new_unchecked(x, y);
    if y.square() == x.square() * x + g2::Config::COEFF_B && is_in_group(&point) {
        Ok(point)
    } else {
        Err(PrecompileHalt::Bn254AffineGFailedToCreate)
    }
}

/// Whether a point of the curve is in the group, with half of the doublings that arkworks needs.
///
/// Where `psi` is the twisted Frobenius and `u` the curve's parameter, a point is of the group if and only if
/// `[u + 1] P + psi([u] P) + psi^2([u] P) = psi^3([2 u] P)`: El Housni, Guillevic and Piellard, "Co-factor clearing
/// and subgroup membership testing on pairing-friendly curves", eprint 2022/352, for bn254.
pub(super) fn is_in_group(point: &G2Affine) -> bool {
    let multiple = point.mul_bigint(Config::X);
    let first = psi(multiple);
    let second = psi(first);
    let third = psi(second.double());
    multiple + point + first + second == third
}

fn psi(point: G2Projective) -> G2Projective {
    let image = |mut element: Fq2| {
        element.frobenius_map_in_place(1);
        element
    };
    G2Projective::new_unchecked(
        image(point.x) * Config::TWIST_MUL_BY_Q_X,
        image(point.y) * Config::TWIST_MUL_BY_Q_Y,
        image(point.z),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_unused_for_a_generation_are_evicted() {
        let mut cache = PointCache::default();
        let key = |n: u32| -> [u8; 128] {
            let bytes = n.to_be_bytes().repeat(32);
            bytes.try_into().expect("128 bytes")
        };
        for n in 0..1_000 {
            cache.insert(key(n), Arc::new(Prepared { lines: vec![] }));
            assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION);
            assert!(cache.get(&key(0)).is_some());
        }
        assert!(cache.get(&key(999)).is_some());
        assert!(cache.get(&key(1)).is_none());
    }
}
