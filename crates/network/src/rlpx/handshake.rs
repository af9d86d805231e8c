//! The RLPx handshake, without sockets: two messages from which both sides derive the keys of a connection.
//!
//! ```text
//! initiator                                   recipient
//!   auth: [signature, id, nonce, 4]   ---->
//!                                     <----   ack: [one-time id, nonce, 4]
//! ```
//!
//! Messages are written as EIP-8 says. An auth in the fixed form before it is read too, and answered in that form. Whatever is wrong with a message is one error:
//! the other side must not learn what.
//!
//! Spec: devp2p `rlpx.md`, "Initial Handshake"; EIP-8.

use super::ecies;
use super::frame::{FrameKeys, MacState};
use crate::key::{NodeId, NodeKey};
use crate::wire::fields::{Fields, list};
use niwaki_crypto::{keccak256, recover_public_key};
use niwaki_primitives::rlp::{self, encode};
use niwaki_primitives::{B256, FixedBytes};

/// A handshake message that can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a handshake message for this node")]
pub struct HandshakeError;

impl From<rlp::Error> for HandshakeError {
    fn from(_: rlp::Error) -> Self {
        Self
    }
}

/// Bytes of an auth message in the form before EIP-8; newer ones are longer.
pub(crate) const OLD_AUTH_BYTES: usize = 194 + ecies::OVERHEAD;

/// Both versions: the one that is written, and that EIP-8 says to ignore.
const VERSION: u8 = 4;

/// What one side draws at random for a connection.
pub(crate) struct Secrets {
    /// The key that is used once.
    pub(crate) one_time: NodeKey,
    /// Goes into the keys of the connection.
    pub(crate) nonce: B256,
    /// The key and the initialisation vector that the message is encrypted with.
    pub(crate) message_key: NodeKey,
    pub(crate) iv: [u8; 16],
    /// Zeros appended to the message so that its size tells nothing, at least 100.
    pub(crate) padding: usize,
}

impl Secrets {
    pub(crate) fn random() -> Self {
        Self {
            one_time: NodeKey::random(),
            nonce: B256::new(rand::random()),
            message_key: NodeKey::random(),
            iv: rand::random(),
            padding: 100 + usize::from(rand::random::<u8>()),
        }
    }

    /// Encrypts a message body, with its size before it.
    fn seal(&self, recipient: &NodeId, mut body: Vec<u8>) -> Result<Vec<u8>, HandshakeError> {
        body.resize(body.len() + self.padding, 0);
        let size = u16::try_from(body.len() + ecies::OVERHEAD).map_err(|_| HandshakeError)?;
        let size = size.to_be_bytes();
        let sealed = ecies::encrypt(recipient, &self.message_key, self.iv, &body, &size);
        Ok([&size[..], &sealed.ok_or(HandshakeError)?].concat())
    }
}

/// What the recipient learns from an auth message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Auth {
    pub(crate) initiator: NodeId,
    one_time: NodeId,
    nonce: B256,
    is_old: bool,
}

/// What the initiator learns from an ack message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    one_time: NodeId,
    nonce: B256,
}

/// The auth message of the initiator `key` to `recipient`.
pub(crate) fn write_auth(
    key: &NodeKey,
    secrets: &Secrets,
    recipient: &NodeId,
) -> Result<Vec<u8>, HandshakeError> {
    let shared = key.shared_secret(recipient).map_err(|_| HandshakeError)?;
    let signature = secrets.one_time.sign(&(shared ^ secrets.nonce));
    let body = list(&[
        &encode(FixedBytes::from(signature)),
        &encode(key.id().0),
        &encode(secrets.nonce),
        &encode(VERSION),
    ]);
    secrets.seal(recipient, body)
}

/// The ack message of the recipient of `auth`, in the form in which the auth came.
pub(crate) fn write_ack(secrets: &Secrets, auth: &Auth) -> Result<Vec<u8>, HandshakeError> {
    let one_time = secrets.one_time.id();
    if auth.is_old {
        let body = [one_time.0.as_slice(), secrets.nonce.as_slice(), &[0]].concat();
        let message_key = &secrets.message_key;
        return ecies::encrypt(&auth.initiator, message_key, secrets.iv, &body, &[])
            .ok_or(HandshakeError);
    }
    let body = list(&[
        &encode(one_time.0),
        &encode(secrets.nonce),
        &encode(VERSION),
    ]);
    secrets.seal(&auth.initiator, body)
}

/// How many bytes a message has by its first two.
pub(crate) fn message_bytes(size: [u8; 2]) -> usize {
    2 + usize::from(u16::from_be_bytes(size))
}

