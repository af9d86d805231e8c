//! secp256k1 between peers: public keys, shared secrets, and the key behind a signature.
//!
//! A public key is 64 bytes, both coordinates big-endian, as the peer-to-peer protocols write it. The native library
//! computes where it is installed, the pure one elsewhere; both give the same bytes.

use crate::{SignatureError, provider};
use alloy_primitives::{B256, B512};
use k256::elliptic_curve::sec1::{FromEncodedPoint, ToEncodedPoint};
use k256::{AffinePoint, EncodedPoint, ProjectivePoint, SecretKey};

/// No key of secp256k1: zero or not below the group order, or a point that is not on the curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key of secp256k1")]
pub struct KeyError;

/// The public key of a secret one.
///
/// # Errors
/// [`KeyError`] if the secret is zero or not below the group order.
pub fn public_key(secret_key: &B256) -> Result<B512, KeyError> {
    #[cfg(feature = "native")]
    if provider::is_fast(provider::SECP256K1) {
        return native::public_key(secret_key).ok_or(KeyError);
    }
    pure_public_key(secret_key)
}

pub(crate) fn pure_public_key(secret_key: &B256) -> Result<B512, KeyError> {
    let secret_key = SecretKey::from_slice(secret_key.as_slice()).map_err(|_| KeyError)?;
    Ok(to_bytes(secret_key.public_key().as_affine()))
}

/// The secret that two keys share (ECDH): the first coordinate of the product, big-endian, not hashed.
///
/// # Errors
/// [`KeyError`] if either is not a key.
///
/// Spec: devp2p `rlpx.md`, `ecdh.agree`.
pub fn shared_secret(secret_key: &B256, public_key: &B512) -> Result<B256, KeyError> {
    #[cfg(feature = "native")]
    if provider::is_fast(provider::SECP256K1) {
        return native::shared_secret(secret_key, public_key).ok_or(KeyError);
    }
    pure_shared_secret(secret_key, public_key)
}

/// The public key that made `signature`: r, s and the parity of the point's second coordinate (0 or 1).
///
/// # Errors
/// [`SignatureError`] if no key did.
pub fn recover_public_key(hash: &B256, signature: &[u8; 65]) -> Result<B512, SignatureError> {
    #[cfg(feature = "native")]
    if provider::is_fast(provider::SECP256K1) {
        return native::recover(hash, signature).ok_or(SignatureError);
    }
    pure_recover(hash, signature).ok_or(SignatureError)
}

fn to_bytes(point: &AffinePoint) -> B512 {
    // The first byte says that both coordinates follow.
    B512::from_slice(&point.to_encoded_point(false).as_bytes()[1..])
}

fn pure_shared_secret(secret_key: &B256, public_key: &B512) -> Result<B256, KeyError> {
    let secret_key = SecretKey::from_slice(secret_key.as_slice()).map_err(|_| KeyError)?;
    let encoded = EncodedPoint::from_untagged_bytes(&public_key.0.into());
    let point = Option::<AffinePoint>::from(AffinePoint::from_encoded_point(&encoded));
    let product = ProjectivePoint::from(point.ok_or(KeyError)?) * *secret_key.to_nonzero_scalar();
    Ok(B256::from_slice(&to_bytes(&product.to_affine())[..32]))
}

fn pure_recover(hash: &B256, signature: &[u8; 65]) -> Option<B512> {
    use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
    let mut id = RecoveryId::from_byte(signature[64]).filter(|id| !id.is_x_reduced())?;
    let mut compact = Signature::from_slice(&signature[..64]).ok()?;
    if let Some(low) = compact.normalize_s() {
        compact = low;
        id = RecoveryId::new(!id.is_y_odd(), false);
    }
    let key = VerifyingKey::recover_from_prehash(hash.as_slice(), &compact, id).ok()?;
    Some(to_bytes(key.as_affine()))
}

#[cfg(feature = "native")]
mod native {
    use alloy_primitives::{B256, B512};
    use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
    use secp256k1::{Message, PublicKey, SecretKey, ecdh::shared_secret_point};

