//! The packets of discovery v4.
//!
//! ```text
//! keccak-256 of the rest 32 | signature of what follows 65 | type 1 | RLP list
//! ```
//!
//! A packet is read in two steps, because the second costs fifty times the first: [`Packet::decode`] checks hash and fields, so that
//! what is expired or was not asked for is dropped unverified; [`Packet::sender`] recovers the key that signed it.
//!
//! Spec: devp2p `discv4.md`, EIP-8, EIP-868.

use crate::key::{NodeId, NodeKey};
use crate::record::{Record, RecordError};
use crate::wire::fields::{Fields, list};
use niwaki_crypto::{keccak256, recover_public_key};
use niwaki_primitives::rlp::{self, encode};
use niwaki_primitives::{B256, FixedBytes};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most bytes of a packet.
pub(crate) const MAX_PACKET_BYTES: usize = 1280;

/// Nodes in one packet: with IPv6 addresses twelve fit.
pub(crate) const NODES_PER_PACKET: usize = 12;

/// Most nodes that are read of one packet. More do not fit.
const MAX_NODES: usize = 20;

const HASH: usize = 32;
const SIGNATURE: usize = 65;
const HEAD: usize = HASH + SIGNATURE;

const PING: u8 = 1;
const PONG: u8 = 2;
const FIND_NODE: u8 = 3;
const NEIGHBORS: u8 = 4;
const ENR_REQUEST: u8 = 5;
const ENR_RESPONSE: u8 = 6;

/// The names of the packets in metrics (Besu's), in the order of their types.
pub(crate) const PACKET_NAMES: [&str; 6] = [
    "PING",
    "PONG",
    "FIND_NEIGHBORS",
    "NEIGHBORS",
    "ENR_REQUEST",
    "ENR_RESPONSE",
];

/// Where the type of a packet stands in [`PACKET_NAMES`].
pub(crate) fn packet_index(packet: &[u8]) -> Option<usize> {
    let index = packet.get(HEAD)?.checked_sub(PING)?;
    Some(usize::from(index))
}

/// The version that pings carry. That of others is not looked at (EIP-8).
const VERSION: u64 = 4;

/// An address as packets carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) ip: IpAddr,
    pub(crate) udp: u16,
    pub(crate) tcp: u16,
}

impl Endpoint {
    pub(crate) fn of(address: SocketAddr, tcp: u16) -> Self {
        Self {
            ip: address.ip(),
            udp: address.port(),
            tcp,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self.ip {
            IpAddr::V4(ip) => out.extend(encode(ip.octets())),
            IpAddr::V6(ip) => out.extend(encode(ip.octets())),
        }
        out.extend(encode(self.udp));
        out.extend(encode(self.tcp));
    }

    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(24);
        self.put(&mut fields);
        list(&[&fields])
    }

    /// Reads it of a ping or pong, where it decides nothing: an address that can't be read is 0.0.0.0, a port that is missing 0.
    fn read(mut fields: Fields<'_>) -> Self {
        let ip = fields.bytes().ok().and_then(ip_of);
        Self {
            ip: ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            udp: fields.next().unwrap_or_default(),
            tcp: fields.next().unwrap_or_default(),
        }
    }
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(octets.into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(IpAddr::from(octets).to_canonical())
}

/// A node as Neighbors carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Neighbor {
    pub(crate) endpoint: Endpoint,
    pub(crate) id: NodeId,
}

/// What a packet says. Expirations are Unix times in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Ping {
        from: Endpoint,
        to: Endpoint,
        expiration: u64,
        record_seq: Option<u64>,
    },
    Pong {
        to: Endpoint,
        ping_hash: B256,
        expiration: u64,
        record_seq: Option<u64>,
    },
    FindNode {
        target: NodeId,
        expiration: u64,
    },
    Neighbors {
        nodes: Vec<Neighbor>,
        expiration: u64,
    },
    EnrRequest {
        expiration: u64,
    },
    EnrResponse {
        request_hash: B256,
        /// The encoded record, which is not verified yet.
        record: Vec<u8>,
    },
}

