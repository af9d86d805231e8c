//! Key stores in PKCS #12 (RFC 7292), as `openssl` and `keytool` write them.
//!
//! Supported: the MAC over the contents; certificates and keys, plain or encrypted with PBES2 (PBKDF2, AES or triple
//! DES in CBC) or, as in older programs, with triple DES and the key derivation of PKCS #12. Encrypted PKCS #8 keys use
//! the same schemes. Why this is not an external crate: docs/dependencies.md, "What we read ourselves".

use super::store::{KeyStore, StoreError};
use crate::server::der::Der;
use aes::{Aes128, Aes192, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use des::TdesEde3;
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// Most rounds of a key derivation. No program writes more; they would take minutes.
const MAX_ITERATIONS: u32 = 10_000_000;

// Object identifiers, DER contents.
const DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01";
const ENCRYPTED_DATA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x07\x06";
const KEY_BAG: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x01";
const SHROUDED_KEY_BAG: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x02";
const CERTIFICATE_BAG: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x0a\x01\x03";
const X509: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x16\x01";
const PBES2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d";
const PBKDF2: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c";
const SHA1_3DES: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x0c\x01\x03";
const HMAC: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x02";
const AES: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x01";
const DES3: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x03\x07";
const SHA1: &[u8] = b"\x2b\x0e\x03\x02\x1a";
const SHA2: &[u8] = b"\x60\x86\x48\x01\x65\x03\x04\x02";

const BROKEN: StoreError = StoreError::Damaged;
const OTHER_CIPHER: StoreError = StoreError::Unknown("an encryption other than AES or triple DES");

/// Reads a store.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<KeyStore, StoreError> {
    let mut store = Der::new(bytes).sequence().ok_or(BROKEN)?;
    store.integer().ok_or(BROKEN)?;
    let mut safe = store.sequence().ok_or(BROKEN)?;
    if safe.object_id() != Some(DATA) {
        return Err(StoreError::Unknown(
            "a store that is signed instead of coded",
        ));
    }
    let safe = safe.context(0).and_then(|mut data| data.octets());
    let safe = safe.ok_or(BROKEN)?;
    let code = store.sequence().ok_or(StoreError::Unknown(
        "a store that no password guards against changes",
    ))?;
    if !is_of_password(safe, code, password)? {
        return Err(StoreError::Password);
    }

    let mut contents = KeyStore::default();
    let mut parts = Der::new(safe).sequence().ok_or(BROKEN)?;
    while let Some(mut part) = parts.sequence() {
        let kind = part.object_id().ok_or(BROKEN)?;
        let mut part = part.context(0).ok_or(BROKEN)?;
        if kind == DATA {
            read_bags(part.octets().ok_or(BROKEN)?, password, &mut contents)?;
        } else if kind == ENCRYPTED_DATA {
            let bags = decrypt_part(part, password)?;
            read_bags(&bags, password, &mut contents)?;
        }
    }
    Ok(contents)
}

/// Whether the MAC over `safe` is right for this password.
fn is_of_password(safe: &[u8], mut code: Der<'_>, password: &str) -> Result<bool, StoreError> {
    let mut info = code.sequence().ok_or(BROKEN)?;
    let hash = info.sequence().and_then(|mut hash| hash.object_id());
    let hash = hash.ok_or(BROKEN)?;
    let want = info.octets().ok_or(BROKEN)?;
    let salt = code.octets().ok_or(BROKEN)?;
    let iterations = iterations(code.number().unwrap_or(1))?;
    let (hash, code) = match hash.strip_prefix(SHA2) {
        Some([1]) => (&digest::SHA256, hmac::HMAC_SHA256),
        Some([2]) => (&digest::SHA384, hmac::HMAC_SHA384),
        Some([3]) => (&digest::SHA512, hmac::HMAC_SHA512),
        None if hash == SHA1 => (
            &digest::SHA1_FOR_LEGACY_USE_ONLY,
            hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        ),
        _ => {
            return Err(StoreError::Unknown(
                "a code by a hash other than SHA-1 and SHA-2",
            ));
        }
    };
    let derive = |password: &[u8]| {
        let derivation = Derivation {
            hash,
            password,
            salt,
            iterations: iterations.get(),
        };
        derivation.derive(3, hash.output_len())
    };
    let is_right = |key: &[u8]| hmac::verify(&hmac::Key::new(code, key), safe, want).is_ok();
    // There are two encodings of an empty password.
    Ok(is_right(&derive(&utf16(password))) || (password.is_empty() && is_right(&derive(&[]))))
}

