//! The keys that sign tokens.
//!
//! RSA, P-256 and P-384 use `ring`, P-521 a pure Rust crate. A public key is read from PEM; the secret of HS256 from
//! PEM or hexadecimal digits.

use crate::server::der::Der;
use crate::server::pem;
use crate::server::x509::Certificate;
use niwaki_primitives::hex;
use p521::ecdsa::signature::Verifier;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::{hmac, signature};
use rsa::RsaPrivateKey;
use rsa::pkcs1::EncodeRsaPrivateKey;
use rsa::rand_core::OsRng;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt;
use std::sync::Arc;

/// Bits of the key that this node generates.
const OWN_KEY_BITS: usize = 2048;

/// The header of a token.
#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) alg: String,
    /// Critical extensions; none is supported.
    pub(super) crit: Option<IgnoredAny>,
}

/// Signature algorithms of tokens (RFC 7518).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAlgorithm {
    /// RSA (PKCS #1 1.5) with SHA-256.
    Rs256,
    /// RSA with SHA-384.
    Rs384,
    /// RSA with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// HMAC with SHA-256 and a shared secret.
    Hs256,
}

impl TokenAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 7] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Hs256,
    ];

    /// Its name in a token.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Hs256 => "HS256",
        }
    }
}

/// A key that verifies tokens.
#[derive(Clone)]
pub struct TokenKey {
    algorithm: TokenAlgorithm,
    key: Key,
}

#[derive(Clone)]
enum Key {
    Public(signature::UnparsedPublicKey<Vec<u8>>),
    P521(Box<p521::ecdsa::VerifyingKey>),
    Secret(Arc<hmac::Key>),
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenKey({})", self.algorithm.name())
    }
}

/// Object identifiers, DER contents.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

impl TokenKey {
    /// Reads the key of `algorithm` from the text of a file.
    ///
    /// # Errors
    /// What is wrong with the text, and what to do about it.
    pub fn parse(text: &str, algorithm: TokenAlgorithm) -> Result<Self, String> {
        let key = match algorithm {
            TokenAlgorithm::Hs256 => Key::Secret(Arc::new(read_secret(text)?)),
            _ => read_public(text, algorithm)?,
        };
        Ok(Self { algorithm, key })
    }

    /// How tokens are signed.
    pub(super) const fn algorithm(&self) -> TokenAlgorithm {
        self.algorithm
    }

    /// Whether `signature` is that of `message`.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::Public(key) => key.verify(message, signature).is_ok(),
            Key::P521(key) => p521::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify(message, &signature).is_ok()),
            Key::Secret(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

/// The public key of a PEM `PUBLIC KEY`, which must fit the algorithm.
fn read_public(text: &str, algorithm: TokenAlgorithm) -> Result<Key, String> {
    let blocks = pem::blocks(text);
    let block = blocks.iter().find(|block| block.label == "PUBLIC KEY");
    let block = block.ok_or_else(|| {
        "no PEM public key: it must begin with -----BEGIN PUBLIC KEY-----; \
         `openssl pkey -in KEY -pubout` writes one"
            .to_owned()
    })?;
    let broken = || "a PEM public key whose contents are damaged".to_owned();
    let PublicKey { kind, curve, bytes } = PublicKey::read(&block.der).ok_or_else(broken)?;
    let (wanted, wanted_curve, name) = match algorithm {
        TokenAlgorithm::Es256 => (EC, Some(P256), "an elliptic-curve key on P-256"),
        TokenAlgorithm::Es384 => (EC, Some(P384), "an elliptic-curve key on P-384"),
        TokenAlgorithm::Es512 => (EC, Some(P521), "an elliptic-curve key on P-521"),
        _ => (RSA, None, "an RSA key"),
    };
    if kind != wanted || wanted_curve.is_some_and(|wanted| curve != Some(wanted)) {
        let algorithm = algorithm.name();
        return Err(format!(
            "a key of another kind: {algorithm} needs {name}; give the algorithm that the tokens \
             are signed with"
        ));
    }
    let ring = |algorithm: &'static dyn signature::VerificationAlgorithm| {
        let key = signature::UnparsedPublicKey::new(algorithm, bytes.to_vec());
        Ok(Key::Public(key))
    };
    match algorithm {
        TokenAlgorithm::Es256 => ring(&signature::ECDSA_P256_SHA256_FIXED),
        TokenAlgorithm::Es384 => ring(&signature::ECDSA_P384_SHA384_FIXED),
        TokenAlgorithm::Es512 => p521::ecdsa::VerifyingKey::from_sec1_bytes(bytes)
            .map(|key| Key::P521(Box::new(key)))
            .map_err(|_| broken()),
        of_rsa => {
            let bits = rsa_bits(bytes).ok_or_else(broken)?;
            if !(2048..=8192).contains(&bits) {
                return Err(format!("an RSA key of {bits} bits: 2048 to 8192 are taken"));
            }
            match of_rsa {
                TokenAlgorithm::Rs384 => ring(&signature::RSA_PKCS1_2048_8192_SHA384),
                TokenAlgorithm::Rs512 => ring(&signature::RSA_PKCS1_2048_8192_SHA512),
                _ => ring(&signature::RSA_PKCS1_2048_8192_SHA256),
            }
        }
    }
}

