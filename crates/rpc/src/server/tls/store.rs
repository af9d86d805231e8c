//! Keys and certificates as files hold them: PEM or PKCS #12, told apart by what is inside.

use super::pkcs12;
use crate::server::pem;

/// What a file of keys and certificates holds.
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
    /// Encrypted, and no password was given.
    #[error("it needs a password: give the file that holds it")]
    NoPassword,
    /// The wrong password, or a file that was changed.
    #[error("the password does not open it")]
    Password,
    /// Written in a way that is not read here.
    #[error(
        "it has {0}, which is not read here: `openssl pkcs12 -in FILE -nodes -legacy | openssl \
         pkcs12 -export -out FILE.p12` writes it anew"
    )]
    Unknown(&'static str),
    /// Not what it should be.
    #[error("it is neither PEM nor a whole PKCS #12 store")]
    Damaged,
}

impl KeyStore {
    /// Reads a file; the password is asked for only if something in it is encrypted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn read(bytes: &[u8], password: Option<&str>) -> Result<Self, StoreError> {
        match bytes {
            // Java's mark, and that of its variant with stronger encryption.
            [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => Err(StoreError::Jks),
            [0x30, ..] => {
                let password = password.ok_or(StoreError::NoPassword)?;
                let contents = pkcs12::read(bytes, password)?;
                Ok(Self {
                    certificates: contents.certificates,
                    keys: contents.keys,
                })
            }
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

    /// What this file and another one hold.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.certificates.extend(other.certificates);
        self.keys.extend(other.keys);
        self
    }
}