/// Reads the body of a message that begins with its size.
fn open(key: &NodeKey, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let (size, sealed) = message.split_at_checked(2).ok_or(HandshakeError)?;
    ecies::decrypt(key, sealed, size).ok_or(HandshakeError)
}

/// Reads an auth message for `key`, in either form.
pub(crate) fn read_auth(key: &NodeKey, message: &[u8]) -> Result<Auth, HandshakeError> {
    let old = (message.len() == OLD_AUTH_BYTES).then(|| ecies::decrypt(key, message, &[]));
    if let Some(body) = old.flatten() {
        return read_old_auth(key, &body);
    }
    let body = open(key, message)?;
    // What follows the list is padding.
    let mut fields = Fields::of(&body)?;
    let signature: FixedBytes<65> = fields.next()?;
    let initiator = NodeId(fields.next()?);
    let nonce = fields.next()?;
    auth(key, &signature.0, initiator, nonce, false)
}

/// Before EIP-8: signature, hash of the one-time id, id, nonce, and a byte that says nothing.
fn read_old_auth(key: &NodeKey, body: &[u8]) -> Result<Auth, HandshakeError> {
    let (signature, rest) = body.split_first_chunk::<65>().ok_or(HandshakeError)?;
    let (one_time_hash, rest) = rest.split_first_chunk::<32>().ok_or(HandshakeError)?;
    let (initiator, rest) = rest.split_first_chunk::<64>().ok_or(HandshakeError)?;
    let (nonce, _) = rest.split_first_chunk::<32>().ok_or(HandshakeError)?;
    let initiator = NodeId(FixedBytes::new(*initiator));
    let auth = auth(key, signature, initiator, B256::new(*nonce), true)?;
    match auth.one_time.position() == B256::new(*one_time_hash) {
        true => Ok(auth),
        false => Err(HandshakeError),
    }
}

/// The one-time key is the one that made the signature.
fn auth(
    key: &NodeKey,
    signature: &[u8; 65],
    initiator: NodeId,
    nonce: B256,
    is_old: bool,
) -> Result<Auth, HandshakeError> {
    let shared = key.shared_secret(&initiator).map_err(|_| HandshakeError)?;
    let one_time = recover_public_key(&(shared ^ nonce), signature);
    Ok(Auth {
        initiator,
        one_time: NodeId(one_time.map_err(|_| HandshakeError)?),
        nonce,
        is_old,
    })
}

/// Reads the ack message for the initiator `key`.
pub(crate) fn read_ack(key: &NodeKey, message: &[u8]) -> Result<Ack, HandshakeError> {
    let body = open(key, message)?;
    let mut fields = Fields::of(&body)?;
    Ok(Ack {
        one_time: NodeId(fields.next()?),
        nonce: fields.next()?,
    })
}

/// The keys of the initiator, from its own auth and the other's ack.
pub(crate) fn initiator_keys(
    secrets: &Secrets,
    auth_message: &[u8],
    ack: &Ack,
    ack_message: &[u8],
) -> Result<FrameKeys, HandshakeError> {
    let shared = shared_keys(&secrets.one_time, &ack.one_time, ack.nonce, secrets.nonce)?;
    Ok(FrameKeys {
        egress: MacState::new(shared.mac, ack.nonce, auth_message),
        ingress: MacState::new(shared.mac, secrets.nonce, ack_message),
        cipher: shared.cipher,
    })
}

/// The keys of the recipient, from the other's auth and its own ack.
pub(crate) fn recipient_keys(
    secrets: &Secrets,
    auth: &Auth,
    auth_message: &[u8],
    ack_message: &[u8],
) -> Result<FrameKeys, HandshakeError> {
    let shared = shared_keys(&secrets.one_time, &auth.one_time, secrets.nonce, auth.nonce)?;
    Ok(FrameKeys {
        egress: MacState::new(shared.mac, auth.nonce, ack_message),
        ingress: MacState::new(shared.mac, secrets.nonce, auth_message),
        cipher: shared.cipher,
    })
}

struct SharedKeys {
    cipher: B256,
    mac: B256,
}

fn shared_keys(
    one_time: &NodeKey,
    other: &NodeId,
    recipient_nonce: B256,
    initiator_nonce: B256,
) -> Result<SharedKeys, HandshakeError> {
    let hash = |a: B256, b: B256| keccak256([a.0, b.0].concat());
    let ephemeral = one_time.shared_secret(other).map_err(|_| HandshakeError)?;
    let shared = hash(ephemeral, hash(recipient_nonce, initiator_nonce));
    let cipher = hash(ephemeral, shared);
    Ok(SharedKeys {
        cipher,
        mac: hash(ephemeral, cipher),
    })
}

#[cfg(test)]
mod tests;
