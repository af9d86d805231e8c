//! secp256k1: the sender of a transaction from its signature, and signatures of node and test keys.

use crate::provider;
use alloy_primitives::{Address, B256, U256};
use k256::ecdsa::SigningKey;

/// No public key belongs to this signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no public key can be recovered from the signature")]
pub struct SignatureError;

/// The address whose key made the signature (`r`, `s`, `y_parity`) over `hash`.
///
/// Any `s` below the group order is accepted: whether high values are allowed is a rule of the
/// fork, not of the curve. About 30 us native, 170 us pure.
///
/// # Errors
/// [`SignatureError`] if `r` or `s` is zero or not below the group order, or no point matches.
///
/// Spec: Yellow Paper appendix F; execution-specs `crypto/elliptic_curve.py`.
pub fn recover_signer(
    hash: &B256,
    r: &U256,
    s: &U256,
    y_parity: bool,
) -> Result<Address, SignatureError> {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&r.to_be_bytes::<32>());
    signature[32..].copy_from_slice(&s.to_be_bytes::<32>());
    let padded = provider::ecrecover(&signature, u8::from(y_parity), &hash.0)?;
    Ok(Address::from_slice(&padded[12..]))
}

/// A hash and a signature over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What was signed.
    pub hash: B256,
    /// First coordinate of the signature's point, modulo the group order.
    pub r: U256,
    /// The signature's other half.
    pub s: U256,
    /// Whether the point's second coordinate is odd.
    pub y_parity: bool,
}

/// The signers of many signatures: what [`recover_signer`] says of each, in their order. A dozen or more
/// take less than two thirds as long together where the processor has AVX2.
pub fn recover_signers(signed: &[Signed]) -> Vec<Result<Address, SignatureError>> {
    #[cfg(target_arch = "x86_64")]
    let signers = match provider::is_fast(provider::SECP256K1) {
        true => crate::recovery::signers(signed),
        false => vec![None; signed.len()],
    };
    #[cfg(not(target_arch = "x86_64"))]
    let signers = vec![None; signed.len()];
    let both = signed.iter().zip(signers);
    let each = both.map(|(signed, signer)| match signer {
        Some(signer) => Ok(signer),
        None => recover_signer(&signed.hash, &signed.r, &signed.s, signed.y_parity),
    });
    each.collect()
}

/// The address of a secret key (32 bytes, big-endian), for tests and development networks.
///
/// # Errors
/// [`SignatureError`] if the key is zero or not below the group order.
pub fn address_of_secret_key(secret_key: &B256) -> Result<Address, SignatureError> {
    let public_key = crate::public_key(secret_key).map_err(|_| SignatureError)?;
    Ok(Address::from_raw_public_key(public_key.as_slice()))
}

/// A signature over `hash` as (`r`, `s`, `y_parity`), the same one every time (RFC 6979), with `s`
/// in the lower half as EIP-2 asks. For the key of a node, tests and development networks: no key of
/// an account with value belongs in this process.
///
/// # Errors
/// [`SignatureError`] if the key is zero or not below the group order.
pub fn sign(hash: &B256, secret_key: &B256) -> Result<(U256, U256, bool), SignatureError> {
    #[cfg(feature = "native")]
    if provider::is_fast(provider::SECP256K1) {
        return native_sign(hash, secret_key).ok_or(SignatureError);
    }
    pure_sign(hash, secret_key).ok_or(SignatureError)
}

pub(crate) fn pure_sign(hash: &B256, secret_key: &B256) -> Option<(U256, U256, bool)> {
    let key = SigningKey::from_slice(secret_key.as_slice()).ok()?;
    let (signature, recovery) = key.sign_prehash_recoverable(hash.as_slice()).ok()?;
    let (r, s) = signature.split_bytes();
    let [r, s] = [r, s].map(|half| U256::from_be_slice(&half));
    Some((r, s, recovery.is_y_odd()))
}

#[cfg(feature = "native")]
fn native_sign(hash: &B256, secret_key: &B256) -> Option<(U256, U256, bool)> {
    use secp256k1::{Message, SecretKey, ecdsa::RecoverableSignature};
    let key = SecretKey::from_secret_bytes(secret_key.0).ok()?;
    let signature =
        RecoverableSignature::sign_ecdsa_recoverable(Message::from_digest(hash.0), &key);
    let (id, bytes) = signature.serialize_compact();
    let [r, s] = [&bytes[..32], &bytes[32..]].map(U256::from_be_slice);
    Some((r, s, id.to_u8() & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{address, b256};

    #[test]
    fn a_secret_key_gives_its_address() {
        let key = b256!("45a915e4d060149eb4365960e6a7a45f334393093061116b197e3240065ff2d8");
        assert_eq!(
            address_of_secret_key(&key),
            Ok(address!("a94f5374fce5edbc8e2a8697c15331677e6ebf0b"))
        );
        assert_eq!(address_of_secret_key(&B256::ZERO), Err(SignatureError));
    }

    #[test]
    fn a_signature_recovers_to_its_signer_and_has_a_low_s() {
        let half = U256::from_be_bytes(
            b256!("7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0").0,
        );
        for n in 1..50_u8 {
            let (hash, key) = (B256::repeat_byte(n), B256::repeat_byte(200 - n));
            let (r, s, y_parity) = sign(&hash, &key).unwrap();
            assert!(s <= half);
            assert_eq!(pure_sign(&hash, &key), Some((r, s, y_parity)));
            assert_eq!(
                recover_signer(&hash, &r, &s, y_parity),
                address_of_secret_key(&key)
            );
        }
        assert_eq!(sign(&B256::ZERO, &B256::ZERO), Err(SignatureError));
        assert_eq!(
            sign(&B256::ZERO, &B256::repeat_byte(0xff)),
            Err(SignatureError)
        );
    }

    #[test]
    fn zero_and_oversized_signature_values_are_refused() {
        let hash = B256::repeat_byte(7);
        for (r, s) in [(0, 1), (1, 0)] {
            let refused = recover_signer(&hash, &U256::from(r), &U256::from(s), false);
            assert_eq!(refused, Err(SignatureError));
        }
        assert_eq!(
            recover_signer(&hash, &U256::MAX, &U256::from(1), true),
            Err(SignatureError)
        );
    }
}