    pub(super) fn public_key(secret_key: &B256) -> Option<B512> {
        let secret_key = SecretKey::from_secret_bytes(secret_key.0).ok()?;
        let public_key = PublicKey::from_secret_key(&secret_key);
        Some(B512::from_slice(&public_key.serialize_uncompressed()[1..]))
    }

    pub(super) fn shared_secret(secret_key: &B256, public_key: &B512) -> Option<B256> {
        let secret_key = SecretKey::from_secret_bytes(secret_key.0).ok()?;
        let mut encoded = [4; 65];
        encoded[1..].copy_from_slice(public_key.as_slice());
        let point = PublicKey::from_byte_array_uncompressed(encoded).ok()?;
        Some(B256::from_slice(
            &shared_secret_point(&point, &secret_key)[..32],
        ))
    }

    pub(super) fn recover(hash: &B256, signature: &[u8; 65]) -> Option<B512> {
        let id = RecoveryId::try_from(i32::from(signature[64] & 1)).ok()?;
        let id = (signature[64] < 2).then_some(id)?;
        let signature = RecoverableSignature::from_compact(&signature[..64], id).ok()?;
        let key = signature.recover(Message::from_digest(hash.0)).ok()?;
        Some(B512::from_slice(&key.serialize_uncompressed()[1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{address_of_secret_key, sign};
    use alloy_primitives::{Address, U256, b256};

    fn signature(hash: &B256, key: &B256) -> [u8; 65] {
        let (r, s, is_odd) = sign(hash, key).unwrap();
        let mut bytes = [0; 65];
        bytes[..32].copy_from_slice(&r.to_be_bytes::<32>());
        bytes[32..64].copy_from_slice(&s.to_be_bytes::<32>());
        bytes[64] = u8::from(is_odd);
        bytes
    }

    #[test]
    fn the_key_behind_a_signature_is_the_signers() {
        for n in 1..20_u8 {
            let (hash, key) = (B256::repeat_byte(n), B256::repeat_byte(100 + n));
            let public = public_key(&key).unwrap();
            assert_eq!(pure_public_key(&key), Ok(public));
            let address = Address::from_raw_public_key(public.as_slice());
            assert_eq!(Ok(address), address_of_secret_key(&key));
            let signature = signature(&hash, &key);
            assert_eq!(recover_public_key(&hash, &signature), Ok(public));
            assert_eq!(pure_recover(&hash, &signature), Some(public));
            // The same signature with s above half of the order has the other parity.
            let order = U256::from_be_bytes(
                b256!("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141").0,
            );
            let mut high = signature;
            let s = order - U256::from_be_slice(&signature[32..64]);
            high[32..64].copy_from_slice(&s.to_be_bytes::<32>());
            high[64] ^= 1;
            assert_eq!(pure_recover(&hash, &high), Some(public));
            assert_eq!(recover_public_key(&hash, &high), Ok(public));
        }
    }

    #[test]
    fn two_keys_share_one_secret_whichever_library_computes_it() {
        let keys = [B256::repeat_byte(3), B256::repeat_byte(7)];
        let [a, b] = keys.map(|key| public_key(&key).unwrap());
        let secret = shared_secret(&keys[0], &b).unwrap();
        assert_eq!(shared_secret(&keys[1], &a), Ok(secret));
        assert_eq!(pure_shared_secret(&keys[0], &b), Ok(secret));
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        let good = B256::repeat_byte(9);
        for bad in [B256::ZERO, B256::repeat_byte(0xff)] {
            assert_eq!(public_key(&bad), Err(KeyError));
            assert_eq!(
                shared_secret(&bad, &public_key(&good).unwrap()),
                Err(KeyError)
            );
        }
        for bad in [B512::ZERO, B512::repeat_byte(0xff), B512::repeat_byte(1)] {
            assert_eq!(shared_secret(&good, &bad), Err(KeyError));
            assert_eq!(pure_shared_secret(&good, &bad), Err(KeyError));
        }
        let mut bytes = signature(&good, &good);
        bytes[64] = 2;
        assert_eq!(recover_public_key(&good, &bytes), Err(SignatureError));
        assert_eq!(pure_recover(&good, &bytes), None);
        assert_eq!(recover_public_key(&good, &[0; 65]), Err(SignatureError));
    }
}
