//! What discovery finds and files keep: packets of v4, records, DNS lists, nodes as text, saved peers.

use super::values::{hash, number, some};
use super::{Form, Target};
use crate::discovery::dns::{Entry, EntryName, ListUrl, Root};
use crate::discovery::v4::wire::{Endpoint, Message, Neighbor, Packet, seal};
use crate::key::{NodeId, NodeKey};
use crate::node::Node;
use crate::peers::{Candidate, SavedPeer, SavedPeers};
use crate::record::{Record, RecordEntries};
use crate::wire::fields::{Fields, list};
use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use niwaki_crypto::keccak256;
use niwaki_primitives::rlp::encode;
use niwaki_primitives::{B256, FixedBytes};
use rand::Rng;
use rand::rngs::SmallRng;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

pub(super) fn targets() -> Vec<Target> {
    vec![
        packet(),
        record(),
        record_text(),
        node(),
        list_url(),
        entry_name(),
        root(),
        entry(),
        saved(),
    ]
}

fn key() -> NodeKey {
    NodeKey::new(B256::repeat_byte(5)).expect("it is below the group order")
}

fn text(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(data)
}

fn ip(rng: &mut SmallRng) -> IpAddr {
    match rng.random() {
        true => rng.random::<[u8; 4]>().into(),
        false => rng.random::<[u8; 16]>().into(),
    }
}

fn endpoint(rng: &mut SmallRng) -> Endpoint {
    Endpoint {
        ip: ip(rng).to_canonical(),
        udp: rng.random(),
        tcp: rng.random(),
    }
}

fn node_id(rng: &mut SmallRng) -> NodeId {
    NodeId(FixedBytes::new(rng.random()))
}

fn v4_message(rng: &mut SmallRng) -> Message {
    let expiration = number(rng);
    let record_seq = rng.random::<bool>().then(|| number(rng));
    match rng.random_range(0..6) {
        0 => Message::Ping {
            from: endpoint(rng),
            to: endpoint(rng),
            expiration,
            record_seq,
        },
        1 => Message::Pong {
            to: endpoint(rng),
            ping_hash: hash(rng),
            expiration,
            record_seq,
        },
        2 => Message::FindNode {
            target: node_id(rng),
            expiration,
        },
        3 => {
            let nodes = some(rng, 12, |rng| Neighbor {
                endpoint: endpoint(rng),
                id: node_id(rng),
            });
            Message::Neighbors { nodes, expiration }
        }
        4 => Message::EnrRequest { expiration },
        _ => Message::EnrResponse {
            request_hash: hash(rng),
            record: signed_record(rng).encode(),
        },
    }
}

/// The body of a packet is its type and fields; the envelope has hash and signature.
fn packet() -> Target {
    const HEAD: usize = 97;
    let read = |data: &[u8]| {
        let packet = Packet::decode(data).ok()?;
        packet.sender().ok()?;
        Some(packet.message)
    };
    let valid = |rng: &mut SmallRng| v4_message(rng).encode(&key()).0[HEAD..].to_vec();
    let write = |message: &Message| message.encode(&key()).0;
    let target = Target::new("discovery-v4", Form::Rlp(1), valid, read, write);
    target.sealed_by(|body, _| seal(body, &key()).0)
}

fn entries(rng: &mut SmallRng) -> RecordEntries {
    RecordEntries {
        ip: rng.random::<bool>().then(|| rng.random::<[u8; 4]>().into()),
        ip6: rng
            .random::<bool>()
            .then(|| rng.random::<[u8; 16]>().into()),
        tcp: rng.random(),
        udp: rng.random(),
        serves_snap: rng.random(),
        ..RecordEntries::default()
    }
}

fn signed_record(rng: &mut SmallRng) -> Record {
    let record = Record::sign(&key(), number(rng), &entries(rng));
    record.expect("the entries fit into a record")
}

/// The body of a record is its list with any signature; the envelope has the right one.
fn record() -> Target {
    let target = Target::new(
        "record",
        Form::Rlp(0),
        |rng| signed_record(rng).encode(),
        |data| Record::decode(data).ok(),
        |record: &Record| {
            record.entries();
            record.node();
            record.encode()
        },
    );
    let target = target.sealed_by(|body, _| signed_again(body).unwrap_or_else(|| body.to_vec()));
    target.allowed(64, 16 << 10)
}

fn signed_again(record: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Fields::of(record).ok()?;
    fields.raw().ok()?;
    let mut content = Vec::new();
    while !fields.is_empty() {
        content.extend_from_slice(fields.raw().ok()?);
    }
    let signature = key().sign(&keccak256(list(&[&content])));
    let signature: &[u8; 64] = signature.first_chunk()?;
    Some(list(&[&encode(FixedBytes::from(*signature)), &content]))
}