/// Why bytes are no packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    #[error("{got} bytes, a packet has {HEAD} to {MAX_PACKET_BYTES}")]
    Size { got: usize },
    #[error("not a packet: the hash of its bytes is another")]
    Hash,
    #[error("a packet of the unknown type {0}")]
    Type(u8),
    #[error("a signature that no key made")]
    Signature,
    #[error("fields that can't be read: {0}")]
    Rlp(#[from] rlp::Error),
}

impl Message {
    /// When it expires (Unix time, seconds); an ENR response does not.
    fn expiration(&self) -> Option<u64> {
        match *self {
            Self::Ping { expiration, .. }
            | Self::Pong { expiration, .. }
            | Self::FindNode { expiration, .. }
            | Self::Neighbors { expiration, .. }
            | Self::EnrRequest { expiration } => Some(expiration),
            Self::EnrResponse { .. } => None,
        }
    }

    /// Whether its time is over at `unix_s`. Times are signed numbers for most nodes, so that the upper half is long ago.
    pub(crate) fn is_expired(&self, unix_s: u64) -> bool {
        self.expiration()
            .is_some_and(|expiration| i64::try_from(expiration).is_err() || expiration < unix_s)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Ping { .. } => PING,
            Self::Pong { .. } => PONG,
            Self::FindNode { .. } => FIND_NODE,
            Self::Neighbors { .. } => NEIGHBORS,
            Self::EnrRequest { .. } => ENR_REQUEST,
            Self::EnrResponse { .. } => ENR_RESPONSE,
        }
    }

    fn encode_fields(&self) -> Vec<u8> {
        let seq = |seq: &Option<u64>| seq.map(encode).unwrap_or_default();
        match self {
            Self::Ping {
                from,
                to,
                expiration,
                record_seq,
            } => list(&[
                &encode(VERSION),
                &from.encode(),
                &to.encode(),
                &encode(expiration),
                &seq(record_seq),
            ]),
            Self::Pong {
                to,
                ping_hash,
                expiration,
                record_seq,
            } => list(&[
                &to.encode(),
                &encode(ping_hash),
                &encode(expiration),
                &seq(record_seq),
            ]),
            Self::FindNode { target, expiration } => {
                list(&[&encode(target.0), &encode(expiration)])
            }
            Self::Neighbors { nodes, expiration } => {
                let nodes: Vec<Vec<u8>> = nodes.iter().map(Neighbor::encode).collect();
                let nodes: Vec<&[u8]> = nodes.iter().map(Vec::as_slice).collect();
                list(&[&list(&nodes), &encode(expiration)])
            }
            Self::EnrRequest { expiration } => list(&[&encode(expiration)]),
            Self::EnrResponse {
                request_hash,
                record,
            } => list(&[&encode(request_hash), record]),
        }
    }

    /// The signed packet, and its hash, by which the answer names it.
    pub(crate) fn encode(&self, key: &NodeKey) -> (Vec<u8>, B256) {
        let mut body = vec![self.kind()];
        body.extend(self.encode_fields());
        let (packet, hash) = seal(&body, key);
        debug_assert!(packet.len() <= MAX_PACKET_BYTES, "{self:?}");
        (packet, hash)
    }

    fn decode(kind: u8, fields: &[u8]) -> Result<Self, PacketError> {
        if !(PING..=ENR_RESPONSE).contains(&kind) {
            return Err(PacketError::Type(kind));
        }
        let mut fields = Fields::of(fields)?;
        Ok(match kind {
            PING => {
                fields.raw()?;
                Self::Ping {
                    from: Endpoint::read(fields.list()?),
                    to: Endpoint::read(fields.list()?),
                    expiration: fields.next()?,
                    record_seq: fields.next().ok(),
                }
            }
            PONG => Self::Pong {
                to: Endpoint::read(fields.list()?),
                ping_hash: fields.next()?,
                expiration: fields.next()?,
                record_seq: fields.next().ok(),
            },
            FIND_NODE => Self::FindNode {
                target: NodeId(fields.next()?),
                expiration: fields.next()?,
            },
            NEIGHBORS => {
                let mut list = fields.list()?;
                let mut nodes = Vec::new();
                while !list.is_empty() && nodes.len() < MAX_NODES {
                    nodes.extend(Neighbor::read(list.list()?)?);
                }
                let expiration = fields.next()?;
                Self::Neighbors { nodes, expiration }
            }
            ENR_REQUEST => Self::EnrRequest {
                expiration: fields.next()?,
            },
            _ => Self::EnrResponse {
                request_hash: fields.next()?,
                record: fields.raw()?.to_vec(),
            },
        })
    }
}

