//! The base protocol `p2p`: Hello, Disconnect, Ping and Pong, and which message numbers the shared protocols get.
//!
//! Spec: devp2p `rlpx.md`, "Message ID-based Multiplexing" and "p2p Capability".

use crate::key::NodeId;
use crate::wire::fields::{Fields, list};
use niwaki_primitives::rlp::{self, Decodable, encode};
use std::fmt;

/// The version of the base protocol that this node speaks: from it on messages are compressed.
pub(crate) const VERSION: u64 = 5;

/// Message numbers of the base protocol.
pub(crate) const HELLO: u8 = 0;
pub(crate) const DISCONNECT: u8 = 1;
pub(crate) const PING: u8 = 2;
pub(crate) const PONG: u8 = 3;
/// How many there are.
pub(crate) const LENGTH: u8 = 4;
/// The first number of the other protocols.
pub(crate) const FIRST_SHARED: u8 = 16;

/// The name of a message of the base protocol.
pub(crate) fn message_name(number: u8) -> &'static str {
    match number {
        HELLO => "Hello",
        DISCONNECT => "Disconnect",
        PING => "Ping",
        PONG => "Pong",
        _ => "",
    }
}

/// Most bytes of a client's name, and most protocols, that are read of a Hello.
const MAX_NAME_BYTES: usize = 256;
const MAX_PROTOCOLS: usize = 64;

/// A protocol and its version, such as `eth/69`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    /// At most eight ASCII letters.
    pub name: String,
    /// Its version.
    pub version: u64,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

/// A protocol that this node offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name and version.
    pub capability: Capability,
    /// How many message numbers it has.
    pub length: u8,
}

impl Protocol {
    /// A protocol of so many messages.
    pub fn new(name: &str, version: u64, length: u8) -> Self {
        let name = name.into();
        Self {
            capability: Capability { name, version },
            length,
        }
    }
}

/// A protocol that both sides speak, with its message numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedProtocol {
    /// Its name and version.
    pub capability: Capability,
    /// Its first message number.
    pub offset: u8,
    /// How many it has.
    pub length: u8,
}

/// Of each protocol the highest version that both sides have, in the order of their names, numbered one after the other.
pub(crate) fn shared_protocols(ours: &[Protocol], theirs: &[Capability]) -> Vec<SharedProtocol> {
    let mut both: Vec<&Protocol> = ours
        .iter()
        .filter(|protocol| theirs.contains(&protocol.capability))
        .collect();
    both.sort_by(|a, b| b.capability.cmp(&a.capability));
    both.dedup_by(|lower, higher| lower.capability.name == higher.capability.name);
    both.reverse();
    let mut offset = FIRST_SHARED;
    let shared = both.into_iter().map_while(|protocol| {
        let next = offset.checked_add(protocol.length)?;
        Some(SharedProtocol {
            capability: protocol.capability.clone(),
            offset: std::mem::replace(&mut offset, next),
            length: protocol.length,
        })
    });
    shared.collect()
}

/// The first message of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the base protocol.
    pub version: u64,
    /// The client's name, such as `Niwaki/v0.1.0/linux-x86_64`.
    pub client: String,
    /// What it speaks.
    pub capabilities: Vec<Capability>,
    /// Where it listens; 0 says nothing.
    pub port: u16,
    /// Its public key.
    pub id: NodeId,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let all = self.capabilities.iter();
        let capabilities = all.flat_map(|c| list(&[&encode(&c.name), &encode(c.version)]));
        let capabilities: Vec<u8> = capabilities.collect();
        list(&[
            &encode(self.version),
            &encode(&self.client),
            &list(&[&capabilities]),
            &encode(self.port),
            &encode(self.id.0),
        ])
    }

    /// Reads a Hello. More list items are ignored (EIP-8), as is a port that is none.
    pub(crate) fn decode(data: &[u8]) -> rlp::Result<Self> {
        let mut fields = Fields::of(data)?;
        let version = fields.next()?;
        let client = name_of(fields.bytes()?);
        let (mut all, mut capabilities) = (fields.list()?, Vec::new());
        while !all.is_empty() {
            let mut pair = all.list()?;
            let name = String::from_utf8_lossy(pair.bytes()?).into_owned();
            let version = pair.next()?;
            if capabilities.len() < MAX_PROTOCOLS && name.len() <= 8 {
                capabilities.push(Capability { name, version });
            }
        }
        let port: u64 = fields.next()?;
        Ok(Self {
            version,
            client,
            capabilities,
            port: u16::try_from(port).unwrap_or_default(),
            id: NodeId(fields.next()?),
        })
    }
}

