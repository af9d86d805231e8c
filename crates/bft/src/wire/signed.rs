//! Payloads with their signatures.
//!
//! ```text
//! [payload, signature]      signature: r, s and 0 or 1, of the hash of
//!                             QBFT       rlp([code, payload])
//!                             IBFT 2.0   code | rlp(payload)
//! ```
//!
//! The bytes stay as they came: they are what is signed, and what is shown to others.

use super::Kind;
use super::fields::{Fields, ReadError, item, list};
use niwaki_crypto::{keccak256, sign};
use niwaki_primitives::{Address, B256, Bytes};
use niwaki_rules::{BftProtocol, Seal, recover_seal};

/// No key can sign with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key of secp256k1")]
pub struct KeyError;

/// A payload, who signed it, and the bytes of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<P> {
    /// What was signed.
    pub payload: P,
    author: Address,
    bytes: Bytes,
}

impl<P> Signed<P> {
    /// Reads an item `[payload, signature]`.
    pub(super) fn read<'a>(
        protocol: BftProtocol,
        kind: Kind,
        bytes: &'a [u8],
        read: impl FnOnce(Fields<'a>) -> Result<P, ReadError>,
    ) -> Result<Self, ReadError> {
        let mut fields = Fields::of(bytes)?;
        let payload = fields.raw()?;
        let signature: Seal = fields.item()?;
        fields.end()?;
        let author = recover_seal(&signed_hash(protocol, kind, payload), &signature)?;
        Ok(Self {
            payload: read(Fields::of(payload)?)?,
            author,
            bytes: Bytes::copy_from_slice(bytes),
        })
    }

    /// Signs a payload, whose RLP is `encoded`.
    ///
    /// # Errors
    /// [`KeyError`] if the key is none.
    pub(super) fn sign(
        protocol: BftProtocol,
        kind: Kind,
        payload: P,
        encoded: &[u8],
        key: &B256,
    ) -> Result<Self, KeyError> {
        let signature = seal(&signed_hash(protocol, kind, encoded), key)?;
        let author = niwaki_crypto::address_of_secret_key(key);
        Ok(Self {
            payload,
            author: author.map_err(|_| KeyError)?,
            bytes: list([encoded, &item(&signature)]).into(),
        })
    }

    /// Who signed it.
    pub fn author(&self) -> Address {
        self.author
    }

    /// The RLP of payload and signature, as it came.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// Who signed an item `[payload, signature]`.
pub(super) fn read_author(
    protocol: BftProtocol,
    kind: Kind,
    bytes: &[u8],
) -> Result<Address, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let payload = fields.raw()?;
    let signature: Seal = fields.item()?;
    fields.end()?;
    let hash = signed_hash(protocol, kind, payload);
    Ok(recover_seal(&hash, &signature)?)
}

fn signed_hash(protocol: BftProtocol, kind: Kind, payload: &[u8]) -> B256 {
    let code = kind.code(protocol);
    keccak256(match protocol {
        BftProtocol::Qbft => list([&item(&code)[..], payload]),
        BftProtocol::Ibft2 => [&[code], payload].concat(),
    })
}

/// A signature of a hash.
///
/// # Errors
/// [`KeyError`] if the key is none.
pub(super) fn seal(hash: &B256, key: &B256) -> Result<Seal, KeyError> {
    let (r, s, y_parity) = sign(hash, key).map_err(|_| KeyError)?;
    let mut seal = [u8::from(y_parity); 65];
    seal[..32].copy_from_slice(&r.to_be_bytes::<32>());
    seal[32..64].copy_from_slice(&s.to_be_bytes::<32>());
    Ok(seal)
}