/// The signed packet of a type and its fields, and its hash.
pub(crate) fn seal(body: &[u8], key: &NodeKey) -> (Vec<u8>, B256) {
    let mut packet = vec![0; HEAD];
    packet.extend_from_slice(body);
    let signature = key.sign(&keccak256(body));
    packet[HASH..HEAD].copy_from_slice(&signature);
    let hash = keccak256(&packet[HASH..]);
    packet[..HASH].copy_from_slice(hash.as_slice());
    (packet, hash)
}

impl Neighbor {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(96);
        self.endpoint.put(&mut fields);
        fields.extend(encode(self.id.0));
        list(&[&fields])
    }

    /// `None` if its address is none: other nodes of the packet may still be good.
    fn read(mut fields: Fields<'_>) -> rlp::Result<Option<Self>> {
        let ip = ip_of(fields.bytes()?);
        let (udp, tcp) = (fields.next()?, fields.next()?);
        let id = NodeId(fields.next::<FixedBytes<64>>()?);
        let endpoint = ip.map(|ip| Endpoint { ip, udp, tcp });
        Ok(endpoint.map(|endpoint| Self { endpoint, id }))
    }
}

/// A packet whose fields were read, and whose signature was not checked.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// By which an answer names it.
    pub(crate) hash: B256,
    pub(crate) message: Message,
    signature: [u8; SIGNATURE],
    signed: B256,
}

impl Packet {
    /// Reads a packet. Bytes after its list are ignored, and fields that are not known (EIP-8).
    pub(crate) fn decode(data: &[u8]) -> Result<Self, PacketError> {
        let size = PacketError::Size { got: data.len() };
        if data.len() > MAX_PACKET_BYTES {
            return Err(size);
        }
        let Some((hash, rest)) = data.split_first_chunk::<HASH>() else {
            return Err(size);
        };
        let Some((signature, signed)) = rest.split_first_chunk::<SIGNATURE>() else {
            return Err(size);
        };
        let Some((kind, fields)) = signed.split_first() else {
            return Err(size);
        };
        let hash = B256::new(*hash);
        if keccak256(rest) != hash {
            return Err(PacketError::Hash);
        }
        Ok(Self {
            hash,
            message: Message::decode(*kind, fields)?,
            signature: *signature,
            signed: keccak256(signed),
        })
    }

    /// The key that signed it. Costs a recovery.
    pub(crate) fn sender(&self) -> Result<NodeId, PacketError> {
        let key = recover_public_key(&self.signed, &self.signature);
        key.map(NodeId).map_err(|_| PacketError::Signature)
    }
}

/// Reads the record of an ENR response, which must be that of `id`.
pub(crate) fn record_of(id: NodeId, encoded: &[u8]) -> Result<Record, RecordError> {
    let record = Record::decode(encoded)?;
    match record.id() == id {
        true => Ok(record),
        false => Err(RecordError::Invalid("it is another node's".into())),
    }
}

#[cfg(test)]
mod tests;
