//! Node records: what a node says of itself, signed by its key, with a number that rises with each change.
//!
//! ```text
//! [signature 64, seq,
//!  "eth" [[forkHash 4, forkNext]], "id" "v4", "ip" 4, "ip6" 16, "secp256k1" 33, "snap" [], "tcp", "tcp6", "udp", "udp6"]
//! ```
//!
//! The module that wraps the crate `enr`, of which `discv5` takes the same type. Records of others are at most 300 bytes and
//! verified when they are read; keys of other curves than secp256k1 are refused, because no node id comes of them.
//!
//! Spec: EIP-778, devp2p `enr.md`, `enr-entries/eth.md`.

mod local;

use crate::address::is_public;
use crate::key::{NodeId, NodeKey};
use crate::node::{Host, Node};
use crate::subnet::NetRestrict;
use crate::wire::fields::Fields;
use enr::{CombinedKey, CombinedPublicKey, Enr, EnrPublicKey};
use niwaki_primitives::rlp::{self, Decodable};
use niwaki_primitives::{B256, FixedBytes};
use niwaki_rules::ForkId;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub use local::{LocalRecord, RecordFileError};

/// Most bytes of a record.
pub const MAX_RECORD_BYTES: usize = 300;

/// Most characters of a record as text: base64 of it, after `enr:`.
const MAX_TEXT_BYTES: usize = "enr:".len() + MAX_RECORD_BYTES.div_ceil(3) * 4;

/// A record whose signature is right.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    enr: Enr<CombinedKey>,
    id: NodeId,
}

/// What a record says. Ports of 0 are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordEntries {
    /// `ip`
    pub ip: Option<Ipv4Addr>,
    /// `tcp`, which also holds for `ip6` unless that has its own.
    pub tcp: u16,
    /// `udp`, which also holds for `ip6` unless that has its own.
    pub udp: u16,
    /// `ip6`
    pub ip6: Option<Ipv6Addr>,
    /// `tcp6`
    pub tcp6: u16,
    /// `udp6`
    pub udp6: u16,
    /// `eth`: the forks that the node knows (EIP-2124).
    pub fork_id: Option<ForkId>,
    /// `snap`: it serves snap.
    pub serves_snap: bool,
}

/// Why bytes or a text are no record, or none can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Above the limit.
    #[error("a record of {got} bytes, at most {MAX_RECORD_BYTES} are allowed")]
    TooLong {
        /// Its bytes.
        got: usize,
    },
    /// Not text as a record has it.
    #[error("a record as text must be enr: and then base64 for URLs without padding")]
    Text,
    /// Not encoded or not signed as it must be.
    #[error("the record can't be used: {0}")]
    Invalid(String),
    /// A key of another curve.
    #[error("the record has no secp256k1 key")]
    Key,
}