/// A `SubjectPublicKeyInfo` (RFC 5280).
struct PublicKey<'a> {
    kind: &'a [u8],
    curve: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> PublicKey<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let mut info = Der::new(der).sequence()?;
        let mut algorithm = info.sequence()?;
        Some(Self {
            kind: algorithm.object_id()?,
            curve: algorithm.object_id(),
            bytes: info.bit_string()?,
        })
    }
}

/// Bits of the modulus of an `RSAPublicKey` (RFC 8017).
fn rsa_bits(der: &[u8]) -> Option<usize> {
    let modulus = Der::new(der).sequence()?.integer()?;
    let first = modulus.iter().position(|byte| *byte != 0)?;
    let zeros = modulus.get(first)?.leading_zeros() as usize;
    Some((modulus.len() - first) * 8 - zeros)
}

/// The secret of HS256: hexadecimal digits, or a PEM block. Of a PEM block, Besu uses the text itself, in lines of 76
/// characters under the label `PUBLIC KEY`, as the secret. A real public key is refused.
fn read_secret(text: &str) -> Result<hmac::Key, String> {
    let secret = match pem::blocks(text).first() {
        Some(block)
            if PublicKey::read(&block.der).is_some() || Certificate::read(&block.der).is_some() =>
        {
            return Err(
                "a public key is no secret for HS256: all who have it could make tokens; \
                        choose RS256 or ES256, or make a secret with `openssl rand -hex 32`"
                    .to_owned(),
            );
        }
        Some(block) if block.der.len() < 32 => {
            return Err("the secret for HS256 is too short: give at least 32 bytes".to_owned());
        }
        Some(block) => pem::write("PUBLIC KEY", &block.der).into_bytes(),
        None => {
            let digits = text.trim();
            let bytes = hex::decode(digits).unwrap_or_default();
            if bytes.len() < 32 {
                return Err(
                    "no secret for HS256: give at least 64 hexadecimal digits, or PEM; `openssl \
                     rand -hex 32` makes one"
                        .to_owned(),
                );
            }
            bytes
        }
    };
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &secret))
}

/// A key pair for this node's own tokens (RS256), which lives as long as the process.
pub(super) struct OwnKey {
    pair: KeyPair,
    random: SystemRandom,
}

impl fmt::Debug for OwnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnKey(..)")
    }
}

impl OwnKey {
    /// Generates a key pair. It takes some tenths of a second.
    pub(super) fn new() -> Result<Self, String> {
        let error = |what: &str| format!("can't make a key for tokens: {what}");
        let made = RsaPrivateKey::new(&mut OsRng, OWN_KEY_BITS);
        let der = made.map_err(|failed| error(&failed.to_string()))?;
        let der = der
            .to_pkcs1_der()
            .map_err(|failed| error(&failed.to_string()))?;
        let pair = KeyPair::from_der(der.as_bytes());
        Ok(Self {
            pair: pair.map_err(|failed| error(&failed.to_string()))?,
            random: SystemRandom::new(),
        })
    }

    /// The key that its tokens are checked with.
    pub(super) fn public(&self) -> TokenKey {
        let key = self.pair.public().as_ref().to_vec();
        TokenKey {
            algorithm: TokenAlgorithm::Rs256,
            key: Key::Public(signature::UnparsedPublicKey::new(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                key,
            )),
        }
    }

    /// The signature of `message`; `None` if the system has no random bytes.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut signed = vec![0; self.pair.public().modulus_len()];
        let padding = &signature::RSA_PKCS1_SHA256;
        let done = self.pair.sign(padding, &self.random, message, &mut signed);
        done.ok().map(|()| signed)
    }
}

#[cfg(test)]
mod tests;
