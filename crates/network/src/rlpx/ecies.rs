//! ECIES as RLPx uses it: the encryption of the two handshake messages.
//!
//! ```text
//! 04 | ephemeral public key 64 | iv 16 | AES-128-CTR of the plain text | HMAC-SHA-256 32
//! ```
//!
//! Spec: devp2p `rlpx.md`, "ECIES Encryption".

use crate::key::{NodeId, NodeKey};
use aes::cipher::{KeyIvInit, StreamCipher};
use hmac::{Hmac, Mac};
use niwaki_crypto::sha256;
use niwaki_primitives::{B256, FixedBytes};
use sha2::Sha256;

/// How many bytes longer than the plain text a message is.
pub(crate) const OVERHEAD: usize = 65 + 16 + 32;

type Aes128Ctr = ctr::Ctr128BE<aes::Aes128>;

/// The keys of one message: that of the cipher, and that of the MAC.
struct MessageKeys {
    cipher: [u8; 16],
    mac: B256,
}

impl MessageKeys {
    /// The concatenation KDF of NIST SP 800-56 with SHA-256, which is one block here.
    fn derive(shared_secret: &B256) -> Self {
        let mut input = [0; 36];
        input[3] = 1;
        input[4..].copy_from_slice(shared_secret.as_slice());
        let derived = sha256(&input);
        let mut cipher = [0; 16];
        cipher.copy_from_slice(&derived[..16]);
        Self {
            cipher,
            mac: sha256(&derived[16..]),
        }
    }

    fn mac(&self, iv_and_text: &[u8], authenticated: &[u8]) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(self.mac.as_slice());
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(iv_and_text);
        mac.update(authenticated);
        mac
    }

    fn apply(&self, iv: &[u8; 16], text: &mut [u8]) {
        Aes128Ctr::new(&self.cipher.into(), iv.into()).apply_keystream(text);
    }
}

/// Encrypts for the owner of `recipient` with a one-time key. `authenticated` is not part of the result, but the MAC covers it.
/// `None` if `recipient` is not on the curve.
pub(crate) fn encrypt(
    recipient: &NodeId,
    one_time: &NodeKey,
    iv: [u8; 16],
    plain: &[u8],
    authenticated: &[u8],
) -> Option<Vec<u8>> {
    let keys = MessageKeys::derive(&one_time.shared_secret(recipient).ok()?);
    let mut message = Vec::with_capacity(plain.len() + OVERHEAD);
    message.push(4);
    message.extend_from_slice(one_time.id().0.as_slice());
    message.extend_from_slice(&iv);
    let text = message.len();
    message.extend_from_slice(plain);
    keys.apply(&iv, &mut message[text..]);
    let mac = keys.mac(&message[65..], authenticated).finalize();
    message.extend_from_slice(&mac.into_bytes());
    Some(message)
}

/// Decrypts a message for `key`; `None` if it is not one, or was changed.
pub(crate) fn decrypt(key: &NodeKey, message: &[u8], authenticated: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = message.split_first_chunk::<65>()?;
    let (iv_and_text, mac) = rest.split_last_chunk::<32>()?;
    let (iv, text) = iv_and_text.split_first_chunk::<16>()?;
    if head[0] != 4 {
        return None;
    }
    let sender = NodeId(FixedBytes::from_slice(&head[1..]));
    let keys = MessageKeys::derive(&key.shared_secret(&sender).ok()?);
    let expected = keys.mac(iv_and_text, authenticated);
    expected.verify_slice(mac).ok()?;
    let mut plain = text.to_vec();
    keys.apply(iv, &mut plain);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> NodeKey {
        NodeKey::new(B256::repeat_byte(number)).unwrap()
    }

    #[test]
    fn a_message_is_read_by_its_recipient_alone_and_only_unchanged() {
        let recipient = key(1);
        let message = encrypt(&recipient.id(), &key(2), [3; 16], b"plain text", b"size").unwrap();
        assert_eq!(message.len(), 10 + OVERHEAD);
        assert_eq!(
            decrypt(&recipient, &message, b"size").unwrap(),
            b"plain text"
        );
        assert_eq!(decrypt(&key(3), &message, b"size"), None);
        assert_eq!(decrypt(&recipient, &message, b"sise"), None);
        for at in 0..message.len() {
            let mut changed = message.clone();
            changed[at] ^= 1;
            assert_eq!(decrypt(&recipient, &changed, b"size"), None, "byte {at}");
            assert_eq!(decrypt(&recipient, &message[..at], b"size"), None);
        }
    }
}
