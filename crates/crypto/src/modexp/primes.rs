//! Inverses that are written as powers: the power by two less than a prime is the inverse (Fermat). Nearly all calls on
//! mainnet are of this kind, from verifiers of proofs, modulo a few primes. An inverse takes a sixth of the time of
//! the power.

use super::limbs::remainder;
use alloy_primitives::{U256, uint};

uint! {
/// Moduli that are known to be prime, on which the result depends.
const PRIMES: [U256; 8] = [
    // bn254: scalars, coordinates.
    0x30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001_U256,
    0x30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47_U256,
    // BLS12-381: scalars.
    0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001_U256,
    // secp256k1: scalars, coordinates.
    0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256,
    0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f_U256,
    // P-256: scalars, coordinates.
    0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551_U256,
    0xffffffff00000001000000000000000000000000ffffffffffffffffffffffff_U256,
    // Curve25519: coordinates.
    0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed_U256,
];
}

/// `base ^ exponent`, if `modulus` is one of the primes and `exponent` is two less.
pub(super) fn inverse(base: &[u64], exponent: &[u8], modulus: &[u64]) -> Option<Vec<u64>> {
    let limbs: [u64; 4] = modulus.try_into().ok()?;
    let exponent = U256::try_from_be_slice(exponent)?;
    let prime = U256::from_limbs(limbs);
    if prime.wrapping_sub(exponent) != U256::from(2) || !PRIMES.contains(&prime) {
        return None;
    }
    let base = U256::from_limbs_slice(&remainder(base, 0, modulus));
    // Zero has no inverse; its power is zero.
    Some(base.inv_mod(prime).unwrap_or_default().as_limbs().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modexp::narrow;

    /// By Fermat for bases that no prime of the table was chosen for, and by powers of any number.
    #[test]
    fn the_inverse_is_the_power_for_every_prime_of_the_table() {
        for prime in PRIMES {
            let exponent: [u8; 32] = (prime - U256::from(2)).to_be_bytes();
            for n in 0..50_u64 {
                let base = U256::from_be_bytes(alloy_primitives::keccak256(n.to_be_bytes()).0);
                let base = if n < 5 { prime + U256::from(n) } else { base };
                let (base, modulus) = (base.as_limbs(), prime.as_limbs());
                let power = narrow::power::<4>(base, &exponent, modulus);
                assert_eq!(inverse(base, &exponent, modulus), Some(power));
            }
        }
    }

    #[test]
    fn other_exponents_and_moduli_are_left_alone() {
        let prime = PRIMES[0];
        let other = prime - U256::from(3);
        let of = |exponent: U256, modulus: U256| {
            inverse(&[5], &exponent.to_be_bytes::<32>(), modulus.as_limbs())
        };
        assert_eq!(of(other, prime), None);
        assert_eq!(of(prime - U256::from(4), prime - U256::from(2)), None);
        assert_eq!(inverse(&[5], &[5], &[7]), None);
    }
}