impl Record {
    /// Reads a record, which must be all of `data`, and checks its signature.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(mut data: &[u8]) -> Result<Self, RecordError> {
        if data.len() > MAX_RECORD_BYTES {
            return Err(RecordError::TooLong { got: data.len() });
        }
        let enr =
            Enr::decode(&mut data).map_err(|error| RecordError::Invalid(error.to_string()))?;
        match data.is_empty() {
            true => Self::from_enr(enr),
            false => Err(RecordError::Invalid("bytes follow its end".into())),
        }
    }

    /// A record of the crate `enr`, which has checked it.
    pub(crate) fn from_enr(enr: Enr<CombinedKey>) -> Result<Self, RecordError> {
        let key = enr.public_key();
        let CombinedPublicKey::Secp256k1(_) = key else {
            return Err(RecordError::Key);
        };
        let bytes: Result<[u8; 64], _> = key.encode_uncompressed().try_into();
        let id = bytes.map_err(|_| RecordError::Key)?;
        let id = NodeId(FixedBytes::new(id));
        Ok(Self { enr, id })
    }

    /// Makes and signs a record.
    ///
    /// # Errors
    /// [`RecordError::Invalid`] if the signing library refuses.
    pub fn sign(key: &NodeKey, seq: u64, entries: &RecordEntries) -> Result<Self, RecordError> {
        let signer = signer(key)?;
        let mut builder = Enr::builder();
        builder.seq(seq);
        if let Some(ip) = entries.ip {
            builder.ip4(ip);
        }
        if let Some(ip) = entries.ip6 {
            builder.ip6(ip);
        }
        let ports = [
            ("tcp", entries.tcp),
            ("udp", entries.udp),
            ("tcp6", entries.tcp6),
            ("udp6", entries.udp6),
        ];
        for (name, port) in ports.into_iter().filter(|(_, port)| *port != 0) {
            builder.add_value(name, &port);
        }
        if let Some(fork_id) = entries.fork_id {
            builder.add_value("eth", &vec![fork_id]);
        }
        if entries.serves_snap {
            builder.add_value("snap", &Vec::<u64>::new());
        }
        let enr = builder.build(&signer);
        Self::from_enr(enr.map_err(|error| RecordError::Invalid(error.to_string()))?)
    }

    /// The record as the crate `discv5` takes it.
    pub(crate) fn enr(&self) -> &Enr<CombinedKey> {
        &self.enr
    }

    /// The encoded record.
    pub fn encode(&self) -> Vec<u8> {
        rlp::encode(&self.enr)
    }

    /// The key that signed it.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Its number: the higher one of two records of a node holds.
    pub fn seq(&self) -> u64 {
        self.enr.seq()
    }

    /// What it says, as far as it is known here. Entries that can't be read count as absent.
    pub fn entries(&self) -> RecordEntries {
        RecordEntries {
            ip: self.enr.ip4(),
            tcp: self.enr.tcp4().unwrap_or_default(),
            udp: self.enr.udp4().unwrap_or_default(),
            ip6: self.enr.ip6(),
            tcp6: self.enr.tcp6().unwrap_or_default(),
            udp6: self.enr.udp6().unwrap_or_default(),
            fork_id: self.fork_id(),
            serves_snap: self.enr.get_raw_rlp("snap").is_some(),
        }
    }

    /// The fork id of `eth`, whose further fields are ignored.
    pub fn fork_id(&self) -> Option<ForkId> {
        let entry = self.enr.get_raw_rlp("eth")?;
        let mut fields = Fields::of(entry).ok()?.list().ok()?;
        Some(ForkId {
            hash: fields.next().ok()?,
            next: fields.next().ok()?,
        })
    }

    /// Whether it has `eth2`: a node of the consensus layer, which shares discovery v5.
    pub fn is_consensus_node(&self) -> bool {
        self.enr.get_raw_rlp("eth2").is_some()
    }

    /// The node at the record's address. Of two addresses it is the public one, and IPv4 of two equal ones. `None` without an address.
    pub fn node(&self) -> Option<Node> {
        self.node_preferring(false, &NetRestrict::default())
    }

    /// The same, but only of allowed addresses, and of two equal ones that of IPv6 if that is preferred.
    pub(crate) fn node_preferring(
        &self,
        prefers_ipv6: bool,
        allowed: &NetRestrict,
    ) -> Option<Node> {
        let both = [self.node_of(false), self.node_of(true)];
        both.into_iter()
            .flatten()
            .filter(|node| matches!(node.host, Host::Ip(ip) if allowed.allows(ip)))
            .max_by_key(|node| match node.host {
                Host::Ip(ip) => (is_public(ip), ip.is_ipv6() == prefers_ipv6),
                Host::Name(_) => (false, false),
            })
    }

    /// The node at the record's address of a family.
    pub fn node_of(&self, is_ipv6: bool) -> Option<Node> {
        let entries = self.entries();
        if !is_ipv6 {
            let ip = IpAddr::V4(entries.ip?);
            return Some(Node::at(self.id, ip, entries.tcp, entries.udp));
        }
        let own_or = |own: u16, shared: u16| if own == 0 { shared } else { own };
        let tcp = own_or(entries.tcp6, entries.tcp);
        let udp = own_or(entries.udp6, entries.udp);
        Some(Node::at(self.id, IpAddr::V6(entries.ip6?), tcp, udp))
    }
}

/// The key as the crates `enr` and `discv5` take it.
///
/// # Errors
/// [`RecordError::Invalid`] if they refuse it.
pub(crate) fn signer(key: &NodeKey) -> Result<CombinedKey, RecordError> {
    let mut secret: B256 = *key.secret();
    let signer = CombinedKey::secp256k1_from_bytes(secret.as_mut_slice());
    signer.map_err(|error| RecordError::Invalid(error.to_string()))
}

impl FromStr for Record {
    type Err = RecordError;

    /// Reads `enr:` and base64.
    fn from_str(text: &str) -> Result<Self, RecordError> {
        let text = text.trim();
        if text.len() > MAX_TEXT_BYTES {
            let got = text.len() * 3 / 4;
            return Err(RecordError::TooLong { got });
        }
        if !text.starts_with("enr:") {
            return Err(RecordError::Text);
        }
        let enr = text.parse().map_err(RecordError::Invalid)?;
        let record = Self::from_enr(enr)?;
        // The library reads a record that is followed by more bytes.
        match record.to_string() == text {
            true => Ok(record),
            false => Err(RecordError::Text),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.enr.to_base64())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("id", &self.id)
            .field("seq", &self.seq())
            .field("entries", &self.entries())
            .finish()
    }
}

#[cfg(test)]
mod tests;
