//! The key of a node, which is its identity in discovery and on every connection.

use niwaki_crypto::{KeyError, keccak256, public_key, shared_secret, sign};
use niwaki_primitives::{Address, B256, FixedBytes, hex};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A node's public key: 64 bytes, both coordinates big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub FixedBytes<64>);

impl NodeId {
    /// Keccak-256 of the key: the node's position in both discovery tables.
    pub fn position(&self) -> B256 {
        keccak256(self.0)
    }

    /// The address of the account with this key.
    pub fn address(&self) -> Address {
        Address::from_slice(&self.position()[12..])
    }

    /// Whether it is a public key: a point of the curve. Costs one multiplication.
    pub fn is_on_curve(&self) -> bool {
        // The secret 1 agrees on the other side's point itself, if there is one.
        shared_secret(&B256::with_last_byte(1), &self.0).is_ok()
    }
}

impl fmt::Display for NodeId {
    /// 128 hex digits, without `0x`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for NodeId {
    /// The first 8 bytes, as logs show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0[..8]))
    }
}

/// A secret key with its public one.
#[derive(Clone)]
pub struct NodeKey {
    secret: B256,
    id: NodeId,
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeKey").field(&self.id).finish()
    }
}

/// Why there is no key in a file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file can't be read or made.
    #[error("can't use the key file {}: {error}; check that the folder exists and may be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file holds something else.
    #[error("{} holds no node key: it must be 64 hex digits, and the number below the order of secp256k1; delete the file to have a new key made", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
}

impl NodeKey {
    /// The key with this secret (32 bytes, big-endian).
    ///
    /// # Errors
    /// [`KeyError`] if the number is zero or not below the group order.
    pub fn new(secret: B256) -> Result<Self, KeyError> {
        let id = NodeId(public_key(&secret)?);
        Ok(Self { secret, id })
    }

    /// A random key.
    pub fn random() -> Self {
        loop {
            if let Ok(key) = Self::new(B256::new(rand::random())) {
                return key;
            }
        }
    }

    /// The key in a file: 64 hex digits with or without `0x`, as Besu and geth write them. A file that is missing is made, with a random
    /// key that only its owner may read.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        let io = |error| KeyFileError::Io {
            path: path.into(),
            error,
        };
        match std::fs::read_to_string(path) {
            Ok(text) => {
                Self::parse(&text).ok_or_else(|| KeyFileError::NotAKey { path: path.into() })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::random();
                key.write_to(path).map_err(io)?;
                Ok(key)
            }
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(KeyFileError::NotAKey { path: path.into() })
            }
            Err(error) => Err(io(error)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = hex::decode(text.trim()).ok()?;
        let secret: [u8; 32] = bytes.try_into().ok()?;
        Self::new(secret.into()).ok()
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        file.write_all(hex::encode_prefixed(self.secret).as_bytes())?;
        file.sync_all()
    }

    /// The public key.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The secret, for what signs with it itself: libraries, and the validator of this node.
    pub fn secret(&self) -> &B256 {
        &self.secret
    }

    /// A signature over a hash: r, s, and the parity of the point's second coordinate.
    pub fn sign(&self, hash: &B256) -> [u8; 65] {
        let signed = sign(hash, &self.secret);
        let (r, s, is_odd) = signed.expect("the secret was checked when the key was made");
        let mut signature = [0; 65];
        signature[..32].copy_from_slice(&r.to_be_bytes::<32>());
        signature[32..64].copy_from_slice(&s.to_be_bytes::<32>());
        signature[64] = u8::from(is_odd);
        signature
    }

    /// The secret shared with the owner of another key (ECDH).
    ///
    /// # Errors
    /// [`KeyError`] if the other key is not on the curve.
    pub fn shared_secret(&self, other: &NodeId) -> Result<B256, KeyError> {
        shared_secret(&self.secret, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_file_is_made_once_and_only_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = NodeKey::load_or_create(&path).unwrap();
        assert_eq!(NodeKey::load_or_create(&path).unwrap().id(), key.id());
        #[cfg(unix)]
        {
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn key_files_of_besu_and_geth_are_read_and_others_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let digits = "b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291";
        let expected = NodeKey::new(digits.parse().unwrap()).unwrap().id();
        for text in [
            format!("0x{digits}"),
            digits.to_owned(),
            format!("0x{digits}\n"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(NodeKey::load_or_create(&path).unwrap().id(), expected);
        }
        let zero = "0".repeat(64);
        for text in ["", "0x12", &digits[1..], &zero, "not hex"] {
            std::fs::write(&path, text).unwrap();
            let error = NodeKey::load_or_create(&path).unwrap_err();
            assert!(
                matches!(error, KeyFileError::NotAKey { .. }),
                "{text}: {error}"
            );
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(
            NodeKey::load_or_create(&path),
            Err(KeyFileError::NotAKey { .. })
        ));
        let missing = folder.path().join("no").join("key");
        assert!(matches!(
            NodeKey::load_or_create(&missing),
            Err(KeyFileError::Io { .. })
        ));
    }
}