fn record_text() -> Target {
    Target::new(
        "record/text",
        Form::Text,
        |rng| signed_record(rng).to_string().into(),
        |data| text(data).parse::<Record>().ok(),
        |record: &Record| record.to_string().into(),
    )
    .allowed(64, 16 << 10)
}

fn node() -> Target {
    let valid = |rng: &mut SmallRng| {
        let node = Node::at(key().id(), ip(rng), rng.random(), rng.random());
        match rng.random_range(0..3) {
            0 => node
                .to_string()
                .replace(&node.host.to_string(), "Node.example.org"),
            1 => loop {
                let record = signed_record(rng);
                if record.node().is_some() {
                    break record.to_string();
                }
            },
            _ => node.to_string(),
        }
        .into()
    };
    let read = |data: &[u8]| text(data).parse::<Node>().ok();
    let write = |node: &Node| node.to_string().into();
    Target::new("node/text", Form::Text, valid, read, write).allowed(64, 16 << 10)
}

fn compressed_key() -> [u8; 33] {
    let id = key().id().0;
    let mut compressed = [0; 33];
    compressed[0] = 2 + (id[63] & 1);
    compressed[1..].copy_from_slice(&id[..32]);
    compressed
}

fn url_text() -> String {
    let key = BASE32_NOPAD.encode(&compressed_key());
    format!("enrtree://{key}@nodes.example.org")
}

fn name_text(rng: &mut SmallRng) -> String {
    BASE32_NOPAD.encode(&rng.random::<[u8; 32]>()[..rng.random_range(12..=32)])
}

fn list_url() -> Target {
    Target::new(
        "dns/url",
        Form::Text,
        |_| url_text().into(),
        |data| text(data).parse::<ListUrl>().ok(),
        |url: &ListUrl| url.to_string().into(),
    )
}

fn entry_name() -> Target {
    Target::new(
        "dns/name",
        Form::Text,
        |rng| name_text(rng).into(),
        |data| text(data).parse::<EntryName>().ok(),
        |name: &EntryName| name.to_string().into(),
    )
}

/// The body of a root is what is signed.
fn root() -> Target {
    let signed = |text: &str| {
        let signature = key().sign(&keccak256(text));
        format!("{text} sig={}", BASE64URL_NOPAD.encode(&signature)).into_bytes()
    };
    let unsigned = |records: &str, links: &str, seq: u64| {
        format!("enrtree-root:v1 e={records} l={links} seq={seq}")
    };
    let url: ListUrl = url_text().parse().expect("it is the URL of a list");
    let target = Target::new(
        "dns/root",
        Form::Text,
        move |rng| unsigned(&name_text(rng), &name_text(rng), number(rng)).into(),
        move |data| Root::parse(&text(data), &url).ok(),
        move |root: &Root| {
            let (records, links) = (root.records.to_string(), root.links.to_string());
            signed(&unsigned(&records, &links, root.seq))
        },
    );
    target.sealed_by(move |body, _| signed(&text(body)))
}

/// An entry is named by its hash, which is made right here.
fn entry() -> Target {
    let valid = |rng: &mut SmallRng| {
        match rng.random_range(0..3) {
            0 => format!("enrtree-branch:{}", some(rng, 8, name_text).join(",")),
            1 => url_text(),
            _ => signed_record(rng).to_string(),
        }
        .into()
    };
    let read = |data: &[u8]| {
        let text = text(data);
        Entry::parse(&text, &EntryName::of(&text)).ok()
    };
    let write = |entry: &Entry| {
        match entry {
            Entry::Branch(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                format!("enrtree-branch:{}", names.join(","))
            }
            Entry::Link(url) => url.to_string(),
            Entry::Record(record) => record.to_string(),
        }
        .into()
    };
    Target::new("dns/entry", Form::Text, valid, read, write).allowed(64, 16 << 10)
}

fn saved() -> Target {
    let valid = |rng: &mut SmallRng| {
        let mut saved = SavedPeers::default();
        for _ in 0..rng.random_range(0..6) {
            saved.note(SavedPeer {
                candidate: Candidate {
                    id: node_id(rng),
                    address: SocketAddr::new(ip(rng), rng.random()),
                    udp_port: rng.random(),
                },
                last_seen_s: number(rng),
                score: rng.random(),
                good_minutes: rng.random(),
            });
        }
        saved.text().into()
    };
    let read = |data: &[u8]| SavedPeers::parse(&text(data)).ok();
    let write = |saved: &SavedPeers| saved.text().into();
    Target::new("saved-peers", Form::Text, valid, read, write).allowed(64, 16 << 10)
}