/// A client's name as logs may print it: cut, and without control characters.
fn name_of(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DisconnectReason {
    /// 0x00, and what is not in the table.
    Requested,
    /// 0x01
    TcpError,
    /// 0x02
    ProtocolBreach,
    /// 0x03
    UselessPeer,
    /// 0x04
    TooManyPeers,
    /// 0x05
    AlreadyConnected,
    /// 0x06
    IncompatibleVersion,
    /// 0x07
    NullIdentity,
    /// 0x08
    ClientQuitting,
    /// 0x09
    UnexpectedIdentity,
    /// 0x0a
    ConnectedToSelf,
    /// 0x0b
    PingTimeout,
    /// 0x10
    SubprotocolReason,
}

use DisconnectReason as Reason;

/// Each reason with its number and the name that metrics give it (Besu's).
const REASONS: [(Reason, u8, &str); 13] = [
    (Reason::Requested, 0x00, "REQUESTED"),
    (Reason::TcpError, 0x01, "TCP_SUBSYSTEM_ERROR"),
    (Reason::ProtocolBreach, 0x02, "BREACH_OF_PROTOCOL"),
    (Reason::UselessPeer, 0x03, "USELESS_PEER"),
    (Reason::TooManyPeers, 0x04, "TOO_MANY_PEERS"),
    (Reason::AlreadyConnected, 0x05, "ALREADY_CONNECTED"),
    (
        Reason::IncompatibleVersion,
        0x06,
        "INCOMPATIBLE_P2P_PROTOCOL_VERSION",
    ),
    (Reason::NullIdentity, 0x07, "NULL_NODE_ID"),
    (Reason::ClientQuitting, 0x08, "CLIENT_QUITTING"),
    (Reason::UnexpectedIdentity, 0x09, "UNEXPECTED_ID"),
    (Reason::ConnectedToSelf, 0x0a, "LOCAL_IDENTITY"),
    (Reason::PingTimeout, 0x0b, "TIMEOUT"),
    (Reason::SubprotocolReason, 0x10, "SUBPROTOCOL_TRIGGERED"),
];

impl DisconnectReason {
    /// All.
    pub const ALL: [Self; REASONS.len()] = {
        let (mut all, mut at) = ([Self::Requested; REASONS.len()], 0);
        while at < all.len() {
            all[at] = REASONS[at].0;
            at += 1;
        }
        all
    };

    fn row(self) -> (u8, &'static str) {
        let row = REASONS.iter().find(|row| row.0 == self);
        row.map_or((0, "REQUESTED"), |row| (row.1, row.2))
    }

    /// Besu's name of it, as metrics and logs have it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The number on the wire.
    pub fn code(self) -> u8 {
        self.row().0
    }

    /// The message body: a list of the number.
    pub(crate) fn encode(self) -> Vec<u8> {
        list(&[&encode(self.code())])
    }

    /// Reads a list or a bare number; `Requested` for anything else.
    pub(crate) fn decode(mut data: &[u8]) -> Self {
        let code = match Fields::of(data) {
            Ok(mut fields) => fields.next(),
            Err(_) => u8::decode(&mut data),
        };
        let code = code.unwrap_or_default();
        let row = REASONS.iter().find(|row| row.1 == code);
        row.map_or(Reason::Requested, |row| row.0)
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{FixedBytes, hex};
    use proptest::prelude::*;

    fn capability(text: &str) -> Capability {
        let (name, version) = text.split_once('/').unwrap();
        Capability {
            name: name.into(),
            version: version.parse().unwrap(),
        }
    }

    fn shared(ours: &[(&str, u8)], theirs: &[&str]) -> Vec<(String, u8)> {
        let ours: Vec<_> = ours
            .iter()
            .map(|(text, length)| Protocol {
                capability: capability(text),
                length: *length,
            })
            .collect();
        let theirs: Vec<_> = theirs.iter().map(|text| capability(text)).collect();
        let shared = shared_protocols(&ours, &theirs);
        shared
            .iter()
            .map(|p| (p.capability.to_string(), p.offset))
            .collect()
    }

    #[test]
    fn the_highest_shared_versions_are_numbered_by_name_from_16() {
        let ours = [
            ("snap/1", 8),
            ("eth/69", 18),
            ("eth/70", 18),
            ("istanbul/100", 22),
        ];
        let expected = [
            ("eth/70".into(), 16),
            ("istanbul/100".into(), 34),
            ("snap/1".into(), 56),
        ];
        let theirs = [
            "snap/1",
            "eth/68",
            "eth/70",
            "eth/69",
            "istanbul/100",
            "les/4",
        ];
        assert_eq!(shared(&ours, &theirs), expected);
        assert_eq!(shared(&ours, &["eth/69"]), [("eth/69".into(), 16)]);
        assert!(shared(&ours, &["eth/68", "snap/2"]).is_empty());
    }

    #[test]
    fn a_hello_of_another_version_with_more_fields_is_read() {
        // EIP-8, "devp2p Base Protocol".
        let data = hex::decode(
            "f87137916b6e6574682f76302e39312f706c616e39cdc5836574683dc6846d6f726b1682270fb840\
             fda1cff674c90c9a197539fe3dfb53086ace64f83ed7c6eabec741f7f381cc803e52ab2cd55d5569\
             bce4347107a310dfd5f88a010cd2ffd1005ca406f1842877c883666f6f836261720304",
        );
        let hello = Hello::decode(&data.unwrap()).unwrap();
        assert_eq!(
            (hello.version, hello.client.as_str()),
            (55, "kneth/v0.91/plan9")
        );
        assert_eq!(
            hello.capabilities,
            [capability("eth/61"), capability("mork/22")]
        );
        assert_eq!(hello.port, 9999);
    }

    #[test]
    fn hello_survives_its_encoding() {
        let hello = Hello {
            version: VERSION,
            client: "Niwaki/v0.1.0".into(),
            capabilities: vec![capability("eth/69"), capability("snap/1")],
            port: 30303,
            id: NodeId(FixedBytes::repeat_byte(7)),
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn a_reason_is_read_in_a_list_and_bare() {
        for (reason, code, _) in REASONS {
            assert_eq!(DisconnectReason::decode(&reason.encode()), reason);
            assert_eq!(DisconnectReason::decode(&rlp::encode(code)), reason);
        }
        for odd in [&b""[..], &[0xc0], &[0xff], &[0xc1, 0x7f], &[0x82, 1]] {
            assert_eq!(DisconnectReason::decode(odd), Reason::Requested);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(data in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Hello::decode(&data);
            DisconnectReason::decode(&data);
        }
    }
}
