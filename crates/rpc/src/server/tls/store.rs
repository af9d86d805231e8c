//! Files of keys and certificates: PEM or PKCS #12, distinguished by their contents.

use super::pkcs12;
use crate::server::pem;

/// The contents of a file of keys and certificates.
#[derive(Debug, Default)]
pub struct KeyStore {
    /// Certificates in the order of the file, DER.
    pub(super) certificates: Vec<Vec<u8>>,
    /// Private keys: PKCS #8, PKCS #1 or SEC 1.
    pub(super) keys: Vec<Vec<u8>>,
}

/// Why a file can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Java's own format.
    #[error(
        "it is a Java key store (JKS), which only Java reads: `keytool -importkeystore \
         -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12` converts it"
    )]
    Jks,
    /// Encrypted, without a password.
    #[error("it needs a password: give the file that holds it")]
    NoPassword,
    /// The password is wrong, or the file was modified.
    #[error("the password does not open it")]
    Password,
    /// An unsupported scheme.
    #[error(
        "it has {0}, which is not read here: `openssl pkcs12 -in FILE -nodes -legacy | openssl \
         pkcs12 -export -out FILE.p12` rewrites it"
    )]
    Unknown(&'static str),
    /// Malformed.
    #[error("it is neither PEM nor a whole PKCS #12 store")]
    Damaged,
}

impl KeyStore {
    /// Reads a file; `password` is called only if something in it is encrypted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn read(bytes: &[u8], password: Option<&str>) -> Result<Self, StoreError> {
        match bytes {
            // The magic numbers of JKS and of its variant JCEKS.
            [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => Err(StoreError::Jks),
            [0x30, ..] => pkcs12::read(bytes, password.ok_or(StoreError::NoPassword)?),
            _ => {
                let text = std::str::from_utf8(bytes).map_err(|_| StoreError::Damaged)?;
                Self::read_pem(text, password)
            }
        }
    }

    fn read_pem(text: &str, password: Option<&str>) -> Result<Self, StoreError> {
        let mut store = Self::default();
        for block in pem::blocks(text) {
            match block.label.as_str() {
                "CERTIFICATE" => store.certificates.push(block.der),
                "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => store.keys.push(block.der),
                "ENCRYPTED PRIVATE KEY" => {
                    let password = password.ok_or(StoreError::NoPassword)?;
                    store.keys.push(pkcs12::decrypt_key(&block.der, password)?);
                }
                _ => {}
            }
        }
        match store.certificates.is_empty() && store.keys.is_empty() {
            true => Err(StoreError::Damaged),
            false => Ok(store),
        }
    }

    /// The contents of this file and another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.certificates.extend(other.certificates);
        self.keys.extend(other.keys);
        self
    }
}