fn read_bags(bags: &[u8], password: &str, contents: &mut KeyStore) -> Result<(), StoreError> {
    let mut bags = Der::new(bags).sequence().ok_or(BROKEN)?;
    while let Some(mut bag) = bags.sequence() {
        let kind = bag.object_id().ok_or(BROKEN)?;
        let mut value = bag.context(0).ok_or(BROKEN)?;
        if kind == KEY_BAG {
            let key = value.element().ok_or(BROKEN)?;
            contents.keys.push(key.whole.to_vec());
        } else if kind == SHROUDED_KEY_BAG {
            let key = value.element().ok_or(BROKEN)?;
            contents.keys.push(decrypt_key(key.whole, password)?);
        } else if kind == CERTIFICATE_BAG {
            let mut certificate = value.sequence().ok_or(BROKEN)?;
            let is_x509 = certificate.object_id() == Some(X509);
            let der = certificate.context(0).and_then(|mut der| der.octets());
            let der = der.filter(|_| is_x509).ok_or(BROKEN)?;
            contents.certificates.push(der.to_vec());
        }
    }
    Ok(())
}

/// The key in an `EncryptedPrivateKeyInfo` (PKCS #8).
pub(super) fn decrypt_key(der: &[u8], password: &str) -> Result<Vec<u8>, StoreError> {
    let mut info = Der::new(der).sequence().ok_or(BROKEN)?;
    let algorithm = info.sequence().ok_or(BROKEN)?;
    decrypt(algorithm, info.octets().ok_or(BROKEN)?, password)
}

fn decrypt_part(mut part: Der<'_>, password: &str) -> Result<Vec<u8>, StoreError> {
    let mut part = part.sequence().ok_or(BROKEN)?;
    part.integer().ok_or(BROKEN)?;
    let mut info = part.sequence().ok_or(BROKEN)?;
    info.object_id().ok_or(BROKEN)?;
    let algorithm = info.sequence().ok_or(BROKEN)?;
    let bytes = info.tagged(0x80).ok_or(BROKEN)?;
    decrypt(algorithm, bytes, password)
}

fn decrypt(mut algorithm: Der<'_>, bytes: &[u8], password: &str) -> Result<Vec<u8>, StoreError> {
    let kind = algorithm.object_id().ok_or(BROKEN)?;
    let mut parameters = algorithm.sequence().ok_or(BROKEN)?;
    if kind == PBES2 {
        let derivation = parameters.sequence().ok_or(BROKEN)?;
        let cipher = parameters.sequence().ok_or(BROKEN)?;
        return decrypt_pbes2(derivation, cipher, bytes, password);
    }
    if kind != SHA1_3DES {
        return Err(OTHER_CIPHER);
    }
    let derivation = Derivation {
        hash: &digest::SHA1_FOR_LEGACY_USE_ONLY,
        password: &utf16(password),
        salt: parameters.octets().ok_or(BROKEN)?,
        iterations: iterations(parameters.number().ok_or(BROKEN)?)?.get(),
    };
    let (key, vector) = (derivation.derive(1, 24), derivation.derive(2, 8));
    decrypt_cbc::<TdesEde3>(&key, &vector, bytes)
}

fn decrypt_pbes2(
    mut derivation: Der<'_>,
    mut cipher: Der<'_>,
    bytes: &[u8],
    password: &str,
) -> Result<Vec<u8>, StoreError> {
    if derivation.object_id() != Some(PBKDF2) {
        return Err(StoreError::Unknown(
            "a derivation of keys other than PBKDF2",
        ));
    }
    let mut parameters = derivation.sequence().ok_or(BROKEN)?;
    let salt = parameters.octets().ok_or(BROKEN)?;
    let rounds = iterations(parameters.number().ok_or(BROKEN)?)?;
    let _key_bytes = parameters.number();
    let function = parameters.sequence().and_then(|mut prf| prf.object_id());
    let function = match function.map(|prf| prf.strip_prefix(HMAC)) {
        None | Some(Some([7])) => pbkdf2::PBKDF2_HMAC_SHA1,
        Some(Some([9])) => pbkdf2::PBKDF2_HMAC_SHA256,
        Some(Some([10])) => pbkdf2::PBKDF2_HMAC_SHA384,
        Some(Some([11])) => pbkdf2::PBKDF2_HMAC_SHA512,
        Some(_) => {
            return Err(StoreError::Unknown(
                "PBKDF2 with a hash other than SHA-1 and SHA-2",
            ));
        }
    };
    let derive = |key_bytes: usize| {
        let mut key = vec![0; key_bytes];
        pbkdf2::derive(function, rounds, salt, password.as_bytes(), &mut key);
        key
    };
    let kind = cipher.object_id().ok_or(BROKEN)?;
    let vector = cipher.octets().ok_or(BROKEN)?;
    match kind.strip_prefix(AES) {
        Some([2]) => decrypt_cbc::<Aes128>(&derive(16), vector, bytes),
        Some([22]) => decrypt_cbc::<Aes192>(&derive(24), vector, bytes),
        Some([42]) => decrypt_cbc::<Aes256>(&derive(32), vector, bytes),
        None if kind == DES3 => decrypt_cbc::<TdesEde3>(&derive(24), vector, bytes),
        _ => Err(OTHER_CIPHER),
    }
}

fn decrypt_cbc<C>(key: &[u8], vector: &[u8], bytes: &[u8]) -> Result<Vec<u8>, StoreError>
where
    C: BlockCipherDecrypt + KeyInit,
{
    let cipher = Decryptor::<C>::new_from_slices(key, vector).map_err(|_| BROKEN)?;
    // The MAC of a store was right, so the password is; for a single key this means a wrong password.
    cipher
        .decrypt_padded_vec::<Pkcs7>(bytes)
        .map_err(|_| StoreError::Password)
}

fn iterations(number: u32) -> Result<NonZeroU32, StoreError> {
    let number = NonZeroU32::new(number);
    number
        .filter(|number| number.get() <= MAX_ITERATIONS)
        .ok_or(BROKEN)
}

/// Big-endian UTF-16 with a terminating zero.
fn utf16(password: &str) -> Vec<u8> {
    let units = password.encode_utf16().chain([0]);
    units.flat_map(u16::to_be_bytes).collect()
}

/// The key derivation of RFC 7292, appendix B.
struct Derivation<'a> {
    hash: &'static digest::Algorithm,
    password: &'a [u8],
    salt: &'a [u8],
    iterations: u32,
}

impl Derivation<'_> {
    /// `bytes` bytes for the purpose `id`.
    fn derive(&self, id: u8, bytes: usize) -> Vec<u8> {
        let block = self.hash.block_len();
        let filled = |from: &[u8]| -> Vec<u8> {
            let length = from.len().div_ceil(block) * block;
            from.iter().copied().cycle().take(length).collect()
        };
        let mut state = [filled(self.salt), filled(self.password)].concat();
        let mut out = Vec::new();
        while out.len() < bytes {
            let mut hasher = digest::Context::new(self.hash);
            hasher.update(&vec![id; block]);
            hasher.update(&state);
            let mut sum = hasher.finish();
            for _ in 1..self.iterations {
                sum = digest::digest(self.hash, sum.as_ref());
            }
            out.extend_from_slice(sum.as_ref());
            for part in state.chunks_mut(block) {
                add(part, sum.as_ref());
            }
        }
        out.truncate(bytes);
        out
    }
}

/// Adds `sum`, repeated to the length of `part`, and one to the number `part`, modulo its size.
fn add(part: &mut [u8], sum: &[u8]) {
    let last = part.len().saturating_sub(1);
    let mut carry = 1u16;
    for at in (0..=last).rev() {
        let (Some(byte), Some(other)) = (part.get_mut(at), sum.iter().cycle().nth(at)) else {
            return;
        };
        let total = u16::from(*byte) + u16::from(*other) + carry;
        let [high, low] = total.to_be_bytes();
        (*byte, carry) = (low, u16::from(high));
    }
}
